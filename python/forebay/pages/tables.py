"""Tables that pages, terminals and notebooks show: headings with units, and rows of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.base import words
from forebay.base.metrics import CLASS_METRICS, METRICS, TRAFFIC_METRICS, with_interval
from forebay.runs import descriptions
from forebay.scenarios.axes import sweep_axes

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.base.metrics import Metric
    from forebay.runs.experiment_runs import Runs
    from forebay.runs.table import Cell


@dataclass(frozen=True)
class Table:
    """heads: such as "Goodput [Mbit/s]". keys: how many columns name the row."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int = 1

    def markdown(self) -> str:
        """With the names to the left and the numbers to the right."""
        lines = ["---"] * self.keys + ["---:"] * (len(self.heads) - self.keys)
        return markdown_table(self.heads, self.rows, lines)


def markdown_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], lines: Sequence[str] = ()
) -> str:
    """A table in Markdown. lines: what stands below each heading."""
    # Within a cell a bar would end it.
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n"
        for line in [heads, lines or ["---"] * len(heads), *rows]
    )


def bounds(low: float | None, high: float | None) -> str:
    """A range in words, empty where it has no ends."""
    return "" if low is None or high is None else f"{low:g} to {high:g}"


def mean_text(cell: Cell, metric: Metric) -> str:
    """`mean ± half of the interval`, in the metric's unit."""
    return with_interval(metric.scale * cell.mean, metric.scale * cell.half_width)


def laws_table(result: Runs, point: int, link: int, *, seeds: bool = True) -> Table:
    """A row for each law: what laws are compared by, and how many seeds it has."""
    shown = [METRICS[name] for name in result.compared()]
    rows = [
        [
            law.label,
            *(mean_text(result.cell(point, i, one.name, link), one) for one in shown),
            *([str(len(result.runs_of(point, i)))] if seeds else []),
        ]
        for i, law in result.laws(point)
    ]
    heads = ["Law", *(one.heading for one in shown), *(["Seeds"] if seeds else [])]
    return Table(heads, rows)


def classes_table(result: Runs, point: int, link: int) -> Table:
    """A row for each law and class of its queue."""
    rows = [
        [
            law.label,
            name,
            *(
                mean_text(result.class_cell(point, i, name, one.name, link), one)
                for one in CLASS_METRICS.values()
            ),
        ]
        for i, law in result.laws(point)
        for name in result.class_names(point, i, link)
    ]
    return Table(["Law", "Class", *(one.heading for one in CLASS_METRICS.values())], rows, keys=2)


def traffic_table(result: Runs, point: int, link: int) -> Table:
    """Who gets what: a row for each law and traffic of a link that several cross. Metrics that no
    row has are left out."""
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
            each.traffic for one in result.observed_at(point, k, link) for each in one.traffic
        )
    ]
    shown = [
        metric
        for metric in TRAFFIC_METRICS.values()
        if any(of[metric.name].seeds for *_, of in cells)
        and (metric.name != "mark_rate" or any(of[metric.name].mean > 0 for *_, of in cells))
    ]
    rows = [
        [law, label, *(mean_text(of[metric.name], metric) for metric in shown)]
        for law, label, of in cells
    ]
    return Table(["Law", "Traffic", *(metric.heading for metric in shown)], rows, keys=2)


def designs_table(plan: Plan) -> Table | None:
    """The numbers of laws that were designed for each of several points; None without any."""
    labels = [design.label for design in plan.designed]
    rows = [
        [descriptions.point(plan.points[point]), design.label, words.parameters(design.params)]
        for design in plan.designed
        if labels.count(design.label) > 1
        for point in design.points
    ]
    return Table(["Point", "Law", "Designed"], rows, keys=3) if rows else None


def points_table(result: Runs) -> Table:
    """A row for each point, link and law, in the order of the sweep's axes."""
    points = list(result.points())
    swept = sweep_axes({i: point.settings for i, point in points})
    order = sorted(points, key=lambda one: [axis.places[one[0]] for axis in swept])
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
