"""Parts that figures share: small multiples, legends, scales, dots with intervals and heat maps."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter
from numpy.typing import NDArray

from forebay.report import style
from forebay.report.plot import Plot
from forebay.report.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.backend_bases import RendererBase
    from matplotlib.colors import Colormap

#: The looks of the limit of stability, of set-points, of times outside the metrics, and of changes.
EDGE: dict[str, Any] = {"color": "#222222", "linewidth": 1.0, "linestyle": (0, (5, 3))}
TARGET: dict[str, Any] = {**EDGE, "linewidth": 1.1}
UNMEASURED: dict[str, Any] = {"color": "#f0f0f0", "linewidth": 0, "zorder": 0}
CHANGE: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": ":"}
#: The look of a text inside a figure.
NOTE: dict[str, Any] = {"fontsize": 8, "color": "#333333"}
#: Height of a line of a legend, in inches.
LEGEND_LINE = 0.16
#: The background of a text on top of curves.
ON_WHITE: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
#: The format of numbers without powers of ten.
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
#: Width in inches below which a figure is narrow, and number of letters of a title per inch.
NARROW, LETTERS_PER_INCH = 5.0, 16.0
#: Ratio of maximum and minimum from which a scale of colours is logarithmic.
WIDE = 30.0


def small_multiples(
    count: int,
    column_count: int,
    width: float,
    height: float,
    *,
    more: float = 0.4,
    sharex: bool = False,
    sharey: bool = True,
) -> tuple[Plot, list[Axes]]:
    """Return a figure with several panels, and the panels.

    Parameters
    ----------
    count : int
        Number of panels.
    column_count : int
        Largest number of panels next to each other.
    width : float
        Width of the figure in inches.
    height : float
        Height of a row of panels in inches.
    more : float, default 0.4
        Height of everything else in inches.
    sharex : bool, default False
        True if all panels have the same x axis.
    sharey : bool, default True
        True if all panels have the same y axis.
    """
    column_count = max(1, min(column_count, count))
    lines = math.ceil(max(1, count) / column_count)
    figure = Plot(figsize=(width, more + height * lines), layout="constrained")
    grid = figure.subplots(lines, column_count, sharex=sharex, sharey=sharey, squeeze=False)
    panels = list(grid.flat)
    for place, axes in enumerate(panels):
        axes.set_visible(place < count)
        # A panel without another panel below it needs the labels of its x axis.
        if sharex and place < count <= place + column_count:
            axes.tick_params(labelbottom=True)
    return figure, panels[:count]


class Grid(LineCollection):
    """The grid of a panel, which is drawn as one collection of lines and not with each tick.

    It follows the ticks of the panel. A panel whose axis is not visible has a grid, too, so that
    panels with common axes need ticks only at the edge of the figure.

    Parameters
    ----------
    axes : Axes
        The panel.
    """

    def __init__(self, axes: Axes) -> None:
        super().__init__(
            [], colors=STYLE["grid.color"], linewidths=STYLE["grid.linewidth"], zorder=0.5
        )
        axes.grid(visible=False)
        axes.add_collection(self, autolim=False)
        self.set_transform(axes.transAxes)
        self.set_in_layout(False)

    def draw(self, renderer: RendererBase) -> None:
        """Draw the grid at the present ticks."""
        axes = self.axes
        assert axes is not None
        to_axes = axes.transScale + axes.transLimits
        (x_start, x_end), (y_start, y_end) = axes.get_xlim(), axes.get_ylim()
        columns = [(x, y_start) for x in axes.xaxis.get_majorticklocs() if x_start <= x <= x_end]
        lines = [(x_start, y) for y in axes.yaxis.get_majorticklocs() if y_start <= y <= y_end]
        places = to_axes.transform([*columns, *lines, (x_start, y_start)])
        upright = [((x, 0.0), (x, 1.0)) for x, _ in places[: len(columns)]]
        level = [((0.0, y), (1.0, y)) for _, y in places[len(columns) : -1]]
        self.set_segments([*upright, *level])
        super().draw(renderer)


def is_narrow(figure: Plot) -> bool:
    """Return True for a figure that has one column of a paper."""
    return float(figure.get_figwidth()) < NARROW


def wrapped(figure: Plot, text: str, share: float = 1.0) -> str:
    """Return a text wrapped for a narrow figure; any other figure gets it unchanged.

    Parameters
    ----------
    figure : Plot
        The figure.
    text : str
        The text.
    share : float, default 1.0
        The share of the figure's width that is available.
    """
    if not is_narrow(figure):
        return text
    return textwrap.fill(text, int(share * LETTERS_PER_INCH * figure.get_figwidth()))


def legend_within(axes: Axes, *, narrow_columns: int = 3, **options: Any) -> None:
    """Put a legend into the axes; in a narrow figure above them, where it does not cover curves.

    Parameters
    ----------
    axes : Axes
        The axes.
    narrow_columns : int, default 3
        Number of columns in a narrow figure.
    **options : Any
        Options of the legend.
    """
    figure = axes.get_figure()
    assert isinstance(figure, Plot)
    if not is_narrow(figure):
        axes.legend(**options)
        return
    if "handles" not in options:
        options["handles"] = axes.get_legend_handles_labels()[0]
    figure_options = {key: value for key, value in options.items() if key in ("handles", "title")}
    lines = math.ceil(len(options["handles"]) / narrow_columns) + ("title" in options)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + LEGEND_LINE * lines)
    figure.legend(loc="outside upper center", ncols=narrow_columns, **figure_options)


def stacked(figure: Plot, side_by_side: Sequence[float], height: float) -> tuple[Axes, ...]:
    """Return panels next to each other, or below each other in a narrow figure.

    Parameters
    ----------
    figure : Plot
        The figure.
    side_by_side : Sequence[float]
        Shares of the width.
    height : float
        Height of a narrow figure in inches.
    """
    if is_narrow(figure):
        figure.set_size_inches(figure.get_figwidth(), height)
        return tuple(figure.subplots(len(side_by_side), 1))
    return tuple(figure.subplots(1, len(side_by_side), width_ratios=list(side_by_side)))


def label_all(figure: Plot, x: str = "", y: str = "") -> None:
    """Label the axes of all panels together.

    Parameters
    ----------
    figure : Plot
        The figure.
    x : str, default ''
        Label of the x axes; empty for none.
    y : str, default ''
        Label of the y axes; empty for none.
    """
    if x:
        figure.supxlabel(x, fontsize=STYLE["font.size"])
    if y:
        figure.supylabel(y, fontsize=STYLE["font.size"])


def legend_beside(axes: Axes, columns: int = 1) -> None:
    """Put a legend to the right of the axes; above them in a narrow column of a paper.

    Parameters
    ----------
    axes : Axes
        The axes.
    columns : int, default 1
        Number of columns of the legend.
    """
    if not style.printed():
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), ncols=columns)
        return
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))


def legend_below(figure: Plot, axes: Axes) -> None:
    """Put a legend below all panels, with each label once.

    Parameters
    ----------
    figure : Plot
        The figure.
    axes : Axes
        The axes that have the curves.
    """
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    columns = min(5, len(handles))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)


def plain_log(axis: Any, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Label a logarithmic axis with numbers without powers of ten.

    Parameters
    ----------
    axis : Any
        The axis.
    steps : Sequence[float], default (1.0, 2.0, 5.0)
        Positions of the ticks in each decade.
    """
    axis.set_major_locator(LogLocator(subs=steps, numticks=99))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_formatter(NullFormatter())


def plain_log_x(axes: Axes) -> None:
    """Make the x axis logarithmic, with as many plain numbers as fit."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    plain_log(axes.xaxis, (1, 2, 3, 4, 6, 8) if high < 10 * low else (1, 2, 5))


def telling_scale(axes: Axes, values: Sequence[float]) -> None:
    """Choose a y axis that shows differences without magnifying noise.

    Parameters
    ----------
    axes : Axes
        The axes.
    values : Sequence[float]
        The values of all curves.
    """
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return
    low, high = min(numbers), max(numbers)
    if low > 0 and high > 8 * low:
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()}\n(logarithmic)")
        plain_log(axes.yaxis)
        return
    bottom, top = axes.get_ylim()
    if low < 0.9 * high:
        # Values are never negative, but a dot at zero needs some space below it.
        bottom, top = (-0.03 * top if low < 0.03 * top else 0.0), 1.05 * top
    # Differences of less than a percent must not fill the axis.
    elif (missing := 0.02 * abs(high) - (top - bottom)) > 0:
        bottom, top = bottom - missing / 2, top + missing / 2
    if "%" in axes.get_ylabel():
        top = min(top, 100 + 0.05 * (100 - bottom))
    axes.set_ylim(bottom, top)
    axes.ticklabel_format(axis="y", useOffset=False)


def dots(
    axes: Axes,
    x: Any,
    y: Any,
    look: int,
    label: str,
    *,
    yerr: Any = None,
    xerr: Any = None,
    **options: Any,
) -> None:
    """Draw dots with intervals; an interval that is NaN is omitted.

    Parameters
    ----------
    axes : Axes
        The axes.
    x : Any
        Positions.
    y : Any
        Values.
    look : int
        Index of the colour and the marker.
    label : str
        Label in the legend.
    yerr : Any, optional
        Half widths of the intervals along y.
    xerr : Any, optional
        Half widths of the intervals along x.
    **options : Any
        Further options of `errorbar`.
    """
    look_of: dict[str, Any] = {
        "fmt": style.marker(look),
        "color": style.colour(look),
        "markerfacecolor": style.filling(look),
        "markersize": 5,
        "capsize": 3,
        "linewidth": 1.2,
    }
    for key, half in (("yerr", yerr), ("xerr", xerr)):
        if half is not None:
            look_of[key] = np.nan_to_num(half)
    axes.errorbar(x, y, label=label, **look_of | options)


def named_places(axes: Axes, names: Sequence[str]) -> None:
    """Name positions along the x axis, without grid lines between them.

    Parameters
    ----------
    axes : Axes
        The axes.
    names : Sequence[str]
        The names, for the positions 0, 1, and so on.
    """
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), names)


def wide_norm(values: NDArray[np.float64]) -> Normalize:
    """Return a scale of colours, which is logarithmic if the values span a wide range."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low > 0 and high > WIDE * low:
        return LogNorm(low, high)
    return Normalize(low, high)


def heat_maps(
    figure: Plot,
    panels: Sequence[Axes],
    tables: Sequence[NDArray[np.float64]],
    titles: Sequence[str],
    *,
    norm: Normalize,
    label: str,
    places: Callable[[Axes], None],
    colours: str | Colormap = "cividis",
    shrink: float = 0.9,
    **bar: Any,
) -> Any:
    """Draw tables of cells as colours, and return the colour bar.

    Parameters
    ----------
    figure : Plot
        The figure.
    panels : Sequence[Axes]
        The panels.
    tables : Sequence[NDArray[np.float64]]
        The values of each panel.
    titles : Sequence[str]
        The title of each panel.
    norm : Normalize
        Scale of the colours.
    label : str
        Label of the colour bar.
    places : Callable[[Axes], None]
        A function that puts ticks on a panel, whose cells have width 1 and begin at 0.
    colours : str | Colormap, default 'cividis'
        Map of the colours.
    shrink : float, default 0.9
        Height of the colour bar relative to the figure.
    **bar : Any
        Further options of the colour bar.
    """
    for axes, table, title in zip(panels, tables, titles, strict=True):
        mesh = axes.pcolormesh(table, cmap=colours, norm=norm)
        axes.set_title(title)
        axes.grid(visible=False)
        places(axes)
    return figure.colorbar(mesh, ax=list(figure.axes), label=label, shrink=shrink, **bar)


def bode_panels(title: str) -> tuple[Plot, Axes, Axes]:
    """Return a figure with panels for the gain in dB and the phase in degrees over frequency."""
    figure = Plot(figsize=(7.2, 5.4), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True)
    top.set_xscale("log")
    top.axhline(0, **EDGE)
    bottom.axhline(-180, **EDGE)
    top.set_ylabel("Loop gain [dB]")
    bottom.set(xlabel="Frequency [rad/s]", ylabel="Phase [degrees]")
    top.set_title(title)
    return figure, top, bottom


def quarter_turns(axes: Axes) -> None:
    """Put a tick at every multiple of 90°."""
    axes.yaxis.set_major_locator(MultipleLocator(90))


def titled(title: str, subject: str) -> str:
    """Return "TITLE: subject", or "Subject" without a title.

    Parameters
    ----------
    title : str
        The title; empty for none.
    subject : str
        The subject of the figure.
    """
    return f"{title}: {subject}" if title else subject[0].upper() + subject[1:]


def write_at(axes: Axes, text: str, place: tuple[float, float], **options: Any) -> None:
    """Write a text at a position of the axes, from (0, 0) to (1, 1).

    Parameters
    ----------
    axes : Axes
        The axes.
    text : str
        The text.
    place : tuple[float, float]
        The position.
    **options : Any
        Options of the text.
    """
    axes.annotate(text, place, xycoords="axes fraction", **NOTE | options)


def write_next_to(
    axes: Axes, text: str, place: tuple[float, float], by: tuple[float, float], **options: Any
) -> None:
    """Write a text next to a value.

    Parameters
    ----------
    axes : Axes
        The axes.
    text : str
        The text.
    place : tuple[float, float]
        The value.
    by : tuple[float, float]
        Offset in points; the text is to the left of the value if the first is negative.
    **options : Any
        Options of the text.
    """
    side = {"ha": "left" if by[0] >= 0 else "right", "bbox": ON_WHITE}
    axes.annotate(text, place, xytext=by, textcoords="offset points", **NOTE | side | options)
