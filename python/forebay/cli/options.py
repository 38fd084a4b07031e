"""What several commands read and show."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._native import ScenarioError

if TYPE_CHECKING:
    from rich.console import Console

#: Options that mean the same in every command that has them.
ScenarioFile = Annotated[Path, typer.Argument(help="Scenario in TOML.", metavar="FILE")]
ScenarioKeys = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Set a key of the scenario, such as traffic.0.flows=100 or bottleneck.rate=20Mbit/s. "
        "May be given several times.",
        metavar="KEY=VALUE",
    ),
]
LawKind = Annotated[str, typer.Argument(help="A law of `forebay laws`.", metavar="LAW")]
Packet = Annotated[str, typer.Option(help="Usual size of a packet.")]
Threads = Annotated[
    int | None,
    typer.Option(help="Threads to run on; all cores by default.", min=1, metavar="N"),
]


def settings(sets: Sequence[str] | None) -> dict[str, str]:
    """KEY=VALUE options as a table."""
    table: dict[str, str] = {}
    for text in sets or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ScenarioError(f'--set: found "{text}", allowed: KEY=VALUE')
        table[key.strip()] = value.strip()
    return table


def console(width: int = 120) -> Console:
    """Standard output for tables, so many columns wide where no terminal says how wide it is."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else width, highlight=False)
