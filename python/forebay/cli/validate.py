"""`forebay validate`: is an engine right? The same scenario on others, beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line, stopped
from forebay.cli.options import AtLeastOne, ReportOptions, ScenarioOptions, print_table

if TYPE_CHECKING:
    from forebay.comparison.validate import ValidatedScenario


@with_options
def validate(
    file: list[Path],
    /,
    *,
    given: ScenarioOptions,
    repeats: AtLeastOne = 3,
    attempts: AtLeastOne = 3,
    links: Annotated[int, typer.Option(min=1)] = 1,
    void_lateness: str = "1ms",
    void_rate: str = "0.1%",
    engines: str = "packets,link",
    page: Path | None = None,
    output: ReportOptions,
) -> None:
    """Run a scenario on two engines or more, simulated and with real flows, and lay them side by
    side.

    Ctrl-C keeps what has finished.

    file FILE…: Scenarios in TOML; for real flows with ftp, mice, web or program traffic.
    law LAW: Only this law instead of the file's.
    engines A,B,…: Which engines; the others are held beside the last. docs/engines.md has all.
    repeats: Real runs of each law, in real time.
    attempts: Runs at most for one that is not void.
    links: Real runs at a time, each on a link of its own.
    void_lateness TIME: A run is void if one packet in 1000 is released later.
    void_rate SHARE: A run is void if the rate is off by more.
    page FILE: Write the comparison as Markdown.
    out: Write the comparison as HTML with its figures, and all runs as JSON and Parquet.
    as_json: Print one JSON object per law instead of tables.
    """
    from forebay._base import progress, publication
    from forebay.comparison import validate as validation

    command = command_line()
    if page is not None:
        publication.check_file(page, "page")
    void = (void_lateness, void_rate)
    taken = (given.law, given.set_, given.seeds)
    asked = publication.digest_of([file, taken, engines, repeats, attempts, links, void])
    call = Invocation.begun(output, None, command, digest=lambda: asked)
    names = [name.strip() for name in engines.split(",")]
    made = validation.validate(
        file, given.law, overrides=given.set_ or (), seeds=given.seeds, repeats=repeats,
        attempts=attempts, links=links, void_lateness=void_lateness, void_rate=void_rate,
        progress=lambda runs: progress.bar(what=f"{runs} runs"), engines=names,
    )  # fmt: skip
    if made.comparisons:
        _report(made.comparisons, call, page, command, (void_lateness, void_rate))
    if made.failure:
        print(f"forebay validate: {made.failure}", file=sys.stderr)
    if made.interrupted or made.failure:
        raise stopped(
            made.finished,
            made.wanted,
            interrupted=made.interrupted,
            reported=bool(made.comparisons),
            what=f"{made.reference} run",
        )


def _report(
    found: list[ValidatedScenario],
    call: Invocation,
    page: Path | None,
    command: str,
    void: tuple[str, str],
) -> None:
    """Prints the tables, and then writes what was asked for, first what has the runs."""
    from forebay._base import progress
    from forebay._base.publication import publish_file

    for one in found:
        _print(one, call.as_json)

    if page is not None or call.folder is not None:
        from forebay.comparison import validation_page as pages

        if call.folder is not None:
            kept = f"{call.folder} has the numbers"
            with call.drawing(kept), progress.status("writing the report"):
                pages.write_files(found, call.folder, command, *void, digest=call.digest)
        if page is not None:
            publish_file(page, pages.markdown(found, command, *void))
    if page is not None:
        call.tell("Page", page)
    if call.folder is not None:
        call.tell("Report", call.folder / "report.html")
        call.show(call.folder / "report.html")


def _print(found: ValidatedScenario, as_json: bool) -> None:
    from forebay.report.result_files import finite

    if as_json:
        for row in found.rows:
            sides = zip(row.names, row.sides, strict=True)
            runs = {name: [finite(metrics) for metrics in side.metrics] for name, side in sides}
            print(json.dumps({"scenario": found.path, **row.as_json(), **runs}))
        return
    from forebay._base.terminal_table import Column
    from forebay.comparison.validate import METRICS

    shown = [name for name in found.metrics if name not in ("delay_p99_s", "utilisation")]
    columns = [
        Column("law", left=True),
        Column("", left=True),
        Column("verdict", sentence=True),
        *(Column(METRICS[name].title, METRICS[name].unit) for name in shown),
    ]
    verdicts = [row.verdict + (" (VOID)" if row.counts_void else "") for row in found.rows]
    rows = [
        [name, side, verdicts[i // 3] if i % 3 == 2 else "", *cells]
        for i, (name, side, *cells) in enumerate(found.table_rows(shown))
    ]
    screen = print_table(columns, rows, width=160, title=found.heading, keys=2)
    screen.print(f"{found.count()}.")
    if again := sum(row.again for row in found.rows):
        screen.print(f"Real runs that were void or failed, and were made again: {again}.")
    for row in found.rows:
        if row.void:
            reasons = "; ".join(row.reasons)
            print(f"forebay validate: {row.law}: {row.void} of {row.repeats} VOID: {reasons}")
