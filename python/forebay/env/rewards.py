"""What an agent is paid for one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """One step at the queue, in the units of the names."""

    time_s: float
    queue_pkts: float
    #: what waits, at the rate that the link had in this step
    delay_s: float
    #: share of the link's capacity that was used
    utilisation: float
    #: packets that came; the shares of them that were dropped and marked
    arrivals: int
    dropped: float
    marked: float
    #: what receivers handed to their applications
    goodput_bps: float
    #: the law's probability of a signal
    p: float
    #: the set-point, also as the time that a packet waits there at the link's first rate
    target_pkts: float
    target_s: float


Reward = Callable[[Seen], float]


def power(seen: Seen) -> float:
    """Utilisation over delay, from 0 to 1: half of it is lost where a packet waits as long as at
    the set-point. The power of Kleinrock (1979), with that delay in place of the path's."""
    return min(1.0, seen.utilisation) * seen.target_s / (seen.target_s + seen.delay_s)


def delay(seen: Seen) -> float:
    """Minus the delay in set-points, and minus ten times the share of the link that is idle."""
    return -seen.delay_s / seen.target_s - 10.0 * max(0.0, 1.0 - seen.utilisation)


def set_point(seen: Seen) -> float:
    """Minus the distance to the set-point, in set-points."""
    return -abs(seen.queue_pkts - seen.target_pkts) / seen.target_pkts


#: Rewards by their keyword; the first is the default.
REWARDS: Mapping[str, Reward] = {"power": power, "delay": delay, "set_point": set_point}
