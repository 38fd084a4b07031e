"""A page per paper: its claims beside ours, and its figures drawn from our runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forebay.base.publication import publish
from forebay.pages.templates import html
from forebay.replays import figures
from forebay.replays.claims import Paper
from forebay.replays.measures import Measured
from forebay.replays.verdicts import Planned, Verdict, count
from forebay.results.result import Result


@dataclass
class Drawing:
    """One figure of the page, in one picture or several."""

    where: str
    title: str
    caption: str
    #: (name of the point, <svg>)
    pictures: list[tuple[str, str]]


@dataclass
class Part:
    """One experiment on the page."""

    name: str
    title: str
    source: str
    text: str
    seeds: int
    verdicts: list[Verdict]
    variants: list[tuple[str, str]]
    drawings: list[Drawing]


def part(planned: Planned, of_reading: Mapping[str, Result], verdicts: list[Verdict]) -> Part:
    """Draws the figures of one experiment."""
    one, result = planned.of, of_reading[""]
    measured = {name: Measured(of, one.claims.points) for name, of in of_reading.items()}
    drawings = [
        Drawing(
            figure.where,
            figure.title,
            figure.caption,
            [
                (name, plot.svg(", ".join(filter(None, [figure.title, name]))))
                for name, plot in figures.draw(
                    figure, of_reading[figure.variant], measured[figure.variant]
                )
            ],
        )
        for figure in one.claims.figures
    ]
    return Part(
        one.name,
        result.plan.title,
        result.plan.source,
        result.experiment.text,
        result.seeds,
        verdicts,
        [(v.name, v.says) for v in one.claims.variants.values() if v.name in of_reading],
        drawings,
    )


def write(paper: Paper, parts: list[Part], directory: Path, command: str) -> Path:
    """Writes the page, with the command that makes it again, and returns where it is."""
    verdicts = [verdict for part in parts for verdict in part.verdicts]
    page = html(
        "paper.html.j2",
        paper=paper,
        parts=parts,
        count=count(verdicts),
        command=command,
    )
    (path,) = publish(directory, {f"{paper.name}.html": page})
    return path
