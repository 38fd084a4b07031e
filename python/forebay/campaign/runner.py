"""The runner of studies: makes the runs that a store lacks, and stores them as they end.

Runs are cut into tasks, which threads of this process or the workers of a cluster make.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from forebay._base import signals
from forebay._base.errors import ParameterError
from forebay._base.metrics import check_metrics
from forebay._base.progress import Progress
from forebay._base.publication import publish
from forebay._native import ScenarioError
from forebay.campaign.study import Study
from forebay.campaign.study_points import Row, StudySource, seed_counts
from forebay.experiment import execution
from forebay.experiment.engines import run_name
from forebay.experiment.run_rows import law_at_point
from forebay.experiment.store_files import again

if TYPE_CHECKING:
    from forebay._base.publication import Content
    from forebay._native import Fault, Run
    from forebay.campaign.study_points import Gains, Points, PointsPart, Seeds
    from forebay.experiment.engines import Extras, Key, Remark, RunningBatch
    from forebay.experiment.run_rows import LawAtPoint
    from forebay.experiment.store import Store


@dataclass(frozen=True)
class RunOutputs:
    """The files of a run next to its numbers, for a folder of its own; it can be pickled.

    Attributes
    ----------
    name : str
        Name of the folder.
    files : dict
        Contents of the files by name.
    programs : list of dict
        How the run's programs ended.
    remarks : list of str
        What a reader must know of its programs.
    """

    name: str
    files: dict[str, bytes]
    programs: list[dict[str, Any]]
    remarks: list[str]

    @staticmethod
    def read(name: str, extras: Extras, remarks: Iterable[Remark]) -> RunOutputs:
        """Read the files, which an engine keeps only until its runs are dropped."""
        programs, files = [], {}
        of_programs = {program.output for program in extras.programs}
        for number, program in enumerate(extras.programs):
            output = f"program-{number}.txt"
            files[output] = extras.files[program.output].read_bytes()
            programs.append({**asdict(program), "output": output})
        for file, where in extras.files.items():
            if file not in of_programs:
                # A run has a single file of each kind: "pcap/pi-1.pcapng".
                files[f"bottleneck.{file.rpartition('.')[2]}"] = where.read_bytes()
        return RunOutputs(name, files, programs, list(map(str, remarks)))

    def write(self, folder: Path) -> None:
        """Write the files into a folder of the run's name, all of them or none."""
        files: dict[str, Content] = {**self.files, PROGRAMS: {"programs": self.programs}}
        publish(folder / self.name, files, replaces=OUTPUT_FILES)


@dataclass
class Done:
    """The outcome of some runs.

    Attributes
    ----------
    rows : list of dict
        Rows for the store.
    outputs : list of RunOutputs
        Files of runs that leave some.
    count : int
        Number of runs.
    stopped : str
        Why no more runs can be made; empty unless a cluster has failed.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[RunOutputs] = field(default_factory=list)
    count: int = 0
    stopped: str = ""

    def __add__(self, more: Done) -> Done:
        """Return the work of both together."""
        count, stopped = self.count + more.count, self.stopped or more.stopped
        return Done(self.rows + more.rows, self.outputs + more.outputs, count, stopped)


@dataclass(eq=False)
class Task:
    """Runs to make at some points; it can be pickled until it begins.

    Attributes
    ----------
    source : StudySource
        The scenario.
    points : list of Row
        What each point sets.
    gains : list of Gains
        Designed parameters at each point.
    runs : list of (int, int, int)
        Index into `points`, number of the law, and seed of each run.
    laws : dict
        What all runs of a law at a point have in common, by both.
    labels : dict
        Label of the law, and number of the point in the study (None in a study of one point), by
        law and point.
    limit_s : float or None
        A run that takes longer fails.
    """

    source: StudySource
    points: list[Row]
    gains: list[Gains]
    runs: list[Key]
    laws: dict[tuple[int, int], LawAtPoint]
    labels: dict[tuple[int, int], tuple[str, int | None]]
    limit_s: float | None = None
    batch: RunningBatch | None = None
    #: Number of runs that have not ended yet.
    unfinished: int = 0

    def split(self, size: int) -> Iterator[Task]:
        """Yield the runs in tasks of at most `size` runs."""
        for first in range(0, len(self.runs), size):
            yield self.only(self.runs[first : first + size])

    def only(self, runs: list[Key]) -> Task:
        """Return a task of some of the runs, with the points that they need."""
        used = sorted({point for point, _, _ in runs})
        index = {point: i for i, point in enumerate(used)}
        pairs = {(point, law) for point, law, _ in runs}
        return Task(
            self.source,
            [self.points[point] for point in used],
            [self.gains[point] for point in used],
            [(index[point], law, seed) for point, law, seed in runs],
            {(index[point], law): self.laws[point, law] for point, law in pairs},
            {(index[point], law): self.labels[point, law] for point, law in pairs},
            self.limit_s,
        )

    def begin(self, threads: int) -> None:
        """Start the runs."""
        plan = self.source.plan(self.points, self.gains, max(seed for *_, seed in self.runs))
        planned, self.unfinished = self.source.planned(plan), len(self.runs)
        self.batch = self.source.engine.start(planned, threads, samples=False, only=set(self.runs))

    @property
    def done(self) -> bool:
        """True if no more runs will end."""
        return self.batch is not None and self.batch.done

    def cancelled(self) -> bool:
        """Cancel the runs under way; return True if all have ended."""
        return execution.cancelled(self.batch)

    def faults(self, why: str) -> list[dict[str, Any]]:
        """Return the rows of its runs if all of them fail for this reason."""
        return [
            row for point, law, seed in self.runs for row in self.laws[point, law].fault(seed, why)
        ]

    def take(self) -> Done:
        """Return the runs that have ended since the last call.

        A run with a remark has failed, except where the remark is about its programs: these are
        what the study is about.
        """
        if self.batch is None:
            return Done()
        if self.limit_s is not None:
            self.batch.fail_longer_than(self.limit_s)
        runs, faults = self.batch.take()
        done = Done(count=len(runs) + len(faults))
        self.unfinished -= done.count
        remarks, extras = (self.batch.remarks, self.batch.extras) if done.count else ({}, {})
        for run in runs:
            key = run.point, run.law, run.seed
            law, remarked = self.laws[key[:2]], remarks.get(key, ())
            sound = not remarked or key in extras
            why = "; ".join(map(str, remarked))
            done.rows += law.run(run) if sound else law.fault(run.seed, why)
        for fault in faults:
            done.rows += self.laws[fault.point, fault.law].fault(fault.seed, fault.message)
        outcomes: list[Run | Fault] = [*runs, *faults]
        for outcome in outcomes:
            key = outcome.point, outcome.law, outcome.seed
            if key in extras:
                name = run_name(*self.labels[key[:2]], outcome.seed)
                done.outputs.append(RunOutputs.read(name, extras[key], remarks.get(key, ())))
        return done


class Workers(Protocol):
    """A place that makes runs: threads, or a cluster."""

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """Yield runs as they end, and now and then nothing, so that the caller can do its work.

        Once `stop` returns True no further task begins, and what is under way is given up.
        """


class Threads:
    """Threads of this process."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """Yield runs as they end: see `Workers.make`."""
        waiting = iter(tasks)
        begin = iter(lambda: None if stop() else next(waiting, None), None)
        with closing(execution.keep_busy(begin, self.threads, stop)) as looks:
            for under_way, _ in looks:
                for task in under_way:
                    yield task.take()

    def __str__(self) -> str:
        """Return the number of threads in words, such as "4 threads"."""
        return f"{self.threads} {'thread' if self.threads == 1 else 'threads'}"


#: Number of runs of a task: seconds of work. A part of the points ends a task, too.
MOST_RUNS = 4000
#: Folder of a study that has a folder for each run with outputs; and in each, the file that says
#: how its programs ended.
OUTPUTS, PROGRAMS = "outputs", "programs.json"
#: Patterns of the files in the folder of a run.
OUTPUT_FILES = [PROGRAMS, "program-*.txt", "bottleneck.*"]


@dataclass
class StudyProgress:
    """The state of a study that is being made.

    Attributes
    ----------
    total, stored, finished, failed : int
        Number of runs in all, of those that were in the store, and of those that this call has
        finished or that failed in it.
    packets : float
        Packets that the runs of this call forwarded.
    interrupted : bool
        True after Ctrl-C.
    spent : bool
        True if the time budget was spent before all runs were made.
    elapsed_s : float
        Wall-clock time in seconds.
    stopped : str
        Why no more runs could be made; empty if they could.
    error : OSError or None
        The error of the store behind `stopped`.
    faults, remarks : dict
        Failures of this call, and remarks about programs, each with its number of runs.
    seeds : int or mapping
        Number of seeds of each law at each point; by digest where they differ.
    wide : int
        Laws at points whose interval is still too wide with the largest number of seeds.
    """

    total: int = 0
    stored: int = 0
    finished: int = 0
    failed: int = 0
    packets: float = 0.0
    interrupted: bool = False
    spent: bool = False
    elapsed_s: float = 0.0
    stopped: str = ""
    error: OSError | None = None
    faults: dict[str, int] = field(default_factory=dict)
    remarks: dict[str, int] = field(default_factory=dict)
    seeds: Seeds = 0
    wide: int = 0

    @property
    def ended_early(self) -> str:
        """Why it ended before all runs were made; empty if it did not."""
        if self.stopped:
            return self.stopped
        if self.interrupted:
            return "interrupted"
        return "the budget is spent" if self.spent else ""

    @property
    def ended(self) -> int:
        """Number of runs that have ended, now or before."""
        return self.stored + self.finished + self.failed

    @property
    def whole(self) -> bool:
        """True if all runs have ended."""
        return self.ended >= self.total

    def add(self, done: Done) -> None:
        """Count runs that have ended, and remarks about their programs."""
        self.stopped = done.stopped or self.stopped
        for text in (text for outputs in done.outputs for text in outputs.remarks):
            self.remarks[text] = self.remarks.get(text, 0) + 1
        for row in done.rows:
            if row["link"]:
                continue
            if row.get("fault"):
                self.failed += 1
                why = row["fault"].splitlines()[-1]
                self.faults[why] = self.faults.get(why, 0) + 1
            else:
                self.finished += 1
                self.packets += row["forwarded_packets"]

    def progress(self, total: int) -> Progress:
        """Return the progress towards a total number of runs."""
        share, stored = (min(1.0, count / max(total, 1)) for count in (self.ended, self.stored))
        return Progress(share, self.ended, total, self.elapsed_s, fraction_from_store=stored)


Watch = Callable[[Progress, StudyProgress], None]


@dataclass(frozen=True, kw_only=True)
class StudyLimits:
    """The limits of a study, and the function that receives its progress.

    Attributes
    ----------
    watch : callable, optional
        Called with the progress now and then.
    budget_s : float, optional
        Begin no run after so many seconds.
    limit_s : float, optional
        A run that takes longer, in seconds, fails.
    retry : bool
        True to make failed runs once more; otherwise they stay failed.
    folder : Path, optional
        Folder of the study, for outputs of runs; without it they are lost.
    """

    watch: Watch | None = None
    budget_s: float | None = None
    limit_s: float | None = None
    retry: bool = False
    folder: Path | None = None


def make(
    points: Points,
    store: Store,
    workers: Workers,
    limits: StudyLimits | None = None,
    *,
    seeds: Seeds,
    progress: StudyProgress | None = None,
) -> StudyProgress:
    """Make the runs of a study that its store lacks.

    Ctrl-C, the end of the budget, a lost cluster and a full store end it early, and keep what has
    been stored.

    Parameters
    ----------
    points : Points
        The study.
    store : Store
        Where runs are looked for and kept.
    workers : Workers
        Threads or a cluster.
    limits : StudyLimits, optional
        The limits of the study; without them there is none.
    seeds : int or mapping of str to int
        Number of seeds of each law at each point, or the same by digest.
    progress : StudyProgress, optional
        The progress of a former call, which this one continues to count.

    Returns
    -------
    StudyProgress
        Counts, failures, and why it ended early.
    """
    limits = limits or StudyLimits()
    start_s = time.monotonic()
    end_s = math.inf if limits.budget_s is None else start_s + limits.budget_s
    state = progress or StudyProgress()
    state.stored = 0
    tasks = Tasks(points, store, seeds, state, limits.limit_s, retry=limits.retry)

    def report() -> None:
        if limits.watch:
            state.elapsed_s = time.monotonic() - start_s
            limits.watch(state.progress(tasks.total), state)

    with signals.held() as interrupted:
        tasks.make(
            workers, lambda: bool(interrupted) or time.monotonic() >= end_s, limits.folder, report
        )
        state.interrupted = bool(interrupted)
    state.total = tasks.total
    complete = tasks.exhausted and state.whole
    over = state.interrupted or state.stopped or complete
    state.spent = not over and time.monotonic() >= end_s
    state.elapsed_s = time.monotonic() - start_s
    return state


@again
def _stored_runs(store: Store, *, sound: bool = False) -> pl.DataFrame:
    """Return digest and seed of the runs in a store; only of those that did not fail if `sound`."""
    runs = store.scan().filter(pl.col("link") == 0)
    return (
        (runs.filter(pl.col("fault").is_null()) if sound else runs)
        .select("config", "seed")
        .collect()
    )


class Tasks:
    """The tasks of a study, each made when the next one is asked for.

    A run is in one task only, also if a law is the same at many points.

    Parameters
    ----------
    points : Points
        The study.
    store : Store
        Where runs are looked for. It also has the list of the study, if that was made before.
    seeds : int or mapping of str to int
        Number of seeds of each law at each point, or the same by digest.
    progress : StudyProgress
        Counts the runs that are in the store.
    limit_s : float, optional
        A run that takes longer, in seconds, fails.
    retry : bool, optional
        True to make failed runs once more.

    Attributes
    ----------
    total : int
        Number of runs; an upper bound until all points have been read.
    exhausted : bool
        True if there are no more tasks.
    """

    def __init__(
        self,
        points: Points,
        store: Store,
        seeds: Seeds,
        progress: StudyProgress,
        limit_s: float | None = None,
        *,
        retry: bool = False,
    ) -> None:
        self._points, self._store, self._seeds = points, store, seeds
        self._progress, self._limit_s = progress, limit_s
        self._before = _stored_runs(store, sound=retry)
        self._listed: set[str] = set()
        self.exhausted = False
        self.total = points.configs * seeds if isinstance(seeds, int) else sum(seeds.values())

    def __iter__(self) -> Iterator[Task]:
        """Yield the tasks that are left, part by part. Raises `ScenarioError`."""
        total, listed = 0, []
        known_list = self._points.kept_list(self._store)
        for numbers in self._points.parts():
            part = None
            if known_list is None:
                part = self._points.part(numbers)
                configs = part.configs
                if configs["config"].null_count():
                    raise ScenarioError(
                        "law: a law in Python needs a file in a study, which keeps its runs by "
                        "what they depend on; write FILE.py:CLASS"
                    )
                listed.append(configs)
            else:
                laws = len(self._points.laws)
                configs = known_list.slice(numbers[0] * laws, len(numbers) * laws)
            fresh, runs = self._runs(configs)
            total += runs.height
            if isinstance(self._seeds, int):
                self.total -= (configs.height - fresh) * self._seeds
            missing = runs.join(
                self._before, on=["config", "seed"], how="anti", maintain_order="left"
            )
            self._progress.stored += runs.height - missing.height
            if missing.height:
                task = self._task(part or self._points.part(numbers), missing)
                yield from task.split(MOST_RUNS)
        self.total, self.exhausted = total, True
        if listed:
            self._points.keep_list(self._store, pl.concat(listed))

    def make(
        self,
        workers: Workers,
        stop: Callable[[], bool],
        folder: Path | None,
        report: Callable[[], None],
    ) -> None:
        """Make and store the runs of all tasks until `stop` returns True, or the store is full."""
        progress, writer = self._progress, None
        try:
            with (
                self._store.writer() as writer,
                self._points.gains.designs or nullcontext() as designs,
                closing(workers.make(self, stop)) as ended_runs,
            ):
                for done in ended_runs:
                    # Before the run is stored, since a stored run would not be repeated.
                    if folder is not None:
                        for outputs in done.outputs:
                            outputs.write(folder / OUTPUTS)
                    progress.add(done)
                    writer.rows += done.rows
                    writer.tick()
                    if designs:
                        designs.tick()
                    report()
        except OSError as error:
            if error.filename != self._store.address:
                raise
            # The disk is full, for example.
            progress.error, progress.stopped = error, f"{error.filename}: {error.strerror}"
            progress.finished -= writer.waiting if writer else 0

    def _runs(self, configs: pl.DataFrame) -> tuple[int, pl.DataFrame]:
        """Return the laws that were at no earlier point: their number and their runs.

        The runs are in the order of seeds, so that an interrupted study compares all laws.
        """
        fresh = configs.unique("config", keep="first", maintain_order=True)
        fresh = fresh.filter([config not in self._listed for config in fresh["config"]])
        self._listed.update(fresh["config"])
        counts = seed_counts(self._seeds, fresh["config"])
        seeds = [list(range(1, count + 1)) for count in counts]
        runs = fresh.with_columns(pl.Series("seed", seeds, pl.List(pl.UInt64))).explode("seed")
        return fresh.height, runs.drop_nulls("seed").sort("seed", maintain_order=True)

    def _task(self, part: PointsPart, missing: pl.DataFrame) -> Task:
        execution.check_memory(part.plan, 1, samples=False)
        points, source = self._points, self._points.source
        task = Task(source, part.rows, part.gains, [], {}, {}, self._limit_s)
        for point, law, config, seed in missing.select("point", "law", "config", "seed").rows():
            at = point - part.first
            task.runs.append((at, law, seed))
            if (at, law) not in task.laws:
                number = point if len(points) > 1 else None
                task.laws[at, law] = law_at_point(part.plan, at, law, config, points.made_by)
                task.labels[at, law] = part.plan.laws[law], number
        source.engine.check(source.planned(part.plan))
        return task


UNTIL = re.compile(r"ci95=(\d+(?:\.\d+)?)%(?:,([\w,]+))?")
#: Metrics whose intervals count if none are named.
USUAL = ("goodput_bps", "delay_p95_s")


@dataclass(frozen=True)
class Until:
    """A goal for the confidence intervals of a study, which adds seeds until it is reached.

    Attributes
    ----------
    share : float
        Largest ratio of the 95 % interval's half-width to the mean.
    metrics : tuple of str
        Metrics that must reach it.
    most_seeds : int
        Largest number of seeds.
    """

    share: float
    metrics: tuple[str, ...]
    most_seeds: int

    @staticmethod
    def read(text: str, most_seeds: int) -> Until:
        """Parse "ci95=2%" or "ci95=2%,goodput_bps", or raise `ScenarioError`."""
        match = UNTIL.fullmatch(text)
        if match is None or not float(match[1]) > 0:
            expected = (
                "a goal such as ci95=2% (seeds until the 95 % interval is at most 2 % of the mean) "
                "or ci95=2%,goodput_bps"
            )
            raise ParameterError("until", text, expected)
        metrics = tuple(match[2].split(",")) if match[2] else USUAL
        check_metrics(metrics, key="until")
        return Until(float(match[1]) / 100, metrics, most_seeds)


def grow(
    points: Points,
    store: Store,
    workers: Workers,
    limits: StudyLimits | None = None,
    *,
    until: Until | None = None,
) -> StudyProgress:
    """Make the runs of a study that its store lacks, and add seeds where and while they are needed.

    Parameters
    ----------
    points, store, workers, limits
        The parameters of `make`.
    until : Until, optional
        The goal for intervals; without it no seeds are added.

    Returns
    -------
    StudyProgress
        The progress of all runs together, and the number of seeds.
    """
    limits = limits or StudyLimits()
    start_s = time.monotonic()
    state = make(points, store, workers, limits, seeds=points.seeds)
    state.seeds = points.seeds
    if until is None or state.ended_early:
        return state
    configs = sorted(points.list_runs(store)["config"].unique())
    seeds: dict[str, int] = dict.fromkeys(configs, points.seeds)
    while state.whole and not state.ended_early:
        study, former = Study(points, store, seeds), seeds
        for metric in until.metrics:
            needed = study.wide(metric, until.share, until.most_seeds)
            seeds = seeds | {config: max(seeds[config], n) for config, n in needed.items()}
        if seeds == former:
            break
        if limits.budget_s is not None:
            left_s = max(0.0, limits.budget_s - (time.monotonic() - start_s))
        else:
            left_s = None
        remaining = replace(limits, budget_s=left_s, retry=False)
        state = make(points, store, workers, remaining, seeds=seeds, progress=state)
    # What this call has made for the first seeds was in the store for the next ones.
    if state.whole:
        state.stored = max(0, state.total - state.finished - state.failed)
    state.seeds, state.elapsed_s = seeds, time.monotonic() - start_s
    study = Study(points, store, seeds)
    wide = [study.wide(metric, until.share, until.most_seeds + 1) for metric in until.metrics]
    state.wide = len({config for needed in wide for config in needed})
    return state
