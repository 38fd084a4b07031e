"""Figures over all points of a result.

One axis of numbers gives curves, two axes give maps, and anything else gives dots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forebay._base.metrics import METRICS
from forebay._base.registries import title_of
from forebay._base.statistics import LEVEL
from forebay._base.words import in_figures
from forebay.experiment import descriptions
from forebay.report import parts
from forebay.report.plot import Plot, styled
from forebay.report.sheet import Curve, Panel, Scale, Sheet
from forebay.scenario.axes import Axis, sweep_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
#: Largest number of cells of a map whose numbers are written.
WRITTEN_CELLS = 64
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


def content(result: Result, kind: str) -> Sheet | Plot:
    """Return curves as a sheet, or maps or dots as a plot, depending on the axes of the sweep.

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
            below, above = parts.interval_within(mean, half, percent=METRICS[metric].unit == "%")
            low, high = mean - below, mean + above
            low[np.isnan(half)] = high[np.isnan(half)] = np.nan
            curves.append(Curve(band, tags, i, x, low=low, high=high))
        if not np.isnan(mean).all():
            curves.append(Curve(law, tags, i, x, mean))
    return curves


def _label(result: Result, axis: Axis) -> str:
    """Return the name and the unit of an axis."""
    return Scale(*descriptions.axis(axis, next(point for _, point in result.points()))).heading


@styled
def _maps(result: Result, metrics: Sequence[str], down: Axis, across: Axis) -> Plot:
    """Return a map for each law and metric over two axes, the second of which is horizontal.

    The colours of a metric have the same meaning for every law.
    """
    laws = result.plan.laws
    shape = (len(down.texts), len(across.texts))
    width = min(16.0, max(10.0, 1.4 + 2.9 * len(laws)))
    height = 0.9 + len(metrics) * max(2.0, 0.28 * shape[0] + 0.6)
    figure = Plot(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(metrics), len(laws), squeeze=False, sharex=True, sharey=True)
    for name, row in zip(metrics, grid, strict=True):
        metric = METRICS[name]
        values = np.full((len(laws), *shape), np.nan)
        for p, _ in result.points():
            for i, _ in result.laws(p):
                mean = result.cell_at(p, i, name).mean
                values[i, down.places[p], across.places[p]] = metric.scale * mean
        numbers = values[~np.isnan(values)]
        low, high = (numbers.min(), numbers.max()) if numbers.size else (0.0, 1.0)
        for i, panel in enumerate(row):
            image = panel.imshow(
                values[i],
                cmap="cividis",
                vmin=low,
                vmax=high if high > low else low + 1,
                origin="lower",
                aspect="auto",
            )
            panel.grid(visible=False)
            if values[i].size <= WRITTEN_CELLS:
                _write(panel, values[i], low, high)
            if name == metrics[0]:
                panel.set_title(title_of(laws[i]))
            panel.set_xticks(range(shape[1]), across.short, rotation=90 if shape[1] > 6 else 0)
            panel.set_yticks(range(shape[0]), down.short)
        figure.colorbar(image, ax=list(row), label=metric.heading)
        row[0].set_ylabel(_label(result, down))
    for panel in grid[-1]:
        panel.set_xlabel(_label(result, across))
    return figure


def _write(panel: Axes, values: NDArray[np.float64], low: float, high: float) -> None:
    """Write the numbers into the cells, light on dark and dark on light."""
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            colour = "white" if value < low + 0.55 * (high - low) else "black"
            text = panel.text(x, y, in_figures(value), ha="center", va="center", color=colour)
            text.set(fontsize=7, in_layout=False)


@styled
def _dots(result: Result, metrics: Sequence[str]) -> Plot:
    """Return dots with intervals: points along the axis, laws next to each other at each point.

    With one point, the laws are along the axis.
    """
    points = list(result.points())
    laws = list(map(title_of, result.plan.laws))
    width = min(16.0, max(10.0, 3.0 + 0.25 * len(points) * len(laws)))
    figure = Plot(figsize=(width, 0.7 + 2.4 * len(metrics)), layout="constrained")
    grid = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)
    for name, (axes,) in zip(metrics, grid, strict=True):
        scale, means = METRICS[name].scale, []
        for i, label in enumerate(laws):
            places = [place for place, (p, _) in enumerate(points) if result.runs_of(p, i)]
            cells = [result.cell_at(points[place][0], i, name) for place in places]
            mean = [scale * cell.mean for cell in cells]
            means += mean
            at = [place + parts.group_offset(i, len(laws)) for place in places]
            half = [scale * cell.half_width for cell in cells]
            yerr = parts.interval_within(mean, half, percent=METRICS[name].unit == "%")
            parts.dots(axes, at, mean, i, label, yerr=yerr)
        axes.set_ylabel(METRICS[name].heading)
        parts.telling_scale(axes, means)
        for place in range(1, len(points)):
            axes.axvline(place - 0.5, color="#e4e4e4", linewidth=0.8)
        axes.grid(axis="x", visible=False)
        axes.set_xlim(-0.5, len(points) - 0.5)
    bottom = grid[-1][0]
    if len(points) == 1:
        at = [parts.group_offset(i, len(laws)) for i in range(len(laws))]
        _ticks(bottom, at, laws, 0.8 * width)
        return figure
    ticks, label = descriptions.points_axis([point for _, point in points])
    _ticks(bottom, range(len(points)), ticks, width)
    bottom.set_xlabel(label)
    parts.legend_beside(grid[0][0])
    return figure


def _ticks(axes: Axes, at: Sequence[float], texts: list[str], width: float) -> None:
    """Label the axis with texts, which are slanted if they do not fit into `width` inches."""
    axes.set_xticks(at, texts)
    if sum(max(map(len, text.split("\n"))) + 2 for text in texts) > 11 * width:
        axes.tick_params(axis="x", labelrotation=45)
        for text in axes.get_xticklabels():
            text.set(horizontalalignment="right", rotation_mode="anchor")
