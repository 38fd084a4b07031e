"""`forebay doctor`: what this machine allows, and how to get what is missing."""

from __future__ import annotations

from dataclasses import asdict

import typer

from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED
from forebay.cli.options import print_table

STYLES = {"yes": "green", "partly": "yellow", "no": "bold"}


@with_options
def doctor(device: str | None = None, /, *, as_json: bool = False) -> None:
    """Find out what this machine can do: rootless links, timing, offloads; or whether a queue
    really is the bottleneck.

    device [DEVICE]: Look instead whether packets wait at this network device.
    as_json: Print JSON instead of a table.
    """
    from forebay._base import progress
    from forebay.linux import doctor as doctors

    with progress.status("looking at this machine"):
        found = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        import json

        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        from rich.text import Text

        from forebay._base.terminal_table import Cell, Column

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
        print_table(columns, rows)
    # No link can be made, or a device's queue is no bottleneck.
    if all(one.verdict == "no" for one in found[:2]):
        raise typer.Exit(FAILED)
