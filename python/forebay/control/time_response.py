"""The linear loop in time, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import forebay._native as _native
from forebay.control import frequency_response, margins
from forebay.control.frequency_response import Floats, Terms

if TYPE_CHECKING:
    from forebay._native import LinearModel

#: Most steps of a response. A response that needs more is found from the Laplace transform, with
#: work and memory that do not depend on how slow a loop is beside its sampling interval.
MOST_STEPS = 1_000_000
#: Of the inversion of a Laplace transform: the exponent of its discretisation error, and the number
#: of terms before and within the average of partial sums (Abate and Whitt 1995, section 1).
ERROR_EXPONENT, TERMS, AVERAGED = 18.4, 38, 11
#: Times whose terms are evaluated together.
BATCH = 200


def step_response(
    model: LinearModel,
    terms: Terms,
    plant: Terms,
    change: float,
    duration_s: float,
    points: int,
) -> tuple[Floats, Floats]:
    """Return time and deviation of the queue after a step at the plant's input.

    Each mode of the plant is exact over steps with a held input. Where a stable loop would need
    more than `MOST_STEPS` of them, the response is the inverse of its Laplace transform at
    `points` times; an unstable one is shown as far as so many steps go.

    A step of the probability's set-point acts at the plant's input, undelayed by it for the
    reader's convenience: the answer starts at t = R. plant: of `terms`, without the law's average.
    """
    sampled = model["sampled"]
    fine_s = duration_s / points
    # What acts at once is held for a step, which has to be short beside the delay.
    if sampled is None:
        fine_s = min(fine_s, float(terms.shortest_s) / 20)
    elif terms.hybrid:
        fine_s = min(fine_s, float(terms.shortest_s) / 8)
    # The law's samples fall on steps, and a delay is a whole number of them, and a rest.
    per_sample = max(1, math.ceil(sampled[0] / fine_s)) if sampled else 1
    dt = sampled[0] / per_sample if sampled else fine_s
    steps = math.ceil(duration_s / dt)
    if steps > MOST_STEPS:
        if margins.stable(terms):
            return _by_inversion(terms, plant, change, duration_s, points)
        steps = MOST_STEPS
    modes = []
    for path in plant.paths:
        whole, rest_s = frequency_response.whole_intervals(path.delay_s, dt)
        for residue, pole in frequency_response.residues(path):
            new, old = frequency_response.gammas(pole, dt, rest_s)
            modes.append((np.exp(-pole * dt), residue * new, residue * old, int(whole)))
    decays, news, olds, delays = zip(*modes, strict=True)
    average = frequency_response.average_pole(model)
    queue = _native.step_response(
        np.array(decays, complex),
        np.array(news, complex),
        np.array(olds, complex),
        delays,
        smoothing=None if average is None else -math.expm1(-average * dt),
        direct=model["direct"],
        sampled=(per_sample, *sampled[1:]) if sampled else None,
        change=change,
        steps=steps,
    )
    return np.arange(steps + 1, dtype=float) * dt, queue


def _by_inversion(
    terms: Terms, plant: Terms, change: float, duration_s: float, points: int
) -> tuple[Floats, Floats]:
    """Return the step response as the inverse of its Laplace transform.

    The method is Abate and Whitt's EULER ("Numerical inversion of Laplace transforms of probability
    distributions", 1995): a Fourier series on a line to the right of all roots, whose partial sums
    are averaged by binomial weights.
    """
    time_s = np.linspace(0.0, duration_s, points + 1)
    queue = np.zeros(points + 1)
    count = TERMS + AVERAGED
    orders = np.arange(count + 1)
    signs = np.where(orders % 2 == 0, 1.0, -1.0)
    binomials = np.array([math.comb(AVERAGED, k) for k in range(AVERAGED + 1)]) / 2.0**AVERAGED
    # Term k is in the partial sums from k on.
    shares = np.ones(count + 1)
    shares[TERMS + 1 :] = 1 - np.cumsum(binomials)[:-1]
    shares[0] = 0.5
    for start in range(1, points + 1, BATCH):
        at = time_s[start : start + BATCH]
        s = (ERROR_EXPONENT + 2j * math.pi * orders) / (2 * at[:, None])
        flat = s.ravel()
        moved = change / flat * frequency_response.plant(plant, flat)
        moved = moved * frequency_response.sensitivity(terms, flat)
        terms_of_sum = moved.reshape(s.shape).real * signs * shares
        queue[start : start + BATCH] = math.exp(ERROR_EXPONENT / 2) / at * terms_of_sum.sum(axis=1)
    return time_s, queue
