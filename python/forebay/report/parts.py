"""Parts that figures share: small multiples, legends, scales, dots with intervals, heat maps, and
the panels of a Bode diagram."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.ticker import FuncFormatter, LogLocator, MultipleLocator, NullFormatter
from numpy.typing import NDArray

from forebay.report import style
from forebay.report.plot import Plot
from forebay.report.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

#: Lines that say where stability ends, set-points, times outside the metrics, changes of a link.
EDGE: dict[str, Any] = {"color": "#222222", "linewidth": 1.0, "linestyle": (0, (5, 3))}
TARGET: dict[str, Any] = {**EDGE, "linewidth": 1.1}
UNMEASURED: dict[str, Any] = {"color": "#f0f0f0", "linewidth": 0, "zorder": 0}
CHANGE: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": ":"}
#: A word inside a figure.
NOTE: dict[str, Any] = {"fontsize": 8, "color": "#333333"}
#: Height of a line of a legend, in inches.
LEGEND_LINE = 0.16
#: Behind a word that lies on curves.
ON_WHITE: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
#: Numbers as they are, without powers of ten.
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
#: Width below which a figure is narrow, in inches; and letters of a title in an inch.
NARROW, LETTERS_PER_INCH = 5.0, 16.0
#: How many times its least a metric must reach for a logarithmic scale of colours or curves.
WIDE = 30.0


def small_multiples(
    count: int,
    most: int,
    width: float,
    height: float,
    *,
    more: float = 0.4,
    sharex: bool = False,
    sharey: bool = True,
) -> tuple[Plot, list[Axes]]:
    """A figure with `count` panels, at most so many beside each other.

    width: of the figure. height: of a line of panels, and `more` of all else, in inches.
    """
    columns = max(1, min(most, count))
    lines = math.ceil(max(1, count) / columns)
    figure = Plot(figsize=(width, more + height * lines), layout="constrained")
    grid = figure.subplots(lines, columns, sharex=sharex, sharey=sharey, squeeze=False)
    panels = list(grid.flat)
    for place, axes in enumerate(panels):
        axes.set_visible(place < count)
        # Above a panel that is not there, the axis of the one below it.
        if sharex and place < count <= place + columns:
            axes.tick_params(labelbottom=True)
    return figure, panels[:count]


def is_narrow(figure: Plot) -> bool:
    """Return True for a figure that has one column of a paper."""
    return float(figure.get_figwidth()) < NARROW


def wrapped(figure: Plot, text: str, share: float = 1.0) -> str:
    """Return a text in lines that have room in a share of a narrow figure; otherwise as it is."""
    if not is_narrow(figure):
        return text
    return textwrap.fill(text, int(share * LETTERS_PER_INCH * figure.get_figwidth()))


def legend_within(axes: Axes, *, narrow_columns: int = 3, **how: Any) -> None:
    """Put a legend into the axes; above them in a narrow figure, where it would cover curves."""
    figure = axes.get_figure()
    assert isinstance(figure, Plot)
    if not is_narrow(figure):
        axes.legend(**how)
        return
    if "handles" not in how:
        how["handles"] = axes.get_legend_handles_labels()[0]
    figure_options = {key: value for key, value in how.items() if key in ("handles", "title")}
    lines = math.ceil(len(how["handles"]) / narrow_columns) + ("title" in how)
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + LEGEND_LINE * lines)
    figure.legend(loc="outside upper center", ncols=narrow_columns, **figure_options)


def stacked(figure: Plot, side_by_side: Sequence[float], height: float) -> tuple[Axes, ...]:
    """Return panels side by side with these shares of the width; in a narrow figure one below the
    other, in `height` inches altogether."""
    if is_narrow(figure):
        figure.set_size_inches(figure.get_figwidth(), height)
        return tuple(figure.subplots(len(side_by_side), 1))
    return tuple(figure.subplots(1, len(side_by_side), width_ratios=list(side_by_side)))


def label_all(figure: Plot, x: str = "", y: str = "") -> None:
    """Labels of the axes of all panels together."""
    if x:
        figure.supxlabel(x, fontsize=STYLE["font.size"])
    if y:
        figure.supylabel(y, fontsize=STYLE["font.size"])


def legend_beside(axes: Axes, columns: int = 1) -> None:
    """A legend to the right of the axes; above them in a column of a paper, which is narrow."""
    if not style.printed():
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), ncols=columns)
        return
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))


def legend_below(figure: Plot, axes: Axes) -> None:
    """A legend below all panels, each label once."""
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    columns = min(5, len(handles))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=columns)


def plain_log(axis: Any, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Numbers without powers of ten along a logarithmic axis, at these steps of each decade."""
    axis.set_major_locator(LogLocator(subs=steps, numticks=99))
    axis.set_major_formatter(PLAIN)
    axis.set_minor_formatter(NullFormatter())


def plain_log_x(axes: Axes) -> None:
    """A logarithmic x axis with as many plain numbers as have room."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    plain_log(axes.xaxis, (1, 2, 3, 4, 6, 8) if high < 10 * low else (1, 2, 5))


def telling_scale(axes: Axes, values: Sequence[float]) -> None:
    """Chooses a y axis that shows differences and does not magnify noise."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return
    low, high = min(known), max(known)
    if low > 0 and high > 8 * low:
        axes.set_yscale("log")
        axes.set_ylabel(f"{axes.get_ylabel()}\n(logarithmic)")
        plain_log(axes.yaxis)
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


def interval_within(mean: Any, half: Any, *, percent: bool) -> NDArray[np.float64]:
    """Return how far an interval reaches below and above each mean, as rows.

    No quantity here is negative, and a share is at most 100 %: what Student's t adds beyond that is
    cut off. half: half the interval's width, NaN without one.
    """
    mean, half = np.asarray(mean, float), np.nan_to_num(np.asarray(half, float))
    below = np.minimum(half, np.maximum(mean, 0.0))
    above = np.minimum(half, np.maximum(100.0 - mean, 0.0)) if percent else half
    return np.array([below, above])


def dots(
    axes: Axes,
    x: Any,
    y: Any,
    look: int,
    label: str,
    *,
    yerr: Any = None,
    xerr: Any = None,
    **how: Any,
) -> None:
    """Dots with intervals; one that is NaN is left out."""
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
    axes.errorbar(x, y, label=label, **look_of | how)


def named_places(axes: Axes, names: Sequence[str]) -> None:
    """Places along the x axis with a name each, and no lines between them."""
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.set_xticks(range(len(names)), names)


def aside(rank: int, count: int, room: float = 0.8) -> float:
    """Return the offset of one of `count` marks from the middle of their place."""
    return (rank - (count - 1) / 2) * room / max(1, count)


def wide_norm(values: NDArray[np.float64]) -> Normalize:
    """Return a scale of colours, which is logarithmic where values are far apart."""
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
) -> Any:
    """Tables of cells as colours, with the bar that explains them, which is returned.

    places: puts ticks on a panel, whose cells are one wide and begin at 0.
    """
    for axes, table, title in zip(panels, tables, titles, strict=True):
        mesh = axes.pcolormesh(table, cmap=colours, norm=norm)
        axes.set_title(title)
        axes.grid(visible=False)
        places(axes)
    return figure.colorbar(mesh, ax=list(figure.axes), label=label, shrink=shrink)


def bode_panels(title: str) -> tuple[Plot, Axes, Axes]:
    """Panels of a loop gain over frequency: its size in dB, and its angle in degrees."""
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
    """Ticks every 90°."""
    axes.yaxis.set_major_locator(MultipleLocator(90))


def titled(title: str, what: str) -> str:
    """ "TITLE: what", or "What" alone."""
    return f"{title}: {what}" if title else what[0].upper() + what[1:]


def at_corner(axes: Axes, text: str, place: tuple[float, float], **how: Any) -> None:
    """A word at a place of the axes, from (0, 0) to (1, 1)."""
    axes.annotate(text, place, xycoords="axes fraction", **NOTE | how)


def beside(
    axes: Axes, text: str, place: tuple[float, float], by: tuple[float, float], **how: Any
) -> None:
    """A word at a value, moved by so many points; to the left of it where `by` is negative."""
    side = {"ha": "left" if by[0] >= 0 else "right", "bbox": ON_WHITE}
    axes.annotate(text, place, xytext=by, textcoords="offset points", **NOTE | side | how)
