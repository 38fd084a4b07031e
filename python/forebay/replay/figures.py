"""The figures of a paper's page, each drawn from our runs to stand beside the paper's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from forebay._native import ScenarioError
from forebay.replay.claims import Figure, Window
from forebay.replay.measures import MEASURES, Measured
from forebay.report import overviews, plots
from forebay.report.result import Result
from forebay.report.style import MARKERS
from forebay.run import stats
from forebay.run.experiment import Execution

if TYPE_CHECKING:
    from forebay._native import Run
    from forebay.report.plots import Plot

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
    with mpl.rc_context(plots.STYLE):
        if figure.kind == "measure":
            return [("", _measure(figure, chosen, measured))]
        names = figure.points or [""]
        return [
            (name, KINDS[figure.kind](figure, chosen, measured.points[name] if name else 0))
            for name in names
        ]


def _of_laws(result: Result, laws: list[int]) -> Result:
    """The same result with these laws only; all of them for none."""
    runs = [run for run in result.runs if not laws or run.law in laws]
    return Result(result.experiment, Execution(runs, [], False, 0.0))


def _over_time(figure: Figure, result: Result, point: int) -> Plot:
    """A figure of `forebay.report.plots`, of a part of the time where the figure has a window."""
    if figure.window is None:
        return overviews.draw(result, figure.kind, point)
    runs: list[Any] = [_Part(run, figure.window) for run in result.runs if run.point == point]
    plot = overviews.draw(
        Result(result.experiment, Execution(runs, [], False, 0.0)), figure.kind, point
    )
    for axes in plot.axes[::2]:
        axes.set_xlim(*figure.window)
    return plot


class _Part:
    """A run with the samples of a window only."""

    def __init__(self, run: Run, window: Window) -> None:
        self._run = run
        time_s = run.samples["time_s"]
        inside = (time_s > window[0] + plots.TINY_S) & (time_s < window[1] + plots.TINY_S)
        self.samples = {name: column[inside] for name, column in run.samples.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)


def _series(figure: Figure, result: Result, point: int) -> Plot:
    """Columns of the samples against time, a row each, laws as curves; the first seed."""
    info = result.plan.points[point]
    plot = plots.Plot(figsize=(10, 0.8 + 2.2 * len(figure.columns)), layout="constrained")
    rows = plot.subplots(len(figure.columns), 1, sharex=True, squeeze=False)[:, 0]
    for name, axes in zip(figure.columns, rows, strict=True):
        title, factor = SERIES[name]
        for index, law in result.laws(point):
            run = result.of(point, index)[0]
            values = _column(run, name)
            if values is None:
                continue
            step = max(1, math.ceil(len(values) / plots.MOST_STEPS))
            axes.plot(
                run.samples["time_s"][::step],
                factor * values[::step],
                color=plots.COLOURS[index % len(plots.COLOURS)],
                label=law.label,
                linewidth=1.0,
            )
        axes.set_ylabel(title)
        axes.set_ylim(bottom=0)
        axes.set_xlim(*(figure.window or (0, info.duration_s)))
    rows[-1].set_xlabel("Time [s]")
    rows[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return plot


def _column(run: Run, name: str) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if name == "sent":
        return np.cumsum(8.0 * run.samples["departed_bytes"])
    return np.asarray(run.samples[name], dtype=float) if name in run.samples else None


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
    plot = plots.Plot(figsize=(10, 3.1), layout="constrained")
    axes = plot.subplots()
    laws = sorted({run.law for run in result.runs})
    for rank, law in enumerate(laws):
        label = result.plan.laws[law]
        cells = [
            stats.mean_and_interval(measured.values(figure.measure, label, point, window))
            for _, point, window in places
        ]
        axes.errorbar(
            [x + (rank - (len(laws) - 1) / 2) * 0.7 / len(laws) for x in range(len(places))],
            [drawn.scale * mean for mean, _ in cells],
            yerr=[drawn.scale * float(np.nan_to_num(half)) for _, half in cells],
            fmt=MARKERS[law % len(MARKERS)],
            color=plots.COLOURS[law % len(plots.COLOURS)],
            label=label,
            markersize=5,
            capsize=3,
            linewidth=1.2,
        )
    axes.set_ylabel(drawn.heading)
    if figure.measure != "utilisation":
        axes.set_ylim(bottom=0)
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xticks(range(len(places)), [name for name, _, _ in places])
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return plot


#: Figures of one point; "measure" is over all of them.
KINDS: Mapping[str, Callable[[Figure, Result, int], Plot]] = {
    "queue": _over_time,
    "loss": _over_time,
    "delay": _over_time,
    "series": _series,
}
