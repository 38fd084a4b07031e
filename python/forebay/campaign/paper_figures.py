"""The figures of a paper's page, each drawn from our runs to stand beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._base import statistics
from forebay._native import ScenarioError
from forebay.campaign.claims import Figure, Window
from forebay.campaign.measures import MEASURES, Measured
from forebay.experiment.execution import Execution
from forebay.experiment.result import Result
from forebay.report import drawing, over_time, parts, style
from forebay.report.kinds import KINDS as RESULT_KINDS
from forebay.report.plot import Plot, one_panel, styled

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
