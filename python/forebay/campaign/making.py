"""The runs of a study that its store lacks: cut into tasks, made, and stored as they end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from forebay._base import signals
from forebay._base.progress import Progress
from forebay._base.publication import publish
from forebay._native import ScenarioError
from forebay.campaign.study_points import Row, StudySource
from forebay.experiment import execution
from forebay.experiment.engines import run_name
from forebay.experiment.execution import POLL_S
from forebay.experiment.run_rows import law_at_point
from forebay.experiment.store_files import again

if TYPE_CHECKING:
    from forebay._native import Fault, Run
    from forebay.campaign.study_points import Gains, Points, PointsPart
    from forebay.experiment.engines import Extras, Remark, RunningBatch
    from forebay.experiment.run_rows import LawAtPoint
    from forebay.experiment.store import Store


@dataclass(frozen=True)
class RunOutputs:
    """Files and programs' ends of a run, for a folder of its own; it can be pickled.

    remarks: what its programs did that a reader must know of.
    """

    name: str
    files: dict[str, bytes]
    programs: list[dict[str, Any]]
    remarks: list[str]

    @staticmethod
    def read(name: str, extras: Extras, remarks: Iterable[Remark]) -> RunOutputs:
        """Read what an engine keeps only until its runs are dropped."""
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
    """Outcome of some runs: rows for the store, and files.

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
        """Yield the runs in tasks of at most so many."""
        for first in range(0, len(self.runs), most):
            yield self.only(self.runs[first : first + most])

    def only(self, runs: list[tuple[int, int, int]]) -> Task:
        """Return a task of some runs, with the points that they need."""
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
        """Start the runs."""
        seeds = max(seed for _, _, seed in self.runs)
        plan = self.source.plan(self.points, self.gains, seeds)
        planned, only = self.source.planned(plan), set(self.runs)
        return self.source.engine.start(planned, threads, samples=False, only=only)

    def lost(self, why: str) -> list[dict[str, Any]]:
        """Return the rows of its runs where all of them failed."""
        return [
            row for point, law, seed in self.runs for row in self.laws[point, law].fault(seed, why)
        ]

    def taken(self, batch: RunningBatch) -> Done:
        """Return what has ended since the last call. A run that is remarked on has failed, but
        where the remark is of its programs: those are what the study is about."""
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
    """Threads of this process, which make one batch after another; the next begins before the last
    has ended, so that no thread waits."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """Yield runs as they end, and now and then nothing, so that the caller can look about.

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


#: Runs of one task: seconds of work, and a part of the points ends with it.
MOST_RUNS = 4000

#: In a study's folder, a folder for each run that leaves more than numbers; and in each, how its
#: programs ended.
OUTPUTS, PROGRAMS = "outputs", "programs.json"
#: Patterns of what a run leaves there.
LEFT = [PROGRAMS, "program-*.txt", "bottleneck.*"]


class Workers(Protocol):
    """A place that makes runs: threads, or a cluster."""

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """Yield runs as they end."""


@dataclass
class StudyProgress:
    """State of a call that makes runs. Counts are of runs."""

    wanted: int = 0
    found: int = 0
    made: int = 0
    failed: int = 0
    packets: float = 0.0
    interrupted: bool = False
    #: whether the time was spent before all were made
    spent: bool = False
    elapsed_s: float = 0.0
    #: why no more can be made, and what the store's place said where it is that
    stopped: str = ""
    error: OSError | None = None
    #: failures of this call, with how often each came
    faults: dict[str, int] = field(default_factory=dict)
    #: likewise, what programs did in runs that are sound
    remarks: dict[str, int] = field(default_factory=dict)

    @property
    def ended_early(self) -> str:
        """The reason why it ended before all runs were made; empty if it did not."""
        if self.stopped:
            return self.stopped
        if self.interrupted:
            return "interrupted"
        return "the budget is spent" if self.spent else ""

    def add(self, ended: Done) -> None:
        """Count runs that have ended, by their rows, and what their programs did."""
        self.stopped = ended.stopped or self.stopped
        for why in (why for outputs in ended.outputs for why in outputs.remarks):
            self.remarks[why] = self.remarks.get(why, 0) + 1
        for row in ended.rows:
            if row["link"]:
                continue
            if row.get("fault"):
                self.failed += 1
                why = row["fault"].splitlines()[-1]
                self.faults[why] = self.faults.get(why, 0) + 1
            else:
                self.made += 1
                self.packets += row["forwarded_packets"]

    def progress(self, expected: int) -> Progress:
        """Return the progress towards so many runs."""
        ended, all_of_them = self.found + self.made + self.failed, max(expected, 1)
        found = min(1.0, self.found / all_of_them)
        fraction = min(1.0, ended / all_of_them)
        return Progress(fraction, ended, expected, self.elapsed_s, fraction_from_store=found)

    @property
    def whole(self) -> bool:
        return self.found + self.made + self.failed >= self.wanted


def make(
    points: Points,
    store: Store,
    workers: Workers,
    *,
    seeds: int | Mapping[str, int],
    watch: Callable[[Progress, StudyProgress], None] | None = None,
    budget_s: float | None = None,
    limit_s: float | None = None,
    retry: bool = False,
    made: StudyProgress | None = None,
    folder: Path | None = None,
) -> StudyProgress:
    """Make what is missing. Ctrl-C, the end of `budget_s`, a cluster that is gone and a store that
    is full keep what has been stored.

    seeds: of each law at each point, or by its digest. limit_s: a run that takes longer fails.
    retry: failed runs are made once more; else they stay failed. folder: of the study, for what
    runs leave beside their numbers, which is lost without.
    """
    start = time.monotonic()
    done = made or StudyProgress()
    done.found = 0
    before, kept_list = _there(store, but_failed=retry), points.kept_list(store)
    save = partial(points.keep_list, store)
    tasks = Tasks(points, before, seeds, done, limit_s, kept_list, save)
    end = math.inf if budget_s is None else start + budget_s
    with signals.held() as interrupted:

        def stop() -> bool:
            return bool(interrupted) or time.monotonic() >= end

        writer = None
        try:
            with (
                store.writer() as writer,
                points.gains.kept or nullcontext() as designs,
                closing(workers.make(tasks, stop)) as ended_runs,
            ):
                for ended in ended_runs:
                    # Before the store has the run, as it would not be made again.
                    if folder is not None:
                        _keep(ended.outputs, folder / OUTPUTS)
                    done.add(ended)
                    writer.rows += ended.rows
                    writer.tick()
                    if designs:
                        designs.tick()
                    if watch:
                        done.elapsed_s = time.monotonic() - start
                        watch(done.progress(tasks.expected), done)
        except OSError as error:
            if error.filename != store.address:
                raise
            # A full disk, say.
            done.error, done.stopped = error, f"{error.filename}: {error.strerror}"
            done.made -= writer.waiting if writer else 0
        done.interrupted = bool(interrupted)
    done.wanted = tasks.expected
    over = done.interrupted or done.stopped or (tasks.ended and done.whole)
    done.spent = not over and time.monotonic() >= end
    done.elapsed_s = time.monotonic() - start
    return done


def _keep(outputs: Iterable[RunOutputs], folder: Path) -> None:
    """Write what each run has left as one folder, whole or not at all."""
    for one in outputs:
        told = {"programs": one.programs}
        publish(folder / one.name, {**one.files, PROGRAMS: told}, replaces=LEFT)


@again
def _there(store: Store, *, but_failed: bool = False) -> pl.DataFrame:
    """Return config and seed of the runs in a store."""
    runs = store.scan().filter(pl.col("link") == 0)
    sound = runs.filter(pl.col("fault").is_null()) if but_failed else runs
    return sound.select("config", "seed").collect()


@dataclass
class Tasks:
    """The tasks of a study, made when somebody asks for the next; each run is in one task, also
    where a law is the same at many points."""

    points: Points
    #: runs that the store has: config and seed
    before: pl.DataFrame
    seeds: int | Mapping[str, int]
    done: StudyProgress
    limit_s: float | None
    #: the list of the study, if the store has it; what saves it otherwise
    known: pl.DataFrame | None
    save: Callable[[pl.DataFrame], None]
    seen: set[str] = field(default_factory=set)
    ended: bool = False
    #: how many runs there are: a guess until all points have been read
    expected: int = field(init=False)

    def __post_init__(self) -> None:
        seeds = self.seeds
        self.expected = (
            self.points.configs * seeds if isinstance(seeds, int) else sum(seeds.values())
        )

    def __iter__(self) -> Iterator[Task]:
        counted, listed = 0, []
        for which in self.points.parts():
            part = None
            if self.known is None:
                part = self.points.part(which)
                configs = part.configs
                if configs["config"].null_count():
                    raise ScenarioError(
                        "--law: found a law in Python without a file, allowed: FILE.py:CLASS, as a "
                        "study keeps its runs by what they depend on"
                    )
                listed.append(configs)
            else:
                laws = len(self.points.laws)
                configs = self.known.slice(which[0] * laws, len(which) * laws)
            missing, wanted, twice = self._missing(configs)
            counted += wanted
            if isinstance(self.seeds, int):
                self.expected -= twice * self.seeds
            if missing:
                yield from self._task(part or self.points.part(which), missing).split(MOST_RUNS)
        self.expected = counted
        self.ended = True
        if listed:
            self.save(pl.concat(listed))

    def _missing(self, configs: pl.DataFrame) -> tuple[list[tuple[int, int, str, int]], int, int]:
        """Point, law, digest and seed of what is to be made, how many runs there are, and how many
        laws were there at an earlier point."""
        fresh = configs.unique("config", keep="first", maintain_order=True)
        fresh = fresh.filter([config not in self.seen for config in fresh["config"]])
        self.seen.update(fresh["config"])
        counts = (
            [self.seeds] * fresh.height
            if isinstance(self.seeds, int)
            else [self.seeds.get(config, 0) for config in fresh["config"]]
        )
        most = pl.Series("most", counts, pl.UInt64)
        # Seed by seed: what is there after an interruption compares all laws.
        seeds = pl.DataFrame(
            {"seed": pl.Series(range(1, max(counts, default=0) + 1), dtype=pl.UInt64)}
        )
        runs = seeds.join(fresh.with_columns(most), how="cross", maintain_order="left_right")
        runs = runs.filter(pl.col("seed") <= pl.col("most"))
        missing = runs.join(self.before, on=["config", "seed"], how="anti", maintain_order="left")
        self.done.found += runs.height - missing.height
        rows = missing.select("point", "law", "config", "seed").rows()
        return rows, runs.height, configs.height - fresh.height

    def _task(self, part: PointsPart, missing: list[tuple[int, int, str, int]]) -> Task:
        execution.check_memory(part.plan, 1, samples=False)
        runs, laws, labels = [], {}, {}
        several = len(self.points) > 1
        for point, law, config, seed in missing:
            at = point - part.first
            runs.append((at, law, seed))
            if (at, law) not in laws:
                laws[at, law] = law_at_point(part.plan, at, law, config, self.points.made)
                labels[at, law] = part.plan.laws[law], point if several else None
        source = self.points.source
        source.engine.check(source.planned(part.plan))
        return Task(source, part.rows, part.gains, runs, laws, labels, self.limit_s)
