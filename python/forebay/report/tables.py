"""Tables on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from forebay.report import words
from forebay.run.metrics import METRICS, with_interval

if TYPE_CHECKING:
    from forebay._native import ParamInfo, RegistryEntry
    from forebay.run.runs import Runs

#: Metrics that fit a terminal; the report has more.
SHOWN = ["queue_mean_pkts", "qacd_pkts", "drop_rate", "utilisation", "delay_p95_s"]


def registry(entries: Sequence[RegistryEntry], example: str) -> Iterator[Group]:
    """One table per entry, with meaning and range of each parameter; then a command to try."""
    for law in entries:
        heading = Text.assemble((law["name"], "bold cyan"), "  ", (law["title"], "bold"))
        source = Text(f"  {law['source']}", style="dim")
        if not law["params"]:
            yield Group(heading, source, Text("  no parameters"), Text())
            continue
        table = Table(box=box.SIMPLE_HEAD, pad_edge=True)
        table.add_column("parameter", style="cyan", no_wrap=True)
        table.add_column("default", justify="right", no_wrap=True)
        table.add_column("range", no_wrap=True)
        table.add_column("meaning")
        for param in law["params"]:
            table.add_row(param["name"], _default(param), _range(param), param["doc"])
        yield Group(heading, source, table)
    yield Group(Text.assemble("Try one:  ", (example, "bold")))


def _default(param: ParamInfo) -> str:
    """As in a scenario, without the quotes: "200p", "6.25ms"."""
    if param["default"] is None:
        return "required"
    if isinstance(param["default"], float) and not param["unit"]:
        return f"{param['default']:g}"
    return param["default_text"]


def _range(param: ParamInfo) -> str:
    low, high, unit = param["min"], param["max"], words.UNITS.get(param["unit"], param["unit"])
    if low is None and high is None:
        return ""
    if high is None:
        return f"from {low:g} {unit}".rstrip()
    if low is None:
        return f"up to {high:g} {unit}".rstrip()
    return f"{low:g} to {high:g} {unit}".rstrip()


def results(result: Runs) -> Group:
    """Law × point and link: mean ± 95 % interval over the seeds."""
    shown = [METRICS[name] for name in SHOWN if name in result.compared()]
    longest = max(map(len, result.plan.laws))
    tables: list[Table | Text] = []
    places = [(p, k) for p, point in result.points() for k in range(len(point.links))]
    for p, k in places:
        table = Table(
            box=box.SIMPLE_HEAD,
            title=words.place(result.plan.points[p], k) or None,
            title_justify="left",
            title_style="bold",
        )
        # Alike for every point, so that the tables stand under each other.
        table.add_column("law", no_wrap=True, min_width=longest)
        for metric in shown:
            heading = f"{metric.title}\n{metric.unit}"
            table.add_column(heading, justify="right", no_wrap=True, min_width=15)
        for i, law in result.laws(p):
            cells = [result.cell(p, i, metric.name, k) for metric in shown]
            table.add_row(
                law.label,
                *(
                    with_interval(metric.scale * cell.mean, metric.scale * cell.half_width)
                    for metric, cell in zip(shown, cells, strict=True)
                ),
            )
        tables.append(table)
    note = (
        f"mean ± half the 95 % confidence interval over {result.seeds} seeds"
        if result.seeds > 1
        else "one seed: no interval; --seeds 5 gives one"
    )
    return Group(Text(result.plan.title, style="bold"), *tables, Text(note, style="dim"))


def cost(result: Runs) -> str:
    """Cost of the runs."""
    packets = sum(run.metrics["forwarded_packets"] for run in result.runs)
    cpu_s = sum(run.metrics["user_cpu_s"] for run in result.runs)
    return (
        f"{len(result.runs)} runs, {packets / 1e6:.1f} million packets, in "
        f"{result.elapsed_s:.1f} s ({cpu_s:.1f} s of processor time)"
    )
