"""The fluid model's picture: queue, window and probability over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay.experiment import descriptions
from forebay.report import parts, style
from forebay.report.over_time import target_pkts
from forebay.report.plot import Plot, styled

if TYPE_CHECKING:
    from forebay._native import FluidTrace, Plan


@styled
def draw(traces: Sequence[FluidTrace], plan: Plan | None = None) -> Plot:
    """Queue, window and probability of one law, a column per point; the plan has its set-points."""
    points = {point.label: point for point in plan.points} if plan else {}
    figure = Plot(figsize=(3.6 * len(traces) + 0.8, 6.0), layout="constrained")
    axes = figure.subplots(3, len(traces), squeeze=False, sharex="col")
    for trace, (queue, window, probability) in zip(traces, axes.T, strict=True):
        for panel, values in (
            (queue, trace.queue_pkts),
            (window, trace.window_pkts),
            (probability, trace.probability),
        ):
            for index, line in enumerate(values):
                panel.plot(trace.time_s, line, color=style.colour(index), linewidth=1.0)
            panel.set_ylim(bottom=0)
        point = points.get(trace.point)
        if point is not None:
            law = next(law for law in point.laws if law.label == trace.law)
            target = target_pkts(point, law, point.links[0])
            if target is not None:
                queue.axhline(target, label="set-point", zorder=1, **parts.TARGET)
                queue.legend()
        queue.set_title((point and descriptions.point(point)) or trace.law)
        probability.set_xlabel("Time [s]")
    names = ["Queue [packets]", "Window [packets]", "Signal probability"]
    for panel, name in zip(axes[:, 0], names, strict=True):
        panel.set_ylabel(name)
    if len(traces[0].classes) > 1:
        axes[1, -1].legend(axes[1, -1].lines, traces[0].classes)
    figure.suptitle(f"{traces[0].law} in the fluid model", x=0.01, ha="left")
    return figure
