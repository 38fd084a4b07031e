"""The pages of `docs/` that are written from the declarations.

`python -m forebay.docs DIR` writes them; a test checks that they are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from forebay import _native


def main() -> None:
    """Writes every page into the folder named on the command line."""
    folder = Path(sys.argv[1])
    for name, text in pages().items():
        (folder / name).write_text(text)
        print(folder / name)


def pages() -> dict[str, str]:
    """File name and text of every generated page."""
    return {"laws.md": laws(), "scenario.md": scenario()}


def laws() -> str:
    """A section for each law, with its parameters."""
    sections = [
        f"## `{law['name']}`\n\n{law['title']}.\n\nSource: {law['source']}.\n\n"
        + (
            table(
                ["parameter", "unit", "default", "range", "what it is"],
                (
                    [
                        f"`{p['name']}`",
                        p["unit"],
                        p["default_text"],
                        bounds(p["min"], p["max"]),
                        p["doc"],
                    ]
                    for p in law["params"]
                ),
            )
            if law["params"]
            else "It has no parameters.\n"
        )
        for law in _native.laws()
    ]
    head = (
        "# The laws\n\n"
        "Written from the declarations by `make docs`; `forebay laws` prints the same.\n"
        "A range is in the unit of its row.\n\n"
    )
    return head + "\n".join(sections)


def scenario() -> str:
    """A section for each part of a scenario file, with its keys."""
    sections = []
    for name, keys in groupby(_native.keys(), key=lambda key: key["section"]):
        rows = [
            [
                f"`{key['name']}`",
                "required" if key["required"] else (key["default"] or ""),
                key["allowed"],
                bounds(key["min"], key["max"]),
                key["doc"],
            ]
            for key in keys
        ]
        title = f"`[{name}]`" if name == "bottleneck" else f"`{name}`" if name else "At the top"
        body = table(["key", "default", "what may be written", "range", "what it is"], rows)
        sections.append(f"## {title}\n\n{body}")
    head = (
        "# The scenario file\n\n"
        "Written from the declarations by `make docs`. `forebay schema` prints a JSON Schema for\n"
        "editors. A range is in seconds, bit/s, bytes or packets, as the key has it.\n\n"
    )
    return head + "\n".join(sections)


def bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:g} to {high:g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # Within a cell a bar would end it.
    return "".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in line)} |\n" for line in lines
    )


if __name__ == "__main__":
    main()
