"""Runs of many experiments: those in the store are found again, the others made in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from forebay.report.result import Result
from forebay.run.experiment import POLL_S, Execution, Experiment, Progress
from forebay.store import keys
from forebay.store.rows import Facts

if TYPE_CHECKING:
    from forebay._native import Batch, Fault, Run
    from forebay.store.store import Store


class RunFailedError(Exception):
    """A run that failed, in words."""


@dataclass(frozen=True)
class Job:
    """One run to make."""

    experiment: Experiment
    point: int
    law: int
    seed: int
    #: what the store finds it by
    config: str

    @property
    def key(self) -> tuple[str, int]:
        """Tells it from every other run."""
        return self.config, self.seed

    @property
    def cost(self) -> float:
        """Bits that the link can carry in the run: a guess of how long it takes."""
        point = self.experiment.plan.points[self.point]
        return point.duration_s * point.links[0].rate_bps


def jobs(experiment: Experiment) -> list[Job]:
    """Every run of an experiment."""
    plan = experiment.plan
    return [
        Job(experiment, point, law, seed, config)
        for point in range(len(plan.points))
        for law, config in enumerate(keys.configs(plan, point))
        # A paper has no prototypes.
        if config is not None
        for seed in plan.seeds
    ]


def stored(wanted: Sequence[Job], store: Store) -> set[tuple[str, int]]:
    """Keys of the jobs whose runs are in the store, with their samples."""
    numbered = {(i, 0, job.seed): job.config for i, job in enumerate(wanted)}
    return {(numbered[at], at[2]) for at in store.runs(numbered, samples=True)}


def make(
    wanted: Sequence[Job],
    store: Store,
    threads: int,
    watch: Callable[[Progress], None] | None = None,
) -> None:
    """Makes and stores the runs that are not there yet, the longest first.

    An interruption keeps the finished runs. Raises `RunFailedError`.
    """
    there = stored(wanted, store)
    missing = {job.key: job for job in wanted if job.key not in there}
    waiting = sorted(missing.values(), key=lambda job: job.cost)
    total = sum(job.cost for job in waiting)
    count, done, ended, start = len(waiting), 0.0, 0, time.monotonic()
    running: list[tuple[Job, Batch]] = []
    try:
        with store.writer() as writer:
            while waiting or running:
                while waiting and len(running) < threads:
                    job = waiting.pop()
                    only = {(job.point, job.law, job.seed)}
                    running.append((job, job.experiment.plan.start(1, only=only)))
                time.sleep(POLL_S)
                for job, batch in list(running):
                    if not batch.done:
                        continue
                    running.remove((job, batch))
                    runs, faults = batch.take()
                    if faults:
                        raise RunFailedError(_in_words(job, faults[0]))
                    facts = Facts.of(job.experiment.plan, job.point, job.law, job.config)
                    writer.add(facts, runs[0], samples=True)
                    done += job.cost
                    ended += 1
                writer.tick()
                if watch and total:
                    under_way = sum(job.cost * batch.progress() for job, batch in running)
                    elapsed_s = time.monotonic() - start
                    watch(Progress((done + under_way) / total, ended, count, elapsed_s))
    finally:
        for _, batch in running:
            batch.cancel()


def result(experiment: Experiment, made: Sequence[Job], store: Store) -> Result:
    """The stored runs as a result, in the order of points, laws and seeds."""
    wanted = {(job.point, job.law, job.seed): job.config for job in made}
    found = store.runs(wanted, samples=True)
    # A stored run has the attributes of one that was just made.
    runs = [cast("Run", found[key]) for key in sorted(found)]
    return Result(experiment, Execution(runs, [], interrupted=False, elapsed_s=0.0))


def _in_words(job: Job, fault: Fault) -> str:
    plan = job.experiment.plan
    point = plan.points[job.point].label
    law = plan.laws[job.law]
    at = f" at {point}" if point else ""
    where = f"{job.experiment.path}: {law}{at}, seed {job.seed}"
    return f"{where}, failed: {fault.message.rstrip()}"
