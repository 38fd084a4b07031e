"""Suites from Python: `forebay.suite`, with its cases, averages over them, and advice."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl

from forebay._base import progress, quantities, registries
from forebay._base.metrics import METRICS, MORE_IS_BETTER, check_metrics, with_interval
from forebay._base.publication import digest_of
from forebay._base.registries import title_of
from forebay._base.statistics import Best
from forebay._base.words import check_choice
from forebay.campaign import suite_scenarios as scenarios
from forebay.experiment import descriptions, engines, execution
from forebay.experiment.table import EMPTY, Cell, RunTable
from forebay.report import result_files
from forebay.scenario import python_laws

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay._native import PointInfo, Run
    from forebay.campaign.suite_scenarios import Scenario, Settings, SuiteLink
    from forebay.experiment.store import Store
    from forebay.report.plot import Plot
    from forebay.scenario.python_laws import Prototype

#: The metrics of RFC 7928, section 2, in the order of tables.
SUITE_METRICS = [
    *("delay_mean_s", "delay_p95_s", "goodput_bps", "drop_rate", "jain"),
    *("flow_completion_p50_s", "flow_completion_p95_s"),
    *("voice_delay_s", "voice_jitter_s", "voice_loss", "video_rate_bps", "video_stalled"),
]
ROWS = {"law": pl.String, "seed": pl.UInt64, **dict.fromkeys(SUITE_METRICS, pl.Float64)}


@dataclass
class Case:
    """A point of a scenario, with the results of each law.

    Attributes
    ----------
    scenario, title, source : str
        Name of the scenario, its title, and where it comes from.
    point : str
        The point in words; empty if the scenario has no sweep.
    fairness : bool
        True if flows have equal claims, so Jain's index measures fairness.
    measured : set of str
        Metrics that have a value in any run: some need transfers, calls or viewers.
    runs : dict
        Metrics of each run, by law and seed.
    seconds : dict
        Means over whole seconds of all runs, by law: the queuing delay in ms and the rate that left
        the queue in Mbit/s, as an array of shape (2, n).
    """

    scenario: str
    title: str
    source: str
    point: str
    fairness: bool
    measured: set[str]
    runs: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    seconds: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """The title with the point."""
        return f"{self.title}: {self.point}" if self.point else self.title

    def applies(self, metric: str) -> bool:
        """Return True if the metric says something about this case."""
        return self.fairness if metric == "jain" else metric in self.measured

    @property
    def rows(self) -> pl.DataFrame:
        """A row per run: law, seed, and the metrics, null where one does not apply."""
        rows = [
            [law, seed, *(run[name] if self.applies(name) else None for name in SUITE_METRICS)]
            for law, runs in self.runs.items()
            for seed, run in runs.items()
        ]
        return pl.DataFrame(rows, ROWS, orient="row")

    @cached_property
    def _cells(self) -> Mapping[tuple[Any, ...], Cell]:
        return RunTable(self.rows).cell_of(SUITE_METRICS)

    def cell(self, law: str, metric: str) -> Cell:
        """Return the mean of a metric of a law, with its interval over the seeds."""
        return self._cells.get((metric, law), EMPTY)


#: Figures of a suite.
SuitePicture = Literal["overview"]


@dataclass(repr=False)
class Suite:
    """The results of a suite.

    Attributes
    ----------
    settings : Settings
        The suite.
    link : SuiteLink
        The link of the scenarios.
    laws : list of str
        Labels of the laws.
    per_flow : set of str
        Laws that have a queue for each flow.
    seeds : list of int
        The seeds of each law in each case.
    cases : list of Case
        Cases with finished runs, in the order of scenarios and points.
    total, finished : int
        Number of runs in all, and of those that have finished.
    elapsed_s : float
        Wall-clock time in seconds.
    faults : list of str
        Runs that failed, in words.
    of_law : bool
        True if a law in Python made a run fail.
    interrupted : bool
        True after Ctrl-C.
    """

    settings: Settings
    link: SuiteLink
    laws: list[str]
    per_flow: set[str]
    seeds: list[int]
    cases: list[Case]
    total: int = 0
    finished: int = 0
    elapsed_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    of_law: bool = False
    interrupted: bool = False

    @property
    def partial(self) -> bool:
        """True if runs are missing."""
        return self.finished < self.total

    def complete(self) -> list[Case]:
        """Return the cases that every law has finished with every seed; averages are over them."""
        seeds = set(self.seeds)
        return [
            case
            for case in self.cases
            if all(seeds == set(case.runs.get(law, {})) for law in self.laws)
        ]

    def sections(self) -> dict[str, list[Case]]:
        """Return the cases by section of the RFC, which the names of scenarios begin with."""
        sections: dict[str, list[Case]] = {}
        for case in self.cases:
            sections.setdefault(case.scenario.partition("-")[0], []).append(case)
        return sections

    @cached_property
    def table(self) -> RunTable:
        """The runs of the complete cases: those that every law has finished with every seed."""
        rows = [case.rows for case in self.complete()]
        return RunTable(pl.concat([pl.DataFrame(schema=ROWS), *rows]))

    @cached_property
    def _averages(self) -> Mapping[tuple[Any, ...], Cell]:
        return self.table.cell_of(SUITE_METRICS)

    def average(self, law: str, metric: str) -> Cell:
        """Return a law's mean of a metric over the complete cases in which it is defined.

        A case is complete if every law has finished it with every seed.

        Raises
        ------
        ScenarioError
            If the metric is not one of a suite.
        """
        check_metrics([metric], SUITE_METRICS)
        return self._averages.get((metric, law), EMPTY)

    def best(self, metric: str, laws: Sequence[str]) -> Best | None:
        """Return the best of some laws over the complete cases; None if no case has the metric.

        Raises
        ------
        ScenarioError
            If the metric is not one of a suite.
        """
        check_metrics([metric], SUITE_METRICS)
        return self.table.best_of(metric, laws, more=metric in MORE_IS_BETTER)

    def to_dict(self) -> dict[str, Any]:
        """Return the suite, and the means of each law in each case, for JSON."""
        return {
            "title": self.settings.title,
            "link": str(self.link),
            "laws": self.laws,
            "seeds": self.seeds,
            "partial": self.partial,
            "cases": self.lines(),
        }

    def frame(self) -> pl.DataFrame:
        """Return a table with a row for each law, case and metric: mean, ci95 and seeds."""
        keys = ("law", "scenario", "point", "seeds")
        return pl.DataFrame(
            [
                {key: line[key] for key in keys} | {"metric": metric} | values
                for line in self.lines()
                for metric, values in line["metrics"].items()
            ],
            infer_schema_length=None,
        )

    def plot(self, kind: SuitePicture = "overview") -> Plot:
        """Draw queuing delay against goodput of each law, averaged over the complete cases.

        Parameters
        ----------
        kind : {"overview"}, optional
            The figure.

        Raises
        ------
        ParameterError
            If there is no such figure.
        """
        from forebay.campaign import suite_page as page  # loads matplotlib

        check_choice("kind", kind, get_args(SuitePicture))
        return page.overview_figure(self)

    def report(self, out: str | os.PathLike[str]) -> Path:
        """Write the numbers, the report and its figures to a folder; return the report."""
        from forebay.campaign import suite_page as page  # loads matplotlib

        page.write_numbers(self, Path(out), "forebay.suite", "")
        return page.write(self, Path(out), "forebay.suite")

    def __str__(self) -> str:
        """Return the tables that `forebay suite` prints."""
        from forebay._base.terminal_table import Column, RowGroup, printed, show
        from forebay.campaign import suite_page as page

        table = page.comparison(self)
        columns = [Column("law", align_left=True), *map(Column.from_heading, table.heads[1:])]
        return printed(lambda screen: show(screen, columns, [RowGroup(table.rows, "")]))

    def _repr_html_(self) -> str:
        from forebay.campaign import suite_page as page
        from forebay.report import notebook

        table = page.comparison(self)
        figure = self.plot() if self.complete() else None
        return notebook.html(self.settings.title, table.heads, table.rows, figure)

    def lines(self) -> list[dict[str, Any]]:
        """Return the means of each law in each case, for JSON."""
        return [
            {
                "law": law,
                "scenario": case.scenario,
                "point": case.point,
                "seeds": len(runs),
                "metrics": {
                    metric: result_files.finite({"mean": cell.mean, "ci95": cell.half_width})
                    for metric in SUITE_METRICS
                    for cell in [case.cell(law, metric)]
                },
            }
            for case in self.cases
            for law, runs in case.runs.items()
        ]


def cases_of(scenario: Scenario, runs: Sequence[Run]) -> list[Case]:
    """Return the cases of a scenario.

    Parameters
    ----------
    scenario : Scenario
        The scenario.
    runs : sequence of Run
        Its finished runs.

    Returns
    -------
    list of Case
        A case per point; none without runs.
    """
    plan = scenario.experiment.plan
    measured = {
        metric for metric in SUITE_METRICS if any(np.isfinite(run.metrics[metric]) for run in runs)
    }
    cases = [
        Case(
            scenario.name,
            plan.title,
            plan.source,
            descriptions.point(point),
            scenario.fairness,
            measured,
        )
        for point in plan.points
        if runs
    ]
    for index, case in enumerate(cases):
        for number, law in enumerate(plan.laws):
            if of_law := [run for run in runs if (run.point, run.law) == (index, number)]:
                case.runs[law] = {run.seed: dict(run.metrics) for run in of_law}
                case.seconds[law] = _seconds(plan.points[index], of_law)
    return cases


def _seconds(point: PointInfo, runs: Sequence[Run]) -> NDArray[np.float64]:
    """Return the means over each full second of the measurement window, for `Case.seconds`."""
    start, end = point.measure_s
    samples_per_second = max(1, round(1 / point.sample_s))
    means = []
    for run in runs:
        time_s = np.asarray(run.samples["time_s"])
        inside = np.flatnonzero((time_s > start + 1e-9) & (time_s < end + 1e-9))
        # One row per whole second; the samples of the last, broken second are left out.
        count = len(inside) // samples_per_second * samples_per_second
        by_second = inside[:count].reshape(-1, samples_per_second)
        capacity_bits, queue_bytes, departed_bytes = (
            run.samples[name][by_second]
            for name in ("capacity_bits", "queue_bytes", "departed_bytes")
        )
        delay_ms = (8e3 * queue_bytes / (capacity_bits / point.sample_s)).mean(axis=1)
        means.append([delay_ms, 8e-6 * departed_bytes.mean(axis=1) / point.sample_s])
    return np.concatenate(means, axis=1)


#: Smallest share of the largest goodput with which a law may be named for its short delay: a law
#: that leaves the link idle has short delays at the users' cost.
ENOUGH = 0.9
#: Number of laws that a list names; the others are counted.
NAMED = 4


@dataclass(frozen=True)
class Advice:
    """A need, and the law that serves it best.

    Attributes
    ----------
    need, metric : str
        The need in words, and the metric that measures it.
    best : Best
        The best law.
    single : Best or None
        The best law with one queue for all flows, if `best` has more.
    text : str
        The advice in sentences.
    """

    need: str
    metric: str
    best: Best
    single: Best | None
    text: str


def advice(suite: Suite) -> list[Advice]:
    """Return the best law for each need, by averages over all cases and the seeds."""
    goodput = {law: suite.average(law, "goodput_bps").mean for law in suite.laws}
    busy = [law for law in suite.laws if goodput[law] >= ENOUGH * max(goodput.values())]
    advices = []
    for need, metric in suite.settings.needs:
        laws, condition = suite.laws, ""
        if metric == "delay_p95_s":
            laws, condition = busy, f", with at least {100 * ENOUGH:.0f} % of the highest goodput"
        best, single = suite.best(metric, laws), None
        if best is None:
            continue
        text = f"{_describe(suite, metric, best)}."
        if best.law in suite.per_flow:
            single = suite.best(metric, [law for law in laws if law not in suite.per_flow])
        if single is not None:
            text += f" With one queue for all flows: {_describe(suite, metric, single)}."
        advices.append(Advice(need + condition, metric, best, single, text))
    return advices


def unbeaten(suite: Suite) -> list[str]:
    """Return the laws that no other law beats in both delay and goodput, by increasing delay.

    The delay is the 95th percentile.
    """
    laws: list[str] = []
    largest = -math.inf
    for law in sorted(suite.laws, key=lambda law: suite.average(law, "delay_p95_s").mean):
        goodput = suite.average(law, "goodput_bps").mean
        if goodput > largest:
            laws.append(law)
            largest = goodput
    return laws


def _describe(suite: Suite, metric: str, best: Best) -> str:
    """Return the best law with its average, the laws that may be as good, and the next law."""

    def average(law: str) -> str:
        cell, column = suite.average(law, metric), METRICS[metric]
        text = with_interval(column.scale * cell.mean, column.scale * cell.half_width)
        return f"{text} {column.unit}".strip()

    text = f"{title_of(best.law)} ({average(best.law)})"
    if len(suite.seeds) < 2:
        return f"{text}; with one seed, any difference may be chance"
    if ties := [title_of(law) for law in best.ties]:
        if len(ties) > NAMED:
            ties = [*ties[: NAMED - 1], f"{len(ties) - NAMED + 1} more"]
        *first, last = ties
        names = f"{', '.join(first)} and {last}" if first else last
        text += f"; its lead over {names} may be chance"
    return (
        f"{text}; next is {title_of(best.behind)} ({average(best.behind)})" if best.behind else text
    )


#: The name that stands for every law.
ALL = "all"


@dataclass(frozen=True)
class PlannedSuite:
    """A suite that has been read and checked.

    Attributes
    ----------
    settings : Settings
        The suite.
    link : SuiteLink
        The link of the scenarios.
    scenarios : sequence of Scenario
        The scenarios, with the laws under test.
    """

    settings: Settings
    link: SuiteLink
    scenarios: Sequence[Scenario]

    def digest(self) -> str:
        """Return the digest of everything that the numbers depend on, including the seeds."""
        experiments = [scenario.experiment for scenario in self.scenarios]
        runs = [(experiment.digest, experiment.plan.seeds) for experiment in experiments]
        return digest_of([self.settings.name, str(self.link), runs])

    def run(
        self,
        threads: int | None = None,
        watch: Callable[[Progress], None] | None = None,
        store: Store | None = None,
    ) -> Suite:
        """Make the runs that are not in the store, scenario after scenario.

        Ctrl-C, and a run that fails, stop the remaining runs; the result has what had finished.
        """
        plan, start_s = self.scenarios[0].experiment.plan, time.monotonic()
        experiments = [scenario.experiment for scenario in self.scenarios]
        per_flow = {law.label for law in plan.points[0].laws if law.per_flow}
        suite = Suite(self.settings, self.link, plan.laws, per_flow, list(plan.seeds), [])
        suite.total = sum(experiment.runs for experiment in experiments)
        cases: dict[int, list[Case]] = {}
        with closing(execution.execute_all(experiments, threads, watch, store=store)) as executed:
            for number, result in executed:
                scenario = self.scenarios[number]
                suite.finished += len(result.runs)
                cases[number] = cases_of(scenario, result.runs)
                suite.faults += [
                    f"{scenario.name}: {execution.fault_in_words(scenario.experiment.plan, fault)}"
                    for fault in result.faults
                ]
                suite.of_law |= any(fault.of_law for fault in result.faults)
                suite.interrupted |= result.interrupted
        suite.cases = [case for _, of_scenario in sorted(cases.items()) for case in of_scenario]
        suite.elapsed_s = time.monotonic() - start_s
        return suite


def planned(
    name: str,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    only: str | Sequence[str] | None = None,
    link: str | None = None,
    seeds: int | None = None,
    overrides: Overrides = (),
    engine: str = engines.NAMES[0],
) -> PlannedSuite:
    """Read and check a suite.

    Parameters
    ----------
    name, laws, only, link, seeds, overrides, engine
        The parameters of `suite`.

    Raises
    ------
    ScenarioError
        If the suite cannot be run, or not by this engine.
    """
    settings = scenarios.find(name)
    laws = quantities.listed(laws)
    chosen = list(registries.laws()) if laws == [ALL] else laws or settings.laws
    at = settings.link if link is None else scenarios.link(link)
    loaded = [python_laws.load(law) if isinstance(law, str) else law for law in chosen]
    by, files = engines.named(engine), settings.scenarios(quantities.listed(only))
    planned_scenarios = scenarios.plan(settings, files, loaded, at, seeds, overrides, by)
    return PlannedSuite(settings, at, planned_scenarios)


def suite(
    name: str,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    *,
    only: str | Sequence[str] | None = None,
    link: str | None = None,
    seeds: int | None = None,
    threads: int | None = None,
    overrides: Overrides = (),
    engine: str = engines.NAMES[0],
) -> Suite:
    """Run every scenario of a suite under every law, and return its cases and averages.

    Ctrl-C, and a run that fails, stop the remaining runs. The result has what had finished, and its
    attributes `interrupted` and `faults` say what happened.

    Parameters
    ----------
    name : str
        Name of the suite, such as "rfc7928".
    laws : str, class or sequence, optional
        Names of laws, "all", "FILE.py:CLASS", or classes like `forebay.Controller`. By default the
        suite's laws.
    only : str or sequence of str, optional
        Names of the scenarios to run, such as "5-1-friendly". By default all.
    link : str, optional
        Another link, by its rate and its one-way delay, such as "50Mbit/s,20ms".
    seeds : int, optional
        Number of seeds. By default as many as each scenario asks for.
    threads : int, optional
        Number of threads. By default all cores.
    overrides : mapping or sequence, optional
        Keys to set on top of every scenario, {"duration": "20s"} or ["KEY=VALUE"].
    engine : str, optional
        What makes the runs: see `forebay.run`.

    Returns
    -------
    Suite
        Cases, averages over them, and advice.

    Raises
    ------
    ScenarioError
        If the suite cannot be run, or not by this engine.
    """
    plan = planned(name, laws, only, link, seeds, overrides, engine)
    with progress.bar(only_on_terminal=True) as watch:
        return plan.run(threads, watch)
