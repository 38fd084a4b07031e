"""The sentences, the table, the figure and the page of a comparison of two saved results."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from forebay._base import terminal_table
from forebay._base.metrics import METRICS, Metric, p_text, with_interval
from forebay._base.publication import publish
from forebay._base.registries import title_of
from forebay._base.terminal_table import Column, RowGroup
from forebay.report import parts
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.sheet import group_offset
from forebay.report.tables import Table, mean_text
from forebay.report.templates import html

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.comparison.compare import MetricDifference, ResultComparison
    from forebay.experiment.table import Cell

PAGE, NUMBERS = "compare.html", "compare.json"
#: Largest number of differences that the terminal describes.
MOST_SENTENCES = 5


def table(lines: Sequence[MetricDifference], *, short: bool = False) -> Table:
    """Return a row for each difference; a star marks the significant ones.

    Parameters
    ----------
    lines : sequence of MetricDifference
        The differences.
    short : bool
        True to leave out the intervals of A and B, so that a terminal shows the difference.

    Returns
    -------
    Table
        The table.
    """

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
                # A link's direction "up (client to server)" is shortened to "up".
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
    """Return the name of the law, or both where A and B have different laws."""
    return " → ".join(dict.fromkeys(line.laws))


def sentences(comparison: ResultComparison) -> list[str]:
    """Return a sentence for each significant difference, the largest relative change first.

    Without any, the only sentence says so, and why.
    """
    lines = comparison.differences
    if all(line.difference == 0 and (line.alike or line.seeds == 1) for line in lines):
        return ["Both results have the same numbers."]
    texts: list[str] = []
    beyond = [line for line in lines if line.significant]
    for line in sorted(
        beyond, key=lambda line: -abs(line.share if line.share == line.share else 0)
    ):
        metric = METRICS[line.metric]
        change_word = "higher" if line.difference > 0 else "lower"
        share = f", {_percent(100 * line.share)}" if line.share == line.share else ""
        change = with_interval(abs(metric.scale * line.difference), metric.scale * line.half_width)
        # The difference of two shares is in percentage points.
        unit = "points" if metric.unit == "%" else metric.unit
        a, b = (mean_text(cell, metric).partition(" ±")[0] for cell in (line.a, line.b))
        at = f", {line.point}" if comparison.apart else ""
        name = " → ".join(map(title_of, dict.fromkeys(line.laws)))
        texts.append(
            f"{name}{at}: {metric.title} {change} {unit}".rstrip()
            + f" {change_word} in B ({b} instead of {a}{share})."
        )
    if not texts:
        if any(line.p == line.p for line in lines):
            why = "is statistically significant"
        elif any(line.alike for line in lines):
            why = "can be tested, because all seeds gave the same difference"
        else:
            why = "can be tested, because the results have fewer than two seeds in common"
        texts.append(f"No difference {why}.")
    return texts


def _percent(value: float) -> str:
    """Return a change in percent with its sign and two or three significant digits."""
    return f"{value:+.0f} %" if abs(value) >= 100 else f"{value:+.2g} %"


def verdict(comparison: ResultComparison) -> str:
    """Return how many differences are significant, for the first line of a terminal."""
    lines = comparison.differences
    significant = sum(line.significant for line in lines)
    if not significant:
        return sentences(comparison)[0]
    return f"{significant} of {len(lines)} differences are statistically significant."


def pairing(comparison: ResultComparison) -> list[str]:
    """Return remarks on unpaired runs and on differences without a test."""
    lines = comparison.differences
    remarks = []
    for side, place in (("A", 0), ("B", 1)):
        unpaired = max((line.unpaired[place] for line in lines), default=0)
        if unpaired:
            runs = f"{unpaired} runs" if unpaired > 1 else "1 run"
            left_out = (
                "are left out"
                if any(line.seeds for line in lines)
                else "are compared without pairing"
            )
            count = f"up to {runs}" if len({line.unpaired[place] for line in lines}) > 1 else runs
            verb = "has" if count == "1 run" else "have"
            remarks.append(
                f"Of each law, {count} of {side} {verb} no partner with the same point and seed in "
                f"the other result; they {left_out}."
            )
    if alike := sum(line.alike for line in lines):
        remarks.append(
            f"{alike} of {len(lines)} differences have no test, because all seeds gave exactly the "
            "same difference."
        )
    return remarks


def notes(comparison: ResultComparison) -> list[str]:
    """Return remarks on the two results, such as different engines or missing laws."""
    remarks = []
    for side, result in (("A", comparison.a), ("B", comparison.b)):
        if result.partial:
            remarks.append(f"{side} is a partial result.")
        remarks += [f"{side}: {remark}" for remark in result.remarks]
    engines = (comparison.a.engine, comparison.b.engine)
    if len(set(engines)) > 1:
        remarks.append(
            f"A was made by the engine {engines[0]}, B by {engines[1]}. A seed draws different "
            "numbers on each engine, so pairing does not reduce the variance."
        )
    versions = {comparison.a.version, comparison.b.version}
    if len(versions) > 1:
        remarks.append(
            f"A was made by Forebay {comparison.a.version}, B by {comparison.b.version}."
        )
    left_out = {
        law
        for result, place in ((comparison.a, 0), (comparison.b, 1))
        for law in result.laws
        if law not in [pair[place] for pair in comparison.laws]
    }
    if left_out:
        remarks.append(f"Only in one result: {', '.join(sorted(left_out))}.")
    points = len({*comparison.a.points, *comparison.b.points}) - len(comparison.points)
    if points > 0 and len(comparison.points) > 1:
        remarks.append(f"{points} points are only in one result and are left out.")
    return remarks


def show(console: Console, comparison: ResultComparison) -> None:
    """Print the verdict, the largest differences, the table, and remarks.

    Parameters
    ----------
    console : Console
        Where they are printed.
    comparison : ResultComparison
        The comparison.
    """
    largest = sentences(comparison)
    console.print(Text(verdict(comparison)))
    if any(line.significant for line in comparison.differences):
        for sentence in largest[:MOST_SENTENCES]:
            _print_item(console, f"- {sentence}")
        if len(largest) > MOST_SENTENCES:
            console.print(Text(f"- {len(largest) - MOST_SENTENCES} more are marked * in the table"))
    console.print()
    for side, result in (("A", comparison.a), ("B", comparison.b)):
        title = f"  {result.title}" if result.title else ""
        console.print(Text.assemble((f"{side}  ", "bold"), str(result.folder), title))
        if result.command:
            console.print(Text(f"   {result.command}", style="dim"))
    console.print()
    short = table(comparison.differences, short=True)
    columns = [Column(head, align_left=True) for head in short.heads[: short.keys]]
    columns += map(Column.from_heading, short.heads[short.keys :])
    terminal_table.show(console, columns, [RowGroup(short.rows)], keys=short.keys)
    note = "* significant: paired t-test over the common seeds, 5 % level, Holm's method"
    console.print(Text(note, style="dim"))
    for remark in [*pairing(comparison), *notes(comparison)]:
        _print_item(console, f"note: {remark}")


def _print_item(console: Console, text: str) -> None:
    """Print a paragraph whose further lines are indented, and which keeps "%" with its number."""
    lines = textwrap.wrap(
        text.replace(" %", "\u00a0%"), console.width, subsequent_indent="  ", break_on_hyphens=False
    )
    console.print(Text("\n".join(lines).replace("\u00a0", " ")))


def write(
    comparison: ResultComparison, out: str | os.PathLike[str], command: str = "", digest: str = ""
) -> Path:
    """Write the page and the numbers to a folder.

    Parameters
    ----------
    comparison : ResultComparison
        The comparison.
    out : path
        The folder.
    command : str
        Command line that repeats the comparison.
    digest : str
        Digest of the paths of both results.

    Returns
    -------
    Path
        The page.
    """
    title = "A compared with B"
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
    """Draw each difference as a share of A with its 95 % interval.

    Metrics that are 0 in A are left out.
    """
    lines = [line for line in comparison.differences if line.share == line.share]
    metrics = list(dict.fromkeys(line.metric for line in lines))
    figure, axes = one_panel(10, 1.2 + 0.45 * max(1, len(metrics)))
    series = list(dict.fromkeys(_series(comparison, line) for line in lines))
    for index, name in enumerate(series):
        of_law = [line for line in lines if _series(comparison, line) == name]
        half_widths = [100 * abs(line.half_width / line.a.mean) for line in of_law]
        places = [
            metrics.index(line.metric) + group_offset(index, len(series), 0.6) for line in of_law
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
    laws = " and ".join(map(title_of, dict.fromkeys(line.laws)))
    return f"{laws}, {line.point}" if comparison.apart else laws
