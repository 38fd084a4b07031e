"""Suites from Python: `forebay.suite`, with cases, averages over them, and advice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forebay._base import progress, quantities, registries
from forebay._base.metrics import METRICS, MORE_IS_BETTER, check_metrics, with_interval
from forebay._base.publication import digest_of
from forebay._base.statistics import Best
from forebay.campaign import suite_scenarios as scenarios
from forebay.experiment import descriptions, engines, execution
from forebay.experiment.table import EMPTY, Cell, RunTable
from forebay.report import result_files
from forebay.scenario import python_laws

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay._native import PointInfo, Run
    from forebay.campaign.suite_scenarios import Link, Scenario, Settings
    from forebay.experiment.store import Store
    from forebay.scenario.python_laws import Prototype

#: RFC 7928, section 2, in the order of tables.
SUITE_METRICS = [
    "delay_mean_s",
    "delay_p95_s",
    "goodput_bps",
    "drop_rate",
    "jain",
    "flow_completion_p50_s",
    "flow_completion_p95_s",
    "voice_delay_s",
    "voice_jitter_s",
    "voice_loss",
    "video_rate_bps",
    "video_stalled",
]
ROWS = {"law": pl.String, "seed": pl.UInt64, **dict.fromkeys(SUITE_METRICS, pl.Float64)}


@dataclass
class Seconds:
    """Whole seconds of every run of one law: wait in the queue, and rate that left it."""

    delay_ms: NDArray[np.float64]
    rate_mbps: NDArray[np.float64]


@dataclass
class Case:
    """A point of a scenario, with what each law made of it."""

    scenario: str
    title: str
    source: str
    #: in words; empty without a sweep
    point: str
    fairness: bool
    #: Metrics that have a value in any run: those of transfers, calls and viewers need such.
    measured: set[str]
    #: law to seed to metrics
    runs: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    seconds: dict[str, Seconds] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        return f"{self.title}: {self.point}" if self.point else self.title

    def applies(self, metric: str) -> bool:
        """Jain's index is a verdict where flows have equal claims; other metrics tell something
        where they have a value."""
        return self.fairness if metric == "jain" else metric in self.measured

    @property
    def rows(self) -> pl.DataFrame:
        """A row per run: law, seed, and the metrics, null where one does not apply."""
        return pl.DataFrame(
            [
                [law, seed, *(run[name] if self.applies(name) else None for name in SUITE_METRICS)]
                for law, runs in self.runs.items()
                for seed, run in runs.items()
            ],
            ROWS,
            orient="row",
        )

    @cached_property
    def _cells(self) -> Mapping[tuple[Any, ...], Cell]:
        return RunTable(self.rows).cell_of(SUITE_METRICS)

    def cell(self, law: str, metric: str) -> Cell:
        return self._cells.get((metric, law), EMPTY)


@dataclass
class Suite:
    """Every case, in the order of scenarios and points."""

    laws: list[str]
    #: Laws that have a queue for each flow.
    per_flow: set[str]
    seeds: list[int]
    cases: list[Case]
    #: Runs to be made, and made.
    wanted: int = 0
    made: int = 0
    elapsed_s: float = 0.0
    faults: list[str] = field(default_factory=list)
    #: whether a law in Python is at fault
    of_law: bool = False
    interrupted: bool = False

    @property
    def partial(self) -> bool:
        return self.made < self.wanted

    def whole(self) -> list[Case]:
        """Return the cases that every law has finished with every seed: averages are over them."""
        wanted = set(self.seeds)
        return [
            case
            for case in self.cases
            if all(wanted == set(case.runs.get(law, {})) for law in self.laws)
        ]

    def sections(self) -> dict[str, list[Case]]:
        """Return the cases by the first figure of their scenario's name: the section of the RFC."""
        found: dict[str, list[Case]] = {}
        for case in self.cases:
            found.setdefault(case.scenario.partition("-")[0], []).append(case)
        return found

    @cached_property
    def table(self) -> RunTable:
        """The runs of the whole cases."""
        rows = [case.rows for case in self.whole()]
        return RunTable(pl.concat([pl.DataFrame(schema=ROWS), *rows]))

    @cached_property
    def _averages(self) -> Mapping[tuple[Any, ...], Cell]:
        return self.table.cell_of(SUITE_METRICS)

    def average(self, law: str, metric: str) -> Cell:
        """Return the mean over the whole cases that the metric applies to, with its interval over
        the seeds. Raises `ScenarioError` for what is no metric of a suite."""
        check_metrics([metric], SUITE_METRICS)
        return self._averages.get((metric, law), EMPTY)

    def best(self, metric: str, laws: Sequence[str]) -> Best | None:
        """Return the best of some laws over the whole cases; None where no case has the metric.
        Raises `ScenarioError` for what is no metric of a suite."""
        check_metrics([metric], SUITE_METRICS)
        return self.table.best_of(metric, laws, more=metric in MORE_IS_BETTER)

    def lines(self) -> list[dict[str, Any]]:
        """Return a table per law and case, for JSON."""
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
    """Return the cases of one scenario, from its finished runs."""
    plan = scenario.experiment.plan
    found = []
    for index, point in enumerate(plan.points):
        case = Case(
            scenario=scenario.name,
            title=plan.title,
            source=plan.source,
            point=descriptions.point(point),
            fairness=scenario.fairness,
            measured={
                metric
                for metric in SUITE_METRICS
                if any(np.isfinite(run.metrics[metric]) for run in runs)
            },
        )
        by_law: dict[str, list[Run]] = {}
        for run in runs:
            if run.point == index:
                by_law.setdefault(plan.laws[run.law], []).append(run)
        for law, some in by_law.items():
            case.runs[law] = {run.seed: dict(run.metrics) for run in some}
            case.seconds[law] = _seconds(point, some)
        found.append(case)
    return found


def _seconds(point: PointInfo, runs: Sequence[Run]) -> Seconds:
    """Return means over whole seconds of the measurement."""
    start, end = point.measure_s
    rows = max(1, round(1 / point.sample_s))
    delays, rates = [], []
    for run in runs:
        time_s = np.asarray(run.samples["time_s"])
        inside = np.flatnonzero((time_s > start + 1e-9) & (time_s < end + 1e-9))
        # As many samples as there are whole seconds, a row for each second.
        by_second = inside[: len(inside) // rows * rows].reshape(-1, rows)
        capacity_bps = run.samples["capacity_bits"][by_second] / point.sample_s
        queue_bytes, departed_bytes = (
            run.samples[name][by_second] for name in ("queue_bytes", "departed_bytes")
        )
        delays.append((8e3 * queue_bytes / capacity_bps).mean(axis=1))
        rates.append(8e-6 * departed_bytes.mean(axis=1) / point.sample_s)
    return Seconds(np.concatenate(delays), np.concatenate(rates))


#: What a user may want, and the metric that tells it.
NEEDS = [
    ("Short waits", "delay_p95_s"),
    ("Short transfers that end soon beside long ones", "flow_completion_p95_s"),
    ("Equal shares", "jain"),
    ("All of the link", "goodput_bps"),
    ("Few losses", "drop_rate"),
]


#: A law that leaves more of the link idle than the rest of this share waits little at their cost.
ENOUGH = 0.9
#: Laws to be named in one list; the others are counted.
NAMED = 4


@dataclass(frozen=True)
class Advice:
    """One need, and which law serves it."""

    need: str
    metric: str
    best: Best
    #: of the laws with one queue for all flows, where the best has more
    single: Best | None
    #: in sentences
    text: str


def advice(suite: Suite) -> list[Advice]:
    """Return for each need the best law over all cases, by averages over seeds."""
    found = []
    for need, metric in NEEDS:
        waits = metric == "delay_p95_s"
        laws = _busy(suite) if waits else suite.laws
        bound = f", with at least {100 * ENOUGH:.0f} % of the most goodput" if waits else ""
        best, single = suite.best(metric, laws), None
        if best is None:
            continue
        text = f"{in_words(suite, metric, best)}."
        if best.law in suite.per_flow:
            single = suite.best(metric, [law for law in laws if law not in suite.per_flow])
        if single is not None:
            text += f" With one queue for all flows: {in_words(suite, metric, single)}."
        found.append(Advice(need + bound, metric, best, single, text))
    return found


def in_words(suite: Suite, metric: str, best: Best) -> str:
    """Return the best law with its average, the laws over which its lead may be chance, and the
    next."""
    text = f"{best.law} ({written(suite, metric, best.law)})"
    if len(suite.seeds) < 2:
        return f"{text}; one seed, so any difference may be chance"
    if best.ties:
        text += f"; its lead over {_list(best.ties)} may be chance"
    if best.behind:
        text += f"; then {best.behind} with {written(suite, metric, best.behind)}"
    return text


def unbeaten(suite: Suite) -> list[str]:
    """Return laws that no other beats in both the 95th percentile of the delay and the goodput, by
    delay."""
    found: list[str] = []
    most = -math.inf
    delay = {law: suite.average(law, "delay_p95_s").mean for law in suite.laws}
    for law in sorted(suite.laws, key=lambda law: delay[law]):
        goodput = suite.average(law, "goodput_bps").mean
        if goodput > most:
            found.append(law)
            most = goodput
    return found


def _busy(suite: Suite) -> list[str]:
    """Return laws under which the link carries enough."""
    goodput = {law: suite.average(law, "goodput_bps").mean for law in suite.laws}
    return [law for law in suite.laws if goodput[law] >= ENOUGH * max(goodput.values())]


def written(suite: Suite, metric: str, law: str) -> str:
    """Return an average with its interval and unit."""
    cell, of = suite.average(law, metric), METRICS[metric]
    text = with_interval(of.scale * cell.mean, of.scale * cell.half_width)
    return f"{text} {of.unit}".strip()


def _list(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


#: Stands for every law that there is.
ALL = "all"


@dataclass(frozen=True)
class PlannedSuite:
    """A suite that has been read and checked: its scenarios with the laws under test."""

    settings: Settings
    link: Link
    scenarios: Sequence[Scenario]

    def digest(self) -> str:
        """Return the digest of what the numbers depend on, seeds included."""
        runs = [(one.experiment.digest, one.experiment.plan.seeds) for one in self.scenarios]
        return digest_of([self.settings.name, str(self.link), runs])

    def run(
        self,
        threads: int | None = None,
        watch: Callable[[Progress], None] | None = None,
        store: Store | None = None,
    ) -> Suite:
        """Make the runs that `store` does not have, scenario after scenario. Ctrl-C, and a run
        that fails, stop the others; what had finished by then is in the result."""
        plan, start_s = self.scenarios[0].experiment.plan, time.monotonic()
        experiments = [each.experiment for each in self.scenarios]
        suite = Suite(
            laws=plan.laws,
            per_flow={law.label for law in plan.points[0].laws if law.per_flow},
            seeds=list(plan.seeds),
            cases=[],
            wanted=sum(experiment.runs for experiment in experiments),
        )
        cases: dict[int, list[Case]] = {}
        with closing(execution.execute_all(experiments, threads, watch, store=store)) as made:
            for number, ended in made:
                scenario = self.scenarios[number]
                suite.made += len(ended.runs)
                cases[number] = cases_of(scenario, ended.runs) if ended.runs else []
                suite.faults += [
                    f"{scenario.name}: {execution.fault_in_words(scenario.experiment.plan, fault)}"
                    for fault in ended.faults
                ]
                suite.of_law |= any(fault.of_law for fault in ended.faults)
                suite.interrupted |= ended.interrupted
        suite.cases = [case for number in sorted(cases) for case in cases[number]]
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
    """Read and check a suite; arguments and errors as of `suite`."""
    settings = scenarios.find(name)
    laws = quantities.listed(laws)
    chosen = list(registries.laws()) if laws == [ALL] else laws or settings.laws
    at = settings.link if link is None else scenarios.link(link)
    loaded_laws = [python_laws.load(law) if isinstance(law, str) else law for law in chosen]
    by, files = engines.named(engine), settings.scenarios(quantities.listed(only))
    planned_scenarios = scenarios.plan(settings, files, loaded_laws, at, seeds, overrides, by)
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

    name: a suite, such as "rfc7928".
    laws: one or several names of laws, "all", "FILE.py:CLASS", or classes like
        `forebay.Controller`; the suite's if None.
    only: one or several names of scenarios to run alone, such as "5-1-friendly"; all if None.
    link: another link, its rate and its delay one way, such as "50Mbit/s,20ms".
    seeds: number of seeds, 1 to `seeds`; the suite's if None.
    threads: threads to run on; all cores if None.
    overrides: keys to set on top of every scenario, {"duration": "20s"} or ["KEY=VALUE"].
    engine: what makes the runs: see `forebay.run`.

    An interruption, and a run that fails, stop the others; what had finished is in the result,
    which says so (`interrupted`, `faults`). Raises `ScenarioError`.
    """
    made = planned(name, laws, only, link, seeds, overrides, engine)
    with progress.bar(only_on_terminal=True) as watch:
        return made.run(threads, watch)
