"""The identified loop over frequency."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np

from forebay.identify.response import Response
from forebay.report.plots import COLOURS, STYLE, Plot

#: Where stability ends.
EDGE = {"color": "#222222", "linewidth": 1.0, "linestyle": (0, (5, 3))}


def bode(found: Response, title: str) -> Plot:
    """|L| in dB and its angle, with intervals of 95 %."""
    omega, size = found.omega_rad_s, np.abs(found.gain)
    angle = np.degrees(np.unwrap(np.angle(found.gain)))
    angle -= 360 * math.ceil(angle[0] / 360 - 1e-9)
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(7.2, 5.4), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        low = np.maximum(size * (1 - found.size_error), 0.05 * size)
        for axes, value, error in [
            (
                top,
                20 * np.log10(size),
                20 * np.log10(np.array([size / low, 1 + found.size_error])),
            ),
            (bottom, angle, np.array([found.phase_error_deg] * 2)),
        ]:
            axes.errorbar(omega, value, error, fmt="o-", color=COLOURS[0], markersize=4, capsize=2)
            axes.set_xscale("log")
        top.axhline(0, **EDGE)
        bottom.axhline(-180, **EDGE)
        top.set_ylabel("Loop gain [dB]")
        bottom.set_ylabel("Phase [degrees]")
        bottom.set_xlabel("Frequency [rad/s]")
        at = found.crossover_rad_s
        if not math.isnan(at):
            for axes in (top, bottom):
                axes.axvline(at, color=COLOURS[1], linewidth=1.2)
            bottom.annotate(
                f"phase margin {found.phase_margin_deg:.0f}° at {at:.3g} rad/s",
                (0.02, 0.05),
                xycoords="axes fraction",
                fontsize=8,
            )
        top.set_title(f"{title}: loop gain from its samples, intervals of 95 %")
    return figure
