"""Comparison of engines on the same scenarios: `forebay.validate`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from forebay._base import metrics, quantities, statistics
from forebay._base.errors import ParameterError
from forebay._base.metrics import Metric, with_interval
from forebay._base.words import check_choice
from forebay.comparison.compare import Agreement, Tolerance
from forebay.experiment import engines as registry
from forebay.experiment import execution, experiment
from forebay.experiment.engines import void
from forebay.experiment.result import Result
from forebay.linux.link_engine import MADE_AGAIN, Limits, LinkEngine
from forebay.report.result_files import finite

if TYPE_CHECKING:
    import polars as pl

    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay._native import LawInfo, Observed, PointInfo, Run
    from forebay.experiment.engines import Engine
    from forebay.experiment.experiment import Experiment, Source
    from forebay.report.plot import Plot
    from forebay.scenario.python_laws import Prototype

#: Goodput of the short transfers alone.
SHORT = Metric(
    "short_goodput_bps", "Goodput, short", "Mbit/s", 1e-6, "goodput of the short transfers"
)
METRICS = metrics.METRICS | {SHORT.name: SHORT}
#: The compared metrics, where a run has them.
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
#: Tolerances by which a law agrees: of the mean delay, and of the share of signalled packets.
DELAY = Tolerance("delay_mean_s", "delay", share=0.10, least=1e-3, scale=1e3)
SIGNALS = Tolerance("drop_rate+mark_rate", "loss", share=0.20, scale=100)
#: Name of an engine's runs; other engines' runs are called after the engine.
SIDES = {"packets": "simulated", "link": "real"}
#: The usual engines.
ENGINES = tuple(SIDES)
#: The engine whose runs may be void.
REAL = "link"
#: Words for a verdict that other runs may change.
UNSURE, CHANCE = "unsure", "may be chance"
#: A run is void if one packet in 1000 is released later, or if its rate is off by a larger share.
VOID_LATENESS, VOID_RATE = Limits.void_lateness, Limits.void_rate


def signed(difference: float, half_width: float) -> str:
    """Return "+difference ± half_width", with two figures of the interval.

    Parameters
    ----------
    difference, half_width : float
        The difference, and half of its interval; NaN for none.

    Returns
    -------
    str
        The text.
    """
    if not half_width > 0:
        return f"{difference:+.3g}"
    decimals = max(0, 1 - math.floor(math.log10(half_width)))
    # A difference that rounds to zero has no sign.
    mean = f"{difference:+.{decimals}f}" if round(difference, decimals) else f"{0:.{decimals}f}"
    return f"{mean} ± {half_width:.{decimals}f}"


@dataclass(frozen=True)
class Side:
    """The runs of a law on one of the two compared engines, with their metrics.

    Attributes
    ----------
    metrics : list of dict
        The metrics of each run.
    observed : sequence of Observed
        The runs.
    """

    metrics: list[dict[str, float]]
    observed: Sequence[Observed] = ()

    def values(self, name: str) -> list[float]:
        """Return a metric of each run, or a sum such as "a+b"; NaN if a run has none."""
        return [sum(run.get(part, math.nan) for part in name.split("+")) for run in self.metrics]

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
    """A law at a point, on both compared engines.

    Attributes
    ----------
    point, law : str
        Labels of the point and of the law.
    tested, reference : Side
        Sound runs of each side, or all of them if every run of a side is void.
    void, repeats : int
        Number of void runs in real time, and of all runs in real time.
    again : int
        Number of void runs that were repeated.
    reasons : list of str
        Reasons why runs are void, each once.
    info : LawInfo or None
        The law; None in a test of the arithmetic.
    names : (str, str)
        Names of the runs of each side.
    """

    point: str
    law: str
    tested: Side
    reference: Side
    void: int
    repeats: int
    again: int
    reasons: list[str]
    info: LawInfo | None = None
    names: tuple[str, str] = ("simulated", "real")

    @property
    def name(self) -> str:
        """The law, and the point if there are several."""
        return f"{self.law}, {self.point}" if self.point else self.law

    @property
    def counts_void(self) -> bool:
        """True if no run is sound, so void runs are shown."""
        return self.void == self.repeats

    @property
    def sides(self) -> tuple[Side, Side]:
        """The tested side and the reference."""
        return self.tested, self.reference

    @cached_property
    def agreements(self) -> tuple[Agreement, Agreement]:
        """The mean delay and the share of signals, compared with the reference."""
        delay, signals = (
            Agreement(rule, self.tested.values(rule.metric), self.reference.values(rule.metric))
            for rule in (DELAY, SIGNALS)
        )
        return delay, signals

    @property
    def agrees(self) -> bool:
        """True if every metric agrees."""
        return all(metric.agrees for metric in self.agreements)

    @property
    def sure(self) -> bool:
        """True if the intervals leave no doubt about `agrees`."""
        if self.agrees:
            return all(metric.sure for metric in self.agreements)
        return any(metric.proven for metric in self.agreements)

    @property
    def verdict(self) -> str:
        """The verdict in words: "agrees" or the differences, and whether it is sure."""
        delay, signals = self.agreements
        texts = []
        if not delay.agrees:
            texts.append(f"delay {1e3 * reversed_difference(delay):+.1f} ms")
        if not signals.agrees:
            texts.append(_loss_text(signals))
        text = f"differs: {self.names[1]} {', '.join(texts)}" if texts else "agrees"
        if not self.sure:
            misses = [metric for metric in self.agreements if not metric.agrees]
            by_chance = misses and all(metric.includes_zero for metric in misses)
            text += f" ({CHANCE if by_chance else UNSURE})"
        return text

    def difference_text(self, name: str) -> str:
        """Return the reference minus the tested side, and half of the 95 % interval.

        Both are in the unit of the metric.
        """
        scale = METRICS[name].scale
        tested, reference = ([scale * v for v in side.values(name)] for side in self.sides)
        return signed(*statistics.difference_and_interval(reference, tested))

    def as_json(self) -> dict[str, Any]:
        """Return the verdict and the differences that it depends on."""
        differences = {
            metric.tolerance.title: finite(
                {
                    "reference": metric.reference_mean,
                    "difference": reversed_difference(metric),
                    "half_width": metric.half_width,
                    "limit": metric.limit,
                }
            )
            | {"agrees": metric.agrees, "sure": metric.sure, "may_be_chance": metric.includes_zero}
            for metric in self.agreements
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


def _loss_text(signals: Agreement) -> str:
    """Return the loss of the reference, relative to that of the tested side."""
    tested, reference = signals.tested_mean, signals.reference_mean
    if not reference:
        return "no loss"
    return f"loss {100 * (reference / tested - 1):+.0f} %" if tested else "loss instead of none"


def reversed_difference(agreement: Agreement) -> float:
    """Return the mean of the reference minus that of the tested side, never as −0."""
    return 0.0 - agreement.difference


@dataclass(frozen=True)
class ValidatedScenario:
    """A scenario on two engines, the second of which is the reference."""

    title: str
    path: str
    tested_runs: int
    rows: list[Row]
    #: All finished runs, including void ones: side, law, point, seed, reasons if void, metrics.
    runs: list[dict[str, Any]]
    #: The points, whose traffic names the senders.
    points: Sequence[PointInfo]
    #: The scenario as it was read.
    text: str
    #: Text on missing runs; empty for a complete comparison.
    partial: str
    engines: tuple[str, str] = ("packets", "link")

    @property
    def sides(self) -> tuple[str, str]:
        """The names of the runs of each side."""
        tested, reference = (SIDES.get(name, name) for name in self.engines)
        return tested, reference

    @property
    def heading(self) -> str:
        """The title, with the engines unless they are the usual ones."""
        names = (
            "" if self.engines == ENGINES else f": {self.sides[0]} compared with {self.sides[1]}"
        )
        return f"{self.title}{names}"

    @property
    def in_real_time(self) -> bool:
        """True if the runs of a side may be void."""
        return REAL in self.engines

    @property
    def metrics(self) -> list[str]:
        """The metrics that some run has."""
        every = [run for row in self.rows for side in row.sides for run in side.metrics]
        return [
            name
            for name in COMPARED
            if name not in SOMETIMES or any(metrics.get(name, 0) > 0 for metrics in every)
        ]

    def table_rows(self, names: Sequence[str]) -> list[list[str]]:
        """Return three rows for each law: both sides, and their difference."""
        rows = []
        for row in self.rows:
            for name, side_name, side in zip([row.name, ""], row.names, row.sides, strict=True):
                rows.append([name, side_name, *map(side.text, names)])
            rows.append(["", "difference", *map(row.difference_text, names)])
        return rows

    def count(self) -> str:
        """Return a text on how many laws agree, and on unsure verdicts."""
        unsure = sum(not row.sure for row in self.rows)
        verdicts = "verdict" if unsure == 1 else "verdicts"
        doubt = (
            f"; more runs may change {unsure} {verdicts}" if unsure else "; all verdicts are sure"
        )
        return f"{sum(row.agrees for row in self.rows)} of {len(self.rows)} laws agree{doubt}"


def compare_engines(tested: Result, reference: Result) -> ValidatedScenario:
    """Compare the runs of a scenario on an engine with those of the reference.

    Parameters
    ----------
    tested, reference : Result
        The results. Only laws with runs on both sides are compared.

    Returns
    -------
    ValidatedScenario
        The comparison.
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
                # At most one side is in real time; only its runs can be void.
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
    """The runs of a law at a point on one side, with the reasons of void runs."""

    def __init__(self, result: Result, point: int, law: int) -> None:
        self.point, self.label = result.plan.points[point], result.plan.laws[law]
        self.law = self.point.laws[law]
        self.runs = result.runs_of(point, law)
        # Remarks on a program do not make a run void.
        self.voids = [void(result.remarks.get((point, law, run.seed), ())) for run in self.runs]
        short = {n for n, traffic in enumerate(self.point.traffic) if traffic.kind != "ftp"}
        self.metrics = [_with_short(run, short) for run in self.runs]

    def as_json(self, side: str) -> list[dict[str, Any]]:
        """Return the entry of each run in metrics.json."""
        place = {"side": side, "law": self.label, "point": self.point.label}
        return [
            {**place, "seed": run.seed, "void": why, "metrics": of_run}
            for run, why, of_run in zip(self.runs, self.voids, self.metrics, strict=True)
        ]

    def side(self) -> Side:
        """Return the sound runs, or all runs if none is sound."""
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
    """Return a run's metrics, with the goodput of the short transfers."""
    if not short or SHORT.name in run.metrics or run.flow_traffic is None:
        return run.metrics
    flows = zip(run.flow_traffic.tolist(), run.flow_goodput_bps.tolist(), strict=True)
    return run.metrics | {SHORT.name: math.fsum(bps for traffic, bps in flows if traffic in short)}


#: Returns a context around the runs of a scenario on an engine, for the name of those runs; the
#: context gives a function that is called with their progress.
Watching = Callable[[str], AbstractContextManager["Callable[[Progress], None] | None"]]


#: Figures of a validation.
ValidationPicture = Literal["agreement", "delays"]


@dataclass(repr=False)
class Validation:
    """The comparisons of each engine with the reference, for each finished scenario."""

    #: Name of the runs of the reference.
    reference: str
    #: Number of runs of the reference that were asked for, and that had finished.
    total: int
    finished: int = 0
    comparisons: list[ValidatedScenario] = field(default_factory=list)
    interrupted: bool = False
    #: Reason of a failure; empty otherwise.
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the verdicts and the metrics of every run, for JSON."""
        from forebay.comparison import validation_page as page

        return page.as_json(self.comparisons, "forebay.validate")

    def frame(self) -> pl.DataFrame:
        """Return a table with a row for each run."""
        from forebay.comparison import validation_page as page

        return page.runs_table(self.comparisons)

    def plot(self, kind: ValidationPicture = "agreement", *, scenario: int = 0) -> Plot:
        """Draw a figure of one scenario.

        Parameters
        ----------
        kind : {"agreement", "delays"}, optional
            Mean delay and loss of each law on both sides, or the distribution of the delay.
        scenario : int, optional
            Index in `comparisons`.

        Raises
        ------
        ParameterError
            If there is no such figure or scenario.
        """
        from forebay.comparison import validation_page as page

        check_choice("kind", kind, get_args(ValidationPicture))
        if not 0 <= scenario < len(self.comparisons):
            expected = f"an index below {len(self.comparisons)}"
            raise ParameterError("scenario", scenario, expected)
        draw = {"agreement": page.agreement, "delays": page.delays}[kind]
        return draw(self.comparisons[scenario])

    def report(self, out: str | os.PathLike[str]) -> None:
        """Write the report, its figures and the runs to a folder."""
        from forebay.comparison import validation_page as page

        limits = (VOID_LATENESS, VOID_RATE)
        page.write_files(self.comparisons, Path(out), "forebay.validate", *limits)

    def __str__(self) -> str:
        """Return a line with the verdict on each law at each point."""
        lines = [
            f"{scenario.heading}: {row.name}: {row.verdict}"
            for scenario in self.comparisons
            for row in scenario.rows
        ]
        return "\n".join(lines) or "no scenario was compared"

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        rows = [
            [scenario.heading, row.name, row.verdict]
            for scenario in self.comparisons
            for row in scenario.rows
        ]
        figure = self.plot() if self.comparisons else None
        return notebook.html("Validation", ["scenario", "law", "verdict"], rows, figure)

    def run_all(self, scenarios: Sequence[Sequence[Experiment]], progress: Watching | None) -> None:
        """Run and compare scenarios until a run fails or is interrupted."""
        for experiments in scenarios:
            try:
                self.run(experiments, progress)
            except Exception as error:
                # Real runs take long: earlier comparisons survive a later error.
                if not self.comparisons:
                    raise
                self.failure = f"{experiments[0].path}: {type(error).__name__}: {error}"
            if self.interrupted or self.failure:
                break

    def run(self, experiments: Sequence[Experiment], progress: Watching | None) -> None:
        """Run a scenario on each of its engines, and compare the engines if all runs finished."""
        results = []
        for experiment_ in experiments:
            name = experiment_.engine.name
            with progress(SIDES.get(name, name)) if progress else nullcontext() as watch:
                execution_ = execution.execute(experiment_, watch=watch)
            results.append(Result(experiment_, execution_))
            self.interrupted = execution_.interrupted
            if execution_.faults:
                self.failure = execution.fault_in_words(experiment_.plan, execution_.faults[0])
            if self.interrupted or self.failure:
                break
        *tested, reference = results
        if len(results) == len(experiments) and reference.runs:
            self.finished += len(reference.runs)
            self.comparisons += [compare_engines(result, reference) for result in tested]


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
    """Run scenarios on several engines, and compare each engine with the last.

    All scenarios are checked before the first run. An interruption and a failed run end the
    validation; the result has the runs that had finished.

    Parameters
    ----------
    scenarios : scenario or sequence of scenarios
        Each as `forebay.run` accepts a scenario.
    laws, overrides, seeds
        As `forebay.run` accepts them; `seeds` applies to every engine but "link".
    repeats : int
        Number of runs of each law on "link", in real time.
    attempts : int
        Largest number of attempts at a run that is not void.
    links : int
        Number of real runs in parallel, each on its own link.
    void_lateness : str
        A run is void if more than one packet in 1000 is released later than this time.
    void_rate : str
        A run is void if its rate is off by more than this share.
    progress : callable, optional
        Returns a context around the runs of a scenario on an engine, with what watches them, for
        the name of those runs.
    engines : str or sequence of str
        Names of the engines; "packets" and "link" by default.

    Returns
    -------
    Validation
        The comparisons.

    Raises
    ------
    ScenarioError
        If a scenario cannot run on one of the engines.
    """
    names = quantities.listed(engines)
    chosen = _engines(names, LinkEngine(links, Limits(attempts, void_lateness, void_rate)))
    experiments = [
        [
            experiment.read(
                source, laws=laws, overrides=overrides, engine=engine,
                seeds=repeats if engine.name == REAL else seeds,
            )
            for engine in chosen
        ]
        for source in quantities.listed(scenarios)
    ]  # fmt: skip
    runs = sum(of_scenario[-1].runs for of_scenario in experiments)
    validation = Validation(SIDES.get(names[-1], names[-1]), runs)
    validation.run_all(experiments, progress)
    return validation


def _engines(names: Sequence[str], link: LinkEngine) -> list[Engine]:
    """Return the engines of these names. Raises `ParameterError` unless two or more differ."""
    chosen = [link if name == link.name else registry.named(name, "engines") for name in names]
    if len(chosen) < 2 or len(set(names)) < len(chosen):
        expected = f"two or more that differ, of {', '.join(registry.NAMES)}"
        raise ParameterError("engines", ",".join(names), expected)
    return chosen
