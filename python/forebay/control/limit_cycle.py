"""The limit cycle of an unstable loop, by harmonic balance.

The loop's gain grows a swing until what is cut off it lowers the gain to one. Two things are cut at
zero: the probability, and the queue. With a queue that would be m + A·sin ωt, the law's answer has
the fundamental P, and around the loop −G(jω)·P = A (the describing function; Åström and Murray,
Feedback Systems, section 10.5), while its mean is what TCP needs, p0.

Of a law that integrates the cut is within it: p is its last value and a change, and never below
zero. What the change would do alone, x, is then reflected, p = x − min(x before), the queue's mean
falls below the set-point until what is cut off makes up for it, and the cut is early: the period
is shorter than the linear loop's. Of any other law, the probability is cut after it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq, root

from forebay.control import frequency_response
from forebay.control.frequency_response import Complexes, Floats

if TYPE_CHECKING:
    from forebay.control.loop import Loop

#: Points of a period; harmonics that are counted; periods until a reflection repeats itself.
POINTS, HARMONICS, PERIODS = 512, 40, 3
#: Largest swing that is looked for, over the queue at rest.
LARGEST = 1e3


@dataclass(frozen=True)
class LimitCycle:
    """amplitude_pkts: half of the way from the queue's valleys to its peaks. period_s: of a
    swing."""

    amplitude_pkts: float
    period_s: float


def limit_cycle(loop: Loop) -> LimitCycle | None:
    """None for a loop that is stable, or that finds no such balance."""
    omega = loop.margins.phase_crossover_rad_s
    if loop.stable or math.isnan(omega):
        return None
    p0 = loop.point.probability
    answer = abs(complex(frequency_response.plant(loop.terms, np.array([1j * omega]))[0]))
    acting = abs(complex(acts(loop, np.array([1j * omega]))[0]))
    # Beyond the largest swing the queue goes from empty to any length: no balance of fundamentals.
    if not 1 < answer * acting < 1 / share(LARGEST):
        return None
    integrates = loop.model["integrates"] and loop.model["average"] is None
    # A cut of the probability alone gives a start.
    start = brentq(lambda x: share(x) - 1 / (answer * acting), 1, LARGEST) * p0 / acting

    def unbalanced(x: Floats) -> Floats:
        at, swing = omega * math.exp(x[0]), start * math.exp(x[1])
        p, _ = answers(loop, at, swing, integrates)
        g = complex(frequency_response.plant(loop.terms, np.array([1j * at]))[0])
        ratio = -g * p / swing
        return np.array([np.angle(ratio), math.log(abs(ratio))])

    try:
        found = root(unbalanced, [0.0, 0.0], tol=1e-6)
    except ValueError:
        return None
    if not found.success:
        return None
    omega, swing = omega * math.exp(found.x[0]), start * math.exp(found.x[1])
    _, middle = answers(loop, omega, swing, integrates)
    queue = np.maximum(0.0, middle + swing * np.array([-1.0, 1.0]))
    return LimitCycle(0.5 * float(queue[1] - queue[0]), 2 * math.pi / omega)


def answers(loop: Loop, omega: float, swing: float, integrates: bool) -> tuple[complex, float]:
    """The fundamental of the law's answer to a queue of swing·sin ωt around a middle, which is such
    that the answer's mean is p0; and the middle.

    Raises `ValueError` where there is no such middle.
    """
    rest_pkts, p0 = loop.model["queue_pkts"], loop.point.probability
    turn = 2 * math.pi * np.arange(POINTS) / POINTS
    harmonics = omega * np.arange(1, HARMONICS + 1)
    harmonics = harmonics[harmonics < loop.highest_rad_s]
    response = acts(loop, np.asarray(1j * harmonics, complex))

    def probability(middle: float) -> tuple[Floats, float]:
        """Over a period, and its mean before the cut."""
        queue = np.maximum(0.0, middle + swing * np.sin(turn))
        lines = np.fft.rfft(queue - rest_pkts) / POINTS
        kept = np.zeros_like(lines)
        kept[1 : len(response) + 1] = lines[1 : len(response) + 1] * response
        x = np.fft.irfft(kept * POINTS, POINTS)
        error = float(lines[0].real)
        if not integrates:
            level = p0 + _at_rest(loop) * error
            return np.maximum(0.0, level + x), error
        drift = _integral(loop) * error * (2 * math.pi / omega)
        steps = np.arange(PERIODS * POINTS) / POINTS
        path = np.tile(x, PERIODS) + drift * steps
        return (path - np.minimum.accumulate(path))[-POINTS:], error

    def excess(middle: float) -> float:
        return float(probability(middle)[0].mean()) - p0

    if integrates:
        # Just below the set-point nothing is lost; far below, everything.
        high = brentq(lambda m: _cut_mean(m, swing) - rest_pkts, -swing, rest_pkts)
        middle = brentq(excess, -swing, high, xtol=1e-6 * rest_pkts)
    else:
        middle = brentq(excess, -swing, rest_pkts + swing, xtol=1e-6 * rest_pkts)
    p, _ = probability(middle)
    # Of a sine: −2j·c₁ is its amplitude.
    return complex(2j * np.fft.rfft(p)[1] / POINTS), middle


def acts(loop: Loop, s: Complexes) -> Complexes:
    """What the law makes of a sine of the queue, as a probability."""
    t = loop.terms
    found = np.full_like(s, loop.model["direct"])
    if t.interval_s is not None:
        found = found + frequency_response.law(t, s) * frequency_response.hold(t, s)
    pole = frequency_response.average_pole(loop.model)
    return found if pole is None else np.asarray(found * pole / (s + pole), complex)


def _integral(loop: Loop) -> float:
    """K_I of a law that integrates: what a packet of error adds to p in a second."""
    small = 1e-6 / float(loop.terms.interval_s or 1.0)
    return float((acts(loop, np.array([small + 0j])) * small)[0].real)


def _at_rest(loop: Loop) -> float:
    """Probability per packet of a law that does not integrate."""
    if loop.model["integrates"]:
        # Behind an average: its error is none.
        return 0.0
    return float(acts(loop, np.array([1e-9 + 0j]))[0].real)


def _cut_mean(middle: float, swing: float) -> float:
    """Mean of max(0, middle + swing·sin θ)."""
    if middle >= swing:
        return middle
    if middle <= -swing:
        return 0.0
    angle = math.acos(-middle / swing)
    return (swing * math.sin(angle) + middle * angle) / math.pi


def share(swing: float) -> float:
    """Of the amplitude of a sine around 1, what is left of it in the fundamental where it is cut at
    zero and its mean kept."""
    if swing <= 1:
        return 1.0

    def mean(angle: float) -> float:
        # Above zero for |θ − π/2| < angle.
        return swing / math.pi * (math.sin(angle) - angle * math.cos(angle)) - 1

    angle = brentq(mean, 1e-9, math.pi)
    return (angle - math.sin(angle) * math.cos(angle)) / math.pi
