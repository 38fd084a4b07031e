"""Experiments from Python: `forebay.run`."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay._base import progress
from forebay.experiment import engines, execution, experiment
from forebay.experiment.result import Result

if TYPE_CHECKING:
    from forebay._base.quantities import Sets
    from forebay._native import Fault, Plan
    from forebay.experiment.engine import Engine
    from forebay.experiment.experiment import Source
    from forebay.scenario.python_laws import Prototype


class RunError(RuntimeError):
    """A run that failed: its `law`, `point`, `seed` and `message`.

    `result` holds the runs that had finished.
    """

    def __init__(self, plan: Plan, fault: Fault, result: Result) -> None:
        self.law = plan.laws[fault.law]
        self.point = plan.points[fault.point].label
        self.seed = fault.seed
        self.message = fault.message
        self.result = result
        super().__init__(execution.fault_in_words(plan, fault))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a script; `result` holds the runs that had finished."""

    def __init__(self, result: Result) -> None:
        self.result = result
        super().__init__("interrupted; what had finished is in .result")


def run(
    scenario: Source,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    sets: Sets | None = None,
    seeds: int | None = None,
    threads: int | None = None,
    engine: str | Engine = engines.NAMES[0],
) -> Result:
    """Runs every law at every point with every seed, and returns the result.

    scenario: a file in TOML, a text of several lines of TOML, or its tables as a dict.
    laws: names of laws, and classes like `forebay.Controller`, one or several; the file's if None.
    sets: keys to set on top of the file, {"bottleneck.rate": "20Mbit/s"} or ["KEY=VALUE"].
    seeds: number of seeds, 1 to `seeds`; the file's if None.
    threads: threads to run on; all cores if None. Results do not depend on it.
    engine: what makes the runs, "packets" being the simulator; docs/engines.md has the others. An
        engine of `forebay.experiment.engines` may also be given itself.

    Raises `ScenarioError` for a scenario that cannot be run, or not by this engine, and `RunError`
    where a run fails. An interruption keeps what has finished: an interactive session gets it as a
    partial result, a script as `Interrupted.result`.
    """
    read = experiment.read(
        scenario, laws=laws, sets=sets or (), seeds=seeds, engine=engines.named(engine, "engine")
    )
    with progress.bar(only_on_terminal=True) as watch:
        executed = execution.execute(read, threads, watch)
    result = Result(read, executed)
    if executed.faults:
        raise RunError(read.plan, executed.faults[0], result)
    if executed.interrupted:
        if not hasattr(sys, "ps1"):
            raise Interrupted(result)
        warnings.warn("interrupted; the result is partial", stacklevel=2)
    return result
