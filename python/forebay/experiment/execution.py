"""Running experiments: plans become finished runs, which are kept in a store as they end.

An experiment whose samples would not fit into the memory of this machine is refused.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from forebay._base import quantities, signals
from forebay._base.errors import RunError
from forebay._base.progress import Progress
from forebay._native import ScenarioError
from forebay.experiment import engines
from forebay.experiment.experiment import NO_FILE

if TYPE_CHECKING:
    from forebay._native import Fault, Plan, Run
    from forebay.experiment.engines import Extras, Key, Remark, RunningBatch
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.run_rows import LawAtPoint
    from forebay.experiment.store import Store, Writer

T = TypeVar("T")

#: Time between two fetches of finished runs.
POLL_S = 0.05

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Execution:
    """What came of an experiment: runs sorted by point, law and seed."""

    runs: list[Run]
    #: How many of them were in the store.
    found: int = field(default=0, kw_only=True)
    #: Runs that failed; after the first, the others were stopped.
    faults: list[Fault]
    interrupted: bool
    elapsed_s: float
    #: What a reader must know of some of them, by run: see `engine.RunningBatch`.
    remarks: Mapping[Key, Sequence[Remark]] = field(default_factory=dict, kw_only=True)
    #: What some of them leave beside their traces, likewise.
    extras: Mapping[Key, Extras] = field(default_factory=dict, kw_only=True)


def cores() -> int:
    """Processor cores that this process may use."""
    # Linux alone tells it of a process.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def execute(
    experiment: Experiment,
    threads: int | None = None,
    watch: Watch | None = None,
    *,
    samples: bool = True,
    store: Store | None = None,
) -> Execution:
    """Makes every run of `experiment` on `threads` threads (all cores if None).

    `watch` hears of the progress now and then. Without `samples`, runs keep only their
    metrics, which takes far less memory. What is in `store` is taken from there, and what is not
    goes there as it finishes. Ctrl-C, as other signals in a command, and a run that
    fails, stop the others;
    what had finished by then is returned.
    """
    ((_, execution),) = execute_all([experiment], threads, watch, samples=samples, store=store)
    return execution


class Job(Protocol):
    """Runs that are started together."""

    @property
    def left(self) -> int:
        """Number of runs that have not ended yet."""

    @property
    def done(self) -> bool:
        """True if no more runs will end."""

    def begin(self, threads: int) -> None:
        """Start the runs, so many at a time."""

    def cancelled(self) -> bool:
        """Cancel what is under way; return True if all of it has ended."""


J = TypeVar("J", bound=Job)


def keep_busy(
    jobs: Iterable[J], threads: int, stop: Callable[[], bool]
) -> Generator[tuple[list[J], list[J]]]:
    """Run jobs one after another; the next begins before the last has ended.

    When the generator ends, and when it is closed, the jobs under way are cancelled.

    Parameters
    ----------
    jobs : iterable of Job
        Jobs, each made when it is to begin.
    threads : int
        Number of runs at a time.
    stop : callable
        Looked at after each yield; no further job begins once it returns True.

    Yields
    ------
    tuple of two lists
        The jobs under way, and those of them that were done beforehand, so that no results come
        after those that the caller takes now.
    """
    waiting, under_way = iter(jobs), list[J]()
    try:
        while True:
            while sum(job.left for job in under_way) < threads:
                job = next(waiting, None)
                if job is None:
                    break
                under_way.append(job)
                job.begin(threads)
            if not under_way:
                return
            if not all(job.done for job in under_way):
                time.sleep(POLL_S)
            done = [job for job in under_way if job.done]
            yield under_way, done
            if stop():
                return
            under_way = [job for job in under_way if job not in done]
    finally:
        while not all(job.cancelled() for job in under_way):
            time.sleep(POLL_S)


def cancelled(batch: RunningBatch | None) -> bool:
    """Cancel a batch; return True if it has ended, or never began."""
    if batch is None or batch.done:
        return True
    # More than once: a law in Python may have caught its interruption.
    batch.cancel()
    return False


def execute_all(
    experiments: Sequence[Experiment],
    threads: int | None = None,
    watch: Watch | None = None,
    *,
    samples: bool = True,
    store: Store | None = None,
) -> Generator[tuple[int, Execution]]:
    """Make the runs of several experiments as `execute` does.

    A run that several experiments have is made once if there is a store. After Ctrl-C, and after a
    run that fails, the experiments under way are yielded with what had finished, and no further one
    begins.

    Parameters
    ----------
    experiments, threads, watch, samples, store
        The parameters of `execute`.

    Yields
    ------
    tuple of int and Execution
        Index of an experiment that has ended, and its runs.
    """
    threads = threads or cores()
    for experiment in experiments:
        check_memory(experiment.plan, threads, samples=samples)
    start_s = time.monotonic()
    jobs = _jobs(experiments, store, samples=samples)
    total, runs = sum(job.cost for job in jobs), sum(each.runs for each in experiments)
    unfinished = list[_Job]()

    def take_and_tell(writer: Writer | None) -> None:
        for job in unfinished:
            job.take(writer)
        if writer:
            writer.tick()
        if watch:
            done = sum(job.cost * job.fraction for job in jobs)
            ended = sum(job.ended for job in jobs)
            elapsed_s = time.monotonic() - start_s
            more = "".join(job.batch.more for job in unfinished if job.batch)
            watch(Progress(done / total if total else 1.0, ended, runs, elapsed_s, more))

    with store.writer() if store else nullcontext() as writer, signals.held() as interrupted:

        def stop() -> bool:
            return bool(interrupted) or any(job.faults for job in unfinished)

        with closing(keep_busy(jobs, threads, stop)) as looks:
            for under_way, done in looks:
                unfinished = under_way
                take_and_tell(writer)
                if stop():
                    break
                for job in done:
                    yield job.number, job.execution(writer, interrupted=False)
                unfinished = [job for job in under_way if job not in done]
        take_and_tell(writer)
        for job in unfinished:
            yield job.number, job.execution(writer, interrupted=bool(interrupted))


@dataclass(eq=False)
class _Job:
    """An experiment under way; `samples` says whether its runs keep theirs."""

    number: int
    experiment: Experiment
    samples: bool
    #: what the store keeps of each law at each point; nothing of a prototype
    stored: dict[tuple[int, int], LawAtPoint]
    #: runs that were in the store
    found: dict[Key, Run]
    #: runs to make, and those that an earlier experiment makes, with their digests
    missing: set[Key]
    shared: dict[Key, str] = field(default_factory=dict)
    makers: list[_Job] = field(default_factory=list)
    batch: RunningBatch | None = None
    began_s: float = 0.0
    runs: list[Run] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    #: runs that have ended, now or before
    ended: int = 0

    @property
    def cost(self) -> float:
        """Bits that the links can carry in the runs to make: a guess of how long they take."""
        of_point = [
            point.duration_s * sum(link.rate_bps for link in point.links)
            for point in self.experiment.plan.points
        ]
        return sum(of_point[point] for point, _, _ in self.missing)

    @property
    def fraction(self) -> float:
        return self.batch.progress() if self.batch and self.missing else 0.0

    @property
    def left(self) -> int:
        return len(self.found) + len(self.missing) - self.ended

    @property
    def done(self) -> bool:
        """Whether nothing more comes, here or from where a run of this one is made."""
        here = self.batch is not None and self.batch.done
        return here and all(maker.done for maker in self.makers)

    def begin(self, threads: int) -> None:
        self.began_s = time.monotonic()
        self.batch = self.experiment.engine.start(
            self.experiment, threads, samples=self.samples, only=self.missing
        )

    def take(self, writer: Writer | None) -> None:
        """Fetches what has ended, and stores it."""
        if self.batch is None:
            return
        runs, faults = self.batch.take()
        self.runs += runs
        self.faults += faults
        self.ended += len(runs) + len(faults)
        for run in runs:
            sound = (run.point, run.law, run.seed) not in self.batch.remarks
            if writer and sound and (law := self.stored.get((run.point, run.law))):
                writer.add(law, run, samples=self.samples)

    def cancelled(self) -> bool:
        """Give up what is under way; return True if all of it has ended."""
        return cancelled(self.batch)

    def execution(self, writer: Writer | None, *, interrupted: bool) -> Execution:
        """What has come; this holds it no longer."""
        runs, found = [*self.found.values(), *self.runs], len(self.found)
        if self.shared and writer:
            writer.flush()
            runs += writer.store.runs(self.shared, samples=self.samples).values()
        self.found, self.runs = {}, []
        runs.sort(key=lambda run: (run.point, run.law, run.seed))
        faults = sorted(self.faults, key=lambda fault: (fault.point, fault.law, fault.seed))
        return Execution(
            runs,
            faults,
            interrupted,
            time.monotonic() - self.began_s,
            found=found,
            remarks=dict(self.batch.remarks) if self.batch else {},
            extras=dict(self.batch.extras) if self.batch else {},
        )


def _jobs(experiments: Sequence[Experiment], store: Store | None, *, samples: bool) -> list[_Job]:
    """What each experiment has to make, and what is there already."""
    jobs: list[_Job] = []
    makers: dict[tuple[str, int], _Job] = {}
    for number, experiment in enumerate(experiments):
        plan = experiment.plan
        job = _Job(number, experiment, samples, {}, {}, set(_keys(plan)))
        jobs.append(job)
        if store is None:
            continue
        job.stored = _stored_laws(experiment)
        configs = _configs(plan, job.stored)
        job.found = store.runs(configs, samples=samples)
        job.ended = len(job.found)
        job.missing -= job.found.keys()
        for key in [key for key in job.missing if key in configs]:
            maker = makers.setdefault((configs[key], key[2]), job)
            if maker is not job:
                job.missing.remove(key)
                job.shared[key] = configs[key]
                job.makers.append(maker)
    return jobs


def _keys(plan: Plan) -> Iterator[Key]:
    return itertools.product(range(len(plan.points)), range(len(plan.laws)), plan.seeds)


def _stored_laws(experiment: Experiment) -> dict[tuple[int, int], LawAtPoint]:
    """Return the stored columns of each law at each point, by their numbers."""
    from forebay.experiment import run_rows as rows  # loads polars

    plan, engine = experiment.plan, experiment.engine
    version = engine.version()
    if version is None or _leaves_files(experiment):
        return {}
    made = rows.MadeBy(engine.name, version)
    return {
        (point, law): rows.law_at_point(plan, point, law, config, made)
        for point in range(len(plan.points))
        for law, config in enumerate(rows.configs(plan, point, made))
        if config is not None
    }


def _leaves_files(experiment: Experiment) -> bool:
    """Whether runs leave more than a store keeps. What a program does depends on more than its
    words, too."""
    if not experiment.engine.runs_programs:
        return False
    return experiment.plan.keeps_packets or engines.runs_programs(experiment.plan)


def _configs(plan: Plan, stored: Mapping[tuple[int, int], LawAtPoint]) -> dict[Key, str]:
    """The digest of each run that is stored."""
    return {key: stored[key[:2]].config for key in _keys(plan) if key[:2] in stored}


def check_whole(experiment: Experiment, execution: Execution) -> None:
    """Raises `KeyboardInterrupt` after an interruption, and `RunError` after a failure."""
    if execution.interrupted:
        raise KeyboardInterrupt
    if execution.faults:
        file = "" if experiment.path == NO_FILE else experiment.path
        raise run_error(experiment.plan, execution.faults[0], file=file)


def run_error(plan: Plan, fault: Fault, *, file: str = "", result: object = None) -> RunError:
    """Return the error of a run that failed."""
    law, point = plan.laws[fault.law], plan.points[fault.point].label
    return RunError(law, point, fault.seed, fault.message, file=file, result=result)


def count_stored(experiments: Sequence[Experiment], store: Store) -> int:
    """How many runs of some experiments a store has, with their samples."""
    wanted = [_configs(each.plan, _stored_laws(each)) for each in experiments]
    return sum(len(store.rows_by_run(configs, samples=True)) for configs in wanted)


def unbroken(native: Callable[[], T]) -> T:
    """What native code gives that makes numpy's arrays, which panics on a Ctrl-C in the middle.

    Raises the Ctrl-C afterwards.
    """
    with signals.held() as interrupted:
        found = native()
    if interrupted:
        raise KeyboardInterrupt
    return found


def fault_in_words(plan: Plan, fault: Fault) -> str:
    """Return the sentence about which run failed, and how."""
    return str(run_error(plan, fault))


#: Of a sample at a link: eleven columns of 4 or 8 bytes, what a law reports, and half as much again
#: while tables are written.
SAMPLE_BYTES = 110
#: Share of the free memory that an experiment may take.
SHARE = 0.8


def check_memory(plan: Plan, threads: int, *, samples: bool) -> None:
    """Refuses what does not fit, all runs together; without `samples` only those under way count.

    Raises `ScenarioError`, which says what would fit.
    """
    free = SHARE * free_bytes()
    per_run = [
        SAMPLE_BYTES * len(point.links) * point.duration_s / point.sample_s for point in plan.points
    ]
    of_point = len(plan.laws) * len(plan.seeds)
    runs = of_point * len(per_run)
    under_way = min(threads, runs) * max(per_run)
    needed = (of_point * sum(per_run) if samples else 0.0) + under_way
    if needed <= free:
        return
    sample_s = max(point.sample_s for point in plan.points)
    what = f"in {runs} runs" if samples else f"in {min(threads, runs)} runs at a time"
    raise ScenarioError(
        f'sample: found "{quantities.time(min(point.sample_s for point in plan.points))}", about '
        f"{_in_words(needed)} of samples {what}, allowed: at most {_in_words(free)} here, such as "
        f"sample={quantities.time(_round(sample_s * needed / free))}"
        + (_fewer(plan, sum(per_run), under_way, free) if samples else "")
    )


def _fewer(plan: Plan, of_all_points: float, under_way: float, free: float) -> str:
    """Return the number of seeds that fit, as a further proposal; empty if none do."""
    seeds = math.floor((free - under_way) / (of_all_points * len(plan.laws)))
    return f" or {seeds} seeds" if 1 <= seeds < len(plan.seeds) else ""


def _round(seconds: float) -> float:
    """Up to 1, 2 or 5 of a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= seconds * (1 - 1e-9))


def _in_words(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def free_bytes() -> float:
    """Memory that this process may still take; infinite where the system does not tell."""
    found = [math.inf]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(1024.0 * int(line.split()[1]))
    except OSError:
        pass
    # Limits of containers: the version 2 of cgroups, then version 1.
    for most, used in [
        ("/sys/fs/cgroup/execution.max", "/sys/fs/cgroup/execution.current"),
        (
            "/sys/fs/cgroup/memory/execution.limit_in_bytes",
            "/sys/fs/cgroup/memory/execution.usage_in_bytes",
        ),
    ]:
        try:
            found.append(int(Path(most).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(0.0, min(found))
