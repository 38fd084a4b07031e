"""Pictures of one loop and of the loops of a range: Bode, Nyquist, Nichols, step, roots.

A picture of a range shades where each curve may be, and has the middle of the range as a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MultipleLocator
from scipy.spatial import ConvexHull, QhullError

from forebay._base.words import in_figures
from forebay.control import pi_forms
from forebay.report.parts import EDGE, at_corner, beside, bode_panels, quarter_turns, titled
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.control.designed_law import LoopPicture
    from forebay.control.loop import Floats, Loop
    from forebay.control.pi_stabilising_set import RangeDesign
    from forebay.control.queue_estimate import IdentifiedResponse

LINE, MARGIN = COLOURS[:2]
#: Below this loop gain in dB nothing is told: of a law with an average it falls far.
LEAST_DB = -60.0


@styled
def bode(loop: Loop, title: str = "") -> Plot:
    """|L| in dB and the angle of L over frequency, with the margins drawn in."""
    margins = loop.margins
    crossover, turn = margins.crossover_rad_s, margins.phase_crossover_rad_s
    known = [w for w in (crossover, turn) if w == w]
    centre = math.exp(float(np.mean(np.log(known)))) if known else 1 / loop.point.rtt_s
    low, high = centre / 100, min(centre * 30, loop.highest_rad_s)
    omega = np.geomspace(low, high, 3000)
    size, phase = size_and_angle(loop, omega)
    phase += 360 if phase[0] < -270 else 0
    figure, top, bottom = bode_panels(titled(title, "loop gain"))
    top.plot(omega, size, color=LINE)
    bottom.plot(omega, phase, color=LINE)
    quarter_turns(bottom)
    bottom.set_ylim(max(phase.min() - 15, -450), max(phase.max() + 15, 0))
    top.set_xlim(low, high)
    top.set_ylim(bottom=max(LEAST_DB, float(size.min())) - 5)
    if crossover == crossover:
        at = float(np.interp(crossover, omega, phase))
        bottom.plot([crossover] * 2, [-180, at], color=MARGIN, linewidth=2.2)
        text = f"phase margin {margins.phase_deg:.1f}° at {in_figures(crossover)} rad/s"
        beside(bottom, text, (crossover, 0.5 * (at - 180)), (-8, 0), va="center")
    if turn == turn and math.isfinite(margins.gain_db):
        gain = -margins.gain_db
        top.plot([turn] * 2, [gain, 0], color=MARGIN, linewidth=2.2)
        text = f"gain margin {margins.gain_db:.1f} dB at {in_figures(turn)} rad/s"
        beside(top, text, (turn, gain), (-6, 0), va="top")
    at_corner(
        top,
        "stable" if loop.stable else "unstable",
        (0.99, 0.95),
        ha="right",
        va="top",
        fontsize=9,
        color="#007a55" if loop.stable else "#b03a00",
        fontweight="bold",
    )
    return figure


@styled
def nyquist(loop: Loop, title: str = "") -> Plot:
    """L in the complex plane near −1, with the unit circle and the largest sensitivity."""
    response = loop.response(loop.grid)
    figure, axes = one_panel(5.4, 5.4)
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), **{**EDGE, "color": "#999999"})
    nearest = 1 / loop.margins.sensitivity
    axes.plot(-1 + nearest * np.cos(turn), nearest * np.sin(turn), color=MARGIN, linewidth=1.0)
    axes.plot(response.real, response.imag, color=LINE)
    axes.plot([-1], [0], "+", color="#000000", markersize=10, markeredgewidth=1.6)
    axes.set(xlim=(-3, 1.5), ylim=(-2.5, 2), aspect="equal", xlabel="Re L", ylabel="Im L")
    text = f"largest |1/(1 + L)| = {loop.margins.sensitivity:.2f}"
    beside(axes, text, (-1, nearest), (0, 4), ha="center", va="bottom")
    axes.set_title(titled(title, "Nyquist curve, frequencies above 0"))
    return figure


@styled
def nichols(loop: Loop, title: str = "") -> Plot:
    """|L| in dB over its angle, with the edge |1/(1 + L)| = 2 and the margins as distances."""
    size, angle = size_and_angle(loop, loop.grid)
    figure, axes = one_panel(5.8, 5.0)
    axes.plot(angle, size, color=LINE, label="L")
    nichols_frame(axes, color="#999999", linewidth=1.0)
    axes.set_title(titled(title, "Nichols chart"))
    return figure


def size_and_angle(loop: Loop, omega: Floats) -> tuple[Floats, Floats]:
    """Return L in dB and degrees; the angle begins between 0 and −180°, while `np.unwrap` starts
    anywhere on the circle."""
    response = loop.response(omega)
    angle = np.degrees(np.unwrap(np.angle(response)))
    angle -= 360 * math.ceil((angle[0] - 1e-6) / 360)
    return 20 * np.log10(np.maximum(np.abs(response), 1e-12)), angle


def nichols_frame(axes: Axes, **edge: Any) -> None:
    """Draw the parts of every Nichols chart: the edge |1/(1 + L)| = 2, −1, 0 dB, axes and legend.

    edge: how the edge is drawn.
    """
    at = -1 + 0.5 * np.exp(1j * np.linspace(0, 2 * np.pi, 400))
    angle, size = np.degrees(np.angle(at)) % 360 - 360, 20 * np.log10(np.abs(at))
    axes.plot(angle, size, label="|1/(1 + L)| = 2", **edge)
    axes.plot([-180], [0], "+", color="#000000", markersize=10, markeredgewidth=1.6, zorder=3)
    axes.axhline(0, **EDGE)
    axes.set(xlim=(-360, 0), ylim=(-40, 40), xlabel="Phase [degrees]", ylabel="Loop gain [dB]")
    axes.xaxis.set_major_locator(MultipleLocator(45))
    axes.legend(loc="upper left")


@styled
def step(loop: Loop, title: str = "") -> Plot:
    """The queue after a tenth more flows have come, by the linear loop."""
    settling = loop.settling_s
    duration_s = settling * 1.5 if math.isfinite(settling) else 30 * loop.point.rtt_s
    time_s, deviation_pkts = loop.step(duration_s)
    rest = loop.model["queue_pkts"]
    figure, axes = one_panel(7.2, 3.4)
    axes.axhline(rest, label=f"at rest, {in_figures(rest, 4)} packets", **EDGE)
    axes.plot(time_s, rest + deviation_pkts, color=LINE)
    # Of several classes the loop has the delay, and no queue.
    axes.set(xlabel="Time since the flows came [s]", ylabel=f"{loop.held} [packets]")
    axes.set_xlim(0, duration_s)
    if math.isfinite(settling):
        axes.axvline(settling, color=MARGIN, linewidth=1.2)
        text = f"settling time {in_figures(settling)} s (2 %)"
        beside(axes, text, (settling, 0.92), (4, 0), xycoords=("data", "axes fraction"))
    axes.legend(loc="center right")
    axes.set_title(titled(title, "a tenth more flows, by the linear loop"))
    return figure


@styled
def roots(loop: Loop, title: str = "") -> Plot:
    """The rightmost closed-loop roots in the s plane; of a sampled loop, ln z/T."""
    # What decides is near the origin; the chain that the delay adds goes on to the left.
    near = 12 / loop.point.rtt_s
    shown = np.array([s for s in loop.roots if s.real > -near and abs(s.imag) < near])
    figure, axes = one_panel(5.4, 4.2)
    axes.axvline(0, **EDGE)
    colours = [MARGIN if root.real >= 0 else LINE for root in shown]
    axes.scatter(shown.real, shown.imag, marker="x", c=colours, s=42)
    reach = 1.1 * float(np.abs(shown.real).max())
    axes.set_xlim(-reach, max(0.15 * reach, 1.15 * float(shown.real.max())))
    axes.set(xlabel="Re s [1/s]", ylabel="Im s [rad/s]")
    axes.set_title(titled(title, "rightmost roots of the closed loop"))
    return figure


#: The figures of a loop, by their kind.
FIGURES: dict[LoopPicture, Callable[[Loop, str], Plot]] = {
    "bode": bode,
    "step": step,
    "nyquist": nyquist,
    "nichols": nichols,
    "roots": roots,
}


@styled
def identified(response: IdentifiedResponse, title: str) -> Plot:
    """Draw an identified |L| in dB and its angle, with intervals of 95 %."""
    omega, size, error = response.omega_rad_s, np.abs(response.gain), response.size_error
    angle = np.degrees(np.unwrap(np.angle(response.gain)))
    angle -= 360 * math.ceil(angle[0] / 360 - 1e-9)
    figure, top, bottom = bode_panels(f"{title}: loop gain from its samples, intervals of 95 %")
    low = np.maximum(size * (1 - error), 0.05 * size)
    sizes_db = 20 * np.log10(np.array([size / low, 1 + error]))
    for axes, value, half in [
        (top, 20 * np.log10(size), sizes_db),
        (bottom, angle, np.array([response.phase_error_deg] * 2)),
    ]:
        axes.errorbar(omega, value, half, fmt="o-", color=COLOURS[0], markersize=4, capsize=2)
    at = response.crossover_rad_s
    if not math.isnan(at):
        for axes in (top, bottom):
            axes.axvline(at, color=COLOURS[1], linewidth=1.2)
        text = f"phase margin {response.phase_margin_deg:.0f}° at {at:.3g} rad/s"
        at_corner(bottom, text, (0.02, 0.05), color="black")
    return figure


@styled
def regions(found: RangeDesign) -> Plot:
    """The stabilising gains of every corner, the robust ones of all, and those that were chosen."""
    figure, axes = one_panel(7.2, 5.0)
    tops = []
    for i, one in enumerate(found.corners):
        most = one.most_k_p()
        k_p = np.geomspace(0.03 * found.gains.k_p, 0.9999 * most, 400)
        k_i = one.most_k_i(k_p)
        axes.plot(
            k_p,
            np.where(k_i > 0, k_i, np.nan),
            color=COLOURS[i % len(COLOURS)],
            linestyle=("-", "--", ":")[i // len(COLOURS) % 3],
            label=f"{one.place.rate}, {one.place.rtt}, {one.place.flows:g} flows",
        )
        tops.append((most, float(k_i.max())))
    k_p = np.geomspace(1e-3 * found.gains.k_p, min(most for most, _ in tops), 400)
    robust = np.min([one.robust_k_i(k_p) for one in found.corners], axis=0)
    axes.fill_between(
        k_p, 1e-3 * found.gains.k_i, np.maximum(robust, 1e-3 * found.gains.k_i),
        color="#bbbbbb", label="|1/(1 + L)| ≤ 2 at all", linewidth=0,
    )  # fmt: skip
    axes.plot(
        [found.gains.k_p], [found.gains.k_i], "*", color="#000000", markersize=12,
        label="chosen",
    )  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(0.03 * found.gains.k_p, 2 * max(most for most, _ in tops)),
        ylim=(0.03 * found.gains.k_i, 3 * max(top for _, top in tops)),
        xlabel=f"K_p [{_per(found)}]",
        ylabel=f"K_i [{_per(found)} per s]",
    )
    axes.legend(loc="lower right", fontsize=8)
    axes.set_title(f"{found.law}: stable below each line")
    return figure


def _per(found: RangeDesign) -> str:
    """The unit of a gain: of a law that measures the delay, per second of it."""
    return "1/s" if pi_forms.of_delay(found.law) else "1/packet"


#: The area in which the curves of a range lie.
BAND: dict[str, Any] = {"color": "#9ec9e6", "linewidth": 0}
#: Frequencies of a band, and of the areas of a Nichols chart.
FINE, COARSE = 1200, 160
#: Most samples of a step's answer.
STEPS = 6000


@styled
def bode_of_range(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
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
def nichols_of_range(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
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
def step_of_range(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
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
    """Return frequencies in rad/s: from 1 % of the lowest crossover to what every loop has."""
    crossed = [one.margins.crossover_rad_s for one in loops]
    known = [one for one in crossed if one == one] or [1 / one.point.rtt_s for one in loops]
    high = min(*(one.highest_rad_s for one in loops), 100 * max(known))
    return np.geomspace(0.01 * min(known), high, points)


def _duration(value_s: float) -> str:
    return f"{value_s:.2g} s" if value_s < 100 else f"{value_s / 60:.3g} min"
