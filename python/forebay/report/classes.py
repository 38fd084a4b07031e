"""The queuing delay of each class of a queue: a figure, and a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FuncFormatter

from forebay.report import plots, style, words
from forebay.run.metrics import CLASS_METRICS, with_interval

if TYPE_CHECKING:
    from forebay._native import ClassObserved, PointInfo
    from forebay.report.plots import Floats, Plot
    from forebay.run.runs import Runs

#: Of a logarithmic axis; a wait that is shorter is none to a reader.
LEAST_MS = 0.01
#: Panels side by side.
COLUMNS = 3


@dataclass(frozen=True)
class Row:
    """One class under one law."""

    law: str
    name: str
    cells: list[str]


def shows(result: Runs, point: int, link: int) -> bool:
    """Whether any law's queue told classes of packets apart there."""
    return any(result.class_names(point, law, link) for law, _ in result.laws(point))


def rows(result: Runs, point: int, link: int) -> list[Row]:
    """Law × class: each of `CLASS_METRICS` as mean ± interval over the seeds."""
    found = []
    for index, law in result.laws(point):
        for name in result.class_names(point, index, link):
            cells = []
            for metric in CLASS_METRICS.values():
                cell = result.class_cell(point, index, name, metric.name, link)
                cells.append(
                    with_interval(metric.scale * cell.mean, metric.scale * cell.half_width)
                )
            found.append(Row(law.label, name, cells))
    return found


def draw(result: Runs, point: int, link: int) -> Plot:
    """Share of the packets of a class that waited no longer, a panel per law that has classes."""
    laws = [(i, law) for i, law in result.laws(point) if result.class_names(point, i, link)]
    columns = max(1, min(COLUMNS, len(laws)))
    lines = -(-max(1, len(laws)) // columns)
    figure = plots.Plot(figsize=(10, 0.4 + 2.8 * lines), layout="constrained")
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for axes, (index, law) in zip(panels, laws, strict=False):
        observed = result.at(point, index, link)
        for i, name in enumerate(result.class_names(point, index, link)):
            of = [one for seen in observed for one in seen.classes if one.name == name]
            delay_ms, shorter = waited_no_longer(of)
            axes.step(
                delay_ms,
                100 * shorter,
                where="post",
                color=plots.COLOURS[i % len(plots.COLOURS)],
                linestyle=style.dash(i),
                label=name,
            )
        axes.set_title(law.label)
        axes.legend(loc="upper left", fontsize=plots.STYLE["font.size"] - 1)
    for axes in panels[len(laws) :]:
        axes.set_visible(False)
    panels[0].set_xscale("log")
    panels[0].xaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    panels[0].set_xlim(left=LEAST_MS)
    panels[0].set_ylim(0, 102)
    # Above a panel that is not there, the axis of the one below it.
    for place, axes in enumerate(panels[: len(laws)]):
        if place + columns >= len(laws):
            axes.tick_params(labelbottom=True)
            axes.set_xlabel("Queuing delay [ms], logarithmic")
    figure.supylabel("Packets that waited no longer [%]", fontsize=plots.STYLE["font.size"])
    return figure


def waited_no_longer(classes: list[ClassObserved]) -> tuple[Floats, Floats]:
    """Delays in ms, at least `LEAST_MS`, and the share of packets that waited no longer."""
    delay_ms = 1e3 * np.concatenate([one.delay_s for one in classes])
    packets = np.concatenate([one.delay_packets for one in classes]).astype(float)
    order = np.argsort(delay_ms, kind="stable")
    share = np.cumsum(packets[order]) / max(1.0, packets.sum())
    # The curve begins on the axis, at a class's least delay.
    delay_ms = np.maximum(delay_ms[order], LEAST_MS)
    return np.concatenate([delay_ms[:1], delay_ms]), np.concatenate([[0.0], share])


def caption(result: Runs, point: PointInfo, link: int) -> tuple[str, str]:
    """Title and caption."""
    where = f" at {point.links[link].name}" if len(point.links) > 1 else ""
    return (
        f"Queuing delay by class{where}",
        "Share of the packets of each class that waited no longer than the time on the axis, "
        f"{words.measured_over(result, point)}. Laws under which all packets are of one class "
        "are left out.",
    )
