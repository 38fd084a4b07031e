"""The linear loop in time, step by step."""

from __future__ import annotations

import cmath
import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Terms

if TYPE_CHECKING:
    from forebay._native import LinearModel

Floats = NDArray[np.float64]


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
    interval_s = sampled[0] if sampled else None
    fine = duration_s / points
    # What acts at once is held for a step, which has to be short beside the delay.
    if interval_s is None:
        fine = min(fine, float(terms.shortest_s) / 20)
    elif terms.hybrid:
        fine = min(fine, float(terms.shortest_s) / 8)
    # The law's samples fall on steps, and a delay is a whole number of them, and a rest.
    dt = interval_s / max(1, math.ceil(interval_s / fine)) if interval_s else fine
    steps = math.ceil(duration_s / dt)
    per_sample = round(interval_s / dt) if interval_s else 1
    pole = frequency_response.average_pole(model)
    # Of each mode: what it gains from the input now and a step before, and that input's age.
    modes_of: list[tuple[complex, complex, int]] = []
    rates: list[complex] = []
    for path in plant.paths:
        whole, rest = frequency_response.whole_intervals(path.delay_s, dt)
        for residue, p in frequency_response.residues(path):
            new, old = frequency_response.gammas(p, dt, rest)
            modes_of.append((complex(residue * new), complex(residue * old), int(whole)))
            rates.append(cmath.exp(-complex(p) * dt))
    decay = np.array(rates)
    modes = np.zeros(len(modes_of), complex)
    smoothed = 0.0
    numerator, denominator = (sampled[1], sampled[2]) if sampled else ([0.0], [1.0])
    inputs, outputs = np.zeros(len(numerator)), np.zeros(len(denominator))
    latest = max(whole for _, _, whole in modes_of) + 1
    history = np.zeros(steps + latest + 1)
    queue = np.zeros(steps + 1)
    held = 0.0
    for k in range(steps):
        q = queue[k]
        seen = smoothed if pole is not None else q
        if sampled and k % per_sample == 0:
            inputs = np.concatenate([[seen], inputs[:-1]])
            held = (
                np.dot(numerator, inputs) - np.dot(denominator[1:], outputs[:-1])
            ) / denominator[0]
            outputs = np.concatenate([[held], outputs[:-1]])
        # `history` begins `latest` steps before.
        at = k + latest
        history[at] = change - (held + model["direct"] * seen)
        for i, (new, old, age) in enumerate(modes_of):
            modes[i] = decay[i] * modes[i] + new * history[at - age] + old * history[at - age - 1]
        queue[k + 1] = modes.sum().real
        if pole is not None:
            smoothed += -math.expm1(-pole * dt) * (0.5 * (queue[k + 1] + q) - smoothed)
    return np.arange(steps + 1, dtype=float) * dt, queue
