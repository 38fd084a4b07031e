"""The linear model of a law at each corner: margins, and the deviation of the queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from forebay.control import disturbances
from forebay.control.loop import Loop, count_loops
from forebay.control.plants import plant_on
from forebay.tuning.ranges import Condition, Ranges

Params = Sequence[tuple[str, str]]

#: Largest |1/(1 + L)| allowed at any corner: at least 6 dB and 29° (Åström and Hägglund 2006).
SENSITIVITY = 2.0


@dataclass(frozen=True)
class LocalModel:
    """A law under one condition, by the linear model.

    flows: those that the model counts, at most as many as have ten packets in flight each.
    held: whether that load is within the range, so that margins count.
    queue_pkts: where the queue settles.
    gain_db: least change of the gain to oscillation; below 0 where the loop is unstable.
    sensitivity: largest |1/(1 + L)|; 2 leaves at least 6 dB and 29°.
    noise_pkts, load_pkts: deviation of the queue by TCP's own losses, and by changes of the load.
    """

    condition: Condition
    flows: float
    held: bool
    queue_pkts: float
    capacity_pkts_per_s: float
    stable: bool
    gain_db: float
    sensitivity: float
    noise_pkts: float
    load_pkts: float
    #: for its exact margins
    loop: Loop

    @property
    def deviation_pkts(self) -> float:
        return math.hypot(self.noise_pkts, self.load_pkts)

    @property
    def timeouts(self) -> bool:
        """Whether there are more flows than the model counts."""
        return self.flows < (1 - 1e-6) * self.condition.flows

    @property
    def idle(self) -> float:
        """Share of time at which the queue is empty at constant load, were it Gaussian."""
        if self.noise_pkts == 0:
            return 0.0
        return 0.5 * math.erfc(self.queue_pkts / self.noise_pkts / math.sqrt(2))

    @property
    def delay_p95_s(self) -> float:
        return (self.queue_pkts + 1.645 * self.deviation_pkts) / self.capacity_pkts_per_s

    @property
    def deviation_s(self) -> float:
        """Of the queuing delay, by TCP's own losses and by changes of the load."""
        return self.deviation_pkts / self.capacity_pkts_per_s

    @property
    def noise_delay_s(self) -> float:
        """Deviation of the queuing delay at constant load."""
        return self.noise_pkts / self.capacity_pkts_per_s


def local_models_at(
    law: str,
    params_at: Callable[[Condition, float], Params],
    queue_pkts: float | Callable[[Condition], float],
    ranges: Ranges,
    conditions: Sequence[Condition],
) -> list[LocalModel | None]:
    """The law under each condition; None where it has no equilibrium within the buffer.

    params_at: parameters under a condition with a number of flows; they differ only in what a law
    adapts by itself. queue_pkts: about where the queue settles, everywhere or under each condition.

    Raises `ScenarioError` for a parameter that is wrong.
    """
    loops: list[Loop | None] = []
    counts = []
    for condition in conditions:
        about = queue_pkts(condition) if callable(queue_pkts) else queue_pkts
        flows = ranges.native.active_flows(condition.plain, about)
        # A law that estimates the load takes the flows for Reno's.
        params = list(params_at(condition, ranges.reno_flows(condition, flows, about)))
        counts.append(flows)
        loop = plant_on(ranges.link(condition, flows), law, params).loop_at(flows, condition.rtt_s)
        outside = loop is None or loop.model["queue_pkts"] > ranges.buffer_pkts
        loops.append(None if outside else loop)
    verdicts = iter(count_loops([loop for loop in loops if loop is not None]))
    return [
        None if loop is None else _local_model(condition, flows, ranges, loop, *next(verdicts))
        for condition, flows, loop in zip(conditions, counts, loops, strict=True)
    ]


def _local_model(
    condition: Condition, flows: float, ranges: Ranges, loop: Loop, gain_db: float, stable: bool
) -> LocalModel:
    sensitivity, noise_pkts, load_pkts = disturbances.queue_deviations(loop)
    return LocalModel(
        condition,
        flows,
        flows > (1 - 1e-6) * ranges.flows[0],
        loop.model["queue_pkts"],
        loop.point.capacity_pkts_per_s,
        stable,
        gain_db,
        sensitivity,
        noise_pkts,
        load_pkts,
        loop,
    )


def keeps(local: Sequence[LocalModel | None]) -> bool:
    """Whether every place has an equilibrium, is stable, and keeps its sensitivity peak."""
    if not local or any(one is None for one in local):
        return False
    return all(one.stable and one.sensitivity <= SENSITIVITY for one in counted(local))


def counted(local: Sequence[LocalModel | None]) -> list[LocalModel]:
    """Where margins count: loads within the range, or the nearest to them if there are none."""
    there = [one for one in local if one is not None]
    return [one for one in there if one.held] or there
