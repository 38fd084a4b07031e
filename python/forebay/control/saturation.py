"""A law that integrates and whose probability TCP's noise takes to zero: its linear loop in time,
with what is cut.

p is its last value and a change, and never below zero: the integral does not go on below, so that
the loop gives way to a short queue less than one whose answer alone is cut, and the queue's mean
falls below the set-point. No balance of Gaussians has this memory. So the equations of
`expected_queue` are stepped for many queues at once, with one stream of random numbers:
the same loop gets the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

import forebay._native as _native
from forebay.control.frequency_response import Terms

#: Queues at once; steps of a round trip; round trips and times of TCP's pole that pass, the first
#: `START` of them unseen; and most steps.
QUEUES, FINE, TURNS, SLOW, START, MOST = 128, 12, 200.0, 30.0, 0.3, 12_000
#: A signal that splits a halving s to 1 − s has the power 5/6 + cos(ωR)/6: white noise now and R
#: later, by these parts, whose sum is 1 and whose product is 1/12.
NOW, LATER = (1 + math.sqrt(2 / 3)) / 2, (1 - math.sqrt(2 / 3)) / 2


@dataclass(frozen=True)
class Moves:
    """Of the queue: mean and standard deviation in packets, and what flows have too few under way
    to fill the pipe. share: the probability's deviation over its mean."""

    mean_pkts: float
    deviation_pkts: float
    missing_pkts: float
    share: float


def can_step(t: Terms, rtt_s: float) -> bool:
    """Return True if the delay is a number of steps that the loop in time can hold."""
    assert t.interval_s is not None
    return max(rtt_s, t.longest_s) <= 0.1 * MOST * float(t.interval_s)


def moves(t: Terms, rtt_s: float, p0: float, rest_pkts: float, intensity: float) -> Moves:
    """Of a plant with packets in trains, behind a sampler, at p0 and with the queue at rest.

    intensity: of the noise that drives the sum of the windows, in packets² per second.
    """
    assert t.interval_s is not None
    interval_s, pole = float(t.interval_s), float(np.real(np.asarray(t.poles[0])))
    every = max(1, math.ceil(interval_s * FINE / rtt_s))
    step_s = interval_s / every
    turn = max(1, round(rtt_s / step_s))
    steps = min(math.ceil((TURNS * rtt_s + SLOW / pole) / step_s), MOST)
    decay = math.exp(-pole * step_s)
    answers = []
    for path in t.paths:
        answer = float(np.asarray(path.gain)) * -math.expm1(-pole * step_s) / pole
        # A step has what came a step and the delay before its end, between two steps.
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
        unseen=int(START * steps),
    )
    return Moves(mean_pkts, deviation_pkts, missing_pkts, p_deviation / p0)
