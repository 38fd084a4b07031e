"""Control figures of pi-pd, and the theory that only they need.

Pi-pd's Example 1, and bigdeli's section 5.1, close the loop of the plant C²/(2N)/((s + p1)(s + p2))
with a gain of one and leave out e^{−sR}: `without_control`. With the delay that loop is unstable by
far; the figures show how lightly the plant is damped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import signal

from forebay._native import OperatingPoint
from forebay.report.parts import EDGE, stacked, wrapped, write_next_to
from forebay.report.plot import Plot, styled
from forebay.report.style import COLOURS


@dataclass(frozen=True)
class SecondOrder:
    """ωn²/(s² + 2ξωn·s + ωn²), and measures of its step response.

    Attributes
    ----------
    omega_n : float
        Natural frequency in rad/s.
    xi : float
        Damping ratio.
    error_at_rest : float
        Steady-state error of a unit step, 1/(1 + P(0)).
    """

    omega_n: float
    xi: float
    error_at_rest: float

    @property
    def omega_d(self) -> float:
        """The damped frequency in rad/s."""
        return self.omega_n * math.sqrt(1 - self.xi**2)

    @property
    def overshoot(self) -> float:
        """The overshoot as a share of the step."""
        return math.exp(-math.pi * self.xi / math.sqrt(1 - self.xi**2))

    @property
    def rise_s(self) -> float:
        """The rise time by pi-pd's rule of thumb, 1.8/ωn, in seconds."""
        return 1.8 / self.omega_n

    @property
    def rise_exact_s(self) -> float:
        """The time until the response first reaches the step, (π − arccos ξ)/ωd (bigdeli)."""
        return (math.pi - math.acos(self.xi)) / self.omega_d

    @property
    def settling_s(self) -> float:
        """The settling time 4/(ξωn) in seconds."""
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
    """Return time and queue of that loop after a unit step (pi-pd, figure 3).

    Parameters
    ----------
    point : OperatingPoint
        The operating point.
    duration_s : float
        Length of the response in seconds.
    points : int, optional
        Number of samples.
    """
    p1, p2, gain = point.tcp_pole, point.queue_pole, point.plant_gain
    time_s = np.linspace(0, duration_s, points)
    _, queue = signal.step(([gain], [1, p1 + p2, p1 * p2 + gain]), T=time_s)
    return time_s, queue


@styled
def pi_pd_3() -> Plot:
    """pi-pd figure 3: TCP and a queue in a loop of gain one, without control and delay."""
    point = OperatingPoint(60, 0.2467, 3750)
    measures = without_control(point)
    time_s, queue = unit_step(point, 2.5, 20_000)
    figure = Plot(figsize=(7.2, 3.6), layout="constrained")
    axes, zoom = stacked(figure, [2, 1], 3.9)
    for panel in (axes, zoom):
        panel.axhline(1, **EDGE)
        panel.plot(time_s, queue, color=COLOURS[0], linewidth=0.5 if panel is axes else 1.2)
        panel.set(xlabel="Time [s]", ylim=(0, 2.2))
    axes.axvline(measures.settling_s, color=COLOURS[1], linewidth=1.2)
    text = f"settling time {measures.settling_s:.2f} s"
    write_next_to(axes, text, (measures.settling_s, 2.0), (4, 0))
    axes.set(xlim=(0, 2.5), ylabel="Queue over its set-point")
    title = "Unit step, N = 60, R = 0.2467 s, C = 3750/s, delay left out"
    axes.set_title(wrapped(figure, title, 0.9))
    zoom.set(xlim=(0, 0.06))
    peak = (math.pi / measures.omega_d, 1 + measures.overshoot)
    write_next_to(zoom, f"overshoot {100 * measures.overshoot:.2f} %", peak, (4, 6))
    zoom.set_title("Its start")
    return figure


FIGURES: dict[str, Callable[[], Plot]] = {"pi-pd-3": pi_pd_3}
