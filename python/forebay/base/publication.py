"""Files that appear whole or not at all, also where the disk is full or Ctrl-C comes."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.base.output_folder import UNFINISHED

if TYPE_CHECKING:
    from polars import DataFrame

    #: Of a file: text, bytes, values for JSON, a table as the name ends (.parquet, .csv), or what
    #: writes it to the path that it is given.
    Content = str | bytes | Mapping[str, Any] | DataFrame | Callable[[Path], object]


def publish(
    folder: str | os.PathLike[str],
    files: Mapping[str, Content],
    *,
    replaces: Iterable[str] = (),
) -> list[Path]:
    """Writes files into a folder, made if need be, and returns where they are.

    files: contents by name. replaces: patterns of the names that a former call may have written;
    those that are not written now go. Raises `OSError` where the disk is full or fails; the folder
    is then as it was.
    """
    with publication(folder, replaces=replaces) as unfinished:
        for name, content in files.items():
            write(unfinished / name, content)
    return [Path(folder) / name for name in files]


def publish_file(path: Path, content: Content) -> None:
    """`publish` of one file. What is no plain file, such as /dev/stdout, or stands in a folder that
    cannot be written to, is written as it is."""
    if path.exists() and (path.is_symlink() or not path.is_file()):
        write(path, content)
        return
    try:
        publish(path.parent, {path.name: content})
    except PermissionError:
        write(path, content)


@contextmanager
def publication(
    folder: str | os.PathLike[str], *, replaces: Iterable[str] = (), keep: str = ""
) -> Iterator[Path]:
    """A directory whose files and folders go into `folder` at its end.

    replaces: as of `publish`. keep: of an interruption, a folder in it whose files are whole: with
    any, they go to their place, too.
    """
    path = Path(folder).absolute()
    made = _make_parents(path.parent)
    # In the folder itself, which may be all that one can write to; a new one appears as a whole.
    unfinished = Path(
        tempfile.mkdtemp(prefix=UNFINISHED, dir=path if path.is_dir() else path.parent)
    )
    try:
        unfinished.chmod(0o777 & ~_umask())
        yield unfinished
        _move(unfinished, path, replaces)
    except KeyboardInterrupt:
        if keep and any((unfinished / keep).glob("*")):
            _move(unfinished, path, replaces)
        raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        # Innermost first: parents made for nothing are empty, others stay.
        for parent in reversed(made):
            if not any(parent.iterdir()):
                parent.rmdir()


def write(path: Path, content: Content) -> None:
    """Writes one file by the kind of its content. Raises `OSError` where the disk fails."""
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, Mapping):
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    else:
        with disk_errors(path):
            if callable(content):
                content(path)
            else:
                (content.write_csv if path.suffix == ".csv" else content.write_parquet)(path)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Faults of the disk, where polars writes to a file, as `OSError` with its name."""
    from polars.exceptions import ComputeError

    try:
        yield
    except (ComputeError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        # Polars puts the number of the error into a sentence.
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else getattr(error, "errno", None) or errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _move(unfinished: Path, path: Path, replaces: Iterable[str]) -> None:
    """At once where the place is free, else name by name."""
    if not path.exists():
        unfinished.rename(path)
        return
    written = sorted(unfinished.iterdir())
    former = {old for pattern in replaces for old in path.glob(pattern)}
    for old in former - {path / new.name for new in written}:
        _remove(old)
    for new in written:
        _remove(path / new.name, only_folder=True)
        new.rename(path / new.name)


def _remove(path: Path, *, only_folder: bool = False) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif not only_folder:
        path.unlink(missing_ok=True)


def _make_parents(directory: Path) -> list[Path]:
    """Makes a directory with its parents, and returns those that are new, outermost first."""
    new = [path for path in [directory, *directory.parents] if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return new[::-1]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
