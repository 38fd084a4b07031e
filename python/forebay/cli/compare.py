"""`forebay compare`: two saved results side by side.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli import options
from forebay.cli.groups import Help, with_groups
from forebay.cli.invocation import Invocation, command_line
from forebay.cli.options import Metrics, ReportOptions, console


@with_groups
def compare(
    a: Annotated[Path, typer.Argument(help="A result of forebay run or study.", metavar="A")],
    b: Annotated[Path, typer.Argument(help="Another one.", metavar="B")],
    metric: Metrics = None,
    *,
    output: Annotated[
        ReportOptions,
        Help(out=options.folder("the page and the numbers", "results/compare-A-B")),
    ],
) -> None:
    """Compare two saved results: what differs, and whether that may be chance.

    Laws and points are matched by their labels, runs by their seeds.
    """
    from forebay.comparisons import page
    from forebay.comparisons.compare import compare as compared

    found = compared(a, b, options.metrics(metric))
    command = command_line()
    default = f"compare-{a.resolve().name}-{b.resolve().name}"
    call = Invocation.begun(output, default, command, numbers=page.NUMBERS)
    if call.as_json:
        print(json.dumps(found.to_dict()))
    else:
        page.show(console(), found)
    if call.folder is not None:
        with call.drawing("the table is all that there is"):
            written = page.write(found, call.folder, command)
        call.tell("Page", written)
        call.show(written)
