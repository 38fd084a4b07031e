"""How far TCP's own losses move the queue and the probability around their rest, by the linear
loop.

A signal halves one of N windows and comes to each flow at p·W/R. On the sum of the windows this
acts as white noise of intensity N·(W/2)²·pW/R = C/2 packets² per second, with pW² = 2. What comes
in bursts besides is white in the samples: as many packets as a Poisson process has more or less in
an interval.

Gains that fit a link (docs/gains.md) are judged by this; `forebay.control.expected` is nearer to
packets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from forebay.control import gain

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Least and most frequency times R.
TURNS = (1e-4, 60.0)


def deviations(loop: Loop) -> tuple[float, float]:
    """Standard deviation of the queue, in packets, and of the probability as a share of its mean,
    at constant load."""
    point, t = loop.point, loop.terms
    low, high = (turn / point.rtt_s for turn in TURNS)
    high = min(high, loop.highest_rad_s)
    omega = np.union1d(np.geomspace(low, high, 600), np.linspace(low, high, 1500))
    s = 1j * omega
    sensitivity = np.abs(gain.sensitivity(t, s))
    poles = np.abs((s + point.tcp_pole) * (s + point.queue_pole))
    # Windows' sum to queue: dq/dt = ΣW/R − C.
    queue = 0.5 * point.capacity_pkts_per_s * (sensitivity / poles / point.rtt_s) ** 2
    law = np.full_like(s, loop.model["direct"])
    bursts = np.zeros_like(omega)
    if t.interval_s is not None:
        law = law + gain.law(t, s)
        interval_s = float(t.interval_s)
        arrivals = point.capacity_pkts_per_s * min(interval_s, point.rtt_s)
        bursts = np.where(omega < math.pi / interval_s, arrivals * interval_s, 0.0)
        bursts = bursts * sensitivity**2
    pole = gain.average_pole(loop.model)
    acts = np.abs(law if pole is None else law * pole / (s + pole)) ** 2

    def deviation(density: gain.Floats) -> float:
        return math.sqrt(float(np.trapezoid(density, omega)) / math.pi)

    return deviation(queue), deviation((queue + bursts) * acts) / point.probability
