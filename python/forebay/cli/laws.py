"""`forebay laws` and `forebay queues`: the registries with their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay._native import ScenarioError
from forebay.base import registries
from forebay.base.suggestions import hint
from forebay.cli import completion
from forebay.cli.declaration import with_options
from forebay.cli.options import console

if TYPE_CHECKING:
    from forebay._native import RegistryEntry

LawNames = Annotated[list[str] | None, typer.Argument(autocompletion=completion.laws)]
QueueNames = Annotated[list[str] | None, typer.Argument(autocompletion=completion.queues)]


@with_options
def laws(name: LawNames = None, /, *, as_json: bool = False) -> None:
    """List the laws with their parameters, defaults and ranges.

    name [NAME]...: Only these laws; all of them if none is named.
    as_json: Print JSON instead of tables.
    """
    _list(registries.laws(), name, as_json, "forebay run FILE --law pi --set law.pi.target=150p")


@with_options
def queues(name: QueueNames = None, /, *, as_json: bool = False) -> None:
    """List the queue disciplines, which hold laws, with their parameters.

    name [NAME]...: Only these queues; all of them if none is named.
    as_json: Print JSON instead of tables.
    """
    _list(
        registries.queues(), name, as_json, "forebay run FILE --law pi --set law.pi.queue=priority"
    )


def _list(
    known: Mapping[str, RegistryEntry], names: Sequence[str] | None, as_json: bool, example: str
) -> None:
    for name in names or ():
        if name not in known:
            raise ScenarioError(
                f'NAME: found "{name}", allowed: {", ".join(known)}{hint(name, list(known))}'
            )
    entries = [entry for name, entry in known.items() if not names or name in names]
    if as_json:
        keys = ["name", "unit", "default", "min", "max", "doc"]
        plain = [
            entry | {"params": [{key: param[key] for key in keys} for param in entry["params"]]}
            for entry in map(dict[str, Any], entries)
        ]
        print(json.dumps(plain, indent=1))
        return
    from forebay.pages import terminal

    terminal.registry(console(), entries, example)
