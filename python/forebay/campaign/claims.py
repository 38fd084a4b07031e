"""What a paper claims of an experiment: `NAME.claims.toml` beside the scenario `NAME.toml`.

The file has `[[claim]]` tables, `[[figure]]` tables for the paper's page, `[points]` that name
points of the sweep, and `[[variant]]` tables with keys to set for another reading of the paper.
docs/howto/replay.md has every key.
"""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from forebay._native import ScenarioError, quantity
from forebay.scenario import names

T = TypeVar("T")

SUFFIX = names.CLAIMS

#: Start and end in s.
Window = tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """One sentence or number of a paper, and what to measure for it."""

    id: str
    #: Figure, table or section.
    where: str
    #: The claim, in our words.
    says: str
    #: An expression over measures: see `forebay.campaign.replay`.
    value: str
    #: A number, or a bound such as "< 1".
    published: float | str
    #: Largest deviation that reproduces the claim, as a share of `published` …
    tolerance: float = 0.0
    #: … or absolute, whichever is wider.
    within: float = 0.0
    #: What the number was printed to show, as a comparison: "std('a') < std('b')".
    direction: str = ""
    unit: str = ""
    #: Name of a point; the first one where it is empty.
    point: str = ""
    window: Window | None = None
    #: The same value in ns-2, and the reference case it is from.
    ns2: float | None = None
    ns2_case: str = ""
    #: Variants to measure it under too.
    variants: list[str] = field(default_factory=list)
    #: Text for every verdict; {NAME} is the value under that variant …
    note: str = ""
    #: … and only where the claim is not reproduced.
    why: str = ""

    @property
    def bound(self) -> tuple[str, float] | None:
        """The sign and number of a `published` bound: ("<", 1.0) of "< 1"."""
        if not isinstance(self.published, str):
            return None
        sign, number = re.split(r"\s+", self.published, maxsplit=1)
        return sign, float(number)


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, drawn from our runs."""

    #: As the paper numbers it.
    where: str
    title: str
    #: Of `forebay.campaign.paper_page.KINDS`, or "measure".
    kind: str
    points: list[str] = field(default_factory=list)
    laws: list[str] = field(default_factory=list)
    #: A part of the time to show.
    window: Window | None = None
    #: For "measure": what is drawn, over points, or over these windows.
    measure: str = ""
    windows: list[Window] = field(default_factory=list)
    #: For "series": columns of the samples.
    columns: list[str] = field(default_factory=list)
    caption: str = ""
    #: Drawn from the runs of this variant.
    variant: str = ""


@dataclass(frozen=True)
class Variant:
    """Another reading of the paper: keys to set on top of the scenario."""

    name: str
    says: str
    sets: dict[str, Any] = field(default_factory=dict)
    #: Labels of the laws that run; all where it is empty.
    laws: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class PaperExperiment:
    """A claims file, and the scenario of a paper beside it."""

    path: Path
    claims: list[Claim]
    figures: list[Figure]
    variants: dict[str, Variant]
    #: Name to what the sweep sets there.
    points: dict[str, dict[str, Any]]

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)

    @property
    def scenario(self) -> Path:
        return self.path.with_name(f"{self.name}.toml")


@dataclass(frozen=True)
class Paper:
    """A directory of experiments: `name` is the directory's, `title` its README's heading."""

    name: str
    title: str
    experiments: list[PaperExperiment]


def papers(directory: Path | None = None) -> list[Paper]:
    """Every paper: a subdirectory that has claims, with its experiments in order of name.

    Without a directory, the experiments here and those that come with Forebay.
    """
    if directory is None:
        folders = list(names.folders().values())
    elif directory.is_dir():
        folders = [path for path in directory.iterdir() if path.is_dir()]
    else:
        raise ScenarioError(f'--experiments: found "{directory}", allowed: a directory')
    found = []
    for folder in sorted(folders, key=lambda path: path.name):
        files = sorted(folder.glob(f"*{SUFFIX}"))
        if files:
            experiments = [_experiment(path) for path in files]
            found.append(Paper(folder.name, _title(folder), experiments))
    return found


def _title(folder: Path) -> str:
    readme = folder / "README.md"
    if not readme.is_file():
        return folder.name
    return readme.read_text().partition("\n")[0].removeprefix("# ")


def _experiment(path: Path) -> PaperExperiment:
    try:
        document = tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path}: {error}") from error
    _known(path, document, {"points", "claim", "figure", "variant"})

    def tables(name: str, kind: type[T]) -> list[T]:
        rows = enumerate(document.get(name, []))
        return [_table(f"{path}: {name}.{i}", kind, row) for i, row in rows]

    variants = {one.name: one for one in tables("variant", Variant)}
    read = PaperExperiment(
        path, tables("claim", Claim), tables("figure", Figure), variants, document.get("points", {})
    )
    _check(read)
    return read


def _check(read: PaperExperiment) -> None:
    """Raises `ScenarioError` for names that the file lacks, and claims without a tolerance."""

    def named(where: str, name: str, known: Mapping[str, object], table: str) -> None:
        if name and name not in known:
            allowed = ", ".join(known) or f"none, as the file has no {table}"
            raise ScenarioError(f'{where}: found "{name}", allowed: {allowed}')

    seen: set[str] = set()
    for claim in read.claims:
        where = f"{read.path}: claim {claim.id}"
        if claim.id in seen:
            raise ScenarioError(f"{where}: found twice, allowed: ids that differ")
        seen.add(claim.id)
        if isinstance(claim.published, str):
            if not re.fullmatch(r"[<>]\s+-?\d+(\.\d+)?(e-?\d+)?", claim.published):
                raise ScenarioError(
                    f'{where}: published: found "{claim.published}", allowed: a number, '
                    'or a bound such as "< 1"'
                )
        elif not (claim.tolerance or claim.within):
            raise ScenarioError(f"{where}: found no tolerance, allowed: tolerance or within")
        for name in claim.variants:
            named(f"{where}: variants", name, read.variants, "[[variant]]")
        named(f"{where}: point", claim.point, read.points, "[points]")
    for figure in read.figures:
        where = f"{read.path}: {figure.where}"
        named(f"{where}: variant", figure.variant, read.variants, "[[variant]]")
        for name in figure.points:
            named(f"{where}: point", name, read.points, "[points]")


def _known(where: object, table: Mapping[str, Any], allowed: set[str]) -> None:
    for key in table:
        if key not in allowed:
            raise ScenarioError(
                f"{where}: {key}: found an unknown key, allowed: {', '.join(allowed)}"
            )


def _table(where: str, kind: type[T], table: dict[str, Any]) -> T:
    """A dataclass from a table, each value of the type that its field has."""
    hints = get_type_hints(kind)
    _known(where, table, set(hints))
    values: dict[str, Any] = {}
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        hint = hints[one.name]
        if one.name in table:
            values[one.name] = _value(f"{where}: {one.name}", hint, table[one.name])
        elif one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING:
            raise ScenarioError(f"{where}: {one.name}: found nothing, allowed: {_allowed(hint)}")
    return kind(**values)


def _value(where: str, hint: Any, value: Any) -> Any:
    if hint in (Window, Window | None):
        return _window(where, value)
    if hint == list[Window]:
        return [_window(where, one) for one in value]
    fits: bool = isinstance(value, _types(hint)) and not isinstance(value, bool)
    if not fits:
        found = json.dumps(value, ensure_ascii=False, default=str)
        raise ScenarioError(f"{where}: found {found}, allowed: {_allowed(hint)}")
    return float(value) if hint is float else value


def _types(hint: Any) -> tuple[type, ...]:
    """The types that a value of a field may have; a whole number is a float, too."""
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    types = tuple(get_origin(kind) or kind for kind in kinds)
    return (*types, int) if float in types else types


def _allowed(hint: Any) -> str:
    """The same in words."""
    words = {str: "a text", float: "a number", list: "a list", dict: "a table"}
    return " or ".join(words[one] for one in _types(hint) if one in words)


def _window(where: str, value: Any) -> Window:
    if not isinstance(value, list) or len(value) != 2:
        allowed = 'two times such as ["0s", "1s"]'
        raise ScenarioError(f"{where}: found {json.dumps(value, default=str)}, allowed: {allowed}")
    start, end = (quantity(where, str(text), "time") for text in value)
    return start, end
