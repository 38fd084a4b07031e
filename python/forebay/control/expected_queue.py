"""The queue of the ACK-clocked loop at constant load: its moments, or its limit cycle.

`expected` returns the standard deviations that TCP's own losses cause in a stable loop, and
`limit_cycle` the oscillation of an unstable one. The loop is that of
`forebay.control.ack_clocking`. Three properties of packets are added:

- Packets of a flow come in trains, since a queue turns a window into a train. A signal in the first
  half of a train silences the sender within it; a signal in the second half leaves part of the
  silence to the next train. With signals evenly spread over the train, three quarters of a halving
  come R after it, and a quarter 2R: e^{−sR}(3 + e^{−sR})/4 in place of e^{−1.25sR}. A signal splits
  the halving s to 1 − s with E[s² + (1 − s)²] = 5/6, so its power has the shape 5/6 +
  cos(ωR)/6.
- Independent windows have the variance v·W² and move with the plant's pole, so the noise that
  drives their sum is white with the intensity 2·pole·N·v·W². Flows out of recovery have v = 1/6 and
  E[W³] = 14/9·E[W]³. A fraction λ/(1 + λ) of the flows is in recovery, with half of the window that
  received the signal. The loop controls the sum: each of N windows has 1 − 1/N of that variance,
  and (1 − 1/N)(1 − 2/N) of the third moment. The noise is proportional to E[W³]/E[W²], since
  signals halve windows.
- This holds for signals at random times. RED, whose probability acts at every arrival, spaces
  signals evenly between 1/p_b and 2/p_b packets, which leaves 1/27 of the variance of their times.
  7/8 of the noise, E[h]²/E[h²] of the halvings h, is caused by the times, and 1/8 by the choice of
  the window.

Probability and queue cannot fall below zero. Each is modelled as a Gaussian that is clipped at zero
and keeps its mean. Clipping the probability reduces the law's gain to the fraction of time above
zero. Clipping the queue is the number of packets in flight that flows lack to fill the pipe. The
probability of a law that integrates is clipped inside the law; where that matters,
`saturated_moments` steps the loop in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq, root
from scipy.special import ndtr

import forebay._native as _native
from forebay.control import frequency_response
from forebay.control.ack_clocking import KAPPA, AckClockedEquilibrium
from forebay.control.frequency_response import Complexes, Floats, Terms

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Part of a halving that comes in the next train, and power of the split halving.
SECOND, SPLIT = 1 / 4, 5 / 6
#: E[W³]/E[W]³ of flows out of recovery.
CUBE = 14 / 9
#: Part of the noise that the times of signals cause, and the fraction that even spacing leaves.
TIMES, SPACED = KAPPA**2 / (CUBE / 4), 1 / 27
#: Lowest and highest frequency times R.
TURNS = (1e-4, 100.0)
#: Below this ratio of deviation to mean, clipping is negligible.
SMALL = 0.1
#: Above this ratio for the probability, clipping inside an integral matters: one Gaussian sample in
#: a thousand is below zero.
CUT = 1 / 3
#: Largest number of iterations of deviation and clipping.
ROUNDS = 30


@dataclass(frozen=True)
class Expected:
    """The moments of a stable loop at constant load.

    Attributes
    ----------
    deviation_pkts : float
        Standard deviation of the queue.
    share : float
        Standard deviation of the probability over its mean.
    utilisation : float
        Fraction of the link that is used.
    mean_pkts : float
        Mean queue, which is below the set-point where a law's integral is clipped at zero.
    """

    deviation_pkts: float
    share: float
    utilisation: float
    mean_pkts: float


def trains(loop: Loop) -> Terms:
    """Return the loop of `forebay.control.ack_clocking` with packets in trains."""
    t, rtt_s, age_s = loop.terms, loop.point.rtt_s, loop.model["age_s"]
    second = replace(t, gain=t.gain * SECOND, delay_s=2 * rtt_s + age_s)
    return replace(t, gain=t.gain * (1 - SECOND), delay_s=rtt_s + age_s, parallel=second)


def noise(loop: Loop) -> float:
    """Return the intensity of the noise of all windows, in packets² per second."""
    equilibrium = AckClockedEquilibrium.at_probability(loop.point.probability)
    signals, window = float(equilibrium.signals), float(equilibrium.window_pkts)
    second = (2 * KAPPA + CUBE / 4 * signals) * (1 + signals) / (1 + KAPPA * signals) ** 2
    flows = loop.point.rtt_s * loop.point.capacity_pkts_per_s / float(equilibrium.in_flight_pkts)
    # Of the laws with a model, those with direct action are variants of RED.
    times = 1 - TIMES * (1 - SPACED) if loop.model["direct"] else 1.0
    return few(flows) * times * 2 * _pole(loop) * flows * (second - 1) * window**2


def few(flows: float) -> float:
    """Return the noise of `flows` flows relative to that of as many independent windows.

    Fewer than one flow stands for one flow that is active part of the time; its noise is that of
    one flow.
    """
    flows = max(flows, 1.0)
    coupled, skewed = 1 - 1 / flows, (1 - 1 / flows) * (1 - 2 / flows)
    spread = 2 * KAPPA - 1
    third = 1 + 3 * spread * coupled + (CUBE - 1 - 3 * spread) * skewed
    return third / CUBE * 2 * KAPPA / (1 + spread * coupled)


def _pole(loop: Loop) -> float:
    """Return TCP's own pole, which is the first one and real."""
    return float(np.real(np.asarray(loop.terms.poles[0])))


def expected(loop: Loop) -> Expected | None:
    """Return the moments of a loop of `Design.sawtooth`; None for an unstable loop."""
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
    acts = np.abs(controller_output(loop, s)) ** 2

    def deviation(density: Floats) -> float:
        return float(np.trapezoid(density, omega)) / math.pi

    cut_gain = 1.0
    for _ in range(ROUNDS):
        closed = np.abs(frequency_response.sensitivity(t.changed(gain=cut_gain), s)) ** 2
        density = intensity * white * closed / (omega**2 + pole**2)
        # Faster changes than the grid has pass the loop unchanged.
        variance = deviation(density) + SPLIT * intensity / high / math.pi
        p_deviation = math.sqrt(deviation(density * acts))
        previous, cut_gain = cut_gain, _clipped_gain(p_deviation / p0)
        if abs(cut_gain - previous) < 1e-4:
            break
    queue_pkts = loop.model["queue_pkts"]
    pipe_pkts = capacity * rtt_s - queue_pkts
    share = p_deviation / p0
    integrates = loop.model["integrates"] and loop.model["average"] is None
    if share > CUT and integrates and can_step(t, rtt_s):
        moments = saturated_moments(t, rtt_s, p0, queue_pkts, intensity)
        used = 1 - moments.missing_pkts / pipe_pkts
        return Expected(moments.deviation_pkts, moments.share, used, moments.mean_pkts)
    deviation_pkts, missing_pkts = _clipped(queue_pkts, math.sqrt(variance))
    return Expected(deviation_pkts, share, 1 - missing_pkts / pipe_pkts, queue_pkts)


def _clipped_gain(share: float) -> float:
    """Return the describing-function gain of a Gaussian clipped at zero, P(x > 0)."""
    return 1.0 if share < SMALL else float(ndtr(_centre(share) / share))


def _clipped(mean: float, deviation: float) -> tuple[float, float]:
    """Return the standard deviation of max(0, x), and E[max(−x, 0)], for a Gaussian x.

    `mean` is that of max(0, x), and `deviation` that of x.
    """
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
    """Return μ of a Gaussian with this standard deviation for which E[max(0, x)] = 1."""
    return float(brentq(lambda mean: mean + below(mean, share) - 1, -50 * share - 1, 1.0))


def below(mean: float, deviation: float) -> float:
    """Return E[max(−x, 0)] of a Gaussian.

    Parameters
    ----------
    mean, deviation : float
        Mean and standard deviation of x.
    """
    z = mean / deviation
    return deviation * (math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi) - z * float(ndtr(-z)))


#: Queues that are stepped at once, steps of a round trip, duration in round trips and in time
#: constants of TCP's pole, fraction of it that is left out at the start, and largest number of
#: steps.
QUEUES, STEPS_PER_RTT, RTTS, POLE_TIMES, UNSEEN, MOST_STEPS = 128, 12, 200.0, 30.0, 0.3, 12_000
#: A signal that splits a halving s to 1 − s has the power 5/6 + cos(ωR)/6. White noise with these
#: two parts, the second R later, has that power: their sum is 1, and their product 1/12.
NOW, LATER = (1 + math.sqrt(2 / 3)) / 2, (1 - math.sqrt(2 / 3)) / 2


@dataclass(frozen=True)
class QueueMoments:
    """The moments of the queue where an integral is clipped at zero.

    Attributes
    ----------
    mean_pkts, deviation_pkts : float
        Mean and standard deviation of the queue.
    missing_pkts : float
        Mean number of packets in flight that flows lack to fill the pipe.
    share : float
        Standard deviation of the probability over its mean.
    """

    mean_pkts: float
    deviation_pkts: float
    missing_pkts: float
    share: float


def can_step(t: Terms, rtt_s: float) -> bool:
    """Return True if the delay is a number of steps that the loop in time can hold.

    Parameters
    ----------
    t : Terms
        The loop.
    rtt_s : float
        Round-trip time in seconds.
    """
    assert t.interval_s is not None
    return max(rtt_s, t.longest_s) <= 0.1 * MOST_STEPS * float(t.interval_s)


def saturated_moments(
    t: Terms, rtt_s: float, p0: float, rest_pkts: float, intensity: float
) -> QueueMoments:
    """Return the moments of the queue under a law that integrates and whose probability is clipped.

    Each probability is the last one plus a change, and never below zero. So the integral does not
    continue below zero: the loop responds less to a short queue than one whose output alone is
    clipped, and the mean queue falls below the set-point. The closed form for Gaussian queues
    cannot express that the clipped value is kept, so the equations are stepped in time for many
    queues at once. The random numbers are always the
    same, so a loop always has the same result.

    Parameters
    ----------
    t : Terms
        The plant with packets in trains, behind a sampler.
    rtt_s : float
        Round-trip time in seconds.
    p0 : float
        Probability at the equilibrium.
    rest_pkts : float
        Queue at the equilibrium.
    intensity : float
        Intensity of the noise that drives the sum of the windows, in packets² per second.
    """
    assert t.interval_s is not None
    interval_s, pole = float(t.interval_s), float(np.real(np.asarray(t.poles[0])))
    every = max(1, math.ceil(interval_s * STEPS_PER_RTT / rtt_s))
    step_s = interval_s / every
    turn = max(1, round(rtt_s / step_s))
    steps = min(math.ceil((RTTS * rtt_s + POLE_TIMES / pole) / step_s), MOST_STEPS)
    decay = math.exp(-pole * step_s)
    answers = []
    for path in t.paths:
        answer = float(np.asarray(path.gain)) * -math.expm1(-pole * step_s) / pole
        # The input of a step is that of one step and the delay earlier, between two steps.
        part, whole = math.modf(1 + float(np.asarray(path.delay_s)) / step_s)
        answers += [(answer * (1 - part), int(whole)), (answer * part, int(whole) + 1)]
    kicks = math.sqrt(intensity * step_s)
    mean_pkts, deviation_pkts, missing_pkts, p_deviation = _native.saturated_moments(
        np.random.default_rng(1).standard_normal((steps, QUEUES)),
        decay=decay,
        kicks_pkts=(kicks * NOW, kicks * LATER),
        round_trip_steps=turn,
        answers=answers,
        sampled=(every, [float(c) for c in t.numerator], [float(c) for c in t.denominator]),
        rest_pkts=rest_pkts,
        rest_probability=p0,
        unseen=int(UNSEEN * steps),
    )
    return QueueMoments(mean_pkts, deviation_pkts, missing_pkts, p_deviation / p0)


#: Points of a period, number of harmonics, and periods until a reflection is periodic.
POINTS, HARMONICS, PERIODS = 512, 40, 3
#: Largest amplitude of the search, relative to the equilibrium queue.
LARGEST = 1e3


@dataclass(frozen=True)
class LimitCycle:
    """A limit cycle.

    Attributes
    ----------
    amplitude_pkts : float
        Half of the difference between the extremes of the queue.
    period_s : float
        Period in seconds.
    """

    amplitude_pkts: float
    period_s: float


def limit_cycle(loop: Loop) -> LimitCycle | None:
    """Return the limit cycle of an unstable loop by harmonic balance; None if there is none.

    The oscillation grows until clipping reduces the loop gain to one. Probability and queue are
    clipped at zero. For a queue m + A·sin ωt the controller output has the fundamental P, with
    −G(jω)·P = A around the loop (the describing function; Åström and Murray, Feedback Systems,
    section 10.5), and its mean is the probability p0 that TCP needs.

    The probability of a law that integrates is clipped inside the law: p is its last value plus a
    change, and never below zero. The output x without clipping is then reflected, p = x − min(x
    before). The mean queue falls below the set-point until it makes up for the clipping, and the
    period is shorter than that of the linear loop. The probability of any other law is clipped at
    its output.
    """
    omega = loop.margins.phase_crossover_rad_s
    if loop.stable or math.isnan(omega):
        return None
    p0 = loop.point.probability
    s = np.array([1j * omega])
    plant_gain = abs(complex(frequency_response.plant(loop.terms, s)[0]))
    law_gain = abs(complex(controller_output(loop, s)[0]))
    # Beyond the largest amplitude there is no balance: the queue grows without bound.
    if not 1 < plant_gain * law_gain < 1 / fundamental_share(LARGEST):
        return None
    integrates = loop.model["integrates"] and loop.model["average"] is None
    # Clipping of the probability alone gives a first guess.
    start = brentq(lambda x: fundamental_share(x) - 1 / (plant_gain * law_gain), 1, LARGEST)
    start = start * p0 / law_gain

    def unbalanced(x: Floats) -> Floats:
        at, amplitude = omega * math.exp(x[0]), start * math.exp(x[1])
        p, _ = controller_fundamental(loop, at, amplitude, integrates)
        g = complex(frequency_response.plant(loop.terms, np.array([1j * at]))[0])
        ratio = -g * p / amplitude
        return np.array([np.angle(ratio), math.log(abs(ratio))])

    try:
        balance = root(unbalanced, [0.0, 0.0], tol=1e-6)
    except ValueError:
        return None
    if not balance.success:
        return None
    omega, amplitude = omega * math.exp(balance.x[0]), start * math.exp(balance.x[1])
    _, middle = controller_fundamental(loop, omega, amplitude, integrates)
    queue = np.maximum(0.0, middle + amplitude * np.array([-1.0, 1.0]))
    return LimitCycle(0.5 * float(queue[1] - queue[0]), 2 * math.pi / omega)


def controller_fundamental(
    loop: Loop, omega: float, amplitude: float, integrates: bool
) -> tuple[complex, float]:
    """Return the fundamental of the controller output for a sinusoidal queue, and its mean queue.

    The queue is middle + amplitude·sin ωt, with the middle for which the mean output is p0.

    Parameters
    ----------
    loop : Loop
        The loop.
    omega : float
        Frequency in rad/s.
    amplitude : float
        Amplitude of the queue in packets.
    integrates : bool
        True if the probability is clipped inside an integral.

    Raises
    ------
    ValueError
        If no middle gives this mean output.
    """
    rest_pkts, p0 = loop.model["queue_pkts"], loop.point.probability
    turn = 2 * math.pi * np.arange(POINTS) / POINTS
    harmonics = omega * np.arange(1, HARMONICS + 1)
    harmonics = harmonics[harmonics < loop.highest_rad_s]
    response = controller_output(loop, np.asarray(1j * harmonics, complex))

    def probability(middle: float) -> tuple[Floats, float]:
        """Return the probability over a period, and the mean error of the queue."""
        queue = np.maximum(0.0, middle + amplitude * np.sin(turn))
        lines = np.fft.rfft(queue - rest_pkts) / POINTS
        filtered = np.zeros_like(lines)
        filtered[1 : len(response) + 1] = lines[1 : len(response) + 1] * response
        x = np.fft.irfft(filtered * POINTS, POINTS)
        error = float(lines[0].real)
        if not integrates:
            level = p0 + _static_gain(loop) * error
            return np.maximum(0.0, level + x), error
        drift = _integral(loop) * error * (2 * math.pi / omega)
        steps = np.arange(PERIODS * POINTS) / POINTS
        path = np.tile(x, PERIODS) + drift * steps
        return (path - np.minimum.accumulate(path))[-POINTS:], error

    def excess(middle: float) -> float:
        return float(probability(middle)[0].mean()) - p0

    if integrates:
        # Just below the set-point nothing is clipped; far below, everything is.
        high = brentq(lambda m: _cut_mean(m, amplitude) - rest_pkts, -amplitude, rest_pkts)
        middle = brentq(excess, -amplitude, high, xtol=1e-6 * rest_pkts)
    else:
        middle = brentq(excess, -amplitude, rest_pkts + amplitude, xtol=1e-6 * rest_pkts)
    p, _ = probability(middle)
    # −2j·c₁ is the amplitude of a sine.
    return complex(2j * np.fft.rfft(p)[1] / POINTS), middle


def controller_output(loop: Loop, s: Complexes) -> Complexes:
    """Return the law's response to a sine of the queue, as a probability per packet.

    Parameters
    ----------
    loop : Loop
        The loop.
    s : array
        Complex frequencies.
    """
    t = loop.terms
    output = np.full_like(s, loop.model["direct"])
    if t.interval_s is not None:
        output = output + frequency_response.law(t, s) * frequency_response.hold(t, s)
    pole = frequency_response.average_pole(loop.model)
    return output if pole is None else np.asarray(output * pole / (s + pole), complex)


def _integral(loop: Loop) -> float:
    """Return K_I of a law that integrates: the rise of p per second and packet of error."""
    small = 1e-6 / float(loop.terms.interval_s or 1.0)
    return float((controller_output(loop, np.array([small + 0j])) * small)[0].real)


def _static_gain(loop: Loop) -> float:
    """Return the steady-state probability per packet of a law that does not integrate."""
    if loop.model["integrates"]:
        # An integral behind an average has no steady-state error.
        return 0.0
    return float(controller_output(loop, np.array([1e-9 + 0j]))[0].real)


def _cut_mean(middle: float, amplitude: float) -> float:
    """Return the mean of max(0, middle + amplitude·sin θ)."""
    if middle >= amplitude:
        return middle
    if middle <= -amplitude:
        return 0.0
    angle = math.acos(-middle / amplitude)
    return (amplitude * math.sin(angle) + middle * angle) / math.pi


def fundamental_share(amplitude: float) -> float:
    """Return the fundamental of a sine around 1 that is clipped at zero, over its amplitude.

    The mean stays 1.
    """
    if amplitude <= 1:
        return 1.0

    def mean(angle: float) -> float:
        # Above zero for |θ − π/2| < angle.
        return amplitude / math.pi * (math.sin(angle) - angle * math.cos(angle)) - 1

    angle = brentq(mean, 1e-9, math.pi)
    return (angle - math.sin(angle) * math.cos(angle)) / math.pi
