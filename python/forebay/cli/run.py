"""`forebay run`: an experiment, its tables and its report.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli import options
from forebay.cli.options import (
    BAD_INPUT,
    FAILED,
    Force,
    NoReport,
    NoStore,
    OpenPage,
    ScenarioFile,
    ScenarioKeys,
    StoreAt,
    Style,
    Threads,
    console,
)
from forebay.run import signals

if TYPE_CHECKING:
    from forebay.report.result import Result


def run(
    file: ScenarioFile,
    law: Annotated[
        list[str] | None,
        options.laws(
            "Run this law instead of the file's: its kind or label, or FILE.py:CLASS for a "
            "prototype in Python."
        ),
    ] = None,
    set_: ScenarioKeys = None,
    seeds: Annotated[
        int | None, typer.Option(help="Run with seeds 1 to N.", metavar="N", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the report and the samples go; results/NAME for a scenario NAME.toml.",
            metavar="DIR",
        ),
    ] = None,
    threads: Threads = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per run; files are written only with --out."
        ),
    ] = False,
    no_report: NoReport = False,
    force: Force = False,
    store: StoreAt = None,
    no_store: NoStore = False,
    style: Style = "screen",
    open_: OpenPage = False,
) -> None:
    """Run every law at every point with every seed, and report on them.

    The numbers are on disk before the first figure is drawn; Ctrl-C keeps what has finished. Runs
    are kept in a store: the same command is done at once, and more seeds run only what is new.
    """
    from forebay.report import files, place
    from forebay.report import style as styles
    from forebay.run import experiment, named, progress
    from forebay.store import choice

    styles.use(style)
    read = experiment.read(file, laws=law, sets=set_ or (), seeds=seeds)
    for line in read.designed:
        print(line, file=sys.stderr)
    if out is None and not as_json:
        out = Path("results") / ("stdin" if str(file) == experiment.STDIN else named.stem(file))
    if out is not None:
        place.check(out)
        place.claim(out, read.command, force=force, seeds=len(read.plan.seeds))
    # Without --out, --json writes no file that nobody has asked for.
    runs = choice.store(store, without=no_store, default=out is not None)
    with progress.bar() as watch:
        execution = experiment.execute(read, threads, watch, samples=out is not None, store=runs)

    for fault in execution.faults:
        print(experiment.fault_in_words(read.plan, fault), file=sys.stderr)
    if as_json:
        for finished in execution.runs:
            print(files.line(read.plan, finished))
    interrupted = execution.interrupted
    if execution.runs and out is not None:
        from forebay.report.result import Result

        result = Result(read, execution)
        interrupted |= _keep(result, out, show=not as_json, report=not no_report)
    if len(execution.runs) < read.runs:
        why = "interrupted" if execution.interrupted else "stopped"
        print(
            f"{why}: {len(execution.runs)} of {read.runs} runs had finished"
            f"{' and are reported' if execution.runs else ''}",
            file=sys.stderr,
        )
        if execution.interrupted:
            raise typer.Exit(signals.status())
        raise typer.Exit(BAD_INPUT if any(it.of_law for it in execution.faults) else FAILED)
    if interrupted:
        raise typer.Exit(signals.status())
    if open_ and out is not None and not no_report:
        options.open_page(out / files.REPORT)


def _keep(result: Result, out: Path, *, show: bool, report: bool) -> bool:
    """Writes the numbers, shows them, and draws; whether that was interrupted."""
    from forebay.report import current, files, tables
    from forebay.run import progress

    drawn = report and result.found == len(result.runs) and current.is_current(result, out)
    try:
        if drawn:
            pass  # to the last bit, and the page takes longest
        elif result.partial and files.has_more(out, result):
            print(f"{out} has these runs and more, and is left as it is", file=sys.stderr)
            report = False
        else:
            with signals.held() as interrupted, progress.status("writing the tables"):
                files.write_tables(result, out)
            if interrupted:
                raise KeyboardInterrupt
        if show:
            screen = console()
            tables.results(screen, result)
            screen.print(tables.cost(result))
            if result.found:
                screen.print(f"{result.found} of {len(result.runs)} runs were in the store")
        if report and not drawn:
            with progress.bar(what="figures") as watch:
                files.write_report(result, out, watch)
    except KeyboardInterrupt:
        print(
            f"interrupted while drawing: tables and finished figures are in {out}", file=sys.stderr
        )
        return True
    if show:
        where = out / files.REPORT if report else out
        print(f"{'Report' if report else 'Tables'}: {where}")
    return False
