"""The packet runs of a state, and their curves at the width of the plot."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._base import quantities
from forebay._base.metrics import METRICS
from forebay._base.registries import title_of
from forebay._native import ScenarioError
from forebay.experiment import execution, steady_state
from forebay.report.over_time import target_pkts

if TYPE_CHECKING:
    from forebay._native import Plan, PointInfo, Run

Floats = NDArray[np.float64]

#: Time in seconds between two checks of the runs.
POLL_S = 0.002
#: Obsolete runs may finish within this time, in seconds.
GRACE_S = 0.15
#: Largest number of bins of a curve over time: the pixels of a wide plot.
MOST_BINS = 1200
#: Number of parts of a run for losses and throughput.
PARTS = 120
#: Points of a distribution.
STEPS = 160
#: Share of the packets in the plot of delays.
MOST_DELAYS = 0.9995
#: Metrics of the table.
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
    """A newer state has arrived, and the result is obsolete."""


def run(plan: Plan, seed: int, outdated: Callable[[], bool]) -> list[Run]:
    """Run each law once.

    Parameters
    ----------
    plan : Plan
        The plan of the state's scenario.
    seed : int
        Seed of the runs.
    outdated : callable
        True once a newer state has arrived.

    Raises
    ------
    Outdated
        If the result is obsolete.
    ScenarioError
        If a run fails.
    """
    execution.check_memory(plan, execution.cores(), samples=True)
    keys = {(0, law, seed) for law in range(len(plan.laws))}
    batch = plan.start(execution.cores(), only=keys)
    start = time.monotonic()
    try:
        while not batch.done:
            time.sleep(POLL_S)
            if outdated():
                share = batch.progress()
                spent_s = time.monotonic() - start
                # While a slider moves, every state is soon obsolete; fast runs are shown
                # nevertheless.
                if spent_s > GRACE_S and spent_s * (1 - share) > GRACE_S * share:
                    raise Outdated
    finally:
        batch.cancel()
    runs, faults = batch.take()
    if faults:
        raise ScenarioError(execution.fault_in_words(plan, faults[0]))
    return sorted(runs, key=lambda run: run.law)


def times(duration_s: float, bins: int) -> Floats:
    """Return the times of a curve's points, two in each bin.

    Parameters
    ----------
    duration_s : float
        Duration in seconds.
    bins : int
        Number of bins.
    """
    return np.asarray((np.arange(2 * bins) + 0.5) * (duration_s / (2 * bins)), float)


def curves(plan: Plan, runs: list[Run], sides: list[str], bins: int) -> dict[str, Any]:
    """Return the curves of runs for the page, all of them with the same times.

    Parameters
    ----------
    plan : Plan
        The plan of the runs.
    runs : list of Run
        The runs.
    sides : list of str
        Side of the page of each run.
    bins : int
        Number of bins, which is the width of the plot in pixels.
    """
    point = plan.points[0]
    time_s = times(point.duration_s, bins)
    # The range covers the delays of all laws.
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
                "label": title_of(plan.laws[run.law]),
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
    """Return the warnings of `forebay run`.

    They concern laws that had not settled before the measurement, or that missed their set-point.

    Parameters
    ----------
    plan : Plan
        The plan of the runs.
    runs : list of Run
        The runs.
    """
    point = plan.points[0]
    groups = [(0, point, point.laws[run.law], [run]) for run in runs]
    return [
        f"{title_of(warning.law)}: {warning.text}" for warning, _ in steady_state.warnings(groups)
    ]


def numbers() -> list[dict[str, Any]]:
    """Return the rows of the table of numbers, from the metrics' declarations."""
    keys = ("name", "title", "unit", "scale", "doc")
    return [{key: getattr(METRICS[name], key) for key in keys} for name in NUMBERS]


def extremes(values: NDArray[Any], bins: int) -> Floats:
    """Return the minimum and the maximum of each bin, in their order in time.

    Parameters
    ----------
    values : array of shape (n,)
        Samples.
    bins : int
        Number of bins.
    """
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
    """Return the sum in each part of the run."""
    edges = np.linspace(0, len(values), PARTS + 1).astype(int)
    total = np.concatenate([[0.0], np.cumsum(np.asarray(values, float))])
    return np.asarray(np.diff(total[edges]))


def _shares(run: Run, at_s: Floats) -> Floats:
    """Return the share of packets with at most these delays, in percent."""
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
    """Return rounded values for JSON, with None for NaN."""
    rounded = np.round(np.asarray(values, float), digits).tolist()
    finite: list[float | None] = quantities.finite(rounded)
    return finite
