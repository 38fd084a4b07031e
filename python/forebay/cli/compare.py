"""`forebay compare`: two saved results side by side.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import json
from pathlib import Path

from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line
from forebay.cli.options import Metrics, ReportOptions, console, metric_names


@with_options
def compare(a: Path, b: Path, /, *, metric: Metrics = None, output: ReportOptions) -> None:
    """Compare two saved results: what differs, and whether that may be chance.

    Laws and points are matched by their labels, runs by their seeds.

    a A: A result of forebay run or study, or data files of flent: one, or a folder of them.
    b B: Another one.
    out: Folder for the page and the numbers; results/compare-A-B if it is left out.
    """
    from forebay._base.publication import digest_of
    from forebay.comparison import comparison_page as page
    from forebay.comparison.compare import compare as compared

    found = compared(a, b, metric_names(metric))
    command = command_line()
    default = f"compare-{a.resolve().name}-{b.resolve().name}"
    asked = digest_of([a.resolve(), b.resolve()])
    call = Invocation.begun(output, default, command, digest=lambda: asked, numbers=page.NUMBERS)
    if call.as_json:
        print(json.dumps(found.to_dict()))
    else:
        page.show(console(), found)
    if call.folder is not None:
        with call.drawing("the table is all that there is"):
            written = page.write(found, call.folder, command, call.digest)
        call.tell("Page", written)
        call.show(written)
