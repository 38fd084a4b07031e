"""Runs as data files of flent, `.flent.gz`: JSON with series over one grid of times.

The files follow version 4 of the format (resultset.py of flent); `flent_reader` reads them.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._base import quantities
from forebay._base.publication import publish
from forebay._native import __version__

if TYPE_CHECKING:
    from forebay._native import Observed, PointInfo, Run
    from forebay.experiment.experiment_runs import Runs

SUFFIX = ".flent.gz"
VERSION = 4
#: Between two values of a series where goodput over time is not known: flent's own default.
STEP_S = 0.2
PING = "Ping (ms) ICMP"
Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Key of the metadata with what flent has no word for.
OURS = "FOREBAY"
#: Simulated time has no date, and the same run gives the same file.
BEGIN = "1970-01-01T00:00:00.000000Z"
MBIT_S, MS = "Mbits/s", "ms"


def write(result: Runs, folder: str | os.PathLike[str]) -> list[Path]:
    """A file for each run; returns where they are.

    The ping of a run is how long the bottleneck sends what is in its queue, on top of the shortest
    round trip; with a queue for each flow, that of the flows with the load.
    """
    files = {}
    for run in result.runs:
        name = _name(result, run)
        told = json.dumps(quantities.finite(_data(result, run, name)), sort_keys=True)
        # Without the time of writing: the same run is the same file.
        files[name] = gzip.compress(told.encode(), mtime=0)
    return publish(folder, files)


def _name(result: Runs, run: Run) -> str:
    """Law, point and seed, in letters that every disk takes."""
    parts = [result.plan.laws[run.law], result.plan.points[run.point].label, f"seed{run.seed}"]
    return "-".join(re.sub(r"[^\w.]+", "_", part).strip("_") for part in parts if part) + SUFFIX


def _data(result: Runs, run: Run, name: str) -> dict[str, Any]:
    plan = result.plan
    point = plan.points[run.point]
    base_s = _round_trip_s(result, point)
    step_s = run.goodput[0].interval_s if run.goodput else STEP_S
    count = max(1, math.floor(point.duration_s / step_s + 1e-9))
    ends_s = step_s * np.arange(1, count + 1, dtype=np.float64)
    times_s = run.samples["time_s"]
    at = np.minimum(np.searchsorted(times_s, ends_s - 1e-9), len(times_s) - 1)
    way = "upload" if result.experiment.made_by == "link" and run.point == 0 else "download"
    flows = _flows_bps(run, count)
    total_bps = np.sum(flows, axis=0) if flows else _total_bps(run, point, ends_s)
    series: dict[str, tuple[str, Any]] = {
        PING: (MS, 1e3 * (base_s + _queue_s(run, point)[at])),
        f"TCP {way} sum": (MBIT_S, 1e-6 * total_bps),
    }
    if flows:
        series[f"TCP {way} avg"] = (MBIT_S, 1e-6 * total_bps / len(flows))
    for i, flow in enumerate(flows, 1):
        series[f"TCP {way}::{i}"] = (MBIT_S, 1e-6 * flow)
    values = {
        key: [float(f"{value:.6g}") for value in column] for key, (_, column) in series.items()
    }
    law = plan.laws[run.law]
    title = ", ".join(filter(None, (plan.title, law, point.label, f"seed {run.seed}")))
    return {
        "version": VERSION,
        "x_values": [round(float(end), 6) for end in ends_s],
        "results": values,
        "raw_values": {
            key: [
                {"t": round(float(end), 6), "val": value}
                for end, value in zip(ends_s, column, strict=True)
            ]
            for key, column in values.items()
        },
        "metadata": {
            "NAME": f"tcp_n{'up' if way == 'upload' else 'down'}",
            "TITLE": title,
            "NOTE": result.experiment.command,
            "TIME": BEGIN,
            "T0": BEGIN,
            "LENGTH": point.duration_s,
            "TOTAL_LENGTH": point.duration_s,
            "STEP_SIZE": step_s,
            "HOST": "forebay",
            "HOSTS": ["forebay"],
            "LOCAL_HOST": "forebay",
            "IP_VERSION": 4,
            "FLENT_VERSION": f"Forebay {__version__}",
            "TEST_PARAMETERS": {f"{way}_streams": str(max(1, len(flows)))},
            "DATA_FILENAME": name,
            "SERIES_META": {key: {"UNITS": units} for key, (units, _) in series.items()},
            OURS: {
                "title": plan.title,
                "law": law,
                "settings": point.settings,
                "point": point.label,
                "seed": run.seed,
                "measure_s": list(point.measure_s),
                "round_trip_s": base_s,
            },
        },
    }


def _round_trip_s(result: Runs, point: PointInfo) -> float:
    """Without a queue: of the flows with the shortest one, or of both directions of a link."""
    rtts_s = [rtt_s for traffic in point.traffic for rtt_s in traffic.rtts_s]
    return min(rtts_s) if rtts_s else sum(it.links[0].delay_s[0] for it in result.plan.points)


def _queue_s(run: Observed, point: PointInfo) -> Floats:
    """How long the link sends what is queued, at its rate of then."""
    bits, capacity = 8.0 * run.samples["queue_bytes"], run.samples["capacity_bits"]
    rates_bps = np.where(capacity > 0, capacity / point.sample_s, point.links[0].rate_bps)
    return bits / rates_bps


def _flows_bps(run: Observed, count: int) -> list[Floats]:
    """Goodput of each flow over time; nothing where some traffic has too many flows for that."""
    if any(of.quantiles for of in run.goodput):
        return []
    columns = [np.asarray(column, float) for of in run.goodput for column in of.columns]
    return [np.pad(column[:count], (0, max(0, count - len(column)))) for column in columns]


def _total_bps(run: Observed, point: PointInfo, ends_s: Floats) -> Floats:
    """What left the link over time, of which goodput is the share that it is over the whole."""
    times_s = run.samples["time_s"]
    departed = np.cumsum(run.samples["departed_bytes"] * 8.0)
    sent = np.interp(ends_s, times_s, departed)
    start_s, end_s = point.measure_s
    first, last = np.interp([start_s, end_s], times_s, departed)
    share = run.metrics["goodput_bps"] * (end_s - start_s) / max(last - first, 1.0)
    bps: Floats = np.diff(sent, prepend=0.0) / np.diff(ends_s, prepend=0.0) * share
    return np.where(np.isfinite(bps), bps, 0.0)
