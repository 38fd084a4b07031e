"""Where a store lies: a folder, or any address that fsspec knows; files come there whole or not
at all."""

from __future__ import annotations

import errno
import io
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import polars as pl

from forebay._native import ScenarioError

#: How a file begins that is not whole yet, and how long one is left alone.
UNFINISHED, UNFINISHED_S = ".new-", 3600.0


class Folder:
    """A folder of this machine, with files by names such as "runs/v3/1.parquet"."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = str(path)

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
        return (self.path / name).read_bytes()

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
        """Parquet files as one table of these columns; one that an older file lacks is null."""
        paths = [self.path / name for name in names]
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
            raise ScenarioError(
                f'--store: found "{address}", allowed: a folder; an address needs fsspec: '
                "pip install 'forebay[remote]'"
            ) from error
        self.address = address
        try:
            self.files, self.root = fsspec.core.url_to_fs(address)
        except (ImportError, ValueError) as error:
            raise ScenarioError(f'--store: found "{address}", {error}') from error

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
        with self._errors():
            return bytes(self.files.cat_file(f"{self.root}/{name}"))

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
    """The place of an address. Raises `ScenarioError`."""
    text = os.fspath(address)
    if "://" in text and not text.startswith("file://"):
        return Remote(text)
    return Folder(Path(text.removeprefix("file://")))
