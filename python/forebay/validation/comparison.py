"""The simulator beside real flows: metrics by law, their differences, and what agrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay.base import metrics, statistics
from forebay.base.metrics import Metric, with_interval
from forebay.pages.result_files import finite

if TYPE_CHECKING:
    from forebay._native import LawInfo, Observed, PointInfo, Run
    from forebay.results.result import Result
    from forebay.validation.real import Attempts

#: Of the short transfers alone.
SHORT = Metric(
    "short_goodput_bps", "Goodput, short", "Mbit/s", 1e-6, "goodput of the short transfers"
)
METRICS = metrics.METRICS | {SHORT.name: SHORT}
#: Metrics that are compared, where a run has them.
COMPARED = [
    "queue_mean_pkts",
    "queue_std_pkts",
    "delay_mean_s",
    "delay_p95_s",
    "delay_p99_s",
    "drop_rate",
    "mark_rate",
    "goodput_bps",
    SHORT.name,
    "utilisation",
]
#: Metrics that some scenarios lack.
SOMETIMES = ["mark_rate", SHORT.name]
#: Mean delays agree within the wider of these, signals (drops and marks) within the share.
DELAY_SHARE, DELAY_S, SIGNAL_SHARE = 0.10, 1e-3, 0.20
#: Words for a verdict that another set of runs may turn.
UNSURE, CHANCE = "unsure", "may be chance"


def signed(difference: float, half_width: float) -> str:
    """`+difference ± half_width`: the interval to two figures, the difference to its last."""
    if not half_width > 0:
        return f"{difference:+.3g}"
    decimals = max(0, 1 - math.floor(math.log10(half_width)))
    # A difference that rounds to zero has no sign.
    mean = f"{difference:+.{decimals}f}" if round(difference, decimals) else f"{0:.{decimals}f}"
    return f"{mean} ± {half_width:.{decimals}f}"


@dataclass(frozen=True)
class Side:
    """Metrics of one law on one side, a value per run."""

    metrics: list[dict[str, float]]
    #: The runs themselves.
    observed: Sequence[Observed] = ()

    def values(self, name: str) -> list[float]:
        """NaN where a run has none."""
        return [metrics.get(name, math.nan) for metrics in self.metrics]

    def mean_and_interval(self, name: str) -> tuple[float, float]:
        """In the metric's unit."""
        return statistics.mean_and_interval([METRICS[name].scale * v for v in self.values(name)])

    def mean(self, name: str) -> float:
        return statistics.mean_and_interval(self.values(name))[0]

    def text(self, name: str) -> str:
        """Mean ± half the 95 % interval, in the metric's unit."""
        return with_interval(*self.mean_and_interval(name))

    @property
    def signal_rates(self) -> list[float]:
        """Packets dropped or marked, of those that arrived, by run."""
        drops, marks = self.values("drop_rate"), self.values("mark_rate")
        return [drop + mark for drop, mark in zip(drops, marks, strict=True)]


@dataclass(frozen=True)
class Difference:
    """The difference real − simulated of a number that should agree."""

    name: str
    #: Of the real runs.
    real: float
    difference: float
    #: Half the width of its 95 % interval; NaN for fewer than two runs on either side.
    half_width: float
    #: Largest difference that agrees.
    limit: float
    #: Factor to ms, or to % of the packets.
    scale: float
    #: In words, such as "+4.2 ms".
    text: str

    @property
    def cells(self) -> tuple[str, str]:
        """With its interval, and its limit, both times `scale`."""
        limit = f"± {self.scale * self.limit:.2g}"
        return signed(self.scale * self.difference, self.scale * self.half_width), limit

    @property
    def agrees(self) -> bool:
        """Whether the means are close enough."""
        return abs(self.difference) <= self.limit

    @property
    def sure(self) -> bool:
        """Whether the whole interval is on one side of the limit."""
        size = abs(self.difference)
        return size + self.half_width <= self.limit or size - self.half_width > self.limit

    @property
    def may_be_chance(self) -> bool:
        """Whether the interval has zero in it."""
        return abs(self.difference) <= self.half_width

    def as_json(self) -> dict[str, Any]:
        keys = ["real", "difference", "half_width", "limit"]
        return finite({key: getattr(self, key) for key in keys}) | {
            key: getattr(self, key) for key in ["agrees", "sure", "may_be_chance"]
        }


@dataclass(frozen=True)
class Row:
    """A law at a point."""

    point: str
    law: str
    simulated: Side
    #: Sound runs; all, if every one of them is void.
    real: Side
    #: Runs that stayed void, of `repeats` runs.
    void: int
    repeats: int
    #: Void runs that were made again.
    again: int
    #: Why they are void, each reason once.
    reasons: list[str]
    #: The law; None in a test of the arithmetic.
    info: LawInfo | None = None

    @property
    def name(self) -> str:
        return f"{self.law}, {self.point}" if self.point else self.law

    @property
    def counts_void(self) -> bool:
        """Whether there is no sound run, and void ones are shown."""
        return self.void == self.repeats

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.simulated, self.real

    @property
    def delay(self) -> Difference:
        """Of the mean queuing delay, in s."""
        real, simulated = (side.values("delay_mean_s") for side in (self.real, self.simulated))
        mean_s, _ = statistics.mean_and_interval(real)
        found = statistics.difference_and_interval(real, simulated)
        text = f"delay {1e3 * found[0]:+.1f} ms"
        return Difference("delay", mean_s, *found, max(DELAY_SHARE * mean_s, DELAY_S), 1e3, text)

    @property
    def signals(self) -> Difference:
        """Of the share of packets dropped or marked."""
        real, simulated = self.real.signal_rates, self.simulated.signal_rates
        mean, _ = statistics.mean_and_interval(real)
        found = statistics.difference_and_interval(real, simulated)
        text = f"loss {100 * found[0] / mean:+.0f} %" if mean else "no loss"
        return Difference("loss", mean, *found, SIGNAL_SHARE * mean, 100, text)

    @property
    def differences(self) -> list[Difference]:
        return [self.delay, self.signals]

    @property
    def agrees(self) -> bool:
        return all(one.agrees for one in self.differences)

    @property
    def sure(self) -> bool:
        """Whether the intervals leave no doubt about `agrees`."""
        if self.agrees:
            return all(one.sure for one in self.differences)
        return any(one.sure and not one.agrees for one in self.differences)

    @property
    def verdict(self) -> str:
        """In words: agrees, or the differences; and whether the runs are enough."""
        differ = [one for one in self.differences if not one.agrees]
        text = f"differs: real {', '.join(one.text for one in differ)}" if differ else "agrees"
        if not self.sure:
            by_chance = differ and all(one.may_be_chance for one in differ)
            text += f" ({CHANCE if by_chance else UNSURE})"
        return text

    def difference_text(self, name: str) -> str:
        """Real less simulated ± half its 95 % interval, in the metric's unit."""
        scale = METRICS[name].scale
        real, simulated = (
            [scale * v for v in side.values(name)] for side in (self.real, self.simulated)
        )
        return signed(*statistics.difference_and_interval(real, simulated))

    def as_json(self) -> dict[str, Any]:
        return {
            "point": self.point,
            "law": self.law,
            "agrees": self.agrees,
            "sure": self.sure,
            "verdict": self.verdict,
            "differences": {one.name: one.as_json() for one in self.differences},
            "repeats": self.repeats,
            "void": self.void,
        }


@dataclass(frozen=True)
class ValidatedScenario:
    """A scenario, simulated and with real flows."""

    title: str
    path: str
    simulated_runs: int
    rows: list[Row]
    #: All that finished, void ones too: side, law, point, seed, why it is void, and metrics.
    runs: list[dict[str, Any]]
    #: Their traffic names the senders.
    points: Sequence[PointInfo]
    #: The scenario as it was read.
    text: str
    #: The missing part; empty for a whole comparison.
    partial: str

    @property
    def metrics(self) -> list[str]:
        """Those worth a column."""
        every = [one for row in self.rows for side in row.sides for one in side.metrics]
        return [
            name
            for name in COMPARED
            if name not in SOMETIMES or any(metrics.get(name, 0) > 0 for metrics in every)
        ]

    @property
    def agree(self) -> list[Row]:
        return [row for row in self.rows if row.agrees]

    def count(self) -> str:
        """Number of laws that agree, and whether the verdicts are sure."""
        unsure = sum(not row.sure for row in self.rows)
        doubt = f", {unsure} of the verdicts unsure" if unsure else ", all verdicts sure"
        return f"{len(self.agree)} of {len(self.rows)} agree{doubt}"


def compare(simulated: Result, real: Attempts) -> ValidatedScenario:
    """Lays the runs of a scenario beside the real ones of the same laws and points.

    Laws with runs on both sides are compared, so that an early end costs only the others.
    """
    plan = simulated.plan
    rows: list[Row] = []
    every: list[dict[str, Any]] = []
    for p, point in enumerate(plan.points):
        short = {n for n, traffic in enumerate(point.traffic) if traffic.kind != "ftp"}
        for i, law in enumerate(point.laws):
            attempts = [one for one in real.finished if (one.point, one.law) == (p, i)]
            runs = simulated.runs_of(p, i)
            with_short = [_with_short(run, short) for run in runs]
            name = {"law": plan.laws[i], "point": point.label}
            every += [
                {"side": "simulated", **name, "seed": run.seed, "void": [], "metrics": metrics}
                for run, metrics in zip(runs, with_short, strict=True)
            ]
            every += [
                {"side": "real", **name, "seed": it.seed, "void": it.void, "metrics": it.metrics}
                for it in attempts
            ]
            if not attempts or not runs:
                continue
            sound = [one for one in attempts if not one.void]
            shown = sound or attempts
            rows.append(
                Row(
                    **name,
                    simulated=Side(with_short, runs),
                    real=Side([one.metrics for one in shown], [one.observed for one in shown]),
                    void=len(attempts) - len(sound),
                    repeats=len(attempts),
                    again=sum(one.former for one in attempts),
                    reasons=list(dict.fromkeys(why for one in attempts for why in one.void)),
                    info=law,
                )
            )
    done = len(real.finished)
    return ValidatedScenario(
        title=plan.title or simulated.experiment.path,
        path=simulated.experiment.path,
        simulated_runs=len(plan.seeds),
        rows=rows,
        runs=every,
        points=plan.points,
        text=simulated.experiment.text,
        partial=(
            f"Partial result: {done} of {real.wanted} real runs finished before it was stopped."
            if done < real.wanted
            else ""
        ),
    )


def _with_short(run: Run, short: set[int]) -> dict[str, float]:
    """A simulated run's metrics, with the goodput of the traffic that is short transfers."""
    if not short:
        return run.metrics
    flows = zip(run.flow_traffic.tolist(), run.flow_goodput_bps.tolist(), strict=True)
    return run.metrics | {SHORT.name: math.fsum(bps for traffic, bps in flows if traffic in short)}
