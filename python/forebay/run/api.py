"""Experiments from Python: `forebay.run`."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay.report.result import Result
from forebay.run import experiment, progress

if TYPE_CHECKING:
    from forebay._native import Fault, Plan
    from forebay.run.experiment import Source
    from forebay.run.prototypes import Prototype


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
        super().__init__(experiment.fault_in_words(plan, fault))


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in a script; `result` holds the runs that had finished."""

    def __init__(self, result: Result) -> None:
        self.result = result
        super().__init__("interrupted; what had finished is in .result")


def run(
    scenario: Source,
    laws: Sequence[str | Prototype] | None = None,
    sets: Mapping[str, Any] | Sequence[str] | None = None,
    seeds: int | None = None,
    threads: int | None = None,
) -> Result:
    """Runs every law at every point with every seed, and returns the result.

    scenario: a file in TOML, a text of several lines of TOML, or its tables as a dict.
    laws: names of laws, and classes like `forebay.Controller`; the file's if None.
    sets: keys to set on top of the file, {"bottleneck.rate": "20Mbit/s"} or ["KEY=VALUE"].
    seeds: number of seeds, 1 to `seeds`; the file's if None.
    threads: threads to run on; all cores if None. Results do not depend on it.

    Raises `ScenarioError` for a scenario that cannot be run, and `RunError` where a run fails.
    An interruption keeps what has finished: an interactive session gets it as a partial
    result, a script as `Interrupted.result`.
    """
    if isinstance(sets, Mapping):
        sets = [f"{key}={_value(value)}" for key, value in sets.items()]
    read = experiment.read(scenario, laws=laws, sets=sets or (), seeds=seeds)
    with progress.bar(only_on_terminal=True) as watch:
        execution = experiment.execute(read, threads, watch)
    result = Result(read, execution)
    if execution.faults:
        raise RunError(read.plan, execution.faults[0], result)
    if execution.interrupted:
        if not hasattr(sys, "ps1"):
            raise Interrupted(result)
        warnings.warn("interrupted; the result is partial", stacklevel=2)
    return result


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
