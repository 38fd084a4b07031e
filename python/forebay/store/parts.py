"""What a store holds, with sizes; what is of no more use is removed."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from forebay.store import rows
from forebay.store.store import RUNS, SAMPLES, Store


@dataclass(frozen=True)
class Part:
    """What a store has of one version."""

    version: str
    runs: int
    segments: int
    bytes: int
    sampled: int
    sample_bytes: int


def parts(store: Store) -> list[Part]:
    """The versions of a store with their sizes; the present one first, also where it is empty."""
    of_runs, of_samples = store.place.names(RUNS), store.place.names(SAMPLES)
    versions = {name.split("/")[1] for name in [*of_runs, *of_samples] if name.count("/") > 1}
    found = []
    for version in sorted({*versions, store.version}, key=lambda one: (one != store.version, one)):
        segments = {n: s for n, s in of_runs.items() if n.split("/")[1] == version}
        samples = [s for n, s in of_samples.items() if n.split("/")[1] == version]
        count = 0
        if segments:
            keys = store.place.scan(sorted(segments)).select(rows.KEY).unique()
            count = keys.filter(pl.col("link") == 0).select(pl.len()).collect().item()
        total = sum(segments.values())
        found.append(Part(version, count, len(segments), total, len(samples), sum(samples)))
    return found


def prune(store: Store, *, samples: bool = False, failed: bool = False) -> int:
    """Removes runs of other versions, with `samples` the arrays and with `failed` the failures of
    this one, and puts segments together. Bytes that this has freed."""
    before = sum(store.place.names("").values())
    for folder in (RUNS, SAMPLES):
        for name in store.place.names(folder):
            other = name.split("/")[1] != store.version
            if name.count("/") > 1 and (other or (samples and folder == SAMPLES)):
                store.place.remove(name)
    if failed:
        old = list(store.segments())
        kept = store.scan().filter(pl.col("fault").is_null()).collect()
        if not kept.is_empty():
            store.add(kept)
        for name in old:
            store.place.remove(name)
    store.put_together(most=1)
    store.place.sweep()
    return before - sum(store.place.names("").values())
