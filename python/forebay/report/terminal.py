"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.text import Text

from forebay._base import quantities, terminal_table
from forebay._base.metrics import COST
from forebay._base.terminal_table import Column, RowGroup
from forebay.experiment import descriptions
from forebay.experiment.engines import PACKETS
from forebay.report import tables

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._native import ParamInfo, RegistryEntry
    from forebay.experiment.result import Result
    from forebay.report.tables import Table

#: Points of which a terminal shows who gets what, and rows that it shows whole.
MOST_POINTS = 4
MOST_ROWS = 12


def registry(
    console: Console, entries: Sequence[RegistryEntry], example: Callable[[RegistryEntry], str]
) -> None:
    """One table per entry, with meaning and range of each parameter; then a command to try."""
    for law in entries:
        heading = Text.assemble((law["name"], "bold cyan"), "  ", (law["title"], "bold"))
        console.print(heading)
        console.print(Text(law["source"], style="dim"))
        if law["equation"]:
            console.print(Text(law["equation"]))
        if law["params"]:
            terminal_table.show(
                console, PARAMETERS, [RowGroup([_row(param) for param in law["params"]])]
            )
        else:
            console.print("no parameters\n")
    console.print(Text.assemble("Try it:  ", (example(entries[0]), "bold")), soft_wrap=True)


PARAMETERS = [
    Column("parameter", left=True),
    Column("default"),
    Column("range", left=True),
    Column("meaning", sentence=True),
]


def _row(param: ParamInfo) -> list[str]:
    return [param["name"], _default(param), _range(param), param["doc"]]


def _default(param: ParamInfo) -> str:
    """As in a scenario, without the quotes: "200p", "6.25ms"."""
    if param["default"] is None:
        return "required"
    if isinstance(param["default"], float) and not param["unit"]:
        return f"{param['default']:g}"
    return param["default_text"]


def _range(param: ParamInfo) -> str:
    return quantities.parameter_range(param)


def results(console: Console, result: Result) -> None:
    """Law × point and link: mean ± 95 % interval over the seeds; what a reader must know of it."""
    points = list(result.points())
    links = max(len(point.links) for _, point in points)
    # One table, whose rows are named by point and law, reads better than one for each point.
    if len(points) > 1 and links == 1 and points[0][1].settings:
        table = tables.points_table(result)
        heads, keys, groups = table.heads, table.keys, [RowGroup(table.rows)]
    else:
        by_place = [
            (descriptions.place(point, k), tables.laws_table(result, p, k, seeds=False))
            for p, point in points
            for k in range(len(point.links))
        ]
        heads, keys = ["law", *by_place[0][1].heads[1:]], 1
        groups = [RowGroup(table.rows, place) for place, table in by_place]
    columns = [
        replace(Column.from_heading(head), left=i == keys - 1) for i, head in enumerate(heads)
    ]
    console.print(Text(result.plan.title, style="bold"))
    terminal_table.show(console, columns, groups, keys=keys)
    who_gets_what(console, result)
    note = (
        f"mean ± half the 95 % confidence interval over {result.seeds} seeds; no ±: all alike"
        if result.seeds > 1
        else "one seed: no interval; --seeds 5 gives one"
    )
    console.print(Text(note, style="dim"))
    warnings(console, descriptions.warnings(result))


def who_gets_what(console: Console, result: Result, title: str = "Who gets what") -> None:
    """A table for each link that several traffics cross; of a few rows every column, however
    narrow the terminal is."""
    tables = list(_traffic(result))
    continued = sum(len(table.rows) for _, table in tables) <= MOST_ROWS
    for place, table in tables:
        columns = [
            replace(Column.from_heading(head), left=i < table.keys)
            for i, head in enumerate(table.heads)
        ]
        heading = f"{title}, {place}" if place else title
        groups = [RowGroup(table.rows, heading)]
        terminal_table.show(console, columns, groups, keys=table.keys, continued=continued)


def warnings(console: Console, said: Sequence[tuple[str, str]]) -> None:
    """Sentences, and commands that help."""
    for warning, command in said:
        console.print(Text(f"Warning: {warning}", style="yellow"))
        if command:
            # It must stay whole.
            console.print(Text(f"  gains for this link: {command}"), soft_wrap=True)


def _traffic(result: Result) -> Iterator[tuple[str, Table]]:
    """Each link that several traffics cross, in words, with who gets what of it; not of a sweep of
    many points, whose table would be longer than any screen."""
    points = list(result.points())
    for p, point in points if len(points) <= MOST_POINTS else []:
        for k in range(len(point.links)):
            table = tables.traffic_table(result, p, k)
            if table.rows:
                where = descriptions.place(point, k) if len(points) * len(point.links) > 1 else ""
                yield where, table


def cost(result: Result) -> str:
    """Cost of the runs."""
    packets = sum(run.metrics["forwarded_packets"] for run in result.runs)
    cpu_s = sum(run.metrics[COST] for run in result.runs)
    engine = result.experiment.engine
    by = "" if engine.name == PACKETS.name else f", {engine.in_words}"
    return (
        f"{len(result.runs)} runs{by}, {packets / 1e6:.1f} million packets, in "
        f"{result.elapsed_s:.1f} s ({cpu_s:.1f} s of processor time)"
    )
