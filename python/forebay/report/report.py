"""report.html: one page that works offline, with every figure in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay._base import quantities, words
from forebay._base.metrics import CLASS_METRICS, METRICS, TRAFFIC_METRICS
from forebay.experiment import descriptions
from forebay.report import tables
from forebay.report.answers import answers
from forebay.report.description import describe
from forebay.report.page_figures import PageFigure
from forebay.report.templates import html

if TYPE_CHECKING:
    from forebay._native import PointInfo
    from forebay.experiment.result import Result
    from forebay.experiment.table import LawDifference
    from forebay.report.moving import MovingFigures
    from forebay.report.tables import Table

#: Figures beyond this many bytes, with the numbers of those that move, are not in the page but
#: beside it.
MOST_BYTES = 3_500_000
#: Mean queue below which an idle direction has no figures: they would be empty.
QUIET_PKTS = 0.5
QUIET = "Hardly a packet waited here, so there are no figures."
#: Name of the figure that a report begins with.
GLANCE = "glance"
#: Points that have a section each.
MOST_SECTIONS = 4


@dataclass
class Differences:
    """Differences between laws: how many were tested, those beyond chance, and the others."""

    tested: int
    beyond_chance: Table
    inconclusive: Table

    @staticmethod
    def of(differences: Sequence[LawDifference], places: Mapping[Any, str]) -> Differences | None:
        """Return the table; None where no pair of laws has two seeds in common."""
        if not differences:
            return None
        beyond = [difference for difference in differences if difference.pair.significant]
        return Differences(
            sum(difference.pair.tested for difference in differences),
            tables.differences_table(beyond, places),
            tables.differences_table(differences[len(beyond) :], places),
        )


@dataclass
class Section:
    """One point of the sweep: a table for each link, with its name where there are several; of its
    traffic, where several cross it; and of its classes, where it has some."""

    title: str
    tables: list[tuple[str, Table]]
    traffic: list[tuple[str, Table]]
    classes: list[tuple[str, Table]]
    #: Differences between laws; None where there is no pair to compare.
    differences: Differences | None
    #: why there are no figures, if there are none
    quiet: str
    figures: list[PageFigure]


def page_figures(result: Result) -> tuple[list[PageFigure], dict[int, list[PageFigure]]]:
    """The figures over all points, the queue at a glance before them, and those of each point by
    its index.

    Beyond `MOST_SECTIONS` points those of single points are left out.
    """
    from forebay.report import sweeps

    overviews = [
        PageFigure(kind, partial(sweeps.content, result, kind), *sweeps.caption(result, kind))
        for kind in sweeps.OVERVIEWS
        if sweeps.shows(result, kind)
    ]
    overviews[:0] = _glance(result)
    by_point = {
        i: list(_of_point(result, i, point)) for i, point in result.points() if not is_sweep(result)
    }
    return overviews, by_point


def _glance(result: Result) -> Iterator[PageFigure]:
    """The queue of every law at the first point that carried something, in one panel."""
    from forebay.report import over_time

    for i, point in result.points():
        if not _is_quiet(result, i, 0):
            where = descriptions.point(point) or point.label if len(result.plan.points) > 1 else ""
            title = f"Queue{f', {where}' if where else ''}"
            caption = "Means over short steps, with the first seed. Grey is not in the metrics."
            if len(over_time.distinct_targets(point, 0)) == 1:
                caption += " The dashed line is the set-point."
            make = partial(over_time.glance, result, i, 0)
            yield PageFigure(GLANCE, make, title, caption)
            return


def _of_point(result: Result, i: int, point: PointInfo) -> Iterator[PageFigure]:
    """The figures of a point; none of a link with nothing to show."""
    from forebay.report.kinds import KINDS

    several = len(result.plan.points) > 1
    where = (descriptions.point(point) or point.label) if several else ""
    busy = [link for link in range(len(point.links)) if not _is_quiet(result, i, link)]
    for name, kind in KINDS.items():
        for link in busy:
            if (link == 0 or kind.every_link) and kind.shows(result, i, link):
                # An ASCII name, for links of any name.
                file = name + (f"-{i + 1}" if several else "") + (f"-link-{link}" if link else "")
                make = partial(kind.sheet, result, i, link)
                yield PageFigure(file, make, *kind.caption(result, point, link), where)


def _is_quiet(result: Result, point: int, link: int) -> bool:
    """Whether no packet left the link, or hardly any waited in an idle direction."""
    seen = [one for law, _ in result.laws(point) for one in result.observed_at(point, law, link)]
    if not any(sum(one.delay_packets) for one in seen):
        return True
    return point in result.experiment.idle and not any(
        one.metrics["queue_mean_pkts"] >= QUIET_PKTS or one.metrics["drop_rate"] > 0 for one in seen
    )


def is_sweep(result: Result) -> bool:
    """Whether there are too many points for a section each: then one table has all of them."""
    return len(list(result.points())) > MOST_SECTIONS


def page(
    result: Result,
    overviews: list[PageFigure],
    by_point: dict[int, list[PageFigure]],
    moving: MovingFigures,
) -> str:
    """The page, with the figures that have been rendered, and the numbers of those that move."""
    plan, sweep = result.plan, is_sweep(result)
    glance = [one for one in overviews if one.name == GLANCE]
    return html(
        "report.html.j2",
        title=plan.title or result.experiment.path,
        source=plan.source,
        partial=_partial(result),
        description=describe(result),
        command=result.experiment.command,
        scenario=result.experiment.text,
        laws=plan.points[0].laws,
        parameters=words.parameters,
        designs=tables.designs_table(plan),
        all_metrics=METRICS.values(),
        class_metrics=list(CLASS_METRICS.values()),
        traffic_metrics=list(TRAFFIC_METRICS.values()),
        warnings=descriptions.warnings(result),
        sections=[] if sweep else list(_sections(result, by_point)),
        overview=tables.points_table(result) if len(list(result.points())) > 1 else None,
        seeds=result.seeds,
        overall=Differences.of(result.overall_differences, {}) if sweep else None,
        differences_note=tables.DIFFERENCES_NOTE,
        example=_single_point_command(result) if sweep else "",
        answers=answers(result),
        glance=glance[0] if glance else None,
        overviews=overviews[len(glance) :],
        moving=moving,
    )


def summary_html(result: Result) -> str:
    """The tables alone, for a notebook."""
    points = list(result.points())
    return html(
        "summary.html.j2",
        title=result.plan.title,
        partial=_partial(result),
        warnings=descriptions.warnings(result),
        sections=[
            (descriptions.place(point, link), tables.laws_table(result, i, link))
            for i, point in points[:MOST_SECTIONS]
            for link in range(len(point.links))
        ],
        more=max(0, len(points) - MOST_SECTIONS),
        seeds=result.seeds,
    )


def _partial(result: Result) -> str:
    """The missing or wrong part; empty for a whole result."""
    if not result.partial:
        return result.experiment.warning
    count = result.experiment.runs
    return f"Partial result: {len(result.runs)} of {count} runs finished before it was stopped."


def _sections(result: Result, by_point: dict[int, list[PageFigure]]) -> Iterator[Section]:
    at_points = result.law_differences
    for i, point in result.points():
        links = [link.name if len(point.links) > 1 else "" for link in point.links]
        laws, traffic, classes = (
            [(name, made) for k, name in enumerate(links) if (made := table(result, i, k)).rows]
            for table in (tables.laws_table, tables.traffic_table, tables.classes_table)
        )
        yield Section(
            descriptions.point(point) or "Metrics",
            laws,
            traffic,
            classes,
            Differences.of(
                [difference for difference in at_points if difference.place == (point.label,)], {}
            ),
            "" if by_point[i] else QUIET,
            by_point[i],
        )


def _single_point_command(result: Result) -> str:
    """The command whose report has the figures of the first point."""
    _, point = next(result.points())
    overrides = [f"{key}={quantities.toml(value)}" for key, value in point.settings.items()]
    options = [word for one in overrides for word in ("--set", one)]
    return f"{result.experiment.command} {shlex.join([*options, '--out', 'results/one-point'])}"
