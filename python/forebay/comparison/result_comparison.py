"""What two saved results differ in, and whether that may be chance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forebay._base import quantities, statistics
from forebay._base.statistics import LEVEL
from forebay.comparison.saved_result import SavedResult
from forebay.experiment.table import Cell

#: The results, as rows and pages call them.
SIDES = ("A", "B")
#: Of a difference, what JSON has as it is.
PLAIN = ("metric", "laws", "point", "seeds", "unpaired", "difference", "p", "alike")
#: Of all points together.
EVERYWHERE = "all points"


@dataclass(frozen=True)
class MetricDifference:
    """A metric of one law at one point, or over all of them, in both results.

    Attributes
    ----------
    laws : tuple of str
        The laws in A and in B.
    a, b : Cell
        Means over the runs that have a partner of the same point and seed on the other side; over
        all runs where none has one.
    seeds : int
        Seeds that both have.
    unpaired : tuple of int
        Runs of A and of B that have no partner, and are left out.
    difference : float
        Mean of B less that of A, over the pairs.
    half_width : float
        Half of its interval of 95 %; NaN for fewer than two common seeds, and where every seed
        gives the same difference.
    p : float
        Of a paired t-test, adjusted for the laws and points that the metric is compared at; NaN
        where there is no interval.
    """

    metric: str
    laws: tuple[str, str]
    point: str
    a: Cell
    b: Cell
    seeds: int
    unpaired: tuple[int, int]
    difference: float
    half_width: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < 1 - LEVEL

    @property
    def alike(self) -> bool:
        """True if several seeds all give this very difference, so that there is no test."""
        return self.seeds > 1 and math.isnan(self.p)

    def to_dict(self) -> dict[str, Any]:
        """It for JSON, with the means of both."""
        plain = {name: getattr(self, name) for name in PLAIN}
        return {**plain, "a": self.a.mean, "b": self.b.mean, "ci95": self.half_width}

    @property
    def share(self) -> float:
        """The difference as a share of A; NaN where A is zero."""
        return self.difference / abs(self.a.mean) if self.a.mean else math.nan


@dataclass(frozen=True)
class ResultComparison:
    """What two results differ in.

    laws, points: of A and of B, those that belong together.
    """

    a: SavedResult
    b: SavedResult
    metrics: Sequence[str]
    laws: Sequence[tuple[str, str]]
    points: Sequence[tuple[str, str]]

    @property
    def apart(self) -> bool:
        """Whether the points are the directions of a link."""
        return self.a.apart and len(self.points) > 1

    @cached_property
    def differences(self) -> list[MetricDifference]:
        """Over all points together, each metric of each law; of a link at each direction."""
        return self.at_points if self.apart else self._differences()

    @property
    def averaged(self) -> bool:
        """Whether `differences` are means over several points."""
        return len(self.points) > 1 and not self.apart

    @cached_property
    def at_points(self) -> list[MetricDifference]:
        """At each point; the same as `differences` where there is one."""
        return self._differences(["point"]) if len(self.points) > 1 else self._differences()

    def to_dict(self) -> dict[str, Any]:
        """All of it for JSON."""
        told: dict[str, Any] = {
            side: {
                "folder": str(result.folder),
                "title": result.title,
                "command": result.command,
                "forebay": result.version,
                "engine": result.engine,
                "remarks": list(result.remarks),
            }
            for side, result in zip(SIDES, (self.a, self.b), strict=True)
        }
        lines = [*self.differences, *(self.at_points if self.averaged else [])]
        told["differences"] = [quantities.finite(line.to_dict()) for line in lines]
        return told

    def _differences(self, by: Sequence[str] = ()) -> list[MetricDifference]:
        """Return the differences over all points, or at each of them."""
        sides = [self._rows(side) for side in (0, 1)]
        places: list[str | None] = [self._label(pair) for pair in self.points] if by else [None]
        lines = []
        for metric in self.metrics:
            of_metric = []
            for laws, place in itertools.product(self.laws, places):
                a, b = (_runs(sides[i], metric, laws[i], place) for i in (0, 1))
                if not (a.is_empty() or b.is_empty()):
                    point = self._everywhere if place is None else place
                    of_metric.append(_difference(metric, laws, point, a, b))
            # A metric that is nowhere more than nothing, as marks without ECN, says nothing.
            if any(line.a.mean or line.b.mean for line in of_metric):
                lines += _adjusted(of_metric)
        return lines

    @property
    def _everywhere(self) -> str:
        """What all points together are called; the only one by its own label."""
        return EVERYWHERE if len(self.points) > 1 else self._label(self.points[0])

    def _label(self, pair: tuple[str, str]) -> str:
        return self.a.labels.get(pair[0]) or pair[0]

    def _rows(self, side: int) -> pl.DataFrame:
        """Return the runs of a side at the points of both, by the labels of A's."""
        labels = {pair[side]: self._label(pair) for pair in self.points}
        rows = (self.a, self.b)[side].rows.filter(pl.col("point").is_in(list(labels)))
        return rows.with_columns(pl.col("point").replace_strict(labels))


def _runs(rows: pl.DataFrame, metric: str, law: str, place: str | None) -> pl.DataFrame:
    """Return the runs of a law, at one point or at all, that have a value: point, seed, value."""
    at = pl.lit(value=True) if place is None else pl.col("point") == place
    runs = rows.filter(pl.col("law") == law, at).select(
        "point", "seed", pl.col(metric).cast(pl.Float64).alias("value")
    )
    return runs.filter(pl.col("value").is_not_null(), pl.col("value").is_not_nan())


def _adjusted(lines: list[MetricDifference]) -> list[MetricDifference]:
    """With p values that count how many there are of this metric."""
    adjusted = iter(statistics.holm([line.p for line in lines if line.p == line.p]))
    return [replace(line, p=next(adjusted)) if line.p == line.p else line for line in lines]


def _difference(
    metric: str,
    laws: tuple[str, str],
    point: str,
    a: pl.DataFrame,
    b: pl.DataFrame,
) -> MetricDifference:
    """Return the difference over the runs that have a partner of the same point and seed."""
    pairs = a.join(b, on=["point", "seed"], suffix="_b", maintain_order="left")
    unpaired = (a.height - pairs.height, b.height - pairs.height)
    if pairs.is_empty():
        cells = [_cell(_by_seed(side, "value")) for side in (a, b)]
        nothing = (0, unpaired, math.nan, math.nan, math.nan)
        return MetricDifference(metric, laws, point, cells[0], cells[1], *nothing)
    of_a, of_b = (_by_seed(pairs, column) for column in ("value", "value_b"))
    changes = of_b - of_a
    mean, half_width = statistics.mean_and_interval(changes)
    p = statistics.paired_p(changes)
    numbers = (len(changes), unpaired, mean, half_width, p)
    return MetricDifference(metric, laws, point, _cell(of_a), _cell(of_b), *numbers)


def _by_seed(runs: pl.DataFrame, column: str) -> NDArray[np.float64]:
    """Return the values in the order of the seeds, each the mean over its points."""
    means = runs.sort("seed", "point").group_by("seed", maintain_order=True).agg(column)
    return np.array([np.mean(values) for values in means[column].to_list()])


def _cell(values: NDArray[np.float64]) -> Cell:
    return Cell(*statistics.mean_and_interval(values), len(values))
