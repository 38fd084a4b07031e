"""What several commands read."""

from __future__ import annotations

from collections.abc import Sequence

import typer


def settings(sets: Sequence[str] | None) -> dict[str, str]:
    """KEY=VALUE options as a table."""
    table: dict[str, str] = {}
    for text in sets or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise typer.BadParameter(f"--set: found {text!r}, allowed: KEY=VALUE")
        table[key.strip()] = value.strip()
    return table
