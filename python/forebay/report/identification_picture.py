"""The identified loop over frequency."""

from __future__ import annotations

import math

import numpy as np

from forebay.control.identified_response import IdentifiedResponse
from forebay.report.parts import at_corner, bode_panels
from forebay.report.plot import Plot, styled
from forebay.report.style import COLOURS


@styled
def bode(found: IdentifiedResponse, title: str) -> Plot:
    """|L| in dB and its angle, with intervals of 95 %."""
    omega, size, error = found.omega_rad_s, np.abs(found.gain), found.size_error
    angle = np.degrees(np.unwrap(np.angle(found.gain)))
    angle -= 360 * math.ceil(angle[0] / 360 - 1e-9)
    figure, top, bottom = bode_panels(f"{title}: loop gain from its samples, intervals of 95 %")
    low = np.maximum(size * (1 - error), 0.05 * size)
    sizes_db = 20 * np.log10(np.array([size / low, 1 + error]))
    for axes, value, half in [
        (top, 20 * np.log10(size), sizes_db),
        (bottom, angle, np.array([found.phase_error_deg] * 2)),
    ]:
        axes.errorbar(omega, value, half, fmt="o-", color=COLOURS[0], markersize=4, capsize=2)
    at = found.crossover_rad_s
    if not math.isnan(at):
        for axes in (top, bottom):
            axes.axvline(at, color=COLOURS[1], linewidth=1.2)
        text = f"phase margin {found.phase_margin_deg:.0f}° at {at:.3g} rad/s"
        at_corner(bottom, text, (0.02, 0.05), color="black")
    return figure
