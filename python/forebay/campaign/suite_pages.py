"""The pages of a suite: HTML with every case and a score sheet per law, Markdown with the
comparison and the advice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.metrics import METRICS
from forebay._base.progress import Progress
from forebay._base.publication import publication, publish
from forebay._base.publication import write as put
from forebay._base.statistics import LEVEL
from forebay._native import __version__
from forebay.campaign import suite_results as results
from forebay.campaign.suite_advice import advice, unbeaten
from forebay.campaign.suite_scenarios import designs
from forebay.report import result_files
from forebay.report.pages import FIGURES, PageFigure, render_all
from forebay.report.tables import Table, mean_text
from forebay.report.templates import html
from forebay.report.templates import markdown as page_markdown

if TYPE_CHECKING:
    from forebay.campaign.suite_results import Case, Suite
    from forebay.campaign.suite_scenarios import Link, Settings
    from forebay.experiment.table import Cell

#: The sections of RFC 7928 that the scenarios are named after.
SECTIONS = {
    "4": "Interaction with ECN",
    "5": "Transport protocols",
    "6": "Round-trip time fairness",
    "7": "Burst absorption",
    "8": "Stability",
    "9": "Various traffic profiles",
}


@dataclass(frozen=True)
class About:
    """What was run, for the reader."""

    settings: Settings
    link: Link
    command: str
    #: digest of what the numbers depend on
    digest: str = ""


def comparison(suite: Suite, metrics: Sequence[str] = results.METRICS) -> Table:
    """A row per law: averages over the cases."""
    shown = [name for name in metrics if any(case.applies(name) for case in suite.whole())]
    return _table("law", shown, [(law, partial(suite.average, law)) for law in suite.laws])


def of_case(case: Case, laws: Sequence[str]) -> Table:
    """A row per law."""
    shown = [name for name in results.METRICS if case.applies(name)]
    rows = [(law, partial(case.cell, law)) for law in laws if law in case.runs]
    return _table("law", shown, rows)


def score_sheet(suite: Suite, law: str) -> Table:
    """A row per case."""
    rows = [(case.heading, partial(case.cell, law)) for case in suite.cases if law in case.runs]
    return _table("scenario", results.METRICS, rows)


def _table(
    head: str, metrics: Sequence[str], rows: Sequence[tuple[str, Callable[[str], Cell]]]
) -> Table:
    """A row for each name, with the cells of these metrics."""
    return Table(
        [head, *(METRICS[name].heading for name in metrics)],
        [[row, *(mean_text(cell(name), METRICS[name]) for name in metrics)] for row, cell in rows],
    )


def write_numbers(suite: Suite, about: About, out: Path) -> None:
    """Writes metrics.json, before anything is drawn; a former report goes."""
    numbers = {
        "forebay": __version__,
        "title": about.settings.title,
        "command": about.command,
        "digest": about.digest,
        "link": str(about.link),
        "partial": suite.partial,
        "cases": suite.lines(),
    }
    publish(out, {result_files.NUMBERS: numbers}, replaces=[result_files.REPORT, FIGURES])


def write(
    suite: Suite, about: About, out: Path, watch: Callable[[Progress], None] | None = None
) -> Path:
    """Writes report.html and its figures; returns where the report is. `watch` hears of the
    progress."""
    from forebay.campaign import suite_pictures as pictures

    over = [
        PageFigure(
            "overview",
            partial(pictures.overview, suite),
            "Queuing delay against goodput",
            "Left and above is better."
            + (
                f" Bars are {LEVEL:.0%} confidence intervals over the seeds."
                if len(suite.seeds) > 1
                else ""
            ),
        )
    ]
    over = over if suite.whole() else []
    of_cases = [
        PageFigure(
            f"{i:02}-{case.scenario}", partial(pictures.case, case, suite.laws), case.heading
        )
        for i, case in enumerate(suite.cases, start=1)
    ]
    with publication(out, keep=FIGURES) as unfinished:
        (unfinished / FIGURES).mkdir()
        render_all([*over, *of_cases], unfinished / FIGURES, watch)
        page = html(
            "suite.html.j2",
            **_shared(suite, about),
            overview=over,
            cases=[
                (case, figure, of_case(case, suite.laws))
                for case, figure in zip(suite.cases, of_cases, strict=True)
            ],
            sheets=[(law, score_sheet(suite, law)) for law in suite.laws],
        )
        put(unfinished / result_files.REPORT, page)
    return out / result_files.REPORT


def markdown(suite: Suite, about: About) -> str:
    """The page for docs/."""
    whole = {id(case) for case in suite.whole()}
    sections = [
        (
            number,
            SECTIONS.get(number, number),
            [(case, of_case(case, suite.laws)) for case in some if id(case) in whole],
        )
        for number, some in suite.sections().items()
    ]
    return page_markdown("suite.md.j2", **_shared(suite, about), sections=sections)


def _shared(suite: Suite, about: About) -> dict[str, object]:
    made = designs(about.settings, suite.laws, about.link)
    return {
        "about": about,
        "designed": [name for name, params in made.items() if params],
        "undesigned": [name for name, params in made.items() if not params],
        "suite": suite,
        "seeds": len(suite.seeds),
        "comparison": comparison(suite),
        "advice": advice(suite),
        "unbeaten": unbeaten(suite),
        "partial": f"Partial result: {suite.made} of {suite.wanted} runs had finished."
        if suite.partial
        else "",
    }
