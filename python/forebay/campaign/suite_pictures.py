"""RFC 7928's figure: queuing delay against goodput, with the deviation as an ellipse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Ellipse

from forebay._base.metrics import METRICS
from forebay.report import parts, style
from forebay.report.plot import Plot, one_panel, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.campaign.suite_results import Case, Seconds, Suite

DELAY, TAIL, GOODPUT = (METRICS[name] for name in ("delay_mean_s", "delay_p95_s", "goodput_bps"))
#: Laws of one column of the legend.
IN_A_COLUMN = 16


@styled
def case(of: Case, laws: list[str]) -> Plot:
    """Mean delay and goodput of each law; the ellipse is one standard deviation of whole
    seconds."""
    figure, axes = one_panel(10, 4.2)
    for index, law in enumerate(laws):
        if law in of.runs:
            x, y = (one.scale * of.cell(law, one.name).mean for one in (DELAY, GOODPUT))
            _ellipse(axes, index, of.seconds[law], (x, y), min(0.1, 1 / len(laws)))
            parts.dots(axes, x, y, index, law, markersize=6, zorder=3)
    _finish(axes, "Queuing delay, mean [ms]")
    return figure


@styled
def overview(suite: Suite) -> Plot:
    """Averages over all cases, with 95 % intervals over the seeds."""
    figure, axes = one_panel(10, 4.2)
    for index, law in enumerate(suite.laws):
        cells = [(one.scale, suite.average(law, one.name)) for one in (TAIL, GOODPUT)]
        x, y = (scale * cell.mean for scale, cell in cells)
        # An interval of zero has no caps.
        dx, dy = (scale * cell.half_width or math.nan for scale, cell in cells)
        bars = {"xerr": dx if dx == dx else None, "yerr": dy if dy == dy else None}
        parts.dots(axes, x, y, index, law, markersize=6, zorder=3, **bars)
    _finish(axes, "Queuing delay, 95th pct., mean over the cases [ms]")
    return figure


def _ellipse(
    axes: Axes, index: int, seconds: Seconds, centre: tuple[float, float], opacity: float
) -> None:
    if len(seconds.delay_ms) < 2:
        return
    # Half axes: roots of the covariance's eigenvalues, along its eigenvectors.
    values, vectors = np.linalg.eigh(np.cov(seconds.delay_ms, seconds.rate_mbps))
    width, height = 2 * np.sqrt(np.maximum(values, 0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    colour = style.colour(index)
    look = {"facecolor": (colour, opacity), "edgecolor": (colour, 0.7), "linewidth": 0.8}
    axes.add_patch(Ellipse(centre, width, height, angle=angle, zorder=2, **look))


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_ylabel("Goodput [Mbit/s]")
    axes.autoscale_view()
    # No packet waits less than not at all.
    axes.set_xlim(left=0.0)
    axes.ticklabel_format(useOffset=False)
    parts.legend_beside(axes, 1 + (len(axes.containers) - 1) // IN_A_COLUMN)
