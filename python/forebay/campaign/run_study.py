"""Studies from Python: `forebay.study`, and estimates of what a study will take."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from forebay._base import progress
from forebay._base.errors import ParameterError
from forebay._base.metrics import COST
from forebay.campaign.runner import StudyLimits, Threads, grow
from forebay.campaign.study import Study
from forebay.campaign.study_points import Points
from forebay.experiment import engines
from forebay.experiment import run_rows as rows
from forebay.experiment import store as stores
from forebay.experiment.execution import cores
from forebay.experiment.experiment import Source
from forebay.experiment.store import Designs
from forebay.experiment.store_files import again

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay.campaign.runner import StudyProgress, Workers
    from forebay.campaign.study_points import PointsPart
    from forebay.experiment.store import Store
    from forebay.scenario.python_laws import Prototype

#: Number of points on which an estimate is based; fewer if each needs designs, which take about a
#: second; and duration of a trial, in seconds.
SAMPLE, DESIGNED, TRIAL_S = 100, 4, 0.4
#: Size of a stored run without samples, in bytes, if the store has none.
ROW_BYTES = 330


@dataclass(frozen=True)
class StudyEstimate:
    """Cost of a study before it runs: its runs, time, memory and disk space.

    Attributes
    ----------
    points, laws, seeds : int
        Size of the study.
    looked : int
        Number of points on which the estimate is based.
    stored : int
        Approximate number of runs that are in the store.
    run_s : float or None
        Processor time of a run in seconds; None if the trial did not get anywhere.
    measured : bool
        True if `run_s` is the mean of stored runs.
    bytes : float
        Size of the runs that will be stored.
    design_s : float
        Processor time for the designs at a point, in seconds.
    """

    points: int
    looked: int
    laws: int
    seeds: int
    stored: int
    run_s: float | None
    measured: bool
    bytes: float
    design_s: float = 0.0

    @property
    def runs(self) -> int:
        """Largest number of runs; a law that the sweep does not change needs fewer."""
        return self.points * self.laws * self.seeds

    @property
    def designs_s(self) -> float:
        """Longest time for designs on one core, in seconds.

        Points that differ only in what no design sees, such as the sender, share their designs.
        """
        return self.points * self.design_s

    def elapsed_s(self, cores: int) -> float | None:
        """Return the time in seconds for the missing runs on so many cores, without designs."""
        return None if self.run_s is None else (self.runs - self.stored) * self.run_s / cores


def estimate(points: Points, store: Store | None, threads: int) -> StudyEstimate:
    """Estimate what a study will take, from points chosen at random and a short trial.

    Parameters
    ----------
    points : Points
        The study.
    store : Store or None
        Where runs are looked for.
    threads : int
        Number of threads of the trial.

    Returns
    -------
    StudyEstimate
        Runs, time and disk space. The same points are chosen each time.
    """
    count = min(DESIGNED if points.gains.laws else SAMPLE, len(points))
    chosen = random.Random(1).sample(range(len(points)), count)
    # With the list of the study in its store no design is needed.
    listed = None if store is None else points.kept_list(store)
    start_s = time.process_time()
    part = points.part(chosen)
    took_s = time.process_time() - start_s
    design_s = took_s / count if points.gains.laws and listed is None else 0.0
    stored, run_s, row_bytes = 0, None, float(ROW_BYTES)
    if store is not None:
        configs = part.configs["config"].drop_nulls() if listed is None else listed["config"]
        first_link = (pl.col("link") == 0) & (pl.col("seed") <= points.seeds)
        runs = store.rows_of(configs, [*rows.KEY, COST]).filter(first_link)
        runs = pl.DataFrame({"config": configs}).join(runs, on="config")
        stored = round(runs.height / len(configs) * points.configs) if len(configs) else 0
        run_s = runs[COST].mean() if runs.height else None
        row_bytes = _row_bytes(store) or row_bytes
    measured = isinstance(run_s, float)
    missing = points.configs * points.seeds - stored
    return StudyEstimate(
        len(points),
        count,
        len(points.laws),
        points.seeds,
        stored,
        run_s if isinstance(run_s, float) else _trial(points, part, threads),
        measured,
        missing * row_bytes * len(part.plan.points[0].links),
        design_s,
    )


@again
def _row_bytes(store: Store) -> float:
    """Return the mean size of a stored row; 0 if there is none."""
    count = store.count()
    return sum(store.segments().values()) / count if count else 0.0


def _trial(points: Points, part: PointsPart, threads: int) -> float | None:
    """Return the processor time of a run in seconds, from runs that are given up after a moment."""
    source, runs = points.source, len(part.plan.points) * len(points.laws)
    planned = source.planned(part.plan)
    keys = {(p, i, 1) for p in range(len(part.plan.points)) for i in range(len(points.laws))}
    batch = source.engine.start(planned, threads, samples=False, only=keys)
    start_s = time.monotonic()
    while not batch.done and time.monotonic() - start_s < TRIAL_S:
        time.sleep(0.005)
    share, elapsed_s = batch.progress(), time.monotonic() - start_s
    batch.cancel()
    return elapsed_s * min(threads, runs) / (share * runs) if share > 0 else None


def study(
    scenario: Source,
    *,
    laws: str | Prototype | Sequence[str | Prototype] = (),
    overrides: Overrides = (),
    seeds: int | None = None,
    store: str | os.PathLike[str] | None = None,
    on: str = "threads",
    threads: int | None = None,
    engine: str = engines.NAMES[0],
) -> Study:
    """Return the runs of a study; those that the store does not have are made.

    Finished runs are in the store, also after an error or Ctrl-C, and the same call resumes the
    study.

    Parameters
    ----------
    scenario : path, str or mapping
        A scenario as `forebay.run` takes it; its sweep may have ranges and samples.
    laws, overrides, seeds
        The parameters of `forebay.run`. A law in Python is known by the contents of its file; what
        that imports does not count.
    store : path, optional
        Folder or address of the store. By default FOREBAY_STORE, or else results/.store.
    on : str, optional
        "threads", "dask" for a cluster of this machine that nobody else can use, or the address of
        a Dask scheduler. Whoever can reach the port of a tcp:// scheduler can run programs as you
        and as its workers' user; prefer tls://, with the certificates of Dask's configuration.
    threads : int, optional
        Number of threads. By default all cores.
    engine : str, optional
        What makes the runs: see `forebay.run`.

    Raises
    ------
    ScenarioError
        If the scenario cannot be run, or not by this engine.
    KeyboardInterrupt
        After Ctrl-C.
    OSError
        If the store is full.
    RuntimeError
        If the connection to a scheduler is lost.
    """
    # The store is written to once the scenario is known to be sound.
    runs = stores.of_study(store)
    by, designs = engines.named(engine, "engine"), Designs(runs)
    points = Points(
        scenario, laws=laws, overrides=overrides, seeds=seeds, designs=designs, engine=by
    )
    runs.check_writable()
    with workers(on, threads) as where, progress.bar(only_on_terminal=True) as watch:
        state = grow(points, runs, where, StudyLimits(watch=lambda now, _: watch(now)))
    _check_whole(state)
    points.list_runs(runs)
    return Study(points, runs, state.seeds)


def _check_whole(state: StudyProgress) -> None:
    """Raise the error of a study that ended early."""
    if state.interrupted:
        raise KeyboardInterrupt
    if state.error is not None:
        raise state.error
    if state.stopped:
        raise RuntimeError(f"{state.stopped}; repeat the call to resume the study")


def workers(on: str, threads: int | None) -> AbstractContextManager[Workers]:
    """Return a context manager that starts and stops the workers of a study.

    Parameters
    ----------
    on : str
        "threads", "dask", or the address of a Dask scheduler.
    threads : int or None
        Number of threads; all cores if None.

    Raises
    ------
    ScenarioError
        If the name is none of these, Dask is not installed, or the workers cannot be reached.
    """
    if on == "threads":
        return nullcontext(Threads(threads or cores()))
    if on != "dask" and "://" not in on:
        expected = "threads, dask, or the address of a scheduler such as tls://host:8786"
        raise ParameterError("on", on, expected)
    try:
        import distributed  # noqa: F401

        if on == "dask":
            import cryptography  # noqa: F401 -- makes the certificate of a cluster
    except ImportError as error:
        expected = "threads, or Dask after `pip install dask distributed cryptography`"
        raise ParameterError("on", on, expected, reason=f"{error.name} is missing") from error
    from forebay.campaign import cluster

    return cluster.cluster(on, threads)
