"""Experiments that are called by name, such as `pi-pd/load`: which there are, and where.

Those of a folder `experiments` here come first, then those that come with Forebay: the checkout's
where it runs from one, else the package's (docs/contribute/decisions/017).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from forebay._native import ScenarioError

#: Folder of the experiments, in a checkout, in the package and here.
FOLDER = "experiments"
#: Files in it that are no scenarios.
CLAIMS, SUITE = ".claims.toml", "suite.toml"
#: A folder and a file, as one types it.
NAME = re.compile(rf"(?:{FOLDER}/)?([\w-]+)/([\w-]+)(?:\.toml)?")


def own() -> Path:
    """The experiments that come with Forebay."""
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    if (checkout / "Cargo.toml").is_file() and (checkout / FOLDER).is_dir():
        return checkout / FOLDER
    return package / FOLDER


def folders() -> dict[str, Path]:
    """Folders of experiments by name; of two with one name, the one here."""
    found: dict[str, Path] = {}
    for root in (Path(FOLDER), own()):
        if root.is_dir():
            for folder in sorted(path for path in root.iterdir() if path.is_dir()):
                found.setdefault(folder.name, folder)
    return found


def scenarios() -> dict[str, Path]:
    """Scenarios by name, such as `pi-pd/load`."""
    return {
        f"{folder.name}/{file.stem}": file
        for folder in folders().values()
        for file in sorted(folder.glob("*.toml"))
        if file.name != SUITE and not file.name.endswith(CLAIMS)
    }


def path(name: str | os.PathLike[str]) -> Path:
    """The file that is meant: one of that name here, else the experiment, else the name itself."""
    file = Path(name)
    experiment = NAME.fullmatch(file.as_posix())
    if experiment is None or file.is_file():
        return file
    return scenarios().get("/".join(experiment.groups()), file)


def shown(file: Path) -> str:
    """What to call a file in pages and commands: of our own, what is the same on any machine."""
    inside = own()
    if not file.is_relative_to(inside):
        return str(file)
    return f"{FOLDER}/{file.relative_to(inside).as_posix()}"


def stem(name: str | os.PathLike[str]) -> str:
    """A name for the folder of results: of a file, its own; of an experiment, all of it."""
    file = Path(name)
    experiment = NAME.fullmatch(file.as_posix())
    if experiment is None or file.is_file() or path(file) == file:
        return file.stem
    return "-".join(experiment.groups())


def missing(name: str, reason: str) -> ScenarioError:
    """What to say of a scenario that cannot be read, with the experiments of similar names."""
    near = ", ".join(_near(name))
    which = f"such as {near}" if near else "of `forebay experiments`"
    return ScenarioError(
        f"{name}: {reason}; expected a scenario file in TOML, or an experiment {which}"
    )


def _near(name: str) -> Iterator[str]:
    """Experiments that may be meant: all of a folder, or those of a name that is almost this."""
    known = list(scenarios())
    typed = name.removeprefix(f"{FOLDER}/").removesuffix(".toml").strip("/")
    of_folder = [one for one in known if one.partition("/")[0] == typed]
    if of_folder:
        yield from of_folder
    elif "/" in typed:
        yield from get_close_matches(typed, known, n=3)
    else:
        yield from (one for one in known if one.partition("/")[2] == typed)
