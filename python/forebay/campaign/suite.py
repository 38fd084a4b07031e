"""Suites from Python: `forebay.suite`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay._base import progress, quantities, registries
from forebay._base.publication import digest_of
from forebay.campaign import suite_results as results
from forebay.campaign import suite_scenarios as scenarios
from forebay.campaign.suite_results import Suite
from forebay.experiment import engines, execution
from forebay.scenario import python_laws

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay.campaign.suite_results import Case
    from forebay.campaign.suite_scenarios import Link, Scenario, Settings
    from forebay.experiment.store import Store
    from forebay.scenario.python_laws import Prototype

#: Stands for every law that there is.
ALL = "all"


@dataclass(frozen=True)
class PlannedSuite:
    """A suite that has been read and checked: its scenarios with the laws under test."""

    settings: Settings
    link: Link
    scenarios: Sequence[Scenario]

    def digest(self) -> str:
        """Return the digest of what the numbers depend on, seeds included."""
        runs = [(one.experiment.digest, one.experiment.plan.seeds) for one in self.scenarios]
        return digest_of([self.settings.name, str(self.link), runs])

    def run(
        self,
        threads: int | None = None,
        watch: Callable[[Progress], None] | None = None,
        store: Store | None = None,
    ) -> Suite:
        """Makes the runs that `store` does not have, scenario after scenario. Ctrl-C, and a run
        that fails, stop the others; what had finished by then is in the answer."""
        plan, start_s = self.scenarios[0].experiment.plan, time.monotonic()
        experiments = [each.experiment for each in self.scenarios]
        suite = Suite(
            laws=plan.laws,
            per_flow={law.label for law in plan.points[0].laws if law.per_flow},
            seeds=list(plan.seeds),
            cases=[],
            wanted=sum(experiment.runs for experiment in experiments),
        )
        cases: dict[int, list[Case]] = {}
        with closing(execution.execute_all(experiments, threads, watch, store=store)) as made:
            for number, ended in made:
                scenario = self.scenarios[number]
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


def planned(
    name: str,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    only: str | Sequence[str] | None = None,
    link: str | None = None,
    seeds: int | None = None,
    overrides: Overrides = (),
    engine: str = engines.NAMES[0],
) -> PlannedSuite:
    """Reads and checks a suite; arguments and errors as of `suite`."""
    settings = scenarios.find(name)
    laws = quantities.listed(laws)
    chosen = list(registries.laws()) if laws == [ALL] else laws or settings.laws
    at = settings.link if link is None else scenarios.link(link)
    loaded_laws = [python_laws.load(law) if isinstance(law, str) else law for law in chosen]
    by, files = engines.named(engine), settings.scenarios(quantities.listed(only))
    planned_scenarios = scenarios.plan(settings, files, loaded_laws, at, seeds, overrides, by)
    return PlannedSuite(settings, at, planned_scenarios)


def suite(
    name: str,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    *,
    only: str | Sequence[str] | None = None,
    link: str | None = None,
    seeds: int | None = None,
    threads: int | None = None,
    overrides: Overrides = (),
    engine: str = engines.NAMES[0],
) -> Suite:
    """Runs every scenario of a suite under every law, and returns its cases and averages.

    name: a suite, such as "rfc7928".
    laws: one or several names of laws, "all", "FILE.py:CLASS", or classes like
        `forebay.Controller`; the suite's if None.
    only: one or several names of scenarios to run alone, such as "5-1-friendly"; all if None.
    link: another link, its rate and its delay one way, such as "50Mbit/s,20ms".
    seeds: number of seeds, 1 to `seeds`; the suite's if None.
    threads: threads to run on; all cores if None.
    overrides: keys to set on top of every scenario, {"duration": "20s"} or ["KEY=VALUE"].
    engine: what makes the runs: see `forebay.run`.

    An interruption, and a run that fails, stop the others; what had finished is in the result,
    which says so (`interrupted`, `faults`). Raises `ScenarioError`.
    """
    made = planned(name, laws, only, link, seeds, overrides, engine)
    with progress.bar(only_on_terminal=True) as watch:
        return made.run(threads, watch)
