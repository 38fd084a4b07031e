"""The pages of a suite: HTML with every case and a score sheet per law, and Markdown for docs/."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Ellipse

from forebay._base.metrics import METRICS
from forebay._base.progress import Progress
from forebay._base.publication import publication, publish
from forebay._base.publication import write as put
from forebay._base.statistics import LEVEL
from forebay._native import __version__
from forebay.campaign.suite import SUITE_METRICS, advice, unbeaten
from forebay.campaign.suite_scenarios import designs
from forebay.report import parts, result_files, style
from forebay.report.pages import FIGURES, PageFigure, render_all
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.tables import Table, cells_table
from forebay.report.templates import html
from forebay.report.templates import markdown as page_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.campaign.suite import Case, Seconds, Suite
    from forebay.campaign.suite_scenarios import Link, Settings

DELAY, TAIL, GOODPUT = (METRICS[name] for name in ("delay_mean_s", "delay_p95_s", "goodput_bps"))
#: Laws of one column of the legend.
IN_A_COLUMN = 16


@styled
def case_figure(of: Case, laws: list[str]) -> Plot:
    """Mean delay and goodput of each law; the ellipse is one standard deviation of whole
    seconds."""
    figure, axes = one_panel(10, 4.2)
    for index, law in enumerate(laws):
        if law in of.runs:
            x, y = (one.scale * of.cell(law, one.name).mean for one in (DELAY, GOODPUT))
            _ellipse(axes, index, of.seconds[law], (x, y), min(0.1, 1 / len(laws)))
            parts.dots(axes, x, y, index, law, markersize=6, zorder=3)
    _finish(axes, "Queuing delay, mean [ms]")
    return figure


@styled
def overview_figure(suite: Suite) -> Plot:
    """Averages over all cases, with 95 % intervals over the seeds."""
    figure, axes = one_panel(10, 4.2)
    for index, law in enumerate(suite.laws):
        cells = [(one.scale, suite.average(law, one.name)) for one in (TAIL, GOODPUT)]
        x, y = (scale * cell.mean for scale, cell in cells)
        # An interval of zero has no caps.
        dx, dy = (scale * cell.half_width or math.nan for scale, cell in cells)
        bars = {"xerr": dx if dx == dx else None, "yerr": dy if dy == dy else None}
        parts.dots(axes, x, y, index, law, markersize=6, zorder=3, **bars)
    _finish(axes, "Queuing delay, 95th pct., mean over the cases [ms]")
    return figure


def _ellipse(
    axes: Axes, index: int, seconds: Seconds, centre: tuple[float, float], opacity: float
) -> None:
    if len(seconds.delay_ms) < 2:
        return
    # Half axes: roots of the covariance's eigenvalues, along its eigenvectors.
    values, vectors = np.linalg.eigh(np.cov(seconds.delay_ms, seconds.rate_mbps))
    width, height = 2 * np.sqrt(np.maximum(values, 0))
    angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
    colour = style.colour(index)
    look = {"facecolor": (colour, opacity), "edgecolor": (colour, 0.7), "linewidth": 0.8}
    axes.add_patch(Ellipse(centre, width, height, angle=angle, zorder=2, **look))


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_ylabel("Goodput [Mbit/s]")
    axes.autoscale_view()
    # No packet waits less than not at all.
    axes.set_xlim(left=0.0)
    axes.ticklabel_format(useOffset=False)
    parts.legend_beside(axes, 1 + (len(axes.containers) - 1) // IN_A_COLUMN)


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
    """The suite, its link and its command, for the reader."""

    settings: Settings
    link: Link
    command: str
    #: digest of what the numbers depend on
    digest: str = ""


def comparison(suite: Suite, metrics: Sequence[str] = SUITE_METRICS) -> Table:
    """Return a row per law: averages over the cases."""
    valued = [METRICS[name] for name in metrics if any(it.applies(name) for it in suite.whole())]
    return cells_table(
        ["law"], valued, [([law], partial(suite.average, law)) for law in suite.laws]
    )


def of_case(case: Case, laws: Sequence[str]) -> Table:
    """Return a row per law."""
    valued = [METRICS[name] for name in SUITE_METRICS if case.applies(name)]
    rows = [([law], partial(case.cell, law)) for law in laws if law in case.runs]
    return cells_table(["law"], valued, rows)


def score_sheet(suite: Suite, law: str) -> Table:
    """Return a row per case."""
    rows = [([case.heading], partial(case.cell, law)) for case in suite.cases if law in case.runs]
    return cells_table(["scenario"], map(METRICS.__getitem__, SUITE_METRICS), rows)


def write_numbers(suite: Suite, about: About, out: Path) -> None:
    """Write metrics.json, before anything is drawn; a former report goes."""
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
    """Write report.html and its figures; return where the report is. `watch` hears of the
    progress."""
    over = [
        PageFigure(
            "overview",
            partial(overview_figure, suite),
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
        PageFigure(f"{i:02}-{case.scenario}", partial(case_figure, case, suite.laws), case.heading)
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
    """Return the page for docs/."""
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
