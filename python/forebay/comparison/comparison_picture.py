"""The picture of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay._base.metrics import METRICS
from forebay.report import parts
from forebay.report.plot import Plot, one_panel, styled

if TYPE_CHECKING:
    from forebay.comparison.result_comparison import MetricDifference, ResultComparison


@styled
def differences(comparison: ResultComparison) -> Plot:
    """Each difference as a share of A, with its 95 % interval; what is zero in A has none."""
    lines = [line for line in comparison.differences if line.share == line.share]
    metrics = list(dict.fromkeys(line.metric for line in lines))
    figure, axes = one_panel(10, 1.2 + 0.45 * max(1, len(metrics)))
    series = list(dict.fromkeys(_series(comparison, line) for line in lines))
    for index, name in enumerate(series):
        of_law = [line for line in lines if _series(comparison, line) == name]
        half_widths = [100 * abs(line.half_width / line.a.mean) for line in of_law]
        places = [
            metrics.index(line.metric) + parts.aside(index, len(series), 0.6) for line in of_law
        ]
        shares = [100 * line.share for line in of_law]
        parts.dots(axes, shares, places, index, name, xerr=half_widths)
    axes.axvline(0.0, **parts.EDGE)
    axes.set_yticks(range(len(metrics)), [METRICS[name].title for name in metrics])
    axes.invert_yaxis()
    axes.set_xlabel("B − A, as a share of A [%]")
    parts.legend_beside(axes)
    return figure


def _series(comparison: ResultComparison, line: MetricDifference) -> str:
    laws = " and ".join(dict.fromkeys(line.laws))
    return f"{laws}, {line.point}" if comparison.apart else laws
