"""`forebay doctor`: what this machine allows, and how to get what is missing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from forebay.cli.options import console

#: Exit status where no link can be made, or where a device's queue is no bottleneck.
FAILED = 1
STYLES = {"yes": "green", "partly": "yellow", "no": "bold"}


def doctor(
    device: Annotated[
        str | None,
        typer.Argument(
            help="Look instead whether packets wait at this network device.", metavar="[DEVICE]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Find out what this machine can do: rootless links, timing, offloads; or whether a queue
    really is the bottleneck."""
    from forebay.base import progress
    from forebay.links import doctor as doctors

    with progress.status("looking at this machine"):
        found = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        import json

        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        from rich.text import Text

        from forebay.base import terminal_table
        from forebay.base.terminal_table import Cell, Column, RowGroup

        columns = [
            Column("what", left=True),
            Column("verdict", left=True),
            Column("found", sentence=True),
            Column("what to do", sentence=True),
        ]
        rows: list[list[Cell]] = [
            [one.name, Text(one.verdict, style=STYLES[one.verdict]), one.found, one.advice]
            for one in found
        ]
        terminal_table.show(console(), columns, [RowGroup(rows)])
    if all(one.verdict == "no" for one in found[:2]):
        raise typer.Exit(FAILED)
