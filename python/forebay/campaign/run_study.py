"""Studies from Python: `forebay.study`, and what a study will take."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from forebay._base import progress
from forebay._base.metrics import COST, METRICS
from forebay._base.words import hint
from forebay._native import ScenarioError
from forebay.campaign.making import StudyProgress, Threads, make
from forebay.campaign.study import Study
from forebay.campaign.study_points import Points
from forebay.experiment import engines
from forebay.experiment import run_rows as rows
from forebay.experiment import store_choice as choice
from forebay.experiment.execution import cores
from forebay.experiment.experiment import Source
from forebay.experiment.store import Designs
from forebay.experiment.store_files import again

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay._base.quantities import Overrides
    from forebay.campaign.making import Workers
    from forebay.campaign.study_points import PointsPart
    from forebay.experiment.store import Store
    from forebay.scenario.python_laws import Prototype

UNTIL = re.compile(r"ci95=(\d+(?:\.\d+)?)%(?:,([\w,]+))?")
#: Metrics whose intervals count where none are named.
USUAL = ("goodput_bps", "delay_p95_s")


@dataclass(frozen=True)
class Until:
    """Seeds are added until the 95 % interval is at most `share` of the mean, for each metric."""

    share: float
    metrics: tuple[str, ...]
    most: int

    @staticmethod
    def read(text: str, most: int) -> Until:
        """ "ci95=2%" or "ci95=2%,goodput_bps". Raises `ScenarioError`."""
        match = UNTIL.fullmatch(text)
        if match is None or not float(match[1]) > 0:
            raise ScenarioError(
                f'--until: found "{text}", allowed: such as ci95=2%, for seeds until the 95 % '
                "interval is at most 2 % of the mean, or ci95=2%,goodput_bps"
            )
        metrics = tuple(match[2].split(",")) if match[2] else USUAL
        for name in metrics:
            if name not in METRICS:
                known = f"{', '.join(METRICS)}{hint(name, METRICS)}"
                raise ScenarioError(f'--until: found the metric "{name}", allowed: {known}')
        return Until(float(match[1]) / 100, metrics, most)


@dataclass(frozen=True)
class Grown:
    """Outcome of `grow`, with the number of seeds that each digest then has."""

    made: StudyProgress
    seeds: int | Mapping[str, int]
    #: laws at points whose interval is still too wide, at the most seeds
    wide: int = 0


def grow(
    points: Points,
    store: Store,
    workers: Workers,
    *,
    until: Until | None = None,
    watch: Callable[[Progress, StudyProgress], None] | None = None,
    budget_s: float | None = None,
    limit_s: float | None = None,
    retry: bool = False,
    folder: Path | None = None,
) -> Grown:
    """Make what is missing, and with `until` more seeds where they are needed, and only there.
    The rest is as of `make`."""
    start = time.monotonic()
    end = None if budget_s is None else start + budget_s

    def left_s() -> float | None:
        return None if end is None else max(0.0, end - time.monotonic())

    go_on = partial(make, points, store, workers, watch=watch, limit_s=limit_s, folder=folder)
    made = go_on(seeds=points.seeds, budget_s=left_s(), retry=retry)
    if until is None or made.ended_early:
        return Grown(made, points.seeds)
    configs = points.list_runs(store)["config"].unique()
    seeds: dict[str, int] = dict.fromkeys(sorted(configs), points.seeds)
    while made.whole and not made.ended_early:
        study, former = Study(points, store, seeds), seeds
        for metric in until.metrics:
            needed = study.wide(metric, until.share, until.most)
            seeds = seeds | {it: max(seeds[it], count) for it, count in needed.items()}
        if seeds == former:
            break
        made = go_on(seeds=seeds, budget_s=left_s(), made=made)
    # What this call has made for the first seeds is in the store for the next.
    made.found = max(0, made.wanted - made.made - made.failed) if made.whole else made.found
    made.elapsed_s = time.monotonic() - start
    study = Study(points, store, seeds)
    beyond = [study.wide(metric, until.share, until.most + 1) for metric in until.metrics]
    return Grown(made, seeds, len({config for some in beyond for config in some}))


#: Points that are looked at where there are more, and time for a trial. Fewer where each needs
#: designs, which take about a second.
LOOKED_AT, DESIGNED, TRIAL_S = 100, 4, 0.4
#: Of a run without samples in a store, in bytes, where nothing is known of it.
ROW_BYTES = 330


@dataclass(frozen=True)
class StudyEstimate:
    """Estimate of the runs, time and disk that a study will take, before it is begun.

    runs: how many there are; a law that the sweep leaves as it is may make them fewer.

    stored: about how many are in the store. run_s: processor time of a run; None without a trial
    that got anywhere. measured: whether that is of stored runs of this study.
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
        return self.points * self.laws * self.seeds

    @property
    def designs_s(self) -> float:
        """Time for designs, on one core: at most, since points that differ in what no design
        sees, such as the sender, share theirs."""
        return self.points * self.design_s

    def elapsed_s(self, cores: int) -> float | None:
        """Return the time for what is missing on so many cores, designs aside."""
        return None if self.run_s is None else (self.runs - self.stored) * self.run_s / cores


def estimate(points: Points, store: Store | None, threads: int) -> StudyEstimate:
    """Estimate a study from some points chosen at random (the same each time), and a trial of
    them."""
    most = DESIGNED if points.gains.laws else LOOKED_AT
    chosen = random.Random(1).sample(range(len(points)), min(most, len(points)))
    # With the list of a study in its store nothing needs to be designed again.
    known = None if store is None else points.kept_list(store)
    start = time.process_time()
    part = points.part(chosen)
    took_s = time.process_time() - start
    design_s = took_s / len(chosen) if points.gains.laws and known is None else 0.0
    configs = part.configs["config"].drop_nulls()
    seeds, stored, run_s, row_bytes = points.seeds, 0, None, float(ROW_BYTES)
    if store is not None:
        looked = configs if known is None else known["config"]
        columns = [*rows.KEY, COST]
        there = store.rows_of(looked, columns).filter(
            (pl.col("link") == 0) & (pl.col("seed") <= seeds)
        )
        found = pl.DataFrame({"config": looked}).join(there, on="config")
        stored = round(found.height / len(looked) * points.configs) if len(looked) else 0
        if found.height:
            run_s = found[COST].mean()
        row_bytes = _row_bytes(store) or row_bytes
    measured = isinstance(run_s, float)
    left = points.configs * seeds - stored
    return StudyEstimate(
        len(points),
        len(chosen),
        len(points.laws),
        seeds,
        stored,
        run_s if isinstance(run_s, float) else _trial(points, part, threads),
        measured,
        left * row_bytes * len(part.plan.points[0].links),
        design_s,
    )


@again
def _row_bytes(store: Store) -> float:
    """Return the mean size of a stored row; 0 where there is none."""
    count = store.count()
    return sum(store.segments().values()) / count if count else 0.0


def _trial(points: Points, part: PointsPart, threads: int) -> float | None:
    """Return seconds of a core for a run: some are begun, and given up after a moment."""
    source, runs = points.source, len(part.plan.points) * len(points.laws)
    planned = source.planned(part.plan)
    every = {(p, i, 1) for p in range(len(part.plan.points)) for i in range(len(points.laws))}
    batch = source.engine.start(planned, threads, samples=False, only=every)
    start = time.monotonic()
    while not batch.done and time.monotonic() - start < TRIAL_S:
        time.sleep(0.005)
    share, elapsed_s = batch.progress(), time.monotonic() - start
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

    scenario: as `forebay.run` takes it; its sweep may have ranges and samples. laws, overrides,
    seeds: as there; of a law in Python the contents of its file count, and not what that imports.
    store: a folder or an address; if None that of FOREBAY_STORE, or else results/.store.
    on: "threads", "dask" for a cluster of this machine that nobody else can use, or the address of
    a Dask scheduler. Whoever can reach the port of a tcp:// scheduler can run programs as you and
    as its workers' user; prefer tls://, with the certificates of Dask's own configuration.
    threads: all cores if None. engine: what makes the runs: see `forebay.run`.

    Raises `ScenarioError`, `KeyboardInterrupt` after Ctrl-C, `OSError` where the store is full, and
    `RuntimeError` where a scheduler is gone; what has finished is kept.
    """
    # Looked into first, and written to once the scenario is known to be sound.
    found = choice.of_study(store)
    by, kept = engines.named(engine, "engine"), Designs(found)
    points = Points(scenario, laws=laws, overrides=overrides, seeds=seeds, kept=kept, engine=by)
    found.check_writable()
    with workers(on, threads) as where, progress.bar(only_on_terminal=True) as watch:
        grown = grow(points, found, where, watch=lambda now, _: watch(now))
    if grown.made.interrupted:
        raise KeyboardInterrupt
    if grown.made.error is not None:
        raise grown.made.error
    if grown.made.stopped:
        raise RuntimeError(f"{grown.made.stopped}: the same call goes on")
    points.list_runs(found)
    return Study(points, found, grown.seeds)


def workers(on: str, threads: int | None) -> AbstractContextManager[Workers]:
    """Return a context with the workers of a name: "threads", "dask" or an address."""
    if on == "threads":
        return nullcontext(Threads(threads or cores()))
    if on != "dask" and "://" not in on:
        raise ScenarioError(
            f'--on: "{on}" names no place for runs; write threads, dask, or the address of a '
            "scheduler such as tls://host:8786"
        )
    from forebay.campaign import cluster

    return cluster.cluster(on, threads)
