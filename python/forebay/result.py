"""What an experiment gave: tables as polars frames, figures, and the report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from forebay import metrics, stats
from forebay.metrics import METRICS

if TYPE_CHECKING:
    from forebay._native import LawInfo, Plan, PointInfo, Run
    from forebay.experiment import Execution, Experiment
    from forebay.plots import Plot
    from forebay.stats import Comparison


@dataclass(frozen=True)
class Cell:
    """A metric of one law at one point, over its seeds."""

    mean: float
    #: Half the width of the 95 % confidence interval; NaN for one seed.
    half_width: float
    seeds: int


class Result:
    """The runs of one experiment, in the order of points, laws and seeds.

    In a notebook it shows its summary as a table.
    """

    def __init__(self, experiment: Experiment, execution: Execution) -> None:
        self.experiment = experiment
        self.runs = execution.runs
        self.elapsed_s = execution.elapsed_s
        self._groups: dict[tuple[int, int], list[Run]] = {}
        for run in self.runs:
            self._groups.setdefault((run.point, run.law), []).append(run)
        #: How many seeds any law has finished at any point.
        self.seeds = max((len(runs) for runs in self._groups.values()), default=0)
        #: Whether runs are missing, because they were interrupted or one of them failed.
        self.partial = len(self.runs) < experiment.runs

    @property
    def plan(self) -> Plan:
        """What was to be run: title, source, laws, points, seeds."""
        return self.experiment.plan

    def of(self, point: int, law: int) -> list[Run]:
        """The runs of one law at one point, by their indices in the plan."""
        return self._groups.get((point, law), [])

    def points(self) -> Iterator[tuple[int, PointInfo]]:
        """Points at which something finished, with their indices."""
        seen = {point for point, _ in self._groups}
        return ((i, point) for i, point in enumerate(self.plan.points) if i in seen)

    def laws(self, point: int) -> Iterator[tuple[int, LawInfo]]:
        """Laws with finished runs at a point, with their indices."""
        laws = self.plan.points[point].laws
        return ((i, law) for i, law in enumerate(laws) if (point, i) in self._groups)

    @cached_property
    def metrics(self) -> pl.DataFrame:
        """A row per run: law, point, what the sweep set, seed, and every metric."""
        points = [self.plan.points[run.point] for run in self.runs]
        columns: dict[str, object] = {
            "law": [self.plan.laws[run.law] for run in self.runs],
            "point": [point.label for point in points],
        }
        for key in self.plan.points[0].settings:
            columns[key] = _settings_column([point.settings[key] for point in points])
        columns["seed"] = pl.Series([run.seed for run in self.runs], dtype=pl.UInt64)
        for name in METRICS:
            columns[name] = [run.metrics[name] for run in self.runs]
        return self._keyed(pl.DataFrame(columns))

    @cached_property
    def samples(self) -> pl.DataFrame:
        """A row per sample: law, point, seed, time_s and the columns of DESIGN's trace.

        `p`, and what else a law reports of its inner state, is null where it reports none.
        """
        return self._table(lambda run: pl.DataFrame(run.samples))

    @cached_property
    def delays(self) -> pl.DataFrame:
        """A row per bin of the queuing delay: its upper end delay_s, and packets in it."""
        return self._table(
            lambda run: pl.DataFrame({"delay_s": run.delay_s, "packets": run.delay_packets})
        )

    @cached_property
    def flows(self) -> pl.DataFrame:
        """A row per flow: index of its traffic, and its goodput_bps over the window."""
        return self._table(
            lambda run: pl.DataFrame(
                {"traffic": run.flow_traffic, "goodput_bps": run.flow_goodput_bps}
            )
        )

    def cell(self, point: int, law: int, metric: str) -> Cell:
        """Mean and interval of a metric, by the indices of point and law."""
        values = [run.metrics[metric] for run in self.of(point, law)]
        mean, half_width = stats.mean_and_interval(values)
        return Cell(mean, half_width, len(values))

    def summary(self) -> pl.DataFrame:
        """A row per point, law and metric: mean, half width of the 95 % interval, seeds.

        `ci95` is Student's t interval over the seeds; NaN for a single seed.
        """
        rows = [
            {
                "point": point.label,
                "law": law.label,
                "metric": name,
                "mean": cell.mean,
                "ci95": cell.half_width,
                "seeds": cell.seeds,
            }
            for p, point in self.points()
            for law_index, law in self.laws(p)
            for name in METRICS
            for cell in [self.cell(p, law_index, name)]
        ]
        return self._keyed(pl.DataFrame(rows))

    def compared(self) -> list[str]:
        """Metrics worth a column: those that any run has, and marks only where there are some."""
        return [
            name
            for name in metrics.COMPARED
            if any(run.metrics[name] == run.metrics[name] for run in self.runs)
            and (name != "mark_rate" or any(run.metrics[name] > 0 for run in self.runs))
        ]

    def comparisons(self, point: int, metric: str) -> list[Comparison]:
        """Every pair of laws at a point: see `forebay.stats.compare`."""
        return stats.compare(
            {
                law.label: {run.seed: run.metrics[metric] for run in self.of(point, i)}
                for i, law in self.laws(point)
            }
        )

    def plot(self, kind: str = "queue", point: int = 0) -> Plot:
        """A figure: "queue", "loss" or "delay" at one point, or "qacd" or "load" over all."""
        from forebay import plots

        return plots.draw(self, kind, point)

    def report(self, out: str | os.PathLike[str]) -> None:
        """Writes report.html, the figures, and the tables as Parquet and JSON to `out`."""
        from forebay import files

        files.write(self, out)

    def _repr_html_(self) -> str:
        from forebay import report

        return report.summary_html(self)

    def _keyed(self, frame: pl.DataFrame) -> pl.DataFrame:
        """As Enum the labels sort in the order of the plan, and take little room."""
        laws = pl.Enum(self.plan.laws)
        points = pl.Enum([point.label for point in self.plan.points])
        return frame.with_columns(pl.col("law").cast(laws), pl.col("point").cast(points))

    def _table(self, rows_of: Callable[[Run], pl.DataFrame]) -> pl.DataFrame:
        frames = []
        for run in self.runs:
            law = pl.lit(self.plan.laws[run.law]).alias("law")
            point = pl.lit(self.plan.points[run.point].label).alias("point")
            seed = pl.lit(run.seed, pl.UInt64).alias("seed")
            frames.append(self._keyed(rows_of(run).select(law, point, seed, pl.all())))
        return pl.concat(frames, how="diagonal")


def _settings_column(values: list[object]) -> pl.Series:
    """Numbers as they are; anything else as text, since a sweep may mix lists with texts."""
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return pl.Series(values=values, strict=False)
    return pl.Series([value if isinstance(value, str) else json.dumps(value) for value in values])
