"""The pages of a suite: HTML with every case and a score sheet per law, Markdown with the
comparison and the advice."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._native import __version__
from forebay.report import files
from forebay.report.page import template
from forebay.run.experiment import Progress
from forebay.run.metrics import METRICS, with_interval
from forebay.run.stats import LEVEL
from forebay.suite import results
from forebay.suite.advice import advice, unbeaten
from forebay.suite.scenarios import designs

if TYPE_CHECKING:
    from forebay.report.plots import Plot
    from forebay.run.runs import Cell
    from forebay.suite.results import Case, Suite
    from forebay.suite.scenarios import Link, Settings

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


@dataclass(frozen=True)
class Table:
    """A heading per column, and rows that begin with a name."""

    heads: list[str]
    rows: list[list[str]]


def written(cell: Cell, metric: str) -> str:
    scale = METRICS[metric].scale
    return with_interval(scale * cell.mean, scale * cell.half_width)


def comparison(suite: Suite, metrics: Sequence[str] = results.METRICS) -> Table:
    """A row per law: averages over the cases."""
    shown = [name for name in metrics if any(case.applies(name) for case in suite.whole())]
    return Table(
        ["law", *(METRICS[name].heading for name in shown)],
        [[law, *(written(suite.average(law, name), name) for name in shown)] for law in suite.laws],
    )


def of_case(case: Case, laws: Sequence[str]) -> Table:
    """A row per law."""
    shown = [name for name in results.METRICS if case.applies(name)]
    return Table(
        ["law", *(METRICS[name].heading for name in shown)],
        [
            [law, *(written(case.cell(law, name), name) for name in shown)]
            for law in laws
            if law in case.runs
        ],
    )


def score_sheet(suite: Suite, law: str) -> Table:
    """A row per case."""
    return Table(
        ["scenario", *(METRICS[name].heading for name in results.METRICS)],
        [
            [case.heading, *(written(case.cell(law, name), name) for name in results.METRICS)]
            for case in suite.cases
            if law in case.runs
        ],
    )


def write_numbers(suite: Suite, about: About, out: Path) -> None:
    """Writes metrics.json, before anything is drawn; a former report goes."""
    out.mkdir(parents=True, exist_ok=True)
    (out / files.REPORT).unlink(missing_ok=True)
    shutil.rmtree(out / files.FIGURES, ignore_errors=True)
    numbers = {
        "forebay": __version__,
        "title": about.settings.title,
        "command": about.command,
        "link": str(about.link),
        "partial": suite.partial,
        "cases": suite.lines(),
    }
    (out / files.NUMBERS).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def write(
    suite: Suite, about: About, out: Path, watch: Callable[[Progress], None] | None = None
) -> Path:
    """Writes report.html and its figures; returns where the report is. `watch` hears of the
    progress."""
    from forebay.suite import pictures

    start, wanted = time.monotonic(), len(suite.cases) + 1
    figures = out / files.FIGURES
    figures.mkdir(parents=True, exist_ok=True)

    def drawn(name: str, title: str, figure: Plot, number: int) -> str:
        contents_of, svg = figure.rendered(name, title)
        for file, contents in contents_of.items():
            (figures / file).write_bytes(contents)
        if watch:
            watch(Progress(number / wanted, number, wanted, time.monotonic() - start))
        return svg

    whole = bool(suite.whole())
    overview = (
        drawn("overview", "Queuing delay against goodput", pictures.overview(suite), 1)
        if whole
        else ""
    )
    cases = [
        (
            case,
            drawn(f"{i:02}-{case.scenario}", case.heading, pictures.case(case, suite.laws), i + 1),
            of_case(case, suite.laws),
        )
        for i, case in enumerate(suite.cases, start=1)
    ]
    page = template("suite.html.j2").render(
        **_shared(suite, about),
        overview=overview,
        cases=cases,
        sheets=[(law, score_sheet(suite, law)) for law in suite.laws],
    )
    path = out / files.REPORT
    path.write_text(page, encoding="utf-8")
    return path


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
    page = template("suite.md.j2").render(**_shared(suite, about), sections=sections)
    return re.sub(r"\n{3,}", "\n\n", page).rstrip() + "\n"


def _shared(suite: Suite, about: About) -> dict[str, object]:
    made = designs(about.settings, suite.laws, about.link)
    return {
        "about": about,
        "designed": [name for name, params in made.items() if params],
        "undesigned": [name for name, params in made.items() if not params],
        "suite": suite,
        "version": __version__,
        "level": f"{100 * LEVEL:.0f} %",
        "seeds": len(suite.seeds),
        "comparison": comparison(suite),
        "advice": advice(suite),
        "unbeaten": unbeaten(suite),
        "metrics": METRICS,
        "partial": f"Partial result: {suite.made} of {suite.wanted} runs had finished."
        if suite.partial
        else "",
    }
