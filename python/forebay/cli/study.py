"""`forebay study`: hundreds of thousands of runs, made once and read as one frame.

What it needs is loaded inside it, so that other commands stay quick.
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
from forebay._native import ScenarioError, quantity
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
    """The extent of a study, and the place of its runs.

    add_seeds N: N seeds more than the file has, or --seeds; the same command again adds none.
    until ci95=N%: Add seeds where an interval is wider than this share of its mean: ci95=2%, or
        ci95=2%,METRIC.
    most_seeds N: With --until, at most so many seeds.
    budget TIME: Begin no run after so long: 90s, 10min, 2h.
    limit TIME: A run that takes longer fails: 60s.
    retry: Make the runs that failed once more.
    dry_run: Say what would be run, and how long it would take.
    on WHERE: Where runs are made: threads, dask (a cluster of this machine that nobody else can
        use), or the address of a Dask scheduler. Whoever can reach the port of a tcp:// scheduler
        can run programs as you and as its workers' user; prefer tls://HOST:8786, with the
        certificates of Dask's own configuration.
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
    """Make the runs of a study that the store does not have, and show what they tell.

    The same command goes on where it was stopped. Runs that fail are kept with their reason, and
    the rest goes on.

    out: Folder for the page and the frame; results/study-NAME if it is left out.
    as_json: Print one JSON object per run, as `forebay run` does; files are written only with
        --out.
    """
    from forebay.campaign import run_study as studies
    from forebay.campaign import runner
    from forebay.campaign.study_points import Points
    from forebay.experiment import engines
    from forebay.experiment import store_choice as choice
    from forebay.experiment.execution import cores
    from forebay.experiment.store import Designs

    limits = {
        "budget_s": _seconds("--budget", extent.budget),
        "limit_s": _seconds("--limit", extent.limit),
    }
    until = runner.Until.read(extent.until, extent.most_seeds) if extent.until else None
    metrics = options.metric_names(metric)
    # Looked into first, and written to once the scenario is known to be sound.
    store = choice.of_study(making.store, without=making.no_store)
    by, kept = engines.named(engine), Designs(store)
    points = Points(
        file, laws=overrides.law or (), overrides=overrides.set_ or (), seeds=overrides.seeds,
        kept=kept, engine=by,
    )  # fmt: skip
    points.seeds += extent.add_seeds
    if extent.dry_run:
        _plan(points, store, making.threads or cores())
        return
    store.check_writable()
    name = f"study-{result_name(file)}"
    call = Invocation.begun(
        output, name, command_line(), digest=lambda: points.digest, numbers="study.json",
        key="study",
    )  # fmt: skip
    with studies.workers(extent.on, making.threads) as workers, progress_bar() as watch:
        state = runner.grow(
            points, store, workers, until=until, watch=watch, retry=extent.retry,
            folder=call.folder, **limits,
        )  # fmt: skip
    end(points, store, state, call, metrics=metrics, report=not no_report)


def end(
    points: Points,
    store: Store,
    state: StudyProgress,
    call: Invocation,
    *,
    metrics: Sequence[str],
    report: bool,
) -> None:
    """Report on the runs that were made, print the study, and draw its page."""
    from forebay.campaign import study_files as files
    from forebay.campaign.study import Study
    from forebay.report import result_files

    _print_counts(state, store, call)
    if state.interrupted or state.stopped:
        _print_failed(state.faults)
        raise typer.Exit(FAILED if state.stopped else signals.status())
    study = Study(points, store, state.seeds, partial=state.spent)
    failures = study.failures()
    _print_failed(dict(failures.group_by("fault").len().iter_rows()))
    if state.wide:
        print_errors([f"{state.wide:,} intervals are still too wide, with the most seeds"])
    if state.stored + state.finished == 0:
        raise typer.Exit(FAILED)
    if call.as_json:
        for plan, run in study.runs():
            print(result_files.line(plan, run, points.made_by.engine))
    else:
        files.show(options.console(), study, metrics)
    if call.folder is not None:
        _write(study, call.folder, call, metrics=metrics, report=report)
    if failures.height:
        raise typer.Exit(FAILED)


def _print_counts(state: StudyProgress, store: Store, call: Invocation) -> None:
    """Print how many runs were made, and why that ended early."""
    print(
        f"{state.finished:,} runs made, {state.stored:,} were in the store, of {state.total:,}; "
        f"{state.packets / 1e6:.1f} million packets in {state.elapsed_s:.1f} s",
        file=sys.stderr if call.as_json else sys.stdout,
    )
    if state.ended_early:
        runs = f"{state.stored + state.finished:,} of {state.total:,} runs"
        stored = f"{runs} are in the store; the same command goes on"
        lost = f"{runs} had finished, and without a store none is kept"
        print_errors([f"{state.ended_early}: {lost if store.goes_with else stored}"])
    print_errors(
        f"{count:,} {'run' if count == 1 else 'runs'}: {why}"
        for why, count in sorted(state.remarks.items())
    )


def _write(
    study: Study, folder: Path, call: Invocation, *, metrics: Sequence[str], report: bool
) -> None:
    """Write the page and the frame."""
    from forebay.campaign import study_files as files

    if (former := files.former_seeds(folder)) > study.most_seeds:
        print_errors(
            [
                f"{folder} had {former} seeds of each law, and has {study.most_seeds} now; "
                f"the store has the others, and --seeds {former} shows them"
            ]
        )
    with call.drawing("every run is in the store, and the same command draws"):
        for path in files.write(
            study, folder, call.command, metrics=metrics, partial=study.partial, report=report
        ):
            if not call.as_json:
                print(path)
    if report:
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
        print("time: unknown, a run takes longer than the trial")
    else:
        by = "stored runs" if needs.measured else "a trial"
        print(f"time on {cores} threads: about {_words(seconds)} (by {by})")
    if needs.design_s:
        print(f"designs for each point: at most {_words(needs.designs_s)} more, on one core")
    print(f"disk: about {needs.bytes / 1e6:,.0f} MB")


def _words(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} s"


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    seconds = quantity(option, text, "time")
    if seconds == 0:
        raise ScenarioError(f'{option}: found "{text}", allowed: a time such as 90s, 10min or 2h')
    return seconds


@contextmanager
def progress_bar() -> Iterator[Callable[[Progress, StudyProgress], None]]:
    """Show the progress with packets and failures."""
    from forebay._base import progress

    with progress.bar() as watch:

        def tell(now: Progress, state: StudyProgress) -> None:
            failed = f", {state.failed:,} failed" if state.failed else ""
            # An engine that runs on for long after its first results has counted none yet.
            packets = f", {state.packets / 1e6:.0f} million packets" if state.packets >= 5e5 else ""
            watch(replace(now, more=f"{packets}{failed}"))

        yield tell
