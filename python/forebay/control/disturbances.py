"""How far the queue and the probability move around their rest by the linear loop: by TCP's own
losses, and by changes of the load.

Signals come at random, p·C of them per second, which acts as white noise of intensity p/C on p. Of
Reno, which halves one of N windows, that is N·(W/2)²·pW/R = C/2 packets² per second on the sum of
the windows, with pW² = 2. The load changes once a minute so that TCP needs twice the p. Both pass
the queue's closed loop, so that a gain too high and a gain too low both raise the deviation. What
comes in bursts besides is white in the samples: as many packets as a Poisson process has more or
less in an interval.

`tune` and gains that fit a link are judged by this; `expected_queue` is nearer to packets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from forebay.control import frequency_response
from forebay.control.frequency_response import Floats

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Time between two changes of the load that a law is designed to bear.
LOAD_EVERY_S = 60.0
#: Frequencies times R; outside this range the disturbances hardly move the queue.
TURNS = np.union1d(np.geomspace(1e-4, 1, 120), np.arange(1, 40, 0.2))
#: Least and most frequency times R where bursts count, too.
BURST_TURNS = (1e-4, 60.0)


def densities(loop: Loop, omega: Floats) -> tuple[Floats, Floats]:
    """π times the density of the queue, without the law, by losses and by load: packets² s."""
    point = loop.point
    square = np.abs(frequency_response.plant(loop.to_queue, 1j * omega)) ** 2
    # With RTTs of their own, the flows of each hear a noise of their share of the signals.
    heard = [
        np.abs(frequency_response.plant(path, 1j * omega)) ** 2 / share
        for path, share in loop.signal_paths
    ]
    noise = np.sum(heard, axis=0) * point.probability / point.capacity_pkts_per_s
    # Steps of p0 at the plant's input, one in LOAD_EVERY_S.
    load = square * (point.probability / omega) ** 2 / LOAD_EVERY_S
    return noise, load


def queue_deviations(loop: Loop) -> tuple[float, float, float]:
    """Largest |1/(1 + L)|, and the queue's deviation by losses and by load, in packets."""
    point = loop.point
    omega = TURNS / point.rtt_s
    omega = np.union1d(omega[omega < loop.highest_rad_s], loop.highest_rad_s)
    omega = omega[omega <= 1.01 * TURNS[-1] / point.rtt_s]
    sensitivity = np.abs(frequency_response.sensitivity(loop.terms, 1j * omega))
    # The peak itself, between two of these frequencies.
    k = int(sensitivity.argmax())
    near = np.linspace(omega[max(k - 1, 0)], omega[min(k + 1, len(omega) - 1)], 33)
    peak = np.abs(frequency_response.sensitivity(loop.terms, 1j * near)).max()
    noise, load = (sensitivity**2 * part for part in densities(loop, omega))
    return float(max(peak, sensitivity[k])), _deviation(noise, omega), _deviation(load, omega)


def at_constant_load(loop: Loop) -> tuple[float, float]:
    """Standard deviation of the queue, in packets, and of the probability as a share of its mean,
    by losses and bursts."""
    point, t = loop.point, loop.terms
    low, high = (turn / point.rtt_s for turn in BURST_TURNS)
    high = min(high, loop.highest_rad_s)
    omega = np.union1d(np.geomspace(low, high, 600), np.linspace(low, high, 1500))
    s = 1j * omega
    square = np.abs(frequency_response.sensitivity(t, s)) ** 2
    queue = square * densities(loop, omega)[0]
    law = np.full_like(s, loop.model["direct"])
    bursts = np.zeros_like(omega)
    if t.interval_s is not None:
        law = law + frequency_response.law(t, s)
        interval_s = float(t.interval_s)
        arrivals = point.capacity_pkts_per_s * min(interval_s, point.rtt_s)
        bursts = np.where(omega < math.pi / interval_s, arrivals * interval_s, 0.0) * square
    pole = frequency_response.average_pole(loop.model)
    acts = np.abs(law if pole is None else law * pole / (s + pole)) ** 2
    p_deviation = _deviation((queue + bursts) * acts, omega)
    return _deviation(queue, omega), p_deviation / point.probability


def _deviation(density: Floats, omega: Floats) -> float:
    return math.sqrt(float(np.trapezoid(density, omega)) / math.pi)
