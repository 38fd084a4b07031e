"""`forebay run`: an experiment, its tables and its report.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay._base import signals
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, print_errors, result_name, stopped

if TYPE_CHECKING:
    from forebay.experiment.result import Result

#: Runs whose tables and page are made within a second or two, also of a command that is ended.
MOST_TABLES = 100


@with_options
def run(
    file: options.ScenarioFile,
    /,
    *,
    overrides: options.ScenarioOptions,
    engine: options.Engine = "packets",
    output: options.ReportOptions,
    making: options.RunOptions,
    no_report: options.NoReport = False,
    metric: options.Metrics = None,
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

    by, metrics = engines.named(engine), options.metric_names(metric)
    read = experiment.read(
        file, laws=overrides.law, overrides=overrides.set_ or (), seeds=overrides.seeds, engine=by
    )
    print_errors([*read.designed, *filter(None, [read.warning])])
    name, seeds = result_name(file), len(read.plan.seeds)
    call = Invocation.begun(output, name, read.command, digest=lambda: read.digest, seeds=seeds)
    if flent is not None:
        publication.check_folder(flent, "flent")
    samples = call.folder is not None or flent is not None
    load = _load if call.folder is not None and not no_report else None
    (executed,) = call.executed([read], making, samples=samples, meanwhile=load)
    if call.as_json:
        for finished in executed.runs:
            print(result_files.line(read.plan, finished, engine, metrics))
        # Standard output is for programs; the others have this among the warnings of their table.
        print_errors(f"{text}." for text in result_files.remarks(read.plan.points))
    interrupted = executed.interrupted
    if executed.runs and samples:
        from forebay.experiment.result import Result

        result = Result(read, executed)
        result.chosen_metrics = metrics
        interrupted |= _keep(result, call, flent, report=not no_report, ended_early=interrupted)
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
    if call.folder is not None and not no_report:
        call.show(call.folder / result_files.REPORT)


def _load() -> None:
    """Load what tables and figures are made with, which takes a second."""
    from scipy import special  # noqa: F401

    from forebay.control import plants  # noqa: F401
    from forebay.report import kinds, moving, pages  # noqa: F401


def _keep(
    result: Result, call: Invocation, flent: Path | None, *, report: bool, ended_early: bool
) -> bool:
    """Write the numbers, show them, and draw; return True if that was interrupted.

    ended_early: True if the runs were interrupted. Whoever ends a command does not wait for tables
    and figures of thousands of runs.
    """
    from forebay._base import progress
    from forebay.report import result_files, tables

    if flent is not None:
        from forebay.experiment import flent as data_files

        data_files.write(result, flent)
    out = call.folder
    if out is None:
        return False
    has_all = result.from_store == len(result.runs)
    is_drawn = report and has_all and result_files.is_current(result, out)
    try:
        if result.partial and not is_drawn and result_files.has_more(out, result):
            print_errors([f"{out} has these runs and more, and is left as it is"])
            report = False
        elif not is_drawn and not _write_tables(result, out, ended_early=ended_early):
            return True
        if not call.as_json:
            screen = options.console()
            tables.results(screen, result)
            screen.print(tables.cost(result))
            if result.from_store:
                screen.print(f"{result.from_store} of {len(result.runs)} runs were in the store")
        if report and not is_drawn:
            with progress.bar(unit="figures") as watch:
                result_files.write_report(result, out, watch)
    except KeyboardInterrupt:
        print_errors([f"interrupted while drawing: tables and finished figures are in {out}"])
        return True
    call.tell(*("Report", out / result_files.REPORT) if report else ("Tables", out))
    return False


def _write_tables(result: Result, out: Path, *, ended_early: bool) -> bool:
    """Write the tables; return False if many runs have only their metrics there.

    Of many runs the metrics are written before what takes long, so that no interruption loses one.
    """
    from forebay._base import progress
    from forebay.report import result_files

    is_long = len(result.runs) > MOST_TABLES
    metrics_alone = (
        f"{out} has the metrics of the runs that finished, without samples and page; the same "
        "command goes on with the runs that are in the store"
    )
    try:
        with (
            signals.held(checkpoints=is_long) as interrupted,
            progress.status("writing the tables"),
        ):
            if is_long:
                result_files.write_metrics(result, out)
            if is_long and ended_early:
                print_errors([metrics_alone])
                return False
            result_files.write_tables(result, out)
        if interrupted:
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        if not is_long or (out / "samples.parquet").exists():
            raise
        print_errors([f"interrupted: {metrics_alone}"])
        return False
    return True
