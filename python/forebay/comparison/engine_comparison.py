"""Two engines beside each other: metrics by law, their differences, and what agrees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._base import metrics, statistics
from forebay._base.metrics import Metric, with_interval
from forebay.experiment.engine import void
from forebay.linux.link_engine import MADE_AGAIN
from forebay.report.result_files import finite

if TYPE_CHECKING:
    from forebay._native import LawInfo, Observed, PointInfo, Run
    from forebay.experiment.result import Result

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
#: What the runs of an engine are called; those of another by its name.
SIDES = {"packets": "simulated", "link": "real"}
#: The engine whose runs may be void.
REAL = "link"
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
    """The difference reference − tested of a number that should agree."""

    name: str
    #: Of the reference's runs.
    reference: float
    difference: float
    #: Half the width of its 95 % interval; NaN for fewer than two runs on either side, and where
    #: the runs of each side are all alike.
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
        keys = ["reference", "difference", "half_width", "limit"]
        return finite({key: getattr(self, key) for key in keys}) | {
            key: getattr(self, key) for key in ["agrees", "sure", "may_be_chance"]
        }


@dataclass(frozen=True)
class Row:
    """A law at a point."""

    point: str
    law: str
    #: Sound runs; all, if every one of a side is void.
    tested: Side
    reference: Side
    #: Runs in real time that stayed void, of `repeats` runs.
    void: int
    repeats: int
    #: Void runs that were made again.
    again: int
    #: Why they are void, each reason once.
    reasons: list[str]
    #: The law; None in a test of the arithmetic.
    info: LawInfo | None = None
    #: What the runs of each side are called.
    names: tuple[str, str] = ("simulated", "real")

    @property
    def name(self) -> str:
        return f"{self.law}, {self.point}" if self.point else self.law

    @property
    def counts_void(self) -> bool:
        """Whether there is no sound run, and void ones are shown."""
        return self.void == self.repeats

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.tested, self.reference

    @property
    def delay(self) -> Difference:
        """Of the mean queuing delay, in s."""
        tested, reference = (side.values("delay_mean_s") for side in self.sides)
        mean_s, _ = statistics.mean_and_interval(reference)
        found = statistics.difference_and_interval(reference, tested)
        text = f"delay {1e3 * found[0]:+.1f} ms"
        return Difference("delay", mean_s, *found, max(DELAY_SHARE * mean_s, DELAY_S), 1e3, text)

    @property
    def signals(self) -> Difference:
        """Of the share of packets dropped or marked."""
        tested, reference = (side.signal_rates for side in self.sides)
        mean, _ = statistics.mean_and_interval(reference)
        difference = statistics.difference_and_interval(reference, tested)
        if min(len(tested), len(reference)) > 1 and not any([*tested, *reference]):
            # Not one signal in any of several runs on either side.
            difference = 0.0, 0.0
        text = f"loss {100 * difference[0] / mean:+.0f} %" if mean else "no loss"
        return Difference("loss", mean, *difference, SIGNAL_SHARE * mean, 100, text)

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
        text = (
            f"differs: {self.names[1]} {', '.join(it.text for it in differ)}"
            if differ
            else "agrees"
        )
        if not self.sure:
            by_chance = differ and all(one.may_be_chance for one in differ)
            text += f" ({CHANCE if by_chance else UNSURE})"
        return text

    def difference_text(self, name: str) -> str:
        """Reference less tested ± half its 95 % interval, in the metric's unit."""
        scale = METRICS[name].scale
        tested, reference = ([scale * v for v in side.values(name)] for side in self.sides)
        return signed(*statistics.difference_and_interval(reference, tested))

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
    """A scenario on two engines; the second is the reference."""

    title: str
    path: str
    tested_runs: int
    rows: list[Row]
    #: All that finished, void ones too: side, law, point, seed, why it is void, and metrics.
    runs: list[dict[str, Any]]
    #: Their traffic names the senders.
    points: Sequence[PointInfo]
    #: The scenario as it was read.
    text: str
    #: The missing part; empty for a whole comparison.
    partial: str
    engines: tuple[str, str] = ("packets", "link")

    @property
    def sides(self) -> tuple[str, str]:
        """What the runs of each are called."""
        tested, reference = (SIDES.get(name, name) for name in self.engines)
        return tested, reference

    @property
    def heading(self) -> str:
        """Its title, with the engines where they are not the usual ones."""
        usual = tuple(SIDES)
        beside = "" if self.engines == usual else f": {self.sides[0]} beside {self.sides[1]}"
        return f"{self.title}{beside}"

    @property
    def in_real_time(self) -> bool:
        """Whether one of the sides may be void."""
        return REAL in self.engines

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


def compare(tested: Result, reference: Result) -> ValidatedScenario:
    """Lays the runs of a scenario on one engine beside those of the reference.

    Laws with runs on both sides are compared, so that an early end costs only the others.
    """
    plan = reference.plan
    both = (tested, reference)
    engines = (tested.experiment.engine.name, reference.experiment.engine.name)
    names = (SIDES.get(engines[0], engines[0]), SIDES.get(engines[1], engines[1]))
    rows: list[Row] = []
    every: list[dict[str, Any]] = []
    for p, point in enumerate(plan.points):
        short = {n for n, traffic in enumerate(point.traffic) if traffic.kind != "ftp"}
        for i, law in enumerate(point.laws):
            name = {"law": plan.laws[i], "point": point.label}
            sides = []
            for of, result in zip(names, both, strict=True):
                runs = result.runs_of(p, i)
                # What a program did makes no run void.
                remarks = [void(result.remarks.get((p, i, run.seed), ())) for run in runs]
                every += [
                    {
                        "side": of,
                        **name,
                        "seed": run.seed,
                        "void": why,
                        "metrics": _with_short(run, short),
                    }
                    for run, why in zip(runs, remarks, strict=True)
                ]
                sound = [run for run, why in zip(runs, remarks, strict=True) if not why]
                shown = sound or runs
                side = Side([_with_short(run, short) for run in shown], shown)
                sides.append((side, runs, [why for why in remarks if why]))
            if not all(runs for _, runs, _ in sides):
                continue
            # Only one side can be in real time, and that one has void runs.
            _, repeats, voided = sides[0] if engines[0] == REAL else sides[1]
            rows.append(
                Row(
                    **name,
                    tested=sides[0][0],
                    reference=sides[1][0],
                    void=len(voided),
                    repeats=len(repeats),
                    again=sum(round(run.metrics.get(MADE_AGAIN, 0)) for run in repeats),
                    reasons=list(dict.fromkeys(why for some in voided for why in some)),
                    info=law,
                    names=names,
                )
            )
    missing = [
        f"{len(result.runs)} of {result.experiment.runs} {name} runs"
        for name, result in zip(names, both, strict=True)
        if result.partial
    ]
    return ValidatedScenario(
        title=plan.title or reference.experiment.path,
        path=reference.experiment.path,
        tested_runs=len(tested.plan.seeds),
        rows=rows,
        runs=every,
        points=plan.points,
        text=reference.experiment.text,
        partial=(
            f"Partial result: {' and '.join(missing)} finished before it was stopped."
            if missing
            else ""
        ),
        engines=engines,
    )


def _with_short(run: Run, short: set[int]) -> dict[str, float]:
    """A run's metrics, with the goodput of the traffic that is short transfers."""
    if not short or SHORT.name in run.metrics or run.flow_traffic is None:
        return run.metrics
    flows = zip(run.flow_traffic.tolist(), run.flow_goodput_bps.tolist(), strict=True)
    return run.metrics | {SHORT.name: math.fsum(bps for traffic, bps in flows if traffic in short)}
