"""The meaning of names: keys of scenarios, parameters, options, laws, senders and metrics."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.errors import ParameterError
from forebay._base.words import hint
from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay._native import KeyInfo, RegistryEntry

#: Smallest number of letters of a part of a name that is searched.
SHORTEST = 2
#: Text in place of the default of a required key.
REQUIRED = "required"


@dataclass(frozen=True)
class Entry:
    """A name with its meaning.

    Attributes
    ----------
    path : str
        Full name, such as "law.pi.target".
    where : str
        What has the name, such as "a key of a scenario, in [bottleneck]".
    meaning : str
        A sentence or two.
    facts : tuple of (heading, text)
        Further facts, such as unit, default and range.
    example : str
        A command that uses it; empty without one.
    page : str
        Page of docs/ with more.
    heading : str
        Heading in tables, such as "Delay, 95th pct."; empty if it is the name.
    """

    path: str
    where: str
    meaning: str
    facts: tuple[tuple[str, str], ...]
    example: str
    page: str
    heading: str = ""

    @property
    def last(self) -> str:
        """Last part of the path."""
        return self.path.rpartition(".")[2]


def find(text: str) -> list[Entry]:
    """Return every entry with a name: by its full path, by its end, or by a part of it.

    Raises
    ------
    ScenarioError
        If no entry has this name.
    """
    key = text.strip().strip("[]").lstrip("-").partition("=")[0].strip()
    plain = _plain(key)
    # As the heading of a table has it, which may have its unit behind it.
    heading = _heading(text)
    titled = [entry for entry in entries() if entry.heading and _heading(entry.heading) == heading]
    # A table of one quantity has no room for its name: "95th pct." of "Delay, 95th pct.".
    titled = titled or [
        entry for entry in entries() if _heading(entry.heading).endswith(f", {heading}")
    ]
    if titled:
        return titled
    tests: list[Callable[[str], bool]] = [
        lambda path: path.endswith((f".{plain}", f".--{plain}")) or path == plain,
        # A word of the name; then any part of it. What is short is in most of them.
        lambda path: len(plain) >= SHORTEST and plain in re.split(r"[.\-]+", path),
        lambda path: len(plain) >= SHORTEST and plain in path,
    ]
    for test in tests:
        # A full path is one thing alone; a single word may be the name of several.
        matches = [entry for entry in entries() if key and test(_plain(entry.path))]
        exact = [entry for entry in matches if "." in plain and _plain(entry.path) == plain]
        if matches:
            return exact or matches
    # A key as `--set` names it: of the first traffic, or of the traffic with a kind or label.
    table, _, rest = plain.partition(".")
    if table in ("traffic", "link") and "." in rest:
        with suppress(ScenarioError):
            return find(f"{table}.{rest.partition('.')[2]}")
    expected = (
        "a key of a scenario, a parameter, an option, a law, a queue, a sender, a metric or the "
        "heading of a column"
    )
    raise ParameterError("NAME", text, f"{expected}{hint(key, names(), 3)}")


def _heading(text: str) -> str:
    """Return the heading of a column without its unit, so that headings can be compared."""
    return " ".join(re.sub(r"\[[^\]]*\]", "", text).lower().split())


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()


def names() -> list[str]:
    """Return every full name, last part and heading."""
    every = ((entry.path, entry.last, entry.heading) for entry in entries())
    return [name for name in dict.fromkeys(itertools.chain(*every)) if name]


def settable() -> list[str]:
    """Return "PATH=" for each key that `--set` of a scenario takes, flows named by their kind."""
    examples = (entry.example.partition("forebay run FILE ")[2] for entry in entries())
    return [
        f"{line.partition('--set ')[2].partition('=')[0]}=" for line in examples if "--set" in line
    ]


@cache
def entries() -> tuple[Entry, ...]:
    """Return everything that has a name, scenario keys first."""
    return (*_keys(), *_registries(), *_senders(), *_options(), *_metrics(), *_terms())


def _terms() -> Iterator[Entry]:
    """Yield the terms and letters in the output of commands."""
    terms = tomllib.loads(
        resources.files("forebay.guide").joinpath("terms.toml").read_text("utf-8")
    )
    for name, term in terms.items():
        yield Entry(
            f"term.{name}",
            "in what commands print",
            term["meaning"],
            (),
            "",
            term["page"],
            term.get("heading", ""),
        )


def _facts(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((head, text) for head, text in pairs if text)


def _keys() -> Iterator[Entry]:
    """Yield keys of a scenario; a key that several kinds of traffic share comes once."""
    every = _native.keys()
    declared = [(*_place(key), key) for key in every]
    kinds: dict[tuple[str, str, str], list[str]] = {}
    meanings: dict[tuple[str, str], set[str]] = {}
    for part, kind, key in declared:
        kinds.setdefault((part, key["name"], key["doc"]), []).append(kind)
        meanings.setdefault((part, key["name"]), set()).add(key["doc"])
    for part, kind, key in declared:
        alike = kinds[part, key["name"], key["doc"]]
        if alike[0] != kind:
            continue
        several = len(meanings[part, key["name"]]) > 1
        path = ".".join(filter(None, [part, kind if several else "", key["name"]]))
        yield Entry(
            path,
            _section(part, alike),
            key["doc"],
            _facts(
                ("unit", key["unit"]),
                ("default", REQUIRED if key["required"] else key["default"] or ""),
                ("value", key["expected"]),
                (
                    "range",
                    quantities.interval(
                        key["min"], key["max"], quantities.NAMES.get(key["unit"], key["unit"])
                    ),
                ),
            ),
            _set_example(part, kind, key["name"], key["default"]),
            "docs/reference/scenario.md",
        )


def _place(key: KeyInfo) -> tuple[str, str]:
    """Return the part of a scenario and the kind of traffic in a text such as "traffic (ftp)"."""
    part, _, kind = key["section"].partition(" ")
    return part, kind.strip("()")


def _section(part: str, kinds: list[str]) -> str:
    if not part:
        return "a key of a scenario, at the top level"
    table = f"[{part}]" if part == "bottleneck" else f"[[{part}]]"
    named = [kind for kind in kinds if kind]
    return f"a key of a scenario, in {table}" + (f" of kind {', '.join(named)}" if named else "")


def _set_example(part: str, kind: str, name: str, default: str | None) -> str:
    # These keys name the experiment, or determine which other keys it has.
    if name in {"title", "source", "name", "kind", "label"} or part == "at":
        return ""
    inside = {"": "", "bottleneck": "bottleneck.", "link": "link.0.", "law": "law.0."}
    path = inside.get(part, f"traffic.{kind or 'ftp'}.") + name
    value = (default or "VALUE").strip('"')
    return f"forebay run FILE --set {path}={value}"


def _registries() -> Iterator[Entry]:
    """Yield laws and queues with their parameters."""
    for name, law in registries.laws().items():
        settings = [f"{param['name']}={param['default_text']}" for param in law["params"]]
        facts = [
            ("equation", law["equation"]),
            ("set-point", law["set_point"] or ""),
            ("defaults", ", ".join(settings)),
            ("model", "linear; forebay design, map" if law["modelled"] else ""),
            ("similar laws", ", ".join(neighbours(name))),
        ]
        example = f"forebay run FILE --law {name}"
        yield from _registered("law", law, "a law", "docs/reference/laws.md", example, facts)
    for name, queue in registries.queues().items():
        example = f"forebay run FILE --law pi --set law.pi.queue={name}"
        yield from _registered(
            "queue", queue, "a queue discipline", "docs/reference/queues.md", example
        )


def neighbours(name: str) -> list[str]:
    """Return laws whose names share a part with this one's, such as fq-codel for codel."""
    words = set(name.split("-"))
    return [law for law in registries.laws() if law != name and words & set(law.split("-"))]


def _registered(
    owner: str,
    entry: RegistryEntry,
    noun: str,
    page: str,
    example: str,
    facts: Iterable[tuple[str, str]] = (),
) -> Iterator[Entry]:
    """Yield an entry of a registry, and each of its parameters."""
    name, params = entry["name"], ", ".join(param["name"] for param in entry["params"])
    own_facts = _facts(("source", entry["source"]), *(facts or [("parameters", params)]))
    yield Entry(f"{owner}.{name}", noun, entry["title"] + ".", own_facts, example, page)
    for param in entry["params"]:
        path = f"{owner}.{name}.{param['name']}"
        optional = param["default"] is not None
        default = param["default_text"] if optional else REQUIRED
        yield Entry(
            path,
            f"the {noun.removeprefix('a ')} {name}",
            param["doc"],
            _facts(
                ("unit", param["unit"]),
                ("default", default),
                ("range", quantities.parameter_range(param)),
            ),
            f"forebay run FILE --law {name} --set {path}={default}"
            if owner == "law" and optional
            else "",
            page,
        )


def _senders() -> Iterator[Entry]:
    for name, sender in registries.senders().items():
        yield Entry(
            f"tcp.{name}",
            "a sender of TCP",
            sender["title"] + ".",
            _facts(("recovery", sender["recovery"]), ("growth", sender["growth"])),
            f"forebay run FILE --set traffic.ftp.tcp={name}",
            "docs/reference/scenario.md",
        )


def _options() -> Iterator[Entry]:
    """Yield the options of `forebay link`."""
    for option in _native.link_options():
        flag = f"--{option['name'].replace('_', '-')}"
        value = option["default_text"] or option["placeholder"] or ""
        yield Entry(
            f"link.{flag}",
            "an option of forebay link",
            option["doc"],
            _facts(("default", option["default_text"] or "")),
            f"forebay link … {flag} {value}".rstrip(),
            "docs/reference/link.md",
        )


def _metrics() -> Iterator[Entry]:
    tables: list[tuple[str, str, Iterable[Any]]] = [
        ("metric", "a metric of a run", _native.metrics()),
        ("class metric", "a metric of a class of a queue", _native.class_metrics()),
        ("traffic metric", "a metric of a traffic of a link", _native.traffic_metrics()),
        ("measure", "a measure of the papers' claims", _native.measures()),
    ]
    names_before: set[str] = set()
    for owner, where, metrics in tables:
        for metric in metrics:
            name, title = metric["name"], metric["title"]
            if name in names_before:
                continue
            names_before.add(name)
            facts = _facts(("name in figures", title), ("unit in figures", metric["unit"]))
            meaning = metric["doc"][:1].upper() + metric["doc"][1:] + "."
            page = "docs/reference/metrics.md"
            yield Entry(f"{owner}.{name}", where, meaning, facts, "", page, title)
