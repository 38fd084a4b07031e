"""Pictures of one design over a range of links: where each curve may be, shaded, and the middle of
the range as a line. Each takes the loops of places all over the range and returns a `Plot`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import ConvexHull, QhullError

from forebay._base.words import in_figures
from forebay.report.loops import LEAST_DB, LINE, MARGIN, nichols_frame, size_and_angle
from forebay.report.parts import EDGE, at_corner, bode_panels, quarter_turns, titled
from forebay.report.plot import Plot, one_panel, styled

if TYPE_CHECKING:
    from forebay.control.loop import Floats, Loop

#: The area in which the curves of a range lie.
BAND: dict[str, Any] = {"color": "#9ec9e6", "linewidth": 0}
#: Frequencies of a band, and of the areas of a Nichols chart.
FINE, COARSE = 1200, 160
#: Most samples of a step's answer.
STEPS = 6000


@styled
def bode(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
    """|L| in dB and the angle of L over frequency."""
    omega = _frequencies(loops, FINE)
    sizes, angles = zip(*(size_and_angle(loop, omega) for loop in loops), strict=True)
    lines = size_and_angle(middle, omega)
    figure, top, bottom = bode_panels(titled(title, "loop gain"))
    for axes, bands, line in zip((top, bottom), (sizes, angles), lines, strict=True):
        low, high = np.min(bands, 0), np.max(bands, 0)
        axes.fill_between(omega, low, high, label=f"all of the range ({len(loops)} places)", **BAND)
        axes.plot(omega, line, color=LINE, label="its middle")
    top.set_xlim(omega[0], omega[-1])
    top.set_ylim(bottom=max(LEAST_DB, float(np.min(sizes)) - 5))
    quarter_turns(bottom)
    bottom.set_ylim(-450, 0)
    crossovers = [float(omega[size > 0][-1]) for size in sizes if (size > 0).any()]
    if crossovers:
        for axes in (top, bottom):
            axes.axvspan(min(crossovers), max(crossovers), color=MARGIN, alpha=0.12, linewidth=0)
        least = min(loop.margins.phase_deg for loop in loops)
        text = (
            f"crossovers from {in_figures(min(crossovers))} to "
            f"{in_figures(max(crossovers))} rad/s;\n"
            f"the least phase margin is {least:.0f}°"
        )
        at_corner(bottom, text, (0.01, 0.04))
    top.legend(loc="lower left")
    return figure


@styled
def nichols(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
    """|L| in dB over its angle, with the edge |1/(1 + L)| = 2: the area that the points of all
    places fill from frequency to frequency."""
    omega = _frequencies(loops, COARSE)
    size, angle = size_and_angle(middle, _frequencies(loops, FINE))
    # Place, angle and size, frequency.
    points = np.array([size_and_angle(one, omega)[::-1] for one in loops])
    figure, axes = one_panel(5.8, 5.0)
    label = f"all of the range ({len(loops)} places)"
    for k in range(len(omega) - 1):
        both = points[:, :, k : k + 2].transpose(0, 2, 1).reshape(-1, 2)
        if both[:, 1].max() < LEAST_DB or both[:, 0].max() < -450:
            continue
        try:
            around = both[ConvexHull(both).vertices]
        except QhullError:  # places that are one point
            continue
        axes.fill(*around.T, color=BAND["color"], linewidth=0.3, label=label, zorder=1)
        label = "_"
    axes.plot(angle, size, color=LINE, label="its middle", zorder=2)
    nichols_frame(axes, color=MARGIN, linewidth=1.2, zorder=3)
    axes.set_title(titled(title, "Nichols chart"))
    return figure


@styled
def step(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
    """The queue after a tenth more flows have come, over where it rests."""
    settling = [one.settling_s for one in loops if math.isfinite(one.settling_s)]
    wanted = 1.5 * middle.settling_s if math.isfinite(middle.settling_s) else 10.0
    sampled = [one.interval_s for one in loops if one.interval_s is not None]
    duration_s = min(wanted, STEPS * max(sampled, default=math.inf))
    time_s = np.linspace(0, duration_s, FINE)

    def answer(loop: Loop) -> Floats:
        at, moved = loop.step(duration_s)
        return np.asarray(1 + np.interp(time_s, at, moved) / loop.model["queue_pkts"], float)

    line = answer(middle)
    answers = [line, *(answer(one) for one in loops)]
    label = f"its ends and its middle ({len(answers)} places)"
    figure, axes = one_panel(7.2, 3.6)
    axes.fill_between(time_s, np.min(answers, 0), np.max(answers, 0), label=label, **BAND)
    axes.plot(time_s, line, color=LINE, label="its middle")
    axes.axhline(1, label="set-point", **EDGE)
    axes.set(xlabel="Time since the flows came [s]", ylabel="Queue over its set-point")
    axes.set_xlim(0, duration_s)
    if settling:
        text = f"settles (2 %) in {_duration(min(settling))} to {_duration(max(settling))}"
        at_corner(axes, text, (0.985, 0.62), ha="right")
    axes.legend(loc="upper right")
    axes.set_title(titled(title, "a tenth more flows, by the linear loop"))
    return figure


def _frequencies(loops: Sequence[Loop], points: int) -> Floats:
    """From a hundredth of the lowest crossover to what every loop has, in rad/s."""
    crossed = [one.margins.crossover_rad_s for one in loops]
    known = [one for one in crossed if one == one] or [1 / one.point.rtt_s for one in loops]
    high = min(*(one.highest_rad_s for one in loops), 100 * max(known))
    return np.geomspace(0.01 * min(known), high, points)


def _duration(value_s: float) -> str:
    return f"{value_s:.2g} s" if value_s < 100 else f"{value_s / 60:.3g} min"
