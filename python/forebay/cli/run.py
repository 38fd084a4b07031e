"""`forebay run`: an experiment with its tables and its report.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay._base import progress, signals
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, print_errors, result_name, stopped_runs

if TYPE_CHECKING:
    from forebay.experiment.result import Result

#: Number of runs whose tables and page take a second or two, so an interrupted command still
#: writes them.
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
    """Run a scenario under every law and report on the results.

    Every law runs at every point of the sweep with every seed. Runs are stored: the same command
    returns at once, and more seeds run only what is new. Ctrl-C keeps the runs that have finished.

    Parameters
    ----------
    out : DIR
        Folder of the report and the samples; results/NAME for a scenario NAME.toml without it.
    as_json
        Print one JSON object per run; write no files unless --out is given.
    flent : DIR
        Also write each run to this folder as a data file of flent.
    """
    from forebay._base import publication
    from forebay.experiment import engines, experiment
    from forebay.report import result_files

    chosen, metrics = engines.named(engine), options.metric_names(metric)
    keys, seeds = overrides.set_ or (), overrides.seeds
    source = experiment.read(file, laws=overrides.law, overrides=keys, seeds=seeds, engine=chosen)
    print_errors([*source.designed, *filter(None, [source.warning])])
    name, count = result_name(file), len(source.plan.seeds)
    call = Invocation.begun(output, name, source.command, digest=lambda: source.digest, seeds=count)
    if flent is not None:
        publication.check_folder(flent, "flent")
    samples, is_drawn = bool(call.folder or flent), call.folder is not None and not no_report
    load = _load if is_drawn else None
    (executed,) = call.executed([source], making, samples=samples, meanwhile=load)
    if call.as_json:
        for finished in executed.runs:
            print(result_files.line(source.plan, finished, engine, metrics))
        # Without --json, these remarks are among the warnings below the table.
        print_errors(f"{text}." for text in result_files.remarks(source.plan.points))
    interrupted = executed.interrupted
    if executed.runs and samples:
        from forebay.experiment.result import Result

        result = Result(source, executed)
        result.chosen_metrics = metrics
        interrupted |= _keep(result, call, flent, report=not no_report, ended_early=interrupted)
    if len(executed.runs) < source.runs:
        raise stopped_runs([source], [executed], reported=bool(executed.runs))
    if interrupted:
        raise typer.Exit(signals.status())
    if call.folder is not None and is_drawn:
        call.show(call.folder / result_files.REPORT)


def _load() -> None:
    """Load the modules of tables and figures, which takes a second."""
    from scipy import special  # noqa: F401

    from forebay.control import plants  # noqa: F401
    from forebay.report import kinds, moving, pages  # noqa: F401


def _keep(
    result: Result, call: Invocation, flent: Path | None, *, report: bool, ended_early: bool
) -> bool:
    """Write and print the numbers, then draw the figures; return True if that was interrupted.

    Parameters
    ----------
    result : Result
        The runs.
    call : Invocation
        The folder of the result, and whether JSON was printed.
    flent : Path or None
        Folder for data files of flent.
    report : bool
        False to write no page and no figures.
    ended_early : bool
        True if the runs were interrupted: a user who stops a command does not wait for tables and
        figures of thousands of runs.

    Returns
    -------
    bool
        True if writing was interrupted.
    """
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
            print_errors([f"{out} already has these runs and more; it is unchanged"])
            report = False
        elif not is_drawn and not _write_tables(result, out, ended_early=ended_early):
            return True
        if not call.as_json:
            screen = options.console()
            tables.results(screen, result)
            if result.from_store < len(result.runs):
                screen.print(tables.cost(result))
            if result.from_store:
                screen.print(f"{result.from_store} of {len(result.runs)} runs came from the store")
        if report and not is_drawn:
            with progress.bar(unit="figures") as watch:
                result_files.write_report(result, out, watch)
    except KeyboardInterrupt:
        print_errors(
            [f"interrupted while drawing; the tables and the finished figures are in {out}"]
        )
        return True
    call.tell(*("Report", out / result_files.REPORT) if report else ("Tables", out))
    return False


def _write_tables(result: Result, out: Path, *, ended_early: bool) -> bool:
    """Write the tables; return False if only the metrics of many runs were written.

    The metrics of many runs are written before the larger tables, so that an interruption loses
    none of them.
    """
    from forebay.report import result_files

    is_long = len(result.runs) > MOST_TABLES
    metrics_alone = (
        f"{out} has the metrics of the finished runs, without samples and page; the same command "
        "continues with the runs in the store"
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
