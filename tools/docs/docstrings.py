"""Renders numpydoc docstrings as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

#: Sections of numpydoc whose entries are a list of names with descriptions.
LISTS = ("Attributes", "Parameters", "Other Parameters", "Returns", "Yields", "Raises", "Warns")
SECTION = re.compile(r"^(?P<title>[A-Z][A-Za-z ]+)\n-{3,}$", re.MULTILINE)
#: Entries that older docstrings have in place of a section: `seeds: number of seeds`.
ARGUMENT = re.compile(r"^(\w+(?:, \w+)*): (.+)$")


def docstring(thing: Any) -> str:
    """Return the docstring of a function or class; empty if `dataclass` wrote it."""
    text = inspect.getdoc(thing) or ""
    return "" if re.match(r"^\w+\(.*\)$", text, re.DOTALL) and inspect.isclass(thing) else text


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield the title and body of each section of a docstring; the summary has the title ""."""
    title, start = "", 0
    for match in SECTION.finditer(text):
        yield title, text[start : match.start()].strip("\n")
        title, start = match["title"], match.end()
    yield title, text[start:].strip("\n")


def entries(body: str) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and description of each entry of a section such as Parameters."""
    head, description = "", list[str]()
    for line in [*body.splitlines(), ""]:
        if line and not line[0].isspace():
            if head:
                yield _entry(head, description)
            head, description = line, []
        else:
            description.append(line.strip())
    if head:
        yield _entry(head, description)


def _entry(head: str, description: list[str]) -> tuple[str, str, str]:
    name, _, kind = head.partition(" : ")
    return name.strip(), kind.strip(), " ".join(filter(None, description))


def markdown(text: str) -> str:
    """Return a docstring as Markdown: paragraphs, and a list for each section of entries.

    Parameters
    ----------
    text : str
        A docstring without indentation, as `inspect.getdoc` returns it.
    """
    parts = []
    for title, body in sections(text):
        if title in LISTS:
            rows = []
            for name, kind, description in entries(body):
                # A returned value may have a type and no name.
                label = f"`{name}` ({kind})" if kind else f"`{name}`"
                rows.append(f"- {label}: {description}" if description else f"- {label}")
            parts.append("\n".join([f"**{title}**\n", *rows]))
        elif title == "Examples":
            parts.append(f"**{title}**\n\n```pycon\n{inspect.cleandoc(body)}\n```")
        else:
            parts.append(f"**{title}**\n\n{body}" if title else _paragraphs(body))
    return re.sub(r"(?<!`)``(?!`)", "`", "\n\n".join(filter(None, parts)))


def _paragraphs(text: str) -> str:
    """Return paragraphs in which lines such as `seeds: number of seeds` are a list."""
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
