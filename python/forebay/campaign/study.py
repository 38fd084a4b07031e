"""The runs of a study as one frame: means, differences, effects, figures and tables."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay._base import quantities, statistics, words
from forebay._base.metrics import COMPARED, METRICS, TRAFFIC_METRICS, check_metrics
from forebay._native import ScenarioError
from forebay.experiment import descriptions, steady_state
from forebay.experiment.store_files import again
from forebay.experiment.table import RunTable, to_pandas

if TYPE_CHECKING:
    import pandas

    from forebay._native import Plan, Run
    from forebay.campaign.study_points import Points, PointsPart
    from forebay.experiment.engines import Key
    from forebay.experiment.steady_state import Measured
    from forebay.experiment.store import Store
    from forebay.experiment.table import Cell, LawDifference
    from forebay.report.plot import Plot

#: Points that are looked at for warnings: each asks the linear model about its laws.
LOOKED_AT = 100
#: An axis with more values is shown in so many parts.
MOST_VALUES, PARTS = 24, 8


class Study:
    """The runs of a study that are in a store. Printed, and in a notebook, it shows a table.

    points: what was to be run. seeds: how many of each law at each point, or by its digest where
    they differ. partial: whether points are left out whose laws are not designed yet.
    """

    def __init__(
        self,
        points: Points,
        store: Store,
        seeds: int | Mapping[str, int],
        *,
        partial: bool = False,
    ) -> None:
        self.points, self.store, self.seeds = points, store, seeds
        self.partial = partial

    @cached_property
    def listed(self) -> pl.DataFrame:
        """Point, law and digest of all that was to be run."""
        return self.points.list_runs(self.store, partial=self.partial)

    @property
    def most_seeds(self) -> int:
        """The largest number of seeds that a law has at any point."""
        return self.seeds if isinstance(self.seeds, int) else max(self.seeds.values(), default=0)

    @property
    def axes(self) -> list[str]:
        """The keys that the study varies."""
        return self.points.keys

    @again
    def frame(self) -> pl.DataFrame:
        """Return a row per run and link: point, law, each key that is varied in its base unit,
        seed, link, the law's parameters as JSON, and every metric. The same whatever made it, in
        which order, and how often it was stopped."""
        link = pl.col("link_name").cast(pl.Enum(self._links())).alias("link")
        found = self._joined(["link_name", "parameters", *METRICS]).collect()
        return found.select("point", "law", *self.axes, "seed", link, "parameters", *METRICS)

    @again
    def traffic(self) -> pl.DataFrame:
        """Return per-traffic results: as `frame`, a row per run, link and traffic that crosses it,
        where several do, with the traffic's label and every metric of it."""
        plan = self.points.part(next(iter(self.points.parts()))).plan
        labels = dict(enumerate(traffic.label for traffic in plan.points[0].traffic))
        rows = self._joined(["link_name", "traffic"]).explode("traffic").collect()
        rows = rows.unnest("traffic").drop_nulls("traffic")
        link = pl.col("link_name").cast(pl.Enum(self._links())).alias("link")
        label = pl.col("traffic").replace_strict(
            labels, return_dtype=pl.Enum(list(labels.values()))
        )
        return rows.select("point", "law", *self.axes, "seed", link, label, *TRAFFIC_METRICS)

    @again
    def _links(self) -> list[str]:
        found = self._joined(["link_name"]).select("link_name").unique().collect()["link_name"]
        return list(dict.fromkeys([*self.points.links, *sorted(found)]))

    def _joined(self, columns: list[str]) -> pl.LazyFrame:
        """Return the list of the study with these columns of its sound runs, in the order of
        points, laws, seeds and links."""
        listed = self.listed.with_columns(self._law())
        if isinstance(self.seeds, int):
            listed = listed.with_columns(most=pl.lit(self.seeds, pl.UInt64))
        else:
            of = {"config": list(self.seeds), "most": list(self.seeds.values())}
            listed = listed.join(
                pl.DataFrame(of, {"config": pl.String, "most": pl.UInt64}), on="config"
            )
        runs = self.store.scan().filter(pl.col("fault").is_null())
        runs = runs.select("config", "seed", "link", *columns)
        return (
            listed.lazy()
            .join(runs, on="config")
            .filter(pl.col("seed") <= pl.col("most"))
            .join(self.points.settings.lazy(), on="point")
            .sort("point", "law", "seed", "link")
        )

    def runs(self) -> Iterator[tuple[Plan, Run]]:
        """Yield every run that has ended, with the plan that its numbers are of; in the order of
        points, laws and seeds."""
        for which in self.points.parts():
            if self.partial and not self.points.gains.ready(which):
                continue
            part = self.points.part(which)
            found = self._runs_of(part)
            yield from ((part.plan, found[key]) for key in sorted(found))

    def _runs_of(self, part: PointsPart) -> dict[Key, Run]:
        """Return the runs of some points that have ended, by their numbers in that part."""
        wanted = {
            (point - part.first, law, seed): config
            for point, law, config in part.configs.iter_rows()
            for seed in range(1, self._seeds_of(config) + 1)
        }
        return self.store.runs(wanted, samples=False)

    def _seeds_of(self, config: str) -> int:
        return self.seeds if isinstance(self.seeds, int) else self.seeds.get(config, 0)

    @again
    def runs_made(self) -> int:
        """Return the number of runs at the points of the study that have ended; one that is alike
        at several points counts at each, as in `frame`."""
        first = self._joined([]).filter(pl.col("link") == 0)
        return int(first.select(pl.len()).collect().item())

    @again
    def failures(self) -> pl.DataFrame:
        """Return a row per run that failed: point, law, seed, and why."""
        runs = self.store.scan().filter(pl.col("fault").is_not_null())
        runs = runs.select("config", "seed", "fault")
        found = self.listed.with_columns(self._law()).lazy().join(runs, on="config")
        found = found.sort("point", "law", "seed").select("point", "law", "seed", "fault")
        return found.with_columns(pl.col("law").cast(pl.String)).collect()

    def _law(self) -> pl.Expr:
        """Return the label of a law by its number; labels sort as the laws do."""
        labels = self.points.laws
        numbered = dict(enumerate(labels))
        return pl.col("law").replace_strict(numbered, return_dtype=pl.Enum(labels))

    def table(self, *metrics: str, axes: Sequence[str] = (), binned: bool = False) -> RunTable:
        """Return metrics of the bottleneck in every run, with the axes; those of `axes` are asked
        for.

        binned: an axis with many values is cut into parts of equally many points. Raises
        `ScenarioError` for a metric or an axis that there is not.
        """
        self.check(metrics, axes)
        rows = self._joined(list(metrics))
        if binned:
            rows = rows.drop(self.axes).join(self._binned.lazy(), on="point")
        return RunTable(rows.filter(pl.col("link") == 0))

    def check(self, metrics: Iterable[str], axes: Iterable[str] = ()) -> None:
        """Raise `ScenarioError` for what is no metric, or no axis of the study."""
        check_metrics(metrics)
        for axis in axes:
            if axis not in self.axes:
                allowed = ", ".join(self.axes) or "none, since the scenario has no sweep"
                near = words.hint(axis, self.axes)
                raise ScenarioError(f'axis: found "{axis}"{near}, allowed: {allowed}')

    @again
    def by_seed(self, metric: str, *axes: str, binned: bool = True) -> pl.DataFrame:
        """Return a metric of the bottleneck for each seed, averaged over the axes that are not
        named: law, those axes, seed and the metric. Points at which it does not apply are left out.
        Raises `ScenarioError`."""
        return self.table(metric, axes=axes, binned=binned).values(metric, *axes)

    @again
    def cells(self, metric: str, *axes: str, binned: bool = False) -> pl.DataFrame:
        """Return a metric of the bottleneck over some axes: law, those axes, mean, ci95 and seeds.

        Over the other axes it is averaged for each seed, and the interval is Student's t over
        these averages; NaN for one seed. binned: as `table` has it. Raises `ScenarioError`.
        """
        return self.table(metric, axes=axes, binned=binned).cells(metric, *axes)

    @again
    def best(self, metric: str, *axes: str, more: bool) -> pl.DataFrame:
        """Return the law with the best mean at each place of the axes, binned: see
        `RunTable.best`."""
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
        """Return means by metric and law over the whole study, with their intervals over the seeds;
        of what laws are compared by where no metric is named. Those without a value are left out.
        Raises `ScenarioError`."""
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
        """Return the difference of every pair of laws over the whole study in the metrics of
        `means`, those beyond chance first. Raises `ScenarioError`."""
        names = list(dict.fromkeys(name for name, _ in self.means(metrics)))
        return self.table(*names).differences(names)

    @cached_property
    def _looked_at(self) -> PointsPart | None:
        """The points that are looked at one by one: of many `LOOKED_AT`, the same each time; None
        without any whose laws are designed."""
        every = range(len(self.points))
        which = sorted(random.Random(1).sample(every, min(LOOKED_AT, len(every))))
        if self.partial:
            which = [point for point in which if self.points.gains.ready([point])]
        return self.points.part(which) if which else None

    @property
    def plan(self) -> Plan | None:
        """The plan of the points that are looked at one by one."""
        return self._looked_at.plan if self._looked_at else None

    @cached_property
    def measured(self) -> list[Measured]:
        """The runs of each law at the points that are looked at one by one."""
        if self._looked_at is None:
            return []
        runs = self._runs_of(self._looked_at)
        by_law: dict[tuple[int, int], list[Run]] = {}
        for point, law, seed in sorted(runs):
            by_law.setdefault((point, law), []).append(runs[point, law, seed])
        points = self._looked_at.plan.points
        return [
            (point, points[point], points[point].laws[law], some)
            for (point, law), some in by_law.items()
        ]

    @cached_property
    def warnings(self) -> list[tuple[str, str]]:
        """Warnings about the means, as of `forebay run`: a sentence each, and a command
        that helps or "". Whether the queue still moved no study knows, which keeps no samples."""
        if self.plan is None:
            return []
        points = self.plan.points
        looked_at = f"{len(points)} points"
        if len(points) < len(self.points):
            looked_at = f"the {looked_at} that were looked at"
        # A law that is designed at each point has the gains that a design would give it.
        designed = self.points.gains.laws
        findings = [
            (replace(finding, command="") if finding.law in designed else finding, count)
            for finding, count in steady_state.warnings(self.measured)
        ]
        return descriptions.in_words(findings, dict(enumerate(points)), looked_at)

    @again
    def wide(self, metric: str, least: float, most: int) -> dict[str, int]:
        """Return how many seeds each law at each point needs for an interval of `least` of its
        mean, at most `most`; only those whose interval is too wide now.

        The interval shrinks as one over the root of the seeds; no more than twice as many are
        asked for at a time, since the deviation of few seeds is itself uncertain.
        """
        found = self._joined([metric]).filter(pl.col("link") == 0)
        grouped = (
            found.unique(["config", "seed"])
            .group_by("config")
            .agg(pl.col(metric).sort_by("seed").alias("values"))
        )
        needed = {}
        for config, values in grouped.sort("config").collect().iter_rows():
            mean, half = statistics.mean_and_interval(values)
            # Further seeds do not change what no seed changes.
            if mean != mean or len(values) >= most or statistics.are_alike(values):
                continue
            share = half / abs(mean) if mean else 0.0
            if half != half or share > least:
                wanted = 2 if half != half else len(values) * (share / least) ** 2
                needed[config] = min(
                    most, 2 * len(values), max(len(values) + 1, round(wanted + 0.5))
                )
        return needed

    def plot(self, metric: str, x: str, y: str | None = None) -> Plot:
        """Draw a map of a metric over two axes, or over one of them a curve with its interval.

        Raises `ScenarioError` for a metric or an axis that there is not, and for a metric that no
        run has a value of.
        """
        from forebay.campaign import study_page as page  # draws, which takes a while to load

        axes = [x] if y is None else [x, y]
        if self.cells(metric, *axes).is_empty():
            valued = dict.fromkeys(name for name, _ in self.means(list(METRICS)))
            raise ScenarioError(
                f'metric: found "{metric}", of which no run has a value, allowed: '
                f"{', '.join(valued) or 'none, since no run has ended'}"
            )
        return page.response(self, metric, axes) if y is None else page.heat(self, metric, x, y)

    def to_pandas(self) -> pandas.DataFrame:
        """Return `frame()` as a frame of pandas; pyarrow is not needed. Raises `ImportError`
        without pandas."""
        return to_pandas(self.frame())

    def __str__(self) -> str:
        """Return the table that `forebay study` prints."""
        from forebay._base.terminal_table import printed
        from forebay.campaign import study_files as files

        return printed(lambda screen: files.show(screen, self))

    def _repr_html_(self) -> str:
        from forebay.campaign import study_files as files
        from forebay.campaign import study_page as page
        from forebay.report import notebook

        table = files.laws_table(self)
        drawn = next((name for name, _ in self.means(["delay_p95_s", "goodput_bps"])), None)
        varied = [key for key in self.axes if self.points.settings[key].n_unique() > 1]
        figure = page.response(self, drawn, varied) if drawn and varied else None
        title = f"{self.points.title}: {files.size(self)}"
        return notebook.html(title, table.heads, table.rows, figure)


@dataclass(frozen=True)
class Effect:
    """Sobol's indices of an axis under a law, from 0 to 1.

    first: the share of the variance that the axis explains alone. total: with all that it does
    together with others; NaN where a sample does not tell.
    """

    law: str
    axis: str
    first: float
    total: float


def effects(study: Study, metric: str) -> list[Effect]:
    """Return the effect of each axis under each law, of means over the seeds.

    A whole grid has them exactly (Sobol 2001, with equal weights for its values); from a sample
    the first one is estimated by SALib's RBD-FAST (Tarantola et al. 2006), and for a list that is
    crossed with the sample by the means at its values. Raises `ImportError` without SALib, for a
    sample alone.
    """
    axes = study.axes
    sampled = study.points.sampled
    means = study.cells(metric, *axes)
    found = []
    for law in study.points.laws:
        of_law = means.filter(pl.col("law") == law)
        values = of_law["mean"].to_numpy()
        # With few points, or a metric that stands still, shares are noise.
        if len(values) < 4 or np.ptp(values) == 0:
            continue
        whole = not sampled and len(values) == len(study.points)
        for place, axis in enumerate(axes):
            if of_law[axis].n_unique() < 2:
                continue
            if whole:
                others = [one for one in axes if one != axis]
                first = _explained(of_law, [axis])
                total = 1 - (_explained(of_law, others) if others else 0.0)
            elif axis not in sampled:
                # RBD-FAST orders by the axis; many equal values would keep the order of the sample.
                first, total = _explained(of_law, [axis]), float("nan")
            else:
                first, total = _of_sample(of_law, axes)[place], float("nan")
            found.append(Effect(law, axis, first, total))
    return found


def _explained(table: pl.DataFrame, axes: list[str]) -> float:
    """Var(E[y | axes]) over Var(y), of a whole grid."""
    within = table.with_columns(pl.col("mean").mean().over(axes).alias("expected"))
    return float(np.var(within["expected"].to_numpy()) / np.var(table["mean"].to_numpy()))


def _of_sample(table: pl.DataFrame, axes: list[str]) -> list[float]:
    from SALib.analyze import rbd_fast  # type: ignore[import-untyped]

    # Ranks: the order of the values is all that the method sorts by, and texts have one, too.
    x = np.column_stack([table[axis].rank("dense").to_numpy() for axis in axes]).astype(float)
    bounds = [[float(column.min()), float(max(column.max(), column.min() + 1))] for column in x.T]
    problem = {"num_vars": len(axes), "names": axes, "bounds": bounds}
    found: dict[str, Any] = rbd_fast.analyze(
        problem, x, table["mean"].to_numpy(), num_resamples=2, seed=1
    )
    return [float(np.clip(value, 0, 1)) for value in found["S1"]]
