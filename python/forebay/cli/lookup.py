"""`forebay laws`, `queues`, `explain`, `experiments`, `cite` and `schema`: look up names."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay import _native
from forebay._base import registries
from forebay._base.words import check_choice
from forebay.cli.declaration import with_options
from forebay.cli.options import console, offered, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._native import ParamInfo, RegistryEntry

LawNames = Annotated[
    list[str] | None, typer.Argument(autocompletion=offered("forebay._base.registries:laws"))
]
QueueNames = Annotated[
    list[str] | None, typer.Argument(autocompletion=offered("forebay._base.registries:queues"))
]
Key = Annotated[str, typer.Argument(autocompletion=offered("forebay.guide.explain:names"))]
Sources = Annotated[
    list[str] | None, typer.Argument(autocompletion=offered("forebay.guide.cite:citable"))
]
#: Largest number of entries that `forebay explain` shows in full; more are listed in a table.
IN_FULL = 3


@with_options
def laws(name: LawNames = None, /, *, as_json: bool = False) -> None:
    """List the laws, or show the parameters of some.

    Parameters
    ----------
    name : [NAME]...
        Show the parameters of these laws, with defaults and ranges; --json shows those of all laws
        without it.
    as_json
        Print JSON instead of tables.
    """
    _list(registries.laws(), name, as_json, "laws", _law_example)


@with_options
def queues(name: QueueNames = None, /, *, as_json: bool = False) -> None:
    """List the queue disciplines, or show the parameters of some.

    Parameters
    ----------
    name : [NAME]...
        Show the parameters of these queues; --json shows those of all queues without it.
    as_json
        Print JSON instead of tables.
    """
    example = "forebay run FILE --law pi --set law.pi.queue={}".format
    _list(registries.queues(), name, as_json, "queues", lambda queue: example(queue["name"]))


def _law_example(law: RegistryEntry) -> str:
    """Return a command that runs a law and sets its first parameter to the default."""
    first = next((param for param in law["params"] if param["default"] is not None), None)
    own = f" --set law.{law['name']}.{first['name']}={first['default_text']}" if first else ""
    return f"forebay run FILE --law {law['name']}{own}"


def _list(
    registry: Mapping[str, RegistryEntry],
    names: Sequence[str] | None,
    as_json: bool,
    command: str,
    example: Callable[[RegistryEntry], str],
) -> None:
    """Print the titles of all entries of a registry, or the parameters of some.

    Parameters
    ----------
    registry : mapping
        Laws or queues by name.
    names : sequence of str or None
        Entries whose parameters are shown.
    as_json : bool
        True to print JSON.
    command : str
        Name of the command, for a hint.
    example : callable
        Returns a command that uses an entry.
    """
    for name in names or ():
        check_choice("NAME", name, registry)
    entries = [entry for name, entry in registry.items() if not names or name in names]
    if as_json:
        keys = ["name", "unit", "default", "min", "max", "doc"]
        plain = [
            entry | {"params": [{key: param[key] for key in keys} for param in entry["params"]]}
            for entry in map(dict[str, Any], entries)
        ]
        print(json.dumps(plain, indent=1))
    elif names:
        _show(console(), entries, example)
    else:
        from forebay._base.terminal_table import Column

        columns = [Column("name", align_left=True), Column("what it is", sentence=True)]
        screen = print_table(columns, [[entry["name"], entry["title"]] for entry in entries])
        screen.print(f"forebay {command} NAME shows its parameters", style="dim")


def _show(
    screen: Console, entries: Sequence[RegistryEntry], example: Callable[[RegistryEntry], str]
) -> None:
    """Print a table of parameters for each entry, and a command that uses the first."""
    from rich.text import Text

    from forebay._base import quantities, terminal_table
    from forebay._base.terminal_table import Column, RowGroup

    columns = [
        *(Column("parameter", align_left=True), Column("default")),
        *(Column("range", align_left=True), Column("meaning", sentence=True)),
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
            screen.print("It has no parameters.\n")
    screen.print(Text.assemble("Try it:  ", (example(entries[0]), "bold")), soft_wrap=True)


def _default(param: ParamInfo) -> str:
    """Return a parameter's default as a scenario has it, without quotes: "200p", "6.25ms"."""
    if param["default"] is None:
        return "required"
    if isinstance(param["default"], float) and not param["unit"]:
        return f"{param['default']:g}"
    return param["default_text"]


@with_options
def explain(key: Key, /) -> None:
    """Explain a key, a parameter, an option, a law or a metric.

    Parameters
    ----------
    key : NAME
        Name to explain, such as bottleneck.rate, target, law.pi.a, fq-codel, cubic or qacd_pkts.
    """
    from rich.table import Table
    from rich.text import Text

    from forebay._base.terminal_table import Column
    from forebay.guide import explain as guide

    entries = guide.find(key)
    screen = console(80)
    if len(entries) > IN_FULL:
        columns = [
            *(Column("name", align_left=True), Column("default", align_left=True)),
            Column("meaning", sentence=True),
        ]
        rows = [
            [entry.path, dict(entry.facts).get("default", ""), entry.meaning] for entry in entries
        ]
        print_table(columns, rows, width=80)
        # The path of an entry may itself be the name that several entries have.
        example = f"forebay explain {next((e.path for e in entries if e.path != key), key)}"
        screen.print(Text.assemble("To show one of them:  ", (example, "bold")))
        return
    for entry in entries:
        screen.print(Text.assemble((entry.path, "bold cyan"), "  ", (entry.where, "dim")))
        screen.print(Text(entry.meaning))
        examples = [("example", entry.example)] if entry.example else []
        for head, text in (*entry.facts, *examples, ("see", entry.page)):
            label = Text(f"  {head:<15}", style="dim")
            if head == "example":
                # A line to be copied is not broken.
                screen.print(Text.assemble(label, " ", text), soft_wrap=True)
                continue
            line = Table.grid(padding=(0, 1))
            line.add_row(label, Text(text))
            screen.print(line)
        screen.print()


@with_options
def experiments(name: str | None = None, /, *, as_json: bool = False) -> None:
    """List the scenarios that come with Forebay, or print one.

    Parameters
    ----------
    name : [NAME]
        List the experiments of a folder, such as pi-pd, or print an experiment, such as
        pi-pd/load, as TOML.
    as_json
        Print one JSON object per experiment.
    """
    import tomllib

    from forebay._base.terminal_table import Column
    from forebay.scenario import names

    files = names.scenarios()
    folder = (name or "").strip("/")
    chosen = {
        title: file for title, file in files.items() if folder in ("", title.partition("/")[0])
    }
    if name is not None and not chosen:
        path = names.path(name)
        chosen = {title: file for title, file in files.items() if file == path}
        if not chosen:
            raise names.missing(name, "no experiment of this name")
        if not as_json:
            sys.stdout.write(path.read_text(encoding="utf-8"))
            return
    tables = {title: tomllib.loads(file.read_text("utf-8")) for title, file in chosen.items()}
    if as_json:
        for title, file in chosen.items():
            about = {key: tables[title].get(key, "") for key in ("title", "source")}
            print(json.dumps({"name": title, **about, "file": str(file)}))
        return
    columns = [Column("experiment", align_left=True), Column("title", sentence=True)]
    rows = [[title, str(tables[title].get("title", ""))] for title in chosen]
    print_table(columns, rows).print(
        "forebay run NAME runs one; forebay experiments NAME > my.toml copies one", style="dim"
    )


@with_options
def cite(name: Sources = None, /) -> None:
    """Print BibTeX for Forebay and the sources of laws and results.

    Parameters
    ----------
    name : [NAME]...
        Laws, queues, senders or papers (docs/reference/references.md), a scenario, or a folder of
        results; only Forebay without it.
    """
    from forebay.guide import cite as guide

    entries, sentences = guide.entries(name or ())
    for sentence in sentences:
        print(f"% {sentence}")
    for entry in entries:
        print(f"\n{entry}")


def schema() -> None:
    """Print the JSON Schema of scenarios, for editors."""
    print(_native.schema())
