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

from forebay.cli import options
from forebay.cli.options import (
    BAD_INPUT,
    FAILED,
    Force,
    NoStore,
    OpenPage,
    StoreAt,
    Style,
    Threads,
    console,
)
from forebay.run import signals

if TYPE_CHECKING:
    from forebay.suite.results import Suite

#: First those that a narrow terminal shows; the page has all.
SHOWN = ["goodput_bps", "delay_mean_s", "flow_completion_p95_s", "jain", "delay_p95_s", "drop_rate"]

#: Stands for every law that there is.
ALL = "all"


def suite(
    name: Annotated[str, typer.Argument(help="A suite, such as rfc7928.", metavar="SUITE")],
    law: Annotated[
        list[str] | None,
        options.laws(
            "Run this law instead of the suite's: its kind, all, or FILE.py:CLASS for a "
            "prototype in Python."
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
    force: Force = False,
    style: Style = "screen",
    open_: OpenPage = False,
    store: StoreAt = None,
    no_store: NoStore = False,
) -> None:
    """Run every scenario of RFC 7928 under every law, and compare the laws."""
    from forebay import _native
    from forebay.report import files, place
    from forebay.report import style as styles
    from forebay.run import progress, prototypes
    from forebay.store import choice
    from forebay.suite import running, scenarios

    styles.use(style)
    settings = scenarios.find(name)
    command = _command(name, law, scenario, link, seeds, page)
    if out is None and not as_json:
        out = Path("results") / settings.name
    if out is not None:
        place.check(out)
        place.claim(out, command, force=force)
    if page is not None:
        place.check_file(page, "--page")
    chosen = [entry["name"] for entry in _native.laws()] if law == [ALL] else law or settings.laws
    at = settings.link if link is None else scenarios.link(link)
    files_chosen = settings.scenarios(scenario)
    laws = [prototypes.load(text) for text in chosen]
    planned = scenarios.plan(settings, files_chosen, laws, at, seeds)
    runs = choice.store(store, without=no_store, default=out is not None)
    with progress.bar() as watch:
        found = running.run(planned, threads, watch, runs)

    for fault in found.faults:
        print(fault, file=sys.stderr)
    if as_json:
        for line in found.lines():
            print(json.dumps(line))
    if found.cases and (out is not None or page is not None):
        from forebay.suite import pages

        about = pages.About(settings, at, command)
        if out is not None:
            pages.write_numbers(found, about, out)
        try:
            if not as_json:
                _show(found)
            if out is not None:
                with progress.bar(what="figures") as watch:
                    where = pages.write(found, about, out, watch)
                if not as_json:
                    print(f"Report: {where}")
                if open_:
                    options.open_page(where)
        except KeyboardInterrupt:
            kept = f"{out / files.NUMBERS} has the numbers" if out else "nothing is left"
            print(f"interrupted while drawing: {kept}", file=sys.stderr)
            raise typer.Exit(signals.status()) from None
        if page is not None:
            page.write_text(pages.markdown(found, about), encoding="utf-8")
    if found.partial:
        why = "interrupted" if found.interrupted else "stopped"
        print(
            f"{why}: {found.made} of {found.wanted} runs had finished"
            f"{' and are reported' if found.cases else ''}",
            file=sys.stderr,
        )
        if found.interrupted:
            raise typer.Exit(signals.status())
        raise typer.Exit(BAD_INPUT if found.of_law else FAILED)


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


def _show(found: Suite) -> None:
    from forebay.report import screen
    from forebay.report.screen import Column, Group
    from forebay.suite import pages

    terminal = console()
    if found.whole():
        table = pages.comparison(found, SHOWN)
        columns = [Column("law", left=True), *map(Column.of, table.heads[1:])]
        screen.show(terminal, columns, [Group(table.rows)])
        cases = f"{len(found.whole())} case{'s' if len(found.whole()) > 1 else ''}"
        terminal.print(
            f"means over {cases} ± half the 95 % confidence interval"
            if len(found.seeds) > 1
            else f"means over {cases}; one seed: no interval",
            style="dim",
        )
    terminal.print(f"{found.made} runs in {found.elapsed_s:.0f} s")
