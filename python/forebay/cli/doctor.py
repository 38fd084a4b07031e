"""`forebay doctor`: what this machine allows, and how to get what is missing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from forebay.cli.options import console

#: Exit status where no link can be made, or where a device's queue is no bottleneck.
FAILED = 1
MARKS = {"yes": "[green]yes[/]", "partly": "[yellow]partly[/]", "no": "[red]no[/]"}


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
    from forebay.link import doctor as doctors

    found = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        import json

        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD)
        for heading in ["what", "", "found", "what to do"]:
            table.add_column(heading)
        for one in found:
            table.add_row(one.name, MARKS[one.verdict], escape(one.found), escape(one.advice))
        console().print(table)
    if all(one.verdict == "no" for one in found[:2]):
        raise typer.Exit(FAILED)
