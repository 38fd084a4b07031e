"""Run the fluid model: a model built in Python, or a scenario."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

import forebay._native as _native
from forebay._base import quantities
from forebay._base.errors import ParameterError
from forebay._base.registries import title_of
from forebay._base.words import check_choice, one_of
from forebay._native import FluidTrace
from forebay.experiment import descriptions, execution
from forebay.experiment import result as runs
from forebay.fluid.engine import Fluid, Model

if TYPE_CHECKING:
    import polars as pl

    from forebay._base.quantities import Overrides
    from forebay._native import Plan, Run
    from forebay.experiment.experiment import Source
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot
    from forebay.scenario.python_laws import Prototype


def with_windows(overrides: Overrides) -> list[str]:
    """Return the settings of a scenario whose packets in flight are to be recorded."""
    return [*(f"{key}={value}" for key, value in quantities.set_pairs(overrides)), "windows=true"]


def trace(run: Run, plan: Plan) -> FluidTrace:
    """Return the variables of the equations in a run of the engine `fluid`.

    Parameters
    ----------
    run : Run
        The run.
    plan : Plan
        The plan of its experiment.
    """
    links = run.links
    classes = plan.fluid_classes(run.point)
    columns = run.samples
    return FluidTrace(
        plan.points[run.point].label,
        plan.laws[run.law],
        classes,
        columns["time_s"],
        np.array([link.samples["fluid_pkts"] for link in links]),
        np.array([link.samples["p"] for link in links]),
        np.array([columns[f"window_pkts.{i}"] for i in range(len(classes))]),
        columns["in_flight_pkts"],
        np.array([columns[f"rtt_s.{i}"] for i in range(len(classes))]),
    )


#: Figures of fluid runs.
FluidPicture = Literal["time"]


class Traces(list[FluidTrace]):
    """Runs of the fluid: a `FluidTrace` for each law and point.

    A notebook shows their means and a figure.

    Parameters
    ----------
    result : Result
        The result of an experiment on the engine `fluid`.

    Attributes
    ----------
    result : Result
        The same runs with metrics, tables and a report.
    """

    def __init__(self, result: Result) -> None:
        super().__init__(trace(run, result.plan) for run in result.runs)
        self.result = result

    @property
    def plan(self) -> Plan:
        """The plan of the runs."""
        return self.result.plan

    def to_dict(self) -> dict[str, Any]:
        """Return the rows of `frame`, for JSON."""
        return {"title": self.plan.title, "means": quantities.finite(self.rows())}

    def frame(self) -> pl.DataFrame:
        """Return a table with the means over the second half of each run."""
        import polars as pl

        return pl.DataFrame(self.rows())

    def report(self, out: str | os.PathLike[str]) -> None:
        """Write the report of the runs, as any engine's, to a folder."""
        self.result.report(out)

    def __str__(self) -> str:
        """Return the table of the result."""
        return str(self.result)

    def plot(self, kind: FluidPicture = "time", *, law: str | None = None) -> Plot:
        """Draw queue, window and probability of one law over time, one column per point.

        Parameters
        ----------
        kind : {"time"}, optional
            The figure.
        law : str, optional
            Label of the law; the first by default.

        Raises
        ------
        ParameterError
            If there is no such figure or law.
        """
        from forebay.report.plot import styled

        check_choice("kind", kind, get_args(FluidPicture))
        laws = list(dict.fromkeys(trace.law for trace in self))
        if law is not None and law not in laws:
            raise ParameterError("law", law, one_of(laws, law))
        chosen = laws[0] if law is None else law
        return styled(_draw)([trace for trace in self if trace.law == chosen], self.plan)

    def rows(self) -> list[dict[str, str | float | None]]:
        """Return means over the second half of queue, probability and the first class's window."""
        rows: list[dict[str, str | float | None]] = []
        for trace in self:
            half = slice((len(trace.time_s) + 1) // 2 - 1, None)
            rows.append(
                {
                    "law": trace.law,
                    "point": trace.point,
                    "queue_mean_pkts": float(trace.queue_pkts[0, half].mean()),
                    "probability": float(trace.probability[0, half].mean()),
                    "window_pkts": float(trace.window_pkts[0, half].mean()),
                }
            )
        return rows

    def _repr_html_(self) -> str:
        from forebay.report import notebook

        digits = {"queue_mean_pkts": 1, "probability": 5, "window_pkts": 2}
        rows = [
            [*(str(row[key]) for key in ("law", "point"))]
            + [f"{row[key]:.{count}f}" for key, count in digits.items()]
            for row in self.rows()
        ]
        heads = ["law", "point", "queue [packets]", "probability", "window [packets]"]
        title = "Fluid model: means over the second half"
        return notebook.html(title, heads, rows, self.plot() if self else None)


def _draw(traces: Sequence[FluidTrace], plan: Plan) -> Plot:
    """Draw queue, window and probability of one law, a column per point."""
    from forebay.report import parts, style
    from forebay.report.over_time import target_pkts
    from forebay.report.plot import Plot

    points = {point.label: point for point in plan.points}
    figure = Plot(figsize=(3.6 * len(traces) + 0.8, 6.0), layout="constrained")
    axes = figure.subplots(3, len(traces), squeeze=False, sharex="col")
    for trace, (queue, window, probability) in zip(traces, axes.T, strict=True):
        for panel, values in (
            (queue, trace.queue_pkts),
            (window, trace.window_pkts),
            (probability, trace.probability),
        ):
            for index, line in enumerate(values):
                panel.plot(trace.time_s, line, color=style.colour(index), linewidth=1.0)
            panel.set_ylim(bottom=0)
        point = points[trace.point]
        law = next(law for law in point.laws if law.label == trace.law)
        target = target_pkts(point, law, point.links[0])
        if target is not None:
            queue.axhline(target, label="set-point", zorder=1, **parts.TARGET)
            queue.legend()
        queue.set_title(descriptions.point(point) or title_of(trace.law))
        probability.set_xlabel("Time [s]")
    names = ["Queue [packets]", "Window [packets]", "Signal probability"]
    for panel, name in zip(axes[:, 0], names, strict=True):
        panel.set_ylabel(name)
    if len(traces[0].classes) > 1:
        axes[1, -1].legend(axes[1, -1].lines, traces[0].classes)
    figure.suptitle(f"{title_of(traces[0].law)} in the fluid model", x=0.01, ha="left")
    return figure


def run(model: Model) -> FluidTrace:
    """Run a model.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    FluidTrace
        Columns over `time_s`, with one row per bottleneck or class: `queue_pkts`, `probability`
        (signals per packet that the law requests, averaged since the last sample), `window_pkts`
        and `rtt_s` of one flow.

    Raises
    ------
    ScenarioError
        If the model is impossible.
    """
    return execution.unbroken(lambda: _native.fluid_run(model))


def halving(model: Model) -> dict[str, float]:
    """Return the largest difference between a run and one with half its integration steps.

    Parameters
    ----------
    model : Model
        The model.

    Returns
    -------
    dict[str, float]
        The difference by variable: "queue_pkts", "window_pkts" and "probability".

    Raises
    ------
    ScenarioError
        If the model is impossible.
    """
    return execution.unbroken(lambda: _native.fluid_halving(model))


def scenario(
    path: Source,
    *,
    laws: Sequence[str | Prototype] = (),
    overrides: Overrides = (),
    sawtooth: bool = False,
    step: str = "auto",
) -> Traces:
    """Run every law at every point of a scenario on the engine `fluid`, with one seed.

    Parameters
    ----------
    path : Source
        The scenario, as for `forebay.run`.
    laws : Sequence[str | Prototype], default ()
        Laws that replace those of the scenario.
    overrides : Overrides, default ()
        Keys to set on top of the scenario.
    sawtooth : bool, default False
        True to describe windows more closely than the published equations do; see `Class`.
    step : str, default 'auto'
        Longest integration step; see `Model`.

    Returns
    -------
    Traces
        The variables of the equations; `.result` is the `Result` of `forebay.run`.

    Raises
    ------
    ScenarioError
        If the scenario is wrong, or the fluid cannot express it. It knows only long-lived TCP flows
        (ftp) with packets of one size.
    """
    engine = Fluid(sawtooth, step)
    return Traces(
        runs.run(path, laws or None, overrides=with_windows(overrides), seeds=1, engine=engine)
    )
