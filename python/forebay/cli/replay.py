"""`forebay replay`: the papers' experiments, each published number beside ours.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay._base import signals
from forebay._base.errors import RunError
from forebay._base.temporary import temporary_folder
from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, repeating
from forebay.cli.main import FAILED
from forebay.cli.options import (
    Engine,
    OpenPage,
    OutputOptions,
    RunOptions,
    Seeds,
    Settings,
    console,
    open_page,
    settings,
)

if TYPE_CHECKING:
    from forebay.campaign.claims import Paper
    from forebay.campaign.replay import ReplayedPaper, Verdict


@with_options
def replay(
    paper: str,
    /,
    *,
    seeds: Seeds = None,
    output: OutputOptions,
    page: Path | None = None,
    set_: Settings = None,
    experiments: Path | None = None,
    open_: OpenPage = False,
    engine: Engine = "packets",
    making: RunOptions,
) -> None:
    """Run the papers' experiments, and lay what they published beside what comes of it.

    Runs are kept, so that a second call makes only what has changed.

    paper PAPER|all: A paper, or all.
    seeds: Run with seeds 1 to N instead of as many as each experiment asks for.
    out: Where the pages go; results/replay by default.
    as_json: Print one JSON object per claim; pages are written only with --out.
    page FILE: With all: write the summary for readers of the papers.
    set_: Set a key in every experiment, such as traffic.0.min_rto=1s.
    experiments DIR: Where the papers' experiments are.
    """
    from forebay._base import progress, publication
    from forebay._base.publication import publish_file
    from forebay.campaign import replay as replays
    from forebay.experiment import execution
    from forebay.experiment import store_choice as choice

    wanted = replays.plan(paper, seeds, settings(set_), experiments, engine)
    call = Invocation.begun(output, "replay")
    if page is not None:
        if paper != replays.ALL:
            raise ScenarioError(f'--page: found with "{paper}", allowed: with "all"')
        publication.check_file(page, "page")
    with ExitStack() as stack:
        # Claims need the samples of all runs; without a store they are kept for this call alone.
        store = choice.store(making.store, without=making.no_store) or choice.at(
            stack.enter_context(temporary_folder())
        )
        try:
            with progress.bar() as watch:
                papers = wanted.run(store, making.threads, watch)
                found: list[Verdict] = []
                first = next(papers)
            for one in chain([first], papers):
                found += one.verdicts
                _tell(one, call, _command(one, seeds, set_, engine), open_)
            if page is not None:
                from forebay.campaign import paper_page as pages  # draws: slow to load

                publish_file(page, pages.summary(wanted.papers, found))
        except RunError as failed:
            print(failed, file=sys.stderr)
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt:
            count = execution.count_stored(wanted.readings, store)
            total = sum(reading.runs for reading in wanted.readings)
            print(f"interrupted: {count} of {total} runs are kept", file=sys.stderr)
            raise typer.Exit(signals.status()) from None


def _command(
    one: ReplayedPaper, seeds: int | None, overrides: list[str] | None, engine: str
) -> str:
    other = None if engine == "packets" else engine
    return repeating("replay", one.paper.name, seeds=seeds, set=overrides, engine=other)


def _tell(found: ReplayedPaper, call: Invocation, command: str, opens: bool) -> None:
    """Prints a paper's verdicts, and writes its page."""
    from forebay._base import progress

    if call.as_json:
        for verdict in found.verdicts:
            print(verdict.line(), flush=True)
    else:
        _show(found.paper, found.verdicts)
    if call.folder is None:
        return
    with progress.status(f"drawing the page of {found.paper.name}"):
        from forebay.campaign import paper_page as pages  # draws, which takes a while to load

        where = pages.write(found.paper, found.experiments, call.folder, command)
    call.tell("Page", where)
    if opens:
        open_page(where)


def _show(paper: Paper, found: list[Verdict]) -> None:
    from rich.text import Text

    from forebay._base import terminal_table
    from forebay._base.terminal_table import Cell, Column, RowGroup
    from forebay.campaign import replay as verdicts

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
        groups.append(RowGroup(rows, experiment))
    terminal = console(140)
    terminal.print(Text(paper.title, style="bold"))
    terminal_table.show(terminal, columns, groups)
    terminal.print(f"{len(found)} claims: {verdicts.count(found)}")
