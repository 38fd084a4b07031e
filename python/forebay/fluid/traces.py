"""Runs of the fluid model together: a list that draws itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from forebay._native import FluidTrace

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.figures.plot import Plot


class Traces(list[FluidTrace]):
    """Fluid runs, one for each law and point; in a notebook they show means and one picture."""

    def __init__(self, traces: Iterable[FluidTrace], plan: Plan) -> None:
        super().__init__(traces)
        self.plan = plan

    def plot(self, law: str | None = None) -> Plot:
        """Queue, window and probability over time of one law, the first if None; a column for
        each point."""
        from forebay.fluid import picture

        laws = list(dict.fromkeys(trace.law for trace in self))
        if law is not None and law not in laws:
            raise ValueError(f'law: found "{law}", allowed: {", ".join(laws)}')
        chosen = laws[0] if law is None else law
        return picture.draw([trace for trace in self if trace.law == chosen], self.plan)

    def _repr_html_(self) -> str:
        from forebay.pages import notebook

        rows = []
        for trace in self:
            half = slice(len(trace.time_s) // 2, None)
            rows.append(
                [
                    trace.law,
                    trace.point,
                    f"{trace.queue_pkts[0, half].mean():.1f}",
                    f"{trace.probability[0, half].mean():.5f}",
                    f"{trace.window_pkts[0, half].mean():.2f}",
                ]
            )
        heads = ["law", "point", "queue [packets]", "probability", "window [packets]"]
        title = "Fluid model: means over the second half"
        return notebook.html(title, heads, rows, self.plot() if self else None)
