"""Publish files whole or not at all, and check the places that will receive them.

A file or a folder appears whole even if the disk is full, Ctrl-C arrives, or the process is killed.
The checks refuse, before time is spent, a place that cannot be written to and a folder that holds
the result of another command.
"""

from __future__ import annotations

import ctypes
import errno
import glob
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from forebay._base.errors import OtherResultError, ParameterError, reason_of

#: Age in seconds at which the unfinished folder of another process is removed.
UNFINISHED_S = 3600.0
#: Number of bytes that are written to test whether a disk is full: more than the rest of a block.
PROBE_BYTES = 1 << 17
#: Errors of the disk, which any file may meet.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

if TYPE_CHECKING:
    from polars import DataFrame

    #: The content of a file: a text, bytes, values for JSON, a table whose format the suffix of the
    #: name selects (.parquet or .csv), or a function that writes to a path.
    Content = str | bytes | Mapping[str, Any] | DataFrame | Callable[[Path], object]


def publish(
    folder: str | os.PathLike[str], files: Mapping[str, Content], *, replaces: Iterable[str] = ()
) -> list[Path]:
    """Write files into a folder, which is created if it does not exist.

    Parameters
    ----------
    folder : str | os.PathLike[str]
        The folder.
    files : Mapping[str, Content]
        The contents of each file by name; the kinds of content are those of `Content`.
    replaces : Iterable[str], default ()
        Patterns of the names that a former call may have written; those that are not written now
        are removed.

    Returns
    -------
    list[Path]
        The paths of the files.

    Raises
    ------
    OSError
        If the disk is full or fails; the folder is then unchanged.
    """
    with publication(folder, replaces=replaces) as unfinished:
        for name, content in files.items():
            write(unfinished / name, content)
    return [Path(folder) / name for name in files]


def publish_file(path: Path, content: Content) -> None:
    """Write one file whole or not at all.

    A path that is not a regular file, such as /dev/stdout, or whose folder cannot be written to, is
    written directly.

    Parameters
    ----------
    path : Path
        Path of the file.
    content : Content
        Its content; the kinds are those of `Content`.

    Raises
    ------
    OSError
        If the disk is full or fails.
    """
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
    """Yield a directory whose files and folders move into `folder` when the context ends.

    Parameters
    ----------
    folder : path
        Folder that receives the files; it is made if it does not exist.
    replaces : iterable of str, optional
        Patterns of the names that a former call may have written; those that are not written now
        are removed. With any pattern, the folder is exchanged in one step if possible.
    keep : str, optional
        Folder within the directory whose files are whole at any time. If an interruption ends the
        context and this folder has files, they move to their place, too.
    """
    path, replaces = Path(folder).absolute(), list(replaces)
    new_parents = _make_parents(path.parent)
    _sweep(path)
    unfinished = _unfinished(path, next_to=bool(replaces) or not path.is_dir())
    try:
        unfinished.chmod(0o777 & ~_umask())
        yield unfinished
        _move(unfinished, path, replaces)
    except KeyboardInterrupt:
        if keep and any((unfinished / keep).glob("*")):
            _move(unfinished, path, replaces)
        raise
    except OSError as error:
        _raise_with_name(error, unfinished, path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        # Innermost first: new parents that received nothing are empty and go; all others stay.
        for parent in reversed(new_parents):
            if not any(parent.iterdir()):
                parent.rmdir()


def _raise_with_name(error: OSError, unfinished: Path, path: Path) -> NoReturn:
    """Raise an error of the disk with the final path of the file.

    The original error may name no file, or a file in the unfinished folder, which is removed.
    """
    if error.filename is None and error.errno in DISK_ERRORS:
        name = unfinished
    elif isinstance(error.filename, str | bytes):
        name = Path(os.fsdecode(error.filename))
    else:
        raise error
    if not name.is_relative_to(unfinished):
        raise error
    name = path / name.relative_to(unfinished)
    assert error.errno is not None
    raise OSError(error.errno, error.strerror or os.strerror(error.errno), str(name)) from error


def _unfinished(path: Path, *, next_to: bool) -> Path:
    """Make a folder next to `path` if that is wanted and possible, otherwise in `path`."""
    prefix = f"{UNFINISHED}{path.name}-"
    if path.is_dir() and (not next_to or path.stat().st_dev != path.parent.stat().st_dev):
        return Path(tempfile.mkdtemp(prefix=prefix, dir=path))
    try:
        return Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    except PermissionError:
        if not path.is_dir():
            raise
        return Path(tempfile.mkdtemp(prefix=prefix, dir=path))


def write(path: Path, content: Content) -> None:
    """Write one file according to the kind of its content.

    Parameters
    ----------
    path : Path
        Path of the file.
    content : Content
        Its content.

    Raises
    ------
    OSError
        If the disk is full or fails; the error names the file.
    """
    try:
        _write(path, content)
    except OSError as error:
        # An error of a file object does not name the file.
        _raise_with_name(error, path, path)


def _write(path: Path, content: Content) -> None:
    """Write one file according to the kind of its content."""
    if isinstance(content, str):
        # A command line may name a file whose name is not UTF-8.
        path.write_text(content, encoding="utf-8", errors="backslashreplace")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, Mapping):
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    else:
        with disk_errors(path):
            if callable(content):
                content(path)
            else:
                # polars takes no path that is not UTF-8, but an open file.
                with path.open("wb") as file:
                    (content.write_csv if path.suffix == ".csv" else content.write_parquet)(file)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Enter a context that turns errors of polars about the disk into `OSError` with the path."""
    from polars.exceptions import ComputeError

    try:
        yield
    except (ComputeError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        # Polars puts the number of the error into a sentence, or omits it.
        match = re.search(r"\(os error (\d+)\)", str(error))
        number = int(match[1]) if match else getattr(error, "errno", None)
        if number is None:
            number = errno.ENOSPC if _is_full(path) else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def _is_full(path: Path) -> bool:
    """Return True if a file cannot grow: at its end, the disk has no block left for it."""
    try:
        with path.open("ab") as file:
            file.write(bytes(PROBE_BYTES))
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def _move(unfinished: Path, path: Path, replaces: Iterable[str]) -> None:
    """Put the files of `unfinished` into `path`, and remove the files that they replace.

    A new folder appears whole, and a folder whose former files are replaced is exchanged as a
    whole, so a process that is killed leaves the former result or the new one and never a
    mixture. Where the file system has no exchange, files are replaced one by one.
    """
    _flush(unfinished)
    if not path.exists():
        unfinished.rename(path)
    else:
        written = sorted(unfinished.iterdir())
        former = {old for pattern in replaces for old in path.glob(pattern)}
        former -= {path / new.name for new in written}
        if not (replaces and _exchange(unfinished, path, former)):
            for old in former:
                _remove(old)
            for new in written:
                _remove(path / new.name, only_folder=True)
                new.rename(path / new.name)
    _flush_folder(path if path.exists() else path.parent)
    _flush_folder(path.parent)


def _exchange(unfinished: Path, path: Path, former: set[Path]) -> bool:
    """Exchange two folders in one step; return False if that is not possible here.

    The other files of `path` are linked into the new folder first. A folder that somebody works
    in, one that has other folders, and a mount point stay in place.
    """
    if unfinished.parent == path or Path.cwd().is_relative_to(path):
        return False
    new_names = {new.name for new in unfinished.iterdir()}
    other_entries = [
        old for old in path.iterdir() if old not in former and old.name not in new_names
    ]
    if any(old.is_dir() and not old.is_symlink() for old in other_entries):
        return False
    try:
        unfinished.chmod(path.stat().st_mode)
        for old in other_entries:
            os.link(old, unfinished / old.name, follow_symlinks=False)
        _renameat2_exchange(unfinished, path)
    except OSError:
        for old in other_entries:
            (unfinished / old.name).unlink(missing_ok=True)
        return False
    return True


def _renameat2_exchange(first: Path, second: Path) -> None:
    """Exchange two paths by Linux's renameat2(2).

    Raises
    ------
    OSError
        If the system or the file system has no such call.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    at_fdcwd, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    if libc.renameat2(at_fdcwd, os.fsencode(first), at_fdcwd, os.fsencode(second), exchange):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(second))


def _flush(folder: Path) -> None:
    """Write the files below a folder to the disk, so that they outlive a power failure."""
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        elif file.is_dir():
            _flush_folder(file)
    _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    """Write the entries of a folder to the disk."""
    if os.name == "nt":
        return  # Windows opens no folders.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sweep(path: Path) -> None:
    """Remove what killed processes have left of former attempts to write `path`."""
    for old in path.parent.glob(f"{UNFINISHED}{glob.escape(path.name)}-*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > UNFINISHED_S:
                shutil.rmtree(old)


def _remove(path: Path, *, only_folder: bool = False) -> None:
    """Remove a file or a folder; with `only_folder`, only a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif not only_folder:
        path.unlink(missing_ok=True)


def _make_parents(directory: Path) -> list[Path]:
    """Create a directory with its parents, and return those that are new, outermost first."""
    new = [path for path in [directory, *directory.parents] if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return new[::-1]


def _umask() -> int:
    """Return the file mode creation mask of this process."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


#: Prefix of the name of a folder that is not complete yet.
UNFINISHED = ".forebay-"
A_FILE = "it is a file"


def check_folder(out: str | os.PathLike[str], name: str = "out") -> None:
    """Refuse a directory that cannot be written to, before time is spent.

    Parameters
    ----------
    out : str | os.PathLike[str]
        The directory.
    name : str, default 'out'
        Name of the parameter, for the error.

    Raises
    ------
    ParameterError
        If the directory cannot be written to.
    """
    if reason := why_not_writable(Path(out)):
        new = (
            "a directory, new or not" if reason == A_FILE else "a directory that can be written to"
        )
        raise ParameterError(name, out, new, reason=reason)


def why_not_writable(folder: Path) -> str:
    """Return why a folder cannot be created or written to; empty if it can.

    The test leaves no file behind.
    """
    path = folder.absolute()
    try:
        if path.exists() and not path.is_dir():
            return A_FILE
        existing = next(parent for parent in [path, *path.parents] if parent.exists())
        # Permissions prove nothing: root has all of them, and cannot write in /proc.
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=existing):
            pass
    except OSError as error:
        return reason_of(error)
    return ""


def check_file(path: Path, name: str) -> None:
    """Refuse a file that cannot be written, before time is spent.

    Parameters
    ----------
    path : Path
        Path of the file.
    name : str
        Name of the parameter, for the error.

    Raises
    ------
    ParameterError
        If the file cannot be written.
    """
    new = not path.exists()
    try:
        # Permissions prove nothing: root has all of them.
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        expected = "a file that can be written, in a directory that exists"
        raise ParameterError(name, path, expected, reason=reason_of(error)) from error


def digest_of(facts: object) -> str:
    """Return the digest of what a result depends on: texts, numbers, lists and tables of them."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def claim(
    out: Path,
    command: str,
    digest: str,
    *,
    force: bool,
    numbers: str = "metrics.json",
    key: str = "digest",
    name: str = "out",
    seeds: int = 0,
) -> None:
    """Refuse a directory that holds the result of another command, before time is spent.

    A result is replaced by one of the same digest, with as many seeds or more, and by that of the
    same command, whose scenario may have been edited.

    Parameters
    ----------
    out, command : Path, str
        The directory, and the command that is to write to it.
    digest : str
        Digest of what its numbers depend on.
    force : bool
        True to replace any result.
    numbers, key : str
        The JSON file of a result, and its key that has the digest.
    name : str
        Name of the parameter in errors.
    seeds : int
        Seeds of each law at each point, where the digest does not have them.

    Raises
    ------
    OtherResultError
        If the directory holds the result of another command, or one that a former version wrote
        without a digest.
    """
    former = _former(out / numbers)
    former_command, former_digest = str(former.get("command", "")), former.get(key)
    if force or not former_command or former_command == command:
        return
    if former_digest == digest and seeds >= _seeds(former):
        return
    raise OtherResultError(name, out, former_command, undigested=former_digest is None)


def _former(numbers: Path) -> dict[str, Any]:
    """Return the facts in the file of a former result; empty if there is none."""
    try:
        facts = json.loads(numbers.read_bytes())
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _seeds(former: dict[str, Any]) -> int:
    """Return the number of seeds of a result; 0 if its file does not list its runs."""
    try:
        return len({run["seed"] for run in former["runs"]})
    except (KeyError, TypeError):
        return 0
