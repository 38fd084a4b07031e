"""Find experiments that are called by name, such as `pi-pd/load`.

Experiments in a folder `experiments` of the working directory come first, then those of Forebay:
from the checkout if Forebay runs from one, or else from the package
(docs/contribute/decisions/017).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from forebay._native import ScenarioError

#: Name of the folder of experiments in a checkout, in the package and in the working directory.
FOLDER = "experiments"
#: Names of files in that folder which are not scenarios.
CLAIMS, SUITE = ".claims.toml", "suite.toml"
#: The name of an experiment as a user types it: a folder and a file.
NAME = re.compile(rf"(?:{FOLDER}/)?([\w-]+)/([\w-]+)(?:\.toml)?")


def own() -> Path:
    """Return the folder of the experiments that come with Forebay."""
    package = Path(__file__).parents[1]
    checkout = package.parents[1]
    if (checkout / "Cargo.toml").is_file() and (checkout / FOLDER).is_dir():
        return checkout / FOLDER
    return package / FOLDER


def folders() -> dict[str, Path]:
    """Return the folders of experiments by name; the working directory comes first."""
    by_name: dict[str, Path] = {}
    for root in (Path(FOLDER), own()):
        if root.is_dir():
            for folder in sorted(path for path in root.iterdir() if path.is_dir()):
                by_name.setdefault(folder.name, folder)
    return by_name


def scenarios() -> dict[str, Path]:
    """Return the scenarios by name, such as `pi-pd/load`."""
    return {
        f"{folder.name}/{file.stem}": file
        for folder in folders().values()
        for file in sorted(folder.glob("*.toml"))
        if file.name != SUITE and not file.name.endswith(CLAIMS)
    }


def path(name: str | os.PathLike[str]) -> Path:
    """Return the file that a name means.

    A file of that name in the working directory comes first, then an experiment, then the name
    itself.
    """
    file = Path(name)
    experiment = NAME.fullmatch(file.as_posix())
    if experiment is None or file.is_file():
        return file
    return scenarios().get("/".join(experiment.groups()), file)


def shown(file: Path) -> str:
    """Return the name of a file for pages and commands.

    Parameters
    ----------
    file : Path
        The file. A file of Forebay's own experiments has the same name on every machine.
    """
    inside = own()
    if not file.is_relative_to(inside):
        return str(file)
    return f"{FOLDER}/{file.relative_to(inside).as_posix()}"


def stem(name: str | os.PathLike[str]) -> str:
    """Return the name of the folder for results of a scenario.

    It is the stem of a file, or the name of an experiment with "-" between its parts.
    """
    file = Path(name)
    experiment = NAME.fullmatch(file.as_posix())
    if experiment is None or file.is_file() or path(file) == file:
        return file.stem
    return "-".join(experiment.groups())


def missing(name: str, reason: str) -> ScenarioError:
    """Return the error about a scenario that cannot be read, with experiments of similar names.

    Parameters
    ----------
    name : str
        The name that was given.
    reason : str
        Why it cannot be read.
    """
    near = ", ".join(_near(name))
    proposal = f"such as {near}" if near else "of `forebay experiments`"
    return ScenarioError(
        f"{name}: {reason}; expected a scenario file in TOML, or an experiment {proposal}"
    )


def _near(name: str) -> Iterator[str]:
    """Yield experiments with similar names.

    They are all experiments of a folder, or those whose name is almost the same.
    """
    names = list(scenarios())
    typed = name.removeprefix(f"{FOLDER}/").removesuffix(".toml").strip("/")
    of_folder = [experiment for experiment in names if experiment.partition("/")[0] == typed]
    if of_folder:
        yield from of_folder
    elif "/" in typed:
        yield from get_close_matches(typed, names, n=3)
    else:
        yield from (experiment for experiment in names if experiment.partition("/")[2] == typed)
