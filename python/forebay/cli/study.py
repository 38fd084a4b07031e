"""`forebay study`: up to hundreds of thousands of runs, stored and read as one table.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._base import signals
from forebay._base.errors import ParameterError
from forebay._native import quantity
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line, print_errors, result_name
from forebay.cli.main import FAILED

if TYPE_CHECKING:
    from forebay._base.progress import Progress
    from forebay.campaign.runner import StudyProgress
    from forebay.campaign.study import Study
    from forebay.campaign.study_points import Points
    from forebay.experiment.store import Store


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The extent of a study, and the machines that run it.

    Attributes
    ----------
    add_seeds : N
        Run N seeds more than the scenario or --seeds asks for; repeating the command adds none.
    until : ci95=N%
        Add seeds until each 95 % confidence interval is narrower than this share of its mean, such
        as ci95=2% or ci95=2%,METRIC.
    most_seeds : N
        Largest number of seeds with --until.
    budget : TIME
        Start no run after this time, such as 90s, 10min or 2h.
    limit : TIME
        Stop a run that takes longer than this, such as 60s, and count it as failed.
    retry
        Repeat the runs that failed.
    dry_run
        Print the number of runs and the expected time, without running.
    on : WHERE
        Where to run: threads, dask (a private cluster on this machine), or the address of a Dask
        scheduler. Anyone who can reach a tcp:// scheduler can run programs as you and as the user
        of its workers; prefer tls://HOST:8786, with the certificates of Dask's configuration.
    """

    add_seeds: Annotated[int, typer.Option(min=0)] = 0
    until: str | None = None
    most_seeds: Annotated[int, typer.Option(min=2)] = 64
    budget: str | None = None
    limit: str | None = None
    retry: bool = False
    dry_run: bool = False
    on: str = "threads"


@with_options
def study(
    file: options.ScenarioFile,
    /,
    *,
    overrides: options.ScenarioOptions,
    extent: StudyOptions,
    engine: options.Engine = "packets",
    making: options.RunOptions,
    output: options.ReportOptions,
    metric: options.Metrics = None,
    no_report: options.NoReport = False,
) -> None:
    """Run the missing part of a parameter study and summarise it.

    The same command continues a study that was stopped. A run that fails is recorded with its
    reason, and the study goes on.

    Parameters
    ----------
    out : DIR
        Folder of the page and the table; results/study-NAME without it.
    as_json
        Print one JSON object per run, as `forebay run` does; write no files unless --out is given.
    """
    from forebay.campaign import run_study as studies
    from forebay.campaign import runner
    from forebay.campaign.study_points import Points
    from forebay.experiment import engines
    from forebay.experiment import store as stores
    from forebay.experiment.execution import cores
    from forebay.experiment.store import Designs

    budget_s, limit_s = _seconds("budget", extent.budget), _seconds("limit", extent.limit)
    until = runner.Until.read(extent.until, extent.most_seeds) if extent.until else None
    metrics = options.metric_names(metric)
    # The store is read first, and written once the scenario is known to be valid.
    store = stores.of_study(making.store, without=making.no_store)
    points = Points(
        file, laws=overrides.law or (), overrides=overrides.set_ or (), seeds=overrides.seeds,
        engine=engines.named(engine), designs=Designs(store),
    )  # fmt: skip
    points.seeds += extent.add_seeds
    if extent.dry_run:
        _plan(points, store, making.threads or cores())
        return
    store.check_writable()
    call = Invocation.begun(
        output, f"study-{result_name(file)}", command_line(), digest=lambda: points.digest,
        numbers="study.json", key="study",
    )  # fmt: skip
    with studies.workers(extent.on, making.threads) as workers, progress_bar() as watch:
        limits = runner.StudyLimits(
            watch=watch, budget_s=budget_s, limit_s=limit_s, retry=extent.retry, folder=call.folder
        )
        progress = runner.grow(points, store, workers, limits, until=until)
    end(points, store, progress, call, metrics=metrics, report=not no_report)


def end(
    points: Points,
    store: Store,
    progress: StudyProgress,
    call: Invocation,
    *,
    metrics: Sequence[str],
    report: bool,
) -> None:
    """Report on the runs, print the study, and write its page.

    Parameters
    ----------
    points : Points
        The points of the study.
    store : Store
        The store that has the runs.
    progress : StudyProgress
        The runs of this command, and the final number of seeds.
    call : Invocation
        The folder of the result, and whether to print JSON.
    metrics : sequence of str
        Metrics of the table; the usual ones if empty.
    report : bool
        False to write no page.
    """
    from forebay.campaign import study_files as files
    from forebay.campaign.study import Study
    from forebay.report import result_files

    if call.as_json or progress.interrupted or progress.stopped:
        _print_counts(progress, store, call)
    if progress.interrupted or progress.stopped:
        _print_failed(progress.faults)
        raise typer.Exit(FAILED if progress.stopped else signals.status())
    study = Study(points, store, progress.seeds, partial=progress.spent)
    failures = study.failures()
    _print_failed(dict(failures.group_by("fault").len().iter_rows()))
    if progress.wide:
        wide = f"{progress.wide:,} intervals are still wider than --until asks for"
        print_errors([f"{wide}; raise --most-seeds"])
    if progress.stored + progress.finished == 0:
        if not call.as_json:
            _print_counts(progress, store, call)
        raise typer.Exit(FAILED)
    if call.as_json:
        for plan, run in study.runs():
            print(result_files.line(plan, run, points.made_by.engine))
    else:
        files.show(options.console(), study, metrics)
        _print_counts(progress, store, call)
    if call.folder is not None:
        _write(study, call.folder, call, metrics=metrics, report=report)
    if failures.height:
        raise typer.Exit(FAILED)


def _print_counts(progress: StudyProgress, store: Store, call: Invocation) -> None:
    """Print the number of runs, and why the study ended early."""
    print(
        f"{progress.finished + progress.stored:,} of {progress.total:,} runs: "
        f"{progress.finished:,} new, {progress.stored:,} from the store; "
        f"{progress.packets / 1e6:.1f} million packets in {progress.elapsed_s:.1f} s",
        file=sys.stderr if call.as_json else sys.stdout,
    )
    if progress.ended_early:
        finished = f"{progress.stored + progress.finished:,} of {progress.total:,} runs"
        stored = f"{finished} are in the store; the same command continues"
        lost = f"{finished} had finished; without a store none is kept"
        print_errors([f"{progress.ended_early}: {lost if store.goes_with else stored}"])
    print_errors(
        f"{count:,} {'run' if count == 1 else 'runs'}: {why}"
        for why, count in sorted(progress.remarks.items())
    )


def _write(
    study: Study, folder: Path, call: Invocation, *, metrics: Sequence[str], report: bool
) -> None:
    """Write the page and the tables, and print what was written."""
    from forebay.campaign import study_files as files
    from forebay.report.designs import print_item

    if (former := files.former_seeds(folder)) > study.most_seeds:
        print_errors(
            [
                f"{folder} had {former} seeds of each law and now has {study.most_seeds}; the "
                f"others are in the store, and --seeds {former} shows them"
            ]
        )
    with call.drawing("every run is in the store; the same command continues with the page"):
        paths = files.write(
            study, folder, call.command, metrics=metrics, partial=study.partial, report=report
        )
    tables = [path.name for path in paths if path.name != files.PAGE]
    if not call.as_json:
        print_item(options.console(), f"Tables in {folder}: {', '.join(tables)}")
    if report:
        call.tell("Page", folder / files.PAGE)
        call.show(folder / files.PAGE)


def _print_failed(faults: dict[str, int]) -> None:
    print_errors(
        f"{count:,} failed: {why.splitlines()[-1]}" for why, count in sorted(faults.items())
    )


def _plan(points: Points, store: Store, cores: int) -> None:
    from forebay.campaign.run_study import estimate

    needs = estimate(points, store, cores)
    about = "" if needs.points == needs.looked else "about "
    print(
        f"{needs.points:,} points × {needs.laws} laws × {needs.seeds} seeds: {needs.runs:,} runs\n"
        f"in the store: {about}{needs.stored:,}"
    )
    seconds = needs.elapsed_s(cores)
    if seconds is None:
        print("time: unknown, because a run takes longer than the trial")
    else:
        source = "stored runs" if needs.measured else "a trial"
        print(f"time on {cores} threads: about {_words(seconds)} (estimated from {source})")
    if needs.design_s:
        print(
            f"designing the laws at each point: at most {_words(needs.designs_s)} more, on one core"
        )
    print(f"disk: about {needs.bytes / 1e6:,.0f} MB")


def _words(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def _seconds(option: str, text: str | None) -> float | None:
    """Return the time of an option in s. Raises `ScenarioError` unless it is above zero."""
    if text is None:
        return None
    seconds = quantity(f"--{option}", text, "time")
    if seconds == 0:
        raise ParameterError(option, text, "a time above zero, such as 90s, 10min or 2h")
    return seconds


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress, StudyProgress], None]]:
    """Show the progress with the number of packets and of failures."""
    from forebay._base import progress

    with progress.bar() as watch:

        def show(now: Progress, study: StudyProgress) -> None:
            failed = f", {study.failed:,} failed" if study.failed else ""
            # Some engines count the packets of a run only once it has ended.
            packets = f", {study.packets / 1e6:.0f} million packets" if study.packets >= 5e5 else ""
            watch(replace(now, more=f"{packets}{failed}"))

        yield show
