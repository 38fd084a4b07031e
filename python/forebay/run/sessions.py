"""Simulations that are taken further step by step: `forebay.session`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay import units
from forebay._native import Session
from forebay.run import experiment

if TYPE_CHECKING:
    from forebay.run.experiment import Source
    from forebay.run.prototypes import Prototype


def session(
    scenario: Source,
    *,
    seed: int = 1,
    sets: Mapping[str, Any] | None = None,
    target: str = "50p",
    interval: str = "10ms",
    law: str | Prototype | None = None,
) -> Session:
    """One run of a scenario's first point, which waits after each sample.

    scenario: a file, a text of TOML or a dict, as for `forebay.run`. Its `sample` is the step.
    seed: of the run; the runs of `forebay.run` have 1, 2, and so on.
    sets: keys to set on top, {"sample": "50ms"}.
    target, interval: set-point of the law that the caller steers, and the time between two samples
        of its controller.
    law: the name of a law, or a prototype, to run instead; it cannot be steered.

    Raises `ScenarioError` for a scenario that cannot be run.
    """
    name, text = experiment.text_of(scenario)
    return Session(
        text,
        name,
        seed,
        sets=[(key, units.toml(value)) for key, value in (sets or {}).items()],
        set_point=target,
        interval=interval,
        law=law,
        read=experiment.beside(name),
    )
