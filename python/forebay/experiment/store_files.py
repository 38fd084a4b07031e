"""The files of a store, in a folder or at any address that fsspec knows, and tables of such files.

A file appears whole or not at all. Its name carries a checksum of its contents, so a damaged
file is noticed when it is read, moved aside, and never used as a result. A table grows by segments:
files of rows that never change. Small segments are merged from time to time. Two processes may
write the same row, and a process may die while it merges; a row that is stored twice counts once,
and a failed run that was repeated counts as its repetition.
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

#: Prefix of a file that is still being written, and the age in seconds at which `sweep` removes it.
UNFINISHED, UNFINISHED_S = ".new-", 3600.0
#: The folder of a store that receives damaged files, and the length of a checksum in bytes.
DAMAGED, CHECKSUM_BYTES = "damaged", 8


def sealed_name(stem: str, contents: bytes) -> str:
    """Return the name of a Parquet file: its stem and a checksum of its contents.

    Parameters
    ----------
    stem : str
        Name without checksum and ending, such as "runs/v3/1".
    contents : bytes
        Contents of the file.
    """
    return f"{stem}.{_checksum(io.BytesIO(contents))}.parquet"


def stem_of(name: str) -> str:
    """Return a file's name without its checksum and its ending."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _checksum(file: IO[bytes]) -> str:
    """Return the checksum of a file, in hexadecimal."""

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
    """Move a damaged file to the folder `DAMAGED` and report it; its runs will be repeated.

    Parameters
    ----------
    place : Folder | Remote
        The place of the file.
    damage : StoreError
        The error about the file.
    """
    try:
        place.move(damage.name, f"{DAMAGED}/{damage.name.replace('/', '-')}")
        outcome = f"it was moved to {place.address}/{DAMAGED}, and its runs are repeated"
    except OSError:
        outcome = "it cannot be moved and is ignored, and its runs are repeated"
    print(
        f"warning: store {place.address}: {damage.name} is damaged ({damage.reason}); {outcome}",
        file=sys.stderr,
    )


class Folder:
    """A folder of this machine, with files by names such as "runs/v3/1.<checksum>.parquet".

    Parameters
    ----------
    path : Path
        The folder.

    Attributes
    ----------
    path : Path
        The folder.
    address : str
        The folder as text, for messages.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)
        #: Size and modification time of the files that were verified.
        self._verified: dict[str, tuple[int, int]] = {}

    def names(self, folder: str) -> dict[str, int]:
        """Return the names of the files below a folder, at any depth, with their sizes in bytes."""
        sizes: dict[str, int] = {}
        # A file may vanish during the walk: another process merges segments.
        for file in (self.path / folder).rglob("*"):
            with suppress(OSError):
                if not file.name.startswith(".") and file.is_file():
                    sizes[str(file.relative_to(self.path))] = file.stat().st_size
        return sizes

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
        """Write a file whole or not at all, even if the process or the machine dies.

        Parameters
        ----------
        name : str
            Name of the file.
        contents : bytes
            Its contents.

        Raises
        ------
        OSError
            If the file cannot be written; the error names the store.
        """
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
            # The error names the store, not the temporary file.
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
        """Remove a file, if it exists."""
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
        """Enter a context that excludes other processes from `locked` and `shared` contexts.

        Parameters
        ----------
        name : str
            Name of the lock file.
        wait_s : float, default 0.0
            Time to wait for the lock, in seconds.

        Yields
        ------
        bool
            False if another process still holds the lock.
        """
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
        """Enter a context that many processes may share, but not with one in a `locked` context.

        Parameters
        ----------
        name : str
            Name of the lock file.

        Yields
        ------
        bool
            False if the lock file cannot be opened, so there is no lock.
        """
        import fcntl

        try:
            file = self._lock_file(name)
        except OSError:
            # The folder does not exist yet, or belongs to another user.
            yield False
            return
        try:
            # A writer holds the lock only for moments.
            while not (locked := _locks(file, fcntl.LOCK_SH)):
                time.sleep(0.002)
            yield locked
        finally:
            os.close(file)

    def _lock_file(self, name: str) -> int:
        """Open a lock file, read-only if it belongs to another user."""
        try:
            return os.open(self.path / name, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError:
            return os.open(self.path / name, os.O_RDONLY)

    def sweep(self) -> None:
        """Remove unfinished files of processes that were killed."""
        for file in self.path.rglob(f"{UNFINISHED}*"):
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > UNFINISHED_S:
                    file.unlink()


def _locks(file: int, how: int) -> bool:
    """Try to lock an open file, and return True if that succeeded at once.

    Parameters
    ----------
    file : int
        File descriptor.
    how : int
        `fcntl.LOCK_EX` or `fcntl.LOCK_SH`.
    """
    import fcntl

    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Remote:
    """An address that fsspec knows, such as "s3://bucket/runs", with the methods of `Folder`.

    An object of such an address appears whole.

    Parameters
    ----------
    address : str
        The address.

    Raises
    ------
    ParameterError
        If fsspec is not installed, or does not know the address.
    """

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
        """Turn any error of a driver into `OSError` with the address.

        Each driver has errors of its own.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:
            why = str(error).partition("\n")[0] or type(error).__name__
            raise OSError(errno.EIO, why, self.address) from error

    def names(self, folder: str) -> dict[str, int]:
        """Return the names of the objects below a folder, with their sizes in bytes."""
        with self._errors():
            self.files.invalidate_cache()
            objects = self.files.find(f"{self.root}/{folder}".rstrip("/"), detail=True)
        root = self.root.strip("/")
        return {
            name.strip("/").removeprefix(root).strip("/"): int(info.get("size") or 0)
            for name, info in objects.items()
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
        """Write an object."""
        with self._errors():
            self.files.makedirs(f"{self.root}/{name}".rpartition("/")[0], exist_ok=True)
            self.files.pipe_file(f"{self.root}/{name}", contents)

    def remove(self, name: str) -> None:
        """Remove an object, if it exists."""
        with suppress(FileNotFoundError), self._errors():
            self.files.rm_file(f"{self.root}/{name}")

    def scan(self, names: list[str], schema: Mapping[str, Any]) -> pl.LazyFrame:
        """Return Parquet objects as one table; a column that an older object lacks is null."""
        tables = [pl.DataFrame(schema=schema)]
        tables += [pl.read_parquet(io.BytesIO(self.read(name))) for name in names]
        return pl.concat(tables, how="diagonal_relaxed").lazy()

    @contextmanager
    def locked(self, name: str, wait_s: float = 0.0) -> Iterator[bool]:  # noqa: ARG002
        """Enter a context that excludes nobody: an object storage has no locks.

        Two processes that merge the same segments leave rows twice, which count once.
        """
        yield True

    @contextmanager
    def shared(self, name: str) -> Iterator[bool]:  # noqa: ARG002
        """Enter a context without a lock."""
        yield False

    def sweep(self) -> None:
        """Do nothing: there are no unfinished objects."""


def place(address: str | os.PathLike[str]) -> Folder | Remote:
    """Return the place of an address.

    Raises
    ------
    ScenarioError
        If the name is not UTF-8, which polars cannot read.
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


#: The column that says why a run failed; it is null in the row of a sound one.
FAULT = "fault"
#: More segments than this are merged.
MOST_SEGMENTS = 48
#: Lock files of the process that merges segments, and of those that read them.
TOGETHER, READERS = ".lock", ".readers"
#: Time in seconds for which a merge waits for readers before it gives up, and for which a reader
#: tries again if files vanish in a place without locks.
READERS_S, AGAIN_S = 5.0, 20.0
#: The longest time in seconds after which new rows are written.
FLUSH_S = 1.0
P = ParamSpec("P")
T = TypeVar("T")


class Segments:
    """A table that consists of segments, in a folder for each version of its rows.

    Parameters
    ----------
    place : Folder or Remote
        The place of the files.
    root : str
        The folder of all versions.
    version : str
        The version of the rows; rows of other versions are invisible.
    key : sequence of str
        The columns that identify a row.
    schema : mapping
        The columns with their types.
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
        """Return the names of this version's files, with their sizes in bytes."""
        return self.place.names(f"{self.root}/{self.version}")

    def scan(self) -> pl.LazyFrame:
        """Return every row of this version once, as a lazy frame.

        If another process may write, the frame must be collected within `read`, for example in a
        function decorated with `again`.
        """
        return self._once(self._scan_intact(sorted(self.segments())))

    def _once(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Return each row once; a failed run that was repeated has the row of its repetition.

        `LazyFrame.unique` would take a hundred times as long, because it copies nested columns.
        """
        if FAULT not in self.schema:
            return table.filter(pl.struct(*self.key).is_first_distinct())
        sound = pl.col(FAULT).is_null()
        first = pl.struct(*self.key, sound).is_first_distinct()
        return table.filter(first & (sound | ~sound.any().over(*self.key)))

    def count(self) -> int:
        """Return the number of rows in all segments, where a row that occurs twice counts twice."""
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
            with self.place.shared(f"{self.root}/{READERS}") as lock_held:
                try:
                    return scan()
                except (FileNotFoundError, pl.exceptions.ComputeError):
                    if lock_held or time.monotonic() > end_s:
                        raise
            time.sleep(0.05)

    def add(self, table: pl.DataFrame) -> None:
        """Write rows as one more segment."""
        # Names sort by time, and two processes never choose the same one.
        stem = f"{time.time_ns():016x}-{uuid.uuid4().hex[:8]}"
        contents = _parquet(table)
        self.place.write(sealed_name(f"{self.root}/{self.version}/{stem}", contents), contents)

    def replace(self, old: Sequence[str], table: pl.DataFrame) -> bool:
        """Replace segments by one with these rows.

        A reader lists files and then opens them. One that saw neither the old nor the new segments
        would miss rows without noticing.

        Parameters
        ----------
        old : Sequence[str]
            Names of the segments to remove.
        table : pl.DataFrame
            The rows that replace them.

        Returns
        -------
        bool
            False if readers are in the way, and nothing was replaced.
        """
        with self.place.locked(f"{self.root}/{READERS}", READERS_S) as alone:
            if alone:
                if not table.is_empty():
                    self.add(table)
                for name in old:
                    self.place.remove(name)
            return bool(alone)

    def put_together(self, limit: int = MOST_SEGMENTS) -> None:
        """Merge many small segments into a few large ones.

        Segments are merged in the order of their size, up to one that is larger than twice all
        before it, so that a row is written about as often as the store has doubled.

        Parameters
        ----------
        limit : int, default MOST_SEGMENTS
            Do nothing if there are at most this many segments.
        """
        if len(self.segments()) <= limit:
            return
        with suppress(OSError), self.place.locked(f"{self.root}/{TOGETHER}") as alone:
            if not alone:
                return
            self.place.sweep()
            sizes = sorted(self.segments().items(), key=lambda item: (item[1], item[0]))
            chosen: list[str] = []
            total = 0
            for name, size in sizes:
                if len(chosen) > limit // 2 and size > 2 * total:
                    break
                chosen.append(name)
                total += size
            self.replace(chosen, self._once(self._scan_intact(chosen)).sort(self.key).collect())


def again(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function that scans a table, so that no file is removed while it reads.

    It runs within `Segments.read`.
    The table is the function's first argument, or that argument's attribute `store`.
    """

    @wraps(function)
    def wrapper(*arguments: P.args, **options: P.kwargs) -> T:
        first: Any = arguments[0]
        table: Segments = getattr(first, "store", first)
        return table.read(lambda: function(*arguments, **options))

    return wrapper


class Pending:
    """New rows of a table, which are written from time to time and at the end of a context.

    Parameters
    ----------
    write : callable
        Writes a list of rows.
    """

    def __init__(self, write: Callable[[list[dict[str, Any]]], None]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._write = write
        self._written_s = time.monotonic()

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Write what is buffered."""
        self.flush()

    def tick(self) -> None:
        """Write the rows if the last write is `FLUSH_S` ago."""
        if time.monotonic() - self._written_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write the rows.

        Raises
        ------
        OSError
            If they cannot be written; they are then kept.
        """
        if self.rows:
            self._write(self.rows)
            self.rows = []
        self._written_s = time.monotonic()


def _parquet(table: pl.DataFrame) -> bytes:
    """Return a table as the contents of a Parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()
