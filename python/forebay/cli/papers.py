"""`forebay replay`, `figure` and `suite`: the papers' experiments, and the benchmark of RFC 7928.

Their dependencies are loaded inside the commands, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._base import progress, signals
from forebay._base.errors import RunError
from forebay._base.temporary import temporary_folder
from forebay._base.words import check_choice
from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import RESULTS, Invocation, print_errors, print_json, repeating, stopped
from forebay.cli.main import FAILED, print_error

if TYPE_CHECKING:
    from forebay.campaign.claims import Paper
    from forebay.campaign.replay import Replay, ReplayedPaper, Verdict
    from forebay.campaign.suite import Suite
    from forebay.experiment.store import Store


@with_options
def replay(
    paper: str,
    /,
    *,
    seeds: options.Seeds = None,
    output: options.OutputOptions,
    page: Path | None = None,
    set_: options.Settings = None,
    experiments: Path | None = None,
    open_: options.OpenPage = False,
    engine: options.Engine = "packets",
    making: options.RunOptions,
) -> None:
    """Repeat the papers' experiments and compare the results.

    The page has the published next to the reproduced numbers. Runs are stored, so a second
    call runs only what has changed.

    Parameters
    ----------
    paper : PAPER|all
        Name of a paper, or all.
    seeds : N
        Run with seeds 1 to N instead of each experiment's own number of seeds.
    out : DIR
        Folder of the pages; results/replay without it.
    as_json
        Print one JSON object per claim; write no pages unless --out is given.
    page : FILE
        Also write the summary of all papers as Markdown.
    set_ : KEY=VALUE
        Set a key in every experiment, such as traffic.0.min_rto=1s.
    experiments : DIR
        Folder of the papers' experiments.
    """
    from forebay.campaign import replay as replays
    from forebay.experiment import store as stores

    plan = replays.plan(paper, seeds, options.settings(set_), experiments, engine)
    if page is not None and paper != replays.ALL:
        raise ScenarioError(f"--page requires the papers all, not {paper}")
    call = Invocation.begun(output, "replay", page=page)
    engine_option = None if engine == "packets" else engine

    def report(replayed: ReplayedPaper) -> None:
        name = replayed.paper.name
        command = repeating("replay", name, seeds=seeds, set=set_, engine=engine_option)
        _report(replayed, call, command, open_)

    with ExitStack() as stack:
        # Claims need the samples of all runs; a temporary store keeps them where there is no other.
        store = stores.store(making.store, without=making.no_store) or stores.at(
            stack.enter_context(temporary_folder())
        )
        with _exit_when_stopped(plan, store):
            _replay(plan, store, making.threads, call, report)


@contextmanager
def _exit_when_stopped(plan: Replay, store: Store) -> Iterator[None]:
    """Report a failed run or an interruption in one line, and exit."""
    from forebay.experiment import execution

    try:
        yield
    except RunError as error:
        print_error(str(error))
        raise typer.Exit(FAILED) from None
    except KeyboardInterrupt:
        count = execution.count_stored(plan.readings, store)
        total = sum(reading.runs for reading in plan.readings)
        print(f"interrupted; {count} of {total} runs are in the store", file=sys.stderr)
        raise typer.Exit(signals.status()) from None


def _replay(
    plan: Replay,
    store: Store,
    threads: int | None,
    call: Invocation,
    report: Callable[[ReplayedPaper], None],
) -> None:
    """Run the experiments, report on each paper, and write the summary."""
    with progress.bar() as watch:
        papers = plan.run(store, threads, watch)
        # The first paper waits for the runs of all papers; the bar ends before anything is printed.
        first = next(papers)
    verdicts: list[Verdict] = []
    for replayed in chain([first], papers):
        verdicts += replayed.verdicts
        report(replayed)
    if call.page is not None:
        from forebay.campaign import paper_page  # loads matplotlib

        call.publish_page(lambda: paper_page.summary(plan.papers, verdicts))


def _report(replayed: ReplayedPaper, call: Invocation, command: str, opens: bool) -> None:
    """Print a paper's verdicts and write its page."""
    if call.as_json:
        for verdict in replayed.verdicts:
            print(verdict.line(), flush=True)
    else:
        _show(replayed.paper, replayed.verdicts)
    if call.folder is None:
        return
    with progress.status(f"writing the page of {replayed.paper.name}"):
        from forebay.campaign import paper_page  # loads matplotlib

        where = paper_page.write(replayed, call.folder, command)
    call.tell("Page", where)
    if opens:
        options.open_page(where)


def _show(paper: Paper, judged: list[Verdict]) -> None:
    """Print a row for each claim, in a table for each experiment."""
    from rich.text import Text

    from forebay._base import terminal_table
    from forebay._base.terminal_table import Cell, Column, RowGroup
    from forebay.campaign import replay as replays

    style = {replays.REPRODUCED: "green", replays.IN_DIRECTION: "yellow"}
    columns = [
        Column("claim", sentence=True),
        *(Column("ours", "± 95 %"), Column("published")),
        *(Column("verdict", sentence=True), Column("ns-2")),
    ]

    def row(judgement: Verdict) -> list[Cell]:
        claim = judgement.claim
        statement = Text(f"{claim.where}: {claim.says}")
        if judgement.why:
            statement.append(f"\n{judgement.why}", style="dim")
        ns2 = "" if claim.ns2 is None else f"{claim.ns2:g}"
        verdict = Text(judgement.verdict, style=style.get(judgement.verdict, "bold"))
        return [statement, judgement.text(), judgement.published(), verdict, ns2]

    groups = [
        RowGroup([row(judgement) for judgement in group], experiment)
        for experiment, group in groupby(judged, key=lambda judgement: judgement.experiment)
    ]
    screen = options.console(140)
    screen.print(Text(paper.title, style="bold"))
    terminal_table.show(screen, columns, groups)
    screen.print(f"{len(judged)} claims: {replays.count(judged)}")


@with_options
def figure(
    name: list[str] | None = None,
    /,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR")] = RESULTS,
    style: options.Style = "screen",
) -> None:
    """Draw the papers' control-theory figures.

    Parameters
    ----------
    name : [NAME]...
        Figures to draw; without any, their names are listed.
    out : DIR
        Folder of the figures.
    """
    from forebay.campaign.claims import figures

    call = Invocation.begun(options.OutputOptions(out=out if name else None, style=style), None)
    drawings = figures()
    for title, draw in drawings.items() if not name else ():
        print(f"{title:14} {(draw.__doc__ or '').splitlines()[0]}")
    for text in name or ():
        check_choice("NAME", text, drawings)
    files: dict[str, bytes] = {}
    for text in name or ():
        files |= drawings[text]().files(text)
    for path in call.publish(files):
        print(f"Figure: {path}")


# --- the benchmark of RFC 7928 ------------------------------------------------------------------

#: Metrics of the table, the most important first; a narrow terminal shows the first of them.
SHOWN = ["goodput_bps", "delay_mean_s", "flow_completion_p95_s", "jain", "delay_p95_s", "drop_rate"]


@with_options
def suite(
    name: str,
    /,
    *,
    law: options.Laws = None,
    scenario: list[str] | None = None,
    link: str | None = None,
    set_: options.ScenarioKeys = None,
    seeds: options.Seeds = None,
    engine: options.Engine = "packets",
    output: options.ReportOptions,
    page: Path | None = None,
    making: options.RunOptions,
) -> None:
    """Compare laws in the benchmark of RFC 7928.

    Every scenario of the suite runs under every law.

    Parameters
    ----------
    name : SUITE
        Name of the suite, such as rfc7928.
    law : LAW
        Run this law instead of the suite's: its kind, all, or FILE.py:CLASS for a law written in
        Python.
    scenario : NAME
        Run only this scenario, such as 5-1-friendly.
    link : RATE,DELAY
        Rate and one-way delay of the link, such as 50Mbit/s,20ms; buffers and traffic rates are
        scaled with it.
    out : DIR
        Folder of the report; results/SUITE without it.
    as_json
        Print one JSON object per law and scenario; write no files unless --out is given.
    page : FILE
        Also write the comparison as Markdown.
    """
    from forebay.campaign import suite as suites

    plan = suites.planned(name, law, scenario, link, seeds, set_ or (), engine)
    command = repeating(
        "suite", name, law=law, scenario=scenario, link=link, set=set_, seeds=seeds,
        engine=None if engine == "packets" else engine, page=page,
    )  # fmt: skip
    call = Invocation.begun(output, plan.settings.name, command, page=page, digest=plan.digest)
    with progress.bar() as watch:
        results = plan.run(making.threads, watch, call.store(making))
    print_errors(results.faults)
    if call.as_json:
        for line in results.lines():
            print_json(line)
    if results.cases and (call.folder is not None or page is not None):
        _report_suite(results, call)
    if results.partial:
        raise stopped(
            results.finished, results.total, interrupted=results.interrupted,
            reported=bool(results.cases), by_input=results.of_law,
        )  # fmt: skip


def _report_suite(results: Suite, call: Invocation) -> None:
    """Write the numbers, print the comparison, and write the pages."""
    from forebay.campaign import suite_page as pages
    from forebay.report import result_files

    out = call.folder
    if out is not None:
        pages.write_numbers(results, out, call.command, call.digest)
    with call.drawing(
        f"the numbers are in {out / result_files.NUMBERS}" if out else "no file was written"
    ):
        if not call.as_json:
            _show_suite(results)
        if out is not None:
            with progress.bar(unit="figures") as watch:
                where = pages.write(results, out, call.command, watch)
            call.tell("Report", where)
            call.show(where)
    call.publish_page(lambda: pages.markdown(results, call.command))


def _show_suite(results: Suite) -> None:
    """Print the comparison of the laws, if every case was run."""
    from forebay._base.terminal_table import Column
    from forebay.campaign import suite_page as pages

    if count := len(results.complete()):
        table = pages.comparison(results, SHOWN)
        columns = [Column("law", align_left=True), *map(Column.from_heading, table.heads[1:])]
        interval = " ± half of the 95 % confidence interval"
        note = interval if len(results.seeds) > 1 else "; no interval, because there is one seed"
        options.print_table(columns, table.rows).print(
            f"mean over {count} case{'s' if count > 1 else ''}{note}", style="dim"
        )
    print(f"{results.finished} runs in {results.elapsed_s:.0f} s")
