"""`forebay suite`: every scenario of RFC 7928 under every law.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.options import FAILED, INTERRUPTED, Threads, console

if TYPE_CHECKING:
    from forebay.suite.results import Suite

#: Metrics that fit a terminal of 80 columns; the page has more.
SHOWN = ["delay_mean_s", "goodput_bps", "jain", "flow_completion_p95_s"]

#: Stands for every law that there is.
ALL = "all"


def suite(
    name: Annotated[str, typer.Argument(help="A suite, such as rfc7928.", metavar="SUITE")],
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this law instead of the suite's: its kind, all, or FILE.py:CLASS for a "
            "prototype in Python. May be given several times.",
            metavar="KIND",
        ),
    ] = None,
    scenario: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this scenario alone, such as 5-1-friendly. May be given several times.",
            metavar="NAME",
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Another link: its rate and its delay, one way, such as 50Mbit/s,20ms. Rates of "
            "the traffic and buffers follow.",
            metavar="RATE,DELAY",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Run with seeds 1 to N.", metavar="N", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the report goes; results/SUITE by default.", metavar="DIR"),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="Write the comparison as Markdown, too.", metavar="FILE"),
    ] = None,
    threads: Threads = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Print one JSON object per law and scenario; files are written only with --out.",
        ),
    ] = False,
) -> None:
    """Run every scenario of RFC 7928 under every law, and compare the laws."""
    from forebay import _native
    from forebay.report import files
    from forebay.run import progress, prototypes
    from forebay.suite import running, scenarios

    settings = scenarios.find(name)
    if out is None and not as_json:
        out = Path("results") / settings.name
    if out is not None:
        files.check(out)
    if page is not None:
        files.check_file(page, "--page")
    chosen = [entry["name"] for entry in _native.laws()] if law == [ALL] else law or settings.laws
    at = settings.link if link is None else scenarios.link(link)
    files_chosen = settings.scenarios(scenario)
    laws = [prototypes.load(text) for text in chosen]
    planned = scenarios.plan(settings, files_chosen, laws, at, seeds)
    with progress.bar() as watch:
        found = running.run(planned, threads, watch)

    for fault in found.faults:
        print(fault, file=sys.stderr)
    if as_json:
        for line in found.lines():
            print(json.dumps(line))
    if found.cases and (out is not None or page is not None):
        from forebay.suite import pages

        about = pages.About(settings, at, _command(name, law, scenario, link, seeds, page))
        if out is not None:
            with progress.status("writing the report"):
                where = pages.write(found, about, out)
            if not as_json:
                _show(found, where)
        if page is not None:
            page.write_text(pages.markdown(found, about), encoding="utf-8")
    if found.partial:
        why = "interrupted" if found.interrupted else "stopped"
        print(
            f"{why}: {found.made} of {found.wanted} runs had finished"
            f"{' and are reported' if found.cases else ''}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED if found.interrupted else FAILED)


def _command(
    name: str,
    law: list[str] | None,
    scenario: list[str] | None,
    link: str | None,
    seeds: int | None,
    page: Path | None,
) -> str:
    words = ["forebay", "suite", name]
    for one in law or ():
        words += ["--law", one]
    for one in scenario or ():
        words += ["--scenario", one]
    if link is not None:
        words += ["--link", link]
    if seeds is not None:
        words += ["--seeds", str(seeds)]
    if page is not None:
        words += ["--page", str(page)]
    return shlex.join(words)


def _show(found: Suite, where: Path) -> None:
    from rich import box
    from rich.table import Table

    from forebay.suite import pages

    screen = console(80)
    if found.whole():
        shown = pages.comparison(found, SHOWN)
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
        for i, head in enumerate(shown.heads):
            title, _, unit = head.partition(" [")
            # Wide titles break at their comma.
            lines = [*title.split(", "), unit.removesuffix("]")]
            table.add_column(
                "\n".join(lines).rstrip(),
                justify="right" if i else "left",
                no_wrap=True,
            )
        for row in shown.rows:
            table.add_row(*row)
        screen.print(table)
        cases = f"{len(found.whole())} case{'s' if len(found.whole()) > 1 else ''}"
        screen.print(
            f"means over {cases} ± half the 95 % confidence interval"
            if len(found.seeds) > 1
            else f"means over {cases}; one seed: no interval",
            style="dim",
        )
    screen.print(f"{found.made} runs in {found.elapsed_s:.0f} s")
    screen.print(f"Report: {where}", soft_wrap=True)
