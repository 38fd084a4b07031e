"""What two saved results differ in, and whether that may be chance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from forebay.base import quantities, statistics
from forebay.base.statistics import LEVEL
from forebay.comparisons.saved_result import SavedResult
from forebay.runs.table import EMPTY, Cell, RunTable

#: The results, as rows and pages call them.
SIDES = ("A", "B")
#: Of a difference, what JSON has as it is.
PLAIN = ("metric", "laws", "point", "seeds", "difference", "p")
#: Of all points together.
EVERYWHERE = "all points"


@dataclass(frozen=True)
class MetricDifference:
    """A metric of one law at one point, or over all of them, in both results.

    laws: in A and in B. difference: mean of B less that of A, over the seeds that both have; half
    of its interval of 95 %, and the p of a paired t-test, adjusted for the laws and points that the
    metric is compared at; NaN where fewer than two seeds are common.
    """

    metric: str
    laws: tuple[str, str]
    point: str
    a: Cell
    b: Cell
    seeds: int
    difference: float
    half_width: float
    p: float

    @property
    def significant(self) -> bool:
        return self.p < 1 - LEVEL

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
        """Over all points, or at each of them."""
        tables = [self._table(side) for side in (0, 1)]
        cells = [table.cell_of(self.metrics, *by) for table in tables]
        places = [(self._label(pair),) for pair in self.points] if by else [()]
        lines = []
        for metric in self.metrics:
            of_metric = []
            seeds = [_by_seed(table.values(metric, *by)) for table in tables]
            for laws, place in itertools.product(self.laws, places):
                a, b = (
                    (of.get((metric, law, *place), EMPTY), found.get((law, *place), {}))
                    for of, found, law in zip(cells, seeds, laws, strict=True)
                )
                if a[0].seeds and b[0].seeds:
                    point = place[0] if place else self._everywhere
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

    def _table(self, side: int) -> RunTable:
        """The runs of a side at the points of both, by the labels of A's."""
        labels = {pair[side]: self._label(pair) for pair in self.points}
        rows = (self.a, self.b)[side].rows.filter(pl.col("point").is_in(list(labels)))
        return RunTable(rows.with_columns(pl.col("point").replace_strict(labels)))


def _by_seed(values: pl.DataFrame) -> dict[tuple[Any, ...], dict[int, float]]:
    """A metric by law and place, and then by seed."""
    found: dict[tuple[Any, ...], dict[int, float]] = {}
    for *place, seed, value in values.iter_rows():
        found.setdefault(tuple(place), {})[seed] = value
    return found


def _adjusted(lines: list[MetricDifference]) -> list[MetricDifference]:
    """With p values that count how many there are of this metric."""
    adjusted = iter(statistics.holm([line.p for line in lines if line.p == line.p]))
    return [replace(line, p=next(adjusted)) if line.p == line.p else line for line in lines]


def _difference(
    metric: str,
    laws: tuple[str, str],
    point: str,
    a: tuple[Cell, dict[int, float]],
    b: tuple[Cell, dict[int, float]],
) -> MetricDifference:
    changes = [b[1][seed] - a[1][seed] for seed in a[1] if seed in b[1]]
    mean, half_width = statistics.mean_and_interval(changes)
    tested = statistics.compare({"b": b[1], "a": a[1]})
    p = tested[0].p if tested else math.nan
    return MetricDifference(metric, laws, point, a[0], b[0], len(changes), mean, half_width, p)
