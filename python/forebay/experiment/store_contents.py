"""What a store holds, with sizes; what is of no more use is removed."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from forebay._native import ScenarioError
from forebay.experiment import run_rows as rows
from forebay.experiment import stored_designs as designs
from forebay.experiment.store import RUNS, SAMPLES, Store
from forebay.experiment.store_place import DAMAGED
from forebay.experiment.store_segments import Segments


@dataclass(frozen=True)
class VersionContents:
    """What a store has of one version."""

    version: str
    runs: int
    segments: int
    bytes: int
    sampled: int
    sample_bytes: int


def contents(store: Store) -> list[VersionContents]:
    """The versions of a store with their sizes; the present one first, also where it is empty."""
    of_runs, of_samples = store.place.names(RUNS), store.place.names(SAMPLES)
    versions = {name.split("/")[1] for name in [*of_runs, *of_samples] if name.count("/") > 1}
    found = []
    for version in [store.version, *sorted(versions - {store.version})]:
        segments = [size for name, size in of_runs.items() if name.split("/")[1] == version]
        samples = [size for name, size in of_samples.items() if name.split("/")[1] == version]
        found.append(
            VersionContents(
                version,
                _count_runs(store, version),
                len(segments),
                sum(segments),
                len(samples),
                sum(samples),
            )
        )
    return found


def _count_runs(store: Store, version: str) -> int:
    """How many runs of a version there are."""
    table = Segments(store.place, RUNS, version, rows.KEY, rows.SCHEMA)
    keys = table.read(lambda: table.scan().select(rows.KEY).unique().collect())
    return int((keys["link"] == 0).sum())


def prune(store: Store, *, samples: bool = False, failed: bool = False) -> int:
    """Removes what is of other versions, with `samples` the arrays and with `failed` the failures
    of this one, and puts segments together. Bytes that this has freed.

    Raises `ScenarioError` where failures stay, since somebody reads all the time.
    """
    before = sum(store.place.names("").values())
    present = {RUNS: store.version, SAMPLES: store.version, designs.DESIGNS: designs.version()}
    for folder, version in present.items():
        for name in store.place.names(folder):
            other = name.split("/")[1] != version
            if name.count("/") > 1 and (other or (samples and folder == SAMPLES)):
                store.place.remove(name)
    if failed and (old := list(store.segments())):
        sound = pl.col("fault").is_null()
        kept = store.read(lambda: store.scan().filter(sound).collect())
        if not store.replace(old, kept):
            raise ScenarioError(
                f'--store: found "{store.address}", which others read all the time, allowed: '
                "one that can be tidied up"
            )
    for name in store.place.names(DAMAGED):
        store.place.remove(name)
    store.put_together(most=1)
    store.place.sweep()
    return before - sum(store.place.names("").values())
