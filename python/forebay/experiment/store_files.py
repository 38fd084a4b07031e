"""The files of a store, in a folder or at any address that fsspec knows, and tables made of them.

A file appears whole or not at all, and its name carries a checksum of its contents, so that a
damaged file is noticed when it is read, set aside, and never taken for a result. A table grows by
files of rows, each of which never changes; small ones are put together now and then. Rows that
stand twice, because two processes made the same or one died while it put files together, count
once.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import IO, Any, ParamSpec, Self, TypeVar

import polars as pl

from forebay._base import input_file
from forebay._base.errors import ParameterError, StoreError
from forebay._native import ScenarioError

#: How a file begins that is not whole yet, and how long one is left alone.
UNFINISHED, UNFINISHED_S = ".new-", 3600.0
#: The folder of a store that receives damaged files, and the length of a checksum in bytes.
DAMAGED, CHECKSUM_BYTES = "damaged", 8


def sealed_name(stem: str, contents: bytes) -> str:
    """Return the name of a Parquet file: its stem, and a checksum of its contents."""
    return f"{stem}.{_checksum(io.BytesIO(contents))}.parquet"


def stem_of(name: str) -> str:
    """Return a file's name without its checksum and its ending."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _checksum(file: IO[bytes]) -> str:
    def blake2b() -> hashlib.blake2b:
        return hashlib.blake2b(digest_size=CHECKSUM_BYTES)

    return hashlib.file_digest(file, blake2b).hexdigest()  # type: ignore[arg-type]


def _verify(name: str, file: IO[bytes]) -> None:
    """Compare a file with the checksum in its name.

    A file without a checksum, which a version before 1.0 wrote, must at least be readable.

    Raises
    ------
    StoreError
        If they differ, or the file is not Parquet.
    """
    expected = name.removesuffix(".parquet").removeprefix(stem_of(name)).removeprefix(".")
    if expected:
        if _checksum(file) != expected:
            raise StoreError(name, "its contents do not match its checksum")
        return
    try:
        pl.read_parquet_schema(file)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise StoreError(name, "it is not a Parquet file") from error


def set_aside(place: Folder | Remote, damage: StoreError) -> None:
    """Move a damaged file out of the way and report it; the runs in it will be made again."""
    try:
        place.move(damage.name, f"{DAMAGED}/{damage.name.replace('/', '-')}")
        outcome = f"it was moved to {place.address}/{DAMAGED}, and its runs are made again"
    except OSError:
        outcome = "it cannot be moved and is ignored, and its runs are made again"
    print(
        f"warning: store {place.address}: {damage.name} is damaged ({damage.reason}); {outcome}",
        file=sys.stderr,
    )


class Folder:
    """A folder of this machine, with files by names such as "runs/v3/1.<checksum>.parquet"."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)
        #: Size and modification time of the files that were verified.
        self._verified: dict[str, tuple[int, int]] = {}

    def names(self, folder: str) -> dict[str, int]:
        """Names below a folder, at any depth, with their sizes in bytes."""
        found: dict[str, int] = {}
        # A file may go while they are looked through: another process puts several into one.
        for file in (self.path / folder).rglob("*"):
            with suppress(OSError):
                if not file.name.startswith(".") and file.is_file():
                    found[str(file.relative_to(self.path))] = file.stat().st_size
        return found

    def read(self, name: str) -> bytes:
        """Return the contents of a file.

        Raises
        ------
        StoreError
            If it is a Parquet file whose contents do not match its checksum.
        """
        contents = (self.path / name).read_bytes()
        if name.endswith(".parquet"):
            _verify(name, io.BytesIO(contents))
        return contents

    def move(self, name: str, new_name: str) -> None:
        """Rename a file within the place."""
        target = self.path / new_name
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).replace(target)

    def write(self, name: str, contents: bytes) -> None:
        """Whole or not at all, also where the process or the machine dies."""
        final = self.path / name
        final.parent.mkdir(parents=True, exist_ok=True)
        unfinished = final.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
        try:
            with unfinished.open("xb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(final)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink()
            # The line is on the store, and not on a name that nobody has chosen.
            raise OSError(error.errno, error.strerror, self.address) from error
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        directory = os.open(final.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def remove(self, name: str) -> None:
        """Nothing where it is not there."""
        (self.path / name).unlink(missing_ok=True)

    def scan(self, names: list[str], schema: Mapping[str, Any]) -> pl.LazyFrame:
        """Return Parquet files as one table; a column that an older file lacks is null.

        Raises
        ------
        StoreError
            If a file does not match its checksum. Each file is verified once, and again after it
            has changed.
        """
        paths = [self.path / name for name in names]
        for name, path in zip(names, paths, strict=True):
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                state = (status.st_size, status.st_mtime_ns)
                if self._verified.get(name) != state:
                    _verify(name, file)
                    self._verified[name] = state
        return pl.scan_parquet(paths, schema=dict(schema), missing_columns="insert")

    @contextmanager
    def locked(self, name: str, wait_s: float = 0.0) -> Iterator[bool]:
        """Entered with False where another process is in it, or in one that is `shared`, for so
        long."""
        import fcntl

        end_s = time.monotonic() + wait_s
        file = os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            while not (alone := _locks(file, fcntl.LOCK_EX)) and time.monotonic() < end_s:
                time.sleep(0.002)
            yield alone
        finally:
            os.close(file)

    @contextmanager
    def shared(self, name: str) -> Iterator[bool]:
        """Many may be in it, and none that is `locked`; entered with False without locks."""
        import fcntl

        try:
            file = self._lock_file(name)
        except OSError:
            # Not there yet, or of somebody else.
            yield False
            return
        try:
            # A writer holds it for moments.
            while not (held := _locks(file, fcntl.LOCK_SH)):
                time.sleep(0.002)
            yield held
        finally:
            os.close(file)

    def _lock_file(self, name: str) -> int:
        try:
            return os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            return os.open(self.path / name, os.O_RDONLY)

    def sweep(self) -> None:
        """Removes what killed processes have left."""
        for file in self.path.rglob(f"{UNFINISHED}*"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > UNFINISHED_S:
                    file.unlink()


def _locks(file: int, how: int) -> bool:
    """Whether an open file could be locked at once."""
    import fcntl

    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Remote:
    """An address that fsspec knows, such as "s3://bucket/runs", as `Folder` otherwise; an object
    comes there at once."""

    def __init__(self, address: str) -> None:
        try:
            import fsspec  # type: ignore[import-untyped]
        except ImportError as error:
            expected = "a folder; an address needs fsspec: pip install fsspec"
            raise ParameterError("store", address, expected) from error
        self.address = address
        try:
            self.files, self.root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            expected = "a folder, or an address that fsspec knows"
            raise ParameterError("store", address, expected, reason=str(error)) from error

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What a driver says as `OSError` with the address: each has errors of its own."""
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            raise OSError(errno.EIO, why, self.address) from error

    def names(self, folder: str) -> dict[str, int]:
        with self._errors():
            self.files.invalidate_cache()
            found = self.files.find(f"{self.root}/{folder}".rstrip("/"), detail=True)
        root = self.root.strip("/")
        return {
            name.strip("/").removeprefix(root).strip("/"): int(info.get("size") or 0)
            for name, info in found.items()
        }

    def read(self, name: str) -> bytes:
        """Return the contents of an object, as `Folder.read` does."""
        with self._errors():
            contents = bytes(self.files.cat_file(f"{self.root}/{name}"))
        if name.endswith(".parquet"):
            _verify(name, io.BytesIO(contents))
        return contents

    def move(self, name: str, new_name: str) -> None:
        """Rename an object within the place."""
        with self._errors():
            self.files.mv(f"{self.root}/{name}", f"{self.root}/{new_name}")

    def write(self, name: str, contents: bytes) -> None:
        with self._errors():
            self.files.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
            self.files.pipe_file(f"{self.root}/{name}", contents)

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._errors():
            self.files.rm_file(f"{self.root}/{name}")

    def scan(self, names: list[str], schema: Mapping[str, Any]) -> pl.LazyFrame:
        tables = [pl.DataFrame(schema=schema)]
        tables += [pl.read_parquet(io.BytesIO(self.read(name))) for name in names]
        return pl.concat(tables, how="diagonal_relaxed").lazy()

    @contextmanager
    def locked(self, name: str, wait_s: float = 0.0) -> Iterator[bool]:  # noqa: ARG002
        # An object storage has no locks. Two that put the same files together leave rows twice,
        # which count once.
        yield True

    @contextmanager
    def shared(self, name: str) -> Iterator[bool]:  # noqa: ARG002
        yield False

    def sweep(self) -> None:
        """There are no unfinished files."""


def place(address: str | os.PathLike[str]) -> Folder | Remote:
    """Return the place of an address.

    Raises `ScenarioError` for a name that is not UTF-8, which polars cannot read from.
    """
    text = os.fspath(address)
    if input_file.printable(text) != text:
        raise ScenarioError(
            f"{input_file.printable(text)}: the name of a store must be UTF-8 without control "
            "characters"
        )
    if "://" in text and not text.startswith("file://"):
        return Remote(text)
    return Folder(Path(text.removeprefix("file://")))


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
            except StoreError as damage:
                set_aside(self.place, damage)
                names.remove(damage.name)
        return pl.LazyFrame(schema=self.schema)

    def read(self, scan: Callable[[], T]) -> T:
        """Return the result of `scan`, which lists and reads files, while none of them is removed.

        In a place without locks, `scan` is called again if a file has gone meanwhile.
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
