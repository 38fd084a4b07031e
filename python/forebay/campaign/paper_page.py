"""The page of a paper, its claims beside ours and its figures from our runs; and docs/evidence/papers.md."""

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
    PlannedReplay,
    Verdict,
    count,
)
from forebay.experiment.execution import Execution
from forebay.experiment.result import Result
from forebay.report import drawing, over_time, parts, style
from forebay.report.kinds import KINDS as RESULT_KINDS
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.templates import html, template

if TYPE_CHECKING:
    from forebay._native import Run

#: Columns that a "series" figure can draw, with title and factor.
SERIES: Mapping[str, tuple[str, float]] = {
    "p": ("Signal probability", 1),
    "max_p": ("max_p", 1),
    "capacity_pkts_per_s": ("Estimate of C [packets/s]", 1),
    "load": ("Estimate of N/(RC)", 1),
    "flows": ("Estimate of N [flows]", 1),
    "virtual_capacity_bps": ("Virtual capacity [Mbit/s]", 1e-6),
    "sent": ("Sent since the start [Gbit]", 1e-9),
}


def draw(figure: Figure, result: Result, measured: Measured) -> list[tuple[str, Plot]]:
    """A picture per point, or one over all of them, each with the name of its point."""
    if figure.kind not in (*KINDS, "measure"):
        allowed = ", ".join([*KINDS, "measure"])
        raise ScenarioError(f"{figure.where}: kind: found {figure.kind}, allowed: {allowed}")
    chosen = _of_laws(result, [measured.law(label) for label in figure.laws])
    if figure.kind == "measure":
        return [("", _measure(figure, chosen, measured))]
    return [
        (name, KINDS[figure.kind](figure, chosen, measured.points[name] if name else 0))
        for name in figure.points or [""]
    ]


def _of_laws(result: Result, laws: list[int]) -> Result:
    """The same result with these laws only; all of them for none."""
    runs = [run for run in result.runs if not laws or run.law in laws]
    return Result(result.experiment, Execution(runs, [], False, 0.0))


def _of_kind(figure: Figure, result: Result, point: int) -> Plot:
    """A figure of a result, of a part of the time where the figure has a window."""
    sheet = RESULT_KINDS[figure.kind].sheet(result, point, 0)
    if figure.window is not None and sheet.timeline:
        sheet = over_time.part(sheet, *figure.window)
    return drawing.draw(sheet)


@styled
def _series(figure: Figure, result: Result, point: int) -> Plot:
    """Columns of the samples against time, a row each, laws as curves; the first seed."""
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


def _column(run: Run, name: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if name == "sent":
        return np.cumsum(8.0 * run.samples["departed_bytes"])
    return np.asarray(run.samples[name], dtype=float) if name in run.samples else None


@styled
def _measure(figure: Figure, result: Result, measured: Measured) -> Plot:
    """A measure with its 95 % interval, by law, over points or over windows."""
    if figure.measure not in MEASURES:
        raise ScenarioError(
            f"{figure.where}: measure: found {figure.measure}, allowed: {', '.join(MEASURES)}"
        )
    drawn = MEASURES[figure.measure]
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
        mean, half = drawn.scale * np.array(cells).T
        at = [x + parts.aside(rank, len(laws), 0.7) for x in range(len(places))]
        parts.dots(axes, at, mean, law, label, yerr=half)
    axes.set_ylabel(drawn.heading)
    if figure.measure != "utilisation":
        axes.set_ylim(bottom=0)
    parts.named_places(axes, [name for name, _, _ in places])
    parts.legend_beside(axes)
    return plot


#: Figures of one point; "measure" is over all of them.
KINDS: Mapping[str, Callable[[Figure, Result, int], Plot]] = {
    "queue": _of_kind,
    "loss": _of_kind,
    "delay": _of_kind,
    "series": _series,
}


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
                    for name, plot in draw(
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
