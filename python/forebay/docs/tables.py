"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def bounds(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:g} to {high:g}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # Within a cell a bar would end it.
    return "".join(
        f"| {' | '.join(c.replace('|', chr(92) + '|') for c in line)} |\n" for line in lines
    )
