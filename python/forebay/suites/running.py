"""The runs of a suite, scenario after scenario, each on all cores."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from forebay.base.progress import Progress
from forebay.runs import execution
from forebay.suites import results
from forebay.suites.results import Suite
from forebay.suites.scenarios import Scenario

if TYPE_CHECKING:
    from forebay.store.store import Store


def run(
    scenarios: Sequence[Scenario],
    threads: int | None,
    watch: Callable[[Progress], None],
    store: Store | None = None,
) -> Suite:
    """Makes every run. Ctrl-C, and a run that fails, stop the others; what had finished by then is
    in the answer."""
    plan, start_s = scenarios[0].experiment.plan, time.monotonic()
    suite = Suite(
        laws=plan.laws,
        per_flow={law.label for law in plan.points[0].laws if law.per_flow},
        seeds=list(plan.seeds),
        cases=[],
        wanted=sum(each.experiment.runs for each in scenarios),
    )
    experiments = [each.experiment for each in scenarios]
    cases: dict[int, list[results.Case]] = {}
    with closing(execution.execute_all(experiments, threads, watch, store=store)) as made:
        for number, ended in made:
            scenario = scenarios[number]
            suite.made += len(ended.runs)
            cases[number] = results.cases(scenario, ended.runs) if ended.runs else []
            suite.faults += [
                f"{scenario.name}: {execution.fault_in_words(scenario.experiment.plan, fault)}"
                for fault in ended.faults
            ]
            suite.of_law |= any(fault.of_law for fault in ended.faults)
            suite.interrupted |= ended.interrupted
    suite.cases = [case for number in sorted(cases) for case in cases[number]]
    suite.elapsed_s = time.monotonic() - start_s
    return suite
