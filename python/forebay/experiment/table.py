"""A set of runs as one table: means with their intervals, and the best law at each place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay._base import statistics

if TYPE_CHECKING:
    import pandas

#: Columns of the long form of several metrics: the name of the metric, and its value.
METRIC, VALUE = "metric", "value"


@dataclass(frozen=True)
class Cell:
    """A metric of one law at one place, over its seeds.

    Attributes
    ----------
    mean : float
        Mean over the seeds.
    half_width : float
        Half the width of the 95 % confidence interval; NaN for one seed, and if all seeds give the
        same value.
    seeds : int
        The number of seeds that have a value.
    """

    mean: float
    half_width: float
    seeds: int

    @property
    def alike(self) -> bool:
        """True if several seeds all gave this very value, so there is no interval."""
        return self.seeds > 1 and math.isnan(self.half_width)


#: The cell of a metric that no run has.
EMPTY = Cell(math.nan, math.nan, 0)


@dataclass(frozen=True)
class LawDifference:
    """The difference of two laws in a metric at one place.

    Attributes
    ----------
    metric : str
        Name of the metric.
    place : tuple[Any, ...]
        Values of the columns that define the place; empty for all places together.
    pair : statistics.PairedDifference
        The paired difference.
    """

    metric: str
    place: tuple[Any, ...]
    pair: statistics.PairedDifference

    @property
    def rank(self) -> int:
        """The sort key: 0 if significant, 1 if not significant, 2 without a test."""
        return 0 if self.pair.significant else 1 if self.pair.tested else 2


class RunTable:
    """Runs as rows: law, seed, any columns that say where a run took place, and metrics.

    Parameters
    ----------
    rows : pl.DataFrame or pl.LazyFrame
        The runs. The order of `law` is that of its Enum. A metric that is null or NaN does not
        apply to the run.
    replicate : str, default "seed"
        The column over which means and intervals are taken, and whose values pair the laws.
    """

    def __init__(self, rows: pl.DataFrame | pl.LazyFrame, *, replicate: str = "seed") -> None:
        self.rows, self.replicate = rows.lazy(), replicate

    def values(self, metric: str, *by: str) -> pl.DataFrame:
        """Return a metric for each law, place and seed, averaged over all other columns.

        Parameters
        ----------
        metric : str
            Name of the metric.
        by : str
            Columns that define the place.

        Returns
        -------
        pl.DataFrame
            Columns law, those of `by`, seed and the metric, in this order.
        """
        return self._values([metric], by).drop(METRIC).rename({VALUE: metric})

    def cells(self, metric: str, *by: str) -> pl.DataFrame:
        """Return the mean of a metric over the seeds for each law and place.

        Other columns are averaged for each seed first.

        Parameters
        ----------
        metric : str
            Name of the metric.
        by : str
            Columns that define the place.

        Returns
        -------
        pl.DataFrame
            Columns law, those of `by`, mean, ci95 and seeds. ci95 is half the width of Student's t
            interval; NaN for one seed, and if all seeds give the same value.
        """
        return self.summary([metric], *by).drop(METRIC)

    def summary(self, metrics: Sequence[str], *by: str) -> pl.DataFrame:
        """Return the cells of several metrics.

        Parameters
        ----------
        metrics : Sequence[str]
            Names of the metrics.
        by : str
            Columns that define the place.

        Returns
        -------
        pl.DataFrame
            Columns metric, law, those of `by`, mean, ci95 and seeds.
        """
        keys = [METRIC, "law", *by]
        grouped = self._values(metrics, by).group_by(keys, maintain_order=True).agg(VALUE)
        counts = grouped[VALUE].list.len().cast(pl.Int64).to_numpy()
        values = grouped[VALUE].explode(empty_as_null=False).to_numpy()
        first = np.cumsum(counts) - counts
        mean, half_width = np.empty(len(counts)), np.empty(len(counts))
        # Groups of the same size are computed together: millions of runs have few sizes.
        for count in np.unique(counts):
            of_count = np.flatnonzero(counts == count)
            samples = values[first[of_count, np.newaxis] + np.arange(count)]
            mean[of_count], half_width[of_count] = statistics.means_and_intervals(samples)
        return grouped.select(
            *keys,
            pl.Series("mean", mean),
            pl.Series("ci95", half_width),
            pl.Series(f"{self.replicate}s", counts),
        )

    def cell_of(self, metrics: Sequence[str], *by: str) -> Mapping[tuple[Any, ...], Cell]:
        """Return each cell by its metric, law and place.

        Parameters
        ----------
        metrics : Sequence[str]
            Names of the metrics.
        by : str
            Columns that define the place.
        """
        rows = self.summary(metrics, *by).iter_rows()
        return {tuple(key): Cell(mean, half, seeds) for *key, mean, half, seeds in rows}

    def differences(self, metrics: Sequence[str], *by: str) -> list[LawDifference]:
        """Return the difference of every pair of laws in each metric at each place.

        Each is tested by a paired t-test over the common seeds. The p values of a metric are
        adjusted for the number of its tests, at all places together, by Holm's method.

        Parameters
        ----------
        metrics : Sequence[str]
            Names of the metrics.
        by : str
            Columns that define the place.

        Returns
        -------
        list[LawDifference]
            The differences; significant ones come first.
        """
        differences = []
        for metric in metrics:
            values = self.values(metric, *by)
            places: dict[tuple[Any, ...], pl.DataFrame] = {(): values}
            if by:
                places = values.partition_by(by, as_dict=True, maintain_order=True)
            compared = statistics.compare_at([self._by_law(at, metric) for at in places.values()])
            differences += [
                LawDifference(metric, place, pair)
                for place, pairs in zip(places, compared, strict=True)
                for pair in pairs
            ]
        # Sorting keeps the order of metrics, places and laws.
        return sorted(differences, key=lambda difference: difference.rank)

    def best(self, metric: str, *by: str, more: bool) -> pl.DataFrame:
        """Return the law with the best mean at each place.

        Parameters
        ----------
        metric : str
            Name of the metric.
        by : str
            Columns that define the place.
        more : bool
            True if more is better.

        Returns
        -------
        pl.DataFrame
            Columns those of `by`, law, mean, next (the second best), p (of the distance between the
            two) and ties (laws over which the lead is not significant at the 5 % level, see
            `statistics.best`). A law with one seed ties with all, with a p of 1.
        """
        values = self.values(metric, *by)
        places = values.partition_by(by, as_dict=True) if by else {(): values}
        rows = []
        for place, of_place in places.items():
            best = statistics.best(self._by_law(of_place, metric), more=more)
            if best is not None:
                second = next(iter(best.p), None)
                p = None if second is None else best.p[second]
                rows.append((*place, best.law, best.means[best.law], second, p, best.ties))
        schema: dict[str, Any] = {
            **{name: values.schema[name] for name in by},
            "law": pl.String,
            "mean": pl.Float64,
            "next": pl.String,
            "p": pl.Float64,
            "ties": pl.List(pl.String),
        }
        table = pl.DataFrame(rows, schema, orient="row")
        return table.sort(by) if by else table

    def best_of(
        self, metric: str, laws: Sequence[str] | None = None, *, more: bool
    ) -> statistics.Best | None:
        """Return the best law over the whole table, with the comparison with each other law.

        Parameters
        ----------
        metric : str
            Name of the metric.
        laws : Sequence[str], optional
            The laws to compare; all by default.
        more : bool
            True if more is better.

        Returns
        -------
        statistics.Best | None
            The best law; None if the metric has no value.
        """
        by_law = self._by_law(self.values(metric), metric)
        # The order of the table decides between equal means.
        chosen = {law: seeds for law, seeds in by_law.items() if laws is None or law in laws}
        return statistics.best(chosen, more=more)

    def _values(self, metrics: Sequence[str], by: Sequence[str]) -> pl.DataFrame:
        """Return several metrics for each law, place and seed in long form.

        They are averaged over the other columns.
        """
        keys = [METRIC, "law", *by, self.replicate]
        return (
            self.rows.select("law", *by, self.replicate, pl.col(metrics).cast(pl.Float64))
            .unpivot(metrics, index=keys[1:], variable_name=METRIC, value_name=VALUE)
            .filter(pl.col(VALUE).is_not_nan())
            # group_by(...).mean() adds partial sums of threads in an order that varies, so
            # its last bit differs from call to call; the mean of a list does not.
            .group_by(keys)
            .agg(VALUE)
            .with_columns(pl.col(VALUE).list.mean())
            .sort(keys)
            .collect()
        )

    def _by_law(self, values: pl.DataFrame, metric: str) -> dict[str, dict[Any, float]]:
        """Return the values of a metric by seed, for each law."""
        by_law: dict[str, dict[Any, float]] = {}
        for law, replicate, value in values.select("law", self.replicate, metric).iter_rows():
            by_law.setdefault(law, {})[replicate] = value
        return by_law


def to_pandas(frame: pl.DataFrame) -> pandas.DataFrame:
    """Return a frame as one of pandas, column by column, so that it needs no pyarrow.

    Labels such as the law become categories in their order.

    Raises
    ------
    ImportError
        If pandas is not installed.
    """
    import pandas

    def column(series: pl.Series) -> Any:
        if isinstance(series.dtype, pl.Enum):
            labels = series.dtype.categories.to_list()
            return pandas.Categorical(series.to_list(), categories=labels, ordered=True)
        if isinstance(series.dtype, pl.List):
            return series.to_list()
        return series.to_numpy()

    return pandas.DataFrame({series.name: column(series) for series in frame})
