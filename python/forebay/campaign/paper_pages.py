"""A page per paper, its claims beside ours and its figures drawn from our runs; and the summary of
all, docs/papers.md: which claims hold, which do not, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay._base.publication import publish
from forebay._native import ScenarioError
from forebay.campaign import paper_figures as figures
from forebay.campaign.claims import Paper
from forebay.campaign.measures import Measured
from forebay.campaign.verdicts import NOT_REPRODUCED, PlannedReplay, Verdict, count
from forebay.experiment.result import Result
from forebay.report.templates import html, template


def section(
    planned: PlannedReplay, of_reading: Mapping[str, Result], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    """One experiment on the page of its paper; draws its figures."""
    one, result = planned.of, of_reading[""]
    measured = {name: Measured(of, one.points) for name, of in of_reading.items()}
    return {
        "name": one.name,
        "result": result,
        "verdicts": verdicts,
        "variants": [it for it in one.variants.values() if it.name in of_reading],
        "figures": [
            (
                figure,
                [
                    (name, plot.svg(", ".join(filter(None, [figure.title, name]))))
                    for name, plot in figures.draw(
                        figure, of_reading[figure.variant], measured[figure.variant]
                    )
                ],
            )
            for figure in one.figures
        ],
    }


def write(
    paper: Paper,
    experiments: Sequence[tuple[PlannedReplay, Mapping[str, Result], Sequence[Verdict]]],
    directory: Path,
    command: str,
) -> Path:
    """Writes the page, with the command that makes it again, and returns where it is."""
    page = html(
        "paper.html.j2",
        paper=paper,
        sections=[section(*each) for each in experiments],
        count=count([verdict for *_, verdicts in experiments for verdict in verdicts]),
        command=command,
    )
    (path,) = publish(directory, {f"{paper.name}.html": page})
    return path


def summary(papers: Sequence[Paper], found: Sequence[Verdict]) -> str:
    """The page as Markdown. Its prose is in the template; every number in it is from `found`."""
    by_key = {verdict.key: verdict for verdict in found}

    def ours(key: str) -> str:
        if key not in by_key:
            raise ScenarioError(f"papers.md.j2: found {key}, allowed: a claim that was replayed")
        return by_key[key].text()

    of_paper = {paper.name: [v for v in found if v.paper == paper.name] for paper in papers}
    return template("papers.md.j2").render(
        papers=papers,
        of_paper=of_paper,
        count=count,
        total=len(found),
        all=count(found),
        ours=ours,
        not_reproduced=NOT_REPRODUCED,
    )
