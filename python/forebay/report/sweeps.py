"""Figures over all points of a result.

One axis of numbers gives curves, two axes give maps, and anything else gives dots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from forebay._base.metrics import METRICS
from forebay._base.registries import title_of
from forebay._base.statistics import LEVEL
from forebay.experiment import descriptions
from forebay.report.sheet import (
    Curve,
    Dots,
    DotSeries,
    FigureData,
    MapRow,
    Maps,
    Panel,
    Scale,
    Sheet,
    group_offset,
    interval_within,
)
from forebay.scenario.axes import Axis, sweep_axes

if TYPE_CHECKING:
    from forebay.experiment.result import Result


@dataclass(frozen=True)
class Overview:
    """A figure over all points.

    Attributes
    ----------
    metrics : tuple[str, ...]
        The metrics, one per row.
    title : str
        Title of the figure.
    text : str
        Text below the figure.
    """

    metrics: tuple[str, ...]
    title: str
    text: str


#: The figures by name.
OVERVIEWS = {
    "goodput": Overview(
        ("goodput_bps", "delay_p95_s"),
        "Goodput and delay",
        "Goodput, and the 95th percentile of the queuing delay;",
    ),
    "qacd": Overview(
        ("qacd_pkts",),
        "Distance from the set-point",
        "Quadratic average of control deviation (QACD): the root of the mean squared distance "
        "of the queue from the set-point. Less is better;",
    ),
    "load": Overview(
        ("drop_rate", "utilisation"),
        "Loss and utilisation",
        "Share of arriving packets that were dropped, and share of the link's capacity that was "
        "used;",
    ),
}
#: Ratio of maximum and minimum from which an axis is logarithmic.
DECADE = 8
#: Largest number of ticks that do not overlap.
MOST_TICKS = 16


def shows(result: Result, kind: str) -> bool:
    """Return True if there is anything to compare; a single dot would compare nothing.

    Parameters
    ----------
    result : Result
        The result.
    kind : str
        Name of the figure.
    """
    busy = [i for i, _ in result.points() if i not in result.experiment.idle]
    several = sum(len(list(result.laws(i))) for i in busy) > 1
    return several and (kind != "qacd" or "qacd_pkts" in result.compared())


def caption(result: Result, kind: str) -> tuple[str, str]:
    """Return the title and the caption of a figure.

    Parameters
    ----------
    result : Result
        The result.
    kind : str
        Name of the figure.
    """
    if result.seeds == 1:
        bars = "one seed gives no interval."
    elif len(_axes(result)) == 2:
        bars = f"means over {result.seeds} seeds."
    else:
        bars = (
            f"bars and bands are {100 * LEVEL:.0f} % confidence intervals of the mean over "
            f"{result.seeds} seeds (Student's t)."
        )
    overview = OVERVIEWS[kind]
    return overview.title, f"{overview.text} {bars}"


def sheet(result: Result, kind: str) -> Sheet | None:
    """Return curves over the axis of the sweep, one panel per metric.

    Parameters
    ----------
    result : Result
        The result.
    kind : str
        Name of the figure.

    Returns
    -------
    Sheet | None
        The figure; None unless the sweep has exactly one axis, of numbers.
    """
    swept = _axes(result)
    if len(swept) != 1 or not swept[0].numbers:
        return None
    axis = swept[0]
    order = sorted(axis.places, key=axis.places.__getitem__)
    name, unit = descriptions.axis(axis, next(point for _, point in result.points()))
    low, high = float(min(axis.numbers)), float(max(axis.numbers))
    every = math.ceil(len(axis.numbers) / MOST_TICKS)
    return Sheet(
        "sweep",
        Scale(
            name,
            unit,
            log=low > 0 and high > DECADE * low,
            range=(low, high),
            ticks=tuple(zip(axis.numbers[::every], axis.short[::every], strict=True)),
        ),
        Scale(""),
        [
            Panel(
                METRICS[metric].title,
                _curves(result, axis, order, metric),
                y=Scale(METRICS[metric].title, METRICS[metric].unit),
            )
            for metric in OVERVIEWS[kind].metrics
        ],
        dots=True,
    )


def content(result: Result, kind: str) -> FigureData:
    """Return curves, maps or dots, depending on the axes of the sweep.

    Parameters
    ----------
    result : Result
        The result.
    kind : str
        Name of the figure.
    """
    swept, metrics = _axes(result), OVERVIEWS[kind].metrics
    curves = sheet(result, kind)
    if curves is not None:
        return curves
    return _maps(result, metrics, *swept) if len(swept) == 2 else _dots(result, metrics)


def _axes(result: Result) -> list[Axis]:
    """Return the axes of the sweep."""
    return sweep_axes({i: point.settings for i, point in result.points()})


def _curves(result: Result, axis: Axis, order: Sequence[int], metric: str) -> list[Curve]:
    """Return the means of each law, in the band of their intervals."""
    x, scale = np.array([axis.numbers[axis.places[p]] for p in order]), METRICS[metric].scale
    curves = []
    for i, law in enumerate(map(title_of, result.plan.laws)):
        cells = [result.cell_at(p, i, metric) for p in order]
        mean = np.array([scale * cell.mean for cell in cells])
        half = np.array([scale * cell.half_width for cell in cells])
        tags = {"law": law}
        if not np.isnan(half).all():
            band = f"{law}, {100 * LEVEL:.0f} %"
            below, above = interval_within(mean, half, percent=METRICS[metric].unit == "%")
            low, high = mean - below, mean + above
            low[np.isnan(half)] = high[np.isnan(half)] = np.nan
            curves.append(Curve(band, tags, i, x, low=low, high=high))
        if not np.isnan(mean).all():
            curves.append(Curve(law, tags, i, x, mean))
    return curves


def _label(result: Result, axis: Axis) -> str:
    """Return the name and the unit of an axis."""
    return Scale(*descriptions.axis(axis, next(point for _, point in result.points()))).heading


def _maps(result: Result, metrics: Sequence[str], down: Axis, across: Axis) -> Maps:
    """Return a map for each law and metric over two axes, the second of which is horizontal."""
    laws, shape = result.plan.laws, (len(down.texts), len(across.texts))
    rows = []
    for name in metrics:
        values = np.full((len(laws), *shape), np.nan)
        for p, _ in result.points():
            for i, _ in result.laws(p):
                mean = result.cell_at(p, i, name).mean
                values[i, down.places[p], across.places[p]] = METRICS[name].scale * mean
        rows.append(MapRow(METRICS[name].heading, list(values)))
    titles, x, y = [title_of(law) for law in laws], _label(result, across), _label(result, down)
    return Maps(titles, rows, x, y, list(across.short), list(down.short))


def _dots(result: Result, metrics: Sequence[str]) -> Dots:
    """Return dots with intervals: points along the axis, laws next to each other at each point.

    With one point, the laws are along the axis.
    """
    points, laws = list(result.points()), list(map(title_of, result.plan.laws))
    rows = []
    for name in metrics:
        scale, series = METRICS[name].scale, []
        for i, label in enumerate(laws):
            places = [place for place, (p, _) in enumerate(points) if result.runs_of(p, i)]
            cells = [result.cell_at(points[place][0], i, name) for place in places]
            mean = [scale * cell.mean for cell in cells]
            at = [place + group_offset(i, len(laws)) for place in places]
            half = [scale * cell.half_width for cell in cells]
            bars = interval_within(mean, half, percent=METRICS[name].unit == "%")
            series.append(DotSeries(label, i, at, mean, bars))
        rows.append((METRICS[name].heading, series))
    if len(points) == 1:
        ticks = [(group_offset(i, len(laws)), law) for i, law in enumerate(laws)]
        return Dots(rows, 1, ticks, "")
    texts, axis = descriptions.points_axis([point for _, point in points])
    return Dots(rows, len(points), list(enumerate(texts)), axis)
