"""Runs of a study on the threads of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forebay.runs.execution import POLL_S
from forebay.studies.points import Row, StudySource

if TYPE_CHECKING:
    from forebay._native import Fault, Run
    from forebay.runs.engine import Key, RunningBatch
    from forebay.store.rows import LawAtPoint
    from forebay.studies.point_gains import Gains


@dataclass(frozen=True)
class Task:
    """Runs to make of some points; it can be pickled."""

    source: StudySource
    #: the values of each point, and the numbers of laws that ask for them there
    points: list[Row]
    gains: list[Gains]
    #: index of the point among `points`, number of the law, seed
    runs: list[tuple[int, int, int]]
    #: by point and law
    laws: dict[tuple[int, int], LawAtPoint]
    #: a run that takes longer fails
    limit_s: float | None = None

    def split(self, most: int) -> Iterator[Task]:
        """The same in tasks of at most so many runs."""
        for first in range(0, len(self.runs), most):
            yield self.only(self.runs[first : first + most])

    def only(self, runs: list[tuple[int, int, int]]) -> Task:
        """Some of its runs, and of its points those that they need."""
        used = sorted({point for point, _, _ in runs})
        place = {point: index for index, point in enumerate(used)}
        needed = {(point, law) for point, law, _ in runs}
        return Task(
            self.source,
            [self.points[point] for point in used],
            [self.gains[point] for point in used],
            [(place[point], law, seed) for point, law, seed in runs],
            {(place[point], law): self.laws[point, law] for point, law in needed},
            self.limit_s,
        )

    def start(self, threads: int) -> RunningBatch:
        """Starts the runs."""
        seeds = max(seed for _, _, seed in self.runs)
        plan = self.source.plan(self.points, self.gains, seeds)
        planned, only = self.source.planned(plan), set(self.runs)
        return self.source.engine.start(planned, threads, samples=False, only=only)

    def lost(self, why: str) -> list[dict[str, Any]]:
        """Rows of its runs where all of them failed."""
        return [
            row for point, law, seed in self.runs for row in self.laws[point, law].fault(seed, why)
        ]

    def rows(
        self,
        runs: Iterable[Run],
        faults: Iterable[Fault],
        remarks: Mapping[Key, Sequence[str]] | None = None,
    ) -> list[dict[str, Any]]:
        """What the store keeps of runs that have ended; those that are remarked on have failed."""
        found = []
        for run in runs:
            law, said = self.laws[run.point, run.law], (remarks or {}).get(_key(run))
            found += law.fault(run.seed, "; ".join(said)) if said else law.run(run)
        for fault in faults:
            found += self.laws[fault.point, fault.law].fault(fault.seed, fault.message)
        return found


def _key(run: Run) -> Key:
    return run.point, run.law, run.seed


@dataclass
class Done:
    """What came of some runs: rows for the store.

    stopped: why no more can be made here, where a cluster has failed.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    stopped: str = ""


class Threads:
    """What needs nothing: one batch after another, the next before the last has ended,
    so that no thread waits."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """What ends, as it does, and now and then nothing, so that the caller can look about.

        No further task is begun once `stop` says so; what is under way is then given up.
        """
        waiting = iter(tasks)
        under_way: list[tuple[Task, RunningBatch, list[int]]] = []
        more = True
        try:
            while True:
                while more and not stop() and sum(left[0] for *_, left in under_way) < self.threads:
                    task = next(waiting, None)
                    if task is None:
                        more = False
                    else:
                        batch = task.start(self.threads)
                        under_way.append((task, batch, [len(task.runs)]))
                if not under_way or stop():
                    return
                time.sleep(POLL_S)
                for entry in list(under_way):
                    task, batch, left = entry
                    if task.limit_s is not None:
                        batch.fail_longer_than(task.limit_s)
                    # Before its results are taken: none can come after it.
                    ended = batch.done
                    runs, faults = batch.take()
                    left[0] -= len(runs) + len(faults)
                    if ended:
                        under_way.remove(entry)
                    yield Done(task.rows(runs, faults, batch.remarks))
        finally:
            for _, batch, _ in under_way:
                batch.cancel()
            for _, batch, _ in under_way:
                while not batch.done:
                    time.sleep(POLL_S / 10)

    def __str__(self) -> str:
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'}"
