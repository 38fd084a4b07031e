"""Read and write the data files of flent (`.flent.gz`): JSON with series over one grid of times.

`write` makes one file of each run. `read` takes a file, of flent or of Forebay, and returns queuing
delays and goodput while the load lasts. The files follow version 4 of the format (resultset.py of
flent). flent pings alone for some seconds before and after the load, so that a reader knows the
round trip without a queue. A value is null where a series was not measured.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay._base import input_file, quantities
from forebay._base.errors import FormatError
from forebay._base.input_file import kind_of, number, optional_table, optional_text, table
from forebay._base.publication import publish
from forebay._native import ScenarioError, __version__

if TYPE_CHECKING:
    from forebay._native import Observed, PointInfo, Run
    from forebay.experiment.result import Result

SUFFIX = ".flent.gz"
VERSION = 4
#: Time between two values of a series if goodput over time is not known: flent's default.
STEP_S = 0.2
PING = "Ping (ms) ICMP"
Floats = np.ndarray[Any, np.dtype[np.float64]]

#: Key of the metadata for facts that flent has no key for.
OURS = "FOREBAY"
#: Start of every run: simulated time has no date, and the same run must give the same file.
BEGIN = "1970-01-01T00:00:00.000000Z"
MBIT_S, MS = "Mbits/s", "ms"


def write(result: Result, folder: str | os.PathLike[str]) -> list[Path]:
    """Write a data file of flent for each run of a result.

    The ping series of a run is the time that the bottleneck needs to send its queue, added to the
    shortest round trip. With one queue per flow, the queue is that of the flows with the load.

    Parameters
    ----------
    result : Result
        The result.
    folder : str | os.PathLike[str]
        The folder for the files.

    Returns
    -------
    list[Path]
        The paths of the files.
    """
    files = {}
    for run in result.runs:
        name = _name(result, run)
        document = json.dumps(quantities.finite(_data(result, run, name)), sort_keys=True)
        # mtime=0 omits the time of writing, so that the same run gives the same file.
        files[name] = gzip.compress(document.encode(), mtime=0)
    return publish(folder, files)


def _name(result: Result, run: Run) -> str:
    """Return a file name of law, point and seed whose characters every file system accepts."""
    parts = [result.plan.laws[run.law], result.plan.points[run.point].label, f"seed{run.seed}"]
    return "-".join(re.sub(r"[^\w.]+", "_", part).strip("_") for part in parts if part) + SUFFIX


def _data(result: Result, run: Run, name: str) -> dict[str, Any]:
    """Return the document of a run."""
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
            **_about(result, run, name),
            "NAME": f"tcp_n{'up' if way == 'upload' else 'down'}",
            "STEP_SIZE": step_s,
            "TEST_PARAMETERS": {f"{way}_streams": str(max(1, len(flows)))},
            "SERIES_META": {key: {"UNITS": units} for key, (units, _) in series.items()},
        },
    }


def _about(result: Result, run: Run, name: str) -> dict[str, Any]:
    """Return the metadata of a run that do not depend on its series."""
    plan = result.plan
    point, law = plan.points[run.point], plan.laws[run.law]
    return {
        "TITLE": ", ".join(filter(None, (plan.title, law, point.label, f"seed {run.seed}"))),
        "NOTE": result.experiment.command,
        "TIME": BEGIN,
        "T0": BEGIN,
        "LENGTH": point.duration_s,
        "TOTAL_LENGTH": point.duration_s,
        "HOST": "forebay",
        "HOSTS": ["forebay"],
        "LOCAL_HOST": "forebay",
        "IP_VERSION": 4,
        "FLENT_VERSION": f"Forebay {__version__}",
        "DATA_FILENAME": name,
        OURS: {
            "title": plan.title,
            "law": law,
            "settings": point.settings,
            "point": point.label,
            "seed": run.seed,
            "measure_s": list(point.measure_s),
            "round_trip_s": _round_trip_s(result, point),
        },
    }


def _round_trip_s(result: Result, point: PointInfo) -> float:
    """Return the shortest round trip of the flows without a queue, or that of a link."""
    rtts_s = [rtt_s for traffic in point.traffic for rtt_s in traffic.rtts_s]
    return (
        min(rtts_s)
        if rtts_s
        else sum(point_of_plan.links[0].delay_s[0] for point_of_plan in result.plan.points)
    )


def _queue_s(run: Observed, point: PointInfo) -> Floats:
    """Return the time that the link needs to send its queue, at the rate of each sample."""
    bits, capacity = 8.0 * run.samples["queue_bytes"], run.samples["capacity_bits"]
    rates_bps = np.where(capacity > 0, capacity / point.sample_s, point.links[0].rate_bps)
    return bits / rates_bps


def _flows_bps(run: Observed, length: int) -> list[Floats]:
    """Return the goodput of each flow over time; empty if a traffic has too many flows."""
    if any(series.quantiles for series in run.goodput):
        return []
    columns = [np.asarray(column, float) for series in run.goodput for column in series.columns]
    return [np.pad(column[:length], (0, max(0, length - len(column)))) for column in columns]


def _total_bps(run: Observed, point: PointInfo, ends_s: Floats) -> Floats:
    """Return the goodput over time: departures times the window's goodput per departure."""
    times_s = run.samples["time_s"]
    departed = np.cumsum(run.samples["departed_bytes"] * 8.0)
    sent = np.interp(ends_s, times_s, departed)
    start_s, end_s = point.measure_s
    first, last = np.interp([start_s, end_s], times_s, departed)
    share = run.metrics["goodput_bps"] * (end_s - start_s) / max(last - first, 1.0)
    bps: Floats = np.diff(sent, prepend=0.0) / np.diff(ends_s, prepend=0.0) * share
    return np.where(np.isfinite(bps), bps, 0.0)


#: Endings of the names that flent writes, today and as netperf-wrapper.
SUFFIXES = (".flent.gz", ".flent.bz2", ".flent", ".flnt")
#: Largest file that is read, decompressed; in memory it may take ten times as much.
MOST_BYTES = 64 << 20
#: Units of series, in bit/s and in seconds; a series without a unit has the first of its mapping.
RATE_UNITS = {"Mbits/s": 1e6, "Kbits/s": 1e3, "Kbps": 1e3, "Mbps": 1e6, "Gbits/s": 1e9} | {
    "bits/s": 1.0,
    "bps": 1.0,
}
TIME_UNITS = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
#: Last words of the names of series that flent derives from others.
DERIVED = {"avg", "sum", "total", "totals", "fairness"}
#: The largest plausible value of a series, in any of the units.
LARGEST_VALUE = 1e15
#: A ping under load is reported if it is shorter than this share of the shortest ping without load.
SHORTER = 0.9
#: A series with fewer values than this share of the load's times is reported.
SPARSE = 0.5


@dataclass(frozen=True)
class FlentRun:
    """The time under load in a data file of flent.

    Attributes
    ----------
    title : str
        Title of the test, or its name.
    law : str
        Law that Forebay wrote into the file; the title for a file of flent itself.
    settings : mapping
        Settings of the run's point, by key.
    point : str
        Name of the point; it sets nothing for the directions of a link.
    seed : int or None
        Seed of a run of Forebay.
    delays_s : array
        Queuing delays: pings of all hosts, each less the round trip of its host without a queue.
    flows_bps : sequence of float
        Mean goodput of each TCP or SCTP flow over the load.
    goodput_bps : float
        Mean over the load of the sum of the flows at each time.
    remarks : sequence of str
        What a reader of the numbers must know of the file.
    """

    title: str
    law: str
    settings: Mapping[str, Any]
    point: str
    seed: int | None
    delays_s: Floats
    flows_bps: Sequence[float]
    goodput_bps: float
    remarks: Sequence[str] = ()


def read(file: str | os.PathLike[str]) -> FlentRun:
    """Return the delays and the goodput of a data file, of flent or of Forebay.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or is no data file of flent with pings or flows.
    """
    name = input_file.printable(file)
    text = input_file.text(input_file.read(file, MOST_BYTES), name)
    try:
        return _run(_document(text))
    except FormatError as error:
        raise ScenarioError(
            f"{name}: is not a data file of flent with pings or goodput: {error}"
        ) from error


# --- the document -------------------------------------------------------------------------------


def _document(text: str) -> Mapping[str, Any]:
    """Parse a data file, and check the version of its format."""
    document = input_file.parse_json(text)
    version = document.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise FormatError(f"its version is {str(version)[:20]!r}; expected 1 to {VERSION}")
    return document


def _column(value: Any, name: str, count: int | None = None) -> Floats:
    """Return the values of a series, not a number where one is missing."""
    if not isinstance(value, list):
        raise FormatError(f"{name} is {kind_of(value)}; expected a list of numbers")
    if count is not None and len(value) != count:
        raise FormatError(f"{name} has {len(value)} values for {count} times")
    if not {type(item) for item in value} <= {int, float, type(None)}:
        raise FormatError(f"{name} has a value that is no number")
    try:
        column = np.array([math.nan if item is None else item for item in value], float)
    except OverflowError as error:
        raise FormatError(f"{name} has a value that is not plausible") from error
    column[np.isinf(column)] = math.nan
    if np.any(np.abs(column) > LARGEST_VALUE) or np.any(column < 0):
        raise FormatError(f"{name} has a value that is negative or not plausible")
    return column


# --- the series ---------------------------------------------------------------------------------


@dataclass
class Series:
    """The series of a file by what they measure, in SI units, on one grid of times.

    Attributes
    ----------
    times_s : array
        Times since the start of the test, in order.
    pings : dict
        Round trips in seconds.
    flows : dict
        Goodput of single TCP and SCTP flows, in bit/s.
    sums : dict
        Sums that flent derives from the flows.
    other_load : dict
        Rates of UDP senders, which are no goodput.
    remarks : list of str
        What was left out.
    """

    times_s: Floats
    pings: dict[str, Floats] = field(default_factory=dict)
    flows: dict[str, Floats] = field(default_factory=dict)
    sums: dict[str, Floats] = field(default_factory=dict)
    other_load: dict[str, Floats] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def _series(document: Mapping[str, Any], metadata: Mapping[str, Any]) -> Series:
    """Sort the series of a document by what they measure."""
    times_s = _column(document.get("x_values"), "x_values")
    if not len(times_s) or np.any(np.isnan(times_s)) or np.any(np.diff(times_s) <= 0):
        raise FormatError("x_values are not times in order")
    results = table(document.get("results"), "results")
    described = optional_table(metadata.get("SERIES_META"), "SERIES_META")
    series = Series(times_s)
    means: dict[str, Floats] = {}
    for name, values in results.items():
        facts = optional_table(described.get(name), f"SERIES_META of {name!r}")
        unit = optional_text(facts.get("UNITS"), f"the unit of {name!r}")
        destination, units = _place(series, means, name, unit, results)
        if destination is None:
            continue
        if unit and unit not in units:
            series.remarks.append(f"{name} is left out: its unit {unit[:20]!r} is not known.")
            continue
        scale = units[unit or next(iter(units))]
        destination[name] = scale * _column(values, f"series {name!r}", len(times_s))
    if means and not series.pings:
        series.pings = means
        series.remarks.append("The file has the mean of its ping series alone, not the series.")
    return series


def _place(
    series: Series, means: dict[str, Floats], name: str, unit: str, results: Mapping[str, Any]
) -> tuple[dict[str, Floats] | None, Mapping[str, float]]:
    """Return where a series belongs, and the units that it may have; nowhere if it is not used."""
    word = name.rsplit(maxsplit=1)[-1] if name.split() else ""
    if name.startswith("Ping"):
        destination = {"avg": means}.get(word, None if word in DERIVED else series.pings)
        return destination, TIME_UNITS
    if name.startswith(("TCP", "SCTP")):
        flow, _, statistic = name.rpartition("::")
        of_flow = flow in results and not unit and not statistic.isdigit()
        if statistic.startswith("tcp_") or of_flow or word in {"avg", "fairness"}:
            return None, RATE_UNITS
        return series.sums if word in DERIVED else series.flows, RATE_UNITS
    if name.startswith("UDP") and word not in DERIVED:
        return series.other_load, RATE_UNITS
    return None, RATE_UNITS


# --- the load -----------------------------------------------------------------------------------


def _run(document: Mapping[str, Any]) -> FlentRun:
    """Compute the delays and the goodput under load of a document."""
    metadata = table(document.get("metadata"), "metadata")
    ours = optional_table(metadata.get(OURS), OURS)
    series = _series(document, metadata)
    remarks = series.remarks
    if ours:
        start_s, end_s = _measured_s(ours)
        inside = (series.times_s > start_s + 1e-9) & (series.times_s <= end_s + 1e-9)
        outside = np.zeros_like(inside)
    else:
        inside, outside = _load(series, metadata)
    base_s = ours.get("round_trip_s")
    if base_s is not None:
        base_s = number(base_s, f"round_trip_s of {OURS}")
    delays_s = _delays(series.pings, inside, outside, base_s, remarks)
    flows = {name: _at_all_times(column) for name, column in series.flows.items()}
    for name, column in series.flows.items():
        if not np.any(np.isfinite(column)):
            remarks.append(f"{name} has no values, and counts as a flow without goodput.")
    if series.other_load:
        remarks.append(f"Not in the goodput: {', '.join(series.other_load)}.")
    total = list(
        (
            flows or {name: _at_all_times(goodput) for name, goodput in _sums(series).items()}
        ).values()
    )
    if not (len(delays_s) or total) or not np.any(inside):
        raise FormatError("it has no values while the load lasts")
    title = _text(ours, "title") or _text(metadata, "TITLE") or _text(metadata, "NAME")
    seed = ours.get("seed")
    return FlentRun(
        title or "flent",
        _text(ours, "law") or title or "flent",
        input_file.settings(ours.get("settings") or {}),
        _text(ours, "point"),
        None if seed is None else input_file.seed(seed),
        delays_s,
        [float(column[inside].mean()) for column in flows.values()],
        float(np.sum(total, axis=0)[inside].mean()) if total else math.nan,
        remarks,
    )


def _text(table: Mapping[str, Any], key: str) -> str:
    """Return an optional text of a table; "" if it is absent."""
    return optional_text(table.get(key), key)


def _measured_s(ours: Mapping[str, Any]) -> tuple[float, float]:
    """Return the window of measurement that Forebay wrote into a file."""
    measured = ours.get("measure_s")
    if not isinstance(measured, list) or len(measured) != 2:
        raise FormatError(f"measure_s of {OURS} is not a start and an end")
    start_s, end_s = (number(value, "measure_s") for value in measured)
    return start_s, end_s


def _load(series: Series, metadata: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return masks of the times under load, and of the times that are certainly without load.

    The series of flows have values between the actual start and end of the load. The lengths in
    the metadata give the planned start and end; flows may begin later, as netperf's reports do,
    and end later. Where the two disagree, a time belongs to neither mask.
    """
    times_s = series.times_s
    loads = [*(series.flows or _sums(series)).values(), *series.other_load.values()]
    active = np.any([column > 0 for column in loads], axis=0) if loads else np.zeros(0, bool)
    meant = _meant_s(metadata, times_s)
    if not np.any(active):
        inside = np.ones(len(times_s), bool)
        if meant is not None:
            inside = (times_s > meant[0] + 1e-9) & (times_s <= meant[1] + 1e-9)
        return inside, ~inside
    first, last = np.flatnonzero(active)[[0, -1]]
    # A value describes the interval that ends at its time.
    start_s = float(times_s[first - 1]) if first else -math.inf
    end_s = float(times_s[last])
    inside = (times_s > start_s + 1e-9) & (times_s <= end_s + 1e-9)
    alone_until_s, alone_from_s = meant or (start_s, end_s)
    before = times_s <= min(start_s, alone_until_s) + 1e-9
    after = times_s > max(end_s, alone_from_s) + 1e-9
    return inside, before | after


def _meant_s(metadata: Mapping[str, Any], times_s: Floats) -> tuple[float, float] | None:
    """Return the planned start and end of the load, from the lengths in the metadata.

    flent pings alone for equally long before and after the load. The result is None if the lengths
    leave no such times.
    """
    whole_s, load_s = (
        input_file.optional_number(metadata.get(key), key) for key in ("TOTAL_LENGTH", "LENGTH")
    )
    whole_s = float(times_s[-1]) if whole_s is None else whole_s
    alone_s = 0.0 if load_s is None else (whole_s - load_s) / 2
    return (alone_s, whole_s - alone_s) if alone_s > 0 else None


def _delays(
    pings: Mapping[str, Floats], inside: Any, outside: Any, base_s: float | None, remarks: list[str]
) -> Floats:
    """Return the queuing delays of all ping series: each ping less the round trip without a queue.

    The round trip of a host is its shortest ping, normally one without load. `base_s` replaces it
    for a file that records the round trip.
    """
    delays, unknown, shorter = [], [], []
    for name, column in pings.items():
        values = column[inside & np.isfinite(column)]
        if len(values) < SPARSE * np.count_nonzero(inside):
            remarks.append(
                f"{name} has values at {len(values)} of the {np.count_nonzero(inside)} times of "
                "the load."
            )
        if not len(values):
            continue
        if base_s is not None:
            delays.append(values - base_s)
            continue
        alone = column[outside & np.isfinite(column)]
        if not len(alone):
            unknown.append(name)
        elif values.min() < SHORTER * alone.min():
            shorter.append(name)
        delays.append(values - np.min([values.min(), alone.min(initial=math.inf)]))
    if unknown:
        remarks.append(
            f"There are no pings outside the load ({', '.join(unknown)}): delays are above the "
            "least ping within it, so a queue that never empties is not counted."
        )
    if shorter:
        remarks.append(
            f"Pings within the load are shorter than all outside it ({', '.join(shorter)}): "
            "delays are above the least ping within it."
        )
    return np.concatenate(delays) if delays else np.empty(0)


def _sums(series: Series) -> Mapping[str, Floats]:
    """Return the sum of each direction, or the total if the file has no other sum."""
    ways = {name: column for name, column in series.sums.items() if name.endswith(" sum")}
    return ways or series.sums


def _at_all_times(column: Floats) -> Floats:
    """Return a flow's goodput at all times: zero before its first value and after its last.

    Between two values the goodput is interpolated, as flent does: a slow flow reports less often
    than the grid has times.
    """
    positions = np.flatnonzero(np.isfinite(column))
    if not len(positions):
        return np.zeros_like(column)
    steps = np.arange(len(column))
    return np.asarray(np.interp(steps, positions, column[positions], left=0.0, right=0.0), float)
