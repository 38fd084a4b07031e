"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from forebay import units
from forebay.report import screen, words
from forebay.report.screen import Column, Group
from forebay.run import axes
from forebay.run.metrics import COST, METRICS, with_interval

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._native import ParamInfo, RegistryEntry
    from forebay.run.metrics import Metric
    from forebay.run.runs import Runs


def registry(console: Console, entries: Sequence[RegistryEntry], example: str) -> None:
    """One table per entry, with meaning and range of each parameter; then a command to try."""
    for law in entries:
        heading = Text.assemble((law["name"], "bold cyan"), "  ", (law["title"], "bold"))
        console.print(heading)
        console.print(Text(law["source"], style="dim"))
        if law["params"]:
            screen.show(console, PARAMETERS, [Group([_row(param) for param in law["params"]])])
        else:
            console.print("no parameters\n")
    console.print(Text.assemble("Try one:  ", (example, "bold")), soft_wrap=True)


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
    unit = words.UNITS.get(param["unit"], param["unit"])
    return units.interval(param["min"], param["max"], unit)


def results(console: Console, result: Runs) -> None:
    """Law × point and link: mean ± 95 % interval over the seeds; what a reader must know of it."""
    shown = [METRICS[name] for name in result.compared()]
    points = list(result.points())
    swept = axes.sweep_axes({p: point.settings for p, point in points})
    links = max(len(point.links) for _, point in points)
    places = [(p, k) for p, point in points for k in range(len(point.links))]
    # One table, whose rows are named by point and law, reads better than one for each point.
    named = len(points) > 1 and bool(swept) and links == 1
    if named:
        keys = [
            *(Column(*words.axis(axis, points[0][1])) for axis in swept),
            Column("law", left=True),
        ]
        order = sorted(points, key=lambda one: [axis.places[one[0]] for axis in swept])
        rows = [
            [*(axis.of(p) for axis in swept), *row]
            for p, _ in order
            for row in _rows(result, p, 0, shown)
        ]
        groups = [Group(rows)]
    else:
        keys = [Column("law", left=True)]
        groups = [
            Group(_rows(result, p, k, shown), words.place(result.plan.points[p], k))
            for p, k in places
        ]
    console.print(Text(result.plan.title, style="bold"))
    columns = [*keys, *(Column(metric.title, metric.unit) for metric in shown)]
    screen.show(console, columns, groups, keys=len(keys))
    note = (
        f"mean ± half the 95 % confidence interval over {result.seeds} seeds"
        if result.seeds > 1
        else "one seed: no interval; --seeds 5 gives one"
    )
    console.print(Text(note, style="dim"))
    for warning, command in words.warnings(result):
        console.print(Text(f"Warning: {warning}", style="yellow"))
        if command:
            # It must stay whole.
            console.print(Text(f"  gains for this link: {command}"), soft_wrap=True)


def _rows(result: Runs, point: int, link: int, shown: Sequence[Metric]) -> list[list[str]]:
    found = []
    for i, law in result.laws(point):
        cells = [result.cell(point, i, metric.name, link) for metric in shown]
        numbers = [
            with_interval(metric.scale * cell.mean, metric.scale * cell.half_width)
            for metric, cell in zip(shown, cells, strict=True)
        ]
        found.append([law.label, *numbers])
    return found


def cost(result: Runs) -> str:
    """Cost of the runs."""
    packets = sum(run.metrics["forwarded_packets"] for run in result.runs)
    cpu_s = sum(run.metrics[COST] for run in result.runs)
    return (
        f"{len(result.runs)} runs, {packets / 1e6:.1f} million packets, in "
        f"{result.elapsed_s:.1f} s ({cpu_s:.1f} s of processor time)"
    )
