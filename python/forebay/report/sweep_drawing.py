"""Draw the maps and the dots of a sweep as static figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from forebay._base.words import in_figures
from forebay.report import parts
from forebay.report.plot import Plot
from forebay.report.sheet import Dots, Floats, Maps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Largest number of cells of a map whose numbers are written.
WRITTEN_CELLS = 64


def maps(content: Maps) -> Plot:
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


def dots(content: Dots) -> Plot:
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
