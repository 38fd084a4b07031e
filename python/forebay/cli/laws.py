"""`forebay laws` and `forebay queues`: the registries with their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay.cli.options import console

if TYPE_CHECKING:
    from forebay._native import RegistryEntry


def laws(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the laws with their parameters, defaults and ranges."""
    from forebay import _native

    _list(_native.laws(), as_json, "forebay run FILE --law pi --set law.pi.target=150p")


def queues(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the queue disciplines, which hold laws, with their parameters."""
    from forebay import _native

    _list(_native.queues(), as_json, "forebay run FILE --law pi --set law.pi.queue=priority")


def _list(entries: Sequence[RegistryEntry], as_json: bool, example: str) -> None:
    if as_json:
        import json

        keys = ["name", "unit", "default", "min", "max", "doc"]
        plain = [
            entry | {"params": [{key: param[key] for key in keys} for param in entry["params"]]}
            for entry in map(dict[str, Any], entries)
        ]
        print(json.dumps(plain, indent=1))
        return
    from forebay.report import tables

    screen = console()
    for table in tables.registry(entries, example):
        screen.print(table)
