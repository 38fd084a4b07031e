"""Draw sheets as static figures: the pictures of a page in print, and the results of `plot()`."""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from forebay._base.words import in_figures
from forebay.report import parts, style
from forebay.report.plot import Plot, Rendered, styled
from forebay.report.sheet import Curve, Dots, Drawing, FigureData, Floats, Maps, Sheet, Timeline
from forebay.report.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of panels of shares next to each other.
COLUMNS = 3
#: Number of letters that fit into a legend in a column of a paper, and the number of letters that
#: are as wide as the line of a key.
ROOM_FOR_LEGEND, LETTERS_OF_KEY = 60, 8
#: Largest number of cells of a map whose numbers are written.
WRITTEN_CELLS = 64


@styled
def draw(content: FigureData) -> Plot:
    """Return the figure of its contents."""
    if isinstance(content, Maps):
        return _maps(content)
    if isinstance(content, Dots):
        return _sweep_dots(content)
    return content.draw() if isinstance(content, Drawing) else _of_sheet(content)


def rendered(content: FigureData, file: str, name: str, style_name: str) -> Rendered:
    """Return the files and the <svg> element of a figure; a process of `drawing_pool` calls it.

    Parameters
    ----------
    content : FigureData
        The figure as data.
    file : str
        Name of the files without their suffix; empty for none.
    name : str
        Name of the figure for a screen reader.
    style_name : str
        Style of the figure.
    """
    style.use(style_name)
    # A figure makes so many objects that the garbage collector would search all others often.
    gc.disable()
    try:
        return draw(content).rendered(file, name)
    finally:
        gc.enable()


def _of_sheet(sheet: Sheet) -> Plot:
    """Return the figure of a sheet."""
    if sheet.timeline:
        return _over_time(sheet, sheet.timeline)
    if sheet.dots:
        return _over_sweep(sheet)
    if [panel.title for panel in sheet.panels] == [""]:
        return _alone(sheet)
    return _shares(sheet)


def _over_time(sheet: Sheet, time: Timeline) -> Plot:
    """Return a figure over time with one row per panel.

    On the left are the curves, or only that of the first seed if there are histograms on the right,
    which cover all seeds.
    """
    rows = len(sheet.panels)
    figure = Plot(figsize=(10, 1.2 + (1.4 if sheet.bins else 1.5) * rows))
    keys = _keys(sheet, time)
    columns = _legend_columns(figure, keys, 3 if sheet.legend else 9)
    lines = math.ceil(len(keys) / columns) if keys else 0
    # A legend of several lines makes the figure taller instead of the panels smaller.
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + parts.LEGEND_LINE * max(0, lines - 1))
    widths = [4 if style.printed() else 5, 1] if sheet.bins else [1]
    grid = figure.subplots(
        rows,
        len(widths),
        sharey=True,
        sharex="col",
        squeeze=False,
        gridspec_kw={"width_ratios": widths},
    )
    # With known limits, nothing searches the curves for them.
    grid[0][0].set_xlim(sheet.x.range)
    grid[0][0].set_ylim(sheet.y.range)
    for panel, (curve_axes, *histogram_axes) in zip(sheet.panels, grid, strict=True):
        title = panel.title
        if histogram_axes:
            title += f", {panel.series[0].label}"
            _histogram(histogram_axes[0], sheet, time, panel.series)
        for curve in panel.series[:1] if histogram_axes else panel.series:
            _curve(curve_axes, curve, time.steps, step=sheet.step, dashed=_is_dashed(sheet, curve))
        for axes in (curve_axes, *histogram_axes) if panel.target is not None else ():
            axes.axhline(panel.target, **parts.TARGET)
        for low, high in time.grey:
            curve_axes.axvspan(low, high, **parts.UNMEASURED)
        for change in time.changes:
            curve_axes.axvline(change, **parts.CHANGE)
        curve_axes.set_title(title)
        curve_axes.yaxis.set_major_locator(MaxNLocator(4))
    # Ticks take most of the time of a drawing.
    for axes in grid.flat:
        parts.Grid(axes)
    for axis in [axes.yaxis for axes in grid[:, 1:].flat] + [axes.xaxis for axes in grid[:-1].flat]:
        axis.set_visible(False)
    # The place of a label without text does not matter; to find one takes 6 % of the drawing.
    for axes in grid[:, 0]:
        axes.yaxis.set_label_coords(0, 0)
    grid[-1][0].set_xlabel(sheet.x.heading)
    if sheet.bins:
        grid[-1][1].set_xlabel(f"Share{'' if style.printed() else f' of {sheet.counted}'} [%]")
    _legend_above(figure, keys, columns)
    _lay_out_rows(figure, rows, sheet.y.heading, lines)
    return figure


def _draw(axes: Axes, curve: Curve, **options: Any) -> None:
    """Draw a curve or a band."""
    colour = style.colour(curve.look)
    if curve.y is None:
        options.pop("linestyle", None)
        assert curve.low is not None and curve.high is not None
        step_option = {key: options[key] for key in ("step",) if key in options}
        axes.fill_between(
            curve.x,
            curve.low,
            curve.high,
            color=colour,
            alpha=curve.alpha,
            linewidth=0,
            **step_option,
        )
        return
    step = options.pop("step", None)
    if step is not None:
        options["drawstyle"] = f"steps-{step}"
    axes.plot(curve.x, curve.y, color=colour, linewidth=curve.width, **options)


def _is_dashed(sheet: Sheet, curve: Curve) -> bool:
    """Return True if a printed curve needs dashes because other laws are in its panel."""
    looks = {peer.look for panel in sheet.panels[:1] for peer in panel.series}
    return style.printed() and curve.dashed and not sheet.bins and len(looks) > 1


def _curve(axes: Axes, curve: Curve, steps: int, *, step: bool, dashed: bool = False) -> None:
    """Draw a curve or a band over time.

    A long curve becomes the mean of each step in a band from its minimum to its maximum.
    """
    options: dict[str, Any] = {"linestyle": style.dash(curve.look)} if dashed else {}
    if step:
        # A value applies from the end of the previous interval to the end of its own.
        edges: dict[str, Any] = {"x": np.concatenate([[0.0], curve.x])}
        for key in ("y", "low", "high"):
            if (values := getattr(curve, key)) is not None:
                edges[key] = np.concatenate([values[:1], values])
        _draw(axes, replace(curve, **edges), step="pre", **options)
        return
    assert curve.y is not None
    if len(curve.x) <= 2 * steps:
        _draw(axes, curve, **options)
        return
    times, low, mean, high = thinned(curve.x, curve.y.astype(float), steps)
    _draw(axes, replace(curve, x=times, y=None, low=low, high=high, alpha=0.35), step="post")
    _draw(axes, replace(curve, x=times, y=mean), step="post", **options)


def thinned(times: Floats, values: Floats, steps: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return a curve in steps.

    Parameters
    ----------
    times : Floats
        The times.
    values : Floats
        The values; NaN is omitted.
    steps : int
        The number of steps.

    Returns
    -------
    tuple[Floats, Floats, Floats, Floats]
        Start, minimum, mean and maximum of each step.
    """
    starts = np.arange(0, len(times), math.ceil(len(times) / steps))
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    is_number = ~np.isnan(values)
    count = np.add.reduceat(is_number.astype(float), starts)
    mean = np.full(len(starts), np.nan)
    np.divide(np.add.reduceat(np.where(is_number, values, 0), starts), count, mean, where=count > 0)
    # Each step includes the last value of the previous step, so that the bands touch.
    before = values[starts[1:] - 1]
    low[1:], high[1:] = np.fmin(low[1:], before), np.fmax(high[1:], before)
    return times[starts], low, mean, high


def _histogram(axes: Axes, sheet: Sheet, time: Timeline, series: Sequence[Curve]) -> None:
    """Draw a histogram of shares in percent, turned so that it shares the axis of the values."""
    assert sheet.y.range is not None
    top = sheet.y.range[1]
    every = [curve.y for panel in sheet.panels for curve in panel.series]
    # Bins of whole packets, since otherwise the number of queue lengths in a bin would vary. A mean
    # over flows is not a whole number and needs no such bins.
    bins = np.linspace(0, top, sheet.bins + 1)
    if all(values is not None and values.dtype.kind in "iu" for values in every):
        bins = np.arange(0, top + 1, math.ceil(top / sheet.bins)) - 0.5
    start, end = time.counted
    inside = [
        curve.y[(curve.x > start) & (curve.x < end)] for curve in series if curve.y is not None
    ]
    values = np.concatenate(inside).astype(float)
    values = values[~np.isnan(values)]
    counts, edges = np.histogram(values, bins)
    axes.stairs(
        100 * counts / max(1, len(values)),
        edges,
        orientation="horizontal",
        fill=True,
        color=style.colour(series[0].look),
    )
    if len(series) > 1:
        axes.set_title(f"{len(series)} seeds")
    axes.xaxis.set_major_locator(MaxNLocator(3))


def _keys(sheet: Sheet, time: Timeline) -> list[Line2D | Patch]:
    """Return the keys of a legend: traffic, the set-point, the grey, changes."""
    dashed = {
        curve.look for panel in sheet.panels for curve in panel.series if _is_dashed(sheet, curve)
    }
    keys: list[Line2D | Patch] = [
        Line2D(
            [],
            [],
            color=style.colour(look),
            label=text,
            linestyle=style.dash(look) if look in dashed else "-",
        )
        for text, look in sheet.legend
    ]
    targets = {panel.target for panel in sheet.panels} - {None}
    if targets:
        value = f", {targets.pop():g} {sheet.y.unit}" if len(targets) == 1 else " of the law"
        keys.append(Line2D([], [], label=f"set-point{value}", **parts.TARGET))
    if time.grey:
        keys.append(Patch(facecolor=parts.UNMEASURED["color"], label="not measured"))
    if time.changes and not sheet.legend:
        keys.append(Line2D([], [], label="; ".join(time.says), **parts.CHANGE))
    return keys


def _legend_columns(figure: Plot, keys: Sequence[Line2D | Patch], limit: int) -> int:
    """Return how many keys of a legend fit next to each other.

    In a column of a paper, a legend may be as wide as the figure; on a screen it has at most
    `limit` columns.
    """
    if not style.printed():
        return max(1, min(limit, len(keys)))
    longest = max((len(str(key.get_label())) for key in keys), default=0) + LETTERS_OF_KEY
    room = ROOM_FOR_LEGEND * figure.get_figwidth() / 3.5
    return max(1, min(len(keys), int(room / longest)))


def _legend_above(figure: Plot, keys: Sequence[Line2D | Patch], columns: int) -> None:
    """Put a legend into the upper right corner."""
    if not keys:
        return
    width, height = figure.get_size_inches()
    corner = (1 - 0.08 / width, 1 - 0.05 / height)
    figure.legend(
        handles=list(keys),
        loc="upper right",
        bbox_to_anchor=corner,
        borderaxespad=0,
        ncols=columns,
    )


def _lay_out_rows(figure: Plot, rows: int, label: str, legend_lines: int) -> None:
    """Set the margins of panels below each other.

    The layout engine of matplotlib takes as long as the drawing, and a report has many such
    figures.
    """
    width, height = figure.get_size_inches()
    top, bottom, title = 0.58 if legend_lines else 0.3, 0.5, 0.36
    left_margin = 0.72
    if style.printed():
        top, bottom, title, left_margin = top - 0.14, 0.36, 0.26, 0.5
    top += parts.LEGEND_LINE * max(0, legend_lines - 1)
    room = (height - top - bottom - (rows - 1) * title) / rows
    figure.subplots_adjust(
        left=left_margin / width,
        right=1 - 0.2 / width,
        top=1 - top / height,
        bottom=bottom / height,
        hspace=title / room,
        wspace=0.12 if style.printed() else 0.07,
    )
    middle = (1 - top / height + bottom / height) / 2
    figure.supylabel(label, fontsize=STYLE["font.size"], x=0.06 / width, y=middle, ha="left")


def _steps(axes: Axes, curve: Curve) -> None:
    """Draw a curve that changes in steps."""
    _draw(axes, curve, step="post", label=curve.label, linestyle=style.dash(curve.look))


def _alone(sheet: Sheet) -> Plot:
    """Return a figure of one panel, with a legend next to it."""
    # The layout engine of matplotlib takes as long as the drawing.
    figure = Plot(figsize=(10, 3.4), layout="constrained" if style.printed() else None)
    axes = figure.subplots()
    series = sheet.panels[0].series
    if not style.printed():
        right = _left_of_legend([curve.label for curve in series])
        figure.subplots_adjust(left=0.092, right=right, top=0.965, bottom=0.14)
    parts.Grid(axes)
    for curve in series:
        _steps(axes, curve)
    percent_scale(axes, sheet.y.least or 0.0)
    axes.set_xlabel(sheet.x.heading)
    axes.set_ylabel(f"{sheet.y.label}\n(logarithmic)")
    if series:
        parts.legend_beside(axes)
    return figure


def _left_of_legend(labels: Sequence[str]) -> float:
    """Return the right end of panels, as a share of the width, next to a legend on a screen."""
    return 1 - min(0.3, 0.06 + 0.0075 * max(map(len, labels), default=0))


def percent_scale(axes: Axes, least: float) -> None:
    """Set the axes of a distribution: times from zero on, and shares in % on a logarithmic axis.

    Parameters
    ----------
    axes : Axes
        The axes.
    least : float
        The lower end of the axis of shares, in %.
    """
    axes.set_yscale("log")
    axes.set_ylim(least, 150)
    axes.yaxis.set_minor_locator(LogLocator(subs=(2.0, 5.0), numticks=99))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g} %"))
    axes.set_xlim(left=0)


def _shares(sheet: Sheet) -> Plot:
    """Return a figure of panels of curves, with a common legend if the curves are laws."""
    common = sheet.x.least is not None
    figure, panels = parts.small_multiples(
        len(sheet.panels), COLUMNS, 10, 2.8 if common else 3.2, sharex=common
    )
    last = len(panels) - min(COLUMNS, len(panels))
    by_law = any("law" in curve.tags for panel in sheet.panels for curve in panel.series)
    for place, (axes, panel) in enumerate(zip(panels, sheet.panels, strict=True)):
        parts.Grid(axes)
        for curve in panel.series:
            _steps(axes, curve)
        axes.set_title(panel.title)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(parts.PLAIN)
        if not by_law:
            axes.legend(loc="upper left", fontsize=STYLE["font.size"] - 1)
        if not common or place >= last:
            axes.set_xlabel(sheet.x.heading)
    if panels:
        if common:
            panels[0].set_xlim(left=sheet.x.least)
        panels[0].set_ylim(sheet.y.range)
        handles, labels = panels[0].get_legend_handles_labels()
        if by_law and handles:
            figure.legend(
                handles,
                labels,
                loc="outside upper center" if style.printed() else "outside right upper",
            )
    parts.label_all(figure, y=sheet.y.heading)
    return figure


def _over_sweep(sheet: Sheet) -> Plot:
    """Return a figure with one row per panel, of curves with marks in bands that are intervals."""
    rows = len(sheet.panels)
    # The layout engine of matplotlib takes as long as the drawing.
    figure = Plot(figsize=(10, 0.7 + 2.6 * rows), layout="constrained" if style.printed() else None)
    grid = figure.subplots(rows, 1, sharex=True, squeeze=False)
    if not style.printed():
        labels = [curve.label for curve in sheet.panels[0].series if curve.y is not None]
        height = figure.get_figheight()
        figure.subplots_adjust(
            left=0.085,
            right=_left_of_legend(labels),
            top=1 - 0.1 / height,
            bottom=0.55 / height,
            hspace=0.1,
        )
        for axes in grid[:-1].flat:
            axes.xaxis.set_visible(False)
    for (axes,), panel in zip(grid, sheet.panels, strict=True):
        parts.Grid(axes)
        for curve in panel.series:
            look = {"linestyle": style.dash(curve.look), "marker": style.marker(curve.look)}
            _draw(axes, curve, **look, markersize=4, label=curve.label)
        means = [mean for curve in panel.series if curve.y is not None for mean in curve.y.tolist()]
        axes.set_ylabel(panel.y.heading if panel.y else "")
        parts.telling_scale(axes, means)
    bottom = grid[-1][0]
    bottom.set_xlabel(sheet.x.heading)
    if sheet.x.log:
        bottom.set_xscale("log")
    if sheet.x.ticks is not None:
        bottom.set_xticks(*zip(*sheet.x.ticks, strict=True))
        bottom.set_xticks([], minor=True)
    parts.legend_beside(grid[0][0])
    return figure


def _maps(content: Maps) -> Plot:
    """Return a figure of maps, with a row per metric and a column per law."""
    shape = (len(content.lines), len(content.columns))
    width = min(16.0, max(10.0, 1.4 + 2.9 * len(content.titles)))
    height = 0.9 + len(content.rows) * max(2.0, 0.28 * shape[0] + 0.6)
    figure = Plot(figsize=(width, height), layout="constrained")
    grid = figure.subplots(
        len(content.rows), len(content.titles), squeeze=False, sharex=True, sharey=True
    )
    for row, panels in zip(content.rows, grid, strict=True):
        values = np.array(row.maps)
        numbers = values[~np.isnan(values)]
        low, high = (numbers.min(), numbers.max()) if numbers.size else (0.0, 1.0)
        for title, panel, table in zip(content.titles, panels, row.maps, strict=True):
            image = panel.imshow(
                table,
                cmap="cividis",
                vmin=low,
                vmax=high if high > low else low + 1,
                origin="lower",
                aspect="auto",
            )
            panel.grid(visible=False)
            if table.size <= WRITTEN_CELLS:
                _write(panel, table, low, high)
            if row is content.rows[0]:
                panel.set_title(title)
            panel.set_xticks(range(shape[1]), content.columns, rotation=90 if shape[1] > 6 else 0)
            panel.set_yticks(range(shape[0]), content.lines)
        figure.colorbar(image, ax=list(panels), label=row.label)
        panels[0].set_ylabel(content.y)
    for panel in grid[-1]:
        panel.set_xlabel(content.x)
    return figure


def _write(panel: Axes, values: Floats, low: float, high: float) -> None:
    """Write the numbers into the cells, light on dark and dark on light."""
    for (y, x), value in np.ndenumerate(values):
        if not math.isnan(value):
            colour = "white" if value < low + 0.55 * (high - low) else "black"
            text = panel.text(x, y, in_figures(value), ha="center", va="center", color=colour)
            text.set(fontsize=7, in_layout=False)


def _sweep_dots(content: Dots) -> Plot:
    """Return a figure of dots with intervals, with a row per metric."""
    laws = max(len(series) for _, series in content.rows)
    width = min(16.0, max(10.0, 3.0 + 0.25 * content.places * laws))
    figure = Plot(figsize=(width, 0.7 + 2.4 * len(content.rows)), layout="constrained")
    grid = figure.subplots(len(content.rows), 1, sharex=True, squeeze=False)
    for (heading, series), (axes,) in zip(content.rows, grid, strict=True):
        for of_law in series:
            parts.dots(axes, of_law.x, of_law.y, of_law.look, of_law.label, yerr=of_law.bars)
        axes.set_ylabel(heading)
        parts.telling_scale(axes, [mean for of_law in series for mean in of_law.y])
        for place in range(1, content.places):
            axes.axvline(place - 0.5, color="#e4e4e4", linewidth=0.8)
        axes.grid(axis="x", visible=False)
        axes.set_xlim(-0.5, content.places - 0.5)
    bottom = grid[-1][0]
    at, texts = [place for place, _ in content.ticks], [text for _, text in content.ticks]
    _ticks(bottom, at, texts, width if content.label else 0.8 * width)
    if content.label:
        bottom.set_xlabel(content.label)
        parts.legend_beside(grid[0][0])
    return figure


def _ticks(axes: Axes, at: Sequence[float], texts: Sequence[str], width: float) -> None:
    """Label the axis with texts, which are slanted if they do not fit into `width` inches."""
    axes.set_xticks(at, texts)
    if sum(max(map(len, text.split("\n"))) + 2 for text in texts) > 11 * width:
        axes.tick_params(axis="x", labelrotation=45)
        for text in axes.get_xticklabels():
            text.set(horizontalalignment="right", rotation_mode="anchor")
