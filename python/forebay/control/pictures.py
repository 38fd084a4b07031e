"""Pictures of a loop: Bode, Nyquist, step response, roots. Each returns a `Plot`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.ticker import MultipleLocator

from forebay.control import forms
from forebay.report.plots import COLOURS, STYLE, Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.control.loop import Loop
    from forebay.control.robust import Robust

#: Lines that say where stability ends.
EDGE: dict[str, Any] = {"color": "#222222", "linewidth": 1.0, "linestyle": (0, (5, 3))}
NOTE: dict[str, Any] = {"fontsize": 8, "color": "#333333"}
LINE = COLOURS[0]
MARGIN = COLOURS[1]


def bode(loop: Loop, title: str = "") -> Plot:
    """|L| in dB and the angle of L over frequency, with the margins drawn in."""
    margins = loop.margins
    known = [w for w in (margins.crossover_rad_s, margins.phase_crossover_rad_s) if w == w]
    centre = math.exp(float(np.mean(np.log(known)))) if known else 1 / loop.point.rtt_s
    low, high = centre / 100, min(centre * 30, loop.highest_rad_s)
    omega = np.geomspace(low, high, 3000)
    response = loop.response(omega)
    phase = np.degrees(np.unwrap(np.angle(response)))
    # np.unwrap starts anywhere on the circle: the loop's phase starts between 0 and −180°.
    phase -= 360 * math.ceil((phase[0] - 1e-6) / 360)
    phase += 360 if phase[0] < -270 else 0
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(7.2, 5.4), layout="constrained")
        top, bottom = figure.subplots(2, 1, sharex=True)
        top.semilogx(omega, 20 * np.log10(np.abs(response)), color=LINE)
        top.axhline(0, **EDGE)
        top.set_ylabel("Loop gain [dB]")
        bottom.semilogx(omega, phase, color=LINE)
        bottom.axhline(-180, **EDGE)
        bottom.set_ylabel("Phase [degrees]")
        bottom.set_xlabel("Frequency [rad/s]")
        bottom.yaxis.set_major_locator(MultipleLocator(90))
        bottom.set_ylim(max(phase.min() - 15, -450), max(phase.max() + 15, 0))
        top.set_xlim(low, high)
        # Of a law with an average the gain falls far: what is below −60 dB tells nothing.
        top.set_ylim(bottom=max(-60.0, float(20 * np.log10(np.abs(response)).min())) - 5)
        crossover, turn = margins.crossover_rad_s, margins.phase_crossover_rad_s
        if crossover == crossover:
            at = float(np.interp(crossover, omega, phase))
            bottom.plot([crossover] * 2, [-180, at], color=MARGIN, linewidth=2.2)
            bottom.annotate(
                f"phase margin {margins.phase_deg:.1f}° at {crossover:.3g} rad/s",
                (crossover, 0.5 * (at - 180)),
                xytext=(-8, 0),
                textcoords="offset points",
                ha="right",
                va="center",
                **NOTE,
            )
        if turn == turn and math.isfinite(margins.gain_db):
            gain = -margins.gain_db
            top.plot([turn] * 2, [gain, 0], color=MARGIN, linewidth=2.2)
            top.annotate(
                f"gain margin {margins.gain_db:.1f} dB at {turn:.3g} rad/s",
                (turn, gain),
                xytext=(-6, 0),
                textcoords="offset points",
                ha="right",
                va="top",
                **NOTE,
            )
        top.set_title(_titled(title, "loop gain"))
        _verdict(top, loop)
    return figure


def nyquist(loop: Loop, title: str = "") -> Plot:
    """L in the complex plane near −1, with the unit circle and the largest sensitivity."""
    response = loop.response(loop.grid)
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(5.4, 5.4), layout="constrained")
        axes = figure.subplots()
        turn = np.linspace(0, 2 * np.pi, 200)
        axes.plot(np.cos(turn), np.sin(turn), **{**EDGE, "color": "#999999"})
        nearest = 1 / loop.margins.sensitivity
        axes.plot(-1 + nearest * np.cos(turn), nearest * np.sin(turn), color=MARGIN, linewidth=1.0)
        axes.plot(response.real, response.imag, color=LINE)
        axes.plot([-1], [0], "+", color="#000000", markersize=10, markeredgewidth=1.6)
        axes.set(xlim=(-3, 1.5), ylim=(-2.5, 2), aspect="equal", xlabel="Re L", ylabel="Im L")
        axes.annotate(
            f"largest |1/(1 + L)| = {loop.margins.sensitivity:.2f}",
            (-1, nearest),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            va="bottom",
            **NOTE,
        )
        axes.set_title(_titled(title, "Nyquist curve, frequencies above 0"))
    return figure


def nichols(loop: Loop, title: str = "") -> Plot:
    """|L| in dB over its angle, with the edge |1/(1 + L)| = 2 and the margins as distances."""
    response = loop.response(loop.grid)
    angle = np.degrees(np.unwrap(np.angle(response)))
    angle -= 360 * math.ceil((angle[0] - 1e-6) / 360)
    size = 20 * np.log10(np.maximum(np.abs(response), 1e-12))
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(5.8, 5.0), layout="constrained")
        axes = figure.subplots()
        axes.plot(angle, size, color=LINE, label="L")
        nichols_frame(axes, color="#999999", linewidth=1.0)
        axes.set_title(_titled(title, "Nichols chart"))
    return figure


def nichols_frame(axes: Axes, **edge: Any) -> None:
    """What every Nichols chart has: the edge |1/(1 + L)| = 2, −1, 0 dB, axes and legend.

    edge: how the edge is drawn.
    """
    at = -1 + 0.5 * np.exp(1j * np.linspace(0, 2 * np.pi, 400))
    axes.plot(
        np.degrees(np.angle(at)) % 360 - 360,
        20 * np.log10(np.abs(at)),
        label="|1/(1 + L)| = 2",
        **edge,
    )
    axes.plot([-180], [0], "+", color="#000000", markersize=10, markeredgewidth=1.6, zorder=3)
    axes.axhline(0, **EDGE)
    axes.set(xlim=(-360, 0), ylim=(-40, 40), xlabel="Phase [degrees]", ylabel="Loop gain [dB]")
    axes.xaxis.set_major_locator(MultipleLocator(45))
    axes.legend(loc="upper left")


def step(loop: Loop, title: str = "") -> Plot:
    """The queue after a tenth more flows have come, by the linear loop."""
    duration_s = loop.settling_s * 1.5 if math.isfinite(loop.settling_s) else 30 * loop.point.rtt_s
    time_s, deviation_pkts = loop.step(duration_s)
    rest = loop.model["queue_pkts"]
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(7.2, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.axhline(rest, label=f"at rest, {rest:.4g} packets", **EDGE)
        axes.plot(time_s, rest + deviation_pkts, color=LINE)
        # Of several classes the loop has the delay, and no queue.
        held = loop.held
        axes.set(xlabel="Time since the flows came [s]", ylabel=f"{held} [packets]")
        axes.set_xlim(0, duration_s)
        settling = loop.settling_s
        if math.isfinite(settling):
            axes.axvline(settling, color=MARGIN, linewidth=1.2)
            axes.annotate(
                f"settling time {settling:.3g} s (2 %)",
                (settling, 0.92),
                xycoords=("data", "axes fraction"),
                xytext=(4, 0),
                textcoords="offset points",
                **NOTE,
            )
        axes.legend(loc="center right")
        axes.set_title(_titled(title, "a tenth more flows, by the linear loop"))
    return figure


def roots(loop: Loop, title: str = "") -> Plot:
    """The rightmost closed-loop roots in the s plane; of a sampled loop, ln z/T."""
    # What decides is near the origin; the chain that the delay adds goes on to the left.
    near = 12 / loop.point.rtt_s
    shown = np.array([s for s in loop.roots if s.real > -near and abs(s.imag) < near])
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(5.4, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.axvline(0, **EDGE)
        colours = [MARGIN if root.real >= 0 else LINE for root in shown]
        axes.scatter(shown.real, shown.imag, marker="x", c=colours, s=42)
        reach = 1.1 * float(np.abs(shown.real).max())
        axes.set_xlim(-reach, max(0.15 * reach, 1.15 * float(shown.real.max())))
        axes.set(xlabel="Re s [1/s]", ylabel="Im s [rad/s]")
        axes.set_title(_titled(title, "rightmost roots of the closed loop"))
    return figure


def regions(found: Robust) -> Plot:
    """The stabilising gains of every corner, the calm ones of all, and those that were chosen."""
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(7.2, 5.0), layout="constrained")
        axes = figure.subplots()
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
        calm = np.min([one.calm_k_i(k_p) for one in found.corners], axis=0)
        axes.fill_between(
            k_p, 1e-3 * found.gains.k_i, np.maximum(calm, 1e-3 * found.gains.k_i),
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


def _per(found: Robust) -> str:
    """The unit of a gain: of a law that measures the delay, per second of it."""
    return "1/s" if forms.of_delay(found.law) else "1/packet"


def _titled(title: str, what: str) -> str:
    return f"{title}: {what}" if title else what[0].upper() + what[1:]


def _verdict(axes: Axes, loop: Loop) -> None:
    axes.text(
        0.99,
        0.95,
        "stable" if loop.stable else "unstable",
        transform=axes.transAxes,
        ha="right",
        va="top",
        color="#007a55" if loop.stable else "#b03a00",
        fontweight="bold",
    )
