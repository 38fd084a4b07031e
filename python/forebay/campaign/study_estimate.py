"""What a study will take, before it is begun."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from forebay._base.metrics import COST
from forebay.campaign import manifest
from forebay.experiment import run_rows as rows
from forebay.experiment.store_files import again

if TYPE_CHECKING:
    from forebay.campaign.study_points import Points, PointsPart
    from forebay.experiment.store import Store

#: Points that are looked at where there are more, and time for a trial. Fewer where each needs
#: designs, which take about a second.
LOOKED_AT, DESIGNED, TRIAL_S = 100, 4, 0.4
#: Of a run without samples in a store, in bytes, where nothing is known of it.
ROW_BYTES = 330


@dataclass(frozen=True)
class Estimate:
    """runs: how many there are; a law that the sweep leaves as it is may make them fewer.

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
        """Time for what is missing on so many cores, designs aside."""
        return None if self.run_s is None else (self.runs - self.stored) * self.run_s / cores


def estimate(points: Points, store: Store | None, threads: int) -> Estimate:
    """Looks at some points chosen at random (the same each time), and tries some runs of them."""
    most = DESIGNED if points.gains.laws else LOOKED_AT
    chosen = random.Random(1).sample(range(len(points)), min(most, len(points)))
    # With the list of a study in its store nothing needs to be designed again.
    known = None if store is None else manifest.load(points, store)
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
    return Estimate(
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
    """Seconds of a core for a run: some are begun, and given up after a moment."""
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
