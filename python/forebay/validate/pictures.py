"""Figures of a comparison: agreement within the limits, and the spread of delays."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

from forebay.report.page import Picture
from forebay.report.plots import COLOURS, STYLE, Plot, waited_longer
from forebay.validate.comparison import (
    DELAY_S,
    DELAY_SHARE,
    METRICS,
    SIGNAL_SHARE,
    Comparison,
    Difference,
    Row,
    Side,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How each side is drawn.
SIDES: dict[str, dict[str, Any]] = {
    "simulated": {"color": COLOURS[0], "marker": "o"},
    "real": {"color": COLOURS[1], "marker": "s"},
}
BAND: dict[str, Any] = {"color": "#dddddd", "linewidth": 0, "zorder": 0}
#: Room of a law along the axis, and where its two sides stand in it.
ROOM, ASIDE = 0.8, 0.16
#: An axis that spans more is logarithmic.
MOST_LINEAR = 4.0
#: Curves in one row of the figure.
COLUMNS = 5
#: A narrower figure would be blown up to the width of the page.
LEAST_WIDTH_IN = 8.0
#: Least share of packets that a curve shows.
LEAST_SHARE = 1e-4


def pictures(found: Comparison, number: int) -> list[Picture]:
    """The figures of one scenario; `number` tells their names from those of others."""
    if not found.rows:
        return []
    with mpl.rc_context(STYLE):
        shown = [
            Picture(
                f"agreement-{number}",
                agreement(found),
                "Mean delay, and packets dropped or marked",
                "Mean over the runs with its 95 % confidence interval. The grey band shows where "
                f"the simulated mean agrees with the real one: within {100 * DELAY_SHARE:g} % or "
                f"{1e3 * DELAY_S:g} ms for the delay, {100 * SIGNAL_SHARE:g} % for the loss. A law "
                "agrees if both blue marks lie in their bands.",
            )
        ]
        if all(side.observed for row in found.rows for side in (row.simulated, row.real)):
            shown.append(
                Picture(
                    f"delays-{number}",
                    delays(found),
                    "Queuing delay",
                    "Share of packets that waited longer than the time on the axis, over all runs. "
                    "A curve crosses 1 % at the 99th percentile.",
                )
            )
    for one in shown:
        one.render()
    return shown


def agreement(found: Comparison) -> Plot:
    """Mean delay and loss of each law, on both sides, in the band where they agree."""
    rows = found.rows
    figure = Plot(figsize=(max(10.0, 2.0 + 0.8 * len(rows)), 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    delay = METRICS["delay_mean_s"]
    _panel(upper, rows, delay.scale, [row.delay for row in rows], _delays)
    upper.set_ylabel(delay.heading)
    _panel(lower, rows, 100.0, [row.signals for row in rows], lambda side: side.signal_rates)
    lower.set_ylabel("Drops and marks [%]")
    lower.set_xticks(range(len(rows)), [row.name for row in rows])
    if len(rows) > 6:
        lower.tick_params(axis="x", labelrotation=30)
    for axes in (upper, lower):
        axes.grid(axis="x", visible=False)
        axes.set_xlim(-0.5, len(rows) - 0.5)
    handles = [*upper.get_legend_handles_labels()[0], Patch(label="agrees", **BAND)]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


def delays(found: Comparison) -> Plot:
    """Share of packets that waited longer than a given time: a panel per law, a curve per side."""
    columns = min(COLUMNS, len(found.rows))
    lines = math.ceil(len(found.rows) / columns)
    figure = Plot(
        figsize=(max(LEAST_WIDTH_IN, 2.3 * columns + 0.6), 2.1 * lines + 0.6),
        layout="constrained",
    )
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for axes, row in zip(grid.flat, found.rows, strict=False):
        for (name, style), side in zip(SIDES.items(), (row.simulated, row.real), strict=True):
            delay_ms, longer = waited_longer(side.observed, LEAST_SHARE / 10)
            axes.plot(delay_ms, longer, color=style["color"], linewidth=1.2, label=name)
        axes.set_title(row.name)
        axes.set_yscale("log")
        axes.set_ylim(LEAST_SHARE, 1.5)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.set_xlim(left=0)
    for axes in grid.flat[len(found.rows) :]:
        axes.set_visible(False)
    figure.supxlabel("Queuing delay [ms]", fontsize=9)
    figure.supylabel("Packets that waited longer", fontsize=9)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _panel(
    axes: Axes, rows: list[Row], scale: float, differences: list[Difference], values: Any
) -> None:
    from forebay.run import stats

    # Otherwise the axis could end at the edge of a band and cut a mark in half.
    axes.use_sticky_edges = False
    seen: list[float] = []
    for place, one in enumerate(differences):
        low, high = scale * (one.real - one.limit), scale * (one.real + one.limit)
        axes.bar(place, high - low, ROOM, bottom=low, **BAND)
        seen += [low, high]
    for (name, style), aside in zip(SIDES.items(), (-ASIDE, ASIDE), strict=True):
        cells = [
            stats.mean_and_interval(
                [scale * v for v in values(row.simulated if name == "simulated" else row.real)]
            )
            for row in rows
        ]
        axes.errorbar(
            [place + aside for place in range(len(rows))],
            [mean for mean, _ in cells],
            yerr=[np.nan_to_num(half_width) for _, half_width in cells],
            fmt=style["marker"],
            color=style["color"],
            label=name,
            markersize=5,
            capsize=3,
            linewidth=1.2,
        )
        seen += [mean for mean, _ in cells]
    if min(seen) > 0 and max(seen) > MOST_LINEAR * min(seen):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda _y, _p: ""))
    else:
        axes.set_ylim(bottom=0)


def _delays(side: Side) -> list[float]:
    return side.values("delay_mean_s")
