"""Static figures of sheets: what a page prints, and what `plot()` returns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from forebay.report import parts, style
from forebay.report.plot import Plot, styled
from forebay.report.sheet import Curve, Floats, Sheet, Timeline
from forebay.report.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Panels of shares side by side.
COLUMNS = 3
#: Letters that a legend has room for in a column of a paper, and those of which the line of a key
#: takes the room.
ROOM_FOR_LEGEND, LETTERS_OF_KEY = 60, 8


@styled
def draw(sheet: Sheet) -> Plot:
    """A figure of a sheet."""
    if sheet.timeline:
        return _over_time(sheet, sheet.timeline)
    if sheet.dots:
        return _over_sweep(sheet)
    if [panel.title for panel in sheet.panels] == [""]:
        return _alone(sheet)
    return _shares(sheet)


def _over_time(sheet: Sheet, time: Timeline) -> Plot:
    """A row for each panel on common axes: left the curves, or the first of the seeds; right how
    often each value was seen with all of them."""
    rows = len(sheet.panels)
    figure = Plot(figsize=(10, 1.2 + (1.4 if sheet.bins else 1.5) * rows))
    keys = _keys(sheet, time)
    columns = _legend_columns(figure, keys, 3 if sheet.legend else 9)
    lines = math.ceil(len(keys) / columns) if keys else 0
    # A legend of several lines takes nothing from the panels.
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
    for panel, (left, *right) in zip(sheet.panels, grid, strict=True):
        title = panel.title
        if right:
            title += f", {panel.series[0].label}"
            _histogram(right[0], sheet, time, panel.series)
        for curve in panel.series[:1] if right else panel.series:
            _curve(left, curve, time.steps, step=sheet.step, dashed=_is_dashed(sheet, curve))
        for axes in (left, *right) if panel.target is not None else ():
            axes.axhline(panel.target, **parts.TARGET)
        for low, high in time.grey:
            left.axvspan(low, high, **parts.UNMEASURED)
        for change in time.changes:
            left.axvline(change, **parts.CHANGE)
        left.set_title(title)
        left.yaxis.set_major_locator(MaxNLocator(4))
    grid[0][0].set_xlim(sheet.x.range)
    grid[0][0].set_ylim(sheet.y.range)
    grid[-1][0].set_xlabel(sheet.x.heading)
    if sheet.bins:
        grid[-1][1].set_xlabel(f"Share{'' if style.printed() else f' of {sheet.counted}'} [%]")
    _legend_above(figure, keys, columns)
    _lay_out_rows(figure, rows, sheet.y.heading, lines)
    return figure


def _draw(axes: Axes, one: Curve, **how: Any) -> None:
    """A curve, or a band."""
    colour = style.colour(one.look)
    if one.y is None:
        how.pop("linestyle", None)
        assert one.low is not None and one.high is not None
        shown = {key: how[key] for key in ("step",) if key in how}
        axes.fill_between(
            one.x, one.low, one.high, color=colour, alpha=one.alpha, linewidth=0, **shown
        )
        return
    step = how.pop("step", None)
    if step is not None:
        how["drawstyle"] = f"steps-{step}"
    axes.plot(one.x, one.y, color=colour, linewidth=one.width, **how)


def _is_dashed(sheet: Sheet, curve: Curve) -> bool:
    """Return True if a printed curve needs dashes, as laws in one panel do: greys are alike."""
    looks = {peer.look for panel in sheet.panels[:1] for peer in panel.series}
    return style.printed() and curve.dashed and not sheet.bins and len(looks) > 1


def _curve(axes: Axes, curve: Curve, steps: int, *, step: bool, dashed: bool = False) -> None:
    """A curve or a band over time; a long curve as the mean of each step in the band from its
    least to its greatest."""
    how: dict[str, Any] = {"linestyle": style.dash(curve.look)} if dashed else {}
    if step:
        # A value holds from the end of the interval before to that of its own.
        edges: dict[str, Any] = {"x": np.concatenate([[0.0], curve.x])}
        for key in ("y", "low", "high"):
            if (values := getattr(curve, key)) is not None:
                edges[key] = np.concatenate([values[:1], values])
        _draw(axes, replace(curve, **edges), step="pre", **how)
        return
    assert curve.y is not None
    if len(curve.x) <= 2 * steps:
        _draw(axes, curve, **how)
        return
    times, low, mean, high = thinned(curve.x, curve.y.astype(float), steps)
    _draw(axes, replace(curve, x=times, y=None, low=low, high=high, alpha=0.35), step="post")
    _draw(axes, replace(curve, x=times, y=mean), step="post", **how)


def thinned(times: Floats, values: Floats, steps: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the steps of a curve: where each begins, its least, mean and greatest value."""
    starts = np.arange(0, len(times), math.ceil(len(times) / steps))
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    known = ~np.isnan(values)
    count = np.add.reduceat(known.astype(float), starts)
    mean = np.full(len(starts), np.nan)
    np.divide(np.add.reduceat(np.where(known, values, 0), starts), count, mean, where=count > 0)
    # Each step includes the value before it, so that neighbours meet.
    before = values[starts[1:] - 1]
    low[1:], high[1:] = np.fmin(low[1:], before), np.fmax(high[1:], before)
    return times[starts], low, mean, high


def _histogram(axes: Axes, sheet: Sheet, time: Timeline, series: Sequence[Curve]) -> None:
    """Shares in percent, lying on its side so that it shares the axis of its values."""
    assert sheet.y.range is not None
    top = sheet.y.range[1]
    every = [one.y for panel in sheet.panels for one in panel.series]
    # Whole packets per bin, or bars would differ by how many lengths fall into each; but a mean
    # over flows is no whole number.
    bins = np.linspace(0, top, sheet.bins + 1)
    if all(values is not None and values.dtype.kind in "iu" for values in every):
        bins = np.arange(0, top + 1, math.ceil(top / sheet.bins)) - 0.5
    start, end = time.counted
    inside = [one.y[(one.x > start) & (one.x < end)] for one in series if one.y is not None]
    values = np.concatenate(inside).astype(float)
    values = values[~np.isnan(values)]
    axes.hist(
        values,
        bins=list(bins),
        weights=np.full(len(values), 100 / max(1, len(values))),
        orientation="horizontal",
        histtype="stepfilled",
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
        keys.append(Patch(facecolor=parts.UNMEASURED["color"], label="not in the metrics"))
    if time.changes and not sheet.legend:
        keys.append(Line2D([], [], label="; ".join(time.says), **parts.CHANGE))
    return keys


def _legend_columns(figure: Plot, keys: Sequence[Line2D | Patch], limit: int) -> int:
    """Return how many keys of a legend have room side by side.

    In a column of a paper a legend may be as wide as the figure; on a screen it has at most `limit`
    columns.
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
    """Margins of panels below each other: matplotlib's own layout takes as long as the drawing,
    and a report has many of these."""
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


def _steps(axes: Axes, one: Curve) -> None:
    _draw(axes, one, step="post", label=one.label, linestyle=style.dash(one.look))


def _alone(sheet: Sheet) -> Plot:
    """One panel of curves, with a legend beside it."""
    # Matplotlib's own layout takes as long as the drawing.
    figure = Plot(figsize=(10, 3.4), layout="constrained" if style.printed() else None)
    axes = figure.subplots()
    series = sheet.panels[0].series
    if not style.printed():
        longest = max((len(one.label) for one in series), default=0)
        right = 1 - min(0.3, 0.06 + 0.0075 * longest)
        figure.subplots_adjust(left=0.092, right=right, top=0.965, bottom=0.14)
    for one in series:
        _steps(axes, one)
    percent_scale(axes, sheet.y.least or 0.0)
    axes.set_xlabel(sheet.x.heading)
    axes.set_ylabel(f"{sheet.y.label}\n(logarithmic)")
    if series:
        parts.legend_beside(axes)
    return figure


def percent_scale(axes: Axes, least: float) -> None:
    """Waits from zero on, and shares in % of those that are longer, on a logarithmic axis."""
    axes.set_yscale("log")
    axes.set_ylim(least, 150)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g} %"))
    axes.set_xlim(left=0)


def _shares(sheet: Sheet) -> Plot:
    """Panels of curves; with the same laws in each they have one legend."""
    common = sheet.x.least is not None
    figure, panels = parts.small_multiples(
        len(sheet.panels), COLUMNS, 10, 2.8 if common else 3.2, sharex=common
    )
    last = len(panels) - min(COLUMNS, len(panels))
    by_law = any("law" in one.tags for panel in sheet.panels for one in panel.series)
    for place, (axes, panel) in enumerate(zip(panels, sheet.panels, strict=True)):
        for one in panel.series:
            _steps(axes, one)
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
    """A row for each panel: curves with marks, in bands that are their intervals."""
    figure = Plot(figsize=(10, 0.7 + 2.6 * len(sheet.panels)), layout="constrained")
    grid = figure.subplots(len(sheet.panels), 1, sharex=True, squeeze=False)
    for (axes,), panel in zip(grid, sheet.panels, strict=True):
        for one in panel.series:
            look = {"linestyle": style.dash(one.look), "marker": style.marker(one.look)}
            _draw(axes, one, **look, markersize=4, label=one.label)
        means = [mean for one in panel.series if one.y is not None for mean in one.y.tolist()]
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
