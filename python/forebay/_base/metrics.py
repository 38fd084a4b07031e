"""The metrics of a run: their names in words, their units, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base.words import check_choice

if TYPE_CHECKING:
    from forebay._native import MeasureEntry


@dataclass(frozen=True)
class Metric:
    """The presentation of a metric in tables and figures.

    Attributes
    ----------
    name : str
        Name of the metric, such as "delay_p95_s".
    title : str
        Title of a column or an axis.
    unit : str
        Unit in which the metric is shown; empty for a plain number.
    scale : float
        Factor from the base unit to `unit`.
    doc : str
        A sentence about the metric.
    """

    name: str
    title: str
    unit: str
    scale: float
    doc: str

    @staticmethod
    def from_entry(entry: MeasureEntry) -> Metric:
        """Return the metric of a declaration in `forebay-trace`."""
        return Metric(entry["name"], entry["title"], entry["unit"], entry["scale"], entry["doc"])

    @property
    def heading(self) -> str:
        """The title with the unit, such as "Goodput [Mbit/s]"."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title


#: The processor time of a run. It differs from call to call, and is therefore not a metric.
COST = "user_cpu_s"

METRICS = {
    entry["name"]: Metric.from_entry(entry) for entry in _native.metrics() if entry["name"] != COST
}

#: Metrics of each class of a queue.
CLASS_METRICS = {entry["name"]: Metric.from_entry(entry) for entry in _native.class_metrics()}

#: Metrics of each traffic, on links that several traffics cross.
TRAFFIC_METRICS = {entry["name"]: Metric.from_entry(entry) for entry in _native.traffic_metrics()}

#: The metrics by which tables compare laws, the most important first, since a narrow terminal has
#: columns only for the first. Metrics of applications have values only if a scenario has calls,
#: transfers or video, and then come early because the scenario is about them.
COMPARED = [
    "goodput_bps",
    "delay_p95_s",
    "voice_delay_s",
    "voice_loss",
    "flow_completion_p50_s",
    "flow_completion_p95_s",
    "video_rate_bps",
    "video_stalled",
    "queue_mean_pkts",
    "drop_rate",
    "mark_rate",
    "qacd_pkts",
    "utilisation",
    "queue_std_pkts",
    "jain",
]


#: The metrics of which more is better; of all others, less is better.
MORE_IS_BETTER = {"goodput_bps", "jain", "utilisation", "video_rate_bps", "forwarded_packets"}


def check_metrics(
    names: Iterable[str], choices: Collection[str] = METRICS.keys(), key: str = "metric"
) -> None:
    """Check that each name is that of a metric.

    Parameters
    ----------
    names : Iterable[str]
        The names.
    choices : Collection[str], default METRICS.keys()
        The metrics to choose from.
    key : str, default 'metric'
        Name of the parameter, for the error.

    Raises
    ------
    ParameterError
        If a name is not in `choices`.
    """
    for name in names:
        check_choice(key, name, choices)


def with_interval(mean: float, half_width: float) -> str:
    """Return "mean ± half width": the interval to two figures, the mean to the same decimal place.

    At most five figures of the mean are written.

    Parameters
    ----------
    mean : float
        The mean; NaN is written as a dash.
    half_width : float
        Half the width of the interval. If it is NaN, as for one seed, it is omitted and the mean
        has four figures.
    """
    if math.isnan(mean):
        return "–"
    if math.isnan(half_width):
        return f"{mean:#.4g}".rstrip(".") if mean else "0"
    place = _place(half_width) - 1 if half_width else _place(mean) - 3
    largest = max(_place(mean), _place(half_width))
    decimals = max(0, -max(place, largest - 4))
    # A mean that rounds to zero has no sign.
    return f"{round(mean, decimals) + 0.0:.{decimals}f} ± {half_width:.{decimals}f}"


#: The smallest p value that is written out; a smaller one is written as "< 0.001".
LEAST_P = 0.001


def p_text(p: float, *, significant: bool, tested: bool = True) -> str:
    """Return a p value with three decimals, and a star if it is significant.

    Parameters
    ----------
    p : float
        The p value; NaN is written as a dash, or as "no test".
    significant : bool
        True if the difference is significant.
    tested : bool, default True
        False if there is no test because all seeds give the same difference.
    """
    if math.isnan(p):
        return "–" if tested else "no test"
    text = f"{p:.3f}" if p >= LEAST_P else f"< {LEAST_P:g}"
    return f"{text} *" if significant else text


def _place(value: float) -> int:
    """Return the power of ten of the first significant figure."""
    return math.floor(math.log10(abs(value))) if value else 0
