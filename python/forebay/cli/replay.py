"""`forebay replay`: the papers' experiments, each published number beside ours.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli.options import FAILED, INTERRUPTED, Threads, console, settings

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
) -> None:
    """Run the papers' experiments, and lay what they published beside what comes of it.

    Runs are kept, so that a second call makes only what has changed.
    """
    from forebay.replay import claims, runs, summary, verdicts
    from forebay.report import files
    from forebay.run import progress
    from forebay.run.experiment import cores

    papers = _chosen(paper, claims.papers(experiments or claims.experiments_directory()))
    if out is None and not as_json:
        out = Path("results") / "replay"
    if out is not None:
        files.check(out)
    if page is not None:
        if paper != "all":
            raise ScenarioError(f'--page: found with "{paper}", allowed: with "all"')
        files.check_file(page, "--page")
    cache = runs.cache_directory()
    runs.check_cache(cache)
    sets = settings(set_)
    planned = {one.name: verdicts.plan(one, cache, seeds=seeds, sets=sets) for one in papers}
    jobs = [
        job
        for of_paper in planned.values()
        for experiment in of_paper
        for reading in experiment.readings.values()
        for job in reading.jobs
    ]
    try:
        with progress.bar() as watch:
            runs.make(jobs, threads or cores(), watch)
        found: list[Verdict] = []
        for one in papers:
            parts = []
            for experiment in planned[one.name]:
                of_reading = verdicts.results(experiment)
                judged = verdicts.judge(one, experiment, of_reading)
                found += judged
                if as_json:
                    for verdict in judged:
                        print(verdict.line(), flush=True)
                if out is not None:
                    from forebay.replay import pages  # draws, which takes a while to load

                    parts.append(pages.part(experiment, of_reading, judged))
            if out is not None:
                where = pages.write(one, parts, out)
                if not as_json:
                    _show(one, [verdict for verdict in found if verdict.paper == one.name], where)
        if page is not None:
            page.write_text(summary.page(papers, found), encoding="utf-8")
    except runs.RunFailedError as failed:
        print(failed, file=sys.stderr)
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        kept = sum(runs.is_stored(job) for job in jobs)
        print(f"interrupted: {kept} of {len(jobs)} runs are kept", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None


def _chosen(name: str, papers: list[Paper]) -> list[Paper]:
    chosen = [paper for paper in papers if name in ("all", paper.name)]
    if not chosen:
        allowed = ", ".join([*(paper.name for paper in papers), "all"])
        raise ScenarioError(f'PAPER: found "{name}", allowed: {allowed}')
    return chosen


def _show(paper: Paper, found: list[Verdict], where: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from forebay.replay import verdicts

    screen = console(140)
    table = Table(box=box.SIMPLE_HEAD, title=paper.title, title_justify="left")
    table.add_column("claim")
    for name in ("published", "ours ± 95 %", "ns-2"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    style = {verdicts.REPRODUCED: "green", verdicts.IN_DIRECTION: "yellow"}
    experiment = ""
    for one in found:
        if one.experiment != experiment:
            experiment = one.experiment
            table.add_section()
            table.add_row(Text(experiment, style="bold"))
        says = Text.assemble(f"{one.claim.where}: {one.claim.says}")
        if one.why:
            says.append(f"\n{one.why}", style="dim")
        ns2 = "" if one.claim.ns2 is None else f"{one.claim.ns2:g}"
        verdict = Text(one.verdict, style=style.get(one.verdict, "red"))
        table.add_row(says, one.published(), one.text(), ns2, verdict)
    screen.print(table)
    screen.print(f"{len(found)} claims: {verdicts.count(found)}")
    screen.print(f"Page: {where}", soft_wrap=True)
