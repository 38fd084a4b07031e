"""`forebay explain`: the meaning of a key, a parameter, an option, a law or a metric."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay.cli import completion
from forebay.cli.declaration import with_options
from forebay.cli.options import console, print_table

#: So many in full; more stand in a table, each with its first sentence.
IN_FULL = 3


@with_options
def explain(key: Annotated[str, typer.Argument(autocompletion=completion.explained)], /) -> None:
    """Explain a key, a parameter, an option, a law or a metric: meaning, unit, range, place.

    key KEY: Such as bottleneck.rate, target, law.pi.a, fq-codel, cubic or qacd_pkts.
    """
    from rich.table import Table
    from rich.text import Text

    from forebay._base.terminal_table import Column
    from forebay.guide import explain as guide

    found = guide.find(key)
    out = console(80)
    if len(found) > IN_FULL:
        columns = [
            Column("name", left=True),
            Column("default", left=True),
            Column("meaning", sentence=True),
        ]
        rows = [[it.path, dict(it.facts).get("default", ""), it.meaning] for it in found]
        print_table(columns, rows, width=80)
        out.print(Text.assemble("One of them:  ", (f"forebay explain {found[0].path}", "bold")))
        return
    for entry in found:
        out.print(Text.assemble((entry.path, "bold cyan"), "  ", (entry.where, "dim")))
        out.print(Text(entry.meaning))
        more = [("example", entry.example)] if entry.example else []
        for head, text in (*entry.facts, *more, ("more", entry.page)):
            label = Text(f"  {head:<9}", style="dim")
            if head == "example":
                # It is to be copied, and stands on one line.
                out.print(Text.assemble(label, " ", text), soft_wrap=True)
                continue
            line = Table.grid(padding=(0, 1))
            line.add_row(label, Text(text))
            out.print(line)
        out.print()
