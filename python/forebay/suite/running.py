"""The runs of a suite, scenario after scenario, each on all cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from forebay.run import experiment
from forebay.run.experiment import Experiment, Progress
from forebay.suite import results
from forebay.suite.results import Suite
from forebay.suite.scenarios import Scenario

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
    plan = scenarios[0].experiment.plan
    suite = Suite(
        laws=plan.laws,
        divided={law.label for law in plan.points[0].laws if law.queue is not None},
        seeds=list(plan.seeds),
        cases=[],
        wanted=sum(one.experiment.runs for one in scenarios),
    )
    total = sum(_cost(one.experiment) for one in scenarios)
    done = 0.0
    for one in scenarios:
        cost, ended, before_s = _cost(one.experiment), suite.made, suite.elapsed_s

        def tell(
            now: Progress,
            done: float = done,
            cost: float = cost,
            ended: int = ended,
            before_s: float = before_s,
        ) -> None:
            watch(
                Progress(
                    (done + cost * now.fraction) / total,
                    ended + now.ended,
                    suite.wanted,
                    before_s + now.elapsed_s,
                )
            )

        try:
            made = experiment.execute(one.experiment, threads, tell, store=store)
            some = results.cases(one, made.runs) if made.runs else []
        except KeyboardInterrupt:
            # Between two batches; the cases before it are whole.
            suite.interrupted = True
            break
        done += cost
        suite.made += len(made.runs)
        suite.elapsed_s += made.elapsed_s
        suite.cases += some
        if made.faults or made.interrupted:
            suite.faults = [
                f"{one.name}: {experiment.fault_in_words(one.experiment.plan, fault)}"
                for fault in made.faults
            ]
            suite.of_law = any(fault.of_law for fault in made.faults)
            suite.interrupted = made.interrupted
            break
    return suite


def _cost(of: Experiment) -> float:
    """Bits that the links can carry: a guess of how long it takes."""
    points = of.plan.points
    bits = sum(point.duration_s * sum(link.rate_bps for link in point.links) for point in points)
    return bits * len(of.plan.laws) * len(of.plan.seeds)
