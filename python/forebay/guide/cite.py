"""The sources of laws, queues, senders and experiments, as BibTeX and as text."""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from forebay import _native
from forebay._base.errors import ParameterError
from forebay._base.words import hint
from forebay._native import ScenarioError, __version__
from forebay.report import templates
from forebay.scenario import names as scenario_names

#: Fields of BibTeX in the order in which they are printed.
FIELDS = (
    *("author", "title", "journal", "booktitle", "institution", "volume", "number", "pages"),
    *("year", "doi", "url", "note"),
)
#: BibTeX types of RFCs and drafts, for which it has none.
TYPES = {"rfc": "techreport", "draft": "unpublished"}
#: Tables of which every scenario has at least one.
SCENARIO = ("bottleneck", "link")
#: Characters that TeX needs escaped in a title or a name.
SPECIAL = str.maketrans({"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_"})


@dataclass(frozen=True)
class Reference:
    """A source.

    Attributes
    ----------
    key : str
        Key in BibTeX.
    type : str
        Type of the source: of BibTeX, or "rfc" or "draft".
    fields : dict of str to str
        Fields of BibTeX.
    of : tuple of str
        Names of laws, queues, senders and kinds of traffic that come from it.
    paper : str
        Name of the folder with its experiments; empty without one.
    """

    key: str
    type: str
    fields: dict[str, str]
    of: tuple[str, ...]
    paper: str

    def bibtex(self) -> str:
        """Return the entry for a .bib file."""
        kind, authors = TYPES.get(self.type, self.type), self.fields["author"].split(", ")
        fields = {**self.fields, "author": " and ".join(authors)}
        # Braces keep the capitals of names such as PI-PD.
        texts = {
            name: f"{{{_tex(name, fields[name])}}}" if name == "title" else _tex(name, fields[name])
            for name in FIELDS
            if name in fields
        }
        return templates.template("reference.bib.j2").render(kind=kind, key=self.key, fields=texts)

    def sentence(self) -> str:
        """Return one line of Markdown, as in a list of references."""
        *first_authors, last = self.fields["author"].split(", ")
        authors = f"{', '.join(first_authors)} and {last}" if first_authors else last
        entry, linked = defaultdict(str, self.fields), self.type in TYPES
        (text,) = templates.paragraphs("reference.md.j2", it=entry, authors=authors, linked=linked)
        return text


def _tex(name: str, value: str) -> str:
    return value if name in {"doi", "url"} else value.translate(SPECIAL)


@cache
def references() -> tuple[Reference, ...]:
    """Return every source, in the order of `references.toml`."""
    text = resources.files("forebay.guide").joinpath("references.toml").read_text("utf-8")
    return tuple(_reference(key, entry) for key, entry in tomllib.loads(text).items())


def _reference(key: str, entry: dict[str, Any]) -> Reference:
    fields = {name: str(value) for name, value in entry.items() if name in FIELDS}
    fields["author"] = ", ".join(entry["author"])
    if entry["type"] == "rfc":
        number = key.removeprefix("rfc")
        fields |= {"institution": f"RFC {number}", "url": f"https://www.rfc-editor.org/rfc/{key}"}
    elif entry["type"] == "draft":
        draft = entry["draft"]
        url = f"https://datatracker.ietf.org/doc/{draft}/"
        fields |= {"institution": draft, "url": url, "note": "Internet-Draft."}
    return Reference(key, entry["type"], fields, tuple(entry["of"]), entry.get("paper", ""))


def software() -> str:
    """Return the BibTeX entry of Forebay itself."""
    fields = {
        "author": "{The Forebay authors}",
        "title": "{Forebay: a workbench for active queue management}",
        "version": __version__,
    }
    return templates.template("reference.bib.j2").render(
        kind="software", key="forebay", fields=fields
    )


def entries(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the BibTeX of Forebay and of the sources of names, and a sentence on each result.

    A name is one that `named` takes, a scenario file, or a folder of results.

    Raises
    ------
    ScenarioError
        If a name has no source, or a file cannot be read.
    """
    sources, sentences = [], []
    for text in names:
        path = scenario_names.path(text)
        if path.is_dir():
            used, sentence = of_results(path)
            sources += used
            sentences.append(sentence)
        elif path.suffix == ".toml":
            try:
                sources += of_scenario(path.read_text("utf-8"), path)
            except (OSError, UnicodeDecodeError) as error:
                why = (getattr(error, "strerror", None) or "is no text").lower()
                raise ScenarioError(f"{path}: {why}; expected a scenario file") from None
        else:
            sources.append(text)
    return [software(), *(source.bibtex() for source in named(sources))], sentences


def named(names: Sequence[str]) -> list[Reference]:
    """Return the sources of laws, queues, senders, papers, or keys of `references.toml`, once each.

    Raises
    ------
    ParameterError
        If a name has no source.
    """
    sources = references()
    valid = {name for source in sources for name in (*source.of, source.paper, source.key) if name}
    for name in names:
        if name not in valid:
            expected = "a law, a queue, a sender, a paper, a scenario file or a folder of results"
            raise ParameterError("NAME", name, f"{expected}{hint(name, valid)}")
    return [source for source in sources if {*names} & {*source.of, source.paper, source.key}]


def of_scenario(text: str, file: Path) -> list[str]:
    """Return the names of a scenario's laws, queues, senders and paper.

    Parameters
    ----------
    text : str
        The scenario in TOML.
    file : Path
        Its file, whose folder may be that of a paper.

    Raises
    ------
    ScenarioError
        If the text is not a scenario.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: {error}") from None
    if not any(key in tables for key in SCENARIO):
        expected = "a scenario file, with a table [bottleneck] or [[link]]"
        raise ScenarioError(f"{file}: not a scenario; expected {expected}")
    return _citable([*_values(tables), *_usual_senders(tables), file.resolve().parent.name])


def _usual_senders(tables: dict[str, Any]) -> Iterable[str]:
    """Yield the sender of traffic that names none, which is its default."""
    every = _native.keys()
    usual = {key["section"]: key["default"] for key in every if key["name"] == "tcp"}
    traffic = tables.get("traffic", [])
    for table in traffic if isinstance(traffic, list) else []:
        if isinstance(table, dict) and "tcp" not in table:
            yield (usual.get(f"traffic ({table.get('kind')})") or "").strip('"')


def _values(value: Any) -> Iterable[str]:
    """Yield every text in a value: laws, queues, senders and kinds of traffic have several keys."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str):
        yield value
        return
    elif not isinstance(value, list):
        return
    for part in value:
        yield from _values(part)


def of_results(folder: Path) -> tuple[list[str], str]:
    """Return the names of laws and other sources of a folder of results, and a sentence on it."""
    file = folder / "metrics.json"
    try:
        result = json.loads(file.read_text())
        runs, command, version = result["runs"], result["command"], result["forebay"]
        laws = sorted({run["law"] for run in runs})
        seeds = len({run["seed"] for run in runs})
        # Results of an earlier version only have the labels of their laws.
        uses = [str(name) for name in result.get("uses", [])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        expected = "a folder that `forebay run` wrote"
        raise ScenarioError(f"{folder}: {_reason(error)}; expected {expected}") from None
    points = len({run["point"] for run in runs})
    sentence = (
        f"{len(runs)} runs of Forebay {version}: {_count(len(laws), 'law')}, "
        f"{_count(points, 'point')}, {_count(seeds, 'seed')}; inputs {result['inputs'][:16]}; "
        f"repeat with: {command}"
    )
    return _citable([*uses, *laws, *command.replace("/", " ").split()]), sentence


def _reason(error: Exception) -> str:
    return "no metrics.json" if isinstance(error, FileNotFoundError) else "an invalid metrics.json"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _citable(names: Iterable[str]) -> list[str]:
    """Return the names that have a source, without repetition."""
    valid = {*citable(), *(source.paper for source in references() if source.paper)}
    return [name for name in dict.fromkeys(names) if name in valid]


def citable() -> set[str]:
    """Return the names of laws, queues, senders and kinds of traffic that have a source."""
    return {name for source in references() for name in source.of}
