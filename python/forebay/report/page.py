"""report.html: one page that works offline, with every figure in it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from forebay import units, web
from forebay.report import words
from forebay.run.axes import sweep_axes
from forebay.run.metrics import CLASS_METRICS, METRICS, with_interval
from forebay.run.stats import LEVEL

if TYPE_CHECKING:
    from forebay._native import PointInfo
    from forebay.report.classes import Row as ClassRow
    from forebay.report.moving import Moving
    from forebay.report.plots import Plot
    from forebay.run.runs import Runs

#: Figures beyond this many bytes, with the numbers of those that move, are not in the page but
#: beside it.
MOST_BYTES = 3_500_000
#: Mean queue below which an idle direction has no figures: they would be empty.
QUIET_PKTS = 0.5
QUIET = "Hardly a packet waited here, so there are no figures."
#: Points that have a section each.
MOST_SECTIONS = 4


@dataclass
class Picture:
    """A figure of a page."""

    #: Name of its file, without the ending.
    name: str
    figure: Plot
    title: str
    caption: str
    svg: str = ""
    #: By their names.
    files: dict[str, bytes] = field(default_factory=dict)

    def render(self) -> None:
        """Draws it, once for the page and its files."""
        self.files, self.svg = self.figure.rendered(self.name, self.title)


@dataclass
class Sketch:
    """A figure of the report, which is drawn when its turn comes: many would fill the memory."""

    #: Name of its file, without the ending.
    name: str
    draw: Callable[[], Plot]
    title: str
    caption: str
    #: The point that it shows, empty where there is one.
    where: str = ""
    #: What `forebay.report.moving` knows it by: its kind, and the indices of point and link.
    kind: tuple[str, int, int] | None = None
    #: Empty where the page has no room for it.
    svg: str = ""

    def render(self) -> tuple[dict[str, bytes], str]:
        """Draws it: its files by their names, and its SVG."""
        return self.draw().rendered(self.name, ", ".join(filter(None, [self.title, self.where])))


@dataclass
class Row:
    law: str
    cells: list[str]
    seeds: int


@dataclass
class Notes:
    """Pairs of laws at one point whose difference may be chance, by metric."""

    #: Common seeds of the tests; 0 where nothing could be tested.
    seeds: int = 0
    lines: list[str] = field(default_factory=list)


@dataclass
class Section:
    """One point of the sweep."""

    title: str
    #: for each link its name, empty where there is one, and a row per law
    tables: list[tuple[str, list[Row]]]
    #: and of what each class of its queue met
    classes: list[tuple[str, list[ClassRow]]]
    notes: Notes
    #: why there are no figures, if there are none
    quiet: str
    pictures: list[Sketch]


def pictures(result: Runs) -> tuple[list[Sketch], dict[int, list[Sketch]]]:
    """The figures over all points, and those of each point by its index.

    Beyond `MOST_SECTIONS` points those of single points are left out.
    """
    from forebay.report import overviews as over

    busy = [i for i, _ in result.points() if i not in result.experiment.idle]
    overviews = [
        Sketch(
            kind,
            partial(over.draw, result, kind),
            *_overview_caption(kind, result),
            kind=(kind, 0, 0),
        )
        for kind in over.OVERVIEWS
        # A single dot would compare nothing.
        if sum(len(list(result.laws(i))) for i in busy) > 1
        and (kind != "qacd" or "qacd_pkts" in result.compared())
    ]
    by_point = {
        i: list(_of_point(result, i, point)) for i, point in result.points() if not is_sweep(result)
    }
    return overviews, by_point


def _of_point(result: Runs, i: int, point: PointInfo) -> Iterator[Sketch]:
    """The figures of a point; none of a link with nothing to show."""
    from forebay.report import details, plots
    from forebay.report import overviews as over

    several = len(result.plan.points) > 1
    where = (words.point(point) or point.label) if several else ""

    def sketch(kind: str, link: int, draw: Callable[..., Plot], title: str, caption: str) -> Sketch:
        name = _name(kind, i if several else None, link)
        return Sketch(
            name, partial(draw, result, kind, i, link), title, caption, where, (kind, i, link)
        )

    busy = [link for link in range(len(point.links)) if not _is_quiet(result, i, link)]
    bottleneck = [link for link in busy if link == 0]
    for kind in plots.KINDS:
        for link in busy if kind == "queue" else bottleneck:
            yield sketch(kind, link, over.draw, *_caption(kind, result, point, link))
    for kind, detail in details.DETAILS.items():
        for link in busy if kind == "classes" else bottleneck:
            if detail.shows(result, i, link):
                yield sketch(kind, link, details.draw, *detail.caption(result, point, link))


def _is_quiet(result: Runs, point: int, link: int) -> bool:
    """Whether no packet left the link, or hardly any waited in an idle direction."""
    seen = [one for law, _ in result.laws(point) for one in result.at(point, law, link)]
    if not any(sum(one.delay_packets) for one in seen):
        return True
    return point in result.experiment.idle and not any(
        one.metrics["queue_mean_pkts"] >= QUIET_PKTS or one.metrics["drop_rate"] > 0 for one in seen
    )


def is_sweep(result: Runs) -> bool:
    """Whether there are too many points for a section each: then one table has all of them."""
    return len(list(result.points())) > MOST_SECTIONS


def _name(kind: str, point: int | None, link: int) -> str:
    """An ASCII name, for links of any name."""
    of_point = "" if point is None else f"-{point + 1}"
    of_link = f"-link-{link}" if link else ""
    return kind + of_point + of_link


def html(
    result: Runs, overviews: list[Sketch], by_point: dict[int, list[Sketch]], moves: Moving
) -> str:
    """The page, with the figures that have been rendered, and the numbers of those that move."""
    plan = result.plan
    return template("report.html.j2").render(
        title=plan.title or result.experiment.path,
        source=plan.source,
        partial=_partial(result),
        description=words.describe(result),
        command=result.experiment.command,
        scenario=result.experiment.text,
        laws=plan.points[0].laws,
        value=words.value,
        metrics=[METRICS[name] for name in result.compared()],
        all_metrics=METRICS.values(),
        class_metrics=list(CLASS_METRICS.values()),
        warnings=words.warnings(result),
        sections=[] if is_sweep(result) else list(_sections(result, by_point)),
        overview=_overview(result) if len(list(result.points())) > 1 else None,
        seeds=result.seeds,
        example=_of_one_point(result) if is_sweep(result) else "",
        overviews=overviews,
        moving=moves,
        level=f"{100 * LEVEL:.0f} %",
    )


def summary_html(result: Runs) -> str:
    """The tables alone, for a notebook."""
    return template("summary.html.j2").render(
        title=result.plan.title,
        partial=_partial(result),
        warnings=words.warnings(result),
        metrics=[METRICS[name] for name in result.compared()],
        sections=[
            (words.place(point, link), list(_rows(result, i, link)))
            for i, point in list(result.points())[:MOST_SECTIONS]
            for link in range(len(point.links))
        ],
        more=max(0, len(list(result.points())) - MOST_SECTIONS),
        level=f"{100 * LEVEL:.0f} %",
        seeds=result.seeds,
    )


@cache
def template(name: str) -> Template:
    """A file of `templates`; in HTML it escapes its values."""
    environment = Environment(
        loader=PackageLoader("forebay.report"),
        autoescape=lambda name: name is None or ".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["web"] = web.text
    return environment.get_template(name)


def _partial(result: Runs) -> str:
    """The missing or wrong part; empty for a whole result."""
    if not result.partial:
        return result.experiment.warning
    count = result.experiment.runs
    return f"Partial result: {len(result.runs)} of {count} runs finished before it was stopped."


def _sections(result: Runs, by_point: dict[int, list[Sketch]]) -> Iterator[Section]:
    from forebay.report import classes

    for i, point in result.points():
        yield Section(
            title=words.point(point) or "Metrics",
            tables=[
                (link.name if len(point.links) > 1 else "", list(_rows(result, i, k)))
                for k, link in enumerate(point.links)
            ],
            classes=[
                (link.name if len(point.links) > 1 else "", rows)
                for k, link in enumerate(point.links)
                if (rows := classes.rows(result, i, k))
            ],
            notes=_notes(result, i),
            quiet="" if by_point[i] else QUIET,
            pictures=by_point[i],
        )


@dataclass
class Overview:
    """One table over all points and links: what names a row, and rows of texts."""

    keys: list[tuple[str, str]]
    rows: list[list[str]]


def _overview(result: Runs) -> Overview:
    points = list(result.points())
    swept = sweep_axes({i: point.settings for i, point in points})
    order = sorted(points, key=lambda one: [axis.places[one[0]] for axis in swept])
    linked = max(len(point.links) for _, point in points) > 1
    keys = [words.axis(axis, points[0][1]) for axis in swept] or [("point", "")]
    rows = [
        [
            *([axis.of(p) for axis in swept] or [words.point(point) or point.label]),
            *([point.links[k].name] if linked else []),
            row.law,
            *row.cells,
        ]
        for p, point in order
        for k in range(len(point.links))
        for row in _rows(result, p, k)
    ]
    return Overview([*keys, *([("link", "")] if linked else []), ("law", "")], rows)


def _of_one_point(result: Runs) -> str:
    """The command whose report has the figures of the first point."""
    _, point = next(result.points())
    sets = [f"{key}={units.toml(value)}" for key, value in point.settings.items()]
    words_of = [word for one in sets for word in ("--set", one)]
    return f"{result.experiment.command} {shlex.join([*words_of, '--out', 'results/one-point'])}"


def _rows(result: Runs, point: int, link: int) -> Iterator[Row]:
    for i, law in result.laws(point):
        cells = []
        for name in result.compared():
            cell, scale = result.cell(point, i, name, link), METRICS[name].scale
            cells.append(with_interval(scale * cell.mean, scale * cell.half_width))
        yield Row(law.label, cells, len(result.of(point, i)))


def _notes(result: Runs, point: int) -> Notes:
    notes = Notes()
    for name in result.compared():
        comparisons = result.comparisons(point, name)
        if not comparisons:
            continue
        notes.seeds = max(notes.seeds, *(one.seeds for one in comparisons))
        pairs = [
            f"{c.first} and {c.second} (p = {c.p:.3g})" for c in comparisons if not c.significant
        ]
        if len(pairs) == len(comparisons) > 1:
            notes.lines.append(f"{METRICS[name].title}: every pair of laws.")
        elif pairs:
            notes.lines.append(f"{METRICS[name].title}: {', '.join(pairs)}.")
    return notes


def _caption(kind: str, result: Runs, point: PointInfo, link: int) -> tuple[str, str]:
    from forebay.report import plots

    spread = f"all {result.seeds} seeds" if result.seeds > 1 else "the same seed"
    start, end = point.measure_s
    measured = f"from {start:g} s to {end:g} s"
    where = f" at {point.links[link].name}" if len(point.links) > 1 else ""
    own = point.links[link].law
    always = f" This link is always under {own.label}." if own else ""
    if kind == "queue":
        rows = round(point.duration_s / point.sample_s)
        steps = plots.steps_of(result)
        size = -(-rows // steps)
        thinned = (
            f" In print, the curve is the mean of every {size} samples, in a band from their "
            "least to their greatest."
            if rows > 2 * steps
            else ""
        )
        place = point.links[link]
        dashed = (
            " The dashed line is the set-point; a law that holds it has a narrow hump there."
            if any(plots.target_pkts(point, law, place) is not None for law in point.laws)
            else ""
        )
        return (
            f"Queue length over time{where}",
            f"Left: the backlog every {1e3 * point.sample_s:g} ms, with the first seed. "
            f"Right: how often each length was seen {measured}, over {spread}."
            f"{dashed}{thinned}{always}",
        )
    if kind == "loss":
        return (
            f"Loss rate over time{where}",
            f"Left: packets dropped of those that arrived, in every "
            f"{plots.loss_interval_s(point):g} s, with the first seed. Right: how often each "
            f"rate was seen {measured}, over {spread}. A wide spread means bursts of loss.",
        )
    return (
        f"Queuing delay{where}",
        "Share of packets that waited longer than the time on the axis, "
        f"{measured}, over {spread}. A curve further left means less delay; it crosses 1 % at the "
        "99th percentile.",
    )


def _overview_caption(kind: str, result: Runs) -> tuple[str, str]:
    bars = (
        f"bars and bands are {100 * LEVEL:.0f} % confidence intervals of the mean over "
        f"{result.seeds} seeds (Student's t); a map has the means alone."
        if result.seeds > 1
        else "one seed gives no interval."
    )
    if kind == "goodput":
        return (
            "Goodput and delay",
            "Data handed to the receivers, and the time that 95 % of the packets wait less than; "
            f"{bars}",
        )
    if kind == "qacd":
        return (
            "Distance from the set-point",
            "Quadratic average of control deviation (QACD): the root of the mean squared distance "
            f"of the queue from the set-point. Less is better; {bars}",
        )
    return (
        "Loss and utilisation",
        "Share of arriving packets that were dropped, and share of the link's capacity that was "
        f"used; {bars}",
    )
