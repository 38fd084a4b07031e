"""`forebay laws`: the laws with their parameters."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from forebay.commands.options import console


def laws(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the laws with their parameters, defaults and ranges."""
    from forebay import _native

    if as_json:
        import json

        keys = ["name", "unit", "default", "min", "max", "doc"]
        entries = [
            law | {"params": [{key: param[key] for key in keys} for param in law["params"]]}
            for law in map(dict[str, Any], _native.laws())
        ]
        print(json.dumps(entries, indent=1))
        return
    from forebay import tables

    screen = console()
    for table in tables.laws(_native.laws()):
        screen.print(table)
