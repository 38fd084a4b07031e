"""RFC 7928's figure: queuing delay against goodput, with the deviation as an ellipse."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.patches import Ellipse

from forebay.report.plots import COLOURS, STYLE, Plot
from forebay.report.style import MARKERS
from forebay.run.metrics import METRICS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.suite.results import Case, Seconds, Suite

DELAY, GOODPUT = "delay_mean_s", "goodput_bps"


def case(of: Case, laws: list[str]) -> Plot:
    """Mean delay and goodput of each law; the ellipse is one standard deviation of whole
    seconds."""
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(10, 4.2), layout="constrained")
        axes = figure.subplots()
        for index, law in enumerate(laws):
            if law not in of.runs:
                continue
            x, y = (METRICS[name].scale * of.cell(law, name).mean for name in (DELAY, GOODPUT))
            _ellipse(axes, index, of.seconds[law], (x, y), min(0.1, 1 / len(laws)))
            _dot(axes, index, law, x, y, 0.0, 0.0)
        _finish(axes, "Queuing delay, mean [ms]")
        return figure


def overview(suite: Suite) -> Plot:
    """Averages over all cases, with 95 % intervals over the seeds."""
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(10, 4.2), layout="constrained")
        axes = figure.subplots()
        for index, law in enumerate(suite.laws):
            cells = [suite.average(law, name) for name in ("delay_p95_s", GOODPUT)]
            scales = [METRICS[name].scale for name in ("delay_p95_s", GOODPUT)]
            (x, y), (dx, dy) = (
                [scale * value for scale, value in zip(scales, values, strict=True)]
                for values in (
                    [cell.mean for cell in cells],
                    [float(np.nan_to_num(cell.half_width)) for cell in cells],
                )
            )
            _dot(axes, index, law, x, y, dx, dy)
        _finish(axes, "Queuing delay, 95th pct., mean over the cases [ms]")
        return figure


def _dot(axes: Axes, index: int, law: str, x: float, y: float, dx: float, dy: float) -> None:
    rounds = index // len(COLOURS)
    colour = COLOURS[index % len(COLOURS)]
    axes.errorbar(
        x,
        y,
        xerr=dx or None,
        yerr=dy or None,
        # Shifted in every round, so that no law looks like another of its colour.
        fmt=MARKERS[(index + rounds) % len(MARKERS)],
        color=colour,
        markerfacecolor="white" if rounds % 2 else colour,
        markersize=6,
        capsize=3,
        linewidth=1.2,
        label=law,
        zorder=3,
    )


def _ellipse(
    axes: Axes, index: int, seconds: Seconds, centre: tuple[float, float], opacity: float
) -> None:
    if len(seconds.delay_ms) < 2:
        return
    # Half axes: roots of the covariance's eigenvalues, along its eigenvectors.
    values, vectors = np.linalg.eigh(np.cov(seconds.delay_ms, seconds.rate_mbps))
    width, height = 2 * np.sqrt(np.maximum(values, 0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    colour = COLOURS[index % len(COLOURS)]
    axes.add_patch(
        Ellipse(
            centre,
            width,
            height,
            angle=angle,
            facecolor=(colour, opacity),
            edgecolor=(colour, 0.7),
            linewidth=0.8,
            zorder=2,
        )
    )


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_ylabel("Goodput [Mbit/s]")
    axes.autoscale_view()
    # No packet waits less than not at all.
    axes.set_xlim(left=min(0.0, axes.get_xlim()[0]) if axes.get_xlim()[0] > 0 else 0.0)
    axes.ticklabel_format(useOffset=False)
    columns = 1 + (len(axes.containers) - 1) // 16
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), ncols=columns)
