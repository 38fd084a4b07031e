"""Draw the figures of a study from their data, also in another process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from forebay.report import parts, style
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.sheet import AxisResponse, Floats, Maps
from forebay.report.style import COLOURS, DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of maps side by side.
IN_A_ROW = 4
#: Width of a letter of a tick on a screen, in inches.
LETTER = 0.075


@styled
def heat(maps: Maps) -> Plot:
    """Draw a map of a metric for each law, with a common scale of colours.

    Parameters
    ----------
    maps : Maps
        The means, in a single row.
    """
    (row,) = maps.rows
    count = len(maps.titles)
    columns = max(1, min(IN_A_ROW, count))
    figure, panels = parts.small_multiples(count, columns, 10, 2.3, more=0.5, sharex=True)
    if not style.printed():
        _set_margins(figure, maps)
    parts.heat_maps(
        figure,
        panels,
        row.maps,
        maps.titles,
        norm=parts.wide_norm(np.array(row.maps)),
        label=row.label,
        places=partial(_name_cells, maps),
        fraction=0.08,
        pad=0.02,
    )
    # Panels have ticks only at the edge of the figure: they take most of the drawing.
    for number, axes in enumerate(panels):
        axes.xaxis.set_visible(number + columns >= count)
        axes.yaxis.set_visible(number % columns == 0)
    parts.label_all(figure, maps.x, maps.y)
    return figure


def _set_margins(figure: Plot, maps: Maps) -> None:
    """Set margins for the names of cells; the layout engine of matplotlib is as slow as a drawing.

    Parameters
    ----------
    figure : Plot
        The figure.
    maps : Maps
        The maps, with the names of their cells.
    """
    figure.set_layout_engine(None)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(
        left=(0.45 + LETTER * max(map(len, maps.lines))) / width,
        right=0.99,
        top=1 - 0.3 / height,
        bottom=(0.45 + 0.7 * LETTER * max(map(len, maps.columns))) / height,
        wspace=0.05,
    )


def _name_cells(maps: Maps, axes: Axes) -> None:
    """Name the columns and lines of a panel, whose cells have width 1 and begin at 0.

    Panels with common axes have common names, too.
    """
    axes.grid(visible=False)
    if axes is not axes.figure.axes[0]:
        axes.tick_params(axis="x", labelrotation=45)
        return
    axes.set_xticks(np.arange(len(maps.columns)) + 0.5, maps.columns, rotation=45)
    axes.set_yticks(np.arange(len(maps.lines)) + 0.5, maps.lines)


@styled
def winners(maps: Maps) -> Plot:
    """Draw the law with the best mean at each place, hatched if another law may be as good.

    Parameters
    ----------
    maps : Maps
        In a single row, the index of the best law, and the same only where another law may be as
        good.
    """
    ((numbers, ties),) = (row.maps for row in maps.rows)
    laws = maps.titles
    figure, axes = one_panel(10, 4)
    colours = ListedColormap([COLOURS[i % len(COLOURS)] for i in range(len(laws))])
    norm = BoundaryNorm(np.arange(len(laws) + 1) - 0.5, len(laws))
    axes.pcolormesh(numbers, cmap=colours, norm=norm, alpha=0.75)
    for (j, i), law in np.ndenumerate(numbers):
        if not np.isnan(ties[j, i]):
            box = Rectangle((i, j), 1, 1, fill=False, hatch="////", edgecolor="#555555")
            box.set_linewidth(0)
            # A part inside the panel needs no place in the layout, which would measure it.
            box.set_in_layout(False)
            axes.add_patch(box)
        if not np.isnan(law):
            text = axes.text(i + 0.5, j + 0.5, laws[int(law)], ha="center", va="center")
            text.set(fontsize=6.5, bbox={"color": "white", "alpha": 0.7, "pad": 1}, in_layout=False)
    _name_cells(maps, axes)
    axes.set_xlabel(maps.x)
    axes.set_ylabel(maps.y)
    used = np.unique(numbers[~np.isnan(numbers)]).astype(int)
    handles = [Patch(color=COLOURS[i % len(COLOURS)], alpha=0.75, label=laws[i]) for i in used]
    hatched: dict[str, Any] = {"facecolor": "white", "edgecolor": "#444444", "hatch": "////"}
    handles.append(Patch(label="may be chance", **hatched))
    figure.legend(handles=handles, loc="outside right upper")
    return figure


@styled
def response(label: str, laws: Sequence[str], panels: Sequence[AxisResponse]) -> Plot:
    """Draw a metric over axes, a panel each, in bands that are intervals.

    Parameters
    ----------
    label : str
        The metric with its unit.
    laws : sequence of str
        The laws.
    panels : sequence of AxisResponse
        The panels.
    """
    columns = min(3, len(panels))
    figure, grid = parts.small_multiples(len(panels), 3, 3.4 * columns + 1.2, 2.7, more=0)
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        parts.Grid(axes)
        _curves(axes, panel)
        axes.set_xlabel(panel.title)
        if place % columns == 0:
            axes.set_ylabel(label)
        else:
            axes.yaxis.set_visible(False)
    handles = [Line2D([], [], markersize=4, label=law, **_look(i)) for i, law in enumerate(laws)]
    figure.legend(handles=handles, loc="outside right upper")
    return figure


def _look(law: int) -> dict[str, Any]:
    return {
        "color": COLOURS[law % 7],
        "marker": MARKERS[law % 7],
        "linestyle": DASHES[law // 7 % 3],
    }


def _curves(axes: Axes, panel: AxisResponse) -> None:
    """Draw the mean of each law over one axis, with a band for its interval."""
    for i, (at, mean, half) in enumerate(panel.curves):
        look = _look(i)
        axes.plot(at, mean, markersize=3.5, linewidth=1.2, **look)
        band: dict[str, Any] = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(at, mean - half, mean + half, **band)
    values = np.concatenate([mean for _, mean, _ in panel.curves])
    if values.min() > 0 and values.max() > parts.WIDE * values.min():
        axes.set_yscale("log")
    texts = panel.texts
    axes.set_xticks(range(len(texts)), texts, rotation=45 if len(texts) > 6 else 0)


@styled
def parallel(labels: Sequence[str], columns: Sequence[Floats]) -> Plot:
    """Draw a line for each point across its axes to the metric, which gives the colour.

    Parameters
    ----------
    labels : sequence of str
        The axes and the metric, each with its ends.
    columns : sequence of Floats
        The places of all points along each of them, from 0 to 1.
    """
    figure, axes = one_panel(10, 3.6)
    colours = mpl.colormaps["cividis"](columns[-1])
    lines = [list(enumerate(places)) for places in zip(*columns, strict=True)]
    axes.add_collection(LineCollection(lines, colors=colours, alpha=0.5, linewidths=0.8))
    axes.autoscale_view()
    axes.set_xticks(range(len(labels)), labels)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("least to greatest")
    return figure
