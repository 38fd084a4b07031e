"""The fluid model's picture: queue, window and probability over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl

from forebay.report import plots, words

if TYPE_CHECKING:
    from forebay._native import FluidTrace, Plan
    from forebay.report.plots import Plot


def draw(traces: Sequence[FluidTrace], plan: Plan | None = None) -> Plot:
    """Queue, window and probability of one law, a column per point; the plan has its set-points."""
    points = {point.label: point for point in plan.points} if plan else {}
    with mpl.rc_context(plots.STYLE):
        figure = plots.Plot(figsize=(3.6 * len(traces) + 0.8, 6.0), layout="constrained")
        axes = figure.subplots(3, len(traces), squeeze=False, sharex="col")
        for column, trace in enumerate(traces):
            panels = [trace.queue_pkts, trace.window_pkts, trace.probability]
            for axis, values in zip(axes[:, column], panels, strict=True):
                for index, line in enumerate(values):
                    colour = plots.COLOURS[index % len(plots.COLOURS)]
                    axis.plot(trace.time_s, line, color=colour, linewidth=1.0)
                axis.set_ylim(bottom=0)
            point = points.get(trace.point)
            if point is not None:
                law = next(law for law in point.laws if law.label == trace.law)
                target_pkts = plots.target_pkts(point, law, point.links[0])
                if target_pkts is not None:
                    target = {**plots.TARGET_STYLE, "zorder": 1}
                    axes[0, column].axhline(target_pkts, label="set-point", **target)
                    axes[0, column].legend()
            axes[0, column].set_title((point and words.point(point)) or trace.law)
            axes[2, column].set_xlabel("Time [s]")
        names = ["Queue [packets]", "Window [packets]", "Signal probability"]
        for axis, name in zip(axes[:, 0], names, strict=True):
            axis.set_ylabel(name)
        if len(traces[0].classes) > 1:
            axes[1, -1].legend(axes[1, -1].lines, traces[0].classes)
        figure.suptitle(f"{traces[0].law} in the fluid model", x=0.01, ha="left")
    return figure
