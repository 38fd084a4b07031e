"""The metrics of a run: their names in words, their units, and how they are written."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How one metric is shown; a value times `scale` is in `unit`."""

    name: str
    title: str
    unit: str
    scale: float
    doc: str

    @property
    def heading(self) -> str:
        return f"{self.title} [{self.unit}]" if self.unit else self.title


METRICS = {
    metric.name: metric
    for metric in [
        Metric("queue_mean_pkts", "Queue", "packets", 1, "mean backlog over the samples"),
        Metric("queue_std_pkts", "Deviation", "packets", 1, "standard deviation of the backlog"),
        Metric(
            "qacd_pkts",
            "QACD",
            "packets",
            1,
            "quadratic average of control deviation: how far the backlog is from the set-point",
        ),
        Metric("drop_rate", "Drops", "%", 100, "packets dropped, of those that arrived"),
        Metric(
            "early_drop_rate", "Early drops", "%", 100, "packets dropped by the law as a signal"
        ),
        Metric("mark_rate", "Marks", "%", 100, "packets CE-marked, of those that arrived"),
        Metric("utilisation", "Utilisation", "%", 100, "bits sent, of those the link could carry"),
        Metric("delay_mean_s", "Delay, mean", "ms", 1e3, "mean time a packet waits in the queue"),
        Metric("delay_p95_s", "Delay, 95th pct.", "ms", 1e3, "95 % of the packets wait less"),
        Metric("delay_p99_s", "Delay, 99th pct.", "ms", 1e3, "99 % of the packets wait less"),
        Metric("goodput_bps", "Goodput", "Mbit/s", 1e-6, "in-order data handed to the receivers"),
        Metric("jain", "Jain", "", 1, "Jain's fairness index of the flows' goodputs; 1 is equal"),
        Metric("forwarded_packets", "Forwarded", "packets", 1, "packets sent in the whole run"),
        Metric("user_cpu_s", "CPU", "s", 1, "user CPU time that the run took"),
    ]
}

#: What a reader compares laws by; tables show these.
COMPARED = [
    "queue_mean_pkts",
    "queue_std_pkts",
    "qacd_pkts",
    "drop_rate",
    "mark_rate",
    "utilisation",
    "delay_p95_s",
    "goodput_bps",
    "jain",
]


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


def _place(value: float) -> int:
    """Power of ten of the first figure."""
    return math.floor(math.log10(abs(value))) if value else 0
