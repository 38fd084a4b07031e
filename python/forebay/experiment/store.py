"""The store of runs: segments of rows, each a Parquet file that comes whole, a file of arrays for
each run that keeps its samples, and numbers of laws that were designed for studies.

    forebay-store.json                      what this folder is
    runs/results-3-9c01aa/0192…-7f.5ac3….parquet  rows; a folder for each version of the numbers
    samples/results-3-9c01aa/4f/4f0c…-1.02b7….parquet
    designs/9c01aa/0192…-7f.77e1….parquet         numbers of laws that studies have designed
    studies/results-3-9c01aa/4f0c….91d0….parquet  lists of studies
    damaged/                                      files that did not match their checksum

The last part of each name is a checksum of the contents.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import forebay._native as _native
from forebay._base.errors import ParameterError, StoreError, reason_of
from forebay._base.metrics import CLASS_METRICS, COST, METRICS, TRAFFIC_METRICS
from forebay._native import Run, TrafficObserved
from forebay.experiment import run_rows as rows
from forebay.experiment.store_files import (
    DAMAGED,
    Folder,
    Pending,
    Remote,
    Segments,
    sealed_name,
    set_aside,
    stem_of,
)

if TYPE_CHECKING:
    from forebay.experiment.engines import Key
    from forebay.experiment.run_rows import LawAtPoint

#: What marks a folder as a store, and the layout of its files.
MARK, LAYOUT = "forebay-store.json", 1
RUNS, SAMPLES = "runs", "samples"
Row = dict[str, Any]


class Store(Segments):
    """Runs that were made, in a folder or at an address: a row for each link of a run, those of
    failed runs with a `fault`; and the arrays of some."""

    def __init__(self, at: Folder | Remote) -> None:
        super().__init__(at, RUNS, rows.version(), rows.KEY, rows.SCHEMA)
        #: the folder of one that is not kept
        self.goes_with: object = None
        self._checked = False
        self._check()

    @property
    def address(self) -> str:
        return self.place.address

    def _check(self) -> None:
        """Refuses what is no store of this layout. Raises `ParameterError`."""
        if isinstance(self.place, Folder):
            path = self.place.path
            if path.exists() and not path.is_dir():
                raise ParameterError("store", path, "a folder, new or not", reason="a file")
            if not path.exists() or not any(path.iterdir()):
                return
        try:
            mark = json.loads(self.place.read(MARK))
            layout = mark["store"]
        except FileNotFoundError:
            # An address that is not there yet has no names either.
            if self.place.names(""):
                expected = "a store, or a folder that is new or empty"
                raise self._unusable(f"a folder without {MARK}", expected) from None
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            raise self._unusable(f"whose {MARK} cannot be read{why}", "a store") from error
        if layout != LAYOUT:
            expected = f"layout {LAYOUT}; another version of forebay made it"
            raise self._unusable(f"of layout {layout}", expected)
        self._checked = True

    def _unusable(self, reason: str, expected: str) -> ParameterError:
        """Return the error about the address of the store."""
        return ParameterError("store", self.address, expected, reason=reason)

    def check_writable(self) -> None:
        """Refuses a place that nothing can be written to, before the time is spent.

        Makes the store where it is not there. Raises `ParameterError`.
        """
        try:
            if not self._checked:
                text = json.dumps({"store": LAYOUT, "what": "runs of forebay: see forebay store"})
                self.place.write(MARK, f"{text}\n".encode())
                self._checked = True
            trial = f"{RUNS}/.trial-{uuid.uuid4().hex}"
            self.place.write(trial, b"")
            self.place.remove(trial)
        except OSError as error:
            expected = "a folder that can be written to, or no store at all"
            raise self._unusable(reason_of(error), expected) from error

    def rows_of(
        self, configs: Iterable[str], columns: Iterable[str] = tuple(rows.SCHEMA)
    ) -> pl.DataFrame:
        """The rows of these digests."""
        wanted = pl.LazyFrame({"config": list(set(configs))}, {"config": pl.String})
        chosen = list(columns)
        return self.read(
            lambda: self.scan().select(chosen).join(wanted, on="config", how="semi").collect()
        )

    def rows_by_run(self, wanted: Mapping[Key, str], *, samples: bool) -> dict[Key, list[Row]]:
        """The rows of the sound runs among `wanted`, each with its digest; a row for each link.

        samples: only of runs whose arrays are there.
        """
        if not wanted:
            return {}
        by_run: dict[tuple[str, int], list[Row]] = {}
        sound = self.rows_of(wanted.values()).filter(pl.col("fault").is_null())
        # Sorted, so that a run's links come in order.
        for row in sound.sort(rows.KEY).iter_rows(named=True):
            by_run.setdefault((row["config"], row["seed"]), []).append(row)
        sampled = self._sample_files() if samples and by_run else {}
        return {
            key: by_run[config, key[2]]
            for key, config in wanted.items()
            if (config, key[2]) in by_run
            and (not samples or self._sample_stem(config, key[2]) in sampled)
        }

    def runs(self, wanted: Mapping[Key, str], *, samples: bool) -> dict[Key, Run]:
        """The stored runs among `wanted`, each with its digest.

        samples: only those whose arrays are there, with them.
        """
        by_run = self.rows_by_run(wanted, samples=samples)
        sampled = self._sample_files() if samples and by_run else {}
        runs = {}
        for key, of_run in by_run.items():
            arrays: list[dict[str, pl.Series | None]] = [{} for _ in of_run]
            if samples:
                try:
                    name = sampled[self._sample_stem(of_run[0]["config"], key[2])]
                    table = pl.read_parquet(io.BytesIO(self.place.read(name)))
                except StoreError as damage:
                    set_aside(self.place, damage)
                    continue
                arrays = [{column.name: column[i] for column in table} for i in range(table.height)]
            runs[key] = self._run(key, of_run, arrays)
        return runs

    def _run(self, key: Key, of_run: list[Row], arrays: list[dict[str, pl.Series | None]]) -> Run:
        point, law, seed = key
        links = [
            rows.observed(
                row["link_name"],
                {name: row[name] for name in ([*METRICS, COST] if row["link"] == 0 else METRICS)},
                [
                    (each["name"], {name: each[name] for name in CLASS_METRICS})
                    for each in row["classes"]
                ],
                [
                    TrafficObserved(each["traffic"], {name: each[name] for name in TRAFFIC_METRICS})
                    for each in row["traffic"]
                ],
                of_link,
            )
            for row, of_link in zip(of_run, arrays, strict=True)
        ]
        return Run(point, law, seed, links)

    def _sample_stem(self, config: str, seed: int) -> str:
        return f"{SAMPLES}/{self.version}/{config[:2]}/{config}-{seed}"

    def _sample_files(self) -> dict[str, str]:
        """Return the names of the files of arrays by their stems."""
        return {stem_of(name): name for name in self.place.names(f"{SAMPLES}/{self.version}")}

    def read_sealed(self, stem: str) -> bytes | None:
        """Return the contents of an intact file with this stem, or None."""
        folder = stem.rpartition("/")[0]
        for name in self.place.names(folder):
            if stem_of(name) == stem:
                try:
                    return self.place.read(name)
                except StoreError as damage:
                    set_aside(self.place, damage)
        return None

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Takes finished runs; what it has taken is in the store at the end of the context."""
        with Writer(self) as writer:
            yield writer
        self.put_together()

    def check_marked(self) -> None:
        """Makes the store where it is not there. Raises `ParameterError`."""
        if not self._checked:
            self.check_writable()

    def add(self, table: pl.DataFrame) -> None:
        """Writes rows as one more segment."""
        self.check_marked()
        super().add(table)


class Writer(Pending):
    """Takes runs as they finish; writes them now and then, and at once where they take long."""

    def __init__(self, store: Store) -> None:
        super().__init__(lambda some: store.add(rows.table(some)))
        self.store = store

    def add(self, law: LawAtPoint, run: Run, *, samples: bool = False) -> None:
        """A run that has ended; with `samples` also its arrays."""
        if samples:
            self.store.check_marked()
            contents = rows.packed(run)
            stem = self.store._sample_stem(law.config, run.seed)
            self.store.place.write(sealed_name(stem, contents), contents)
        self.rows += law.run(run)

    @property
    def waiting(self) -> int:
        """Runs that it has taken, and that are not in the store."""
        return sum(1 for row in self.rows if row["link"] == 0)


@dataclass(frozen=True)
class VersionContents:
    """The contents of a store of one version, in counts and bytes."""

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
    """Return the number of runs of a version."""
    table = Segments(store.place, RUNS, version, rows.KEY, rows.SCHEMA)
    keys = table.read(lambda: table.scan().select(rows.KEY).unique().collect())
    return int((keys["link"] == 0).sum())


def prune(store: Store, *, samples: bool = False, failed: bool = False) -> int:
    """Removes what is of other versions, with `samples` the arrays and with `failed` the failures
    of this one, and puts segments together. Bytes that this has freed.

    Raises `ParameterError` where failures stay, since somebody reads all the time.
    """
    before = sum(store.place.names("").values())
    present = {
        RUNS: store.version,
        SAMPLES: store.version,
        DESIGNS: designs_version(),
    }
    for folder, version in present.items():
        for name in store.place.names(folder):
            other = name.split("/")[1] != version
            if name.count("/") > 1 and (other or (samples and folder == SAMPLES)):
                store.place.remove(name)
    if failed and (old := list(store.segments())):
        sound = pl.col("fault").is_null()
        kept = store.read(lambda: store.scan().filter(sound).collect())
        if not store.replace(old, kept):
            reason = "which others read all the time"
            raise ParameterError("store", store.address, "one that can be tidied up", reason=reason)
    for name in store.place.names(DAMAGED):
        store.place.remove(name)
    store.put_together(most=1)
    store.place.sweep()
    return before - sum(store.place.names("").values())


DESIGNS = "designs"
#: The digest of what a design depends on, and its numbers by their names, as JSON.
DESIGN_SCHEMA = {"design": pl.String, "numbers": pl.String}
#: The folders whose code decides a design.
DESIGNING = ("_base", "scenario", "control", "tuning")


def design_sources() -> list[Path]:
    """Return the files of the code that designs."""
    package = Path(__file__).parents[1]
    files = sorted(file for room in DESIGNING for file in (package / room).rglob("*.py"))
    return [*files, package / "experiment" / "automatic_gains.py", Path(_native.__file__)]


@cache
def designs_version() -> str:
    """Return the version of the code that designs; designs of another version are not reused."""
    hash_ = hashlib.blake2b(digest_size=6)
    for file in design_sources():
        hash_.update(hashlib.blake2b(file.read_bytes()).digest())
    return hash_.hexdigest()


class Designs(Pending):
    """The designs that a store has, and those that come to it."""

    def __init__(self, store: Store) -> None:
        super().__init__(self._add)
        self.store = store
        self.table = Segments(store.place, DESIGNS, designs_version(), ["design"], DESIGN_SCHEMA)
        self._known: dict[str, str] | None = None

    def get(self, design: str) -> dict[str, Any] | None:
        """The numbers of a design by its digest; None where it is not there."""
        if self._known is None:
            table = self.table.read(lambda: self.table.scan().collect())
            self._known = dict(table.iter_rows())
        found = self._known.get(design)
        return None if found is None else json.loads(found)

    def put(self, design: str, numbers: Mapping[str, Any]) -> None:
        """Keeps a new one; it is in the store after `flush`."""
        assert self._known is not None
        self._known[design] = json.dumps(dict(numbers))
        self.rows.append({"design": design, "numbers": self._known[design]})

    def _add(self, rows: list[dict[str, Any]]) -> None:
        self.store.check_marked()
        self.table.add(pl.DataFrame(rows, DESIGN_SCHEMA))
        self.table.put_together()
