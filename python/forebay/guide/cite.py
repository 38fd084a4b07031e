"""What to cite: the sources of laws, queues, senders and experiments, as BibTeX and as text."""

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
#: BibTeX knows neither RFCs nor drafts.
TYPES = {"rfc": "techreport", "draft": "unpublished"}
#: Tables of which a scenario has one.
SCENARIO = ("bottleneck", "link")
#: What TeX sets otherwise, in a title or a name.
SPECIAL = str.maketrans({"&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_"})


@dataclass(frozen=True)
class Reference:
    """A source.

    key: its key in BibTeX.
    of: names of laws, queues, senders and kinds of traffic that come from it.
    paper: name of the folder with its experiments; empty without one.
    """

    key: str
    type: str
    fields: dict[str, str]
    of: tuple[str, ...]
    paper: str

    def bibtex(self) -> str:
        """The entry, ready for a .bib file."""
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
        """One line of Markdown, as a list of references has it."""
        *others, last = self.fields["author"].split(", ")
        authors = f"{', '.join(others)} and {last}" if others else last
        it, linked = defaultdict(str, self.fields), self.type in TYPES
        (text,) = templates.paragraphs("reference.md.j2", it=it, authors=authors, linked=linked)
        return text


def _tex(name: str, value: str) -> str:
    return value if name in {"doi", "url"} else value.translate(SPECIAL)


@cache
def references() -> tuple[Reference, ...]:
    """Every source, in the order of `references.toml`."""
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
    """The entry of Forebay itself."""
    fields = {
        "author": "{The Forebay authors}",
        "title": "{Forebay: a workbench for active queue management}",
        "version": __version__,
    }
    return templates.template("reference.bib.j2").render(
        kind="software", key="forebay", fields=fields
    )


def entries(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the BibTeX of Forebay and of the sources of some names, and a sentence on each result.

    A name is one that `named` takes, or that of a scenario file or of a folder of results. Raises
    `ScenarioError`.
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
    return [software(), *(it.bibtex() for it in named(sources))], sentences


def named(names: Sequence[str]) -> list[Reference]:
    """Sources of laws, queues, senders, papers, or keys of `references.toml`; each once.

    Raises `ScenarioError` for a name that nothing has.
    """
    wanted = set(names)
    known = {name for it in references() for name in (*it.of, it.paper, it.key) if name}
    for name in names:
        if name not in known:
            expected = "a law, a queue, a sender, a paper, a scenario file or a folder of results"
            raise ParameterError("NAME", name, expected, reason=hint(name, known).strip())
    return [it for it in references() if wanted & {*it.of, it.paper, it.key}]


def of_scenario(text: str, file: Path) -> list[str]:
    """Names of the laws, queues and senders of a scenario, and of the paper it belongs to."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: {error}") from None
    if not any(key in tables for key in SCENARIO):
        expected = "a scenario file, with a table [bottleneck] or [[link]]"
        raise ScenarioError(f"{file}: not a scenario; expected {expected}")
    return _known([*_values(tables), *_usual_senders(tables), file.resolve().parent.name])


def _usual_senders(tables: dict[str, Any]) -> Iterable[str]:
    """Yield the sender of traffic that names none, which is its default."""
    every = _native.keys()
    usual = {key["section"]: key["default"] for key in every if key["name"] == "tcp"}
    traffic = tables.get("traffic", [])
    for table in traffic if isinstance(traffic, list) else []:
        if isinstance(table, dict) and "tcp" not in table:
            yield (usual.get(f"traffic ({table.get('kind')})") or "").strip('"')


def _values(value: Any) -> Iterable[str]:
    """Every text in it: laws, queues, senders and kinds of traffic stand under several keys."""
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
    """Names of what was run in a folder of results, and a sentence on the runs."""
    file = folder / "metrics.json"
    try:
        told = json.loads(file.read_text())
        runs, command, version = told["runs"], told["command"], told["forebay"]
        laws = sorted({run["law"] for run in runs})
        seeds = len({run["seed"] for run in runs})
        # Of results that an earlier version wrote, the labels of the laws are all that is known.
        uses = [str(name) for name in told.get("uses", [])]
    except (OSError, ValueError, KeyError, TypeError) as error:
        wanted = "a folder that `forebay run` wrote"
        raise ScenarioError(f"{folder}: {_reason(error)} is not valid; expected {wanted}") from None
    points = len({run["point"] for run in runs})
    sentence = (
        f"{len(runs)} runs of Forebay {version}: {_count(len(laws), 'law')}, "
        f"{_count(points, 'point')}, {_count(seeds, 'seed')}; inputs {told['inputs'][:16]}; "
        f"repeat with: {command}"
    )
    return _known([*uses, *laws, *command.replace("/", " ").split()]), sentence


def _reason(error: Exception) -> str:
    return "no metrics.json" if isinstance(error, FileNotFoundError) else "another metrics.json"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _known(names: Iterable[str]) -> list[str]:
    known = {*citable(), *(it.paper for it in references() if it.paper)}
    return [name for name in dict.fromkeys(names) if name in known]


def citable() -> set[str]:
    """Return the names of laws, queues, senders and kinds of traffic that have a source."""
    return {name for it in references() for name in it.of}
