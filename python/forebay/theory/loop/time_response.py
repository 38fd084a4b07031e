"""The linear loop in time, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

import forebay._native as _native
from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Floats, Terms

if TYPE_CHECKING:
    from forebay._native import LinearModel


def step_response(
    model: LinearModel,
    terms: Terms,
    plant: Terms,
    change: float,
    duration_s: float,
    points: int,
) -> tuple[Floats, Floats]:
    """Time and deviation of the queue after a step at the plant's input: each mode of the plant
    exactly over steps with a held input.

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
