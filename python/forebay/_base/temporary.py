"""Temporary folders that are removed even if their process is killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

#: Prefix of the names of temporary folders; the number of the owning process follows.
PREFIX = "forebay-run-"


def own_prefix(pid: int | None = None) -> str:
    """Return the prefix of the names of a process's folders, by default of this process.

    It holds the number of the process and, on Linux, its PID namespace: a command of `forebay link`
    and a container have their own numbers, and may share the folder /tmp.
    """
    return f"{PREFIX}{_namespace()}-{os.getpid() if pid is None else pid}-"


def _namespace() -> int:
    """Return the number of this process's PID namespace; 0 on other systems than Linux."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


def temporary_folder(place: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary folder of this process, and remove those of processes that are gone.

    Parameters
    ----------
    place : Path, optional
        Folder to make it in; by default that of `tempfile`.
    """
    tidy([place] if place else [])
    return tempfile.TemporaryDirectory(prefix=own_prefix(), dir=place, ignore_cleanup_errors=True)


def tidy(places: Iterable[Path] = ()) -> None:
    """Remove folders of processes that were killed, from these places and the temporary one.

    Only this user's own folders are removed: other users may write to the place, too.
    """
    for place in {*places, Path(tempfile.gettempdir())}:
        start = f"{PREFIX}{_namespace()}-"
        for folder in place.glob(f"{start}*"):
            pid = folder.name.removeprefix(start).partition("-")[0]
            if pid.isdigit() and not _is_alive(int(pid)) and _is_own_folder(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    """Return True if a process of this number may exist."""
    if os.name != "posix":
        return True  # On Windows, signal 0 would end the process.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _is_own_folder(path: Path) -> bool:
    """Return True if a path is a folder of this user, and not a link to one."""
    try:
        status = path.lstat()
    except OSError:
        return False
    # Elsewhere than on POSIX a file has no user's number, and the place is the user's own.
    return stat.S_ISDIR(status.st_mode) and status.st_uid == getattr(os, "getuid", int)()
