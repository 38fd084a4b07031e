"""The words, the table, the figure and the page of a comparison of two saved results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from forebay._base import terminal_table
from forebay._base.metrics import METRICS, Metric, p_text, with_interval
from forebay._base.publication import publish
from forebay._base.terminal_table import Column, RowGroup
from forebay.report import parts
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.tables import Table, mean_text
from forebay.report.templates import html

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.comparison.compare import MetricDifference, ResultComparison
    from forebay.experiment.table import Cell

PAGE, NUMBERS = "compare.html", "compare.json"


def table(lines: Sequence[MetricDifference], *, short: bool = False) -> Table:
    """Return a row for each difference; a star marks those beyond chance. `short` leaves the
    intervals of A and B out, so that a terminal has room for what matters: the difference."""

    def mean(cell: Cell, metric: Metric) -> str:
        text = mean_text(cell, metric)
        return text.partition(" ±")[0] if short else text

    pointed = len({line.point for line in lines}) > 1
    rows = []
    for line in lines:
        metric = METRICS[line.metric]
        change = with_interval(metric.scale * line.difference, metric.scale * line.half_width)
        rows.append(
            [
                metric.heading,
                # A link's "up (client to server)" is "up".
                *([line.point.partition(" (")[0] if short else line.point] if pointed else []),
                law_name(line),
                mean(line.a, metric),
                mean(line.b, metric),
                change,
                p_text(line.p, significant=line.significant, tested=not line.alike),
                f"{100 * line.share:+.1f}" if line.share == line.share else "–",
            ]
        )
    keys = ["Metric", *(["Point"] if pointed else []), "Law"]
    return Table([*keys, "A", "B", "B − A", "p", "Change [%]"], rows, keys=len(keys))


def law_name(line: MetricDifference) -> str:
    """Return the law, or both where they differ."""
    return " → ".join(dict.fromkeys(line.laws))


def sentences(comparison: ResultComparison) -> list[str]:
    """Return what differs beyond chance, first what changed most."""
    lines = comparison.differences
    said: list[str] = []
    beyond = [line for line in lines if line.significant]
    for line in sorted(
        beyond, key=lambda line: -abs(line.share if line.share == line.share else 0)
    ):
        metric = METRICS[line.metric]
        more = "more" if line.difference > 0 else "less"
        share = f" ({100 * line.share:+.1f} %)" if line.share == line.share else ""
        change = with_interval(abs(metric.scale * line.difference), metric.scale * line.half_width)
        # Of a share the difference is in points: what stands in brackets is another per cent.
        unit = "points" if metric.unit == "%" else metric.unit
        a, b = (mean_text(cell, metric).partition(" ±")[0] for cell in (line.a, line.b))
        at = f", {line.point}" if comparison.apart else ""
        said.append(
            f"{law_name(line)}{at}, {metric.title}: {change} {unit}".rstrip()
            + f" {more} in B, {b} instead of {a}{share}."
        )
    if all(line.difference == 0 and (line.alike or line.seeds == 1) for line in lines):
        return ["Both have the same numbers."]
    if not said:
        if any(line.p == line.p for line in lines):
            why = "is beyond chance"
        elif any(line.alike for line in lines):
            why = "can be tested: all seeds gave the same"
        else:
            why = "can be tested: fewer than two seeds are common"
        said.append(f"No difference {why}.")
    return said


def pairing(comparison: ResultComparison) -> list[str]:
    """Return what a reader must know of the pairs that the differences are of."""
    lines = comparison.differences
    remarks = []
    for side, place in (("A", 0), ("B", 1)):
        unpaired = max((line.unpaired[place] for line in lines), default=0)
        if unpaired:
            runs = f"{unpaired} runs" if unpaired > 1 else "1 run"
            up_to = "up to " if len({line.unpaired[place] for line in lines}) > 1 else ""
            left_out = "are left out" if any(line.seeds for line in lines) else "have no partner"
            remarks.append(
                f"Not paired: {up_to}{runs} of {side} for each law, whose point and seed the other "
                f"result does not have; they {left_out}."
            )
    if alike := sum(line.alike for line in lines):
        remarks.append(
            f"No test of {alike} of {len(lines)} differences, which all seeds give to the bit: "
            "that shows nothing of chance."
        )
    return remarks


def notes(comparison: ResultComparison) -> list[str]:
    """Return what a reader must know of both results."""
    remarks = []
    for side, result in (("A", comparison.a), ("B", comparison.b)):
        if result.partial:
            remarks.append(f"{side} is a partial result.")
        remarks += [f"{side}: {remark}" for remark in result.remarks]
    engines = (comparison.a.engine, comparison.b.engine)
    if len(set(engines)) > 1:
        remarks.append(
            f"Two engines: {engines[0]} made A, and {engines[1]} B. A seed draws other numbers on "
            "each, so that a pair of runs has no more in common than any two."
        )
    versions = {comparison.a.version, comparison.b.version}
    if len(versions) > 1:
        remarks.append(f"Forebay {comparison.a.version} made A, and {comparison.b.version} B.")
    left_out = {
        law
        for result, place in ((comparison.a, 0), (comparison.b, 1))
        for law in result.laws
        if law not in [pair[place] for pair in comparison.laws]
    }
    if left_out:
        remarks.append(f"In one of them alone: {', '.join(sorted(left_out))}.")
    points = len({*comparison.a.points, *comparison.b.points}) - len(comparison.points)
    if points > 0 and len(comparison.points) > 1:
        remarks.append(f"{points} points are in one of them alone, and left out.")
    return remarks


def show(console: Console, comparison: ResultComparison) -> None:
    """Print both results, the table, and what it says."""
    for side, result in (("A", comparison.a), ("B", comparison.b)):
        title = f"  {result.title}" if result.title else ""
        console.print(Text.assemble((f"{side}  ", "bold"), str(result.folder), title))
        if result.command:
            console.print(Text(f"   {result.command}", style="dim"))
    console.print()
    shown = table(comparison.differences, short=True)
    columns = [Column(head, left=True) for head in shown.heads[: shown.keys]]
    columns += map(Column.from_heading, shown.heads[shown.keys :])
    terminal_table.show(console, columns, [RowGroup(shown.rows)], keys=shown.keys)
    for sentence in [*sentences(comparison), *pairing(comparison), *notes(comparison)]:
        console.print(Text(sentence))
    note = "* beyond chance: paired t-tests over the common seeds at 95 %, adjusted within a metric"
    console.print(Text(note, style="dim"))


def write(
    comparison: ResultComparison,
    out: str | os.PathLike[str],
    command: str = "",
    digest: str = "",
) -> Path:
    """Write the page and the numbers, with the digest of the paths; return where the page is."""
    title = "A beside B"
    page = html(
        "compare.html.j2",
        title=title,
        command=command,
        results=[("A", comparison.a), ("B", comparison.b)],
        sentences=sentences(comparison),
        notes=[*pairing(comparison), *notes(comparison)],
        svg=differences(comparison).svg(title),
        table=table(comparison.differences),
        points=table(comparison.at_points) if comparison.averaged else None,
        count=len(comparison.points) if comparison.averaged else 1,
    )
    numbers = {"command": command, "digest": digest, **comparison.to_dict()}
    publish(out, {NUMBERS: numbers, PAGE: page})
    return Path(out) / PAGE


@styled
def differences(comparison: ResultComparison) -> Plot:
    """Draw each difference as a share of A, with its 95 % interval; what is zero in A has none."""
    lines = [line for line in comparison.differences if line.share == line.share]
    metrics = list(dict.fromkeys(line.metric for line in lines))
    figure, axes = one_panel(10, 1.2 + 0.45 * max(1, len(metrics)))
    series = list(dict.fromkeys(_series(comparison, line) for line in lines))
    for index, name in enumerate(series):
        of_law = [line for line in lines if _series(comparison, line) == name]
        half_widths = [100 * abs(line.half_width / line.a.mean) for line in of_law]
        places = [
            metrics.index(line.metric) + parts.aside(index, len(series), 0.6) for line in of_law
        ]
        shares = [100 * line.share for line in of_law]
        parts.dots(axes, shares, places, index, name, xerr=half_widths)
    axes.axvline(0.0, **parts.EDGE)
    axes.set_yticks(range(len(metrics)), [METRICS[name].title for name in metrics])
    axes.invert_yaxis()
    axes.set_xlabel("B − A, as a share of A [%]")
    parts.legend_beside(axes)
    return figure


def _series(comparison: ResultComparison, line: MetricDifference) -> str:
    laws = " and ".join(dict.fromkeys(line.laws))
    return f"{laws}, {line.point}" if comparison.apart else laws
