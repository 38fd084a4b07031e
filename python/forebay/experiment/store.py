"""The store of runs, and the store that a command uses.

It has segments of rows, each of which is a Parquet file that appears whole, a file of arrays for
each run that keeps its samples, and the parameters of laws that were designed for studies:

    forebay-store.json                            the mark of a store
    runs/results-3-9c01aa/0192…-7f.5ac3….parquet  rows; a folder for each version of the numbers
    samples/results-3-9c01aa/4f/4f0c…-1.02b7….parquet
    designs/9c01aa/0192…-7f.77e1….parquet         parameters of laws that studies have designed
    studies/results-3-9c01aa/4f0c….91d0….parquet  lists of studies
    damaged/                                      files that did not match their checksum

The last part of each name is a checksum of the contents. `store_files` implements the files and
segments, `run_rows` the columns. `store_choice` decides which store a command uses.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
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
from forebay._base.publication import why_not_writable
from forebay._base.temporary import temporary_folder
from forebay._native import Run, TrafficObserved
from forebay.experiment import run_rows as rows
from forebay.experiment.store_choice import DEFAULT, StoreChoice, choose
from forebay.experiment.store_files import (
    DAMAGED,
    Folder,
    Pending,
    Remote,
    Segments,
    place,
    sealed_name,
    set_aside,
    stem_of,
)

if TYPE_CHECKING:
    from forebay.experiment.engines import Key
    from forebay.experiment.run_rows import LawAtPoint

#: The file that marks a folder as a store, and the number of the layout.
MARK, LAYOUT = "forebay-store.json", 1
RUNS, SAMPLES = "runs", "samples"
Row = dict[str, Any]


class Store(Segments):
    """The runs that were made, in a folder or at an address.

    A run has a row for each of its links, a failed run a row with its `fault`; some runs also have
    their arrays.

    Parameters
    ----------
    at : Folder or Remote
        The place of the files.

    Attributes
    ----------
    goes_with : object
        A temporary folder that is deleted with this object; None for a lasting store.
    """

    def __init__(self, at: Folder | Remote) -> None:
        super().__init__(at, RUNS, rows.version(), rows.KEY, rows.SCHEMA)
        self.goes_with: object = None
        self._checked = False
        self._check()

    @property
    def address(self) -> str:
        """The folder or the address of the store."""
        return self.place.address

    def _check(self) -> None:
        """Check that the place is a store of this layout, or is new or empty.

        Raises
        ------
        ParameterError
            If it is neither.
        """
        if isinstance(self.place, Folder):
            path = self.place.path
            if path.exists() and not path.is_dir():
                raise ParameterError("store", path, "a folder, new or not", reason="it is a file")
            if not path.exists() or not any(path.iterdir()):
                return
        try:
            mark = json.loads(self.place.read(MARK))
            layout = mark["store"]
        except FileNotFoundError:
            # An address that does not exist yet has no names either.
            if self.place.names(""):
                expected = "a store, or a folder that is new or empty"
                raise self._unusable(f"it has no {MARK}", expected) from None
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            raise self._unusable(f"its {MARK} cannot be read{why}", "a store") from error
        if layout != LAYOUT:
            reason = f"another version of forebay made it, with layout {layout}"
            raise self._unusable(reason, f"a store of layout {LAYOUT}")
        self._checked = True

    def _unusable(self, reason: str, expected: str) -> ParameterError:
        """Return the error about the address of the store."""
        return ParameterError("store", self.address, expected, reason=reason)

    def check_writable(self) -> None:
        """Check that the store can be written to, and create it if it is new.

        A command calls this before it spends time on runs.

        Raises
        ------
        ParameterError
            If the place cannot be written to.
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
        """Return the rows of runs with these digests.

        Parameters
        ----------
        configs : Iterable[str]
            The digests.
        columns : Iterable[str], default tuple(rows.SCHEMA)
            The columns to return.
        """
        digests = pl.LazyFrame({"config": list(set(configs))}, {"config": pl.String})
        chosen = list(columns)
        return self.read(
            lambda: self.scan().join(digests, on="config", how="semi").select(chosen).collect()
        )

    def rows_by_run(self, configs: Mapping[Key, str], *, samples: bool) -> dict[Key, list[Row]]:
        """Return the rows of the stored runs that did not fail, one row per link.

        Parameters
        ----------
        configs : Mapping[Key, str]
            The digest of each run that is sought.
        samples : bool
            True to return only runs whose arrays are stored.
        """
        if not configs:
            return {}
        by_run: dict[tuple[str, int], list[Row]] = {}
        sound = self.rows_of(configs.values()).filter(pl.col("fault").is_null())
        # Sorted, so that a run's links come in order.
        for row in sound.sort(rows.KEY).iter_rows(named=True):
            by_run.setdefault((row["config"], row["seed"]), []).append(row)
        sampled = self._sample_files() if samples and by_run else {}
        return {
            key: by_run[config, key[2]]
            for key, config in configs.items()
            if (config, key[2]) in by_run
            and (not samples or self._sample_stem(config, key[2]) in sampled)
        }

    def runs(self, configs: Mapping[Key, str], *, samples: bool) -> dict[Key, Run]:
        """Return the stored runs among those that are sought.

        Parameters
        ----------
        configs : Mapping[Key, str]
            The digest of each run that is sought.
        samples : bool
            True to return only runs whose arrays are stored, with the arrays.
        """
        by_run = self.rows_by_run(configs, samples=samples)
        sampled = self._sample_files() if samples and by_run else {}
        runs = {}
        for key, rows_of_run in by_run.items():
            arrays: list[dict[str, pl.Series | None]] = [{} for _ in rows_of_run]
            if samples:
                try:
                    name = sampled[self._sample_stem(rows_of_run[0]["config"], key[2])]
                    table = pl.read_parquet(io.BytesIO(self.place.read(name)))
                except StoreError as damage:
                    set_aside(self.place, damage)
                    continue
                arrays = [{column.name: column[i] for column in table} for i in range(table.height)]
            runs[key] = self._run(key, rows_of_run, arrays)
        return runs

    def _run(
        self, key: Key, rows_of_run: list[Row], arrays: list[dict[str, pl.Series | None]]
    ) -> Run:
        """Return a run from its rows and arrays."""
        point, law, seed = key
        links = [
            rows.observed(
                row["link_name"],
                {name: row[name] for name in ([*METRICS, COST] if row["link"] == 0 else METRICS)},
                [
                    (item["name"], {name: item[name] for name in CLASS_METRICS})
                    for item in row["classes"]
                ],
                [
                    TrafficObserved(item["traffic"], {name: item[name] for name in TRAFFIC_METRICS})
                    for item in row["traffic"]
                ],
                of_link,
            )
            for row, of_link in zip(rows_of_run, arrays, strict=True)
        ]
        return Run(point, law, seed, links)

    def _sample_stem(self, config: str, seed: int) -> str:
        """Return the name of a run's file of arrays, without its checksum."""
        return f"{SAMPLES}/{self.version}/{config[:2]}/{config}-{seed}"

    def _sample_files(self) -> dict[str, str]:
        """Return a mapping from the stem to the name of each file of samples."""
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
        """Enter a context that takes finished runs; at its end they are in the store."""
        with Writer(self) as writer:
            yield writer
        self.put_together()

    def check_marked(self) -> None:
        """Create the store if it is new.

        Raises
        ------
        ParameterError
            If the place cannot be written to.
        """
        if not self._checked:
            self.check_writable()

    def add(self, table: pl.DataFrame) -> None:
        """Write rows as one more segment."""
        self.check_marked()
        super().add(table)


class Writer(Pending):
    """A writer of runs as they finish; it writes them from time to time.

    Parameters
    ----------
    store : Store
        Receives the runs.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(lambda pending: store.add(rows.table(pending)))
        self.store = store

    def add(self, law: LawAtPoint, run: Run, *, samples: bool = False) -> None:
        """Add a finished run.

        Parameters
        ----------
        law : LawAtPoint
            The law at its point.
        run : Run
            The run.
        samples : bool, default False
            True to store its arrays, too.
        """
        if samples:
            self.store.check_marked()
            contents = rows.packed(run)
            stem = self.store._sample_stem(law.config, run.seed)
            self.store.place.write(sealed_name(stem, contents), contents)
        self.rows += law.run(run)

    @property
    def waiting(self) -> int:
        """The number of runs that have been added but not yet written."""
        return sum(1 for row in self.rows if row["link"] == 0)


@dataclass(frozen=True)
class VersionContents:
    """The contents of a store for one version of the numbers.

    Attributes
    ----------
    version : str
        The version.
    runs : int
        Number of runs.
    segments : int
        Number of segments of rows.
    bytes : int
        Size of the segments in bytes.
    sampled : int
        Number of runs with arrays.
    sample_bytes : int
        Size of the arrays in bytes.
    """

    version: str
    runs: int
    segments: int
    bytes: int
    sampled: int
    sample_bytes: int


def contents(store: Store) -> list[VersionContents]:
    """Return the contents of a store by version; the current version comes first, even if empty."""
    of_runs, of_samples = store.place.names(RUNS), store.place.names(SAMPLES)
    versions = {name.split("/")[1] for name in [*of_runs, *of_samples] if name.count("/") > 1}
    by_version = []
    for version in [store.version, *sorted(versions - {store.version})]:
        segments = [size for name, size in of_runs.items() if name.split("/")[1] == version]
        samples = [size for name, size in of_samples.items() if name.split("/")[1] == version]
        by_version.append(
            VersionContents(
                version,
                _count_runs(store, version),
                len(segments),
                sum(segments),
                len(samples),
                sum(samples),
            )
        )
    return by_version


def _count_runs(store: Store, version: str) -> int:
    """Return the number of runs of a version."""
    table = Segments(store.place, RUNS, version, rows.KEY, rows.SCHEMA)
    keys = table.read(lambda: table.scan().select(rows.KEY).unique().collect())
    return int((keys["link"] == 0).sum())


def prune(store: Store, *, samples: bool = False, failed: bool = False) -> int:
    """Remove runs and designs of other versions, and merge the segments of the current one.

    Parameters
    ----------
    store : Store
        The store.
    samples : bool, default False
        True to remove the arrays of the current version, too.
    failed : bool, default False
        True to remove its failed runs, too.

    Returns
    -------
    int
        The number of bytes that were freed.

    Raises
    ------
    ParameterError
        If failed runs could not be removed because other processes read all the time.
    """
    before = sum(store.place.names("").values())
    present = {RUNS: store.version, SAMPLES: store.version, DESIGNS: designs_version()}
    for folder, version in present.items():
        for name in store.place.names(folder):
            other_version = name.split("/")[1] != version
            if name.count("/") > 1 and (other_version or (samples and folder == SAMPLES)):
                store.place.remove(name)
    if failed and (old := list(store.segments())):
        sound = pl.col("fault").is_null()
        sound_rows = store.read(lambda: store.scan().filter(sound).collect())
        if not store.replace(old, sound_rows):
            reason = "other processes are reading it"
            raise ParameterError(
                "store", store.address, "a store that no other process uses", reason=reason
            )
    for name in store.place.names(DAMAGED):
        store.place.remove(name)
    store.put_together(limit=1)
    store.place.sweep()
    return before - sum(store.place.names("").values())


DESIGNS = "designs"
#: Columns of a design: the digest of everything it depends on, and its parameters as JSON.
DESIGN_SCHEMA = {"design": pl.String, "numbers": pl.String}
#: The rooms whose code determines a design.
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
    """The designs in a store, and new designs on their way to it.

    Parameters
    ----------
    store : Store
        The store.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(self._add)
        self.store = store
        self.table = Segments(store.place, DESIGNS, designs_version(), ["design"], DESIGN_SCHEMA)
        self._known: dict[str, str] | None = None

    def get(self, design: str) -> dict[str, Any] | None:
        """Return the parameters of a design by its digest; None if the store does not have it."""
        if self._known is None:
            table = self.table.read(lambda: self.table.scan().collect())
            self._known = dict(table.iter_rows())
        numbers = self._known.get(design)
        return None if numbers is None else json.loads(numbers)

    def put(self, design: str, numbers: Mapping[str, Any]) -> None:
        """Add a new design; it is in the store after `flush`.

        Parameters
        ----------
        design : str
            Digest of the design.
        numbers : Mapping[str, Any]
            Its parameters by name.
        """
        assert self._known is not None
        self._known[design] = json.dumps(dict(numbers))
        self.rows.append({"design": design, "numbers": self._known[design]})

    def _add(self, rows: list[dict[str, Any]]) -> None:
        self.store.check_marked()
        self.table.add(pl.DataFrame(rows, DESIGN_SCHEMA))
        self.table.put_together()


# --- the store of a command ---------------------------------------------------------------------

#: A store, or the address of one.
StoreLike = Store | str | os.PathLike[str]


def opened(store: StoreLike | None) -> Store | None:
    """Return the store of an argument, which may be its address; None for no store.

    Raises
    ------
    ParameterError
        If the address is not that of a store.
    """
    return store if store is None or isinstance(store, Store) else at(store)


def at(address: str | os.PathLike[str]) -> Store:
    """Return the store at an address; its files are created when something is written.

    Raises
    ------
    ParameterError
        If the address is not that of a store.
    """
    return Store(place(address))


def store(
    address: str | os.PathLike[str] | None, *, without: bool = False, default: bool = True
) -> Store | None:
    """Return the store of a command that can do without one.

    Parameters
    ----------
    address, without, default
        As for `store_choice.choose`.

    Returns
    -------
    Store | None
        The store; None if there is none, for example because `DEFAULT` cannot be written to.

    Raises
    ------
    ParameterError
        If the named place is not a store, or cannot be written to.
    """
    choice = choose(address, without=without, default=default)
    return None if choice is None else of_choice(choice)


def of_choice(choice: StoreChoice) -> Store | None:
    """Return the chosen store, checked to be writable; fails like `store`."""
    if choice.is_named:
        chosen_store = at(choice.address)
        chosen_store.check_writable()
        return chosen_store
    if why := why_not_writable(DEFAULT):
        print(f"{DEFAULT}: {why}: runs are not stored", file=sys.stderr)
        return None
    return at(DEFAULT)


def of_study(address: str | os.PathLike[str] | None, *, without: bool = False) -> Store:
    """Return the store of a command that reads back what it has made.

    Parameters
    ----------
    address : str | os.PathLike[str] | None
        As for `store`.
    without : bool, default False
        True to use a temporary store.

    Returns
    -------
    Store
        The store; a temporary one is deleted with the returned object.

    Raises
    ------
    ParameterError
        If the named place is not a store.
    """
    choice = choose(address, without=without)
    if choice is not None:
        return at(choice.address)
    folder = temporary_folder()
    temporary = at(folder.name)
    temporary.goes_with = folder
    return temporary


def existing(address: str | os.PathLike[str] | None) -> Store:
    """Return the store that a command looks into: the one that is named, or `DEFAULT`.

    Raises
    ------
    ParameterError
        If the named place is not a store.
    """
    choice = choose(address)
    return at(DEFAULT if choice is None else choice.address)
