"""Tables for pages, terminals and notebooks: headings with units, and rows of texts."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from rich.text import Text

from forebay._base import terminal_table, words
from forebay._base.metrics import (
    CLASS_METRICS,
    COST,
    METRICS,
    TRAFFIC_METRICS,
    p_text,
    with_interval,
)
from forebay._base.terminal_table import Column, RowGroup
from forebay.experiment import descriptions
from forebay.experiment.engines import PACKETS
from forebay.scenario.axes import sweep_axes

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.metrics import Metric
    from forebay._native import Plan
    from forebay.experiment.result import Result
    from forebay.experiment.table import Cell, LawDifference


@dataclass(frozen=True)
class Table:
    """A table of texts.

    Attributes
    ----------
    heads : Sequence[str]
        Headings, such as "Goodput [Mbit/s]".
    rows : Sequence[Sequence[str]]
        Rows of cells.
    keys : int, default 1
        Number of first columns that name the row.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1

    def markdown(self) -> str:
        """Return the table in Markdown, names to the left and numbers to the right."""
        lines = ["---"] * self.keys + ["---:"] * (len(self.heads) - self.keys)
        return markdown_table(self.heads, self.rows, lines)

    def show(self, console: Console, title: str = "", *, continued: bool = False) -> None:
        """Print the table on a terminal."""
        columns = [
            Column.from_heading(head, align_left=i < self.keys) for i, head in enumerate(self.heads)
        ]
        groups = [RowGroup(self.rows, title)]
        terminal_table.show(console, columns, groups, keys=self.keys, continued=continued)


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], lines: Sequence[str] = ()
) -> str:
    """Return a table in Markdown.

    Parameters
    ----------
    heads : Sequence[str]
        The headings.
    rows : Iterable[Sequence[str]]
        The rows.
    lines : Sequence[str], default ()
        The cells of the line below the headings, which align the columns.
    """
    # A bar within a cell is escaped, since it would end the cell.
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n"
        for line in [heads, lines or ["---"] * len(heads), *rows]
    )


def bounds(low: float | None, high: float | None) -> str:
    """Return a range in words; empty without both ends.

    Parameters
    ----------
    low : float | None
        Lower end, or None.
    high : float | None
        Upper end, or None.
    """
    return "" if low is None or high is None else f"{low:g} to {high:g}"


def mean_text(cell: Cell, metric: Metric) -> str:
    """Return "mean ± half width of the interval" in the unit of the metric.

    Parameters
    ----------
    cell : Cell
        The cell.
    metric : Metric
        The metric.
    """
    return with_interval(metric.scale * cell.mean, metric.scale * cell.half_width)


def cells_table(
    keys: Sequence[str],
    metrics: Iterable[Metric],
    rows: Iterable[tuple[Sequence[str], Callable[[str], Cell]]],
) -> Table:
    """Return a table of means.

    Parameters
    ----------
    keys : Sequence[str]
        Headings of the columns that name a row.
    metrics : Iterable[Metric]
        The metrics, one column each.
    rows : Iterable[tuple[Sequence[str], Callable[[str], Cell]]]
        The names of each row, and a function that returns its cell of a metric.
    """
    metrics = list(metrics)
    return Table(
        [*keys, *(metric.heading for metric in metrics)],
        [
            [*names, *(mean_text(cell(metric.name), metric) for metric in metrics)]
            for names, cell in rows
        ],
        keys=len(keys),
    )


def laws_table(result: Result, point: int, link: int, *, seeds: bool = True) -> Table:
    """Return a table with a row per law.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    seeds : bool, default True
        True to add a column with the number of seeds.
    """
    metrics = [METRICS[name] for name in result.compared()]
    rows = [
        [
            law.label,
            *(mean_text(result.cell_at(point, i, metric.name, link), metric) for metric in metrics),
            *([str(len(result.runs_of(point, i)))] if seeds else []),
        ]
        for i, law in result.laws(point)
    ]
    heads = ["Law", *(metric.heading for metric in metrics), *(["Seeds"] if seeds else [])]
    return Table(heads, rows)


#: The note below a table of differences.
DIFFERENCES_NOTE = (
    "Mean of the first law less that of the second, ± half its 95 % confidence interval, over the "
    "seeds that both have; p by a paired t-test, adjusted by Holm's method for the number of tests "
    "of the same metric. A star marks a difference beyond chance (p < 0.05). "
    '"no test": all seeds give the same difference, which shows nothing of chance.'
)
#: Largest number of differences in a table in LaTeX.
MOST_IN_LATEX = 60


def differences_table(differences: Sequence[LawDifference], places: Mapping[Any, str]) -> Table:
    """Return a table with a row per difference of two laws.

    Parameters
    ----------
    differences : Sequence[LawDifference]
        The differences.
    places : Mapping[Any, str]
        The name of each place; if it is empty, there is no column of places.
    """
    rows = []
    for difference in differences:
        metric, pair = METRICS[difference.metric], difference.pair
        rows.append(
            [
                metric.heading,
                *([places[difference.place]] if places else []),
                f"{pair.first} − {pair.second}",
                with_interval(metric.scale * pair.difference, metric.scale * pair.half_width),
                p_text(pair.p, significant=pair.significant, tested=pair.tested),
            ]
        )
    keys = ["Metric", *(["Point"] if places else []), "Laws"]
    return Table([*keys, "Difference", "p"], rows, keys=len(keys))


@dataclass
class Differences:
    """The differences between laws.

    Attributes
    ----------
    tested : int
        Number of differences that were tested.
    beyond_chance : Table
        The significant differences.
    inconclusive : Table
        The other differences.
    """

    tested: int
    beyond_chance: Table
    inconclusive: Table

    @staticmethod
    def of(differences: Sequence[LawDifference], places: Mapping[Any, str]) -> Differences | None:
        """Return the tables of differences; None if no pair of laws has two seeds in common.

        Parameters
        ----------
        differences : Sequence[LawDifference]
            The differences; significant ones come first.
        places : Mapping[Any, str]
            The name of each place.
        """
        if not differences:
            return None
        beyond = [difference for difference in differences if difference.pair.significant]
        return Differences(
            sum(difference.pair.tested for difference in differences),
            differences_table(beyond, places),
            differences_table(differences[len(beyond) :], places),
        )


def differences_frame(
    differences: Sequence[LawDifference], places: Mapping[Any, str]
) -> pl.DataFrame:
    """Return the differences as numbers in the units of metrics.json, for CSV.

    Parameters
    ----------
    differences : Sequence[LawDifference]
        The differences.
    places : Mapping[Any, str]
        The name of each place.
    """
    rows = [
        (
            difference.metric,
            places.get(difference.place, ""),
            difference.pair.first,
            difference.pair.second,
            difference.pair.seeds,
            difference.pair.difference,
            *(
                None if math.isnan(x) else x
                for x in (difference.pair.half_width, difference.pair.p)
            ),
            difference.pair.significant if difference.pair.tested else None,
        )
        for difference in differences
    ]
    schema = {
        **dict.fromkeys(["metric", "point", "first", "second"], pl.String),
        "seeds": pl.Int64,
        **dict.fromkeys(["difference", "ci95", "p"], pl.Float64),
        "beyond_chance": pl.Boolean,
    }
    return pl.DataFrame(rows, schema, orient="row")


def latex(table: Table, note: str) -> str:
    r"""Return a table as LaTeX for \input; it needs the package booktabs.

    Parameters
    ----------
    table : Table
        The table.
    note : str
        Note that becomes a comment above the table.
    """
    columns = "l" * table.keys + "r" * (len(table.heads) - table.keys)
    left_out = len(table.rows) - MOST_IN_LATEX
    if left_out > 0:
        note += f" The last {left_out} of {len(table.rows)} rows are left out."
    rows = [table.heads, *table.rows[:MOST_IN_LATEX]]
    head, *lines = (" & ".join(map(_in_latex, row)) + r" \\" for row in rows)
    comment = "\n".join(f"% {line}" for line in textwrap.wrap(note, 96))
    body = "\n".join(
        [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", head, r"\midrule", *lines, r"\bottomrule"]
    )
    return f"{comment}\n{body}\n\\end{{tabular}}\n"


#: Characters that LaTeX interprets, or that its usual fonts lack, with their replacements.
LATEX = {
    "\\": r"\textbackslash{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "<": r"$<$",
    ">": r"$>$",
    "→": r"$\rightarrow$",
    "³": r"$^3$",
    "\N{NO-BREAK SPACE}": "~",
}


def _in_latex(text: str) -> str:
    """Return a text with the characters replaced that LaTeX would interpret."""
    # The sign of a number is a minus, not a hyphen.
    number = re.fullmatch(r"-([\d.]+)( ±.*)?", text)
    if number:
        return r"$-$" + _in_latex(number[1] + (number[2] or ""))
    return "".join(LATEX.get(sign, sign) for sign in text)


def classes_table(result: Result, point: int, link: int) -> Table:
    """Return a table with a row per law and class of its queue.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    rows = [
        [
            law.label,
            name,
            *(
                mean_text(result.class_cell(point, i, name, metric.name, link), metric)
                for metric in CLASS_METRICS.values()
            ),
        ]
        for i, law in result.laws(point)
        for name in result.class_names(point, i, link)
    ]
    return Table(
        ["Law", "Class", *(metric.heading for metric in CLASS_METRICS.values())], rows, keys=2
    )


def traffic_table(result: Result, point: int, link: int) -> Table:
    """Return a table with a row per law and traffic, for a link that several traffics cross.

    Metrics that no row has are omitted.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    traffic = result.plan.points[point].traffic
    cells = [
        (
            law.label,
            traffic[i].label,
            {
                name: result.traffic_cell(point, k, traffic[i].label, name, link)
                for name in TRAFFIC_METRICS
            },
        )
        for k, law in result.laws(point)
        for i in dict.fromkeys(
            class_traffic.traffic
            for observed in result.observed_at(point, k, link)
            for class_traffic in observed.traffic
        )
    ]
    metrics_with_values = [
        metric
        for metric in TRAFFIC_METRICS.values()
        if any(of[metric.name].seeds for *_, of in cells)
        and (metric.name != "mark_rate" or any(of[metric.name].mean > 0 for *_, of in cells))
    ]
    rows = [
        [law, label, *(mean_text(of[metric.name], metric) for metric in metrics_with_values)]
        for law, label, of in cells
    ]
    return Table(
        ["Law", "Traffic", *(metric.heading for metric in metrics_with_values)], rows, keys=2
    )


def designs_table(plan: Plan) -> Table | None:
    """Return the designed parameters of laws with several designs; None if there are none."""
    labels = [design.label for design in plan.designed]
    rows = [
        [descriptions.point(plan.points[point]), design.label, words.parameters(design.params)]
        for design in plan.designed
        if labels.count(design.label) > 1
        for point in design.points
    ]
    return Table(["Point", "Law", "Designed"], rows, keys=3) if rows else None


def points_table(result: Result) -> Table:
    """Return a table with a row per point, link and law, in the order of the sweep's axes."""
    points = list(result.points())
    swept = sweep_axes({i: point.settings for i, point in points})
    order = sorted(points, key=lambda item: [axis.places[item[0]] for axis in swept])
    linked = max(len(point.links) for _, point in points) > 1
    names = [descriptions.axis(axis, points[0][1]) for axis in swept]
    keys = [f"{name} [{unit}]" if unit else name for name, unit in names] or ["point"]
    rows = [
        [
            *([axis.value_at(p) for axis in swept] or [descriptions.point(point) or point.label]),
            *([point.links[k].name] if linked else []),
            *row,
        ]
        for p, point in order
        for k in range(len(point.links))
        for row in laws_table(result, p, k, seeds=False).rows
    ]
    keys += ["link", "law"] if linked else ["law"]
    heads = [METRICS[name].heading for name in result.compared()]
    return Table([*keys, *heads], rows, len(keys))


#: Largest number of points for which a terminal shows results by traffic, and of rows that it shows
#: with every column.
MOST_POINTS = 4
MOST_ROWS = 12


def results(console: Console, result: Result) -> None:
    """Print a result: its answer, a row of means for each law, point and link, and its warnings.

    Parameters
    ----------
    console : Console
        The console.
    result : Result
        The result.
    """
    points = list(result.points())
    links = max(len(point.links) for _, point in points)
    # One table whose rows are named by point and law is easier to read than one for each point.
    if len(points) > 1 and links == 1 and points[0][1].settings:
        table = points_table(result)
        heads, keys, groups = table.heads, table.keys, [RowGroup(table.rows)]
    else:
        by_place = [
            (descriptions.place(point, k), laws_table(result, p, k, seeds=False))
            for p, point in points
            for k in range(len(point.links))
        ]
        heads, keys = ["law", *by_place[0][1].heads[1:]], 1
        groups = [RowGroup(table.rows, place) for place, table in by_place]
    columns = [Column.from_heading(head, align_left=i == keys - 1) for i, head in enumerate(heads)]
    from forebay.report import answers  # loads jinja2

    warning_list = descriptions.warnings(result)
    for sentence in answers.answers(result):
        console.print(Text(words.wrapped(sentence, console.width)), soft_wrap=True)
    console.print()
    if result.plan.title:
        console.print(Text(result.plan.title, style="bold"))
    terminal_table.show(console, columns, groups, keys=keys)
    show_traffic(console, result)
    console.print(Text(interval_note(result.seeds, "--seeds 5"), style="dim"))
    if warning_list:
        console.print()
    warnings(console, warning_list)


def interval_note(seeds: int, option: str) -> str:
    """Return a sentence on the intervals of a table.

    Parameters
    ----------
    seeds : int
        Number of seeds.
    option : str
        Option of the command that gives several seeds.
    """
    if seeds < 2:
        return f"one seed, so no confidence interval; use for example {option}"
    return (
        f"mean ± half of the 95 % confidence interval over {seeds} seeds; without ±, all seeds "
        "gave the same value"
    )


def show_traffic(console: Console, result: Result, title: str = "Results by traffic") -> None:
    """Print a table for each link that several traffics cross.

    A few rows are printed with every column, even on a narrow terminal.

    Parameters
    ----------
    console : Console
        The console.
    result : Result
        The result.
    title : str, default 'Results by traffic'
        Title of the tables.
    """
    tables = list(_traffic(result))
    continued = sum(len(table.rows) for _, table in tables) <= MOST_ROWS
    for place, table in tables:
        console.print()
        table.show(console, f"{title}, {place}" if place else title, continued=continued)


def warnings(console: Console, warning_list: Sequence[tuple[str, str]]) -> None:
    """Print warnings as a list, each with a command that helps if there is one.

    Parameters
    ----------
    console : Console
        The console.
    warning_list : Sequence[tuple[str, str]]
        Pairs of a warning and a command.
    """
    for warning, command in warning_list:
        text = words.wrapped(f"warning: {warning}", console.width, "  ")
        console.print(Text(text, style="yellow"), soft_wrap=True)
        if command:
            console.print(Text("  To design the law for this link:"))
            for line in words.broken_command(command, console.width - 4):
                console.print(Text(f"    {line}"), soft_wrap=True)


def _traffic(result: Result) -> Iterator[tuple[str, Table]]:
    """Yield each link that several traffics cross, in words, with its table by traffic.

    A sweep of more than `MOST_POINTS` points has none: the table would not fit on a screen.
    """
    points = list(result.points())
    for p, point in points if len(points) <= MOST_POINTS else []:
        for k in range(len(point.links)):
            table = traffic_table(result, p, k)
            if table.rows:
                where = descriptions.place(point, k) if len(points) * len(point.links) > 1 else ""
                yield where, table


def cost(result: Result) -> str:
    """Return the number of runs and packets, and the time that they took."""
    packets = sum(run.metrics["forwarded_packets"] for run in result.runs)
    cpu_s = sum(run.metrics[COST] for run in result.runs)
    engine = result.experiment.engine
    by = "" if engine.name == PACKETS.name else f", {engine.in_words}"
    return (
        f"{len(result.runs)} runs{by}, {packets / 1e6:.1f} million packets in "
        f"{result.elapsed_s:.1f} s ({words.in_figures(cpu_s, 2)} s of processor time)"
    )
