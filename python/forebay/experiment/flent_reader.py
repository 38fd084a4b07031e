"""Data files of flent as they are read: queuing delays and goodput while the load lasts.

flent pings alone for some seconds on both sides of the load, so that a reader knows the round trip
without a queue. The series are on one grid of times (resultset.py of flent); a value is missing
where a series was not measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from forebay._base import documents, input_file
from forebay._base.documents import FormatError, kind, number, optional_table, optional_text, table
from forebay._native import ScenarioError
from forebay.experiment.flent import OURS, VERSION, Floats

#: Endings of the names that flent writes, today and as netperf-wrapper.
SUFFIXES = (".flent.gz", ".flent.bz2", ".flent", ".flnt")
#: Largest file that is read, decompressed; in memory it may take ten times as much.
MOST_BYTES = 64 << 20
#: Units of series, in bit/s and in seconds; the first of each is meant where a file names none.
RATE_UNITS = {"Mbits/s": 1e6, "Kbits/s": 1e3, "Kbps": 1e3, "Mbps": 1e6, "Gbits/s": 1e9} | {
    "bits/s": 1.0,
    "bps": 1.0,
}
TIME_UNITS = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
#: Last words of the names of series that flent derives from others.
DERIVED = {"avg", "sum", "total", "totals", "fairness"}
#: Beyond this no series is plausible, in any of the units.
LARGEST_VALUE = 1e15
#: A ping within the load that is shorter than this share of all outside it is reported.
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
    document = documents.parse(text)
    version = document.get("version", 1)
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise FormatError(f"its version is {str(version)[:20]!r}; expected 1 to {VERSION}")
    return document


def _column(value: Any, name: str, count: int | None = None) -> Floats:
    """Return the values of a series, not a number where one is missing."""
    if not isinstance(value, list):
        raise FormatError(f"{name} is {kind(value)}; expected a list of numbers")
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
    """The series of a file by what they say, in SI units, on one grid of times.

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
    series: Series,
    means: dict[str, Floats],
    name: str,
    unit: str,
    results: Mapping[str, Any],
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
        documents.settings(ours.get("settings") or {}),
        _text(ours, "point"),
        None if seed is None else documents.seed(seed),
        delays_s,
        [float(column[inside].mean()) for column in flows.values()],
        float(np.sum(total, axis=0)[inside].mean()) if total else math.nan,
        remarks,
    )


def _text(table: Mapping[str, Any], key: str) -> str:
    return optional_text(table.get(key), key)


def _measured_s(ours: Mapping[str, Any]) -> tuple[float, float]:
    measured = ours.get("measure_s")
    if not isinstance(measured, list) or len(measured) != 2:
        raise FormatError(f"measure_s of {OURS} is not a start and an end")
    start_s, end_s = (number(value, "measure_s") for value in measured)
    return start_s, end_s


def _load(series: Series, metadata: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return masks of the times under load, and of those that are surely without it.

    The series of flows say when the load was there: they have values between its start and its
    end. The lengths in the metadata say when it was meant to be there; flows may begin later, as
    netperf's reports do, and end later. Times of which the two disagree are without load for
    neither.
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
    # A value is of the time before it.
    start_s = float(times_s[first - 1]) if first else -math.inf
    end_s = float(times_s[last])
    inside = (times_s > start_s + 1e-9) & (times_s <= end_s + 1e-9)
    alone_until_s, alone_from_s = meant or (start_s, end_s)
    before = times_s <= min(start_s, alone_until_s) + 1e-9
    after = times_s > max(end_s, alone_from_s) + 1e-9
    return inside, before | after


def _meant_s(metadata: Mapping[str, Any], times_s: Floats) -> tuple[float, float] | None:
    """Return the start and the end of the load by the lengths of the metadata.

    flent pings alone for equally long before and after the load. None where the lengths say
    nothing of such times.
    """
    whole_s, load_s = (
        documents.optional_number(metadata.get(key), key) for key in ("TOTAL_LENGTH", "LENGTH")
    )
    whole_s = float(times_s[-1]) if whole_s is None else whole_s
    alone_s = 0.0 if load_s is None else (whole_s - load_s) / 2
    return (alone_s, whole_s - alone_s) if alone_s > 0 else None


def _delays(
    pings: Mapping[str, Floats],
    inside: Any,
    outside: Any,
    base_s: float | None,
    remarks: list[str],
) -> Floats:
    """Return the queuing delays of all ping series, each above the round trip without a queue.

    A host's round trip is the least ping of its record, which the time without load has; `base_s`
    is that of a file that knows it.
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
            "least ping within it, so that a queue that never empties is not counted."
        )
    if shorter:
        remarks.append(
            f"Pings within the load are shorter than all outside it ({', '.join(shorter)}): "
            "delays are above the least ping within it."
        )
    return np.concatenate(delays) if delays else np.empty(0)


def _sums(series: Series) -> Mapping[str, Floats]:
    """Return the sums of both directions, or the total of both where it is alone."""
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
