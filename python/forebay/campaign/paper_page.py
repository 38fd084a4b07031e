"""The page of a paper: its claims next to our values, and its figures from our runs.

`summary` writes docs/evidence/papers.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._base import statistics
from forebay._base.publication import publish
from forebay._native import ScenarioError
from forebay.campaign.claims import Figure, Paper, Window
from forebay.campaign.replay import (
    MEASURES,
    NOT_REPRODUCED,
    Measured,
    ReplayedExperiment,
    ReplayedPaper,
    Verdict,
    count,
)
from forebay.experiment.execution import Execution
from forebay.experiment.result import Result
from forebay.report import drawing, over_time, parts, style
from forebay.report.kinds import KINDS as RESULT_KINDS
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.sheet import group_offset
from forebay.report.templates import html, template

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forebay._native import Run

#: Columns that a "series" figure can show, with their titles and factors.
SERIES: Mapping[str, tuple[str, float]] = {
    "p": ("Signal probability", 1),
    "max_p": ("max_p", 1),
    "capacity_pkts_per_s": ("Estimate of C [packets/s]", 1),
    "load": ("Estimate of N/(RC)", 1),
    "flows": ("Estimate of N [flows]", 1),
    "virtual_capacity_bps": ("Virtual capacity [Mbit/s]", 1e-6),
    "sent": ("Sent since the start [Gbit]", 1e-9),
}


def _draw(figure: Figure, result: Result, measured: Measured) -> list[tuple[str, Plot]]:
    """Return a plot per point, each with the point's name, or a single plot over all points."""
    if figure.kind not in (*KINDS, "measure"):
        kinds = ", ".join([*KINDS, "measure"])
        raise ScenarioError(f'{figure.where}: kind: "{figure.kind}" is not one of {kinds}')
    laws = [measured.law(label) for label in figure.laws]
    runs = [run for run in result.runs if not laws or run.law in laws]
    of_laws = Result(result.experiment, Execution(runs, [], False, 0.0))
    if figure.kind == "measure":
        return [("", _measure(figure, of_laws, measured))]
    return [
        (name, KINDS[figure.kind](figure, of_laws, measured.points[name] if name else 0))
        for name in figure.points or [""]
    ]


def _of_kind(figure: Figure, result: Result, point: int) -> Plot:
    """Draw a figure of a result, within the figure's window if it has one."""
    sheet = RESULT_KINDS[figure.kind].sheet(result, point, 0)
    if figure.window is not None and sheet.timeline:
        sheet = over_time.part(sheet, *figure.window)
    return drawing.draw(sheet)


@styled
def _series(figure: Figure, result: Result, point: int) -> Plot:
    """Draw columns of the samples over time: a panel per column, a curve per law, seed 1."""
    info = result.plan.points[point]
    plot = Plot(figsize=(10, 0.8 + 2.2 * len(figure.columns)), layout="constrained")
    rows = plot.subplots(len(figure.columns), 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(figure.columns, rows, strict=True):
        title, factor = SERIES[name]
        for index, law in result.laws(point):
            run = result.runs_of(point, index)[0]
            values = _column(run, name)
            if values is None:
                continue
            step = max(1, math.ceil(len(values) / over_time.MOST_STEPS))
            axes.plot(
                run.samples["time_s"][::step],
                factor * values[::step],
                color=style.colour(index),
                label=law.label,
                linewidth=1.0,
            )
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.set_xlim(*(figure.window or (0, info.duration_s)))
    rows[-1].set_xlabel("Time [s]")
    parts.legend_beside(rows[0])
    return plot


def _column(run: Run, name: str) -> NDArray[np.float64] | None:
    if name == "sent":
        return np.cumsum(8.0 * run.samples["departed_bytes"])
    return np.asarray(run.samples[name], dtype=float) if name in run.samples else None


@styled
def _measure(figure: Figure, result: Result, measured: Measured) -> Plot:
    """Draw a measure with its 95 % interval, by law, over points or over time windows."""
    if figure.measure not in MEASURES:
        names = ", ".join(MEASURES)
        raise ScenarioError(f'{figure.where}: measure: "{figure.measure}" is not one of {names}')
    measure = MEASURES[figure.measure]
    places: list[tuple[str, str, Window | None]] = (
        [(f"{start:g} to {end:g} s", "", (start, end)) for start, end in figure.windows]
        if figure.windows
        else [(name, name, figure.window) for name in figure.points or [""]]
    )
    plot, axes = one_panel(10, 3.1)
    laws = sorted({run.law for run in result.runs})
    for rank, law in enumerate(laws):
        label = result.plan.laws[law]
        cells = [
            statistics.mean_and_interval(measured.values(figure.measure, label, point, window))
            for _, point, window in places
        ]
        mean, half = measure.scale * np.array(cells).T
        at = [x + group_offset(rank, len(laws), 0.7) for x in range(len(places))]
        parts.dots(axes, at, mean, law, label, yerr=half)
    axes.set_ylabel(measure.heading)
    if figure.measure != "utilisation":
        axes.set_ylim(bottom=0)
    parts.named_places(axes, [name for name, _, _ in places])
    parts.legend_beside(axes)
    return plot


#: Figures of a single point; a figure of kind "measure" is over all points.
KINDS: Mapping[str, Callable[[Figure, Result, int], Plot]] = {
    "queue": _of_kind,
    "loss": _of_kind,
    "delay": _of_kind,
    "series": _series,
}


def _section(experiment: ReplayedExperiment) -> dict[str, Any]:
    """Return what the page shows of an experiment; draws its figures."""
    source, results = experiment.of, experiment.results
    measured = {name: Measured(result, source.points) for name, result in results.items()}

    def pictures(figure: Figure) -> list[tuple[str, str]]:
        plots = _draw(figure, results[figure.variant], measured[figure.variant])
        return [
            (name, plot.svg(", ".join(filter(None, [figure.title, name])))) for name, plot in plots
        ]

    return {
        "name": source.name,
        "result": results[""],
        "verdicts": experiment.verdicts,
        "variants": [variant for name, variant in source.variants.items() if name in results],
        "figures": [(figure, pictures(figure)) for figure in source.figures],
    }


def write(replayed: ReplayedPaper, directory: Path, command: str) -> Path:
    """Write the page of a paper.

    Parameters
    ----------
    replayed : ReplayedPaper
        The paper, with its results and verdicts.
    directory : Path
        Folder of the page.
    command : str
        The command line that repeats it.

    Returns
    -------
    Path
        The page.
    """
    page = html(
        "paper.html.j2",
        paper=replayed.paper,
        sections=[_section(experiment) for experiment in replayed.experiments],
        count=count(replayed.verdicts),
        command=command,
    )
    (path,) = publish(directory, {f"{replayed.paper.name}.html": page})
    return path


def summary(papers: Sequence[Paper], verdicts: Sequence[Verdict]) -> str:
    """Return the summary of all papers as Markdown.

    Its prose is in the template, and every number in it is from the verdicts.

    Parameters
    ----------
    papers : sequence of Paper
        The papers.
    verdicts : sequence of Verdict
        The verdicts on all their claims.

    Raises
    ------
    ScenarioError
        If the prose refers to a claim that was not replayed.
    """
    by_key = {verdict.key: verdict for verdict in verdicts}

    def ours(key: str) -> str:
        if key not in by_key:
            raise ScenarioError(f"papers.md.j2: the claim {key} was not replayed")
        return by_key[key].text()

    return template("papers.md.j2").render(
        papers=papers,
        of_paper={
            paper.name: [verdict for verdict in verdicts if verdict.paper == paper.name]
            for paper in papers
        },
        count=count,
        total=len(verdicts),
        all=count(verdicts),
        ours=ours,
        not_reproduced=NOT_REPRODUCED,
    )
