"""`forebay run`: an experiment with its tables and its report.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay._base import progress, signals
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, print_errors, result_name, stopped_runs

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.experiment.execution import Execution
    from forebay.experiment.result import Result
    from forebay.report.drawing_pool import DrawingPool
    from forebay.report.pages import ReportFigures

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
    from forebay.report.drawing_pool import DrawingPool

    chosen, metrics = engines.named(engine), options.metric_names(metric)
    keys, seeds = overrides.set_ or (), overrides.seeds
    source = experiment.read(file, laws=overrides.law, overrides=keys, seeds=seeds, engine=chosen)
    print_errors([*source.designed, *filter(None, [source.warning])])
    name, count = result_name(file), len(source.plan.seeds)
    call = Invocation.begun(output, name, source.command, digest=lambda: source.digest, seeds=count)
    if flent is not None:
        publication.check_folder(flent, "flent")
    samples, is_drawn = bool(call.folder or flent), call.folder is not None and not no_report
    with DrawingPool() as pool:
        load = partial(_prepare_report, pool, source.plan) if is_drawn else None
        (executed,) = call.executed([source], making, samples=samples, meanwhile=load)
        if call.as_json:
            _print_lines(source.plan, executed, engine, metrics)
        interrupted = executed.interrupted
        if executed.runs and samples:
            from forebay.experiment.result import Result

            result = Result(source, executed)
            result.chosen_metrics = metrics
            report = None if no_report else pool
            interrupted |= _keep(result, call, flent, report, ended_early=interrupted)
    if len(executed.runs) < source.runs:
        raise stopped_runs([source], [executed], reported=bool(executed.runs))
    if interrupted:
        raise typer.Exit(signals.status())
    if call.folder is not None and is_drawn:
        call.show(call.folder / result_files.REPORT)


def _print_lines(plan: Plan, executed: Execution, engine: str, metrics: Sequence[str]) -> None:
    """Print an object of JSON for each run, and remarks on standard error."""
    from forebay.report import result_files

    for finished in executed.runs:
        print(result_files.line(plan, finished, engine, metrics))
    # Without --json, these remarks are among the warnings below the table.
    print_errors(f"{text}." for text in result_files.remarks(plan.points))


def _prepare_report(pool: DrawingPool, plan: Plan) -> None:
    """Start the processes that draw figures, and load the modules and templates of the page."""
    from scipy import special  # noqa: F401

    from forebay.control import plants  # noqa: F401
    from forebay.report import moving, pages, templates  # noqa: F401

    if not pool.start(pages.figure_count(plan)):
        from forebay.report import drawing  # noqa: F401
    for name in ("report.html.j2", "answers.txt.j2", "description.txt.j2"):
        templates.template(name)


def _keep(
    result: Result,
    call: Invocation,
    flent: Path | None,
    pool: DrawingPool | None,
    *,
    ended_early: bool,
) -> bool:
    """Write and print the numbers and the figures; return True if that was interrupted.

    The figures are drawn in other processes while the tables are written.

    Parameters
    ----------
    result, call : Result, Invocation
        The runs, the folder of the result, and whether JSON was printed.
    flent : Path or None
        Folder for data files of flent.
    pool : DrawingPool, optional
        Draws the figures; None to write no page and no figures.
    ended_early : bool
        True if the runs were interrupted: a user who stops a command does not wait for tables and
        figures of thousands of runs.
    """
    from forebay.report import result_files

    if flent is not None:
        from forebay.experiment import flent as data_files

        data_files.write(result, flent)
    out = call.folder
    if out is None:
        return False
    has_all, report = result.from_store == len(result.runs), pool is not None
    is_drawn = report and has_all and result_files.is_current(result, out)
    figures: ReportFigures | None = None
    try:
        if result.partial and not is_drawn and result_files.has_more(out, result):
            print_errors([f"{out} already has these runs and more; it is unchanged"])
            report = False
        elif not is_drawn:
            figures = _begun_figures(result, pool) if pool is not None else None
            if not _write_tables(result, out, ended_early=ended_early):
                return True
        if not call.as_json:
            _print_tables(result)
        if report and not is_drawn:
            with progress.bar(unit="figures") as watch:
                result_files.write_report(result, out, watch, figures)
    except KeyboardInterrupt:
        print_errors(
            [f"interrupted while drawing; the tables and the finished figures are in {out}"]
        )
        return True
    call.tell(*("Report", out / result_files.REPORT) if report else ("Tables", out))
    return False


def _print_tables(result: Result) -> None:
    """Print the results, what they cost, and how many runs came from the store."""
    from forebay.report import tables

    screen = options.console()
    tables.results(screen, result)
    if result.from_store < len(result.runs):
        screen.print(tables.cost(result))
    if result.from_store:
        screen.print(f"{result.from_store} of {len(result.runs)} runs came from the store")


def _begun_figures(result: Result, pool: DrawingPool) -> ReportFigures | None:
    """Let the processes of a pool draw the figures of a report; None if there are no processes."""
    from forebay.report import pages

    if not pool.start(pages.figure_count(result.plan)):
        return None
    figures = pages.report_figures(result)
    figures.begin(pool)
    return figures


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
