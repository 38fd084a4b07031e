"""The metrics of a run: their names in words, their units, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base import words
from forebay._base.errors import ParameterError

if TYPE_CHECKING:
    from forebay._native import MeasureEntry


@dataclass(frozen=True)
class Metric:
    """How one metric is shown; a value times `scale` is in `unit`."""

    name: str
    title: str
    unit: str
    scale: float
    doc: str

    @staticmethod
    def from_entry(entry: MeasureEntry) -> Metric:
        """A metric from its declaration in `forebay-trace`."""
        return Metric(entry["name"], entry["title"], entry["unit"], entry["scale"], entry["doc"])

    @property
    def heading(self) -> str:
        return f"{self.title} [{self.unit}]" if self.unit else self.title


#: What a run took, and no two runs alike: it stands beside the metrics.
COST = "user_cpu_s"

METRICS = {
    entry["name"]: Metric.from_entry(entry) for entry in _native.metrics() if entry["name"] != COST
}

#: Metrics of each class of a queue.
CLASS_METRICS = {entry["name"]: Metric.from_entry(entry) for entry in _native.class_metrics()}

#: Metrics of each traffic of a link that several cross: who gets what.
TRAFFIC_METRICS = {entry["name"]: Metric.from_entry(entry) for entry in _native.traffic_metrics()}

#: What a reader compares laws by; tables show these, and first what fits a narrow terminal. Those
#: of applications have values only where a scenario has calls, transfers or video, and are then
#: what it is about.
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


#: Metrics of which more is better; of the others less is.
MORE_IS_BETTER = {"goodput_bps", "jain", "utilisation", "video_rate_bps", "forwarded_packets"}


def check_metrics(
    names: Iterable[str], known: Collection[str] = METRICS.keys(), key: str = "metric"
) -> None:
    """Refuses a name that is no metric; `key` is the parameter. Raises `ParameterError`."""
    for name in names:
        if name not in known:
            reason = words.hint(name, known).strip()
            raise ParameterError(key, name, ", ".join(known), reason=reason)


def with_interval(mean: float, half_width: float) -> str:
    """`mean ± half_width`: the interval to two figures, the mean to the same place.

    No more than five figures of the mean are written. An interval that is NaN (one seed) is
    left out, and the mean has four figures; a mean that is NaN is a dash.
    """
    if math.isnan(mean):
        return "–"
    if math.isnan(half_width):
        return f"{mean:#.4g}".rstrip(".") if mean else "0"
    place = min(_place(half_width) - 1, _place(mean) - 1) if half_width else _place(mean) - 3
    decimals = max(0, -max(place, _place(mean) - 4))
    return f"{mean:.{decimals}f} ± {half_width:.{decimals}f}"


#: A p that is written as it is; smaller ones are less than this.
LEAST_P = 0.001


def p_text(p: float, *, significant: bool, tested: bool = True) -> str:
    """Return a p value in three decimals, with a star where it is beyond chance.

    A p that is NaN is a dash, or "no test" where there are seeds that all give the same.
    """
    if math.isnan(p):
        return "–" if tested else "no test"
    text = f"{p:.3f}" if p >= LEAST_P else f"< {LEAST_P:g}"
    return f"{text} *" if significant else text


def _place(value: float) -> int:
    """Power of ten of the first figure."""
    return math.floor(math.log10(abs(value))) if value else 0
