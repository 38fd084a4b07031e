"""The maps of the atlas: the best law of each cell, and where each law fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.colors import LogNorm, Normalize, to_rgb
from matplotlib.patches import Patch, Rectangle

from forebay.report import parts
from forebay.report.plot import Plot, styled
from forebay.report.style import COLOURS
from tools.atlas import places
from tools.atlas.places import FLOWS, RATE, RTT, Axis, BestInPart
from tools.atlas.runs import LEAST_S, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colour of laws without a colour of their own.
OTHER = "#999999"
#: Strength of a colour where the lead is not significant, and elsewhere.
PALE, FULL = 0.25, 0.7
IN_A_ROW = 5

#: The maps of the best laws: across, up, and the axis whose thirds have a panel each.
WINNERS = {
    "atlas-rate-flows": (RATE, FLOWS, RTT),
    "atlas-rate-rtt": (RATE, RTT, FLOWS),
}
#: Mean number of links per cell below which the cells are coarser.
ENOUGH = 6
Cells = dict[tuple[str, int], dict[tuple[int, int], BestInPart]]


def axes_of(runs: Runs, name: str) -> tuple[Axis, Axis, Axis]:
    """Return the axes across, up and by panel.

    They are divided into sixths if there are enough links, otherwise into thirds.
    """
    x, y, panel = WINNERS[name]
    links = runs.points / runs.table["tcp"].n_unique()
    fine = links >= ENOUGH * (len(x.edges) - 1) * (len(y.edges) - 1) * 3
    return (x, y, panel) if fine else (x.thirds(), y.thirds(), panel)


def cells(runs: Runs, x: Axis, y: Axis, panel: Axis) -> Cells:
    """Return the best law of each cell, by sender and third of the panels' axis."""
    return {
        (str(tcp), third): {
            at: places.best(rows) for at, rows in places.grid(of_third, x, y).items()
        }
        for (tcp,), of_tcp in runs.table.group_by("tcp", maintain_order=True)
        for third, of_third in places.parts(of_tcp, panel.thirds())
    }


def colours(maps: dict[str, Cells]) -> dict[str, str]:
    """Return a colour for each of the laws that are best most often, over all maps."""
    count = Counter(
        best.law
        for cells_ in maps.values()
        for panel in cells_.values()
        for best in panel.values()
        if best.law is not None
    )
    # The name decides between equal counts, so that the same runs give the same colours.
    first = sorted(count, key=lambda law: (-count[law], law))
    return dict(zip(first, COLOURS[:6], strict=False))


@styled
def winners(cells_: Cells, x: Axis, y: Axis, panel: Axis, colour: dict[str, str]) -> Plot:
    """Draw a row of panels for each sender; each cell names the best law."""
    senders = list(dict.fromkeys(tcp for tcp, _ in cells_))
    bands = panel.thirds()
    figure = Plot(figsize=(11.5, 3.4 * len(senders) + 0.5), layout="constrained")
    grid = figure.subplots(len(senders), 3, squeeze=False, sharex=True, sharey=True)
    for i, tcp in enumerate(senders):
        for j in range(3):
            axes: Axes = grid[i, j]
            axes.set_title(f"{tcp}, {bands.part(j)}")
            for at, best in cells_.get((tcp, j), {}).items():
                _cell(axes, at, best, colour)
            _ticks(axes, x, y)
    parts.label_all(figure, f"{x.title} [{x.unit}]", _label(y))
    used = {best.law for panel_ in cells_.values() for best in panel_.values()}
    handles = [Patch(color=_shade(c, FULL), label=law) for law, c in colour.items() if law in used]
    if used - {None, *colour}:
        handles.append(Patch(color=_shade(OTHER, FULL), label="another law"))
    pale = _shade(COLOURS[0], PALE)
    handles.append(Patch(color=pale, label="pale: not alone, with + how many"))
    figure.legend(handles=handles, loc="outside upper right", ncols=8)
    return figure


def _cell(axes: Axes, at: tuple[int, int], best: BestInPart, colour: dict[str, str]) -> None:
    """Draw a cell."""
    if best.law is None:
        return
    shade = _shade(colour.get(best.law, OTHER), PALE if best.alike else FULL)
    axes.add_patch(Rectangle(at, 1, 1, facecolor=shade, edgecolor="white", linewidth=1))
    text = f"{best.law}\n+{len(best.alike)}" if best.alike else best.law
    axes.text(at[0] + 0.5, at[1] + 0.5, text, ha="center", va="center", fontsize=6.5)


def _shade(colour: str, strength: float) -> tuple[float, float, float]:
    """Return a colour blended with white, which a legend shows in the same way as a cell."""
    r, g, b = (1 - strength * (1 - part) for part in to_rgb(colour))
    return r, g, b


def _label(axis: Axis) -> str:
    """Return the name and the unit of an axis."""
    return axis.title if axis.unit == axis.title else f"{axis.title} [{axis.unit}]"


def _ticks(axes: Axes, x: Axis, y: Axis, every: int = 1) -> None:
    """Put a tick at every edge, or at every n-th."""
    axes.set_xlim(0, len(x.edges) - 1)
    axes.set_ylim(0, len(y.edges) - 1)
    axes.set_xticks(range(0, len(x.edges), every), [x.number(e) for e in x.edges[::every]])
    axes.set_yticks(range(0, len(y.edges), every), [y.number(e) for e in y.edges[::every]])
    axes.grid(visible=False)


def _mean_kept(rows: pl.DataFrame) -> float:
    """Return the mean goodput relative to the best law's, in %."""
    return 100 * float(np.mean(rows["kept"].to_numpy()))


def _mean_delay(rows: pl.DataFrame) -> float:
    """Return the geometric mean of the delay in ms."""
    delays = np.maximum(rows["delay_p95_s"].to_numpy(), LEAST_S)
    return 1e3 * float(np.exp(np.mean(np.log(delays))))


def breaks(runs: Runs) -> Plot:
    """Draw the share of the best goodput that each law reaches; half of it and less look alike."""
    label = "goodput [% of the best law's]"
    return _of_laws(
        runs, _mean_kept, Normalize(50, 100), label, "cividis", [50, 60, 70, 80, 90, 100]
    )


def delays(runs: Runs) -> Plot:
    """Draw the delay under each law."""
    label = "delay, 95th percentile [ms]"
    # The reversed colours make bright mean good, as in the other map.
    return _of_laws(
        runs, _mean_delay, LogNorm(1, 200), label, "cividis_r", [1, 3, 10, 30, 100, 200]
    )


@styled
def _of_laws(
    runs: Runs,
    value: Callable[[pl.DataFrame], float],
    norm: Any,
    label: str,
    colours: str,
    ticks: list[int],
) -> Plot:
    """Draw a map of rate and flows for each law, over all round trips and senders."""
    figure, panels = parts.small_multiples(
        len(runs.laws), IN_A_ROW, 10, 1.75, more=0.6, sharex=True
    )
    tables = []
    for law in runs.laws:
        table = np.full((len(FLOWS.edges) - 1, len(RATE.edges) - 1), np.nan)
        of_law = runs.table.filter(pl.col("law") == law)
        for (i, j), rows in places.grid(of_law, RATE, FLOWS).items():
            table[j, i] = value(rows)
        tables.append(table)
    bar = parts.heat_maps(
        figure,
        panels,
        tables,
        runs.laws,
        norm=norm,
        label=label,
        places=lambda axes: _ticks(axes, RATE, FLOWS, every=2),
        colours=colours,
        shrink=0.6,
    )
    bar.set_ticks(ticks, labels=[f"{tick}" for tick in ticks], minor=False)
    bar.ax.minorticks_off()
    parts.label_all(figure, "rate [Mbit/s]", "flows")
    return figure
