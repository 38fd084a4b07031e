"""The papers' control figures, and the theory that only they need.

`FIGURES` has the figures by name; each takes nothing and returns a `Plot`.

Pi-pd's Example 1 and bigdeli's section 5.1 close the loop of the plant C²/(2N)/((s + p1)(s + p2))
with a gain of one and leave out e^{−sR}: `without_control`. With the delay that loop is unstable by
far; the figures show how little damping the plant has.

Staqm's theorem 1 and its figures 11 and 29 say how slowly a self-tuning law must estimate:
1 + (K_rc/s)·T(s) = 0 with T = L/(1 + L), the loop as tuned for the true network; times s(1 + L),
that is s·a(s) + (s + K_rc)·b(s)·e^{−sR} = 0 for L = b/a·e^{−sR}. The critical 1/K_rc is where its
roots reach the axis; `critical_stpi_s` and `critical_stred_s` count them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray
from scipy import signal
from scipy.optimize import brentq

from forebay._native import OperatingPoint, averaging_design, critical_load_time_s
from forebay.control.delay_system import DelaySystem, RateLoop
from forebay.control.margins import edge
from forebay.report.parts import (
    EDGE,
    NOTE,
    at_corner,
    beside,
    is_narrow,
    legend_within,
    stacked,
    wrapped,
)
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS

# --- TCP and the queue without control ----------------------------------------------------------


@dataclass(frozen=True)
class SecondOrder:
    """ωn²/(s² + 2ξωn·s + ωn²), and the figures of its step response.

    rise_s: 1.8/ωn, the rule of thumb of pi-pd; rise_exact_s: time to first reach the step,
    (π − arccos ξ)/ωd, as bigdeli has it. settling_s: 4/(ξωn). error_at_rest: 1/(1 + P(0)).
    """

    omega_n: float
    xi: float
    error_at_rest: float

    @property
    def omega_d(self) -> float:
        return self.omega_n * math.sqrt(1 - self.xi**2)

    @property
    def overshoot(self) -> float:
        """The overshoot as a share of the step."""
        return math.exp(-math.pi * self.xi / math.sqrt(1 - self.xi**2))

    @property
    def rise_s(self) -> float:
        return 1.8 / self.omega_n

    @property
    def rise_exact_s(self) -> float:
        return (math.pi - math.acos(self.xi)) / self.omega_d

    @property
    def settling_s(self) -> float:
        return 4 / (self.xi * self.omega_n)


def without_control(point: OperatingPoint) -> SecondOrder:
    """Return the plant in a loop of gain one, without delay: s² + (p1 + p2)s + p1·p2 + K."""
    p1, p2 = point.tcp_pole, point.queue_pole
    omega_n = math.sqrt(point.plant_gain + p1 * p2)
    xi = (p1 + p2) / (2 * omega_n)
    return SecondOrder(omega_n, xi, 1 / (1 + point.gain_at_rest))


def unit_step(
    point: OperatingPoint, duration_s: float, points: int = 4000
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (t, q) of that loop after a unit step (pi-pd figure 3)."""
    p1, p2, gain = point.tcp_pole, point.queue_pole, point.plant_gain
    time_s = np.linspace(0, duration_s, points)
    _, queue = signal.step(([gain], [1, p1 + p2, p1 * p2 + gain]), T=time_s)
    return time_s, queue


# --- self-tuning laws ---------------------------------------------------------------------------


def stpi(beta: float, rtt_s: float, k_rc: float) -> DelaySystem:
    """PI with crossover at β/R; neither N nor C matter (staqm section III.D)."""
    g = beta * math.hypot(beta, 1) / rtt_s**2
    return _tuned([1, 1 / rtt_s, 0], [g], rtt_s, k_rc)


def stred(phase_deg: float, flows_per_capacity: float, rtt_s: float, k_rc: float) -> DelaySystem:
    """RED by appendix D for N/C, with the paper's crossover; phase_deg is β_red."""
    point = OperatingPoint(flows_per_capacity, rtt_s, 1.0)  # only N/C matters
    red = averaging_design(phase_deg, 0.1, point)
    a = np.polymul([1, point.tcp_pole], [1, point.queue_pole])
    a = np.polymul(a, [1, red["k_red"]])
    # L(0) = L_red·P(0), and the loop falls through one at ω_g.
    gain = red["l_red"] * point.plant_gain * red["k_red"]
    return _tuned(a.tolist(), [gain], rtt_s, k_rc)


def _tuned(a: list[float], b: list[float], delay_s: float, k_rc: float) -> DelaySystem:
    return DelaySystem([*a, 0.0], np.polymul(b, [1, k_rc]).tolist(), delay_s)


def critical_stpi_s(beta: float, rtt_s: float) -> float:
    """1/K_rc above which STPI is stable, in s; inf where its PI is not stable itself."""
    return _critical_s(lambda k_rc: stpi(beta, rtt_s, k_rc))


def critical_stred_s(phase_deg: float, flows_per_capacity: float, rtt_s: float) -> float:
    """1/K_rc above which STRED is stable, in s; inf where its RED is not stable itself."""
    return _critical_s(lambda k_rc: stred(phase_deg, flows_per_capacity, rtt_s, k_rc))


def _critical_s(system: Callable[[float], DelaySystem]) -> float:
    """Bisect over eight decades of time; 0 where every time constant is long enough."""

    def is_stable(log_s: float) -> bool:
        return system(math.exp(-log_s)).stable()

    short, long = math.log(1e-4), math.log(1e4)
    if not is_stable(long):
        return math.inf
    if is_stable(short):
        return 0.0
    return math.exp(edge(is_stable, long, short, 5e-4))


# --- figures ------------------------------------------------------------------------------------


@styled
def pi_pd_3() -> Plot:
    """pi-pd figure 3: TCP and a queue in a loop of gain one, without control and delay."""
    point = OperatingPoint(60, 0.2467, 3750)
    figures = without_control(point)
    time_s, queue = unit_step(point, 2.5, 20_000)
    figure = Plot(figsize=(7.2, 3.6), layout="constrained")
    axes, zoom = stacked(figure, [2, 1], 3.9)
    for panel in (axes, zoom):
        panel.axhline(1, **EDGE)
        panel.plot(time_s, queue, color=COLOURS[0], linewidth=0.5 if panel is axes else 1.2)
        panel.set(xlabel="Time [s]", ylim=(0, 2.2))
    axes.axvline(figures.settling_s, color=COLOURS[1], linewidth=1.2)
    text = f"settling time {figures.settling_s:.2f} s"
    beside(axes, text, (figures.settling_s, 2.0), (4, 0))
    axes.set(xlim=(0, 2.5), ylabel="Queue over its set-point")
    title = "Unit step, N = 60, R = 0.2467 s, C = 3750/s, delay left out"
    axes.set_title(wrapped(figure, title, 0.9))
    zoom.set(xlim=(0, 0.06))
    peak = (math.pi / figures.omega_d, 1 + figures.overshoot)
    beside(zoom, f"overshoot {100 * figures.overshoot:.2f} %", peak, (4, 6))
    zoom.set_title("Its start")
    return figure


def of_one_panel(title: str) -> Callable[[Callable[[Axes], None]], Callable[[], Plot]]:
    """A figure that draws into the only axes of it."""

    def framed(draw: Callable[[Axes], None]) -> Callable[[], Plot]:
        @styled
        @wraps(draw)
        def figure_of_it() -> Plot:
            figure, axes = one_panel(7.2, 4.4)
            draw(axes)
            axes.set_title(wrapped(figure, title, 0.9))
            axes.set_ylabel(wrapped(figure, axes.get_ylabel(), 0.5))
            return figure

        return figure_of_it

    return framed


@of_one_panel("Self-tuning PI: critical time constants (staqm figure 11)")
def staqm_11(axes: Axes) -> None:
    """staqm figure 11: how slowly STPI must estimate the load."""
    # PI itself has a phase margin of π/2 − β − atan β: its zero cancels TCP's pole, and at β/R
    # the delay takes β, the queue's pole atan β.
    edge = brentq(lambda beta: math.pi / 2 - beta - math.atan(beta), 0, 1)
    betas = np.concatenate([np.linspace(0.05, 0.84, 80), edge - np.geomspace(0.02, 5e-4, 20)])
    for colour, rtt_ms in zip(COLOURS, [50, 100, 150, 200, 250], strict=False):
        times = [critical_load_time_s(float(beta), rtt_ms / 1e3) for beta in betas]
        axes.plot(betas, times, color=colour, label=f"R = {rtt_ms} ms")
        counted = np.arange(0.1, 0.81, 0.1)
        axes.plot(
            counted,
            [critical_stpi_s(float(b), rtt_ms / 1e3) for b in counted],
            "o",
            color=colour,
            markersize=4,
            markerfacecolor="white",
        )
    for rtt_s, offset in [(0.1, (5, 3)), (0.25, (-8, 8))]:
        critical_s = critical_load_time_s(0.5, rtt_s)
        beside(axes, f"{critical_s:.3g} s", (0.5, critical_s), offset)
    axes.axvline(edge, **EDGE)
    axes.set(
        xlabel="Responsiveness β",
        ylabel="Time constant of the load estimate, 1/K_rc [s]",
        xlim=(0, 0.9),
        ylim=(0, 4),
    )
    axes.text(edge + 0.008, 2, "PI itself is unstable", rotation=90, va="center", **NOTE)
    axes.legend(loc="upper left", title="stable above the line; ○ by counting roots")


@of_one_panel("RED designed for a phase margin of 85°: response time (staqm figure 12)")
def staqm_12(axes: Axes) -> None:
    """staqm figure 12: how slowly a stable RED answers."""
    ratios = np.geomspace(0.0004, 0.02, 200)
    for colour, rtt_ms in zip(COLOURS, [50, 100, 150, 200, 250], strict=False):
        points = [OperatingPoint(float(ratio), rtt_ms / 1e3, 1.0) for ratio in ratios]
        times = [1 / averaging_design(85, 0.1, point)["omega_g"] for point in points]
        axes.loglog(ratios, times, color=colour, label=f"R = {rtt_ms} ms")
    for ratio in (0.0064, 0.0005):
        at = 1 / averaging_design(85, 0.1, OperatingPoint(ratio, 0.15, 1.0))["omega_g"]
        axes.plot([ratio], [at], "o", color=COLOURS[2], markersize=5)
        beside(axes, f"{at:.3g} s", (ratio, at), (6, 4))
    axes.set(
        xlabel="Flows over capacity, N/C [s]",
        ylabel="Response time of the loop, 1/ω_g [s]",
        xlim=(ratios[0], ratios[-1]),
    )
    legend_within(axes)
    figure = axes.get_figure()
    assert isinstance(figure, Plot)
    note = (
        "At R = 150 ms and N/C = 0.0005 s the paper has 40 s. Its own rule (appendix D),",
        "which is drawn here, gives 225 s.",
    )
    if is_narrow(figure):
        axes.set_xlabel(f"{axes.get_xlabel()}\n{wrapped(figure, ' '.join(note))}")
    else:
        at_corner(axes, "\n".join(note), (0.02, 0.03))


@of_one_panel("Self-tuning RED: critical time constants (staqm figure 29)")
def staqm_29(axes: Axes) -> None:
    """staqm figure 29: how slowly STRED must estimate the load."""
    phases = np.linspace(50, 88, 20)
    styles: list[Any] = ["-", "--", ":"]
    ratios = [0.002, 0.006, 0.02]
    for colour, rtt_ms in zip(COLOURS, [100, 150, 250], strict=False):
        for style, ratio in zip(styles, ratios, strict=True):
            times = [critical_stred_s(float(phase), ratio, rtt_ms / 1e3) for phase in phases]
            axes.semilogy(np.radians(phases), times, style, color=colour)
    handles = [
        Line2D([], [], color=c, label=f"R = {r} ms")
        for c, r in zip(COLOURS, [100, 150, 250], strict=False)
    ]
    handles += [
        Line2D([], [], color="#555555", linestyle=s, label=f"N/C = {r:g} s")
        for s, r in zip(styles, ratios, strict=True)
    ]
    legend_within(axes, narrow_columns=2, handles=handles, ncols=2, title="stable above the line")
    axes.set(
        xlabel="Aggressiveness β_red [rad]",
        ylabel="Time constant of the load estimate, 1/K_rc [s]",
        ylim=(0.2, 100),
    )


#: The network in which e-avq's theorem is looked at; K_p = 0.05 and K_i = 0.5 are the example's.
EAVQ = {"capacity_pkts_per_s": 1250.0, "flows": 50.0, "rtt_s": 0.1, "k_i": 0.5}


@styled
def e_avq_theorem() -> Plot:
    """e-avq's theorem as printed, beside the exact test."""
    k2 = RateLoop(**EAVQ).k2
    gains, k_ps = np.linspace(0.02, 1.6, 80), np.linspace(0.0, 1.0, 36)
    verdict = np.zeros((len(k_ps), len(gains)), int)
    for i, k_p in enumerate(k_ps):
        for j, gain in enumerate(gains):
            loop = RateLoop(**EAVQ, k_p=float(k_p), k_d=float(gain) / k2)
            verdict[i, j] = 2 * loop.system.stable() + loop.printed_theorem()
    # Unstable for both, theorem alone says stable, exact test alone does, stable for both.
    colours = ["#dddddd", "#e08a5c", "#62b99a", "#2c6fa6"]
    labels = [
        "unstable, and the theorem says so",
        "unstable; the theorem says stable",
        "stable; the theorem says unstable",
        "stable, and the theorem says so",
    ]
    figure = Plot(figsize=(8.8, 4.2), layout="constrained")
    axes, right = stacked(figure, [1, 1], 5.0)
    axes.pcolormesh(
        gains, k_ps, verdict, cmap=ListedColormap(colours), vmin=-0.5, vmax=3.5, rasterized=True
    )
    axes.axvline(1, **EDGE)
    for gain in (0.5, 1.2):
        axes.plot([gain], [0.05], "o", color="#000000", markersize=5)
    axes.set(xlabel="K2·Kd", ylabel="Kp")
    axes.grid(False)
    present = [i for i in range(4) if (verdict == i).any()]
    figure.legend(
        handles=[Patch(color=colours[i], label=labels[i]) for i in present],
        loc="outside lower center",
        ncols=1 if is_narrow(figure) else len(present),
    )
    axes.set_title("C = 1250/s, N = 50, d = 0.1 s, Ki = 0.5")
    gains = np.linspace(0.05, 1.6, 60)
    near, far = [], []
    for gain in gains:
        loop = RateLoop(**EAVQ, k_p=0.05, k_d=float(gain) / k2)
        near.append(loop.system.rightmost().real)
        far.append(loop.far_roots_real_s())
    right.axhline(0, **EDGE)
    right.plot(gains, near, color=COLOURS[0], label="rightmost root")
    right.plot(gains, far, color=COLOURS[1], label="ln(K2·Kd)/d: roots far from 0")
    for gain in (0.5, 1.2):
        root = RateLoop(**EAVQ, k_p=0.05, k_d=gain / k2).system.rightmost()
        right.plot([gain], [root.real], "o", color="#000000", markersize=5)
        text = f"{root.real:.3g}" + (f" ± {root.imag:.3g}j" if root.imag else "")
        beside(right, text.replace("-", "−"), (gain, root.real), (-2, 7))
    right.set(xlabel="K2·Kd", ylabel="Re s [1/s]", ylim=(-12, 8))
    right.legend(loc="lower right")
    right.set_title("Kp = 0.05: where the roots are")
    return figure


FIGURES: dict[str, Callable[[], Plot]] = {
    "pi-pd-3": pi_pd_3,
    "staqm-11": staqm_11,
    "staqm-12": staqm_12,
    "staqm-29": staqm_29,
    "e-avq-theorem": e_avq_theorem,
}
