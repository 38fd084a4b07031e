"""Scenarios on two engines or more, side by side: `forebay.validate`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forebay._base import metrics, quantities, statistics
from forebay._base.errors import ParameterError
from forebay._base.metrics import Metric, with_interval
from forebay.comparison.compare import Agreement, Tolerance
from forebay.experiment import engines as registry
from forebay.experiment import execution, experiment
from forebay.experiment.engines import void
from forebay.experiment.result import Result
from forebay.linux.link_engine import MADE_AGAIN, Limits, LinkEngine
from forebay.report.result_files import finite

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay._native import LawInfo, Observed, PointInfo, Run
    from forebay.experiment.experiment import Experiment, Source
    from forebay.scenario.python_laws import Prototype

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
#: What decides whether a law agrees: the mean delay, and the share of packets dropped or marked.
DELAY = Tolerance("delay_mean_s", "delay", share=0.10, least=1e-3, scale=1e3)
SIGNALS = Tolerance("drop_rate+mark_rate", "loss", share=0.20, scale=100)
#: What the runs of an engine are called; those of another by its name.
SIDES = {"packets": "simulated", "link": "real"}
#: Simulated beside real.
ENGINES = tuple(SIDES)
#: The engine whose runs may be void.
REAL = "link"
#: Words for a verdict that another set of runs may turn.
UNSURE, CHANCE = "unsure", "may be chance"
#: A run is void if one packet in 1000 is released later, or if the rate is off by more.
VOID_LATENESS, VOID_RATE = Limits.void_lateness, Limits.void_rate


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
        """Return a metric, or the sum of several joined by "+"; NaN where a run has none."""
        return [sum(run.get(one, math.nan) for one in name.split("+")) for run in self.metrics]

    def mean_and_interval(self, name: str) -> tuple[float, float]:
        """Return the mean and half of its 95 % interval, in the metric's unit."""
        return statistics.mean_and_interval([METRICS[name].scale * v for v in self.values(name)])

    def mean(self, name: str) -> float:
        """Return the mean over the runs."""
        return statistics.mean_and_interval(self.values(name))[0]

    def text(self, name: str) -> str:
        """Return the mean ± half of the 95 % interval, in the metric's unit."""
        return with_interval(*self.mean_and_interval(name))


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
        """True if there is no sound run, and void ones are shown."""
        return self.void == self.repeats

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.tested, self.reference

    @cached_property
    def agreements(self) -> tuple[Agreement, Agreement]:
        """The mean delay and the share of signals, held against the reference."""
        delay, signals = (
            Agreement(rule, self.tested.values(rule.metric), self.reference.values(rule.metric))
            for rule in (DELAY, SIGNALS)
        )
        return delay, signals

    @property
    def agrees(self) -> bool:
        return all(one.agrees for one in self.agreements)

    @property
    def sure(self) -> bool:
        """True if the intervals leave no doubt about `agrees`."""
        if self.agrees:
            return all(one.sure for one in self.agreements)
        return any(one.proven for one in self.agreements)

    @property
    def verdict(self) -> str:
        """The verdict in words: agrees, or the differences; and whether the runs are enough."""
        delay, signals = self.agreements
        texts = []
        if not delay.agrees:
            texts.append(f"delay {1e3 * reversed_difference(delay):+.1f} ms")
        if not signals.agrees:
            mean = signals.reference_mean
            share = 100 * reversed_difference(signals) / mean if mean else 0.0
            texts.append(f"loss {share:+.0f} %" if mean else "no loss")
        text = f"differs: {self.names[1]} {', '.join(texts)}" if texts else "agrees"
        if not self.sure:
            misses = [one for one in self.agreements if not one.agrees]
            by_chance = misses and all(one.includes_zero for one in misses)
            text += f" ({CHANCE if by_chance else UNSURE})"
        return text

    def difference_text(self, name: str) -> str:
        """Return the reference less the tested side ± half its 95 % interval, in the metric's
        unit."""
        scale = METRICS[name].scale
        tested, reference = ([scale * v for v in side.values(name)] for side in self.sides)
        return signed(*statistics.difference_and_interval(reference, tested))

    def as_json(self) -> dict[str, Any]:
        """Return the verdict and what it rests on."""
        differences = {
            one.tolerance.title: finite(
                {
                    "reference": one.reference_mean,
                    "difference": reversed_difference(one),
                    "half_width": one.half_width,
                    "limit": one.limit,
                }
            )
            | {"agrees": one.agrees, "sure": one.sure, "may_be_chance": one.includes_zero}
            for one in self.agreements
        }
        return {
            "point": self.point,
            "law": self.law,
            "agrees": self.agrees,
            "sure": self.sure,
            "verdict": self.verdict,
            "differences": differences,
            "repeats": self.repeats,
            "void": self.void,
        }


def reversed_difference(agreement: Agreement) -> float:
    """Return the mean of the reference less that of the tested side, never as −0."""
    return 0.0 - agreement.difference


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
        """The names of the runs of each."""
        tested, reference = (SIDES.get(name, name) for name in self.engines)
        return tested, reference

    @property
    def heading(self) -> str:
        """Its title, with the engines where they are not the usual ones."""
        beside = "" if self.engines == ENGINES else f": {self.sides[0]} beside {self.sides[1]}"
        return f"{self.title}{beside}"

    @property
    def in_real_time(self) -> bool:
        """True if one of the sides may be void."""
        return REAL in self.engines

    @property
    def metrics(self) -> list[str]:
        """The metrics worth a column."""
        every = [one for row in self.rows for side in row.sides for one in side.metrics]
        return [
            name
            for name in COMPARED
            if name not in SOMETIMES or any(metrics.get(name, 0) > 0 for metrics in every)
        ]

    def table_rows(self, names: Sequence[str]) -> list[list[str]]:
        """Return three rows for each law: both sides and their difference in these metrics."""
        rows = []
        for row in self.rows:
            for name, of, side in zip([row.name, ""], row.names, row.sides, strict=True):
                rows.append([name, of, *map(side.text, names)])
            rows.append(["", "difference", *map(row.difference_text, names)])
        return rows

    def count(self) -> str:
        """Return the number of laws that agree, and whether the verdicts are sure."""
        unsure = sum(not row.sure for row in self.rows)
        doubt = f", {unsure} of the verdicts unsure" if unsure else ", all verdicts sure"
        return f"{sum(row.agrees for row in self.rows)} of {len(self.rows)} agree{doubt}"


def compare_engines(tested: Result, reference: Result) -> ValidatedScenario:
    """Hold the runs of a scenario on one engine against those of the reference.

    Laws with runs on both sides are compared, so that an early end costs only the others.
    """
    plan, both = reference.plan, (tested, reference)
    engines = (tested.experiment.engine.name, reference.experiment.engine.name)
    names = (SIDES.get(engines[0], engines[0]), SIDES.get(engines[1], engines[1]))
    rows: list[Row] = []
    runs: list[dict[str, Any]] = []
    for p in range(len(plan.points)):
        for i in range(len(plan.points[p].laws)):
            sides = [_RunsOfLaw(result, p, i) for result in both]
            runs += [
                run for name, side in zip(names, sides, strict=True) for run in side.as_json(name)
            ]
            if all(side.runs for side in sides):
                # Only one side can be in real time, and that one has void runs.
                rows.append(_row(sides, names, sides[0] if engines[0] == REAL else sides[1]))
    missing = [
        f"{len(result.runs)} of {result.experiment.runs} {name} runs"
        for name, result in zip(names, both, strict=True)
        if result.partial
    ]
    end = " finished before it was stopped."
    return ValidatedScenario(
        title=plan.title or reference.experiment.path,
        path=reference.experiment.path,
        tested_runs=len(tested.plan.seeds),
        rows=rows,
        runs=runs,
        points=plan.points,
        text=reference.experiment.text,
        partial=f"Partial result: {' and '.join(missing)}{end}" if missing else "",
        engines=engines,
    )


class _RunsOfLaw:
    """The runs of a law at a point on one side, and why some of them are void."""

    def __init__(self, result: Result, point: int, law: int) -> None:
        self.point, self.label = result.plan.points[point], result.plan.laws[law]
        self.law = self.point.laws[law]
        self.runs = result.runs_of(point, law)
        # What a program did makes no run void.
        self.voids = [void(result.remarks.get((point, law, run.seed), ())) for run in self.runs]
        short = {n for n, traffic in enumerate(self.point.traffic) if traffic.kind != "ftp"}
        self.metrics = [_with_short(run, short) for run in self.runs]

    def as_json(self, side: str) -> list[dict[str, Any]]:
        """Return what metrics.json has of each run."""
        place = {"side": side, "law": self.label, "point": self.point.label}
        return [
            {**place, "seed": run.seed, "void": why, "metrics": of_run}
            for run, why, of_run in zip(self.runs, self.voids, self.metrics, strict=True)
        ]

    def side(self) -> Side:
        """Return the sound runs; all where none is sound."""
        sound = [i for i, why in enumerate(self.voids) if not why] or range(len(self.runs))
        return Side([self.metrics[i] for i in sound], [self.runs[i] for i in sound])


def _row(sides: Sequence[_RunsOfLaw], names: tuple[str, str], real: _RunsOfLaw) -> Row:
    of_void = [why for why in real.voids if why]
    return Row(
        point=real.point.label,
        law=real.label,
        tested=sides[0].side(),
        reference=sides[1].side(),
        void=len(of_void),
        repeats=len(real.runs),
        again=sum(round(run.metrics.get(MADE_AGAIN, 0)) for run in real.runs),
        reasons=list(dict.fromkeys(why for reasons in of_void for why in reasons)),
        info=sides[1].law,
        names=names,
    )


def _with_short(run: Run, short: set[int]) -> dict[str, float]:
    """Return a run's metrics, with the goodput of the traffic that is short transfers."""
    if not short or SHORT.name in run.metrics or run.flow_traffic is None:
        return run.metrics
    flows = zip(run.flow_traffic.tolist(), run.flow_goodput_bps.tolist(), strict=True)
    return run.metrics | {SHORT.name: math.fsum(bps for traffic, bps in flows if traffic in short)}


#: Gives a context around the runs of a scenario on an engine, with what watches them; it is told
#: what those runs are called.
Watching = Callable[[str], AbstractContextManager["Callable[[Progress], None] | None"]]


@dataclass
class Validation:
    """A comparison for each engine and the reference, of each scenario whose runs had finished."""

    #: What the runs of the reference are called.
    reference: str
    #: How many of them were asked for, and had finished.
    wanted: int
    finished: int = 0
    comparisons: list[ValidatedScenario] = field(default_factory=list)
    interrupted: bool = False
    #: Why it stopped; empty otherwise.
    failure: str = ""

    def run_all(self, scenarios: Sequence[Sequence[Experiment]], progress: Watching | None) -> None:
        """Run and compare scenario after scenario until a run fails or is interrupted."""
        for experiments in scenarios:
            try:
                self.run(experiments, progress)
            except Exception as error:
                # Real runs took their time: what they have found goes with no later fault.
                if not self.comparisons:
                    raise
                self.failure = f"{experiments[0].path}: {type(error).__name__}: {error}"
            if self.interrupted or self.failure:
                break

    def run(self, experiments: Sequence[Experiment], progress: Watching | None) -> None:
        """Run a scenario on each of its engines, and compare them if all runs ended."""
        results = []
        for one in experiments:
            name = one.engine.name
            with progress(SIDES.get(name, name)) if progress else nullcontext() as watch:
                execution_ = execution.execute(one, watch=watch)
            results.append(Result(one, execution_))
            self.interrupted = execution_.interrupted
            if execution_.faults:
                self.failure = execution.fault_in_words(one.plan, execution_.faults[0])
            if self.interrupted or self.failure:
                break
        *tested, reference = results
        if len(results) == len(experiments) and reference.runs:
            self.finished += len(reference.runs)
            self.comparisons += [compare_engines(one, reference) for one in tested]


def validate(
    scenarios: Source | Sequence[Source],
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    *,
    overrides: Overrides = (),
    seeds: int | None = None,
    repeats: int = 3,
    attempts: int = 3,
    links: int = 1,
    void_lateness: str = VOID_LATENESS,
    void_rate: str = VOID_RATE,
    progress: Watching | None = None,
    engines: str | Sequence[str] = ENGINES,
) -> Validation:
    """Run scenarios on several engines, and hold each beside the last of them.

    scenarios: one scenario or several, as `forebay.run` takes each.
    laws, overrides, seeds: as `forebay.run` takes them; seeds of all engines but "link".
    repeats: runs of each law on "link", in real time.
    attempts: runs at most for one that is not void.
    links: real runs at a time, each on a link of its own.
    void_lateness, void_rate: a run is void if one packet in 1000 is released later, in time, or if
        the rate is off by more, as a share.
    progress: gives a context around the runs of a scenario on an engine, with what watches them; it
        is told what those runs are called.
    engines: their names; "packets" beside "link" if left out, the simulator beside real flows.

    All scenarios are checked before the first run. An interruption, and a run that fails, end it;
    what had finished is in the result. Raises `ScenarioError` for a scenario that cannot be run on
    one of the engines.
    """
    engines = quantities.listed(engines)
    link = LinkEngine(links, Limits(attempts, void_lateness, void_rate))
    chosen = [link if name == link.name else registry.named(name, "engines") for name in engines]
    if len(chosen) < 2 or len(set(engines)) < len(chosen):
        expected = f"two or more that differ, of {', '.join(registry.NAMES)}"
        raise ParameterError("engines", ",".join(engines), expected)

    experiments = [
        [
            experiment.read(
                source,
                laws=laws,
                overrides=overrides,
                seeds=repeats if engine.name == REAL else seeds,
                engine=engine,
            )
            for engine in chosen
        ]
        for source in quantities.listed(scenarios)
    ]
    validation = Validation(
        SIDES.get(engines[-1], engines[-1]),
        sum(of_scenario[-1].runs for of_scenario in experiments),
    )
    validation.run_all(experiments, progress)
    return validation
