"""`forebay tune`: one law with one set of parameters for a range of links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forebay._base import progress, quantities, signals
from forebay._base.words import wrapped
from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line, print_errors, print_json
from forebay.cli.main import FAILED

if TYPE_CHECKING:
    from rich.text import Text

    from forebay.tuning.check import TuningEstimate
    from forebay.tuning.tuning import Tuning


@dataclass(frozen=True, kw_only=True)
class RangeOptions:
    """The range of links and their traffic.

    Attributes
    ----------
    rtt : RTT
        Range of the two-way propagation delay, such as 20..200ms; with commas, one for each class
        of flows.
    flows : FLOWS
        Range of the number of long-lived TCP flows, such as 10..400; with commas, one for each
        class of flows.
    rate : RATE
        Rate of the link or its range, such as 5..50Mbit/s; required without --trace.
    trace : FILE
        Recorded link, like `rate_trace` in a scenario: the gains suit its range of rates, and the
        packet runs replay it.
    buffer : SIZE
        Buffer size, such as 500p; the largest bandwidth-delay product without it.
    set_ : KEY=VALUE
        Set a key of the packet runs, such as bottleneck.ecn=true.
    """

    rtt: str
    flows: str
    rate: str | None = None
    trace: str | None = None
    tcp: options.Tcp = "reno"
    packet: options.Packet = "1000B"
    buffer: str | None = None
    set_: options.ScenarioKeys = None


@dataclass(frozen=True, kw_only=True)
class ChoiceOptions:
    """The laws to choose from, and what the choice is for.

    Attributes
    ----------
    goal : GOAL
        delay: lowest delay, at up to 20 % less goodput than the best anywhere in the range; balance
        or throughput: steadiest delay, at up to 10 % or 5 % less.
    law : LAW
        Choose from this law; from all of `forebay laws` without it.
    for_ : WHAT
        Choose from the laws that a router can run: linux for Linux's qdiscs, attach also for the
        laws that `forebay attach` installs; from all laws without it.
    gains : WHERE
        Gains of the laws that the choice is compared with: paper, or auto for those of their design
        rules.
    thorough
        Search each law for all three goals, which takes three times as long.
    """

    goal: str = "balance"
    law: options.Laws = None
    for_: str | None = None
    gains: str = "paper"
    thorough: bool = False


@with_options
def tune(
    *,
    links: RangeOptions,
    choice: ChoiceOptions,
    explain: bool = False,
    seeds: int = 10,
    seed: Annotated[int, typer.Option(min=0)] = 1,
    output: options.ReportOptions,
    making: options.RunOptions,
) -> None:
    """Choose a law and its parameters for a range of links.

    The search uses the linear model; packet runs at the corners of the range then choose between
    the candidates and test the choice.

    Parameters
    ----------
    explain
        Also explain the choice: margins, runners-up and tests, as on the page.
    seeds : N
        Number of packet runs that test the chosen law at each corner.
    seed : N
        Seed of the search.
    out : DIR
        Folder of the page and the figures; results/tune without it.
    """
    from forebay._base.publication import digest_of
    from forebay.tuning import recommendation, tuning
    from forebay.tuning.ranges import LinkRange

    law = (choice.law, choice.gains, choice.thorough)
    digest = digest_of([astuple(links), law, choice.goal, choice.for_, seeds, seed])
    call = Invocation.begun(
        output, "tune", command_line(), digest=lambda: digest, numbers=recommendation.JSON
    )
    with progress.stages() as watch:
        ranges = LinkRange(
            links.rate, links.rtt, flows=links.flows, packet=links.packet, buffer=links.buffer,
            senders=links.tcp, trace=links.trace,
        )  # fmt: skip
        # The function checks the names, for messages that are the same everywhere.
        names: dict[str, Any] = {"goal": choice.goal, "gains": choice.gains, "router": choice.for_}
        result = tuning.tune(
            ranges, laws=choice.law, **names, overrides=links.set_ or (), seeds=seeds, seed=seed,
            threads=making.threads, store=call.store(making), thorough=choice.thorough,
            watch=watch, announce=_announce,
        )  # fmt: skip
    _report(result, call, explain=explain)
    if result.error is not None:
        # An error after the input was checked is not a fault of the input.
        own = isinstance(result.error, ScenarioError)
        raise RuntimeError(result.faults[-1]) if own else result.error
    print_errors(result.faults)
    if result.interrupted:
        print_errors([f"interrupted: {_done(result)}"])
        raise typer.Exit(signals.status())
    if result.faults:
        raise typer.Exit(FAILED)
    if call.folder is not None and result.searched:
        call.show(call.folder / recommendation.PAGE)


def _report(result: Tuning, call: Invocation, *, explain: bool) -> None:
    """Write the numbers, print the recommendation, and draw the page."""
    from forebay.tuning import recommendation

    out = call.folder if result.searched else None
    facts = recommendation.numbers(result)
    if out is not None:
        # The numbers took up to hours: they are written before anything else is done with them.
        recommendation.write_numbers(facts | {"digest": call.digest}, out, call.command)
    facts["reasons"] = recommendation.reasons(result, facts)
    if call.as_json:
        print_json(quantities.finite(facts))
    elif result.screened:
        folder = call.folder
        commands = recommendation.commands(result, folder) if folder is not None else []
        _show(result, facts, commands, explain=explain)
    if out is not None:
        recommendation.write_numbers(facts | {"digest": call.digest}, out, call.command)
        with call.drawing(f"the numbers are in {out / recommendation.JSON}", "writing the page"):
            recommendation.write_files(result, facts, out, call.command)
        if result.chosen is not None:
            call.tell("Page", out / recommendation.PAGE)


def _announce(expected: TuningEstimate) -> None:
    """Print the extent of the search and the time that it takes."""
    cores = f"{expected.cores} core{'s' if expected.cores != 1 else ''}"
    laws = f"{expected.laws} law{'s' if expected.laws != 1 else ''}"
    searches = f"{expected.searches} search{'es' if expected.searches != 1 else ''}"
    print_errors(
        [
            f"expected time: {progress.about(expected.total_s)} on {cores}",
            f"  {laws}: {searches} in the linear model, about "
            f"{round(expected.runs, -2) or expected.runs} packet runs of "
            f"{expected.simulated_s:g} s",
        ]
    )


def _done(result: Tuning) -> str:
    """Return how far a tuning had come, in words."""
    if result.tested:
        return f"the chosen law was tested with {result.seeds} seeds and is reported"
    if result.chosen is not None:
        return "a law was chosen and is reported, but it was not tested"
    number = len(result.searched)
    if not number:
        return "no search had finished, and no output was written"
    return (
        f"{number} {'search' if number == 1 else 'searches'} had finished and "
        f"{'is' if number == 1 else 'are'} kept; no candidate had been tested with packets"
    )


def _show(result: Tuning, facts: dict[str, Any], commands: Sequence[str], *, explain: bool) -> None:
    """Print the recommendation: the choice, the candidates, warnings, the law and its commands."""
    from forebay.report.designs import print_commands, print_item
    from forebay.report.templates import paragraphs
    from forebay.tuning.recommendation import FORMS

    screen = options.console(80)
    answer, *warnings = paragraphs(
        "tune_summary.txt.j2",
        range_text=str(result.ranges),
        this_for=facts["for"],
        **facts,
        **FORMS,
    )
    screen.print(wrapped(answer, screen.width), markup=False, soft_wrap=True)
    screen.print()
    if facts["candidates"]:
        _show_choices(facts)
    for warning in warnings:
        print_item(screen, f"warning: {warning}")
    if warnings:
        screen.print()
    if explain:
        for paragraph in facts["reasons"]:
            screen.print(wrapped(paragraph, screen.width), markup=False, soft_wrap=True)
            screen.print()
    if facts["toml"]:
        screen.print("The law for a scenario:")
        screen.print()
        for line in facts["toml"].splitlines():
            screen.print(f"    {line}", markup=False)
        screen.print()
    attach = [facts["attach"]] if facts["attach"] else []
    for heading, lines in [
        ("On a router with Linux:", facts["router"]),
        ("With Forebay on the router:", attach),
        ("To run it:", commands),
    ]:
        if lines:
            print_commands(screen, heading, lines)
            screen.print()


def _show_choices(facts: dict[str, Any]) -> None:
    """Print a row for each choice."""
    from rich.text import Text

    from forebay._base.terminal_table import Column
    from forebay.tuning import recommendation

    columns = [
        *(Column("candidate", sentence=True), Column("target"), Column("delay, P95", "ms")),
        *(Column("delay, SD", "ms"), Column("goodput", "% of best")),
    ]

    def row(choice: dict[str, Any]) -> list[Text]:
        style = "bold" if choice["chosen"] else ""
        cells = (
            f"{choice['label']} (chosen)" if choice["chosen"] else choice["label"],
            choice["set_point"],
            recommendation.FORMS["three_ms"](choice["worst_delay_p95_s"]),
            recommendation.FORMS["three_ms"](choice["worst_deviation_s"]),
            f"{100 * choice['goodput_of_best']:.0f}",
        )
        return [Text(cell, style) for cell in cells]

    rows = [row(choice) for choice in recommendation.choices(facts["candidates"])]
    title = f"Worst case of each candidate; {recommendation.choices_are(facts)}"
    screen = options.print_table(columns, rows, width=80, title=title)
    screen.print(Text(recommendation.NAMES_SAY, style="dim"))
    screen.print()
