"""Whether a place for files can be written to, and what it already holds."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from pathlib import Path
from typing import Any

from forebay._native import ScenarioError

#: How a folder begins that is not whole yet.
UNFINISHED = ".forebay-"
A_FILE = "a file"


def check(out: str | os.PathLike[str], option: str = "--out") -> None:
    """Refuses a directory that cannot be written to, before the time is spent.

    `option` is its name in errors. Raises `ScenarioError`.
    """
    if reason := why_not_writable(Path(out)):
        new = (
            "a directory, new or not" if reason == A_FILE else "a directory that can be written to"
        )
        raise ScenarioError(f'{option}: found "{out}", {reason}, allowed: {new}')


def why_not_writable(folder: Path) -> str:
    """Why a folder cannot be made or written to, empty where it can; nothing of the trial is
    left."""
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


def reason_of(error: OSError) -> str:
    """What the system says, within a sentence."""
    return (error.strerror or str(error)).lower()


def check_file(path: Path, option: str) -> None:
    """Refuses a file that cannot be written, before the time is spent.

    `option` is its name in errors. Raises `ScenarioError`.
    """
    new = not path.exists()
    try:
        # Permissions prove nothing: root has all of them.
        with path.open("ab"):
            pass
        if new:
            path.unlink()
    except OSError as error:
        raise ScenarioError(
            f'{option}: found "{path}", {reason_of(error)}, allowed: a file that can be '
            "written, in a directory that exists"
        ) from error


def claim(
    out: Path,
    command: str,
    *,
    force: bool,
    numbers: str = "metrics.json",
    option: str = "--out",
    way: str = "--force",
    seeds: int = 0,
    growing: bool = False,
) -> None:
    """Refuses a directory that has the result of another command, before the time is spent.

    The same command replaces its result, also after its scenario was edited, and so does the same
    with more seeds. numbers: the file that has the command of a result. option, way: what names the
    directory in errors, and what replaces it. seeds: of each law at each point.
    growing: a study, which replaces its result also with other options on how much of it is made,
    and where. Raises `ScenarioError`.
    """
    found = _found(out / numbers)
    former = str(found.get("command", ""))
    if force or not former or _words(former) == _words(command):
        return
    if growing and _words(former, MORE + GROWING) == _words(command, MORE + GROWING):
        return
    if seeds > _seeds(found) > 0 and _words(former, MORE) == _words(command, MORE):
        return
    raise ScenarioError(
        f'{option}: found "{out}", which has the result of `{former}`, allowed: {way} to replace '
        "it, or another directory"
    )


def _found(numbers: Path) -> dict[str, Any]:
    """What a result says of itself; empty where there is none."""
    try:
        found = json.loads(numbers.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _seeds(found: dict[str, Any]) -> int:
    """How many seeds a result has; 0 where it does not say."""
    try:
        return len({run["seed"] for run in found["runs"]})
    except (KeyError, TypeError):
        return 0


#: Options that change no number; those that take a value, and those that do not.
ELSEWHERE, ASIDE = (
    ("--out", "--page", "--threads", "--store", "--style", "--metric"),
    ("--no-report", "--force", "--json", "--no-store", "--open", "--retry"),
)
#: The option that adds runs, and leaves the others as they are.
MORE = ("--seeds",)
#: Options on how much of a study is made, and where.
GROWING = ("--add-seeds", "--until", "--most-seeds", "--budget", "--limit", "--on")


def _words(command: str, aside: tuple[str, ...] = ()) -> list[str]:
    """The words of a command that change a number; two ways to name a file are the same.

    aside: options with a value that are left out, too.
    """
    elsewhere = ELSEWHERE + aside
    words, found = iter(shlex.split(command)), []
    for word in words:
        if word in elsewhere:
            next(words, None)
        elif word not in ASIDE and word.partition("=")[0] not in elsewhere:
            found.append(os.path.normpath(word) if "/" in word else word)
    return found
