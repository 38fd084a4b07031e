"""What came of a suite: cases, averages over them, and comparisons of laws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forebay._base.metrics import MORE_IS_BETTER, check_metrics
from forebay.experiment import descriptions
from forebay.experiment.table import EMPTY, Cell, RunTable
from forebay.report import result_files

if TYPE_CHECKING:
    from forebay._base.statistics import Best
    from forebay._native import PointInfo, Run
    from forebay.campaign.suite_scenarios import Scenario

#: RFC 7928, section 2, in the order of tables.
METRICS = [
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
ROWS = {"law": pl.String, "seed": pl.UInt64, **dict.fromkeys(METRICS, pl.Float64)}


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
                [law, seed, *(run[name] if self.applies(name) else None for name in METRICS)]
                for law, runs in self.runs.items()
                for seed, run in runs.items()
            ],
            ROWS,
            orient="row",
        )

    @cached_property
    def _cells(self) -> Mapping[tuple[Any, ...], Cell]:
        return RunTable(self.rows).cell_of(METRICS)

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
        """Cases that every law has finished with every seed: averages are over them."""
        wanted = set(self.seeds)
        return [
            case
            for case in self.cases
            if all(wanted == set(case.runs.get(law, {})) for law in self.laws)
        ]

    def sections(self) -> dict[str, list[Case]]:
        """Cases by the first figure of their scenario's name: the section of the RFC."""
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
        return self.table.cell_of(METRICS)

    def average(self, law: str, metric: str) -> Cell:
        """The mean over the whole cases that the metric applies to, with its interval over the
        seeds. Raises `ScenarioError` for what is no metric of a suite."""
        check_metrics([metric], METRICS)
        return self._averages.get((metric, law), EMPTY)

    def best(self, metric: str, laws: Sequence[str]) -> Best | None:
        """The best of some laws over the whole cases; None where no case has the metric. Raises
        `ScenarioError` for what is no metric of a suite."""
        check_metrics([metric], METRICS)
        return self.table.best_of(metric, laws, more=metric in MORE_IS_BETTER)

    def lines(self) -> list[dict[str, Any]]:
        """A table per law and case, for JSON."""
        return [
            {
                "law": law,
                "scenario": case.scenario,
                "point": case.point,
                "seeds": len(runs),
                "metrics": {
                    metric: result_files.finite({"mean": cell.mean, "ci95": cell.half_width})
                    for metric in METRICS
                    for cell in [case.cell(law, metric)]
                },
            }
            for case in self.cases
            for law, runs in case.runs.items()
        ]


def cases(scenario: Scenario, runs: Sequence[Run]) -> list[Case]:
    """The cases of one scenario, from its finished runs."""
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
                for metric in METRICS
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
    """Means over whole seconds of the measurement."""
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
