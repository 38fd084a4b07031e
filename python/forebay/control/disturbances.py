"""Standard deviations of queue and probability by the linear loop, from losses and load changes.

Signals come at random, p·C of them per second, which acts as white noise of intensity p/C on p.
Reno halves one of N windows, which is N·(W/2)²·pW/R = C/2 packets² per second on the sum of the
windows, with pW² = 2. Once a minute the load changes so that TCP needs twice the p. Both
disturbances pass the closed loop of the queue, so too much gain and too little gain both raise
the deviation. Bursts of arrivals are white in the samples, with the variance of a Poisson process
in an interval.

`tune` and automatic gain design use these deviations; `expected_queue` is closer to packets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from forebay.control import frequency_response
from forebay.control.frequency_response import Floats

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Time in seconds between two changes of the load.
LOAD_EVERY_S = 60.0
#: Frequencies times R. Outside this range the disturbances hardly move the queue.
TURNS = np.union1d(np.geomspace(1e-4, 1, 120), np.arange(1, 40, 0.2))
#: Lowest and highest frequency times R, where bursts are included.
BURST_TURNS = (1e-4, 60.0)


def densities(loop: Loop, omega: Floats) -> tuple[Floats, Floats]:
    """Return π times the spectral densities of the queue without the law.

    Parameters
    ----------
    loop : Loop
        The loop.
    omega : array of shape (n,)
        Frequencies in rad/s.

    Returns
    -------
    (array, array)
        Densities in packets²·s caused by losses and by load changes.
    """
    point = loop.point
    square = np.abs(frequency_response.plant(loop.to_queue, 1j * omega)) ** 2
    # Flows with several RTTs each receive their share of the signals, and of the noise.
    densities_of_paths = [
        np.abs(frequency_response.plant(path, 1j * omega)) ** 2 / share
        for path, share in loop.signal_paths
    ]
    noise = np.sum(densities_of_paths, axis=0) * point.probability / point.capacity_pkts_per_s
    # Steps of p0 at the plant's input, one in LOAD_EVERY_S.
    load = square * (point.probability / omega) ** 2 / LOAD_EVERY_S
    return noise, load


def queue_deviations(loop: Loop) -> tuple[float, float, float]:
    """Return the sensitivity peak, and the queue's standard deviations by losses and by the load.

    The deviations are in packets.
    """
    point = loop.point
    omega = TURNS / point.rtt_s
    omega = np.union1d(omega[omega < loop.highest_rad_s], loop.highest_rad_s)
    omega = omega[omega <= 1.01 * TURNS[-1] / point.rtt_s]
    sensitivity = np.abs(frequency_response.sensitivity(loop.terms, 1j * omega))
    # The peak is between two of these frequencies.
    k = int(sensitivity.argmax())
    near = np.linspace(omega[max(k - 1, 0)], omega[min(k + 1, len(omega) - 1)], 33)
    peak = np.abs(frequency_response.sensitivity(loop.terms, 1j * near)).max()
    noise, load = (sensitivity**2 * part for part in densities(loop, omega))
    return float(max(peak, sensitivity[k])), _deviation(noise, omega), _deviation(load, omega)


def at_constant_load(loop: Loop) -> tuple[float, float]:
    """Return the standard deviations of queue and probability caused by losses and bursts.

    The first is in packets; the second is relative to the mean probability.
    """
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
