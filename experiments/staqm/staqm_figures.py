"""Control figures of staqm, and the theory that only they need.

Staqm's theorem 1 and its figures 11 and 29 say how slowly a self-tuning law must estimate:
1 + (K_rc/s)·T(s) = 0 with T = L/(1 + L), the loop as tuned for the true network; times s(1 + L),
that is s·a(s) + (s + K_rc)·b(s)·e^{−sR} = 0 for L = b/a·e^{−sR}. The critical 1/K_rc is where its
roots reach the imaginary axis; `critical_stpi_s` and `critical_stred_s` count them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scipy.optimize import brentq

from forebay._native import OperatingPoint, averaging_design, critical_load_time_s
from forebay.control.delay_system import DelaySystem
from forebay.control.margins import edge
from forebay.report.parts import (
    EDGE,
    NOTE,
    is_narrow,
    legend_within,
    wrapped,
    write_at,
    write_next_to,
)
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS


def stpi(beta: float, rtt_s: float, k_rc: float) -> DelaySystem:
    """Return the loop of STPI while it estimates the load.

    Parameters
    ----------
    beta : float
        Responsiveness: PI's crossover is at β/R, and neither N nor C matter (section III.D).
    rtt_s : float
        Round-trip time R in seconds.
    k_rc : float
        Gain of the load estimate in 1/s.
    """
    g = beta * math.hypot(beta, 1) / rtt_s**2
    return _tuned([1, 1 / rtt_s, 0], [g], rtt_s, k_rc)


def stred(phase_deg: float, flows_per_capacity: float, rtt_s: float, k_rc: float) -> DelaySystem:
    """Return the loop of STRED while it estimates the load.

    Parameters
    ----------
    phase_deg : float
        Phase margin β_red of RED's design (appendix D) in degrees, with the paper's crossover.
    flows_per_capacity : float
        N/C in seconds.
    rtt_s : float
        Round-trip time R in seconds.
    k_rc : float
        Gain of the load estimate in 1/s.
    """
    point = OperatingPoint(flows_per_capacity, rtt_s, 1.0)  # only N/C matters
    red = averaging_design(phase_deg, 0.1, point)
    a = np.polymul([1, point.tcp_pole], [1, point.queue_pole])
    a = np.polymul(a, [1, red["k_red"]])
    # L(0) = L_red·P(0), and the loop gain falls through one at ω_g.
    gain = red["l_red"] * point.plant_gain * red["k_red"]
    return _tuned(a.tolist(), [gain], rtt_s, k_rc)


def _tuned(a: list[float], b: list[float], delay_s: float, k_rc: float) -> DelaySystem:
    return DelaySystem([*a, 0.0], np.polymul(b, [1, k_rc]).tolist(), delay_s)


def critical_stpi_s(beta: float, rtt_s: float) -> float:
    """Return the 1/K_rc above which STPI is stable.

    Parameters
    ----------
    beta : float
        Responsiveness.
    rtt_s : float
        Round-trip time in seconds.

    Returns
    -------
    float
        Time constant in seconds; ``inf`` if the PI itself is unstable.
    """
    return _critical_s(lambda k_rc: stpi(beta, rtt_s, k_rc))


def critical_stred_s(phase_deg: float, flows_per_capacity: float, rtt_s: float) -> float:
    """Return the 1/K_rc above which STRED is stable.

    Parameters
    ----------
    phase_deg : float
        Phase margin of RED's design in degrees.
    flows_per_capacity : float
        N/C in seconds.
    rtt_s : float
        Round-trip time in seconds.

    Returns
    -------
    float
        Time constant in seconds; ``inf`` if the RED itself is unstable.
    """
    return _critical_s(lambda k_rc: stred(phase_deg, flows_per_capacity, rtt_s, k_rc))


def _critical_s(system: Callable[[float], DelaySystem]) -> float:
    """Bisect over eight decades of time; 0 if every time constant is long enough."""

    def is_stable(log_s: float) -> bool:
        return system(math.exp(-log_s)).stable()

    short, long = math.log(1e-4), math.log(1e4)
    if not is_stable(long):
        return math.inf
    if is_stable(short):
        return 0.0
    return math.exp(edge(is_stable, long, short, 5e-4))


def of_one_panel(title: str) -> Callable[[Callable[[Axes], None]], Callable[[], Plot]]:
    """Return a decorator for a function that draws into the only axes of a figure."""

    def framed(draw: Callable[[Axes], None]) -> Callable[[], Plot]:
        @styled
        @wraps(draw)
        def draw_figure() -> Plot:
            figure, axes = one_panel(7.2, 4.4)
            draw(axes)
            axes.set_title(wrapped(figure, title, 0.9))
            axes.set_ylabel(wrapped(figure, axes.get_ylabel(), 0.5))
            return figure

        return draw_figure

    return framed


@of_one_panel("Self-tuning PI: critical time constants (staqm figure 11)")
def staqm_11(axes: Axes) -> None:
    """staqm figure 11: how slowly STPI must estimate the load."""
    # PI itself has a phase margin of π/2 − β − atan β: its zero cancels TCP's pole, and at β/R
    # the delay takes β, the queue's pole atan β.
    limit = brentq(lambda beta: math.pi / 2 - beta - math.atan(beta), 0, 1)
    betas = np.concatenate([np.linspace(0.05, 0.84, 80), limit - np.geomspace(0.02, 5e-4, 20)])
    for colour, rtt_ms in zip(COLOURS, [50, 100, 150, 200, 250], strict=False):
        times = [critical_load_time_s(float(beta), rtt_ms / 1e3) for beta in betas]
        axes.plot(betas, times, color=colour, label=f"R = {rtt_ms} ms")
        counted = np.arange(0.1, 0.81, 0.1)
        times = [critical_stpi_s(float(beta), rtt_ms / 1e3) for beta in counted]
        axes.plot(counted, times, "o", color=colour, markersize=4, markerfacecolor="white")
    for rtt_s, offset in [(0.1, (5, 3)), (0.25, (-8, 8))]:
        critical_s = critical_load_time_s(0.5, rtt_s)
        write_next_to(axes, f"{critical_s:.3g} s", (0.5, critical_s), offset)
    axes.axvline(limit, **EDGE)
    axes.set(
        xlabel="Responsiveness β",
        ylabel="Time constant of the load estimate, 1/K_rc [s]",
        xlim=(0, 0.9),
        ylim=(0, 4),
    )
    axes.text(limit + 0.008, 2, "PI itself is unstable", rotation=90, va="center", **NOTE)
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
        write_next_to(axes, f"{at:.3g} s", (ratio, at), (6, 4))
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
        write_at(axes, "\n".join(note), (0.02, 0.03))


@of_one_panel("Self-tuning RED: critical time constants (staqm figure 29)")
def staqm_29(axes: Axes) -> None:
    """staqm figure 29: how slowly STRED must estimate the load."""
    phases = np.linspace(50, 88, 20)
    styles: list[Any] = ["-", "--", ":"]
    ratios, rtts_ms = [0.002, 0.006, 0.02], [100, 150, 250]
    for colour, rtt_ms in zip(COLOURS, rtts_ms, strict=False):
        for style, ratio in zip(styles, ratios, strict=True):
            times = [critical_stred_s(float(phase), ratio, rtt_ms / 1e3) for phase in phases]
            axes.semilogy(np.radians(phases), times, style, color=colour)
    handles = [
        Line2D([], [], color=colour, label=f"R = {rtt_ms} ms")
        for colour, rtt_ms in zip(COLOURS, rtts_ms, strict=False)
    ]
    handles += [
        Line2D([], [], color="#555555", linestyle=style, label=f"N/C = {ratio:g} s")
        for style, ratio in zip(styles, ratios, strict=True)
    ]
    legend_within(axes, narrow_columns=2, handles=handles, ncols=2, title="stable above the line")
    axes.set(
        xlabel="Aggressiveness β_red [rad]",
        ylabel="Time constant of the load estimate, 1/K_rc [s]",
        ylim=(0.2, 100),
    )


FIGURES: dict[str, Callable[[], Plot]] = {
    "staqm-11": staqm_11,
    "staqm-12": staqm_12,
    "staqm-29": staqm_29,
}
