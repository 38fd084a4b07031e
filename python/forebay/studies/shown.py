"""A study that draws itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.base.metrics import METRICS
from forebay.studies.study import Study

if TYPE_CHECKING:
    from forebay.figures.plot import Plot


class ShownStudy(Study):
    """The runs of a study, with its figures."""

    def plot(self, metric: str, x: str, y: str | None = None) -> Plot:
        """A map of a metric over two axes, or over one of them a curve with its interval."""
        from forebay.studies import pictures  # draws, which takes a while to load

        for key in (x, y):
            if key is not None and key not in self.axes:
                raise ScenarioError(f'axis: found "{key}", allowed: {", ".join(self.axes)}')
        if metric not in METRICS:
            raise ScenarioError(f'metric: found "{metric}", allowed: {", ".join(METRICS)}')
        if y is None:
            return pictures.response(self, metric, [x])
        return pictures.heat(self, metric, x, y)
