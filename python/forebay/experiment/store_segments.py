"""Tables that grow: files of rows, each of which comes whole and never changes; small ones are put
together now and then. Rows that stand twice, because two processes made the same or one died while
it put files together, count once."""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import polars as pl

from forebay.experiment.store_place import DamagedFileError, sealed_name, set_aside

if TYPE_CHECKING:
    from forebay.experiment.store_place import Folder, Remote

#: More segments than this are put together.
MOST_SEGMENTS = 48
#: Who puts segments together, and who reads them.
TOGETHER, READERS = ".lock", ".readers"
#: How long readers are waited for before segments go, which is then left to the next; and how long
#: a reader looks again where a place has no locks and files go under its hands.
READERS_S, AGAIN_S = 5.0, 20.0
#: New rows are written at least so often.
FLUSH_S = 1.0
P = ParamSpec("P")
T = TypeVar("T")


class Segments:
    """One such table: a folder for each version of its rows.

    root: the folder of all versions. key: the columns that tell one row from another.
    """

    def __init__(
        self,
        place: Folder | Remote,
        root: str,
        version: str,
        key: Sequence[str],
        schema: Mapping[str, Any],
    ) -> None:
        self.place, self.root, self.version = place, root, version
        self.key, self.schema = key, schema

    def segments(self) -> dict[str, int]:
        """Files of this version, with their sizes."""
        return self.place.names(f"{self.root}/{self.version}")

    def scan(self) -> pl.LazyFrame:
        """Every row of this version, each once.

        Beside a process that writes it is collected within `read`, as by a function that is
        decorated with `again`.
        """
        names = sorted(self.segments())
        table = self._scan_intact(names)
        return table if len(names) < 2 else table.unique(self.key, keep="any")

    def count(self) -> int:
        """Return the number of rows in all segments, where a row that stands twice counts twice."""
        return int(self._scan_intact(sorted(self.segments())).select(pl.len()).collect().item())

    def _scan_intact(self, names: list[str]) -> pl.LazyFrame:
        """Return the rows of these segments; a damaged one is set aside and taken from `names`."""
        while names:
            try:
                return self.place.scan(names, self.schema)
            except DamagedFileError as damage:
                set_aside(self.place, damage)
                names.remove(damage.name)
        return pl.LazyFrame(schema=self.schema)

    def read(self, scan: Callable[[], T]) -> T:
        """What `scan` makes of files that it lists: none of them goes meanwhile.

        Where a place has no locks, it is done once more when one has gone.
        """
        end_s = time.monotonic() + AGAIN_S
        while True:
            with self.place.shared(f"{self.root}/{READERS}") as held:
                try:
                    return scan()
                except (FileNotFoundError, pl.exceptions.ComputeError):
                    if held or time.monotonic() > end_s:
                        raise
            time.sleep(0.05)

    def add(self, table: pl.DataFrame) -> None:
        """Writes rows as one more segment."""
        # Names in the order of time; two processes never have the same one.
        stem = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        contents = _parquet(table)
        self.place.write(sealed_name(f"{self.root}/{self.version}/{stem}", contents), contents)

    def replace(self, old: Sequence[str], table: pl.DataFrame) -> bool:
        """Puts these rows where those of `old` segments are; False where readers are in the way.

        A reader lists files and then opens them: one that saw neither the old nor the new ones
        would miss rows, and nobody would know.
        """
        with self.place.locked(f"{self.root}/{READERS}", READERS_S) as alone:
            if alone:
                if not table.is_empty():
                    self.add(table)
                for name in old:
                    self.place.remove(name)
            return bool(alone)

    def put_together(self, most: int = MOST_SEGMENTS) -> None:
        """Makes few large segments of many small ones.

        The smallest come together, up to one that is larger than all before it: so a row is
        written about as often as the store has doubled.
        """
        if len(self.segments()) <= most:
            return
        with suppress(OSError), self.place.locked(f"{self.root}/{TOGETHER}") as alone:
            if not alone:
                return
            self.place.sweep()
            sizes = sorted(self.segments().items(), key=lambda item: (item[1], item[0]))
            chosen: list[str] = []
            total = 0
            for name, size in sizes:
                if len(chosen) > most // 2 and size > 2 * total:
                    break
                chosen.append(name)
                total += size
            scanned = self._scan_intact(chosen)
            self.replace(chosen, scanned.unique(self.key, keep="any").sort(self.key).collect())


def again(read: Callable[P, T]) -> Callable[P, T]:
    """A function that scans a table, which is its first argument or what that has as `store`: see
    `Segments.read`."""

    @wraps(read)
    def reading(*arguments: P.args, **options: P.kwargs) -> T:
        first: Any = arguments[0]
        table: Segments = getattr(first, "store", first)
        return table.read(lambda: read(*arguments, **options))

    return reading


class Pending:
    """New rows of a table, which `write` gets now and then, and at the end of a context."""

    def __init__(self, write: Callable[[list[dict[str, Any]]], None]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._write = write
        self._written_s = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def tick(self) -> None:
        """Writes what has waited long enough."""
        if time.monotonic() - self._written_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Writes what there is. Raises `OSError`, and then has it still."""
        if self.rows:
            self._write(self.rows)
            self.rows = []
        self._written_s = time.monotonic()


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
