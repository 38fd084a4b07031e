"""`forebay study`: hundreds of thousands of runs, made once and read as one frame.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._base import signals
from forebay._native import ScenarioError, quantity
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line, result_name
from forebay.cli.main import FAILED
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
    from forebay._base.progress import Progress
    from forebay.campaign.making import StudyProgress
    from forebay.campaign.run_study import Grown
    from forebay.campaign.study_points import Points
    from forebay.experiment.store import Store


@with_options
def study(
    file: ScenarioFile,
    /,
    *,
    given: ScenarioOptions,
    add_seeds: Annotated[int, typer.Option(min=0)] = 0,
    until: str | None = None,
    most_seeds: Annotated[int, typer.Option(min=2)] = 64,
    budget: str | None = None,
    limit: str | None = None,
    retry: bool = False,
    dry_run: bool = False,
    engine: Engine = "packets",
    on: str = "threads",
    making: RunOptions,
    output: ReportOptions,
    metric: Metrics = None,
    no_report: NoReport = False,
) -> None:
    """Make the runs of a study that the store does not have, and show what they tell.

    The same command goes on where it was stopped. Runs that fail are kept with their reason, and
    the rest goes on.

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
    out: Folder for the page and the frame; results/study-NAME if it is left out.
    as_json: Print one JSON object per run, as `forebay run` does; files are written only with
        --out.
    """
    from forebay.campaign import run_study as studies
    from forebay.campaign.study_points import Points
    from forebay.experiment import engines
    from forebay.experiment import store_choice as choice
    from forebay.experiment.execution import cores
    from forebay.experiment.store import Designs

    budget_s, limit_s = _seconds("--budget", budget), _seconds("--limit", limit)
    wanted = studies.Until.read(until, most_seeds) if until else None
    metrics = metric_names(metric)
    # Looked into first, and written to once the scenario is known to be sound.
    runs = choice.of_study(making.store, without=making.no_store)
    by, kept = engines.named(engine), Designs(runs)
    laws, overrides = given.law or (), given.set_ or ()
    points = Points(file, laws=laws, overrides=overrides, seeds=given.seeds, kept=kept, engine=by)
    points.seeds += add_seeds
    if dry_run:
        _plan(points, runs, making.threads or cores())
        return
    runs.check_writable()
    command = command_line()
    name = f"study-{result_name(file)}"
    call = Invocation.begun(
        output, name, command, digest=lambda: points.digest, numbers="study.json", key="study"
    )
    with studies.workers(on, making.threads) as workers, _bar() as watch:
        grown = studies.grow(
            points, runs, workers, until=wanted, watch=watch, budget_s=budget_s,
            limit_s=limit_s, retry=retry, folder=call.folder,
        )  # fmt: skip
    _end(points, runs, grown, call, command, metrics=metrics, report=not no_report)


def _end(
    points: Points,
    store: Store,
    grown: Grown,
    call: Invocation,
    command: str,
    *,
    metrics: Sequence[str],
    report: bool,
) -> None:
    from forebay.campaign import study_files as files
    from forebay.campaign.study import Study

    made = grown.made
    print(
        f"{made.made:,} runs made, {made.found:,} were in the store, of {made.wanted:,}; "
        f"{made.packets / 1e6:.1f} million packets in {made.elapsed_s:.1f} s",
        file=sys.stderr if call.as_json else sys.stdout,
    )
    if made.ended_early:
        there = f"{made.found + made.made:,} of {made.wanted:,} runs"
        kept = f"{there} are in the store; the same command goes on"
        lost = f"{there} had finished, and without a store none is kept"
        print(f"{made.ended_early}: {lost if store.goes_with else kept}", file=sys.stderr)
    for why, count in sorted(made.remarks.items()):
        print(f"{count:,} {'run' if count == 1 else 'runs'}: {why}", file=sys.stderr)
    if made.interrupted or made.stopped:
        _say_failed(made.faults)
        raise typer.Exit(FAILED if made.stopped else signals.status())
    study = Study(points, store, grown.seeds, partial=made.spent)
    failures = study.failures()
    _say_failed(dict(failures.group_by("fault").len().iter_rows()))
    if grown.wide:
        print(f"{grown.wide:,} intervals are still too wide, with the most seeds", file=sys.stderr)
    if made.found + made.made == 0:
        raise typer.Exit(FAILED)
    if call.as_json:
        from forebay.report import result_files

        for plan, run in study.runs():
            print(result_files.line(plan, run, points.made.engine))
    else:
        files.show(console(), study, metrics)
    if call.folder is not None:
        if (former := files.former_seeds(call.folder)) > study.most_seeds:
            print(
                f"{call.folder} had {former} seeds of each law, and has {study.most_seeds} now; "
                f"the store has the others, and --seeds {former} shows them",
                file=sys.stderr,
            )
        with call.drawing("every run is in the store, and the same command draws"):
            partial = made.spent
            for path in files.write(
                study, call.folder, command, metrics=metrics, partial=partial, report=report
            ):
                if not call.as_json:
                    print(path)
        if report:
            call.show(call.folder / files.PAGE)
    if failures.height:
        raise typer.Exit(FAILED)


def _say_failed(faults: dict[str, int]) -> None:
    for why, count in sorted(faults.items()):
        print(f"{count:,} failed: {why.splitlines()[-1]}", file=sys.stderr)


def _plan(points: Points, store: Store, cores: int) -> None:
    from forebay.campaign.run_study import estimate

    found = estimate(points, store, cores)
    about = "" if found.points == found.looked else "about "
    print(
        f"{found.points:,} points × {found.laws} laws × {found.seeds} seeds: {found.runs:,} runs\n"
        f"in the store: {about}{found.stored:,}"
    )
    seconds = found.elapsed_s(cores)
    if seconds is None:
        print("time: unknown, a run takes longer than the trial")
    else:
        by = "stored runs" if found.measured else "a trial"
        print(f"time on {cores} threads: about {_words(seconds)} (by {by})")
    if found.design_s:
        print(f"designs for each point: at most {_words(found.designs_s)} more, on one core")
    print(f"disk: about {found.bytes / 1e6:,.0f} MB")


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
def _bar() -> Iterator[Callable[[Progress, StudyProgress], None]]:
    """Progress with packets and failures."""
    from dataclasses import replace

    from forebay._base import progress

    with progress.bar() as watch:

        def tell(now: Progress, made: StudyProgress) -> None:
            failed = f", {made.failed:,} failed" if made.failed else ""
            # An engine that runs on for long after its first results has counted none yet.
            packets = f", {made.packets / 1e6:.0f} million packets" if made.packets >= 5e5 else ""
            watch(replace(now, more=f"{packets}{failed}"))

        yield tell
