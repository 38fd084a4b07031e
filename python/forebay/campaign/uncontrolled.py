"""Time-domain figures of TCP and the queue without control and without delay.

pi-pd's Example 1 and bigdeli's section 5.1 close the loop of the plant C²/(2N)/((s + p1)(s + p2))
with a gain of one and leave out e^{−sR}. With the delay that loop is unstable by far; the
figures show how little damping the plant has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from forebay._native import OperatingPoint


@dataclass(frozen=True)
class SecondOrder:
    """ωn²/(s² + 2ξωn·s + ωn²), and what it means for a step.

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
        """As a share of the step."""
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
    """The plant in a loop of gain one, without delay: s² + (p1 + p2)s + p1·p2 + K."""
    p1, p2 = point.tcp_pole, point.queue_pole
    omega_n = math.sqrt(point.plant_gain + p1 * p2)
    xi = (p1 + p2) / (2 * omega_n)
    return SecondOrder(omega_n, xi, 1 / (1 + point.gain_at_rest))


def unit_step(
    point: OperatingPoint, duration_s: float, points: int = 4000
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (t, q) of that loop after a unit step (pi-pd figure 3)."""
    import numpy as np
    from scipy import signal

    p1, p2, gain = point.tcp_pole, point.queue_pole, point.plant_gain
    loop = ([gain], [1.0, p1 + p2, p1 * p2 + gain])
    time_s = np.linspace(0, duration_s, points)
    _, queue = signal.step(loop, T=time_s)
    return time_s, np.asarray(queue, float)
