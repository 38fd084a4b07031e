"""What single flows and transfers got: goodput over time, and times of completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from forebay.report import plots, style, words
from forebay.report.classes import COLUMNS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay._native import GoodputSeries, PointInfo, TrafficInfo
    from forebay.report.plots import Floats, Plot
    from forebay.run.runs import Runs


def shows_goodput(result: Runs, point: int, link: int) -> bool:
    """Whether what flows got over time is known there."""
    return any(of.columns and len(of.columns[0]) for of in of_flows(result, point, link))


def goodput(result: Runs, point: int, link: int) -> Plot:
    """Goodput of each flow over time with the first seed, a row per law, a colour per traffic."""
    info = result.plan.points[point]
    laws = list(result.laws(point))
    figure = plots.Plot(figsize=(10, 1.2 + 1.5 * len(laws)))
    grid = figure.subplots(len(laws), 1, sharex=True, sharey=True, squeeze=False)
    start, end = info.measure_s
    unmeasured = [(low, high) for low, high in [(0.0, start), (end, info.duration_s)] if high > low]
    series = of_flows(result, point, link)
    shown = {of.traffic: of for of in series}
    for (index, law), (axes,) in zip(laws, grid, strict=True):
        for of in result.at(point, index, link)[0].goodput:
            if of.traffic in shown:
                _draw_flows(axes, of)
        for low, high in unmeasured:
            axes.axvspan(low, high, **plots.UNMEASURED_STYLE)
        for change in info.changes:
            axes.axvline(change.time_s, **plots.CHANGE_STYLE)
        axes.set_title(f"{law.label}, seed {result.of(point, index)[0].seed}")
        axes.yaxis.set_major_locator(MaxNLocator(4))
    grid[0][0].set_xlim(0, info.duration_s)
    # A peak of slow start would press all else to the axis.
    highest = max((_highest_mbps(of, start, end) for of in series), default=0.0)
    grid[0][0].set_ylim(0, 1.1 * highest or 1)
    grid[-1][0].set_xlabel("Time [s]")
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=_colour(i), label=f"{_sender(info.traffic[i])}{_note(of)}")
        for i, of in sorted(shown.items())
    ]
    if unmeasured:
        grey = plots.UNMEASURED_STYLE["color"]
        handles.append(Patch(facecolor=grey, label="not in the metrics"))
    lines = plots.legend_above(figure, handles, min(3, len(handles)))
    plots.rows_of_time(figure, len(laws), "Goodput of a flow [Mbit/s]", lines)
    return figure


def of_flows(result: Runs, point: int, link: int) -> list[GoodputSeries]:
    """With the first seed of each law. Traffic of transfers is left out where there is other."""
    series = [
        of
        for law, _ in result.laws(point)
        for observed in result.at(point, law, link)[:1]
        for of in observed.goodput
    ]
    transfers = with_transfers(result, point, link)
    return [of for of in series if of.traffic not in transfers] or series


def _draw_flows(axes: Axes, of: GoodputSeries) -> None:
    """Curves of single flows, or a median in bands."""
    mbps = [1e-6 * column.astype(float) for column in of.columns]
    if not mbps:
        return
    times = of.interval_s * np.arange(len(mbps[0]) + 1)
    colour = _colour(of.traffic)

    def steps(values: Floats) -> Floats:
        return np.concatenate([values[:1], values])

    if not of.quantiles:
        width = 1.2 if len(mbps) == 1 else 0.7
        for values in mbps:
            axes.plot(times, steps(values), color=colour, linewidth=width, drawstyle="steps-pre")
        return
    middle = len(mbps) // 2
    for low, high, alpha in zip(mbps[:middle], mbps[:middle:-1], [0.15, 0.3], strict=True):
        axes.fill_between(
            times, steps(low), steps(high), step="pre", color=colour, alpha=alpha, linewidth=0
        )
    axes.plot(times, steps(mbps[middle]), color=colour, linewidth=1.0, drawstyle="steps-pre")


def _highest_mbps(of: GoodputSeries, start_s: float, end_s: float) -> float:
    """In any interval that ends within the measurement; of all, where none does."""
    if not of.columns or not len(of.columns[0]):
        return 0.0
    ends_s = of.interval_s * np.arange(1, len(of.columns[0]) + 1)
    inside = (ends_s > start_s) & (ends_s <= end_s + plots.TINY_S)
    rows = inside if inside.any() else slice(None)
    return 1e-6 * max(float(np.max(column[rows])) for column in of.columns)


def _sender(traffic: TrafficInfo) -> str:
    return f"{traffic.label}, {traffic.tcp}" if traffic.tcp else traffic.label


def _note(of: GoodputSeries) -> str:
    """What the curves are, for a legend."""
    if not of.quantiles:
        return f" ({of.flows} curves)" if of.flows > 1 else ""
    outer, inner = (round(100 * (1 - 2 * share)) for share in of.quantiles[:2])
    return f" (median of {of.flows}; bands of {inner} % and {outer} %)"


def goodput_caption(result: Runs, point: PointInfo, link: int) -> tuple[str, str]:
    """Title and caption."""
    del result
    where = f" across {point.links[link].name}" if len(point.links) > 1 else ""
    return (
        f"Goodput per flow over time{where}",
        "In-order data of each flow, by the time when it left the last queue, with the first seed. "
        "Traffic of up to 20 flows has a curve for each; of more, the median over its flows, in "
        "bands that hold the middle half and nine tenths of them. Peaks outside the measurement "
        "are cut off.",
    )


def shows_completions(result: Runs, point: int, link: int) -> bool:
    """Whether any transfer was done there."""
    return bool(with_transfers(result, point, link))


def completions(result: Runs, point: int, link: int) -> Plot:
    """Share of transfers that took no longer, a panel per traffic, a curve per law."""
    info = result.plan.points[point]
    kinds = with_transfers(result, point, link)
    columns = max(1, min(COLUMNS, len(kinds)))
    lines = -(-max(1, len(kinds)) // columns)
    figure = plots.Plot(figsize=(10, 0.4 + 3.2 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for axes, kind in zip(panels, kinds, strict=False):
        for index, law in result.laws(point):
            took = took_s(result, point, index, link, kind)
            if not len(took):
                continue
            share = 100 * np.arange(len(took) + 1) / len(took)
            axes.step(
                np.concatenate([took[:1], took]),
                share,
                where="post",
                color=_colour(index),
                linestyle=style.dash(index),
                label=law.label,
                linewidth=1.2,
            )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s:g}"))
        axes.set_title(info.traffic[kind].label)
        axes.set_xlabel("Completion time [s], logarithmic")
    for axes in panels[len(kinds) :]:
        axes.set_visible(False)
    panels[0].set_ylim(0, 102)
    figure.supylabel("Transfers that took no longer [%]", fontsize=plots.STYLE["font.size"])
    handles, labels = panels[0].get_legend_handles_labels()
    if handles:
        figure.legend(
            handles,
            labels,
            loc="outside upper center" if style.printed() else "outside right upper",
        )
    return figure


def with_transfers(result: Runs, point: int, link: int) -> list[int]:
    """Traffic of which any run has seen a transfer done."""
    seen = [
        one.transfer_traffic for law, _ in result.laws(point) for one in result.at(point, law, link)
    ]
    return [int(kind) for kind in np.unique(np.concatenate(seen))] if seen else []


def took_s(result: Runs, point: int, law: int, link: int, kind: int) -> Floats:
    """Times that the transfers of one traffic took under a law, sorted."""
    seen = result.at(point, law, link)
    return np.sort(np.concatenate([one.transfer_s[one.transfer_traffic == kind] for one in seen]))


def completions_caption(result: Runs, point: PointInfo, link: int) -> tuple[str, str]:
    """Title and caption."""
    where = f" across {point.links[link].name}" if len(point.links) > 1 else ""
    return (
        f"Completion of transfers{where}",
        "Share of the transfers that took no longer than the time on the axis, from the SYN to the "
        f"last ACK; those that were done {words.measured_over(result, point)}. A curve "
        "further left means faster transfers.",
    )


def _colour(index: int) -> str:
    return plots.COLOURS[index % len(plots.COLOURS)]
