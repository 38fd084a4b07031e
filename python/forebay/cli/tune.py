"""`forebay tune`: one law for a range of links, and why."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from forebay._base import signals
from forebay._base.words import in_figures
from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line
from forebay.cli.main import FAILED
from forebay.cli.options import (
    Laws,
    Packet,
    ReportOptions,
    RunOptions,
    ScenarioKeys,
    Tcp,
    console,
)

if TYPE_CHECKING:
    from forebay.tuning.estimate import Estimate
    from forebay.tuning.tuning import Tuning


@with_options
def tune(
    *,
    rtt: str,
    flows: str,
    rate: str | None = None,
    trace: str | None = None,
    goal: str = "balance",
    law: Laws = None,
    set_: ScenarioKeys = None,
    for_: str | None = None,
    gains: str = "paper",
    thorough: bool = False,
    tcp: Tcp = "reno",
    packet: Packet = "1000B",
    buffer: str | None = None,
    seeds: int = 10,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    output: ReportOptions,
    making: RunOptions,
) -> None:
    """Tune laws for a range of links, and recommend one: gains, margins, and why.

    rtt: Propagation both ways, such as 20..200ms; 20ms,80..200ms for classes of flows.
    flows: Long-lived TCP flows, such as 10..400; 5..10,20 for classes of flows.
    rate: Rate of the link, or its range, such as 5..50Mbit/s; needed without --trace.
    trace FILE: File of a recorded link, as `rate_trace` of a scenario: gains hold over the rates
        that it has, and packets run over the recording.
    goal: delay: least delay, giving up at most 20 % of the goodput anywhere in the range; balance,
        throughput: a delay that moves least, giving up at most 10 % or 5 %.
    law: Choose from this law; all of `forebay laws` if none is given.
    set_: Set a key of the packet runs, such as bottleneck.ecn=true.
    for_ WHAT: Choose among what a router has: linux for Linux's qdiscs, attach also for the laws
        that `forebay attach` installs; any law if it is left out.
    thorough: Search each law for all three goals, which takes three times as long; the goal that
        is asked for alone if it is left out.
    gains: What the laws beside the choice have: paper, or auto for what their design rules give
        for the ranges.
    buffer: Buffer size in packets, such as 500p; the largest bandwidth-delay product if it is left
        out.
    seeds N: Packet runs that test the chosen law, at each corner.
    seed N: Seed of the search.
    out: Folder for the page and the pictures; results/tune if it is left out.
    """
    from forebay._base import progress, publication, quantities
    from forebay.tuning import findings, page, tuning

    command = command_line()
    link, law_words = (rate, trace, rtt, flows, packet, buffer, tcp, set_), (law, gains, thorough)
    asked = publication.digest_of([link, law_words, goal, for_, seeds, seed])
    call = Invocation.begun(output, "tune", command, digest=lambda: asked, numbers=page.JSON)
    out = call.folder
    with progress.stages() as watch:
        result = tuning.tune(
            rate, rtt, flows, goal, law or (), packet, buffer, seeds, seed, making.threads, trace,
            tcp, set_ or (), gains, for_=for_ or "", thorough=thorough, watch=watch,
            announce=_announce, store=call.store(making),
        )  # fmt: skip
    # Hours of runs: they are on the disk before anything is made of them.
    writes = out is not None and bool(result.searched)
    told = findings.numbers(result)
    if out is not None and writes:
        page.write_numbers(told | {"digest": call.digest}, out, command)
    told["reasons"] = findings.reasons(result, told)
    if call.as_json:
        print(json.dumps(quantities.finite(told)))
    elif result.screened:
        _show(told, page.commands(result, out) if out is not None else [])
    if out is not None and writes:
        page.write_numbers(told | {"digest": call.digest}, out, command)
        with (
            call.drawing(f"{out / page.JSON} has the numbers"),
            progress.status("writing the page"),
        ):
            page.write_files(result, told, out, command)
        if result.chosen is not None:
            call.tell("Page", out / page.PAGE)
    if result.error is not None:
        # No input is at fault, whatever the error says.
        own = isinstance(result.error, ScenarioError)
        raise RuntimeError(result.faults[-1]) if own else result.error
    for fault in result.faults:
        print(fault, file=sys.stderr)
    if result.interrupted:
        print(f"interrupted: {_done(result)}", file=sys.stderr)
        raise typer.Exit(signals.status())
    if result.faults:
        raise typer.Exit(FAILED)
    if out is not None and result.searched:
        call.show(out / page.PAGE)


def _announce(expected: Estimate) -> None:
    """Print what will be done, and how long that takes."""
    from forebay._base import progress

    cores = f"{expected.cores} core{'s' if expected.cores != 1 else ''}"
    searches = f"{expected.searches} search{'es' if expected.searches != 1 else ''}"
    print(
        f"This takes {progress.about(expected.total_s)} on {cores}: {searches} by the linear "
        f"model, then about {round(expected.runs, -2) or expected.runs} packet runs of "
        f"{expected.simulated_s:g} s for {expected.laws} laws",
        file=sys.stderr,
    )


def _done(result: Tuning) -> str:
    if result.tested:
        return f"the chosen law was tested with {result.seeds} seeds, and is reported"
    if result.chosen is not None:
        return "a law was chosen, but not tested; it is reported"
    number = len(result.searched)
    if not number:
        return "no search had ended, and nothing is left"
    return (
        f"{number} {'search' if number == 1 else 'searches'} had ended, and "
        f"{'is' if number == 1 else 'are'} kept; nothing had been checked with packets"
    )


def _show(recommendation: dict[str, Any], commands: Sequence[str]) -> None:
    screen = console(100)
    # Whoever sets up a router reads the choice and its commands first.
    first, *paragraphs = recommendation["reasons"]
    screen.print(first, markup=False)
    screen.print()
    _show_router(recommendation)
    if recommendation["candidates"]:
        _show_choices(recommendation)
    for paragraph in paragraphs:
        screen.print(paragraph, markup=False)
        screen.print()
    if not commands or not recommendation["toml"]:
        return
    screen.print("The law for a scenario:")
    screen.print()
    for line in recommendation["toml"].splitlines():
        screen.print(f"    {line}", markup=False)
    screen.print()
    screen.print("To run it:")
    for command in commands:
        screen.print(f"    {command}", markup=False, soft_wrap=True)
    screen.print()


def _show_router(recommendation: dict[str, Any]) -> None:
    """Print the commands that set up a router; without any, that no Linux has the law."""
    screen = console(100)
    blocks = {"On a router with Linux:": recommendation["router"]}
    if recommendation["attach"]:
        blocks["With Forebay on the router, where it can be changed and watched:"] = [
            recommendation["attach"]
        ]
    for heading, lines in blocks.items():
        if lines:
            screen.print(heading)
            for line in lines:
                screen.print(f"    {line}", markup=False, soft_wrap=True)
            screen.print()
    if recommendation["law"] and not recommendation["router"] and not recommendation["for"]:
        has = (
            "has no qdisc"
            if recommendation["attach"]
            else "has no qdisc, and forebay attach no program,"
        )
        screen.print(
            f"Linux {has} for {recommendation['law']}; --for linux chooses among what a router has."
        )
        screen.print()


def _show_choices(told: dict[str, Any]) -> None:
    from forebay._base import terminal_table
    from forebay._base.terminal_table import Column, RowGroup
    from forebay.tuning import findings

    columns = [
        Column("", sentence=True),
        Column("set-point"),
        Column("deviation", "ms"),
        Column("95th pct.", "ms"),
        Column("goodput", "% of best"),
    ]
    rows = [
        [
            Text(label, style="bold") if row["chosen"] else label
            for label in (
                f"{row['label']} (chosen)" if row["chosen"] else row["label"],
                row["set_point"],
                in_figures(1e3 * row["worst_deviation_s"]),
                in_figures(1e3 * row["worst_delay_p95_s"]),
                f"{100 * row['goodput_of_best']:.1f}",
            )
        ]
        for row in findings.choices(told["candidates"])
    ]
    screen = console(100)
    title = f"Choices, {findings.choices_are(told)}"
    terminal_table.show(screen, columns, [RowGroup(rows, title)])
    screen.print(Text(findings.NAMES_SAY, style="dim"))
    screen.print()
