"""The page report.html, which works offline with every figure in it."""

from __future__ import annotations

import gc
import math
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._base import quantities, words
from forebay._base.metrics import CLASS_METRICS, METRICS, TRAFFIC_METRICS
from forebay._base.progress import Progress
from forebay._base.publication import publication, write
from forebay._base.worker_process import WorkerError
from forebay.experiment import descriptions
from forebay.report import over_time, sweeps, tables
from forebay.report.answers import answers, describe
from forebay.report.kinds import KINDS
from forebay.report.sheet import FIGURES, FigureData
from forebay.report.tables import Differences
from forebay.report.templates import html

if TYPE_CHECKING:
    from concurrent.futures import Future

    from forebay._native import Plan, PointInfo
    from forebay.experiment.result import Result
    from forebay.report.drawing_pool import DrawingPool
    from forebay.report.moving import MovingFigures
    from forebay.report.plot import Plot, Rendered
    from forebay.report.tables import Table


@dataclass
class PageFigure:
    """A figure of a page, which is drawn only when its turn comes: many would fill the memory.

    Attributes
    ----------
    name : str
        Name of the file without its suffix.
    make : Callable[[], FigureData | Plot]
        A function that makes the figure.
    title : str
        Title above the figure.
    caption : str, default ''
        Text below the figure.
    where : str, default ''
        Name of the point that the figure shows; empty if there is only one point.
    svg : str, default ''
        The drawn figure; empty before it is drawn, and if the page has no room for it.
    drawn : Future[Rendered], optional
        The figure that a process draws.
    """

    name: str
    make: Callable[[], FigureData | Plot]
    title: str
    caption: str = ""
    where: str = ""
    svg: str = ""
    drawn: Future[Rendered] | None = None

    @cached_property
    def content(self) -> FigureData | Plot:
        """The figure as data, or as a plot."""
        return self.make()

    @property
    def label(self) -> str:
        """The name of the figure for a screen reader."""
        return ", ".join(filter(None, [self.title, self.where]))

    def plot(self) -> Plot:
        """Return the figure, drawn in this process."""
        from forebay.report import drawing

        content = self.content
        return drawing.draw(content) if isinstance(content, FigureData) else content

    def begin(self, pool: DrawingPool) -> None:
        """Let a process draw the figure, if it is data and the pool has processes."""
        if isinstance(self.content, FigureData):
            self.drawn = pool.render(self.content, self.name, self.label)

    def render(self, room: float = math.inf) -> dict[str, bytes]:
        """Draw the figure, or wait until it is drawn, and return its files by name.

        `svg` is kept if it has at most `room` letters.
        """
        try:
            files, svg = (
                self.drawn.result() if self.drawn else self.plot().rendered(self.name, self.label)
            )
        except WorkerError:
            # The process was killed, for example for lack of memory.
            files, svg = self.plot().rendered(self.name, self.label)
        self.svg, self.drawn = svg if len(svg) <= room else "", None
        del self.content
        return files


def render_all(
    figures: Sequence[PageFigure],
    folder: Path,
    watch: Callable[[Progress], None] | None = None,
    room: float = math.inf,
) -> None:
    """Draw figures into files of a folder, and into their `svg`.

    Those that a process does not draw already are drawn here.

    Parameters
    ----------
    figures : Sequence[PageFigure]
        The figures.
    folder : Path
        The folder.
    watch : Callable[[Progress], None], optional
        Receives the progress.
    room : float, default math.inf
        The largest number of letters of all SVGs together.
    """
    start = time.monotonic()
    # A figure makes so many objects that the garbage collector would search all older ones often.
    gc.freeze()
    try:
        for done, figure in enumerate(figures):
            if watch:
                elapsed_s = time.monotonic() - start
                watch(Progress(done / len(figures), done, len(figures), elapsed_s))
            for name, data in figure.render(room).items():
                (folder / name).write_bytes(data)
            room -= len(figure.svg)
    finally:
        gc.unfreeze()


def publish_page(
    path: Path,
    template: str,
    figures: Sequence[PageFigure],
    watch: Callable[[Progress], None] | None = None,
    *,
    room: float = math.inf,
    replaces: Iterable[str] = (),
    **values: Any,
) -> Path:
    """Draw figures and write the page that shows them, all of it or nothing.

    Parameters
    ----------
    path : Path
        The page; the folder `FIGURES` next to it receives the figures.
    template : str
        Name of the page's template.
    figures : sequence of PageFigure
        Figures of the page.
    watch : callable, optional
        Called with the progress of the figures.
    room : float, optional
        Number of characters that all figures within the page may have together; the others are
        next to the page only.
    replaces : iterable of str, optional
        Files of a former call: see `publication`.
    **values
        Values for the template.

    Returns
    -------
    Path
        The page. An interruption keeps the figures that were drawn.
    """
    with publication(path.parent, replaces=replaces, keep=FIGURES) as unfinished:
        (unfinished / FIGURES).mkdir()
        render_all(figures, unfinished / FIGURES, watch, room)
        write(unfinished / path.name, html(template, **values))
    return path


#: Largest size of the figures in a page in bytes, with the numbers of those that a reader can zoom;
#: further figures are only files next to the page.
MOST_BYTES = 3_500_000
#: Mean queue below which an idle direction has no figures: they would be empty.
QUIET_PKTS = 0.5
QUIET = "Hardly a packet waited here, so there are no figures."
#: Name of the figure at the top of a report.
GLANCE = "glance"
#: Largest number of points with a section each.
MOST_SECTIONS = 4


@dataclass
class Section:
    """The section of a report about one point of the sweep.

    Attributes
    ----------
    title : str
        Name of the point.
    tables : list[tuple[str, Table]]
        A table for each link, with the name of the link if there are several.
    traffic : list[tuple[str, Table]]
        Tables of traffic, for links that several traffics cross.
    classes : list[tuple[str, Table]]
        Tables of classes, for links with classes.
    differences : Differences | None
        Differences between laws; None if there is no pair to compare.
    quiet : str
        Why there are no figures; empty if there are figures.
    figures : list[PageFigure]
        The figures.
    """

    title: str
    tables: list[tuple[str, Table]]
    traffic: list[tuple[str, Table]]
    classes: list[tuple[str, Table]]
    differences: Differences | None
    quiet: str
    figures: list[PageFigure]


@dataclass(frozen=True)
class ReportFigures:
    """The figures of a result's report.

    Attributes
    ----------
    overviews : list[PageFigure]
        The figures over all points, preceded by the queue at a glance.
    by_point : dict[int, list[PageFigure]]
        The figures of each point by its index; empty for a sweep of more than `MOST_SECTIONS`
        points.
    """

    overviews: list[PageFigure]
    by_point: dict[int, list[PageFigure]]

    @property
    def every(self) -> list[PageFigure]:
        """All figures, in the order of the page."""
        return [
            *self.overviews,
            *(figure for of_point in self.by_point.values() for figure in of_point),
        ]

    def begin(self, pool: DrawingPool) -> None:
        """Let the processes of a pool draw the figures."""
        for figure in self.every:
            figure.begin(pool)


def figure_count(plan: Plan) -> int:
    """Return about how many figures the report of a plan will have."""
    points = len(plan.points)
    return len(sweeps.OVERVIEWS) + 1 + (4 * points if points <= MOST_SECTIONS else 0)


def report_figures(result: Result) -> ReportFigures:
    """Return the figures of a result's report, which are not drawn yet."""
    overviews = [
        PageFigure(kind, partial(sweeps.content, result, kind), *sweeps.caption(result, kind))
        for kind in sweeps.OVERVIEWS
        if sweeps.shows(result, kind)
    ]
    overviews[:0] = _glance(result)
    by_point = {
        i: list(_of_point(result, i, point)) for i, point in result.points() if not is_sweep(result)
    }
    return ReportFigures(overviews, by_point)


def _glance(result: Result) -> Iterator[PageFigure]:
    """Yield the queue of every law at the first point that carried traffic, in one panel."""
    for i, point in result.points():
        if not _is_quiet(result, i, 0):
            where = descriptions.point(point) or point.label if len(result.plan.points) > 1 else ""
            title = f"Queue{f', {where}' if where else ''}"
            caption = "Means over short steps, with the first seed."
            start_s, end_s = point.measure_s
            if start_s > 0 or end_s < point.duration_s:
                caption += " The grey part is not measured."
            if len(over_time.distinct_targets(point, 0)) == 1:
                caption += " The dashed line is the set-point."
            make = partial(over_time.glance, result, i, 0)
            yield PageFigure(GLANCE, make, title, caption)
            return


def _of_point(result: Result, i: int, point: PointInfo) -> Iterator[PageFigure]:
    """Yield the figures of a point, without links that have nothing to show."""
    several = len(result.plan.points) > 1
    where = (descriptions.point(point) or point.label) if several else ""
    busy = [link for link in range(len(point.links)) if not _is_quiet(result, i, link)]
    for name, kind in KINDS.items():
        for link in busy:
            if (link == 0 or kind.every_link) and kind.shows(result, i, link):
                # A file name needs ASCII, while the name of a link may have any characters.
                file = name + (f"-{i + 1}" if several else "") + (f"-link-{link}" if link else "")
                make = partial(kind.sheet, result, i, link)
                yield PageFigure(file, make, *kind.caption(result, point, link), where)


def _is_quiet(result: Result, point: int, link: int) -> bool:
    """Return True if no packet left the link, or hardly any waited in an idle direction."""
    observations = [
        observed
        for law, _ in result.laws(point)
        for observed in result.observed_at(point, law, link)
    ]
    if not any(sum(observed.delay_packets) for observed in observations):
        return True
    return point in result.experiment.idle and not any(
        observed.metrics["queue_mean_pkts"] >= QUIET_PKTS or observed.metrics["drop_rate"] > 0
        for observed in observations
    )


def is_sweep(result: Result) -> bool:
    """Return True if there are too many points for a section each: one table has all of them."""
    return len(list(result.points())) > MOST_SECTIONS


def page_values(result: Result, figures: ReportFigures, moving: MovingFigures) -> dict[str, Any]:
    """Return the values of the template of a result's report.

    Parameters
    ----------
    result : Result
        The result.
    figures : ReportFigures
        The figures.
    moving : MovingFigures
        The numbers of interactive figures.
    """
    plan, sweep, overviews = result.plan, is_sweep(result), figures.overviews
    glance = [figure for figure in overviews if figure.name == GLANCE]
    return {
        "title": plan.title or result.experiment.path,
        "source": plan.source,
        "partial": partial_result(result),
        "description": describe(result),
        "command": result.experiment.command,
        "scenario": result.experiment.text,
        "laws": plan.points[0].laws,
        "parameters": words.parameters,
        "designs": tables.designs_table(plan),
        "all_metrics": METRICS.values(),
        "class_metrics": list(CLASS_METRICS.values()),
        "traffic_metrics": list(TRAFFIC_METRICS.values()),
        "warnings": descriptions.warnings(result),
        "sections": [] if sweep else list(_sections(result, figures.by_point)),
        "overview": tables.points_table(result) if len(list(result.points())) > 1 else None,
        "seeds": result.seeds,
        "overall": Differences.of(result.overall_differences, {}) if sweep else None,
        "differences_note": tables.DIFFERENCES_NOTE,
        "example": single_point_command(result) if sweep else "",
        "answers": answers(result),
        "glance": glance[0] if glance else None,
        "overviews": overviews[len(glance) :],
        "moving": moving,
    }


def partial_result(result: Result) -> str:
    """Return a sentence about missing runs or a warning; empty for a complete result."""
    if not result.partial:
        return result.experiment.warning
    count = result.experiment.runs
    return f"Partial result: {len(result.runs)} of {count} runs finished before it was stopped."


def _sections(result: Result, by_point: dict[int, list[PageFigure]]) -> Iterator[Section]:
    """Yield the sections of the points."""
    at_points = result.law_differences
    for i, point in result.points():
        links = [link.name if len(point.links) > 1 else "" for link in point.links]
        laws, traffic, classes = (
            [(name, filled) for k, name in enumerate(links) if (filled := table(result, i, k)).rows]
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


def single_point_command(result: Result) -> str:
    """Return the command whose report has the figures of the first point."""
    _, point = next(result.points())
    overrides = [f"{key}={quantities.toml(value)}" for key, value in point.settings.items()]
    options = [word for override in overrides for word in ("--set", override)]
    return f"{result.experiment.command} {shlex.join([*options, '--out', 'results/one-point'])}"
