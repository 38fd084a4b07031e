"""A paper's claims and its control figures, which stand with its experiments.

The claims about the experiment `NAME.toml` are in `NAME.claims.toml`. That file has `[[claim]]`
tables, `[[figure]]` tables for the paper's page, `[points]` that name points of the sweep, and
`[[variant]]` tables with keys to set for another reading of the paper.
docs/howto/replay.md has every key.

`pi-pd/pi_pd_figures.py` has the control figures of pi-pd in its `FIGURES`, by name, and the theory
that only they need. Only files that come with Forebay are loaded.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from forebay._base.errors import ParameterError
from forebay._native import ScenarioError, quantity
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay.report.plot import Plot

T = TypeVar("T")

SUFFIX = names.CLAIMS

#: Start and end in seconds.
Window = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """A sentence or number of a paper, and what to measure for it."""

    id: str
    #: Figure, table or section of the paper.
    where: str
    #: The claim in our words.
    says: str
    #: An expression over measures: see `forebay.campaign.replay`.
    value: str
    #: A number, or a bound such as "< 1".
    published: float | str
    #: Largest relative deviation that reproduces the claim …
    tolerance: float = 0.0
    #: … and largest absolute deviation; the wider of both counts.
    within: float = 0.0
    #: The comparison that the number was printed to show: "std('a') < std('b')".
    direction: str = ""
    unit: str = ""
    #: Name of a point; the first point if it is empty.
    point: str = ""
    window: Window | None = None
    #: The same value in ns-2, and the reference case that this value is from.
    ns2: float | None = None
    ns2_case: str = ""
    #: Variants under which it is measured, too.
    variants: list[str] = field(default_factory=list)
    #: Text for every verdict; {NAME} is the value under that variant …
    note: str = ""
    #: … and text for a claim that is not reproduced.
    why: str = ""

    @property
    def bound(self) -> tuple[str, float] | None:
        """The sign and number of a `published` bound: ("<", 1.0) of "< 1"."""
        if not isinstance(self.published, str):
            return None
        sign, number = self.published.split(maxsplit=1)
        return sign, float(number)


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, drawn from our runs."""

    #: The paper's number of the figure.
    where: str
    title: str
    #: A kind of `forebay.campaign.paper_page.KINDS`, or "measure".
    kind: str
    points: list[str] = field(default_factory=list)
    laws: list[str] = field(default_factory=list)
    #: The part of the time that it shows.
    window: Window | None = None
    #: The measure of a figure of kind "measure", which is over points or over these windows.
    measure: str = ""
    windows: list[Window] = field(default_factory=list)
    #: The columns of the samples that a figure of kind "series" shows.
    columns: list[str] = field(default_factory=list)
    caption: str = ""
    #: The variant whose runs it shows.
    variant: str = ""


@dataclass(frozen=True)
class Variant:
    """Another reading of the paper: keys to set on top of the scenario."""

    name: str
    says: str
    sets: dict[str, Any] = field(default_factory=dict)
    #: Labels of the laws that run; all laws if it is empty.
    laws: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PaperExperiment:
    """A claims file, and the scenario of a paper next to it."""

    path: Path
    claims: list[Claim]
    figures: list[Figure]
    variants: dict[str, Variant]
    #: What the sweep sets at each named point.
    points: dict[str, dict[str, Any]]

    @property
    def name(self) -> str:
        """The name of the experiment."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def scenario(self) -> Path:
        """The file of the scenario."""
        return self.path.with_name(f"{self.name}.toml")


@dataclass(frozen=True)
class Paper:
    """A folder of experiments, with the folder's name and the title of its README."""

    name: str
    title: str
    experiments: list[PaperExperiment]


def papers(directory: Path | None = None) -> list[Paper]:
    """Return the papers whose claims are in subfolders of a folder, in order of name.

    By default these are the experiments here and those that come with Forebay.

    Raises
    ------
    ScenarioError
        If the folder does not exist, or a claims file cannot be used.
    """
    if directory is None:
        folders: Iterable[Path] = names.folders().values()
    elif directory.is_dir():
        folders = [path for path in directory.iterdir() if path.is_dir()]
    else:
        raise ParameterError("experiments", directory, "a directory")
    return [
        Paper(folder.name, _title(folder), [_read_experiment(path) for path in files])
        for folder in sorted(folders, key=lambda path: path.name)
        if (files := sorted(folder.glob(f"*{SUFFIX}")))
    ]


def _title(folder: Path) -> str:
    readme = folder / "README.md"
    if not readme.is_file():
        return folder.name
    return readme.read_text().partition("\n")[0].removeprefix("# ")


def _read_experiment(path: Path) -> PaperExperiment:
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    _check_keys(path, document, ["points", "claim", "figure", "variant"])

    def tables(name: str, kind: type[T]) -> list[T]:
        return [
            _read_table(f"{path}: {name}.{number}", kind, table)
            for number, table in enumerate(document.get(name, []))
        ]

    variants = {variant.name: variant for variant in tables("variant", Variant)}
    experiment = PaperExperiment(
        path, tables("claim", Claim), tables("figure", Figure), variants, document.get("points", {})
    )
    _check(experiment)
    return experiment


def _check(experiment: PaperExperiment) -> None:
    """Raise `ScenarioError` for names that the file lacks, and for claims without a tolerance."""

    def check_name(where: str, name: str, table: str) -> None:
        names = experiment.variants if table == "[[variant]]" else experiment.points
        if name and name not in names:
            defined = f"it has {', '.join(names)}" if names else "which is missing"
            raise ScenarioError(f'{where}: "{name}" is not in {table}; {defined}')

    ids: set[str] = set()
    for claim in experiment.claims:
        where = f"{experiment.path}: claim {claim.id}"
        if claim.id in ids:
            raise ScenarioError(f"{where}: another claim has the same id")
        ids.add(claim.id)
        if isinstance(claim.published, str):
            if not re.fullmatch(r"[<>]\s+-?\d+(\.\d+)?(e-?\d+)?", claim.published):
                raise ScenarioError(
                    f'{where}: published: "{claim.published}" is neither a number nor a bound '
                    'such as "< 1"'
                )
        elif not (claim.tolerance or claim.within):
            raise ScenarioError(f"{where}: a number needs a tolerance: tolerance or within")
        for name in claim.variants:
            check_name(f"{where}: variants", name, "[[variant]]")
        check_name(f"{where}: point", claim.point, "[points]")
    for figure in experiment.figures:
        where = f"{experiment.path}: {figure.where}"
        check_name(f"{where}: variant", figure.variant, "[[variant]]")
        for name in figure.points:
            check_name(f"{where}: point", name, "[points]")


def _check_keys(where: object, table: Iterable[str], keys: Collection[str]) -> None:
    for key in table:
        if key not in keys:
            raise ScenarioError(f"{where}: {key}: unknown key; known keys: {', '.join(keys)}")


#: The types that TOML has for a field's type, and their names.
NUMBER = (int, float)
TOML_TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a text"),
    float: (NUMBER, "a number"),
    float | None: (NUMBER, "a number"),
    float | str: ((*NUMBER, str), "a number or a text"),
    list[str]: ((list,), "a list"),
    dict[str, Any]: ((dict,), "a table"),
}


def _read_table(where: str, kind: type[T], table: dict[str, Any]) -> T:
    """Return a dataclass from a table, each value of the type that its field has."""
    hints = get_type_hints(kind)
    _check_keys(where, table, hints)
    values: dict[str, Any] = {}
    for item in dataclasses.fields(kind):  # type: ignore[arg-type]
        if item.name in table:
            values[item.name] = _value(f"{where}: {item.name}", hints[item.name], table[item.name])
        elif item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            raise ScenarioError(f"{where}: the key {item.name} is missing")
    return kind(**values)


def _value(where: str, hint: Any, value: Any) -> Any:
    if hint == Window | None:
        return _window(where, value)
    if hint == list[Window]:
        return [_window(where, window) for window in value]
    types, name = TOML_TYPES[hint]
    fits: bool = isinstance(value, types) and not isinstance(value, bool)
    if not fits:
        raise ScenarioError(f"{where}: {_in_json(value)} is not {name}")
    return float(value) if hint is float else value


def _window(where: str, value: Any) -> Window:
    if not isinstance(value, list) or len(value) != 2:
        raise ScenarioError(f'{where}: {_in_json(value)} is not two times such as ["0s", "1s"]')
    start, end = (quantity(where, str(text), "time") for text in value)
    return start, end


def _in_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# --- control figures ----------------------------------------------------------------------------

#: End of the names of the files with figures.
FIGURES_SUFFIX = "_figures.py"


@cache
def of_paper(paper: str) -> ModuleType:
    """Return the module with the control figures and the theory of a paper, such as "pi-pd"."""
    path = names.own() / paper / f"{paper.replace('-', '_')}{FIGURES_SUFFIX}"
    spec = util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    # A dataclass looks up its module there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def figures() -> dict[str, Callable[[], Plot]]:
    """Return the functions that draw the figures of all papers, by the figures' names."""
    papers = sorted(path.parent.name for path in names.own().glob(f"*/*{FIGURES_SUFFIX}"))
    return {name: draw for paper in papers for name, draw in of_paper(paper).FIGURES.items()}
