"""The store itself: segments of rows, each a Parquet file that comes whole, and a file of arrays
for each run that keeps its samples.

    forebay-store.json                      what this folder is
    runs/results-3-9c01aa/0192…-7f.parquet  rows; a folder for each version of the numbers
    samples/results-3-9c01aa/4f/4f0c…-1.parquet
    designs/9c01aa/0192…-7f.parquet         numbers of laws that studies have designed
    studies/results-3-9c01aa/4f0c….parquet  lists of studies
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import polars as pl

from forebay._native import ScenarioError
from forebay.base.metrics import CLASS_METRICS, COST, METRICS
from forebay.store import details, rows
from forebay.store.details import File, Link, OfClass, StoredRun
from forebay.store.place import Folder, Remote
from forebay.store.segments import MOST_SEGMENTS, Segments

if TYPE_CHECKING:
    from forebay._native import Run
    from forebay.store.rows import Facts

#: What marks a folder as a store, and the layout of its files.
MARK, LAYOUT = "forebay-store.json", 1
RUNS, SAMPLES = "runs", "samples"
#: Finished runs are written at least so often.
FLUSH_S = 1.0
#: Which run: the digest of what it depends on, and its seed.
Key = tuple[str, int]


class Store:
    """Runs that were made, in a folder or at an address."""

    def __init__(self, at: Folder | Remote) -> None:
        self.place = at
        self.version = rows.version()
        self.rows = Segments(at, RUNS, self.version, rows.KEY, rows.SCHEMA)
        #: the folder of one that is not kept
        self.goes_with: object = None
        self._checked = False
        self._check()

    @property
    def address(self) -> str:
        return self.place.address

    def _check(self) -> None:
        """Refuses what is no store of this layout. Raises `ScenarioError`."""
        if isinstance(self.place, Folder):
            path = self.place.path
            if path.exists() and not path.is_dir():
                raise ScenarioError(
                    f'--store: found "{path}", a file, allowed: a folder, new or not'
                )
            if not path.exists() or not any(path.iterdir()):
                return
        try:
            mark = json.loads(self.place.read(MARK))
            layout = mark["store"]
        except FileNotFoundError:
            # An address that is not there yet has no names either.
            if self.place.names(""):
                raise ScenarioError(
                    f'--store: found "{self.address}", a folder without {MARK}, allowed: a store, '
                    "or a folder that is new or empty"
                ) from None
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
            raise ScenarioError(
                f'--store: found "{self.address}", whose {MARK} cannot be read{why}, allowed: a '
                "store"
            ) from error
        if layout != LAYOUT:
            raise ScenarioError(
                f'--store: found "{self.address}", of layout {layout}, allowed: layout {LAYOUT}; '
                "another version of forebay made it"
            )
        self._checked = True

    def check_writable(self) -> None:
        """Refuses a place that nothing can be written to, before the time is spent.

        Makes the store where it is not there. Raises `ScenarioError`.
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
            reason = (error.strerror or str(error)).lower()
            raise ScenarioError(
                f'--store: found "{self.address}", {reason}, allowed: a folder that can be written '
                "to, or --no-store"
            ) from error

    def segments(self) -> dict[str, int]:
        """Files of rows of this version, with their sizes."""
        return self.rows.names()

    def scan(self) -> pl.LazyFrame:
        """Every row of this version, each once; those of failed runs have a `fault`.

        Beside a process that writes, a function that scans is decorated with `segments.again`.
        """
        names = sorted(self.segments())
        if not names:
            return pl.LazyFrame(schema=rows.SCHEMA)
        found = self.place.scan(names)
        return found if len(names) == 1 else found.unique(rows.KEY, keep="any")

    def rows_of(
        self, configs: Iterable[str], columns: Iterable[str] = tuple(rows.SCHEMA)
    ) -> pl.DataFrame:
        """The rows of these digests."""
        wanted = pl.LazyFrame({"config": list(set(configs))}, {"config": pl.String})

        chosen = list(columns)
        return self.rows.read(
            lambda: self.scan().select(chosen).join(wanted, on="config", how="semi").collect()
        )

    def seeds_of(self, configs: Iterable[str]) -> pl.DataFrame:
        """The runs of these digests: config, seed and fault, a row each."""
        columns = [*rows.KEY, "fault"]
        return self.rows_of(configs, columns).filter(pl.col("link") == 0).drop("link")

    def runs(
        self, wanted: Mapping[tuple[int, int, int], str], *, samples: bool
    ) -> dict[tuple[int, int, int], StoredRun]:
        """The stored runs among `wanted`: (point, law, seed) with the digest of each.

        `samples`: only those that have them.
        """
        if not wanted:
            return {}
        by_run: dict[Key, list[dict[str, Any]]] = {}
        keys = {(config, seed) for (_, _, seed), config in wanted.items()}
        # Sorted, so that a run's links come in order.
        found = self.rows_of(wanted.values()).filter(pl.col("fault").is_null()).sort(rows.KEY)
        for row in found.iter_rows(named=True):
            key = (row["config"], row["seed"])
            if key in keys:
                by_run.setdefault(key, []).append(row)
        there = self.place.names(f"{SAMPLES}/{self.version}") if samples and by_run else {}
        made = {}
        for (point, law, seed), config in wanted.items():
            of_run = by_run.get((config, seed))
            name = self._name_of_samples(config, seed)
            if of_run is None or (samples and name not in there):
                continue
            file = File(self.place, name) if samples else None
            made[point, law, seed] = _stored(point, law, seed, of_run, file)
        return made

    def _name_of_samples(self, config: str, seed: int) -> str:
        return f"{SAMPLES}/{self.version}/{config[:2]}/{config}-{seed}.parquet"

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Takes finished runs; what it has taken is in the store at the end of the context."""
        writer = Writer(self)
        try:
            yield writer
        finally:
            writer.flush()
        self.put_together()

    def check_marked(self) -> None:
        """Makes the store where it is not there. Raises `ScenarioError`."""
        if not self._checked:
            self.check_writable()

    def add(self, table: pl.DataFrame) -> None:
        """Writes rows as one more segment."""
        self.check_marked()
        self.rows.add(table)

    def put_together(self, most: int = MOST_SEGMENTS) -> None:
        """Makes few large segments of many small ones."""
        self.rows.put_together(most)


class Writer:
    """Takes runs as they finish; writes them now and then, and at once where they take long."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._rows: list[dict[str, Any]] = []
        self._written_s = time.monotonic()

    def add(self, facts: Facts, run: Run, *, samples: bool = False) -> None:
        """A run that has ended; with `samples` also its arrays."""
        if samples:
            self.store.check_marked()
            name = self.store._name_of_samples(facts.config, run.seed)
            self.store.place.write(name, details.packed(run))
        self._rows += facts.run(run)

    def add_rows(self, some: Iterable[dict[str, Any]]) -> None:
        """Rows that `Facts` has made, here or on another machine."""
        self._rows += some

    def tick(self) -> None:
        """Writes what has waited long enough."""
        if self._rows and time.monotonic() - self._written_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Writes what there is. Raises `OSError`, and then has it still."""
        if self._rows:
            self.store.add(rows.table(self._rows))
            self._rows = []
        self._written_s = time.monotonic()

    @property
    def waiting(self) -> int:
        """Runs that it has taken, and that are not in the store."""
        return sum(1 for row in self._rows if row["link"] == 0)


def _stored(
    point: int, law: int, seed: int, of_run: list[dict[str, Any]], file: File | None
) -> StoredRun:
    links = [
        {
            "link": row["link_name"],
            "metrics": {name: row[name] for name in METRICS},
            "classes": [
                OfClass(each["name"], {name: each[name] for name in CLASS_METRICS})
                for each in row["classes"]
            ],
            "number": row["link"],
            "file": file,
        }
        for row in of_run
    ]
    links[0]["metrics"][COST] = of_run[0][COST]
    others = [Link(**link) for link in links[1:]]
    return StoredRun(**links[0], point=point, law=law, seed=seed, others=others)
