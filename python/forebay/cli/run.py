"""`forebay run`: an experiment, its tables and its report.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay._base import signals
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, result_name, stopped
from forebay.cli.options import (
    Engine,
    Metrics,
    NoReport,
    ReportOptions,
    RunOptions,
    ScenarioFile,
    ScenarioOptions,
    console,
    metric_names,
)

if TYPE_CHECKING:
    from forebay.experiment.result import Result

#: Runs whose tables and page are made within a second or two, also of a command that is ended.
MOST_TABLES = 100


@with_options
def run(
    file: ScenarioFile,
    /,
    *,
    given: ScenarioOptions,
    engine: Engine = "packets",
    output: ReportOptions,
    making: RunOptions,
    no_report: NoReport = False,
    metric: Metrics = None,
    flent: Path | None = None,
) -> None:
    """Run every law at every point with every seed, and report on them.

    The numbers are on disk before the first figure is drawn; Ctrl-C keeps what has finished. Runs
    are kept in a store: the same command is done at once, and more seeds run only what is new.

    out: Where the report and the samples go; results/NAME for a scenario NAME.toml.
    as_json: Print one JSON object per run; files are written only with --out.
    flent DIR: Write each run there as a data file of flent, NAME.flent.gz.
    """
    from forebay._base import publication
    from forebay.experiment import engines, experiment
    from forebay.report import result_files

    by, chosen_metrics = engines.named(engine), metric_names(metric)
    read = experiment.read(
        file, laws=given.law, overrides=given.set_ or (), seeds=given.seeds, engine=by
    )
    for line in read.designed:
        print(line, file=sys.stderr)
    if read.warning:
        print(read.warning, file=sys.stderr)
    name, seeds = result_name(file), len(read.plan.seeds)
    call = Invocation.begun(output, name, read.command, digest=lambda: read.digest, seeds=seeds)
    out = call.folder
    if flent is not None:
        publication.check_folder(flent, "flent")
    samples = out is not None or flent is not None
    load = _load if out is not None and not no_report else None
    (executed,) = call.executed([read], making, samples=samples, meanwhile=load)
    if call.as_json:
        for finished in executed.runs:
            print(result_files.line(read.plan, finished, engine, chosen_metrics))
        # Standard output is for programs; the others have this among the warnings of their table.
        for text in result_files.remarks(read.plan.points):
            print(f"{text}.", file=sys.stderr)
    interrupted = executed.interrupted
    if executed.runs and samples:
        from forebay.experiment import flent as data_files
        from forebay.experiment.result import Result

        result = Result(read, executed)
        result.chosen_metrics = chosen_metrics
        if flent is not None:
            data_files.write(result, flent)
    if executed.runs and out is not None:
        interrupted |= _keep(
            result,
            out,
            show=not call.as_json,
            report=not no_report,
            ended_early=executed.interrupted,
        )
    if len(executed.runs) < read.runs:
        raise stopped(
            len(executed.runs),
            read.runs,
            interrupted=executed.interrupted,
            reported=bool(executed.runs),
            by_input=any(fault.of_law for fault in executed.faults),
        )
    if interrupted:
        raise typer.Exit(signals.status())
    if out is not None and not no_report:
        call.show(out / result_files.REPORT)


def _load() -> None:
    """Load what tables and figures are made with, which takes a second."""
    from scipy import special  # noqa: F401

    from forebay.control import plants  # noqa: F401
    from forebay.report import kinds, moving, pages  # noqa: F401


def _metrics_alone(out: Path) -> str:
    return (
        f"{out} has the metrics of the runs that finished, without samples and page; the same "
        "command goes on with the runs that are in the store"
    )


def _keep(
    result: Result, out: Path, *, show: bool, report: bool, ended_early: bool = False
) -> bool:
    """Write the numbers, show them, and draw; return whether that was interrupted.

    ended_early: whether the runs were interrupted. Whoever ends a command does not wait for tables
    and figures of thousands of runs.
    """
    from forebay._base import progress
    from forebay.report import result_files, tables

    many = len(result.runs) > MOST_TABLES
    drawn = report and result.found == len(result.runs) and result_files.is_current(result, out)
    try:
        if drawn:
            pass  # to the last bit, and the page takes longest
        elif result.partial and result_files.has_more(out, result):
            print(f"{out} has these runs and more, and is left as it is", file=sys.stderr)
            report = False
        else:
            try:
                with (
                    signals.held(checkpoints=many) as interrupted,
                    progress.status("writing the tables"),
                ):
                    if many:
                        # Before what takes long, so that no interruption loses a run.
                        result_files.write_metrics(result, out)
                    if many and ended_early:
                        print(_metrics_alone(out), file=sys.stderr)
                        return True
                    result_files.write_tables(result, out)
                if interrupted:
                    raise KeyboardInterrupt
            except KeyboardInterrupt:
                if not many or (out / "samples.parquet").exists():
                    raise
                print(f"interrupted: {_metrics_alone(out)}", file=sys.stderr)
                return True
        if show:
            screen = console()
            tables.results(screen, result)
            screen.print(tables.cost(result))
            if result.found:
                screen.print(f"{result.found} of {len(result.runs)} runs were in the store")
        if report and not drawn:
            with progress.bar(what="figures") as watch:
                result_files.write_report(result, out, watch)
    except KeyboardInterrupt:
        print(
            f"interrupted while drawing: tables and finished figures are in {out}", file=sys.stderr
        )
        return True
    if show:
        where = out / result_files.REPORT if report else out
        print(f"{'Report' if report else 'Tables'}: {where}")
    return False
