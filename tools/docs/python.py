"""Writes the reference of the Python API from the docstrings of the public names."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from tools.docs.docstrings import docstring, markdown, sections

#: Modules and their public names by topic; an empty list stands for all names that a module defines.
TOPICS: dict[str, list[tuple[str, list[str]]]] = {
    "Run an experiment": [
        ("forebay", ["run", "session", "laws", "queues", "schema", "Result"]),
    ],
    "Describe a link": [("forebay", ["Link", "LinkRange"])],
    "Design and analyse a law": [
        ("forebay", ["design", "stability_map"]),
        ("forebay.control.designed_law", ["Design"]),
        ("forebay.control.stability_map", ["StabilityMap"]),
        ("forebay.control.loop", ["Loop"]),
        ("forebay.control.margins", ["Margins"]),
    ],
    "Tune a law": [("forebay", ["tune"]), ("forebay.tuning.tuning", ["Tuning"])],
    "Run and compare many experiments": [
        ("forebay", ["study", "compare", "suite", "replay", "validate"]),
        ("forebay.campaign.study", ["Study"]),
    ],
    "Write a law in Python": [("forebay", ["Controller", "Queue", "Packet"])],
    "Run real traffic": [
        ("forebay", ["link"]),
        ("forebay.linux", ["Net", "Host", "Outcome", "run"]),
    ],
    "Test a transport": [("forebay", ["Network"])],
    "Use the fluid model": [
        (
            "forebay.fluid",
            ["run", "scenario", "halving", "Traces", "Model", "Bottleneck", "Class", "Change"],
        )
    ],
    "Handle errors": [
        (
            "forebay",
            [
                *("ForebayError", "ScenarioError", "ParameterError", "FormatError", "RunError"),
                *("Interrupted", "LinkError", "StoreError"),
            ],
        )
    ],
}
HEAD = """\
# Python API

This page documents the public functions and classes of the package `forebay`, by topic.
`help(forebay.run)` shows the same text.
`import forebay` is enough: a name loads what it needs when it is first used.
"""
#: Characters of a line in a box of the site.
WIDTH = 76


def page() -> str:
    """Return the page in Markdown."""
    parts = [HEAD]
    for topic, modules in TOPICS.items():
        parts.append(f"## {topic}\n")
        for name, names in modules:
            module = importlib.import_module(name)
            for public in names or sorted(_defined(module)):
                thing = getattr(module, public, None)
                if thing is not None:
                    parts += _entry(f"{name}.{public}", thing)
    return "\n".join(parts)


def _defined(module: Any) -> Iterator[str]:
    """Yield the documented public functions and classes that a module itself defines."""
    for name, thing in vars(module).items():
        ours = getattr(thing, "__module__", "") == module.__name__ and not name.startswith("_")
        documentable = inspect.isclass(thing) or inspect.isfunction(thing)
        if ours and documentable and docstring(thing):
            yield name


def _entry(name: str, thing: Any) -> Iterator[str]:
    """Yield the heading, the signature, the docstring and the members of a public name."""
    yield f"### {name}\n"
    signature = _signature(thing)
    if signature:
        yield f"```text\n{_folded(name.rpartition('.')[2] + signature)}\n```\n"
    yield markdown(docstring(thing)) + "\n"
    if not inspect.isclass(thing):
        return
    rows = []
    for public, member in inspect.getmembers(thing):
        text = inspect.getdoc(member) if not public.startswith("_") else None
        inherited = any(getattr(base, public, None) is member for base in (Exception, object))
        if text and not inherited and (callable(member) or isinstance(member, property)):
            summary = next(sections(text))[1]
            rows.append(f"- `{public}{_signature(member)}`: {' '.join(summary.split())}")
    if rows:
        yield "**Methods and properties**\n\n" + "\n".join(rows) + "\n"


def _signature(thing: Any) -> str:
    if isinstance(thing, property) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return ""
    return signature_text(thing)


def signature_text(thing: Any) -> str:
    """Return the signature of a callable; empty if it has none."""
    try:
        text = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    # The addresses of default values differ from run to run.
    return re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "…", text).replace("'", "")


def _folded(call: str) -> str:
    """Return a call with a line for each argument if it does not fit into one line."""
    if len(call) <= WIDTH:
        return call
    # Commas within brackets belong to a type.
    depth, folded = 0, ""
    for letter in call:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == ")" and depth == 0:
            folded += "\n)"
        elif depth == 1 and letter in "(,":
            folded += f"{letter}\n   "
            folded += " " if letter == "(" else ""
        else:
            folded += letter
    return folded
