"""Figures of a comparison: agreement within the limits, and the spread of delays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from forebay._base import statistics
from forebay.comparison.engine_comparison import DELAY_S, DELAY_SHARE, METRICS, SIGNAL_SHARE
from forebay.report import parts
from forebay.report.drawing import percent_scale
from forebay.report.kinds import LEAST_PERCENT, waited_longer
from forebay.report.pages import PageFigure
from forebay.report.plot import Plot, styled
from forebay.report.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.comparison.engine_comparison import Difference, Row, Side, ValidatedScenario

#: How each side is drawn.
LOOKS: list[dict[str, Any]] = [
    {"color": COLOURS[0], "marker": "o"},
    {"color": COLOURS[1], "marker": "s"},
]
BAND: dict[str, Any] = {"color": "#dddddd", "linewidth": 0, "zorder": 0}
#: Room of a law along the axis, and where its two sides stand in it.
ROOM, ASIDE = 0.8, 0.16
#: An axis that spans more is logarithmic.
MOST_LINEAR = 4.0
#: Curves in one row of the figure.
COLUMNS = 5
#: A narrower figure would be blown up to the width of the page.
LEAST_WIDTH_IN = 8.0


def figures(found: ValidatedScenario, number: int) -> list[PageFigure]:
    """The figures of one scenario; `number` tells their names from those of others."""
    if not found.rows:
        return []
    shown = [
        PageFigure(
            f"agreement-{number}",
            partial(agreement, found),
            "Mean delay, and packets dropped or marked",
            "Mean over the runs with its 95 % confidence interval. The grey band shows where "
            f"the {found.sides[0]} mean agrees with the {found.sides[1]} one: within "
            f"{100 * DELAY_SHARE:g} % or {1e3 * DELAY_S:g} ms for the delay, "
            f"{100 * SIGNAL_SHARE:g} % for the loss. A law "
            "agrees if both blue marks lie in their bands.",
        )
    ]
    if all(side.observed for row in found.rows for side in row.sides):
        shown.append(
            PageFigure(
                f"delays-{number}",
                partial(delays, found),
                "Queuing delay",
                "Share of packets that waited longer than the time on the axis, over all runs. "
                "A curve crosses 1 % at the 99th percentile.",
            )
        )
    return shown


@styled
def agreement(found: ValidatedScenario) -> Plot:
    """Mean delay and loss of each law, on both sides, in the band where they agree."""
    rows = found.rows
    figure = Plot(figsize=(max(10.0, 2.0 + 0.8 * len(rows)), 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    delay = METRICS["delay_mean_s"]
    _panel(
        upper,
        rows,
        delay.scale,
        [row.delay for row in rows],
        lambda side: side.values("delay_mean_s"),
    )
    upper.set_ylabel(delay.heading)
    _panel(lower, rows, 100.0, [row.signals for row in rows], lambda side: side.signal_rates)
    lower.set_ylabel("Drops and marks [%]")
    parts.named_places(lower, [row.name for row in rows])
    upper.grid(axis="x", visible=False)
    if len(rows) > 6:
        lower.tick_params(axis="x", labelrotation=30)
    handles = [*upper.get_legend_handles_labels()[0], Patch(label="agrees", **BAND)]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


@styled
def delays(found: ValidatedScenario) -> Plot:
    """Share of packets that waited longer than a given time: a panel per law, a curve per side."""
    rows = found.rows
    width = max(LEAST_WIDTH_IN, 2.3 * min(COLUMNS, len(rows)) + 0.6)
    figure, panels = parts.small_multiples(len(rows), COLUMNS, width, 2.1, more=0.6)
    for axes, row in zip(panels, rows, strict=True):
        for name, look, side in zip(row.names, LOOKS, row.sides, strict=True):
            delay_ms, longer = waited_longer(side.observed, LEAST_PERCENT / 1000)
            axes.plot(delay_ms, 100 * longer, color=look["color"], linewidth=1.2, label=name)
        axes.set_title(row.name)
        percent_scale(axes, LEAST_PERCENT)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    parts.label_all(figure, "Queuing delay [ms]", "Packets that waited longer")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _panel(
    axes: Axes,
    rows: list[Row],
    scale: float,
    differences: list[Difference],
    values: Callable[[Side], list[float]],
) -> None:
    # Otherwise the axis could end at the edge of a band and cut a mark in half.
    axes.use_sticky_edges = False
    seen: list[float] = []
    for place, one in enumerate(differences):
        low, high = scale * (one.reference - one.limit), scale * (one.reference + one.limit)
        axes.bar(place, high - low, ROOM, bottom=low, **BAND)
        seen += [low, high]
    for look, (name, how) in enumerate(zip(rows[0].names, LOOKS, strict=True)):
        sides = [row.sides[look] for row in rows]
        cells = [statistics.mean_and_interval([scale * v for v in values(side)]) for side in sides]
        at = [place + (-ASIDE, ASIDE)[look] for place in range(len(rows))]
        mean, half = zip(*cells, strict=True)
        parts.dots(axes, at, mean, look, name, yerr=half, fmt=how["marker"])
        seen += mean
    if min(seen) > 0 and max(seen) > MOST_LINEAR * min(seen):
        axes.set_yscale("log")
        parts.plain_log(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)
