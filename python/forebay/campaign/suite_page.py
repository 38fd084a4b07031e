"""The pages of a suite: HTML with every case and a score sheet per law, and Markdown for docs/."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Ellipse

from forebay._base.metrics import METRICS
from forebay._base.publication import publish
from forebay._base.registries import title_of
from forebay._base.statistics import LEVEL
from forebay._native import __version__
from forebay.campaign.suite import SUITE_METRICS, advice, unbeaten
from forebay.campaign.suite_scenarios import designs
from forebay.report import parts, result_files, style
from forebay.report.pages import PageFigure, publish_page
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.sheet import FIGURES
from forebay.report.tables import Table, cells_table
from forebay.report.templates import markdown as page_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay._base.progress import Progress
    from forebay.campaign.suite import Case, Suite

DELAY, TAIL, GOODPUT = (METRICS[name] for name in ("delay_mean_s", "delay_p95_s", "goodput_bps"))
#: Number of laws in a column of the legend.
IN_A_COLUMN = 16


@styled
def case_figure(case: Case, laws: Sequence[str]) -> Plot:
    """Draw the mean delay and goodput of each law in a case.

    The ellipse of a law is one standard deviation of the means over whole seconds.

    Parameters
    ----------
    case : Case
        The case.
    laws : sequence of str
        All laws of the suite; their order gives colours and markers.
    """
    figure, axes = one_panel(10, 4.2)
    for index, law in enumerate(laws):
        if law not in case.runs:
            continue
        x, y = (metric.scale * case.cell(law, metric.name).mean for metric in (DELAY, GOODPUT))
        if case.seconds[law].shape[1] >= 2:
            # Half axes: roots of the covariance's eigenvalues, along its eigenvectors.
            values, vectors = np.linalg.eigh(np.cov(case.seconds[law]))
            width, height = 2 * np.sqrt(np.maximum(values, 0))
            angle = math.degrees(math.atan2(vectors[1, 0], vectors[0, 0]))
            colour = style.colour(index)
            look = {
                "facecolor": (colour, min(0.1, 1 / len(laws))),
                "edgecolor": (colour, 0.7),
                "linewidth": 0.8,
            }
            axes.add_patch(Ellipse((x, y), width, height, angle=angle, zorder=2, **look))
        parts.dots(axes, x, y, index, title_of(law), markersize=6, zorder=3)
    _finish(axes, "Queuing delay, mean [ms]")
    return figure


@styled
def overview_figure(suite: Suite) -> Plot:
    """Draw averages over all cases, with confidence intervals over the seeds."""
    figure, axes = one_panel(10, 4.2)
    for index, law in enumerate(suite.laws):
        cells = [(metric.scale, suite.average(law, metric.name)) for metric in (TAIL, GOODPUT)]
        x, y = (scale * cell.mean for scale, cell in cells)
        # An interval of zero gets no caps.
        dx, dy = (scale * cell.half_width or math.nan for scale, cell in cells)
        bars = {"xerr": dx if dx == dx else None, "yerr": dy if dy == dy else None}
        parts.dots(axes, x, y, index, title_of(law), markersize=6, zorder=3, **bars)
    _finish(axes, "Queuing delay, 95th pct., mean over the cases [ms]")
    return figure


def _finish(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_ylabel("Goodput [Mbit/s]")
    axes.autoscale_view()
    # A delay is never negative.
    axes.set_xlim(left=0.0)
    axes.ticklabel_format(useOffset=False)
    parts.legend_beside(axes, 1 + (len(axes.containers) - 1) // IN_A_COLUMN)


def comparison(suite: Suite, metrics: Sequence[str] = SUITE_METRICS) -> Table:
    """Return the averages over the cases.

    Parameters
    ----------
    suite : Suite
        The results.
    metrics : sequence of str, optional
        Metrics of the columns; those that apply to no case are left out.

    Returns
    -------
    Table
        A row per law.
    """
    whole = suite.complete()
    columns = [METRICS[name] for name in metrics if any(case.applies(name) for case in whole)]
    rows = [([law], partial(suite.average, law)) for law in suite.laws]
    return cells_table(["law"], columns, rows)


def _case_table(case: Case, laws: Sequence[str]) -> Table:
    """Return a row per law."""
    columns = [METRICS[name] for name in SUITE_METRICS if case.applies(name)]
    rows = [([law], partial(case.cell, law)) for law in laws if law in case.runs]
    return cells_table(["law"], columns, rows)


def _score_sheet(suite: Suite, law: str) -> Table:
    """Return a row per case."""
    rows = [([case.heading], partial(case.cell, law)) for case in suite.cases if law in case.runs]
    return cells_table(["scenario"], map(METRICS.__getitem__, SUITE_METRICS), rows)


def write_numbers(suite: Suite, out: Path, command: str, digest: str) -> None:
    """Write metrics.json, and remove the report of a former call.

    Parameters
    ----------
    suite : Suite
        The results.
    out : Path
        Folder of the files.
    command : str
        The command line that repeats the suite.
    digest : str
        Digest of everything that the numbers depend on.
    """
    numbers = {
        "forebay": __version__,
        "title": suite.settings.title,
        "command": command,
        "digest": digest,
        "link": str(suite.link),
        "partial": suite.partial,
        "cases": suite.lines(),
    }
    publish(out, {result_files.NUMBERS: numbers}, replaces=[result_files.REPORT, FIGURES])


def write(
    suite: Suite, out: Path, command: str, watch: Callable[[Progress], None] | None = None
) -> Path:
    """Draw the figures, and write the report.

    Parameters
    ----------
    suite : Suite
        The results.
    out : Path
        Folder of the files.
    command : str
        The command line that repeats the suite.
    watch : callable, optional
        Called with the progress of the figures.

    Returns
    -------
    Path
        The report.
    """
    caption = "Left and above is better."
    if len(suite.seeds) > 1:
        caption += f" Bars are {LEVEL:.0%} confidence intervals over the seeds."
    title = "Queuing delay against goodput"
    overview = [PageFigure("overview", partial(overview_figure, suite), title, caption)]
    overview = overview if suite.complete() else []
    of_cases = [
        PageFigure(f"{i:02}-{case.scenario}", partial(case_figure, case, suite.laws), case.heading)
        for i, case in enumerate(suite.cases, start=1)
    ]
    return publish_page(
        out / result_files.REPORT,
        "suite.html.j2",
        [*overview, *of_cases],
        watch,
        **_shared(suite, command),
        answers=[f"{item.need}: {item.text}" for item in advice(suite)],
        overview=overview,
        cases=[
            (case, figure, _case_table(case, suite.laws))
            for case, figure in zip(suite.cases, of_cases, strict=True)
        ],
        sheets=[(law, _score_sheet(suite, law)) for law in suite.laws],
    )


def markdown(suite: Suite, command: str) -> str:
    """Return the page for docs/.

    Parameters
    ----------
    suite : Suite
        The results.
    command : str
        The command line that writes the page.
    """
    whole = {id(case) for case in suite.complete()}
    sections = [
        (
            number,
            suite.settings.sections.get(number, number),
            [(case, _case_table(case, suite.laws)) for case in cases if id(case) in whole],
        )
        for number, cases in suite.sections().items()
    ]
    return page_markdown("suite.md.j2", **_shared(suite, command), sections=sections)


def _shared(suite: Suite, command: str) -> dict[str, Any]:
    """Return the values that both pages show."""
    designed = designs(suite.settings, suite.laws, suite.link)
    return {
        "suite": suite,
        "command": command,
        "designed": [name for name, params in designed.items() if params],
        "undesigned": [name for name, params in designed.items() if not params],
        "seeds": len(suite.seeds),
        "comparison": comparison(suite),
        "advice": advice(suite),
        "unbeaten": unbeaten(suite),
        "partial": f"Partial result: {suite.finished} of {suite.total} runs had finished."
        if suite.partial
        else "",
    }
