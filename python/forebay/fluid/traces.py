"""Runs of the engine `fluid` as the equations have them: a list of columns that draws itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from forebay._base import quantities
from forebay._native import FluidTrace

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import Plan, Run
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot


def with_windows(overrides: Overrides) -> list[str]:
    """What is set on a scenario whose packets in flight are to be recorded."""
    return [*(f"{key}={value}" for key, value in quantities.set_pairs(overrides)), "windows=true"]


def trace(run: Run, plan: Plan) -> FluidTrace:
    """A run of the engine `fluid` by the numbers of its equations, which its samples have beside
    the whole packets."""
    links = [run, *run.others]
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


class Traces(list[FluidTrace]):
    """Fluid runs, one for each law and point; in a notebook they show means and one picture."""

    def __init__(self, result: Result) -> None:
        super().__init__(trace(run, result.plan) for run in result.runs)
        #: The runs as any engine's, with metrics, tables and a report.
        self.result = result

    @property
    def plan(self) -> Plan:
        """What was run."""
        return self.result.plan

    def plot(self, law: str | None = None) -> Plot:
        """Queue, window and probability over time of one law, the first if None; a column for
        each point."""
        from forebay.fluid import picture

        laws = list(dict.fromkeys(trace.law for trace in self))
        if law is not None and law not in laws:
            raise ValueError(f'law: found "{law}", allowed: {", ".join(laws)}')
        chosen = laws[0] if law is None else law
        return picture.draw([trace for trace in self if trace.law == chosen], self.plan)

    def rows(self) -> list[dict[str, str | float | None]]:
        """Means over the second half of each run: queue, probability, and the window of the first
        class."""
        rows: list[dict[str, str | float | None]] = []
        for one in self:
            half = slice((len(one.time_s) + 1) // 2 - 1, None)
            rows.append(
                {
                    "law": one.law,
                    "point": one.point,
                    "queue_mean_pkts": float(one.queue_pkts[0, half].mean()),
                    "probability": float(one.probability[0, half].mean()),
                    "window_pkts": float(one.window_pkts[0, half].mean()),
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
