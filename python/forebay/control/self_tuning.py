"""How slowly a self-tuning law must estimate (staqm theorem 1, figures 11 and 29).

1 + (K_rc/s)·T(s) = 0 with T = L/(1 + L), the loop as tuned for the true network: times s(1 + L),
that is s·a(s) + (s + K_rc)·b(s)·e^{−sR} = 0 for L = b/a·e^{−sR}. The critical 1/K_rc is where its
roots reach the axis, found here by counting them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from forebay._native import OperatingPoint, averaging_design
from forebay.control.delay_system import DelaySystem
from forebay.control.margins import edge


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
    """Bisection over eight decades of time; 0 where every time constant is long enough."""

    def is_stable(log_s: float) -> bool:
        return system(math.exp(-log_s)).stable()

    short, long = math.log(1e-4), math.log(1e4)
    if not is_stable(long):
        return math.inf
    if is_stable(short):
        return 0.0
    return math.exp(edge(is_stable, long, short, 5e-4))
