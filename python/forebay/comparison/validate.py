"""Scenarios on two engines or more, side by side: `forebay.validate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from forebay._base import quantities
from forebay._base.errors import ParameterError
from forebay.comparison import engine_comparison as comparison
from forebay.comparison.engine_comparison import REAL, SIDES
from forebay.experiment import engines as known
from forebay.experiment import execution, experiment
from forebay.experiment.result import Result
from forebay.linux.link_engine import LinkEngine
from forebay.linux.real_flows import Limits

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay.comparison.engine_comparison import ValidatedScenario
    from forebay.experiment.engines import Engine
    from forebay.experiment.experiment import Experiment, Source
    from forebay.scenario.python_laws import Prototype

#: Simulated beside real.
ENGINES = tuple(SIDES)
#: A run is void if one packet in 1000 is released later, or if the rate is off by more.
VOID_LATENESS, VOID_RATE = Limits.void_lateness, Limits.void_rate


@dataclass
class Validation:
    """What came of it: a comparison for each scenario and each engine beside the reference, of the
    scenarios whose runs had finished."""

    #: What the runs of the reference are called.
    reference: str
    #: How many of them were asked for, and had finished.
    wanted: int
    finished: int = 0
    comparisons: list[ValidatedScenario] = field(default_factory=list)
    interrupted: bool = False
    #: Why it stopped; empty otherwise.
    failure: str = ""


def validate(
    scenarios: Source | Sequence[Source],
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    *,
    overrides: Overrides = (),
    seeds: int | None = None,
    repeats: int = 3,
    attempts: int = 3,
    links: int = 1,
    void_lateness: str = VOID_LATENESS,
    void_rate: str = VOID_RATE,
    progress: Callable[[str], AbstractContextManager[Callable[[Progress], None] | None]]
    | None = None,
    engines: str | Sequence[str] = ENGINES,
) -> Validation:
    """Runs scenarios on several engines, and holds each beside the last of them.

    scenarios: one scenario or several, as `forebay.run` takes each.
    laws, overrides, seeds: as `forebay.run` takes them; seeds of all engines but "link".
    repeats: runs of each law on "link", in real time.
    attempts: runs at most for one that is not void.
    links: real runs at a time, each on a link of its own.
    void_lateness, void_rate: a run is void if one packet in 1000 is released later, in time, or if
        the rate is off by more, as a share.
    progress: gives a context around the runs of a scenario on an engine, with what watches them; it
        is told what those runs are called.
    engines: their names; "packets" beside "link" if left out, the simulator beside real flows.

    All scenarios are checked before the first run. An interruption, and a run that fails, end it;
    what had finished is in the result. Raises `ScenarioError` for a scenario that cannot be run on
    one of the engines.
    """
    engines = quantities.listed(engines)
    limits = Limits(attempts, void_lateness, void_rate)
    made_by = [_engine(name, LinkEngine(links, limits)) for name in engines]
    if len(made_by) < 2 or len(set(engines)) < len(made_by):
        expected = f"two or more that differ, of {', '.join(known.NAMES)}"
        raise ParameterError("engines", ",".join(engines), expected)

    def read(source: Source, engine: Engine) -> Experiment:
        count = repeats if engine.name == REAL else seeds
        return experiment.read(source, laws=laws, overrides=overrides, seeds=count, engine=engine)

    experiments = [
        [read(source, engine) for engine in made_by] for source in quantities.listed(scenarios)
    ]
    made = Validation(
        SIDES.get(engines[-1], engines[-1]),
        sum(of_scenario[-1].runs for of_scenario in experiments),
    )

    def run(of_scenario: Sequence[Experiment]) -> None:
        results = []
        for one in of_scenario:
            name = one.engine.name
            with progress(SIDES.get(name, name)) if progress else nullcontext() as watch:
                ran = execution.execute(one, watch=watch)
            results.append(Result(one, ran))
            made.interrupted = ran.interrupted
            if ran.faults:
                made.failure = execution.fault_in_words(one.plan, ran.faults[0])
            if made.interrupted or made.failure:
                break
        *tested, reference = results
        if len(results) < len(of_scenario) or not reference.runs:
            return
        made.finished += len(reference.runs)
        made.comparisons += [comparison.compare(one, reference) for one in tested]

    for of_scenario in experiments:
        try:
            run(of_scenario)
        except Exception as error:
            # Real runs took their time: what they have found goes with no later fault.
            if not made.comparisons:
                raise
            made.failure = f"{of_scenario[0].path}: {type(error).__name__}: {error}"
        if made.interrupted or made.failure:
            break
    return made


def _engine(name: str, link: LinkEngine) -> Engine:
    return link if name == link.name else known.named(name, "engines")
