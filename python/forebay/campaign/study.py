"""The runs of a study as one table: means, differences between laws, and effects of the axes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl

from forebay._base import quantities, statistics
from forebay._base.errors import ParameterError
from forebay._base.metrics import COMPARED, METRICS, TRAFFIC_METRICS, check_metrics
from forebay._base.words import check_choice, one_of
from forebay.campaign.study_points import seed_counts
from forebay.experiment import descriptions, steady_state
from forebay.experiment.store_files import again
from forebay.experiment.table import RunTable, to_pandas

if TYPE_CHECKING:
    import pandas

    from forebay._native import Plan, Run
    from forebay.campaign.study_points import Points, PointsPart, Seeds
    from forebay.experiment.engines import Key
    from forebay.experiment.steady_state import Measured
    from forebay.experiment.store import Store
    from forebay.experiment.table import Cell, LawDifference
    from forebay.report.plot import Plot

#: Number of points that are examined for warnings: each asks the linear model about its laws.
EXAMINED = 100
#: An axis with more values than MOST_VALUES is shown in PARTS parts.
MOST_VALUES, PARTS = 24, 8
#: The numbers of a table that are of the bottleneck.
BOTTLENECK = pl.col("link") == 0


class Study:
    """The runs of a study that are in a store. Printed, and in a notebook, it shows a table.

    Parameters
    ----------
    points : Points
        What was to be run.
    store : Store
        Where the runs are.
    seeds : int or mapping of str to int
        Number of seeds of each law at each point, or the same by digest.
    partial : bool, optional
        True to leave out points whose laws are not designed yet.
    """

    def __init__(
        self, points: Points, store: Store, seeds: Seeds, *, partial: bool = False
    ) -> None:
        self.points, self.store, self.seeds = points, store, seeds
        self.partial = partial

    @cached_property
    def listed(self) -> pl.DataFrame:
        """Point, law and digest of everything that was to be run."""
        return self.points.list_runs(self.store, partial=self.partial)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds that a law has at any point."""
        return self.seeds if isinstance(self.seeds, int) else max(self.seeds.values(), default=0)

    @property
    def axes(self) -> list[str]:
        """The keys that the study varies."""
        return self.points.keys

    @property
    def varied(self) -> list[str]:
        """The axes that have several values."""
        return [key for key in self.axes if self.points.settings[key].n_unique() > 1]

    @again
    def frame(self) -> pl.DataFrame:
        """Return a row per run and link.

        It has the point, the law, each key that is varied in its base unit, the seed, the link, the
        law's parameters as JSON, and every metric. It is the same whatever made the runs, in which
        order, and how often the study was stopped.
        """
        rows = self._joined(["link_name", "parameters", *METRICS]).collect()
        link = self._link()
        return rows.select("point", "law", *self.axes, "seed", link, "parameters", *METRICS)

    @again
    def traffic(self) -> pl.DataFrame:
        """Return per-traffic results, for links that several traffics cross.

        It has a row per run, link and traffic: the columns of `frame` up to the link, the traffic's
        label, and every metric of traffic.
        """
        plan = self.points.part(next(iter(self.points.parts()))).plan
        labels = dict(enumerate(traffic.label for traffic in plan.points[0].traffic))
        rows = self._joined(["link_name", "traffic"]).explode("traffic").collect()
        rows = rows.unnest("traffic").drop_nulls("traffic")
        label = pl.col("traffic").replace_strict(labels, return_dtype=pl.Enum([*labels.values()]))
        link = self._link()
        return rows.select("point", "law", *self.axes, "seed", link, label, *TRAFFIC_METRICS)

    @again
    def _link(self) -> pl.Expr:
        """Return the name of a row's link; names sort as the links do."""
        names = self._joined(["link_name"]).select("link_name").unique().collect()["link_name"]
        links = list(dict.fromkeys([*self.points.links, *sorted(names)]))
        return pl.col("link_name").cast(pl.Enum(links)).alias("link")

    def _joined(self, columns: list[str]) -> pl.LazyFrame:
        """Return these columns of the runs that did not fail, with point, law, seed, link and axes.

        Rows are in the order of points, laws, seeds and links.
        """
        counts = seed_counts(self.seeds, self.listed["config"])
        listed = self.listed.with_columns(self._law(), pl.Series("seed_count", counts, pl.UInt64))
        runs = self.store.scan().filter(pl.col("fault").is_null())
        runs = runs.select("config", "seed", "link", *columns)
        return (
            listed.lazy()
            .join(runs, on="config")
            .filter(pl.col("seed") <= pl.col("seed_count"))
            .join(self.points.settings.lazy(), on="point")
            .sort("point", "law", "seed", "link")
        )

    def runs(self) -> Iterator[tuple[Plan, Run]]:
        """Yield every run that has ended, in the order of points, laws and seeds.

        Each run comes with a plan, of which its point and its law are indices.
        """
        for numbers in self.points.parts():
            if self.partial and not self.points.gains.ready(numbers):
                continue
            part = self.points.part(numbers)
            runs = self._runs_of(part)
            yield from ((part.plan, runs[key]) for key in sorted(runs))

    def _runs_of(self, part: PointsPart) -> dict[Key, Run]:
        """Return the runs at some points that have ended, by their numbers in that part."""
        counts = seed_counts(self.seeds, part.configs["config"])
        keys = {
            (point - part.first, law, seed): config
            for (point, law, config), count in zip(part.configs.iter_rows(), counts, strict=True)
            for seed in range(1, count + 1)
        }
        return self.store.runs(keys, samples=False)

    @again
    def runs_made(self) -> int:
        """Return the number of runs that have ended.

        A run that is the same at several points counts at each, as in `frame`.
        """
        return int(self._joined([]).filter(BOTTLENECK).select(pl.len()).collect().item())

    @again
    def failures(self) -> pl.DataFrame:
        """Return a row per run that failed: point, law, seed, and the reason."""
        runs = self.store.scan().filter(pl.col("fault").is_not_null())
        runs = runs.select("config", "seed", "fault")
        rows = self.listed.with_columns(self._law()).lazy().join(runs, on="config")
        rows = rows.sort("point", "law", "seed").select("point", "law", "seed", "fault")
        return rows.with_columns(pl.col("law").cast(pl.String)).collect()

    def _law(self) -> pl.Expr:
        """Return an expression that replaces the index of a law by its label.

        Labels sort in the order of the laws.
        """
        labels = self.points.laws
        by_number = dict(enumerate(labels))
        return pl.col("law").replace_strict(by_number, return_dtype=pl.Enum(labels))

    def table(self, *metrics: str, axes: Sequence[str] = (), binned: bool = False) -> RunTable:
        """Return metrics of the bottleneck in every run, with the axes.

        Parameters
        ----------
        *metrics : str
            Names of metrics.
        axes : sequence of str, optional
            Axes that must exist.
        binned : bool, optional
            True to cut an axis with many values into parts of equally many points.

        Raises
        ------
        ScenarioError
            If there is no such metric or axis.
        """
        self.check(metrics, axes)
        rows = self._joined(list(metrics))
        if binned:
            rows = rows.drop(self.axes).join(self._binned.lazy(), on="point")
        return RunTable(rows.filter(BOTTLENECK))

    def check(self, metrics: Iterable[str], axes: Iterable[str] = ()) -> None:
        """Raise `ScenarioError` for a name that is no metric, or no axis of the study."""
        check_metrics(metrics)
        for axis in axes:
            if axis not in self.axes:
                expected = one_of(self.axes, axis) if self.axes else "a scenario with a sweep"
                raise ParameterError("axis", axis, expected)

    @again
    def cells(self, metric: str, *axes: str, binned: bool = False) -> pl.DataFrame:
        """Return the means of a metric of the bottleneck over some axes.

        It has the columns law, the axes, mean, ci95 and seeds. Over the other axes the metric is
        averaged for each seed, and the interval is Student's t over these averages; it is NaN for
        one seed. `binned` and errors are those of `table`.
        """
        return self.table(metric, axes=axes, binned=binned).cells(metric, *axes)

    @again
    def best(self, metric: str, *axes: str, more: bool) -> pl.DataFrame:
        """Return the law with the best mean at each place of binned axes: see `RunTable.best`."""
        return self.table(metric, axes=axes, binned=True).best(metric, *axes, more=more)

    @property
    def _binned(self) -> pl.DataFrame:
        settings = self.points.settings
        columns = []
        for key in self.axes:
            values = settings[key]
            if values.dtype.is_numeric() and values.n_unique() > MOST_VALUES:
                part = (values.rank("ordinal") - 1) * PARTS // len(values)
                columns.append(pl.col(key).median().over(part))
        return settings.with_columns(columns)

    @again
    def means(self, metrics: str | Sequence[str] = ()) -> dict[tuple[str, str], Cell]:
        """Return means over the whole study, by metric and law, with intervals over the seeds.

        By default the metrics are those that laws are compared by. Those without a value are left
        out.

        Raises
        ------
        ScenarioError
            If there is no such metric.
        """
        chosen = quantities.listed(metrics) or COMPARED
        cells = self.table(*chosen).cell_of(chosen)
        marked = any(cell.mean for (name, _), cell in cells.items() if name == "mark_rate")
        return {
            (name, law): cells[name, law]
            for name in chosen
            for law in self.points.laws
            if (name, law) in cells and (metrics or name != "mark_rate" or marked)
        }

    def differences(self, metrics: str | Sequence[str] = ()) -> list[LawDifference]:
        """Return the difference of every pair of laws in the metrics of `means`.

        Those that are statistically significant come first.

        Raises
        ------
        ScenarioError
            If there is no such metric.
        """
        names = list(dict.fromkeys(name for name, _ in self.means(metrics)))
        return self.table(*names).differences(names)

    @cached_property
    def _examined(self) -> PointsPart | None:
        """The points that are examined one by one, the same each time; None if there are none."""
        count = len(self.points)
        numbers = sorted(random.Random(1).sample(range(count), min(EXAMINED, count)))
        if self.partial:
            numbers = [number for number in numbers if self.points.gains.ready([number])]
        return self.points.part(numbers) if numbers else None

    @property
    def plan(self) -> Plan | None:
        """The plan of the points that are examined one by one."""
        return self._examined.plan if self._examined else None

    @cached_property
    def measured(self) -> list[Measured]:
        """The runs of each law at the points that are examined one by one."""
        if self._examined is None:
            return []
        runs = self._runs_of(self._examined)
        by_law: dict[tuple[int, int], list[Run]] = {}
        for key in sorted(runs):
            by_law.setdefault(key[:2], []).append(runs[key])
        points = self._examined.plan.points
        return [
            (point, points[point], points[point].laws[law], of_law)
            for (point, law), of_law in by_law.items()
        ]

    @cached_property
    def warnings(self) -> list[tuple[str, str]]:
        """Warnings about the means: a sentence each, and a command that helps or "".

        A study keeps no samples, and does not know whether the queue was in steady state.
        """
        if self.plan is None:
            return []
        points = self.plan.points
        examined = f"{len(points)} points"
        if len(points) < len(self.points):
            examined = f"the {examined} that were looked at"
        # A law that is designed at each point already has the gains that a design would give it.
        designed = self.points.gains.laws
        findings = [
            (replace(finding, command="") if finding.law in designed else finding, count)
            for finding, count in steady_state.warnings(self.measured)
        ]
        return descriptions.in_words(findings, dict(enumerate(points)), examined)

    @again
    def wide(self, metric: str, share: float, most_seeds: int) -> dict[str, int]:
        """Return the number of seeds that laws at points need whose interval is too wide.

        Parameters
        ----------
        metric : str
            Name of the metric.
        share : float
            Ratio of the 95 % interval's half-width to the mean that is narrow enough.
        most_seeds : int
            Largest number of seeds.

        Returns
        -------
        dict
            Seeds by digest. The interval shrinks as one over the root of the number of seeds. At
            most twice as many are asked for at a time, since the deviation of few seeds is itself
            uncertain.
        """
        rows = self._joined([metric]).filter(BOTTLENECK).unique(["config", "seed"])
        values = pl.col(metric).sort_by("seed").alias("values")
        by_config = rows.group_by("config").agg(values).sort("config").collect()
        needed = {}
        for config, samples in by_config.iter_rows():
            mean, half = statistics.mean_and_interval(samples)
            count = len(samples)
            # More seeds do not change what no seed changes.
            if mean != mean or count >= most_seeds or statistics.are_alike(samples):
                continue
            ratio = half / abs(mean) if mean else 0.0
            if half != half or ratio > share:
                seeds = 2 if half != half else count * (ratio / share) ** 2
                needed[config] = min(most_seeds, 2 * count, max(count + 1, round(seeds + 0.5)))
        return needed

    def plot(
        self,
        kind: StudyPicture = "response",
        *,
        metric: str | None = None,
        axes: str | Sequence[str] = (),
    ) -> Plot:
        """Draw a metric over axes of the study.

        Parameters
        ----------
        kind : {"response", "heat"}, optional
            A curve with its interval over each axis, or a map over two axes.
        metric : str, optional
            Name of the metric; by default the 95th percentile of the delay, or the goodput.
        axes : str or sequence of str, optional
            The axes; all axes that vary by default.

        Raises
        ------
        ParameterError
            If there is no such figure, or no axis for it.
        ScenarioError
            If there is no such metric or axis, or no run has a value of the metric.
        """
        from forebay.campaign import study_page as page
        from forebay.report.drawing import draw  # loads matplotlib

        check_choice("kind", kind, get_args(StudyPicture))
        keys = quantities.listed(axes) or self.varied
        if not keys or (kind == "heat" and len(keys) != 2):
            expected = "two axes" if kind == "heat" else "an axis"
            raise ParameterError("axes", ", ".join(keys) or "none", expected)
        if metric is None:
            usual = self.means(["delay_p95_s", "goodput_bps"])
            metric = next((name for name, _ in usual), "delay_p95_s")
        if self.cells(metric, *keys).is_empty():
            valued = dict.fromkeys(name for name, _ in self.means(list(METRICS)))
            expected = one_of(valued) if valued else "a run that has ended"
            raise ParameterError("metric", metric, expected, reason="no run has a value of it")
        runs = page.loaded(self, [metric], binned=True)
        if kind == "heat":
            return draw(page.heat(self, runs, metric, *keys))
        return draw(page.response(self, runs, metric, keys))

    def to_dict(self) -> dict[str, Any]:
        """Return the size of the study and the mean of each metric for each law, for JSON."""
        return {
            "title": self.points.title,
            "axes": self.axes,
            "seeds": self.most_seeds,
            "runs": self.runs_made(),
            "failures": self.failures().to_dicts(),
            "means": [
                {"law": law, "metric": metric}
                | {"mean": quantities.finite(cell.mean), "ci95": quantities.finite(cell.half_width)}
                for (metric, law), cell in self.means(list(METRICS)).items()
            ],
        }

    def report(self, out: str | os.PathLike[str]) -> list[Path]:
        """Write the page, its figures and the table of runs to a folder, and return the files."""
        from forebay.campaign import study_files as files

        return files.write(self, Path(out), "forebay.study", partial=self.partial)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `frame()` as a frame of pandas; pyarrow is not needed.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return to_pandas(self.frame())

    def __str__(self) -> str:
        """Return the table that `forebay study` prints."""
        from forebay._base.terminal_table import printed
        from forebay.campaign import study_files as files

        return printed(lambda screen: files.show(screen, self))

    def _repr_html_(self) -> str:
        from forebay.campaign import study_files as files
        from forebay.report import notebook

        table = files.laws_table(self)
        metric = next((name for name, _ in self.means(["delay_p95_s", "goodput_bps"])), None)
        figure = self.plot(metric=metric) if metric and self.varied else None
        title = f"{self.points.title}: {files.size(self)}"
        return notebook.html(title, table.heads, table.rows, figure)


#: Figures of a study.
StudyPicture = Literal["response", "heat"]


@dataclass(frozen=True)
class Effect:
    """Sobol's indices of an axis under a law, from 0 to 1.

    Attributes
    ----------
    law, axis : str
        The law and the axis.
    first : float
        First-order index: the share of the variance that the axis explains alone.
    total : float
        Total index, which includes interactions with other axes; NaN if a sample does not give it.
    """

    law: str
    axis: str
    first: float
    total: float


def effects(study: Study, metric: str) -> list[Effect]:
    """Return the effect of each axis on a metric under each law, from means over the seeds.

    Parameters
    ----------
    study : Study
        The runs.
    metric : str
        Name of the metric.

    Returns
    -------
    list of Effect
        The indices. They are exact on a whole grid, with equal weights for its values. From a
        sample the first-order index is estimated by SALib's RBD-FAST; for a list that is crossed
        with the sample, from the means at its values.

    Raises
    ------
    ImportError
        If SALib is not installed, for a sample.

    References
    ----------
    Sobol (2001) for grids; Tarantola et al. (2006) for RBD-FAST.
    """
    axes, sampled = study.axes, study.points.sampled
    means = study.cells(metric, *axes)
    indices = []
    for law in study.points.laws:
        of_law = means.filter(pl.col("law") == law)
        values = of_law["mean"].to_numpy()
        # With few points, or with a metric that does not change, shares are noise.
        if len(values) < 4 or np.ptp(values) == 0:
            continue
        whole = not sampled and len(values) == len(study.points)
        for place, axis in enumerate(axes):
            if of_law[axis].n_unique() < 2:
                continue
            total = float("nan")
            if axis in sampled:
                first = _rbd_fast(of_law, axes)[place]
            else:
                # RBD-FAST orders by the axis; many equal values would keep the sample's order.
                first = _explained(of_law, [axis])
            if whole:
                remaining = [key for key in axes if key != axis]
                total = 1 - (_explained(of_law, remaining) if remaining else 0.0)
            indices.append(Effect(law, axis, first, total))
    return indices


def _explained(table: pl.DataFrame, axes: list[str]) -> float:
    """Return Var(E[y | axes]) / Var(y) of a whole grid."""
    within = table.with_columns(pl.col("mean").mean().over(axes).alias("expected"))
    return float(np.var(within["expected"].to_numpy()) / np.var(table["mean"].to_numpy()))


def _rbd_fast(table: pl.DataFrame, axes: list[str]) -> list[float]:
    """Return the first-order Sobol index of each axis of a sampled sweep, by RBD-FAST."""
    from SALib.analyze import rbd_fast  # type: ignore[import-untyped]

    # The method only sorts by the values, so ranks are enough, and texts have them, too.
    x = np.column_stack([table[axis].rank("dense").to_numpy() for axis in axes]).astype(float)
    bounds = [[float(column.min()), float(max(column.max(), column.min() + 1))] for column in x.T]
    problem = {"num_vars": len(axes), "names": axes, "bounds": bounds}
    analysis: dict[str, Any] = rbd_fast.analyze(
        problem, x, table["mean"].to_numpy(), num_resamples=2, seed=1
    )
    return [float(np.clip(value, 0, 1)) for value in analysis["S1"]]
