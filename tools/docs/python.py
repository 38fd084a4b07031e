"""The reference of the Python interface, from the docstrings of what is public."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

#: What the page has, by topic: modules, and of each the public names; all that it defines if none.
TOPICS: dict[str, list[tuple[str, list[str]]]] = {
    "Running": [
        (
            "forebay",
            ["run", "session", "laws", "queues", "schema", "Result"],
        ),
    ],
    "Errors": [
        (
            "forebay",
            [
                *("ForebayError", "ScenarioError", "ParameterError", "FormatError", "RunError"),
                *("Interrupted", "LinkError", "StoreError"),
            ],
        )
    ],
    "Studies": [("forebay", ["study"])],
    "Laws in Python": [("forebay", ["Controller", "Queue", "Packet"])],
    "A network for your tests": [("forebay", ["Network"])],
    "Real traffic": [("forebay", ["link"]), ("forebay.linux", ["Net", "Host", "Outcome", "run"])],
    "The fluid model": [
        (
            "forebay.fluid",
            ["run", "scenario", "halving", "Traces", "Model", "Bottleneck", "Class", "Change"],
        )
    ],
    "The control bench": [
        ("forebay", ["design", "stability_map"]),
        ("forebay.control.link", []),
        ("forebay.control.designed_law", ["Design"]),
        ("forebay.control.loop", []),
        ("forebay.control.margins", []),
        ("forebay.control.stability_map", ["StabilityMap"]),
    ],
    "Suites, papers and real flows": [("forebay", ["suite", "replay", "validate", "compare"])],
    "Tuning": [("forebay", ["tune"]), ("forebay.tuning.ranges", []), ("forebay.tuning.tuning", [])],
}
HEAD = """\
# The Python interface

From the docstrings; `help(forebay.run)` shows the same. `import forebay` is all that one needs:
what a name needs is loaded when it is first used.
"""
#: Characters of a line in a box of the site.
WIDTH = 76
ARGUMENT = re.compile(r"^(\w+(?:, \w+)*): (.+)$")


def page() -> str:
    """The page in Markdown."""
    parts = [HEAD]
    for topic, modules in TOPICS.items():
        parts.append(f"## {topic}\n")
        for name, wanted in modules:
            module = importlib.import_module(name)
            for public in wanted or sorted(_defined(module)):
                thing = getattr(module, public, None)
                if thing is not None:
                    parts += _entry(f"{name}.{public}", thing)
    return "\n".join(parts)


def _defined(module: Any) -> Iterator[str]:
    """Public functions and classes that a module itself defines, and says something of."""
    for name, thing in vars(module).items():
        ours = getattr(thing, "__module__", "") == module.__name__ and not name.startswith("_")
        if ours and (inspect.isclass(thing) or inspect.isfunction(thing)) and _says(thing):
            yield name


def _says(thing: Any) -> str:
    """The docstring; empty where it is only what `dataclass` writes."""
    text = inspect.getdoc(thing) or ""
    return "" if re.match(r"^\w+\(.*\)$", text, re.DOTALL) and inspect.isclass(thing) else text


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}\n"
    signature = _signature(thing)
    if signature:
        yield f"```text\n{_folded(name.rpartition('.')[2] + signature)}\n```\n"
    yield _prose(_says(thing)) + "\n"
    if not inspect.isclass(thing):
        return
    rows = []
    for public, member in inspect.getmembers(thing):
        said = inspect.getdoc(member) if not public.startswith("_") else None
        inherited = any(getattr(base, public, None) is member for base in (Exception, object))
        if said and not inherited and (callable(member) or isinstance(member, property)):
            rows.append(f"- `{public}{_signature(member)}`: {' '.join(said.split())}")
    if rows:
        yield "\n".join(rows) + "\n"


def _signature(thing: Any) -> str:
    if isinstance(thing, property) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return ""
    return signature_text(thing)


def signature_text(thing: Any) -> str:
    """How something is called; empty where it is not, or nothing tells."""
    try:
        found = str(inspect.signature(thing))
    except (TypeError, ValueError):
        return ""
    # Addresses of defaults differ from run to run, and say nothing.
    return re.sub(r"<[^<>]* at 0x[0-9a-f]+>", "…", found).replace("'", "")


def _folded(call: str) -> str:
    """A call with a line for each argument where it is too long for one."""
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


def _prose(text: str) -> str:
    """Paragraphs; lines such as `seeds: number of seeds` become a list."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        argument = ARGUMENT.match(line)
        if argument:
            if not inside:
                lines.append("")
            lines.append(f"- `{argument[1]}`: {argument[2]}")
            inside = True
        elif inside and line.strip():
            lines[-1] += f" {line.strip()}"
        else:
            inside = False
            lines.append(line)
    return "\n".join(lines)
