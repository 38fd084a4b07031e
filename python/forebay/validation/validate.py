"""Scenarios simulated and run with real flows, side by side: `forebay.validate`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay.results.result import Result
from forebay.runs import execution, experiment
from forebay.validation import comparison, mapping, real

if TYPE_CHECKING:
    from forebay.base.progress import Progress
    from forebay.runs.experiment import Experiment, Source
    from forebay.scenarios.python_laws import Prototype
    from forebay.validation.comparison import ValidatedScenario
    from forebay.validation.mapping import LinkPlan

#: A run is void if one packet in 1000 is released later, or if the rate is off by more.
VOID_LATENESS, VOID_RATE = "1ms", "0.1%"


class MissingProgramError(RuntimeError):
    """A program that makes the real flows is not installed."""


@dataclass
class Validation:
    """What came of it: a comparison for each scenario whose runs had finished."""

    #: Number of real runs that were asked for, and that had finished.
    wanted: int
    finished: int = 0
    comparisons: list[ValidatedScenario] = field(default_factory=list)
    interrupted: bool = False
    #: Why it stopped; empty otherwise.
    failure: str = ""


def validate(
    scenarios: Sequence[Source],
    laws: Sequence[str | Prototype] | None = None,
    sets: Sequence[str] = (),
    seeds: int | None = None,
    repeats: int = 3,
    attempts: int = 3,
    links: int = 1,
    void_lateness: str = VOID_LATENESS,
    void_rate: str = VOID_RATE,
    progress: Callable[[], AbstractContextManager[Callable[[Progress], None] | None]] | None = None,
) -> Validation:
    """Runs scenarios simulated and with real flows on a link, in real time.

    scenarios: as `forebay.run` takes each, with ftp, mice or web traffic.
    laws, sets, seeds: as `forebay.run` takes them, for the simulated runs.
    repeats: real runs of each law.
    attempts: runs at most for one that is not void.
    links: real runs at a time, each on a link of its own.
    void_lateness, void_rate: a run is void if one packet in 1000 is released later, in time, or if
        the rate is off by more, as a share.
    progress: gives a context around the real runs of a scenario, with what watches them.

    All scenarios are checked before the first run. An interruption, and flows that fail every time,
    end it; what had finished is in the result. Raises `ScenarioError` for a scenario that cannot be
    run or has no real flows, and `MissingProgramError` without iperf3 where it is needed.
    """
    read = [experiment.read(one, laws=laws, sets=sets, seeds=seeds) for one in scenarios]
    plans = [mapping.link_plans(one) for one in read]
    every = [plan for of_scenario in plans for plan in of_scenario]
    for plan in every:
        plan.settings(1, void_lateness, void_rate)
    if any(plan.flows for plan in every) and shutil.which("iperf3") is None:
        raise MissingProgramError("iperf3 is not here: apt-get install iperf3")
    made = Validation(wanted=repeats * len(every))

    def run(one: Experiment, of_scenario: Sequence[LinkPlan]) -> None:
        ran = execution.execute(one)
        made.interrupted = ran.interrupted
        if ran.faults:
            made.failure = execution.fault_in_words(one.plan, ran.faults[0])
        if made.interrupted or made.failure:
            return
        with progress() if progress else nullcontext() as watch:
            found = real.run(
                of_scenario,
                repeats,
                attempts=attempts,
                links=links,
                void_lateness=void_lateness,
                void_rate=void_rate,
                watch=watch,
            )
        made.finished += len(found.finished)
        if found.finished:
            made.comparisons.append(comparison.compare(Result(one, ran), found))
        made.interrupted, made.failure = found.interrupted, found.failure

    for one, of_scenario in zip(read, plans, strict=True):
        try:
            run(one, of_scenario)
        except Exception as error:
            # Real runs took their time: what they have found goes with no later fault.
            if not made.comparisons:
                raise
            made.failure = f"{one.path}: {type(error).__name__}: {error}"
        if made.interrupted or made.failure:
            break
    return made
