"""A fluid model: its bottlenecks, its classes of flows, and their changes.

The equations are those of Misra, Gong and Towsley (2000), or of another sender, without timeouts
and slow start; the law in them is the object that the packet simulator runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bottleneck:
    """A queue under a law, and its link.

    law: its name in `forebay laws`.
    rate: such as "30Mbit/s".
    buffer_pkts: buffer size in packets.
    packet: size of every packet.
    params: of the law, such as {"target": "200p", "a": 1.8e-5}; the others have their defaults.
    """

    law: str
    rate: str
    buffer_pkts: float
    packet: str = "1000B"
    params: Mapping[str, bool | float | str] | Sequence[tuple[str, bool | float | str]] = ()

    def __post_init__(self) -> None:
        if isinstance(self.params, Mapping):
            object.__setattr__(self, "params", tuple(self.params.items()))


@dataclass(frozen=True)
class Class:
    """Like flows: one window stands for all of them.

    flows: how many; need not be whole.
    rtt: without queueing, such as "200ms".
    route: bottlenecks on the way, by index, the first first.
    initial_window_pkts: window of a flow that starts.
    window_pkts: largest window.
    growth_pkts_per_rtt: 1, or 1/2 with delayed ACKs.
    marks: whether a signal marks a packet instead of dropping it.
    l4s: whether packets are ECT(1): they are marked, and a coupled law marks them as those of L4S.
    tcp: the sender, by the name that scenarios have: "reno", "newreno", "sack" (all one here),
        "linux-reno", "cubic", "linux-cubic", "dctcp" or "prague".
    sawtooth: describe windows more closely than the published equations: rates on the clock of
        ACKs, whole packets in flight, growth by the ACKs that come back, and the spread of
        windows between flows. docs/fluid.md has the equations.
    """

    flows: float
    rtt: str
    route: Sequence[int] = (0,)
    label: str = ""
    initial_window_pkts: float = 2.0
    window_pkts: float = 1e9
    growth_pkts_per_rtt: float = 1.0
    marks: bool = False
    l4s: bool = False
    tcp: str = "reno"
    sawtooth: bool = False


@dataclass(frozen=True)
class Change:
    """Something that changes at a time.

    what: "flows" or "rtt" of a class, "rate" or "buffer_pkts" of a bottleneck.
    value: a number of flows or packets, or a text such as "20Mbit/s" or "100ms".
    index: which class or bottleneck.
    """

    at: str
    what: str
    value: float | str
    index: int = 0


@dataclass(frozen=True)
class Model:
    """A run.

    step: "auto" for integration steps as long as their error allows, or the longest, such as "1ms".
    sample: time between rows.
    """

    bottlenecks: Sequence[Bottleneck]
    classes: Sequence[Class]
    duration: str = "100s"
    changes: Sequence[Change] = field(default=())
    step: str = "auto"
    sample: str = "10ms"
    seed: int = 1
