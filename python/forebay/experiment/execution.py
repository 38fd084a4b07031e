"""Run experiments: a plan becomes finished runs, which go to the store as they end.

`execute` runs one experiment and `execute_all` several, on all cores. An experiment whose samples
would not fit into the memory of this machine is refused (`check_memory`).
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

#: Time between two fetches of finished runs, in seconds.
POLL_S = 0.05

Watch = Callable[[Progress], None]


@dataclass(frozen=True)
class Execution:
    """The outcome of an experiment.

    Attributes
    ----------
    runs : list[Run]
        The finished runs, sorted by point, law and seed.
    from_store : int, default 0
        The number of them that were in the store.
    faults : list[Fault]
        The runs that failed; after the first failure the other runs are cancelled.
    interrupted : bool
        True if Ctrl-C or another signal ended the execution.
    elapsed_s : float
        Duration of the execution in seconds.
    remarks : Mapping[Key, Sequence[Remark]]
        Facts that a reader must know about some runs, by run; see `engines.RunningBatch`.
    extras : Mapping[Key, Extras]
        Files and program outcomes of some runs, by run.
    """

    runs: list[Run]
    from_store: int = field(default=0, kw_only=True)
    faults: list[Fault]
    interrupted: bool
    elapsed_s: float
    remarks: Mapping[Key, Sequence[Remark]] = field(default_factory=dict, kw_only=True)
    extras: Mapping[Key, Extras] = field(default_factory=dict, kw_only=True)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    # Only Linux reports the cores of a process.
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
    """Make every run of an experiment.

    On Ctrl-C (in a command, also on other signals), or after a failed run, the remaining runs are
    cancelled and the completed ones are returned.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    threads : int, optional
        Number of threads; all cores by default.
    watch : Watch, optional
        Receives the progress from time to time.
    samples : bool, default True
        False to keep only the metrics of each run, which takes far less memory.
    store : Store, optional
        Runs that it has are not repeated, and new runs are stored as they finish.

    Returns
    -------
    Execution
        The runs, sorted by point, law and seed.

    Raises
    ------
    ScenarioError
        If the samples would not fit into memory.
    """
    ((_, execution),) = execute_all([experiment], threads, watch, samples=samples, store=store)
    return execution


class Job(Protocol):
    """Runs that are started together."""

    @property
    def unfinished(self) -> int:
        """Number of runs that have not ended yet."""

    @property
    def done(self) -> bool:
        """True if no more runs will end."""

    def begin(self, threads: int) -> None:
        """Start the runs, at most `threads` of them at a time."""

    def cancelled(self) -> bool:
        """Cancel the runs under way, and return True once all of them have ended."""


J = TypeVar("J", bound=Job)


def keep_busy(
    jobs: Iterable[J], threads: int, stop: Callable[[], bool]
) -> Generator[tuple[list[J], list[J]]]:
    """Run jobs one after another; the next begins before the last has ended.

    When the generator ends or is closed, the jobs under way are cancelled.

    Parameters
    ----------
    jobs : iterable of Job
        Jobs, each of which is made when it is to begin.
    threads : int
        Number of runs at a time.
    stop : callable
        Asked after each yield; once it returns True, the generator ends.

    Yields
    ------
    tuple of two lists
        The jobs under way, and those of them that were done beforehand: no result comes after those
        that the caller takes now.
    """
    waiting, under_way = iter(jobs), list[J]()
    try:
        while True:
            while sum(job.unfinished for job in under_way) < threads:
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
    """Cancel a batch, and return True once it has ended; also if it never began."""
    if batch is None or batch.done:
        return True
    # Cancelled more than once: a law in Python may have caught its interruption.
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
    """Make the runs of several experiments, and yield index and outcome of each as it ends.

    The next experiment begins before the last one has ended, so that no core idles. With a store, a
    run that several experiments share is made once. After Ctrl-C or a failed run, the experiments
    under way are yielded with the runs that had finished, and no further one begins.

    Parameters
    ----------
    experiments : Sequence[Experiment]
        The experiments, in the order in which they begin.
    threads, samples, store
        The parameters of `execute`.
    watch : Watch, optional
        Receives the progress of all experiments together.

    Raises
    ------
    ScenarioError
        If the samples of one experiment would not fit into memory.
    """
    threads = threads or cores()
    for experiment in experiments:
        check_memory(experiment.plan, threads, samples=samples)
    start_s = time.monotonic()
    jobs = _jobs(experiments, store, samples=samples)
    unfinished = list[_Job]()

    def take_and_tell(writer: Writer | None) -> None:
        for job in unfinished:
            job.take(writer)
        if writer:
            writer.tick()
        if watch:
            watch(_progress(jobs, unfinished, time.monotonic() - start_s))

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


def _progress(jobs: Sequence[_Job], unfinished: Sequence[_Job], elapsed_s: float) -> Progress:
    """Return the progress of all jobs together."""
    total, done = sum(job.cost for job in jobs), sum(job.cost * job.fraction for job in jobs)
    ended_runs = sum(job.ended_count for job in jobs)
    runs = sum(job.experiment.runs for job in jobs)
    more = "".join(job.batch.more for job in unfinished if job.batch)
    return Progress(done / total if total else 1.0, ended_runs, runs, elapsed_s, more)


@dataclass(eq=False)
class _Job:
    """An experiment under way.

    Attributes
    ----------
    number : int
        Index of the experiment.
    experiment : Experiment
        The experiment.
    samples : bool
        False to keep only the metrics of each run.
    stored : dict[tuple[int, int], LawAtPoint]
        What the store keeps of each law at each point; Python laws have no entry.
    stored_runs : dict[Key, Run]
        The runs that were in the store.
    missing : set[Key]
        The runs to make.
    shared : dict[Key, str]
        The runs that an earlier experiment makes, each with its digest.
    makers : list[_Job]
        The jobs that make the shared runs.
    batch : RunningBatch, optional
        The runs in the background; None before `begin`.
    began_s : float, default 0.0
        Time of `begin` on the monotonic clock.
    runs : list[Run]
        The new runs that have finished.
    faults : list[Fault]
        The runs that have failed.
    ended_count : int, default 0
        Number of runs that have ended, those from the store included.
    """

    number: int
    experiment: Experiment
    samples: bool
    stored: dict[tuple[int, int], LawAtPoint]
    stored_runs: dict[Key, Run]
    missing: set[Key]
    shared: dict[Key, str] = field(default_factory=dict)
    makers: list[_Job] = field(default_factory=list)
    batch: RunningBatch | None = None
    began_s: float = 0.0
    runs: list[Run] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    ended_count: int = 0

    @property
    def cost(self) -> float:
        """Estimated cost of the runs to make: the bits that their links can carry."""
        of_point = [
            point.duration_s * sum(link.rate_bps for link in point.links)
            for point in self.experiment.plan.points
        ]
        return sum(of_point[point] for point, _, _ in self.missing)

    @property
    def fraction(self) -> float:
        """Share of the missing runs' work that is done."""
        return self.batch.progress() if self.batch and self.missing else 0.0

    @property
    def unfinished(self) -> int:
        """Number of runs that have not ended."""
        return len(self.stored_runs) + len(self.missing) - self.ended_count

    @property
    def done(self) -> bool:
        """True if neither this job nor a maker of its shared runs will add a run."""
        own_runs_ended = self.batch is not None and self.batch.done
        return own_runs_ended and all(maker.done for maker in self.makers)

    def begin(self, threads: int) -> None:
        """Start the missing runs."""
        self.began_s = time.monotonic()
        self.batch = self.experiment.engine.start(
            self.experiment, threads, samples=self.samples, only=self.missing
        )

    def take(self, writer: Writer | None) -> None:
        """Fetch the runs that have ended since the last call, and store them."""
        if self.batch is None:
            return
        runs, faults = self.batch.take()
        self.runs += runs
        self.faults += faults
        self.ended_count += len(runs) + len(faults)
        for run in runs:
            sound = (run.point, run.law, run.seed) not in self.batch.remarks
            if writer and sound and (law := self.stored.get((run.point, run.law))):
                writer.add(law, run, samples=self.samples)

    def cancelled(self) -> bool:
        """Cancel the runs under way, and return True once all of them have ended."""
        return cancelled(self.batch)

    def execution(self, writer: Writer | None, *, interrupted: bool) -> Execution:
        """Return the outcome, and release the runs that this job holds."""
        runs, from_store = [*self.stored_runs.values(), *self.runs], len(self.stored_runs)
        if self.shared and writer:
            writer.flush()
            runs += writer.store.runs(self.shared, samples=self.samples).values()
        self.stored_runs, self.runs = {}, []
        runs.sort(key=lambda run: (run.point, run.law, run.seed))
        faults = sorted(self.faults, key=lambda fault: (fault.point, fault.law, fault.seed))
        return Execution(
            runs,
            faults,
            interrupted,
            time.monotonic() - self.began_s,
            from_store=from_store,
            remarks=dict(self.batch.remarks) if self.batch else {},
            extras=dict(self.batch.extras) if self.batch else {},
        )


def _jobs(experiments: Sequence[Experiment], store: Store | None, *, samples: bool) -> list[_Job]:
    """Return a job for each experiment, with its stored, missing and shared runs."""
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
        job.stored_runs = store.runs(configs, samples=samples)
        job.ended_count = len(job.stored_runs)
        job.missing -= job.stored_runs.keys()
        for key in [key for key in job.missing if key in configs]:
            maker = makers.setdefault((configs[key], key[2]), job)
            if maker is not job:
                job.missing.remove(key)
                job.shared[key] = configs[key]
                job.makers.append(maker)
    return jobs


def _keys(plan: Plan) -> Iterator[Key]:
    """Return every run of a plan as point, law and seed."""
    return itertools.product(range(len(plan.points)), range(len(plan.laws)), plan.seeds)


def _stored_laws(experiment: Experiment) -> dict[tuple[int, int], LawAtPoint]:
    """Return the stored columns of each law at each point, by their indices.

    The table is empty if nothing is stored.
    """
    from forebay.experiment import run_rows as rows  # loads polars

    plan, engine = experiment.plan, experiment.engine
    version = engine.version()
    if version is None or _leaves_files(experiment):
        return {}
    made_by = rows.MadeBy(engine.name, version)
    return {
        (point, law): rows.law_at_point(plan, point, law, config, made_by)
        for point in range(len(plan.points))
        for law, config in enumerate(rows.configs(plan, point, made_by))
        if config is not None
    }


def _leaves_files(experiment: Experiment) -> bool:
    """Return True if the runs produce files, which the store does not keep.

    The behaviour of a program also depends on more than its command line.
    """
    if not experiment.engine.runs_programs:
        return False
    return experiment.plan.keeps_packets or engines.runs_programs(experiment.plan)


def _configs(plan: Plan, stored: Mapping[tuple[int, int], LawAtPoint]) -> dict[Key, str]:
    """Return the digest of each run that can be stored."""
    return {key: stored[key[:2]].config for key in _keys(plan) if key[:2] in stored}


def check_whole(experiment: Experiment, execution: Execution) -> None:
    """Raise an error if an execution is not complete.

    Parameters
    ----------
    experiment : Experiment
        The experiment.
    execution : Execution
        Its outcome.

    Raises
    ------
    KeyboardInterrupt
        If the execution was interrupted.
    RunError
        If a run failed.
    """
    if execution.interrupted:
        raise KeyboardInterrupt
    if execution.faults:
        file = "" if experiment.path == NO_FILE else experiment.path
        raise run_error(experiment.plan, execution.faults[0], file=file)


def run_error(plan: Plan, fault: Fault, *, file: str = "", result: object = None) -> RunError:
    """Return the error of a run that failed.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    fault : Fault
        The failure.
    file : str, default ''
        The scenario file, for the message; empty for a scenario without a file.
    result : object, optional
        The partial result, which the error carries.
    """
    law, point = plan.laws[fault.law], plan.points[fault.point].label
    return RunError(law, point, fault.seed, fault.message, file=file, result=result)


def count_stored(experiments: Sequence[Experiment], store: Store) -> int:
    """Return how many runs of some experiments a store has, with their samples.

    Parameters
    ----------
    experiments : Sequence[Experiment]
        The experiments.
    store : Store
        The store.
    """
    configs_of_each = [
        _configs(experiment.plan, _stored_laws(experiment)) for experiment in experiments
    ]
    return sum(len(store.rows_by_run(configs, samples=True)) for configs in configs_of_each)


def unbroken(native: Callable[[], T]) -> T:
    """Call native code that allocates numpy arrays while Ctrl-C is held back.

    Such code panics on a Ctrl-C in the middle of an allocation.

    Raises
    ------
    KeyboardInterrupt
        After the call, if Ctrl-C arrived during it.
    """
    with signals.held() as interrupted:
        returned = native()
    if interrupted:
        raise KeyboardInterrupt
    return returned


def fault_in_words(plan: Plan, fault: Fault) -> str:
    """Return a sentence about which run failed, and why.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    fault : Fault
        The failure.
    """
    return str(run_error(plan, fault))


#: Memory of a sample at a link: eleven columns of 4 or 8 bytes, the state that a law reports, and
#: half as much again while tables are written.
SAMPLE_BYTES = 110
#: The share of the free memory that an experiment may take.
SHARE = 0.8


def check_memory(plan: Plan, threads: int, *, samples: bool) -> None:
    """Refuse an experiment whose samples do not fit into memory.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    threads : int
        The number of runs at a time.
    samples : bool
        True if all runs keep their samples; otherwise only the runs under way count.

    Raises
    ------
    ScenarioError
        If the samples do not fit; the message proposes a sampling time that fits.
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
    which_runs = f"in {runs} runs" if samples else f"in {min(threads, runs)} runs at a time"
    raise ScenarioError(
        f'sample: "{quantities.time(min(point.sample_s for point in plan.points))}" makes about '
        f"{_in_words(needed)} of samples {which_runs}, and {_in_words(free)} are free; "
        "use for example "
        f"sample={quantities.time(_round(sample_s * needed / free))}"
        + (_fewer(plan, sum(per_run), under_way, free) if samples else "")
    )


def _fewer(plan: Plan, of_all_points: float, under_way: float, free: float) -> str:
    """Return a proposal of the number of seeds that fit; empty if none fits, or all do."""
    seeds = math.floor((free - under_way) / (of_all_points * len(plan.laws)))
    return f" or {seeds} seeds" if 1 <= seeds < len(plan.seeds) else ""


def _round(seconds: float) -> float:
    """Round a duration up to 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(seconds))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= seconds * (1 - 1e-9))


def _in_words(count: float) -> str:
    """Return a number of bytes in MB or GB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


#: Files with a container's memory limit and its present use: cgroups version 2, then version 1.
CGROUP_MEMORY = [
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
]


def free_bytes() -> float:
    """Return the memory that this process may still take, in bytes; infinite if it is unknown."""
    limits = [math.inf]
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                limits.append(1024.0 * int(line.split()[1]))
    except OSError:
        pass
    for limit, used in CGROUP_MEMORY:
        try:
            limits.append(int(Path(limit).read_text()) - int(Path(used).read_text()))
        except (OSError, ValueError):
            continue
    return max(0.0, min(limits))
