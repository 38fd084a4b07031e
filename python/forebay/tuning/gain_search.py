"""The search for gains with margins at the worst corner, and the least delay there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from forebay._native import ScenarioError
from forebay.tuning import candidates
from forebay.tuning.candidates import Candidate, Goal, Space
from forebay.tuning.local_models import SENSITIVITY, LocalModel, counted
from forebay.tuning.ranges import Ranges

#: Generations of differential evolution, and points per axis in each.
GENERATIONS, POINTS = 40, 6


def search(space: Space, goal: Goal, ranges: Ranges, seed: int) -> Candidate:
    """The law's best candidate for a goal by the linear model, or the one closest to its margins.

    The search minimises the goal's own number at the worst corner, as the model predicts it. At
    each corner the sensitivity peak must be at most `SENSITIVITY`. For a first set-point the queue,
    taken as Gaussian, may be empty for at most the share of time that the goal gives up; packets
    move it later.
    """
    conditions = ranges.conditions

    def cost(x: NDArray[np.float64]) -> float:
        try:
            return loss(space.local(_point(space, x), ranges, conditions), goal)
        except ScenarioError:
            return 1e9

    # scipy's own differential evolution: few axes, no gradient across the constraints' edges.
    found = optimize.differential_evolution(
        cost,
        optimize.Bounds(*np.log([(a.low, a.high) for a in space.axes]).T),
        maxiter=GENERATIONS,
        popsize=POINTS,
        tol=1e-4,
        init="sobol",
        polish=False,
        rng=np.random.default_rng([seed, *space.law.encode(), *goal.name.encode()]),
    )
    point = _point(space, found.x)
    try:
        local = space.local(point, ranges, conditions)
    except ScenarioError:  # no point on the axes is allowed here; `runnable` tells why
        local = []
    return candidates.searched(space, goal, point, local)


#: Weight of the delay beside the goal's number.
TIE = 1e-3
#: Costs from here on break a constraint.
BROKEN = 1e3


def loss(local: Sequence[LocalModel | None], goal: Goal) -> float:
    """The goal's number at the worst place, in s; `BROKEN` and more where a bound breaks.

    The cost of a broken bound grows with the distance to it, so that the search finds its way back.
    """
    there = [one for one in local if one is not None]
    held = counted(local)
    missing = len(local) - len(there)
    # Reduction of the gain that makes the loop stable, in dB; peak above its bound.
    unstable_db = sum(max(1.0, -one.gain_db) for one in held if not one.stable)
    peak = max((one.sensitivity for one in held), default=SENSITIVITY)
    idle = max((one.idle for one in held), default=0.0)
    broken = (
        100.0 * missing
        + unstable_db
        + 10 * max(0.0, math.log(peak / SENSITIVITY))
        + 10 * max(0.0, idle - goal.give_up)
    )
    if broken > 0:
        return BROKEN + broken
    # Of equal deviations, that with the shorter queue.
    return max(float(getattr(one, goal.least)) + TIE * one.delay_p95_s for one in there)


def _point(space: Space, x: NDArray[np.float64]) -> dict[str, float]:
    return {axis.name: math.exp(value) for axis, value in zip(space.axes, x, strict=True)}
