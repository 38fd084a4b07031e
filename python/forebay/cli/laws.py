"""`forebay laws` and `forebay queues`: the registries with their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from forebay._native import ScenarioError
from forebay.base.suggestions import hint
from forebay.cli import completion
from forebay.cli.options import console

if TYPE_CHECKING:
    from typer.models import ArgumentInfo

    from forebay._native import RegistryEntry

Entry = TypeVar("Entry", bound="RegistryEntry")


def _names(what: str, known: Callable[[str], list[str]]) -> ArgumentInfo:
    text = f"Only these {what}; all of them if none is named."
    return cast(
        "ArgumentInfo", typer.Argument(help=text, metavar="[NAME]...", autocompletion=known)
    )


def laws(
    name: Annotated[list[str] | None, _names("laws", completion.laws)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the laws with their parameters, defaults and ranges."""
    import forebay._native as _native

    entries = _chosen(_native.laws(), name)
    _list(entries, as_json, "forebay run FILE --law pi --set law.pi.target=150p")


def queues(
    name: Annotated[list[str] | None, _names("queues", completion.queues)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """List the queue disciplines, which hold laws, with their parameters."""
    import forebay._native as _native

    entries = _chosen(_native.queues(), name)
    _list(entries, as_json, "forebay run FILE --law pi --set law.pi.queue=priority")


def _chosen(entries: Sequence[Entry], names: list[str] | None) -> list[Entry]:
    known = [entry["name"] for entry in entries]
    for name in names or ():
        if name not in known:
            raise ScenarioError(
                f'NAME: found "{name}", allowed: {", ".join(known)}{hint(name, known)}'
            )
    return [entry for entry in entries if not names or entry["name"] in names]


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
    from forebay.pages import terminal

    terminal.registry(console(), entries, example)
