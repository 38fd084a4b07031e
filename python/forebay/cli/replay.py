"""`forebay replay`: the papers' experiments, each published number beside ours.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.options import FAILED, NoStore, OpenPage, StoreAt, Threads, console, settings
from forebay.run import signals

if TYPE_CHECKING:
    from forebay.replay.claims import Paper
    from forebay.replay.verdicts import Verdict


def replay(
    paper: Annotated[str, typer.Argument(help="A paper, or all.", metavar="PAPER|all")],
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per claim; pages are written only with --out."
        ),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Run with seeds 1 to N instead of as many as each experiment asks for.",
            metavar="N",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the pages go; results/replay by default.", metavar="DIR"),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(help="With all: write the summary for readers of the papers.", metavar="FILE"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a key in every experiment, such as traffic.0.min_rto=1s. May be given "
            "several times.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    threads: Threads = None,
    experiments: Annotated[
        Path | None,
        typer.Option(help="Where the papers' experiments are.", metavar="DIR"),
    ] = None,
    open_: OpenPage = False,
    store: StoreAt = None,
    no_store: NoStore = False,
) -> None:
    """Run the papers' experiments, and lay what they published beside what comes of it.

    Runs are kept, so that a second call makes only what has changed.
    """
    from forebay.replay import claims, runs, summary, verdicts
    from forebay.report import place
    from forebay.run import progress
    from forebay.run.experiment import cores
    from forebay.store import choice

    papers = _chosen(paper, claims.papers(experiments))
    if out is None and not as_json:
        out = Path("results") / "replay"
    if out is not None:
        place.check(out)
    if page is not None:
        if paper != "all":
            raise ScenarioError(f'--page: found with "{paper}", allowed: with "all"')
        place.check_file(page, "--page")
    stack = ExitStack()
    # Claims need the samples of all runs; without a store they are kept for this call alone.
    kept = choice.store(store, without=no_store) or choice.at(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="forebay-"))
    )
    sets = settings(set_)
    planned = {one.name: verdicts.plan(one, seeds=seeds, sets=sets) for one in papers}
    jobs = [
        job
        for experiments_of in planned.values()
        for experiment in experiments_of
        for reading in experiment.readings.values()
        for job in reading.jobs
    ]
    try:
        with progress.bar() as watch:
            runs.make(jobs, kept, threads or cores(), watch)
        found: list[Verdict] = []
        for one in papers:
            of_paper = []
            for experiment in planned[one.name]:
                of_reading = verdicts.results(experiment, kept)
                judged = verdicts.judge(one, experiment, of_reading)
                of_paper.append((experiment, of_reading, judged))
                found += judged
                if as_json:
                    for verdict in judged:
                        print(verdict.line(), flush=True)
            if not as_json:
                _show(one, [verdict for *_, judged in of_paper for verdict in judged])
            if out is not None:
                with progress.status(f"drawing the page of {one.name}"):
                    from forebay.replay import pages  # draws, which takes a while to load

                    parts = [pages.part(*each) for each in of_paper]
                    where = pages.write(one, parts, out, _command(one.name, seeds, set_))
                if not as_json:
                    print(f"Page: {where}")
                if open_:
                    options.open_page(where)
        if page is not None:
            page.write_text(summary.page(papers, found), encoding="utf-8")
    except runs.RunFailedError as failed:
        print(failed, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        there = runs.stored(jobs, kept)
        count = sum(job.key in there for job in jobs)
        print(f"interrupted: {count} of {len(jobs)} runs are kept", file=sys.stderr)
        raise typer.Exit(signals.status()) from None
    finally:
        stack.close()


def _command(paper: str, seeds: int | None, sets: list[str] | None) -> str:
    words = ["forebay", "replay", paper]
    if seeds is not None:
        words += ["--seeds", str(seeds)]
    for one in sets or ():
        words += ["--set", one]
    return shlex.join(words)


def _chosen(name: str, papers: list[Paper]) -> list[Paper]:
    chosen = [paper for paper in papers if name in ("all", paper.name)]
    if not chosen:
        allowed = ", ".join([*(paper.name for paper in papers), "all"])
        raise ScenarioError(f'PAPER: found "{name}", allowed: {allowed}')
    return chosen


def _show(paper: Paper, found: list[Verdict]) -> None:
    from rich.text import Text

    from forebay.replay import verdicts
    from forebay.report import screen
    from forebay.report.screen import Cell, Column, Group

    style = {verdicts.REPRODUCED: "green", verdicts.IN_DIRECTION: "yellow"}
    columns = [
        Column("claim", sentence=True),
        Column("ours", "± 95 %"),
        Column("published"),
        Column("verdict", sentence=True),
        Column("ns-2"),
    ]
    groups = []
    for experiment, some in groupby(found, key=lambda one: one.experiment):
        rows: list[list[Cell]] = []
        for one in some:
            says = Text(f"{one.claim.where}: {one.claim.says}")
            if one.why:
                says.append(f"\n{one.why}", style="dim")
            ns2 = "" if one.claim.ns2 is None else f"{one.claim.ns2:g}"
            verdict = Text(one.verdict, style=style.get(one.verdict, "bold"))
            rows.append([says, one.text(), one.published(), verdict, ns2])
        groups.append(Group(rows, experiment))
    terminal = console(140)
    terminal.print(Text(paper.title, style="bold"))
    screen.show(terminal, columns, groups)
    terminal.print(f"{len(found)} claims: {verdicts.count(found)}")
