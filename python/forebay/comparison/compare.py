"""Comparisons of two sets of runs: independent runs with tolerances, and saved results in pairs.

`agreements` compares the runs of one side with those of a reference, metric by metric, with Welch's
interval of the difference. Engines, real Linux and ns-2 are compared in this way. `compare` pairs
the runs of two saved results by point and seed, and tests each difference.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import mean as exact_mean
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from forebay._base import quantities, statistics
from forebay._base.metrics import COMPARED, check_metrics
from forebay._base.statistics import LEVEL
from forebay._base.words import check_choice
from forebay._native import ScenarioError
from forebay.comparison.saved_runs import SavedResult, read_result
from forebay.experiment.table import Cell

if TYPE_CHECKING:
    from forebay.report.plot import Plot


#: Figures of a comparison of two results.
ComparisonPicture = Literal["differences"]


@dataclass(frozen=True)
class Tolerance:
    """Largest difference of a metric at which two sets of runs agree.

    The limit is the widest of: `share` of the reference's mean plus `absolute`; `least`; `spreads`
    times the standard deviation over the runs, of the side where it is larger; and half of Welch's
    interval of `level`.

    Attributes
    ----------
    metric : str
        A column of the runs, or several to be added, such as "drop_rate+mark_rate".
    title : str
        The metric with its unit, as tables head it.
    scale, digits
        From the column's unit to the title's, and decimals in a table.
    predicts : bool
        True to judge a reference of one run by the prediction interval of the tested side;
        otherwise the interval of a single run is unknown.
    """

    metric: str
    title: str
    share: float = 0.0
    absolute: float = 0.0
    least: float = 0.0
    spreads: float = 0.0
    level: float | None = None
    scale: float = 1.0
    digits: int = 1
    predicts: bool = False

    def values(self, runs: pl.DataFrame) -> list[float]:
        """Return the metric of each run."""
        return runs.select(pl.sum_horizontal(self.metric.split("+"))).to_series().to_list()

    def text(self, value: float) -> str:
        """Return a value in the title's unit."""
        return f"{self.scale * value:.{self.digits}f}"

    def mean_and_deviation(self, values: Sequence[float]) -> str:
        """Return the mean ± the standard deviation over the runs."""
        return f"{self.text(exact_mean(values))} ± {self.text(float(np.std(values, ddof=1)))}"


@dataclass(frozen=True)
class Agreement:
    """A metric of two sets of independent runs, and whether their means agree.

    Attributes
    ----------
    tested, reference : sequence of float
        The metric in each run; NaN values are left out.
    cell : mapping
        What was run, by the columns that both sides share.
    """

    tolerance: Tolerance
    tested: Sequence[float]
    reference: Sequence[float]
    cell: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def reference_mean(self) -> float:
        """Mean of the reference over its seeds."""
        return statistics.mean_and_interval(self.reference)[0]

    @cached_property
    def tested_mean(self) -> float:
        """Mean of the tested side over its seeds."""
        return statistics.mean_and_interval(self.tested)[0]

    @property
    def difference(self) -> float:
        """Mean of the tested runs less that of the reference."""
        return self._welch(LEVEL)[0]

    @cached_property
    def half_width(self) -> float:
        """Half of the 95 % interval of the difference.

        NaN if either side has one run, or if the runs of each side are all alike. Zero if several
        runs of both sides are all zero, such as without any drop.
        """
        if len(self.reference) == 1 and self.tolerance.predicts:
            return prediction_half_width(self.tested)
        if min(len(self.tested), len(self.reference)) > 1 and not any(
            [*self.tested, *self.reference]
        ):
            return 0.0
        return self._welch(LEVEL)[1]

    @cached_property
    def limit(self) -> float:
        """The largest difference that agrees."""
        rule = self.tolerance
        widths = [rule.share * abs(self.reference_mean) + rule.absolute, rule.least]
        if rule.spreads:
            sides = (self.tested, self.reference)
            widths.append(rule.spreads * max(float(np.std(side, ddof=1)) for side in sides))
        if rule.level is not None:
            # There is no interval if all runs of each side are alike.
            half_width = self._welch(rule.level)[1]
            widths.append(0.0 if math.isnan(half_width) else half_width)
        return max(widths)

    @property
    def agrees(self) -> bool:
        """True if the means are within the limit of each other."""
        return abs(self.difference) <= self.limit

    @property
    def proven(self) -> bool:
        """True if the whole interval is outside the limit, so chance is excluded."""
        return abs(self.difference) - self.half_width > self.limit

    @property
    def sure(self) -> bool:
        """True if the whole interval is on one side of the limit."""
        return self.proven or abs(self.difference) + self.half_width <= self.limit

    @property
    def includes_zero(self) -> bool:
        """True if the interval includes zero, so the difference may be chance."""
        return abs(self.difference) <= self.half_width

    @property
    def excess(self) -> float:
        """The difference as a multiple of the limit."""
        return abs(self.difference) / self.limit

    @property
    def text(self) -> str:
        """The means as "reference → tested"."""
        sides = (self.reference, self.tested)
        return " → ".join(self.tolerance.text(exact_mean(values)) for values in sides)

    def _welch(self, level: float) -> tuple[float, float]:
        return statistics.difference_and_interval(self.tested, self.reference, level)


def agreements(
    tested: pl.DataFrame,
    reference: pl.DataFrame,
    on: Sequence[str],
    tolerances: Sequence[Tolerance],
) -> list[Agreement]:
    """Return the agreement of each metric in each cell that both tables of runs have.

    Parameters
    ----------
    tested, reference : DataFrame
        A row for each run.
    on : sequence of str
        Columns that identify a cell; seeds within a cell are independent runs.
    tolerances : sequence of Tolerance
        The compared metrics. A metric that a run of the reference lacks (NaN) is left out of its
        cell.

    Returns
    -------
    list of Agreement
        In the order of the reference's cells, and of `tolerances` within a cell.
    """
    cells = tested.partition_by(on, as_dict=True)
    return [
        Agreement(tolerance, tolerance.values(cells[key]), values, dict(zip(on, key, strict=True)))
        for key, runs in reference.partition_by(on, as_dict=True, maintain_order=True).items()
        if key in cells
        for tolerance in tolerances
        for values in [tolerance.values(runs)]
        if not any(map(math.isnan, values))
    ]


def prediction_half_width(values: Sequence[float], further: int = 1) -> float:
    """Return half of the 95 % prediction interval of the mean of further runs.

    Parameters
    ----------
    values : sequence of float
        A metric in each run.
    further : int
        Number of further runs.

    Returns
    -------
    float
        Half of the interval; infinite for a single value, whose variance is unknown.
    """
    count = len(values)
    if count < 2:
        return math.inf
    deviation = float(np.std(values, ddof=1)) * math.sqrt(1 / further + 1 / count)
    return statistics.student_quantile(count - 1) * deviation


#: Names of the two results in rows and on pages.
SIDES = ("A", "B")
#: Fields of a difference that JSON has unchanged.
PLAIN = ("metric", "laws", "point", "seeds", "unpaired", "difference", "p", "alike")
#: Name of all points together.
EVERYWHERE = "all points"


@dataclass(frozen=True)
class MetricDifference:
    """A metric of one law at one point, or over all of them, in both results.

    Attributes
    ----------
    laws : tuple of str
        The laws in A and in B.
    a, b : Cell
        Means over the runs that have a partner with the same point and seed in the other result;
        over all runs if none has a partner.
    seeds : int
        Seeds that both have.
    unpaired : tuple of int
        Numbers of runs of A and of B that have no partner, and are left out.
    difference : float
        Mean of B less that of A, over the pairs.
    half_width : float
        Half of its 95 % interval; NaN for fewer than two common seeds, and if every seed gives the
        same difference.
    p : float
        P value of a paired t-test, adjusted for the number of laws and points at which the metric
        is compared; NaN without an interval.
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
        """True if the difference is significant at the level of the intervals."""
        return self.p < 1 - LEVEL

    @property
    def alike(self) -> bool:
        """True if several seeds all give exactly this difference, so there is no test."""
        return self.seeds > 1 and math.isnan(self.p)

    def to_dict(self) -> dict[str, Any]:
        """Return the difference for JSON, with the means of both results."""
        plain = {name: getattr(self, name) for name in PLAIN}
        return {**plain, "a": self.a.mean, "b": self.b.mean, "ci95": self.half_width}

    @property
    def share(self) -> float:
        """The difference as a share of A; NaN where A is zero."""
        return self.difference / abs(self.a.mean) if self.a.mean else math.nan


@dataclass(frozen=True)
class ResultComparison:
    """The differences between two saved results; a notebook and `print` show a table.

    Attributes
    ----------
    a, b : SavedResult
        The results.
    metrics : sequence of str
        The compared metrics.
    laws, points : sequence of (str, str)
        Matched names in A and in B.
    """

    a: SavedResult
    b: SavedResult
    metrics: Sequence[str]
    laws: Sequence[tuple[str, str]]
    points: Sequence[tuple[str, str]]

    @property
    def apart(self) -> bool:
        """True if the points are the directions of a link."""
        return self.a.apart and len(self.points) > 1

    @cached_property
    def differences(self) -> list[MetricDifference]:
        """The differences of each metric and law, over all points or for each direction."""
        return self.at_points if self.apart else self._differences()

    @property
    def averaged(self) -> bool:
        """True if `differences` are means over several points."""
        return len(self.points) > 1 and not self.apart

    @cached_property
    def at_points(self) -> list[MetricDifference]:
        """The differences of each metric and law at each point."""
        return self._differences(["point"]) if len(self.points) > 1 else self._differences()

    def frame(self) -> pl.DataFrame:
        """Return a table with a row for each difference of `differences`."""
        return pl.DataFrame([difference.to_dict() for difference in self.differences])

    def plot(self, kind: ComparisonPicture = "differences") -> Plot:
        """Draw each difference as a share of A, with its 95 % interval.

        Parameters
        ----------
        kind : {"differences"}, optional
            The figure.

        Raises
        ------
        ParameterError
            If there is no such figure.
        """
        from forebay.comparison import comparison_page as page

        check_choice("kind", kind, get_args(ComparisonPicture))
        return page.differences(self)

    def report(self, out: str | os.PathLike[str]) -> Path:
        """Write compare.html and compare.json to the folder `out`, and return the page."""
        from forebay.comparison import comparison_page as page

        return page.write(self, out)

    def __str__(self) -> str:
        """Return the table that `forebay compare` prints."""
        from forebay._base.terminal_table import printed
        from forebay.comparison import comparison_page as page

        return printed(lambda screen: page.show(screen, self))

    def _repr_html_(self) -> str:
        from forebay.comparison import comparison_page as page
        from forebay.report import notebook

        table = page.table(self.differences)
        return notebook.html("A compared with B", table.heads, table.rows, self.plot())

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        document: dict[str, Any] = {
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
        document["differences"] = [quantities.finite(line.to_dict()) for line in lines]
        return document

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
            # A metric that is zero everywhere, such as marks without ECN, is left out.
            if any(line.a.mean or line.b.mean for line in of_metric):
                lines += _adjusted(of_metric)
        return lines

    @property
    def _everywhere(self) -> str:
        """The name of all points together, or the label of the only point."""
        return EVERYWHERE if len(self.points) > 1 else self._label(self.points[0])

    def _label(self, pair: tuple[str, str]) -> str:
        return self.a.labels.get(pair[0]) or pair[0]

    def _rows(self, side: int) -> pl.DataFrame:
        """Return the runs of a side at the points of both, by the labels of A's."""
        labels = {pair[side]: self._label(pair) for pair in self.points}
        rows = (self.a, self.b)[side].rows.filter(pl.col("point").is_in(list(labels)))
        return rows.with_columns(pl.col("point").replace_strict(labels))


def _runs(rows: pl.DataFrame, metric: str, law: str, place: str | None) -> pl.DataFrame:
    """Return point, seed and value of the runs of a law, at one point or at all of them."""
    at = pl.lit(value=True) if place is None else pl.col("point") == place
    runs = rows.filter(pl.col("law") == law, at).select(
        "point", "seed", pl.col(metric).cast(pl.Float64).alias("value")
    )
    return runs.filter(pl.col("value").is_not_null(), pl.col("value").is_not_nan())


def _adjusted(lines: list[MetricDifference]) -> list[MetricDifference]:
    """Return the differences of a metric with adjusted p values (Holm's method)."""
    adjusted = iter(statistics.holm([line.p for line in lines if line.p == line.p]))
    return [replace(line, p=next(adjusted)) if line.p == line.p else line for line in lines]


def _difference(
    metric: str, laws: tuple[str, str], point: str, a: pl.DataFrame, b: pl.DataFrame
) -> MetricDifference:
    """Return the difference of a metric over the runs with a partner of the same point and seed."""
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
    """Return the mean over the points for each seed, in the order of the seeds."""
    means = runs.sort("seed", "point").group_by("seed", maintain_order=True).agg(column)
    return np.array([np.mean(values) for values in means[column].to_list()])


def _cell(values: NDArray[np.float64]) -> Cell:
    return Cell(*statistics.mean_and_interval(values), len(values))


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *, metrics: str | Sequence[str] = ()
) -> ResultComparison:
    """Test the differences between two saved results.

    Laws and points are matched by their labels; the only law or point of each result matches the
    other. One seed gives both results the same flows and start times, so a paired t-test over
    the common seeds tests each difference. Holm's method adjusts the p values of each metric for
    their number.

    Parameters
    ----------
    a, b : path
        Folders that `forebay run` or `forebay study` has written, or data files of flent, or a
        folder of them.
    metrics : str or sequence of str
        Names of metrics; the usual ones by default.

    Returns
    -------
    ResultComparison
        The comparison.

    Raises
    ------
    ScenarioError
        If a result cannot be read, or if the results have no law or point in common.
    """
    metrics = quantities.listed(metrics)
    check_metrics(metrics)
    first, second = read_result(a), read_result(b)
    return ResultComparison(
        first,
        second,
        metrics or COMPARED,
        _matched("law", first, second, first.laws, second.laws),
        _matched("point", first, second, first.points, second.points),
    )


def _matched(
    kind: str, a: SavedResult, b: SavedResult, of_a: list[str], of_b: list[str]
) -> list[tuple[str, str]]:
    """Return the names that both results have, or the only name of each. Raises `ScenarioError`."""
    if common := [name for name in of_a if name in of_b]:
        return [(name, name) for name in common]
    if len(of_a) == len(of_b) == 1:
        return [(of_a[0], of_b[0])]
    raise ScenarioError(
        f"compare: the results have no {kind} in common: {a.folder} has {_first(of_a)}, {b.folder} "
        f"has {_first(of_b)}"
    )


def _first(names: list[str]) -> str:
    """Return the first name and the number of others: a name is as long as a sweep has axes."""
    first = f'"{names[0]}"' if names and names[0] else "one without a name"
    return f"{first} and {len(names) - 1} more" if len(names) > 1 else first
