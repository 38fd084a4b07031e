"""Figures over all points of a result: curves over one axis of the sweep, maps over two, and
dots where the axes are no numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import FuncFormatter, LogLocator
from numpy.typing import NDArray

from forebay.report import plots, style, words
from forebay.run.axes import Axis, sweep_axes
from forebay.run.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.run.runs import Runs

#: Metrics of each figure, by its name.
OVERVIEWS: dict[str, list[str]] = {
    "goodput": ["goodput_bps", "delay_p95_s"],
    "qacd": ["qacd_pkts"],
    "load": ["drop_rate", "utilisation"],
}
#: Cells that a map has room to write its numbers into.
WRITTEN_CELLS = 64
#: A logarithmic axis shows values that are this far apart.
DECADE = 8


def draw(result: Runs, kind: str, point: int = 0, link: int = 0) -> plots.Plot:
    """Draws one figure of `plots.KINDS` or `OVERVIEWS`; the former take indices of point and
    link."""
    with mpl.rc_context(plots.STYLE):
        if kind in plots.KINDS:
            return plots.KINDS[kind](result, point, link)
        return _overview(result, OVERVIEWS[kind])


def _overview(result: Runs, names: Sequence[str]) -> plots.Plot:
    swept = sweep_axes({i: point.settings for i, point in result.points()})
    if len(swept) == 1 and swept[0].numbers:
        return _curves(result, names, swept[0])
    if len(swept) == 2:
        return _maps(result, names, swept)
    return _dots(result, names)


def _curves(result: Runs, names: Sequence[str], axis: Axis) -> plots.Plot:
    """A curve for each law against a number, with 95 % intervals; a row for each metric."""
    figure = plots.Plot(figsize=(10, 0.7 + 2.6 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    order = sorted(axis.places, key=axis.places.__getitem__)
    for name, (panel,) in zip(names, grid, strict=True):
        metric = METRICS[name]
        all_means: list[float] = []
        for i, label in enumerate(result.plan.laws):
            points = [p for p in order if result.of(p, i)]
            x = np.array([axis.numbers[axis.places[p]] for p in points])
            cells = [result.cell(p, i, name) for p in points]
            mean = np.array([metric.scale * cell.mean for cell in cells])
            half = np.array([metric.scale * cell.half_width for cell in cells])
            all_means += mean.tolist()
            if np.isnan(mean).all():
                continue
            panel.plot(
                x,
                mean,
                color=plots.colour(i),
                linestyle=style.dash(i),
                marker=style.MARKERS[(i + plots.round_of(i)) % len(style.MARKERS)],
                markersize=4,
                linewidth=1.2,
                label=label,
            )
            panel.fill_between(
                x, mean - half, mean + half, color=plots.colour(i), alpha=0.2, linewidth=0
            )
        panel.set_ylabel(metric.heading)
        _scale(panel, all_means)
    bottom = grid[-1][0]
    bottom.set_xlabel(_label(result, axis))
    _number_axis(bottom, axis)
    plots.legend_beside(grid[0][0])
    return figure


def _number_axis(panel: Axes, axis: Axis) -> None:
    """Ticks where there are points; logarithmic where they are decades apart."""
    low, high = min(axis.numbers), max(axis.numbers)
    if low > 0 and high > DECADE * low:
        panel.set_xscale("log")
    # Few enough not to stand on each other.
    step = math.ceil(len(axis.numbers) / 16)
    panel.set_xticks(axis.numbers[::step], axis.short[::step])
    panel.set_xticks([], minor=True)


def _label(result: Runs, axis: Axis) -> str:
    name, unit = words.axis(axis, next(point for _, point in result.points()))
    return f"{name} [{unit}]" if unit else name


def _maps(result: Runs, names: Sequence[str], swept: Sequence[Axis]) -> plots.Plot:
    """A map for each law and metric over two axes, the second one to the right; the colours of a
    metric mean the same for every law."""
    down, across = swept
    laws = result.plan.laws
    shape = (len(down.texts), len(across.texts))
    width = min(16.0, max(10.0, 1.4 + 2.9 * len(laws)))
    height = 0.9 + len(names) * max(2.0, 0.28 * shape[0] + 0.6)
    figure = plots.Plot(figsize=(width, height), layout="constrained")
    grid = figure.subplots(len(names), len(laws), squeeze=False, sharex=True, sharey=True)
    for name, row in zip(names, grid, strict=True):
        metric = METRICS[name]
        values = np.full((len(laws), *shape), np.nan)
        for p, _ in result.points():
            for i, _ in result.laws(p):
                mean = result.cell(p, i, name).mean
                values[i, down.places[p], across.places[p]] = metric.scale * mean
        known = values[~np.isnan(values)]
        low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
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
            if name == names[0]:
                panel.set_title(laws[i])
            panel.set_xticks(range(shape[1]), across.short, rotation=90 if shape[1] > 6 else 0)
            panel.set_yticks(range(shape[0]), down.short)
        figure.colorbar(image, ax=list(row), label=metric.heading)
    for panel in grid[-1]:
        panel.set_xlabel(_label(result, across))
    for row in grid:
        row[0].set_ylabel(_label(result, down))
    return figure


def _write(panel: Axes, values: NDArray[np.float64], low: float, high: float) -> None:
    """The numbers, light on dark and dark on light."""
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            dark = value < low + 0.55 * (high - low)
            panel.text(
                *(x, y, f"{value:.3g}"),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if dark else "black",
            )


def _dots(result: Runs, names: Sequence[str]) -> plots.Plot:
    """Dots with intervals: points along the axis, laws side by side at each.

    With one point, the laws are along the axis.
    """
    points = list(result.points())
    laws = result.plan.laws
    width = min(16.0, max(10.0, 3.0 + 0.25 * len(points) * len(laws)))
    figure = plots.Plot(figsize=(width, 0.7 + 2.4 * len(names)), layout="constrained")
    grid = figure.subplots(len(names), 1, sharex=True, squeeze=False)
    for name, (axes,) in zip(names, grid, strict=True):
        metric = METRICS[name]
        all_means: list[float] = []
        for i, label in enumerate(laws):
            places = [place for place, (p, _) in enumerate(points) if result.of(p, i)]
            cells = [result.cell(points[place][0], i, name) for place in places]
            means = [metric.scale * cell.mean for cell in cells]
            all_means += means
            axes.errorbar(
                [place + _aside(i, result) for place in places],
                means,
                yerr=[metric.scale * np.nan_to_num(cell.half_width) for cell in cells],
                # Shifted in every round, so that no law looks like another of its colour.
                fmt=style.MARKERS[(i + plots.round_of(i)) % len(style.MARKERS)],
                color=plots.colour(i),
                markerfacecolor="white" if plots.round_of(i) % 2 else plots.colour(i),
                label=label,
                markersize=5,
                capsize=3,
                linewidth=1.2,
            )
        axes.set_ylabel(metric.heading)
        _scale(axes, all_means)
        axes.grid(axis="x", visible=False)
        for place in range(1, len(points)):
            axes.axvline(place - 0.5, color="#e4e4e4", linewidth=0.8)
        axes.set_xlim(-0.5, len(points) - 0.5)
    bottom = grid[-1][0]
    if len(points) == 1:
        _ticks(bottom, [_aside(i, result) for i in range(len(laws))], laws, 0.8 * width)
        return figure
    ticks, label = words.points_axis([point for _, point in points])
    _ticks(bottom, range(len(points)), ticks, width)
    bottom.set_xlabel(label)
    plots.legend_beside(grid[0][0])
    return figure


def _ticks(axes: Axes, at: Sequence[float], texts: list[str], width: float) -> None:
    """Texts along the axis, aslant where `width` inches have no room for them side by side."""
    axes.set_xticks(at, texts)
    if sum(max(map(len, text.split("\n"))) + 2 for text in texts) > 11 * width:
        axes.tick_params(axis="x", labelrotation=45)
        for text in axes.get_xticklabels():
            text.set(horizontalalignment="right", rotation_mode="anchor")


def _aside(law: int, result: Runs) -> float:
    """Where a law stands within the room of its point, from −0.4 to 0.4."""
    laws = len(result.plan.laws)
    return (law - (laws - 1) / 2) * 0.8 / laws


def _scale(axes: Axes, means: list[float]) -> None:
    """Chooses an axis that shows differences and does not magnify noise."""
    means = [mean for mean in means if not math.isnan(mean)]
    if not means:
        return
    low, high = min(means), max(means)
    if low > 0 and high > 8 * low:
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()}\n(logarithmic)")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda _y, _p: ""))
        return
    bottom, top = axes.get_ylim()
    if low < 0.9 * high:
        # Values are never negative; a dot at zero still needs a little room.
        bottom, top = (-0.03 * top if low < 0.03 * top else 0.0), 1.05 * top
    # Differences of less than a percent must not fill the axis.
    elif (missing := 0.02 * abs(high) - (top - bottom)) > 0:
        bottom, top = bottom - missing / 2, top + missing / 2
    if "%" in axes.get_ylabel():
        top = min(top, 100 + 0.05 * (100 - bottom))
    axes.set_ylim(bottom, top)
    axes.ticklabel_format(axis="y", useOffset=False)
