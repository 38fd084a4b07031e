"""The simulator beside real flows: each law's metrics, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay import stats
from forebay.metrics import METRICS, with_interval

if TYPE_CHECKING:
    from forebay.result import Result
    from forebay.validate.real import Attempt

#: What is laid side by side.
COMPARED = [
    "queue_mean_pkts",
    "queue_std_pkts",
    "delay_mean_s",
    "delay_p95_s",
    "delay_p99_s",
    "drop_rate",
    "mark_rate",
    "goodput_bps",
    "utilisation",
]
#: Mean delays agree within the wider of these, signals (drops and marks) within the share.
DELAY_SHARE, DELAY_S, SIGNAL_SHARE = 0.10, 1e-3, 0.20


@dataclass(frozen=True)
class Side:
    """Metrics of one law on one side, a value per run."""

    metrics: list[dict[str, float]]

    def values(self, name: str) -> list[float]:
        return [metrics[name] for metrics in self.metrics]

    def mean(self, name: str) -> float:
        return stats.mean_and_interval(self.values(name))[0]

    def text(self, name: str) -> str:
        """Mean ± half the 95 % interval, in the metric's unit."""
        scale = METRICS[name].scale
        return with_interval(*stats.mean_and_interval([scale * v for v in self.values(name)]))

    @property
    def signal_rate(self) -> float:
        """Packets dropped or marked, of those that arrived."""
        return self.mean("drop_rate") + self.mean("mark_rate")


@dataclass(frozen=True)
class Row:
    """A law at a point."""

    point: str
    law: str
    simulated: Side
    #: Sound runs; all, if every one of them is void.
    real: Side
    #: Runs that stayed void, of so many.
    void: int
    repeats: int
    #: Void runs that were made again.
    again: int
    #: Why they are void, each reason once.
    reasons: list[str]

    @property
    def counts_void(self) -> bool:
        """Whether there is no sound run, and void ones are shown."""
        return self.void == self.repeats

    @property
    def delay_difference_s(self) -> float:
        """Real less simulated."""
        return self.real.mean("delay_mean_s") - self.simulated.mean("delay_mean_s")

    @property
    def signal_difference(self) -> float:
        """Real less simulated, as a share of the real rate."""
        real, simulated = self.real.signal_rate, self.simulated.signal_rate
        return 0.0 if real == simulated else (real - simulated) / real if real else -math.inf

    @property
    def delay_agrees(self) -> bool:
        real_s = self.real.mean("delay_mean_s")
        return abs(self.delay_difference_s) <= max(DELAY_SHARE * real_s, DELAY_S)

    @property
    def signal_agrees(self) -> bool:
        return abs(self.signal_difference) <= SIGNAL_SHARE

    @property
    def agrees(self) -> bool:
        return self.delay_agrees and self.signal_agrees

    def verdict(self) -> str:
        """In words: agrees, or what differs and by how much."""
        if self.agrees:
            return "agrees"
        parts = []
        if not self.delay_agrees:
            parts.append(f"delay {1e3 * self.delay_difference_s:+.1f} ms")
        if not self.signal_agrees:
            parts.append(f"loss {100 * self.signal_difference:+.0f} %")
        return "real " + ", ".join(parts)


@dataclass(frozen=True)
class Comparison:
    """A scenario, both ways."""

    title: str
    path: str
    simulated_runs: int
    rows: list[Row]

    @property
    def metrics(self) -> list[str]:
        """Those worth a column: marks only where there are some."""
        sides = [side for row in self.rows for side in (row.simulated, row.real)]
        marked = any(value > 0 for side in sides for value in side.values("mark_rate"))
        return [name for name in COMPARED if name != "mark_rate" or marked]


def compare(simulated: Result, real: Sequence[Attempt]) -> Comparison:
    """Lays the runs of a scenario beside the real ones of the same laws and points."""
    rows = []
    for p, point in enumerate(simulated.plan.points):
        for i, law in enumerate(simulated.plan.laws):
            attempts = [one for one in real if (one.point, one.law) == (p, i)]
            sound = [one for one in attempts if not one.void]
            rows.append(
                Row(
                    point=point.label,
                    law=law,
                    simulated=Side([run.metrics for run in simulated.of(p, i)]),
                    real=Side([one.metrics for one in sound or attempts]),
                    void=len(attempts) - len(sound),
                    repeats=len(attempts),
                    again=sum(one.former for one in attempts),
                    reasons=list(dict.fromkeys(why for one in attempts for why in one.void)),
                )
            )
    plan = simulated.plan
    return Comparison(
        plan.title or simulated.experiment.path, simulated.experiment.path, len(plan.seeds), rows
    )
