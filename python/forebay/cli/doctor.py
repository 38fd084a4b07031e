"""`forebay doctor`: what this machine allows, and whether a device's queue is the bottleneck.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

from dataclasses import asdict

import typer

from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED
from forebay.cli.options import print_table

STYLES = {"yes": "green", "partly": "yellow", "no": "bold"}


@with_options
def doctor(device: str | None = None, /, *, as_json: bool = False) -> None:
    """Check what this machine supports.

    It tries rootless links, namespaces, timing and offloads; with a device, it checks whether the
    device's queue is the bottleneck.

    Parameters
    ----------
    device : [DEVICE]
        Check instead whether packets wait at this network device.
    as_json
        Print JSON instead of a table.
    """
    from forebay._base import progress
    from forebay.linux import doctor as doctors

    with progress.status("looking at this machine"):
        findings = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        import json

        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        from rich.text import Text

        from forebay._base.terminal_table import Cell, Column

        columns = [
            *(Column("what", left=True), Column("verdict", left=True)),
            *(Column("found", sentence=True), Column("what to do", sentence=True)),
        ]
        rows: list[list[Cell]] = [
            [
                finding.name,
                Text(finding.verdict, style=STYLES[finding.verdict]),
                finding.found,
                finding.advice,
            ]
            for finding in findings
        ]
        print_table(columns, rows)
    # No link can be made, or a device's queue is no bottleneck.
    if all(finding.verdict == "no" for finding in findings[:2]):
        raise typer.Exit(FAILED)
