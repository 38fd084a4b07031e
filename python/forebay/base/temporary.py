"""Temporary folders that do not stay behind where their process is killed."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

#: Start of the names of temporary folders; the number of the process that has them follows.
PREFIX = "forebay-run-"


def temporary_folder(place: Path | None = None) -> tempfile.TemporaryDirectory[str]:
    """Return a new temporary folder of this process, and remove those of processes that are gone.

    Parameters
    ----------
    place : Path, optional
        Folder to make it in; by default that of `tempfile`.
    """
    tidy([place] if place else [])
    return tempfile.TemporaryDirectory(
        prefix=f"{PREFIX}{os.getpid()}-", dir=place, ignore_cleanup_errors=True
    )


def tidy(places: Iterable[Path] = ()) -> None:
    """Remove folders of processes that were killed, from these places and the temporary one.

    Only this user's own folders are removed: other users may write to the place, too.
    """
    for place in {*places, Path(tempfile.gettempdir())}:
        for folder in place.glob(f"{PREFIX}*"):
            pid = folder.name.removeprefix(PREFIX).partition("-")[0]
            if not pid.isdigit() or Path(f"/proc/{pid}").exists():
                continue
            if _is_own_folder(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    # Elsewhere than on POSIX a file has no user's number, and the place is the user's own.
    return stat.S_ISDIR(status.st_mode) and status.st_uid == getattr(os, "getuid", int)()
