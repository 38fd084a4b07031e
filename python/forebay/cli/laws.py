"""`forebay laws` and `forebay queues`: the registries with their parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay._base import registries
from forebay._base.words import hint
from forebay._native import ScenarioError
from forebay.cli import completion
from forebay.cli.declaration import with_options
from forebay.cli.options import console, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._native import ParamInfo, RegistryEntry

LawNames = Annotated[list[str] | None, typer.Argument(autocompletion=completion.laws)]
QueueNames = Annotated[list[str] | None, typer.Argument(autocompletion=completion.queues)]


@with_options
def laws(name: LawNames = None, /, *, as_json: bool = False) -> None:
    """List the laws, a line each; those that are named with parameters, defaults and ranges.

    name [NAME]...: These laws, whole; all of them with --json if none is named.
    as_json: Print JSON instead of tables.
    """
    _list(registries.laws(), name, as_json, _law_example)


@with_options
def queues(name: QueueNames = None, /, *, as_json: bool = False) -> None:
    """List the queue disciplines, which hold laws, a line each; those that are named with their
    parameters.

    name [NAME]...: These queues, whole; all of them with --json if none is named.
    as_json: Print JSON instead of tables.
    """
    _list(registries.queues(), name, as_json, _queue_example)


def _law_example(law: RegistryEntry) -> str:
    """A command that runs a law, with a parameter of its own at its default."""
    first = next((it for it in law["params"] if it["default"] is not None), None)
    own = f" --set law.{law['name']}.{first['name']}={first['default_text']}" if first else ""
    return f"forebay run FILE --law {law['name']}{own}"


def _queue_example(queue: RegistryEntry) -> str:
    return f"forebay run FILE --law pi --set law.pi.queue={queue['name']}"


def _list(
    known: Mapping[str, RegistryEntry],
    names: Sequence[str] | None,
    as_json: bool,
    example: Callable[[RegistryEntry], str],
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
    if not names:
        from forebay._base.terminal_table import Column

        columns = [Column("name", left=True), Column("what it is", sentence=True)]
        screen = print_table(columns, [[it["name"], it["title"]] for it in entries])
        group = "laws" if example is _law_example else "queues"
        screen.print(f"forebay {group} NAME shows one whole", style="dim")
        return
    _show(console(), entries, example)


def _show(
    screen: Console, entries: Sequence[RegistryEntry], example: Callable[[RegistryEntry], str]
) -> None:
    """Print one table per entry, with meaning and range of each parameter, and a command to try."""
    from rich.text import Text

    from forebay._base import quantities, terminal_table
    from forebay._base.terminal_table import Column, RowGroup

    columns = [
        *(Column("parameter", left=True), Column("default")),
        *(Column("range", left=True), Column("meaning", sentence=True)),
    ]
    for entry in entries:
        screen.print(Text.assemble((entry["name"], "bold cyan"), "  ", (entry["title"], "bold")))
        screen.print(Text(entry["source"], style="dim"))
        if entry["equation"]:
            screen.print(Text(entry["equation"]))
        rows = [
            [param["name"], _default(param), quantities.parameter_range(param), param["doc"]]
            for param in entry["params"]
        ]
        if rows:
            terminal_table.show(screen, columns, [RowGroup(rows)])
        else:
            screen.print("no parameters\n")
    screen.print(Text.assemble("Try it:  ", (example(entries[0]), "bold")), soft_wrap=True)


def _default(param: ParamInfo) -> str:
    """Return the default as in a scenario, without the quotes: "200p", "6.25ms"."""
    if param["default"] is None:
        return "required"
    if isinstance(param["default"], float) and not param["unit"]:
        return f"{param['default']:g}"
    return param["default_text"]
