"""Any set of runs as one table: means with their intervals, and which law is best where."""

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

#: Columns of what several metrics together are: which one, and its number.
METRIC, VALUE = "metric", "value"


@dataclass(frozen=True)
class Cell:
    """A metric of one law at one place, over its seeds."""

    mean: float
    #: Half the width of the 95 % confidence interval; NaN for one seed, and where all seeds give
    #: the same value.
    half_width: float
    #: how many have a value
    seeds: int

    @property
    def alike(self) -> bool:
        """True if several seeds all gave this very value, so that there is no interval."""
        return self.seeds > 1 and math.isnan(self.half_width)


#: Where nothing has a value.
EMPTY = Cell(math.nan, math.nan, 0)


@dataclass(frozen=True)
class LawDifference:
    """The difference of two laws in a metric at one place; `place` is empty for all together."""

    metric: str
    place: tuple[Any, ...]
    pair: statistics.PairedDifference

    @property
    def rank(self) -> int:
        """The sort key: 0 beyond chance, 1 where it may be chance, 2 without a test."""
        return 0 if self.pair.significant else 1 if self.pair.tested else 2


class RunTable:
    """Runs as rows: their `law`, their seed, where they ran in any columns, and their metrics.

    rows: an Enum as `law` sorts the laws. replicate: the column over which means have intervals,
    and whose values pair the laws. A metric that is null or NaN does not apply to the run.
    """

    def __init__(self, rows: pl.DataFrame | pl.LazyFrame, *, replicate: str = "seed") -> None:
        self.rows, self.replicate = rows.lazy(), replicate

    def values(self, metric: str, *by: str) -> pl.DataFrame:
        """A metric for each seed, averaged over what is not named: law, those columns, seed, and
        the metric; in this order."""
        return self._values([metric], by).drop(METRIC).rename({VALUE: metric})

    def cells(self, metric: str, *by: str) -> pl.DataFrame:
        """Means of a metric over the seeds: law, the columns named, mean, ci95 and seeds.

        Over other columns it is averaged for each seed; ci95 is half the width of Student's t
        interval over these averages, NaN for one seed and where all seeds give the same value.
        """
        return self.summary([metric], *by).drop(METRIC)

    def summary(self, metrics: Sequence[str], *by: str) -> pl.DataFrame:
        """The cells of several metrics: metric, law, the columns named, mean, ci95 and seeds."""
        keys = [METRIC, "law", *by]
        grouped = self._values(metrics, by).group_by(keys, maintain_order=True).agg(VALUE)
        counts = grouped[VALUE].list.len().cast(pl.Int64).to_numpy()
        values = grouped[VALUE].explode(empty_as_null=False).to_numpy()
        first = np.cumsum(counts) - counts
        mean, half_width = np.empty(len(counts)), np.empty(len(counts))
        # Together those of one size, as millions of runs have few sizes.
        for count in np.unique(counts):
            which = np.flatnonzero(counts == count)
            samples = values[first[which, np.newaxis] + np.arange(count)]
            mean[which], half_width[which] = statistics.means_and_intervals(samples)
        return grouped.select(
            *keys,
            pl.Series("mean", mean),
            pl.Series("ci95", half_width),
            pl.Series(f"{self.replicate}s", counts),
        )

    def cell_of(self, metrics: Sequence[str], *by: str) -> Mapping[tuple[Any, ...], Cell]:
        """Each cell by its metric, its law and what is in the columns named."""
        rows = self.summary(metrics, *by).iter_rows()
        return {tuple(key): Cell(mean, half, seeds) for *key, mean, half, seeds in rows}

    def differences(self, metrics: Sequence[str], *by: str) -> list[LawDifference]:
        """Return the difference of every pair of laws in each metric, at each place of the columns
        named; those beyond chance come first.

        Each is tested by a paired t-test over the common seeds. The p values of a metric are
        adjusted for the number of its tests, at all places together, by Holm's method.
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
        """The law with the best mean at each place: the columns named, law, mean, next, p and ties.

        more: whether more is better. next: the second best, with the p of its distance. ties: laws
        over which the lead may be chance, at 95 %; `forebay._base.statistics.best` says how it is
        tested. A law with one seed ties with all, with a p of 1.
        """
        values = self.values(metric, *by)
        places = values.partition_by(by, as_dict=True) if by else {(): values}
        rows = []
        for place, of_place in places.items():
            found = statistics.best(self._by_law(of_place, metric), more=more)
            if found is not None:
                second = next(iter(found.p), None)
                p = None if second is None else found.p[second]
                rows.append((*place, found.law, found.means[found.law], second, p, found.ties))
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
        """The best of some laws over the whole table, with all that is known of the others; None
        where the metric has no value."""
        by_law = self._by_law(self.values(metric), metric)
        # In the table's order, which decides between equal means.
        chosen = {law: seeds for law, seeds in by_law.items() if laws is None or law in laws}
        return statistics.best(chosen, more=more)

    def _values(self, metrics: Sequence[str], by: Sequence[str]) -> pl.DataFrame:
        keys = [METRIC, "law", *by, self.replicate]
        return (
            self.rows.select("law", *by, self.replicate, pl.col(metrics).cast(pl.Float64))
            .unpivot(metrics, index=keys[1:], variable_name=METRIC, value_name=VALUE)
            .filter(pl.col(VALUE).is_not_nan())
            # A mean of a group itself adds up what threads have summed, as it falls to them: its
            # last bit differs from call to call.
            .group_by(keys)
            .agg(VALUE)
            .with_columns(pl.col(VALUE).list.mean())
            .sort(keys)
            .collect()
        )

    def _by_law(self, values: pl.DataFrame, metric: str) -> dict[str, dict[Any, float]]:
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
