"""report.html: one page that works offline, with every figure in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from forebay.report import words
from forebay.run.metrics import CLASS_METRICS, METRICS, with_interval
from forebay.run.stats import LEVEL

if TYPE_CHECKING:
    from forebay._native import PointInfo
    from forebay.report.classes import Row as ClassRow
    from forebay.report.plots import Plot
    from forebay.run.runs import Runs

#: Figures beyond this many bytes are not in the page but beside it.
MOST_BYTES = 5_500_000


@dataclass
class Picture:
    """A figure of the report."""

    #: Name of its file, without the ending.
    name: str
    figure: Plot
    title: str
    caption: str
    #: Empty where the page has no room for it.
    svg: str = ""


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
    pictures: list[Picture]


def pictures(result: Runs) -> tuple[list[Picture], dict[int, list[Picture]]]:
    """The figures over all points, and those of each point by its index."""
    from forebay.report import details, plots

    busy = [i for i, _ in result.points() if i not in result.experiment.idle]
    overviews = [
        Picture(kind, plots.draw(result, kind), *_overview_caption(kind, result))
        for kind in plots.OVERVIEWS
        # A single dot would compare nothing.
        if sum(len(list(result.laws(i))) for i in busy) > 1
        and (kind != "qacd" or "qacd_pkts" in result.compared())
    ]
    by_point = {
        i: [
            Picture(
                _name(kind, i if len(result.plan.points) > 1 else None, link),
                plots.draw(result, kind, i, link),
                *_caption(kind, result, point, link),
            )
            for kind in plots.KINDS
            for link in range(len(point.links) if kind == "queue" else 1)
        ]
        + [
            Picture(
                _name(kind, i if len(result.plan.points) > 1 else None, link),
                details.draw(result, kind, i, link),
                *detail.caption(result, point, link),
            )
            for kind, detail in details.DETAILS.items()
            for link in range(len(point.links) if kind == "classes" else 1)
            if detail.shows(result, i, link)
        ]
        for i, point in result.points()
    }
    return overviews, by_point


def _name(kind: str, point: int | None, link: int) -> str:
    """An ASCII name, for links of any name."""
    of_point = "" if point is None else f"-{point + 1}"
    of_link = f"-link-{link}" if link else ""
    return kind + of_point + of_link


def html(result: Runs, overviews: list[Picture], by_point: dict[int, list[Picture]]) -> str:
    """The page."""
    room = MOST_BYTES
    for picture in [*overviews, *(p for some in by_point.values() for p in some)]:
        svg = picture.figure.svg()
        if len(svg) <= room:
            picture.svg = svg
            room -= len(svg)
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
        sections=list(_sections(result, by_point)),
        overviews=overviews,
        level=f"{100 * LEVEL:.0f} %",
    )


def summary_html(result: Runs) -> str:
    """The tables alone, for a notebook."""
    return template("summary.html.j2").render(
        title=result.plan.title,
        partial=_partial(result),
        metrics=[METRICS[name] for name in result.compared()],
        sections=[
            (words.place(point, link), list(_rows(result, i, link)))
            for i, point in result.points()
            for link in range(len(point.links))
        ],
        level=f"{100 * LEVEL:.0f} %",
        seeds=result.seeds,
    )


def template(name: str) -> Template:
    """A file of `templates`; in HTML it escapes its values."""
    environment = Environment(
        loader=PackageLoader("forebay.report"),
        autoescape=lambda name: name is None or ".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def _partial(result: Runs) -> str:
    """The missing or wrong part; empty for a whole result."""
    if not result.partial:
        return result.experiment.warning
    count = result.experiment.runs
    return f"Partial result: {len(result.runs)} of {count} runs finished before it was stopped."


def _sections(result: Runs, by_point: dict[int, list[Picture]]) -> Iterator[Section]:
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
            pictures=by_point[i],
        )


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
            f" The curve is the mean of every {size} samples, in a band from their least to their "
            "greatest."
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
        f"bars are {100 * LEVEL:.0f} % confidence intervals of the mean over "
        f"{result.seeds} seeds (Student's t)."
        if result.seeds > 1
        else "one seed gives no interval."
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
