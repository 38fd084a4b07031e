"""Runs of many experiments: those made before are found again, the others made in parallel.

A run is stored under a hash of its inputs: the scenario without its prose, the files that it names,
the law, the point of the sweep, the seed, and the simulator itself. A changed comment, another law
in the file or more seeds keep the stored runs; a rebuilt simulator makes all of them anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay import _native
from forebay._native import ScenarioError, __version__
from forebay.report.result import Result
from forebay.run import parquet
from forebay.run.experiment import POLL_S, Execution, Experiment, Progress

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forebay._native import Batch, Fault, Run

#: Keys of a scenario that change no run.
PROSE = ("title", "source", "seeds")


class RunFailedError(Exception):
    """A run that failed, in words."""


@dataclass(frozen=True)
class Job:
    """One run to make."""

    experiment: Experiment
    point: int
    law: int
    seed: int
    #: Where it is stored, without an ending.
    path: Path

    @property
    def cost(self) -> float:
        """Bits that the link can carry in the run: a guess of how long it takes."""
        point = self.experiment.plan.points[self.point]
        return point.duration_s * point.links[0].rate_bps


class Columns(Mapping[str, "NDArray[Any]"]):
    """The samples of a stored run, each column read when it is first looked at."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read: dict[str, NDArray[Any]] = {}

    @cached_property
    def _names(self) -> list[str]:
        return list(pl.read_parquet_schema(self._path))

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._read:
            if name not in self._names:
                raise KeyError(name)
            self._read[name] = pl.read_parquet(self._path, columns=[name])[name].to_numpy()
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class StoredRun:
    """A stored run: the attributes of `forebay._native.Run`, of the bottleneck alone."""

    def __init__(self, job: Job) -> None:
        self.point, self.law, self.seed = job.point, job.law, job.seed
        self.link = job.experiment.plan.points[job.point].links[0].name
        self.others: list[Any] = []
        self.samples = Columns(job.path.with_suffix(".parquet"))
        self._table = json.loads(job.path.with_suffix(".json").read_text())
        self.metrics: dict[str, float] = {
            name: float("nan") if value is None else value
            for name, value in self._table["metrics"].items()
        }

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name not in COLUMNS:
            raise AttributeError(name)
        return np.array(self._table[name])


#: Small columns of a run that are stored beside its metrics.
COLUMNS = ("delay_s", "delay_packets", "flow_traffic", "flow_goodput_bps")


def cache_directory() -> Path:
    """Where runs are kept between calls."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "forebay" / "runs"


@cache
def simulator() -> str:
    """The version, and a hash of the built simulator."""
    return f"{__version__}-{hashlib.sha256(Path(_native.__file__).read_bytes()).hexdigest()}"


def jobs(experiment: Experiment, sets: Mapping[str, Any], directory: Path) -> list[Job]:
    """Every run of an experiment; `sets` are the keys that were set on top of its file."""
    document = tomllib.loads(experiment.text)
    laws = {law.get("label", law["kind"]): law for law in document.pop("law", [])}
    document.pop("sweep", None)
    for key in PROSE:
        document.pop(key, None)
    plan = experiment.plan
    found = []
    for p, point in enumerate(plan.points):
        for i, label in enumerate(plan.laws):
            for seed in plan.seeds:
                what = {
                    "scenario": document,
                    "files": experiment.files,
                    "point": point.settings,
                    "sets": dict(sets),
                    "law": laws.get(label, label),
                    "seed": seed,
                    "simulator": simulator(),
                }
                text = json.dumps(what, sort_keys=True, default=str)
                name = hashlib.sha256(text.encode()).hexdigest()
                found.append(Job(experiment, p, i, seed, directory / name[:2] / name))
    return found


def is_stored(job: Job) -> bool:
    # The table is written last.
    return job.path.with_suffix(".json").exists()


def make(
    wanted: Sequence[Job], threads: int, watch: Callable[[Progress], None] | None = None
) -> None:
    """Makes and stores the runs that are not there yet, the longest first.

    An interruption keeps the finished runs. Raises `RunFailedError`.
    """
    missing = {job.path: job for job in wanted if not is_stored(job)}
    waiting = sorted(missing.values(), key=lambda job: job.cost)
    total = sum(job.cost for job in waiting)
    count, done, ended, start = len(waiting), 0.0, 0, time.monotonic()
    running: list[tuple[Job, Batch]] = []
    try:
        while waiting or running:
            while waiting and len(running) < threads:
                job = waiting.pop()
                only = [(job.point, job.law, job.seed)]
                running.append((job, job.experiment.plan.start(1, only=set(only))))
            time.sleep(POLL_S)
            for job, batch in list(running):
                if not batch.done:
                    continue
                running.remove((job, batch))
                runs, faults = batch.take()
                if faults:
                    raise RunFailedError(_in_words(job, faults[0]))
                _store(job, runs[0])
                done += job.cost
                ended += 1
            if watch and total:
                under_way = sum(job.cost * batch.progress() for job, batch in running)
                elapsed_s = time.monotonic() - start
                watch(Progress((done + under_way) / total, ended, count, elapsed_s))
    finally:
        for _, batch in running:
            batch.cancel()


def result(experiment: Experiment, stored: Sequence[Job]) -> Result:
    """The stored runs as a result, in the order of points, laws and seeds."""
    runs: list[Any] = [StoredRun(job) for job in stored]
    runs.sort(key=lambda run: (run.point, run.law, run.seed))
    return Result(experiment, Execution(runs, [], interrupted=False, elapsed_s=0.0))


def _store(job: Job, run: Run) -> None:
    """Whole or not at all: under another name first."""
    job.path.parent.mkdir(parents=True, exist_ok=True)
    temporary = job.path.with_suffix(f".{os.getpid()}")
    parquet.write(pl.DataFrame(dict(run.samples)), temporary)
    temporary.rename(job.path.with_suffix(".parquet"))
    metrics = {
        name: None if value != value else value  # JSON has no NaN
        for name, value in run.metrics.items()
    }
    table = {"metrics": metrics, **{name: getattr(run, name).tolist() for name in COLUMNS}}
    temporary.write_text(json.dumps(table))
    temporary.rename(job.path.with_suffix(".json"))


def _in_words(job: Job, fault: Fault) -> str:
    plan = job.experiment.plan
    point = plan.points[job.point].label
    law = plan.laws[job.law]
    at = f" at {point}" if point else ""
    where = f"{job.experiment.path}: {law}{at}, seed {job.seed}"
    return f"{where}, failed: {fault.message.rstrip()}"


def check_cache(directory: Path) -> None:
    """Refuses a directory that cannot be written to. Raises `ScenarioError`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ScenarioError(f"{directory}: {reason}, allowed: a directory to keep runs") from error
