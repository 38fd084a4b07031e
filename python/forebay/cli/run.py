"""`forebay run`: an experiment, its tables and its report.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.options import (
    FAILED,
    INTERRUPTED,
    NoReport,
    ScenarioFile,
    ScenarioKeys,
    Threads,
    console,
)

if TYPE_CHECKING:
    from forebay.report.result import Result


def run(
    file: ScenarioFile,
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Run this law instead of the file's: its kind or label, or FILE.py:CLASS for a "
            "prototype in Python. May be given several times.",
            metavar="KIND",
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
) -> None:
    """Run every law at every point with every seed, and report on them."""
    from forebay.report import files
    from forebay.run import experiment, progress, prototypes

    read = experiment.read(
        file, laws=[prototypes.load(text) for text in law or ()], sets=set_ or (), seeds=seeds
    )
    if out is None and not as_json:
        out = Path("results") / file.stem
    if out is not None:
        files.check(out)
    with progress.bar() as watch:
        execution = experiment.execute(read, threads, watch, samples=out is not None)

    for fault in execution.faults:
        print(experiment.fault_in_words(read.plan, fault), file=sys.stderr)
    if as_json:
        for finished in execution.runs:
            print(files.line(read.plan, finished))
    if execution.runs and out is not None:
        from forebay.report.result import Result

        result = Result(read, execution)
        with progress.status("writing the report"):
            files.write(result, out, report=not no_report)
        if not as_json:
            _show(result, out, no_report)
    if len(execution.runs) < read.runs:
        why = "interrupted" if execution.interrupted else "stopped"
        print(
            f"{why}: {len(execution.runs)} of {read.runs} runs had finished"
            f"{' and are reported' if execution.runs else ''}",
            file=sys.stderr,
        )
        raise typer.Exit(INTERRUPTED if execution.interrupted else FAILED)


def _show(result: Result, out: Path | None, no_report: bool) -> None:
    from forebay.report import files, tables

    screen = console()
    screen.print(tables.results(result))
    screen.print(tables.cost(result))
    if out is not None:
        where = out if no_report else out / files.REPORT
        screen.print(f"{'Tables' if no_report else 'Report'}: {where}", soft_wrap=True)
