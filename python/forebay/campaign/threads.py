"""Runs of a study on the threads of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from forebay.campaign.study_points import Row, StudySource
from forebay.experiment.engines import run_name
from forebay.experiment.execution import POLL_S

if TYPE_CHECKING:
    from forebay._native import Fault, Run
    from forebay.campaign.point_gains import Gains
    from forebay.experiment.engines import Extras, Remark, RunningBatch
    from forebay.experiment.run_rows import LawAtPoint


@dataclass(frozen=True)
class RunOutputs:
    """What a run has left beside its numbers, for a folder of its own; it can be pickled.

    remarks: what its programs did that a reader must know of.
    """

    name: str
    files: dict[str, bytes]
    programs: list[dict[str, Any]]
    remarks: list[str]

    @staticmethod
    def read(name: str, extras: Extras, remarks: Iterable[Remark]) -> RunOutputs:
        """Reads what an engine keeps only until its runs are dropped."""
        programs, files = [], {}
        of_programs = {program.output for program in extras.programs}
        for number, program in enumerate(extras.programs):
            output = f"program-{number}.txt"
            files[output] = extras.files[program.output].read_bytes()
            programs.append({**asdict(program), "output": output})
        for other, where in extras.files.items():
            if other not in of_programs:
                # One of a kind for each run: "pcap/pi-1.pcapng".
                files[f"bottleneck.{other.rpartition('.')[2]}"] = where.read_bytes()
        return RunOutputs(name, files, programs, list(map(str, remarks)))


@dataclass
class Done:
    """What came of some runs: rows for the store, and what they left.

    ended: how many runs. stopped: why no more can be made here, where a cluster has failed.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[RunOutputs] = field(default_factory=list)
    ended: int = 0
    stopped: str = ""

    def __add__(self, other: Done) -> Done:
        ended, stopped = self.ended + other.ended, self.stopped or other.stopped
        return Done(self.rows + other.rows, self.outputs + other.outputs, ended, stopped)


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
    #: likewise, label of the law and number of the point in the study, None where it has one
    labels: dict[tuple[int, int], tuple[str, int | None]]
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
            {(place[point], law): self.labels[point, law] for point, law in needed},
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

    def taken(self, batch: RunningBatch) -> Done:
        """What has ended of it since the last call. A run that is remarked on has failed, but where
        the remark is of its programs: those are what the study is about."""
        runs, faults = batch.take()
        done = Done(ended=len(runs) + len(faults))
        remarks, extras = (batch.remarks, batch.extras) if done.ended else ({}, {})
        for run in runs:
            key = run.point, run.law, run.seed
            law, said = self.laws[key[:2]], remarks.get(key, ())
            whole = not said or key in extras
            done.rows += law.run(run) if whole else law.fault(run.seed, "; ".join(map(str, said)))
        for fault in faults:
            done.rows += self.laws[fault.point, fault.law].fault(fault.seed, fault.message)
        ended: list[Run | Fault] = [*runs, *faults]
        for one in ended:
            key = one.point, one.law, one.seed
            if found := extras.get(key):
                name = run_name(*self.labels[key[:2]], one.seed)
                done.outputs.append(RunOutputs.read(name, found, remarks.get(key, ())))
        return done


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
                    done = task.taken(batch)
                    left[0] -= done.ended
                    if ended:
                        under_way.remove(entry)
                    yield done
        finally:
            for _, batch, _ in under_way:
                batch.cancel()
            for _, batch, _ in under_way:
                while not batch.done:
                    time.sleep(POLL_S / 10)

    def __str__(self) -> str:
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'}"
