"""Simulations that are taken further step by step: `forebay.session`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._base import registries
from forebay.experiment import experiment

if TYPE_CHECKING:
    from forebay._base.quantities import Sets
    from forebay._native import Session
    from forebay.experiment.experiment import Source
    from forebay.scenario.python_laws import Prototype


def session(
    scenario: Source,
    *,
    seed: int = 1,
    sets: Sets | None = None,
    target: str = "50p",
    interval: str = "10ms",
    law: str | Prototype | None = None,
) -> Session:
    """One run of a scenario's first point, which waits after each sample.

    scenario: a file, a text of TOML or a dict, as for `forebay.run`. Its `sample` is the step.
    seed: of the run; the runs of `forebay.run` have 1, 2, and so on.
    sets: keys to set on top, {"sample": "50ms"} or ["sample=50ms"].
    target, interval: set-point of the law that the caller steers, and the time between two samples
        of its controller.
    law: the name of a law, or a prototype, to run instead; it cannot be steered.

    Raises `ScenarioError` for a scenario that cannot be run.
    """
    # One that is steered takes the place of a law; it is of every queue as the one without is.
    chosen = registries.baseline()["name"] if law is None else law
    plan = experiment.read(scenario, laws=[chosen], sets=sets or ()).plan
    steered = None if law is not None else target
    return plan.session(seed, set_point=steered, interval=interval)
