"""Packets: the runs of a state, and their curves as wide as the plot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._base import quantities
from forebay._base.metrics import METRICS
from forebay._native import ScenarioError
from forebay.experiment import execution, steady_state
from forebay.report.over_time import target_pkts

if TYPE_CHECKING:
    from forebay._native import Plan, PointInfo, Run

Floats = NDArray[np.float64]

#: Time between two looks at the runs.
POLL_S = 0.002
#: Runs that nobody waits for any more may end by themselves if they need no more than this.
GRACE_S = 0.15
#: Points of a curve that is drawn over time: a plot has no more pixels.
MOST_BINS = 1200
#: Parts of a run in which losses and throughput are counted.
PARTS = 120
#: Points of a distribution.
STEPS = 160
#: Of the packets, what a plot of delays shows.
MOST_DELAYS = 0.9995
#: The columns of the table: what is sent, what waits, what is lost, who gets it.
NUMBERS = [
    "goodput_bps",
    "utilisation",
    "queue_mean_pkts",
    "queue_std_pkts",
    "qacd_pkts",
    "delay_mean_s",
    "delay_p95_s",
    "delay_p99_s",
    "drop_rate",
    "mark_rate",
    "jain",
]


class Outdated(Exception):  # noqa: N818 - nothing is wrong
    """A newer state has come."""


def run(plan: Plan, seed: int, outdated: Callable[[], bool]) -> list[Run]:
    """One run for each law. Raises `Outdated`, and `ScenarioError` for a run that fails."""
    execution.check_memory(plan, execution.cores(), samples=True)
    wanted = {(0, law, seed) for law in range(len(plan.laws))}
    batch = plan.start(execution.cores(), only=wanted)
    start = time.monotonic()
    try:
        while not batch.done:
            time.sleep(POLL_S)
            if outdated():
                share = batch.progress()
                spent_s = time.monotonic() - start
                # While a slider moves every state is soon outdated; quick runs are shown.
                if spent_s > GRACE_S and spent_s * (1 - share) > GRACE_S * share:
                    raise Outdated
    finally:
        batch.cancel()
    runs, faults = batch.take()
    if faults:
        raise ScenarioError(execution.fault_in_words(plan, faults[0]))
    return sorted(runs, key=lambda run: run.law)


def times(duration_s: float, bins: int) -> Floats:
    """Where curves over time have their points: two in each bin."""
    return np.asarray((np.arange(2 * bins) + 0.5) * (duration_s / (2 * bins)), float)


def curves(plan: Plan, runs: list[Run], sides: list[str], bins: int) -> dict[str, Any]:
    """What the page draws of them; every curve over the same times."""
    point = plan.points[0]
    time_s = times(point.duration_s, bins)
    # As wide as the laws' delays, and the same for all.
    most_s = max((_quantile_s(run, MOST_DELAYS) for run in runs), default=0.0) or 1e-3
    delays_s = np.linspace(0.0, most_s, STEPS)
    parts_s = (np.arange(PARTS) + 0.5) * (point.duration_s / PARTS)
    return {
        "time_s": _rounded(time_s, 4),
        "parts_s": _rounded(parts_s, 4),
        "delay_ms": _rounded(1e3 * delays_s, 4),
        "measure_s": list(point.measure_s),
        "duration_s": point.duration_s,
        "rate_mbps": 1e-6 * point.links[0].rate_bps,
        "changes_s": [change.time_s for change in point.changes],
        "laws": {
            side: _law(point, run, bins, delays_s)
            | {
                "label": plan.laws[run.law],
                "target_pkts": target_pkts(point, point.laws[run.law], point.links[0]),
                "cpu_s": run.metrics.get("user_cpu_s"),
            }
            for side, run in zip(sides, runs, strict=True)
        },
    }


def _law(point: PointInfo, run: Run, bins: int, delays_s: Floats) -> dict[str, Any]:
    samples = run.samples
    arrivals = _sums(samples["arrivals"])
    drops = _sums(
        samples["early_drops"].astype(float) + samples["forced_drops"] + samples["overflow_drops"]
    )
    with np.errstate(all="ignore"):
        lost, marked = 100 * drops / arrivals, 100 * _sums(samples["marks"]) / arrivals
    part_s = point.duration_s / PARTS
    return {
        "queue_pkts": _rounded(extremes(samples["queue_pkts"], bins), 1),
        "lost_pct": _rounded(lost, 3),
        "signalled_pct": _rounded(lost + marked, 3),
        "throughput_mbps": _rounded(8e-6 * _sums(samples["departed_bytes"]) / part_s, 3),
        "delay_share_pct": _rounded(_shares(run, delays_s), 2),
        "numbers": {name: quantities.finite(run.metrics[name]) for name in NUMBERS},
    }


def warnings(plan: Plan, runs: list[Run]) -> list[str]:
    """What a reader must know of the numbers, as `forebay run` warns: a law that was measured
    before it had settled, or that missed its set-point."""
    point = plan.points[0]
    groups = [(0, point, point.laws[run.law], [run]) for run in runs]
    return [f"{found.law}: {found.text}" for found, _ in steady_state.warnings(groups)]


def numbers() -> list[dict[str, Any]]:
    """The rows of the table of numbers, from the metrics' declarations."""
    return [
        {"name": it.name, "title": it.title, "unit": it.unit, "scale": it.scale, "doc": it.doc}
        for it in (METRICS[name] for name in NUMBERS)
    ]


def extremes(values: NDArray[Any], bins: int) -> Floats:
    """The least and the greatest value in each bin, in the order in which they come."""
    values = np.asarray(values, float)
    if len(values) <= 2 * bins:
        at = (np.arange(2 * bins) + 0.5) * len(values) / (2 * bins)
        return np.asarray(values[np.minimum(at.astype(int), len(values) - 1)], float)
    # Whole samples: the bins differ by one at most.
    edges = np.linspace(0, len(values), bins + 1).astype(int)
    widest = int(np.diff(edges).max())
    at = np.minimum(edges[:-1, None] + np.arange(widest), edges[1:, None] - 1)
    blocks = values[at]
    first, last = blocks.argmin(axis=1), blocks.argmax(axis=1)
    rows = np.arange(bins)
    pairs = np.column_stack([blocks[rows, first], blocks[rows, last]])
    pairs[first > last] = pairs[first > last][:, ::-1]
    return pairs.ravel()


def _sums(values: NDArray[Any]) -> Floats:
    """Of each part of the run."""
    edges = np.linspace(0, len(values), PARTS + 1).astype(int)
    total = np.concatenate([[0.0], np.cumsum(np.asarray(values, float))])
    return np.asarray(np.diff(total[edges]))


def _shares(run: Run, at_s: Floats) -> Floats:
    """Share of packets that waited no longer, in percent."""
    counts = np.cumsum(run.delay_packets.astype(float))
    if not len(counts) or counts[-1] == 0:
        return np.full(len(at_s), np.nan)
    ends, shares = np.r_[0.0, run.delay_s], np.r_[0.0, counts / counts[-1]]
    return np.asarray(100 * np.interp(at_s, ends, shares))


def _quantile_s(run: Run, share: float) -> float:
    counts = np.cumsum(run.delay_packets.astype(float))
    if not len(counts) or counts[-1] == 0:
        return 0.0
    return float(run.delay_s[np.searchsorted(counts, share * counts[-1])])


def _rounded(values: NDArray[Any], digits: int) -> list[float | None]:
    """For JSON, which knows no NaN."""
    found: list[float | None] = quantities.finite(
        np.round(np.asarray(values, float), digits).tolist()
    )
    return found
