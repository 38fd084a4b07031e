"""What TCP's own losses do to a queue at constant load, as packets show it.

The loop is that of `forebay.control.ack_clocking`, and two things make it the packets':

- Packets of a flow come in trains: a queue turns a window into one. A signal in the train's first
  half silences the sender within it; one later in the second half leaves some of the silence to the
  next train. With the place of the signal even, three quarters of a halving come R after it, and a
  quarter 2R: e^{−sR}(3 + e^{−sR})/4 in the place of e^{−1.25sR}. A signal splits the halving s to
  1 − s with E[s² + (1 − s)²] = 5/6, so that its power has the shape 5/6 + cos(ωR)/6.
- Windows of flows alone have the variance v·W², and move with the plant's pole. So the noise that
  drives their sum is white, with the intensity 2·pole·N·v·W². For flows out of recovery v is 1/6,
  and E[W³] = 14/9·E[W]³. A share λ/(1 + λ) is in recovery, with half of the window that was hit.
  The loop holds the sum, so that of N flows each window has 1 − 1/N of that variance, and
  (1 − 1/N)(1 − 2/N) of the third moment; signals halve squares, so that the noise is as
  E[W³]/E[W²].
- That is for signals at random. RED, whose probability acts at every arrival, spaces them evenly
  between 1/p_b and 2/p_b packets, and of their times only 1/27 of the variance is left: 7/8 of the
  noise, E[h]²/E[h²] of the halvings h, comes of the times, and 1/8 of which window is hit.

A probability does not fall below zero, nor does a queue; each is taken as a Gaussian that is cut
there and keeps its mean. What is cut off the probability lowers the law's gain, to the share of
time above zero. What is cut off the queue is what the flows have too few under way to fill the
pipe. A law that integrates is cut within: where that matters, `saturation` has it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from forebay.control import frequency_response, limit_cycle
from forebay.control import saturation as held
from forebay.control.ack_clocking import KAPPA, AckClockedEquilibrium
from forebay.control.frequency_response import Floats, Terms

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Of the halvings of a train, the part that comes in the next one, and the power of the split.
SECOND, SPLIT = 1 / 4, 5 / 6
#: E[W³]/E[W]³ of flows out of recovery.
CUBE = 14 / 9
#: Part of the noise that comes of the times of signals, and what even spacing leaves of it.
TIMES, SPACED = KAPPA**2 / (CUBE / 4), 1 / 27
#: Least and most frequency times R.
TURNS = (1e-4, 100.0)
#: Deviations over the mean below this are not cut.
SMALL = 0.1
#: Above this one, of the probability, it matters that an integral is cut within: one Gaussian in a
#: thousand is below zero.
CUT = 1 / 3
#: Rounds in which deviation and the cut at zero find each other.
ROUNDS = 30


@dataclass(frozen=True)
class Expected:
    """Of a stable loop at constant load.

    deviation_pkts: standard deviation of the queue. share: that of the probability over its mean.
    utilisation: share of the link that is used. mean_pkts: of the queue, which is below the
    set-point where a law's integral is cut at zero.
    """

    deviation_pkts: float
    share: float
    utilisation: float
    mean_pkts: float


def trains(loop: Loop) -> Terms:
    """The loop of `forebay.control.ack_clocking` with packets in trains."""
    t, rtt_s, age_s = loop.terms, loop.point.rtt_s, loop.model["age_s"]
    second = replace(t, gain=t.gain * SECOND, delay_s=2 * rtt_s + age_s)
    return replace(t, gain=t.gain * (1 - SECOND), delay_s=rtt_s + age_s, beside=second)


def noise(loop: Loop) -> float:
    """Intensity of the noise of all windows, in packets² per second."""
    rest = AckClockedEquilibrium.at_probability(loop.point.probability)
    signals, window = float(rest.signals), float(rest.window_pkts)
    second = (2 * KAPPA + CUBE / 4 * signals) * (1 + signals) / (1 + KAPPA * signals) ** 2
    flows = loop.point.rtt_s * loop.point.capacity_pkts_per_s / float(rest.in_flight_pkts)
    # Of the laws with a model, those that act at once are REDs.
    times = 1 - TIMES * (1 - SPACED) if loop.model["direct"] else 1.0
    return few(flows) * times * 2 * _pole(loop) * flows * (second - 1) * window**2


def few(flows: float) -> float:
    """Return the noise of `flows` flows over that of as many with independent windows.

    Less than one flow, which is one that is there for a part of the time, has no other to differ
    from while it is: its noise is that of one.
    """
    flows = max(flows, 1.0)
    held, skewed = 1 - 1 / flows, (1 - 1 / flows) * (1 - 2 / flows)
    spread = 2 * KAPPA - 1
    third = 1 + 3 * spread * held + (CUBE - 1 - 3 * spread) * skewed
    return third / CUBE * 2 * KAPPA / (1 + spread * held)


def _pole(loop: Loop) -> float:
    """TCP's own; the first, and real."""
    return float(np.real(np.asarray(loop.terms.poles[0])))


def expected(loop: Loop) -> Expected | None:
    """Around the rest of a loop of `Design.sawtooth`; None of one that is not stable."""
    if not loop.stable:
        return None
    point = loop.point
    rtt_s, capacity, p0 = point.rtt_s, point.capacity_pkts_per_s, point.probability
    high = min(TURNS[1] / rtt_s, loop.highest_rad_s)
    low = TURNS[0] / rtt_s
    omega = np.union1d(np.geomspace(low, high, 800), np.linspace(low, high, 2000))
    s = 1j * omega
    t, intensity, pole = trains(loop), noise(loop), _pole(loop)
    white = SPLIT + (1 - SPLIT) * np.cos(omega * rtt_s)
    acts = np.abs(limit_cycle.acts(loop, s)) ** 2

    def deviation(density: Floats) -> float:
        return float(np.trapezoid(density, omega)) / math.pi

    kept = 1.0
    for _ in range(ROUNDS):
        closed = np.abs(frequency_response.sensitivity(t.changed(gain=kept), s)) ** 2
        density = intensity * white * closed / (omega**2 + pole**2)
        # What is quicker than the grid passes the loop unchanged.
        variance = deviation(density) + SPLIT * intensity / high / math.pi
        p_deviation = math.sqrt(deviation(density * acts))
        last, kept = kept, _kept(p_deviation / p0)
        if abs(kept - last) < 1e-4:
            break
    queue_pkts = loop.model["queue_pkts"]
    pipe_pkts = capacity * rtt_s - queue_pkts
    share = p_deviation / p0
    integrates = loop.model["integrates"] and loop.model["average"] is None
    if share > CUT and integrates and held.can_step(t, rtt_s):
        moves = held.moves(t, rtt_s, p0, queue_pkts, intensity)
        used = 1 - moves.missing_pkts / pipe_pkts
        return Expected(moves.deviation_pkts, moves.share, used, moves.mean_pkts)
    deviation_pkts, missing_pkts = _cut(queue_pkts, math.sqrt(variance))
    return Expected(deviation_pkts, share, 1 - missing_pkts / pipe_pkts, queue_pkts)


def _kept(share: float) -> float:
    """Gain through a cut at zero, of a deviation over the mean that is left: the share of time
    above zero."""
    return 1.0 if share < SMALL else float(ndtr(_centre(share) / share))


def _cut(mean: float, deviation: float) -> tuple[float, float]:
    """Standard deviation of max(0, x) with this mean, of a Gaussian with this deviation, and
    E[max(−x, 0)]."""
    share = deviation / mean
    if share < SMALL:
        return deviation, 0.0
    centre = _centre(share)
    missing = below(centre, share)
    # E[max(0, x)²] = (μ² + σ²)Φ + μσφ, and σφ = mean − μΦ.
    above = float(ndtr(centre / share))
    square = (centre**2 + share**2) * above + centre * (1 - centre * above)
    return mean * math.sqrt(square - 1), mean * missing


def _centre(share: float) -> float:
    """μ of a Gaussian with this deviation for which E[max(0, x)] = 1."""
    return float(brentq(lambda mean: mean + below(mean, share) - 1, -50 * share - 1, 1.0))


def below(mean: float, deviation: float) -> float:
    """E[max(−x, 0)] of a Gaussian."""
    z = mean / deviation
    return deviation * (math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) - z * float(ndtr(-z)))
