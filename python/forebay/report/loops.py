"""Pictures of a loop and of the loops of a range, and the map of where a loop is stable.

A loop has its Bode, Nyquist and Nichols plots, its step response and its roots.

A picture of a range shades the area that its curves cover, and has the middle of the range as a
line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import ListedColormap, TwoSlopeNorm
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MultipleLocator
from scipy.spatial import ConvexHull, QhullError

from forebay._base.registries import title_of
from forebay._base.words import in_figures, quantity
from forebay.control import pi_forms
from forebay.control.plant import REASONS
from forebay.report import style
from forebay.report.parts import (
    EDGE,
    NOTE,
    PLAIN,
    bode_panels,
    quarter_turns,
    titled,
    write_at,
    write_next_to,
)
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.control.designed_law import LoopPicture
    from forebay.control.loop import Floats, Loop
    from forebay.control.pi_stabilising_set import RangeDesign
    from forebay.control.queue_estimate import IdentifiedResponse
    from forebay.control.stability_map import StabilityMap

LINE, MARGIN = COLOURS[:2]
#: Lower end of the loop gain in dB: that of a law with an average falls far below.
LEAST_DB = -60.0
#: Colours of cells that have no equilibrium, by reason.
NOWHERE = {
    "saturated": "#8c8c8c",
    "full": "#d9c8a0",
    "jump": "#b79ac8",
    "empty": "#a9cfa4",
    "unmodelled": "#eeeeee",
    "small": "#9db7d5",
}


@styled
def bode(loop: Loop, title: str = "") -> Plot:
    """Draw |L| in dB and the angle of L over frequency, with the margins.

    Parameters
    ----------
    loop : Loop
        The loop.
    title : str, default ''
        Title of the figure.
    """
    margins = loop.margins
    crossover, turn = margins.crossover_rad_s, margins.phase_crossover_rad_s
    crossings = [w for w in (crossover, turn) if w == w]
    centre = math.exp(float(np.mean(np.log(crossings)))) if crossings else 1 / loop.point.rtt_s
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
        write_next_to(bottom, text, (crossover, 0.5 * (at - 180)), (-8, 0), va="center")
    if turn == turn and math.isfinite(margins.gain_db):
        gain = -margins.gain_db
        top.plot([turn] * 2, [gain, 0], color=MARGIN, linewidth=2.2)
        text = f"gain margin {margins.gain_db:.1f} dB at {in_figures(turn)} rad/s"
        write_next_to(top, text, (turn, gain), (-6, 0), va="top")
    write_at(
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
    """Draw L in the complex plane near −1, with the unit circle and the peak sensitivity.

    Parameters
    ----------
    loop : Loop
        The loop.
    title : str, default ''
        Title of the figure.
    """
    response = loop.response(loop.grid)
    figure, axes = one_panel(5.4, 5.4)
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), **{**EDGE, "color": "#999999"})
    nearest = 1 / loop.margins.sensitivity
    axes.plot(-1 + nearest * np.cos(turn), nearest * np.sin(turn), color=MARGIN, linewidth=1.0)
    axes.plot(response.real, response.imag, color=LINE)
    axes.plot([-1], [0], "+", color="#000000", markersize=10, markeredgewidth=1.6)
    axes.set(xlim=(-3, 1.5), ylim=(-2.5, 2), aspect="equal", xlabel="Re L", ylabel="Im L")
    text = f"sensitivity peak {loop.margins.sensitivity:.2f}"
    write_next_to(axes, text, (-1, nearest), (0, 4), ha="center", va="bottom")
    axes.set_title(titled(title, "Nyquist curve, frequencies above 0"))
    return figure


@styled
def nichols(loop: Loop, title: str = "") -> Plot:
    """Draw |L| in dB over its angle, with the contour |1/(1 + L)| = 2 and the margins as distances.

    Parameters
    ----------
    loop : Loop
        The loop.
    title : str, default ''
        Title of the figure.
    """
    size, angle = size_and_angle(loop, loop.grid)
    figure, axes = one_panel(5.8, 5.0)
    axes.plot(angle, size, color=LINE, label="L")
    nichols_frame(axes, color="#999999", linewidth=1.0)
    axes.set_title(titled(title, "Nichols chart"))
    return figure


def size_and_angle(loop: Loop, omega: Floats) -> tuple[Floats, Floats]:
    """Return the magnitude and the angle of L.

    Parameters
    ----------
    loop : Loop
        The loop.
    omega : Floats
        Frequencies in rad/s.

    Returns
    -------
    tuple[Floats, Floats]
        Magnitude in dB and angle in degrees. The angle begins between 0 and −180°, while
        `np.unwrap` may begin on any turn.
    """
    response = loop.response(omega)
    angle = np.degrees(np.unwrap(np.angle(response)))
    angle -= 360 * math.ceil((angle[0] - 1e-6) / 360)
    return 20 * np.log10(np.maximum(np.abs(response), 1e-12)), angle


def nichols_frame(axes: Axes, **edge: Any) -> None:
    """Draw the parts of every Nichols chart: the contour |1/(1 + L)| = 2, −1, 0 dB and axes.

    Parameters
    ----------
    axes : Axes
        The axes.
    **edge : Any
        Options of the line of the contour.
    """
    at = -1 + 0.5 * np.exp(1j * np.linspace(0, 2 * np.pi, 400))
    angle, size = np.degrees(np.angle(at)) % 360 - 360, 20 * np.log10(np.abs(at))
    axes.plot(angle, size, label="sensitivity 2", **edge)
    axes.plot([-180], [0], "+", color="#000000", markersize=10, markeredgewidth=1.6, zorder=3)
    axes.axhline(0, **EDGE)
    axes.set(xlim=(-360, 0), ylim=(-40, 40), xlabel="Phase [degrees]", ylabel="Loop gain [dB]")
    axes.xaxis.set_major_locator(MultipleLocator(45))
    axes.legend(loc="upper left")


@styled
def step(loop: Loop, title: str = "") -> Plot:
    """Draw the queue after 10 % more flows have started, by the linear model.

    Parameters
    ----------
    loop : Loop
        The loop.
    title : str, default ''
        Title of the figure.
    """
    settling = loop.settling_s
    duration_s = settling * 1.5 if math.isfinite(settling) else 30 * loop.point.rtt_s
    time_s, deviation_pkts = loop.step(duration_s)
    equilibrium_pkts = loop.model["queue_pkts"]
    figure, axes = one_panel(7.2, 3.4)
    axes.axhline(
        equilibrium_pkts, label=f"equilibrium, {in_figures(equilibrium_pkts, 4)} packets", **EDGE
    )
    axes.plot(time_s, equilibrium_pkts + deviation_pkts, color=LINE)
    # The quantity is the queue, or for several classes the delay.
    axes.set(
        xlabel="Time since the new flows started [s]",
        ylabel=f"{loop.controlled_quantity} [packets]",
    )
    axes.set_xlim(0, duration_s)
    if math.isfinite(settling):
        axes.axvline(settling, color=MARGIN, linewidth=1.2)
        text = f"settling time {in_figures(settling)} s (2 %)"
        write_next_to(axes, text, (settling, 0.92), (4, 0), xycoords=("data", "axes fraction"))
    axes.legend(loc="center right")
    axes.set_title(titled(title, "step response to 10 % more flows, linear model"))
    return figure


@styled
def roots(loop: Loop, title: str = "") -> Plot:
    """Draw the rightmost closed-loop roots in the s plane; those of a sampled loop as ln z/T.

    Parameters
    ----------
    loop : Loop
        The loop.
    title : str, default ''
        Title of the figure.
    """
    # The decisive roots are near the origin; the delay adds an infinite chain to the left.
    near = 12 / loop.point.rtt_s
    rightmost = np.array([s for s in loop.roots if s.real > -near and abs(s.imag) < near])
    figure, axes = one_panel(5.4, 4.2)
    axes.axvline(0, **EDGE)
    colours = [MARGIN if root.real >= 0 else LINE for root in rightmost]
    axes.scatter(rightmost.real, rightmost.imag, marker="x", c=colours, s=42)
    reach = 1.1 * float(np.abs(rightmost.real).max())
    axes.set_xlim(-reach, max(0.15 * reach, 1.15 * float(rightmost.real.max())))
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
    """Draw an identified |L| in dB and its angle, with 95 % intervals.

    Parameters
    ----------
    response : IdentifiedResponse
        The identified response.
    title : str
        Title of the figure.
    """
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
        write_at(bottom, text, (0.02, 0.05), color="black")
    return figure


@styled
def regions(design: RangeDesign) -> Plot:
    """Draw the stabilising gains of every corner, the robust gains of all, and the chosen ones."""
    figure, axes = one_panel(7.2, 5.0)
    tops = []
    for i, corner in enumerate(design.corners):
        highest_k_p = corner.most_k_p()
        k_p = np.geomspace(0.03 * design.gains.k_p, 0.9999 * highest_k_p, 400)
        k_i = corner.most_k_i(k_p)
        axes.plot(
            k_p,
            np.where(k_i > 0, k_i, np.nan),
            color=COLOURS[i % len(COLOURS)],
            linestyle=("-", "--", ":")[i // len(COLOURS) % 3],
            label=f"{corner.place.rate}, {corner.place.rtt}, {corner.place.flows:g} flows",
        )
        tops.append((highest_k_p, float(k_i.max())))
    k_p = np.geomspace(1e-3 * design.gains.k_p, min(highest_k_p for highest_k_p, _ in tops), 400)
    robust = np.min([corner.robust_k_i(k_p) for corner in design.corners], axis=0)
    axes.fill_between(
        k_p, 1e-3 * design.gains.k_i, np.maximum(robust, 1e-3 * design.gains.k_i),
        color="#bbbbbb", label="sensitivity peak ≤ 2 at all corners", linewidth=0,
    )  # fmt: skip
    axes.plot(
        [design.gains.k_p], [design.gains.k_i], "*", color="#000000", markersize=12,
        label="chosen",
    )  # fmt: skip
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(0.03 * design.gains.k_p, 2 * max(highest_k_p for highest_k_p, _ in tops)),
        ylim=(0.03 * design.gains.k_i, 3 * max(top for _, top in tops)),
        xlabel=f"K_p [{_per(design)}]",
        ylabel=f"K_i [{_per(design)} per s]",
    )
    axes.legend(loc="lower right", fontsize=8)
    axes.set_title(f"{title_of(design.law)}: stable below each line")
    return figure


def _per(design: RangeDesign) -> str:
    """Return the unit of a gain: 1/s for a law that measures the delay, otherwise 1/packet."""
    return "1/s" if pi_forms.of_delay(design.law) else "1/packet"


#: The look of the area that the curves of a range cover.
BAND: dict[str, Any] = {"color": "#9ec9e6", "linewidth": 0}
#: Number of frequencies of a band, and of the areas of a Nichols chart.
FINE, COARSE = 1200, 160
#: Largest number of samples of a step response.
STEPS = 6000


@styled
def bode_of_range(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
    """Draw |L| in dB and the angle of L over frequency, for the loops of a range.

    Parameters
    ----------
    loops : Sequence[Loop]
        The loops.
    middle : Loop
        The loop in the middle of the range.
    title : str, default ''
        Title of the figure.
    """
    omega = _frequencies(loops, FINE)
    sizes, angles = zip(*(size_and_angle(loop, omega) for loop in loops), strict=True)
    lines = size_and_angle(middle, omega)
    figure, top, bottom = bode_panels(titled(title, "loop gain"))
    for axes, bands, line in zip((top, bottom), (sizes, angles), lines, strict=True):
        low, high = np.min(bands, 0), np.max(bands, 0)
        axes.fill_between(
            omega, low, high, label=f"whole range ({len(loops)} operating points)", **BAND
        )
        axes.plot(omega, line, color=LINE, label="middle of the range")
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
        write_at(bottom, text, (0.01, 0.04))
    top.legend(loc="lower left")
    return figure


@styled
def nichols_of_range(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
    """Draw |L| in dB over its angle, for the loops of a range, with the contour |1/(1 + L)| = 2.

    The shaded area is swept by the points of all loops from frequency to frequency.

    Parameters
    ----------
    loops : Sequence[Loop]
        The loops.
    middle : Loop
        The loop in the middle of the range.
    title : str, default ''
        Title of the figure.
    """
    omega = _frequencies(loops, COARSE)
    size, angle = size_and_angle(middle, _frequencies(loops, FINE))
    # The axes are loop, angle and magnitude, frequency.
    points = np.array([size_and_angle(loop, omega)[::-1] for loop in loops])
    figure, axes = one_panel(5.8, 5.0)
    label = f"whole range ({len(loops)} operating points)"
    for k in range(len(omega) - 1):
        both = points[:, :, k : k + 2].transpose(0, 2, 1).reshape(-1, 2)
        if both[:, 1].max() < LEAST_DB or both[:, 0].max() < -450:
            continue
        try:
            around = both[ConvexHull(both).vertices]
        except QhullError:  # all loops have the same point
            continue
        axes.fill(*around.T, color=BAND["color"], linewidth=0.3, label=label, zorder=1)
        label = "_"
    axes.plot(angle, size, color=LINE, label="middle of the range", zorder=2)
    nichols_frame(axes, color=MARGIN, linewidth=1.2, zorder=3)
    axes.set_title(titled(title, "Nichols chart"))
    return figure


@styled
def step_of_range(loops: Sequence[Loop], middle: Loop, title: str = "") -> Plot:
    """Draw the queue relative to its equilibrium after 10 % more flows have started.

    Parameters
    ----------
    loops : Sequence[Loop]
        The loops.
    middle : Loop
        The loop in the middle of the range.
    title : str, default ''
        Title of the figure.
    """
    settling = [loop.settling_s for loop in loops if math.isfinite(loop.settling_s)]
    wanted_s = 1.5 * middle.settling_s if math.isfinite(middle.settling_s) else 10.0
    intervals_s = [loop.interval_s for loop in loops if loop.interval_s is not None]
    duration_s = min(wanted_s, STEPS * max(intervals_s, default=math.inf))
    time_s = np.linspace(0, duration_s, FINE)

    def response(loop: Loop) -> Floats:
        times_s, deviation_pkts = loop.step(duration_s)
        return np.asarray(
            1 + np.interp(time_s, times_s, deviation_pkts) / loop.model["queue_pkts"], float
        )

    line = response(middle)
    responses = [line, *(response(loop) for loop in loops)]
    label = f"ends and middle of the range ({len(responses)} operating points)"
    figure, axes = one_panel(7.2, 3.6)
    axes.fill_between(time_s, np.min(responses, 0), np.max(responses, 0), label=label, **BAND)
    axes.plot(time_s, line, color=LINE, label="middle of the range")
    axes.axhline(1, label="set-point", **EDGE)
    axes.set(
        xlabel="Time since the new flows started [s]", ylabel="Queue, relative to the set-point"
    )
    axes.set_xlim(0, duration_s)
    if settling:
        text = f"settles (2 %) in {_duration(min(settling))} to {_duration(max(settling))}"
        write_at(axes, text, (0.985, 0.62), ha="right")
    axes.legend(loc="upper right")
    axes.set_title(titled(title, "step response to 10 % more flows, linear model"))
    return figure


def _frequencies(loops: Sequence[Loop], points: int) -> Floats:
    """Return frequencies in rad/s, from 1 % of the lowest crossover to the end of every loop."""
    crossovers = [loop.margins.crossover_rad_s for loop in loops]
    # A NaN is a loop without a crossover.
    frequencies = [w for w in crossovers if w == w] or [1 / loop.point.rtt_s for loop in loops]
    high = min(*(loop.highest_rad_s for loop in loops), 100 * max(frequencies))
    return np.geomspace(0.01 * min(frequencies), high, points)


def _duration(value_s: float) -> str:
    """Return a duration in seconds or minutes."""
    return f"{value_s:.2g} s" if value_s < 100 else f"{value_s / 60:.3g} min"


@styled
def draw_map(drawn: StabilityMap) -> Plot:
    """Draw a stability map, with the simulated points on it."""
    scale = 1e-6 if drawn.axis == "rate" else 1e3
    values = drawn.values * scale
    figure, axes = one_panel(7.2, 5.0)
    axes.set_facecolor("#eeeeee")
    shades: Any = axes.pcolormesh(
        drawn.flows,
        values,
        np.clip(drawn.gain_margin_db, -20, 20),
        # Red and blue would be equal in greys.
        cmap="cividis" if style.printed() else "RdBu",
        norm=TwoSlopeNorm(0, -20, 20),
        rasterized=True,
        alpha=0.75,
    )
    reasons = [how for how in NOWHERE if (drawn.rest == how).any()]
    for how in reasons:
        axes.pcolormesh(
            drawn.flows,
            values,
            np.ma.masked_where(drawn.rest != how, np.zeros(drawn.rest.shape)),
            cmap=ListedColormap([NOWHERE[how]]),
            rasterized=True,
        )
    bar = figure.colorbar(shades, ax=axes, pad=0.02)
    bar.set_label("Gain margin (theory) [dB]; unstable below 0")
    bar.outline.set_visible(False)
    if drawn.stable.any() and not drawn.stable.all():
        margin = np.ma.masked_invalid(drawn.gain_margin_db)
        axes.contour(drawn.flows, values, margin, [0.0], colors="#000000", linewidths=1.6)
    axes.set(xscale="log", yscale="log", xlim=drawn.flows[[0, -1]], ylim=values[[0, -1]])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PLAIN)
        axis.set_minor_formatter(FuncFormatter(_minor_label))
    axes.grid(False)
    axes.set_xlabel("Classic flows" if drawn.link.l4s_flows else "Flows")
    axes.set_ylabel("Rate [Mbit/s]" if drawn.axis == "rate" else "Propagation RTT [ms]")
    _simulated_points(axes, drawn, scale)
    if reasons:
        figure.legend(
            handles=[
                Patch(
                    color=NOWHERE[how],
                    label=f"no equilibrium, {100 * (drawn.rest == how).mean():.2g} %: "
                    f"{REASONS[how]}",
                )
                for how in reasons
            ],
            loc="outside lower left",
            fontsize=STYLE["font.size"] - 1,
        )
    _map_captions(axes, drawn)
    return figure


def _map_captions(axes: Axes, drawn: StabilityMap) -> None:
    """Write the title, and captions for the line and the circles."""
    captions = []
    if drawn.stable.any() and not drawn.stable.all():
        captions.append("Line: limit of stability (theory).")
    if drawn.oscillation:
        captions.append(
            "Circles: standard deviation of the queue over its mean (packet simulation)."
        )
    if style.printed():
        axes.set_xlabel("\n".join([axes.get_xlabel(), *captions]))
    else:
        axes.text(0, -0.1, "\n".join(captions), transform=axes.transAxes, va="top", **NOTE)
    # The quantity that no axis shows is in the title.
    fixed = drawn.link.rtts if drawn.axis == "rate" else drawn.link.rate
    senders = f", {drawn.link.l4s_flows:g} L4S flows" if drawn.link.l4s_flows else ""
    senders += f", {drawn.link.senders}" if drawn.link.groups else ""
    windows = "" if drawn.windows == "published" else f", {drawn.windows} windows"
    axes.set_title(f"Stability of {title_of(drawn.law)} ({quantity(fixed)}{senders}{windows})")


def _minor_label(value: float, _position: int) -> str:
    """Return the label of a minor tick at 2 or 5 of a decade, which an axis of one decade needs."""
    lead = value / 10 ** math.floor(math.log10(value) + 1e-9)
    return f"{value:g}" if round(lead) in (2, 5) else ""


def _simulated_points(axes: Axes, drawn: StabilityMap, scale: float) -> None:
    """Draw the simulated points as circles with the relative deviation of the queue."""
    if not drawn.oscillation:
        return
    flows, values, deviation = (np.array(column) for column in zip(*drawn.oscillation, strict=True))
    axes.scatter(
        flows,
        values * scale,
        s=150 if style.printed() else 420,
        c=np.clip(deviation, 0, 1),
        cmap="Oranges",
        vmin=0,
        vmax=1.2,
        edgecolor="#222222",
        linewidth=0.9,
        zorder=3,
    )
    for x, y, value in zip(flows, values * scale, deviation, strict=True):
        axes.annotate(
            f"{value:.2f}",
            (x, y),
            ha="center",
            va="center_baseline",
            fontsize=4.5 if style.printed() else 7,
            zorder=4,
        )
