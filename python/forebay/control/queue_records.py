"""Samples of one queue at even intervals, read from records.

Records are the Parquet files of a run or a link, logs of `tc -s -j qdisc`, and scrapes of
Prometheus text.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay._base import input_file
from forebay._base.errors import FormatError, plain
from forebay._base.input_file import PREFIX, link_samples
from forebay._native import ScenarioError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: The file in a folder of results.
SAMPLES = "samples.parquet"
#: Without a choice, this share of the time at the start is left out: flows start there.
START = 1 / 6
#: Fewest samples that say anything.
FEWEST = 100
#: Columns of a run that count signals: drops and marks.
SIGNALS = ("early_drops", "forced_drops", "overflow_drops", "marks")
KEYS = ("law", "point", "seed", "link")
#: Metrics of `forebay link` in the order of `Moment`.
LINK_COUNTERS = (
    "current_queue_length", "bytes_total", "packets_total", "drops_total", "marks_total",
)  # fmt: skip
#: Names in JSON of `tc -s -j qdisc` (iproute2) that count marks and give the law's probability.
TC_MARKS = ("ecn_mark", "marked", "ecn_marks")
TC_P = ("prob", "probability")
ALLOWED = (
    "a folder with samples.parquet, a .parquet, JSON lines of `tc -s -j qdisc` (.jsonl, .json), or "
    "scrapes of Prometheus text (.prom, .txt)"
)
#: Largest log that is read, decompressed.
MOST_BYTES = 512 << 20
#: Counters and times beyond this are not read as such: floats count no further in whole numbers.
LARGEST = 2.0**63
#: How the time before a sample is written; a comma is the decimal point of some locales.
STAMP = re.compile(r"\d{1,12}(?:[.,]\d{0,20})?")


@dataclass(frozen=True)
class QueueRecord:
    """One queue over time; a row covers the interval before its sample.

    Attributes
    ----------
    name : str
        Device, kind and handle of a qdisc, or law, point, seed and link of a run.
    interval_s : float
        Time between samples.
    queue_pkts : array
        Queue at the end of each interval.
    arrivals, drops, signals, sent_bytes : array
        Packets that came, packets dropped, packets dropped or marked, and bytes sent, in each
        interval.
    p : array or None
        The law's probability at the end of each interval; None where it is not recorded.
    parts : tuple of int
        Rows at which a part of the record begins; between two parts time is missing.
    remarks : tuple of str
        What was met in the record, and what was done with it.
    children : int
        How many other queues of the file are parts of this one; its counters are sums of theirs.
    """

    name: str
    interval_s: float
    queue_pkts: Floats
    arrivals: Floats
    drops: Floats
    signals: Floats
    sent_bytes: Floats
    p: Floats | None = None
    parts: tuple[int, ...] = (0,)
    remarks: tuple[str, ...] = ()
    children: int = 0

    @property
    def duration_s(self) -> float:
        """Duration of the record in seconds."""
        return self.interval_s * len(self.queue_pkts)

    @property
    def growth_pkts(self) -> float:
        """The growth of the queue over all parts, in packets."""
        ends = [*self.parts[1:], len(self.queue_pkts)]
        queue = self.queue_pkts
        return sum(
            float(queue[b - 1] - queue[a]) for a, b in zip(self.parts, ends, strict=True) if b > a
        )

    def window(self, start_s: float | None, end_s: float | None) -> QueueRecord:
        """Return the rows between two times since the start.

        The first sixth is left out where no start is given. Raises `ScenarioError` if too few rows
        remain.
        """
        rows = len(self.queue_pkts)
        first = round((START * self.duration_s if start_s is None else start_s) / self.interval_s)
        last = rows if end_s is None else min(rows, round(end_s / self.interval_s))
        if last - first < FEWEST:
            raise ScenarioError(
                f"{self.name.rstrip(':')}: has {max(0, last - first)} samples from "
                f"{first * self.interval_s:.4g} s on; at least {FEWEST} are needed"
            )
        cut = slice(first, last)
        later = (start - first for start in self.parts if first < start < last)
        return replace(
            self,
            queue_pkts=self.queue_pkts[cut],
            arrivals=self.arrivals[cut],
            drops=self.drops[cut],
            signals=self.signals[cut],
            sent_bytes=self.sent_bytes[cut],
            p=None if self.p is None else self.p[cut],
            parts=(0, *later),
        )


def read_records(path: Path, interval_s: float | None = None) -> list[QueueRecord]:
    """Return every queue that is recorded in a file or folder.

    Parameters
    ----------
    path : Path
        A folder of results, a Parquet with samples, a log of `tc`, or scrapes of Prometheus text;
        the texts may be compressed.
    interval_s : float, optional
        Time between the lines of a log that has no times.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or has no samples of a queue.
    """
    file = path / SAMPLES if path.is_dir() else path
    name = input_file.printable(file)
    if not file.is_file():
        raise ScenarioError(f"{name}: does not exist or is no file; expected {ALLOWED}")
    if file.suffix == ".parquet":
        return _parquet(file, name)
    text = input_file.text(input_file.read(file, MOST_BYTES), name)
    log = Log(name)
    if {".jsonl", ".json"} & set(file.suffixes) or re.match(r"\s*([^\s\[{#]+\s+)?[\[{]", text):
        return _counted(log, _tc(log, text, interval_s), interval_s)
    if PREFIX in text:
        return _counted(log, _prometheus(log, text, interval_s), interval_s)
    raise ScenarioError(f"{name}: is in no format that is read; expected {ALLOWED}")


# --- results of runs ----------------------------------------------------------------------------


def _parquet(file: Path, name: str) -> list[QueueRecord]:
    import polars as pl

    try:
        table = input_file.read_parquet(file)
        missing = {"time_s", "queue_pkts", "arrivals", "departed_bytes"} - set(table.columns)
        if missing:
            raise FormatError(f"it has no column {', '.join(sorted(missing))}")
        keys = [key for key in KEYS if key in table.columns]
        groups = table.partition_by(keys, as_dict=True, maintain_order=True) if keys else None
        records = [
            _record(", ".join(str(value) for value in values if str(value)) or file.stem, rows)
            for values, rows in (groups or {(): table}).items()
            if len(rows) >= 2
        ]
    except (FormatError, pl.exceptions.PolarsError, TypeError, ValueError) as error:
        reason = plain(str(error).strip().partition("\n")[0])
        raise ScenarioError(f"{name}: has no samples of a queue: {reason}") from error
    if not records:
        raise ScenarioError(f"{name}: has no two samples of a queue")
    return records


def _record(name: str, rows: Any) -> QueueRecord:
    """Return one queue of a table. Raises `FormatError` for numbers that no queue has."""

    def column(key: str) -> Floats:
        values = np.asarray(rows[key].fill_null(0).to_numpy(), float)
        if not np.all((values >= 0) & (values < LARGEST)):
            raise FormatError(f"column {key} has negative numbers, or none")
        return values

    time_s = np.asarray(rows["time_s"].to_numpy(), float)
    steps_s = np.diff(time_s)
    if not np.all(np.abs(time_s) < LARGEST) or not np.any(steps_s > 0):
        raise FormatError("the times in time_s do not grow")
    interval_s = float(np.median(steps_s[steps_s > 0]))
    uneven = np.flatnonzero(np.abs(steps_s - interval_s) > 0.5 * interval_s) + 1
    remarks: tuple[str, ...] = ()
    if len(uneven):
        at_s = f"{time_s[uneven[0] - 1]:.6g} s"
        remarks = (
            f"after {at_s} the samples are not evenly spaced"
            + (f", and {len(uneven) - 1} times more" if len(uneven) > 1 else "")
            + ": the record was split there",
        )
    signal_keys = [key for key in SIGNALS if key in rows.columns]
    p = None
    if "p" in rows.columns and rows["p"].null_count() < len(rows):
        # A law that reports NaN has no probability.
        p = None if np.isnan(np.asarray(rows["p"].fill_null(0), float)).any() else column("p")
    none = np.zeros(len(rows))
    return QueueRecord(
        plain(name),
        interval_s,
        column("queue_pkts"),
        column("arrivals"),
        sum((column(key) for key in signal_keys if "drops" in key), none),
        sum((column(key) for key in signal_keys), none),
        column("departed_bytes"),
        p,
        (0, *uneven.tolist()),
        remarks,
    )


# --- logs ---------------------------------------------------------------------------------------


@dataclass
class Log:
    """A log while it is read.

    Attributes
    ----------
    name : str
        The file's name in errors.
    skipped : Counter of str
        Lines that say nothing, by what they are.
    decimal_comma : bool
        True if a time has a comma in the place of the decimal point.
    """

    name: str
    skipped: Counter[str] = field(default_factory=Counter)
    decimal_comma: bool = False

    def remarks(self) -> tuple[str, ...]:
        """Return what was left out, and how times were read."""
        lines = [f"left out: {count} {reason}" for reason, count in self.skipped.items()]
        if self.decimal_comma:
            lines.append("the times have a decimal comma, which is read as a point")
        return tuple(lines)

    def time_s(self, number: int, stamp: str, interval_s: float | None) -> float | None:
        """Return the time of a sample in seconds, from the text on the line before the sample.

        A text that is not a number gives None if `interval_s` is known, since the samples are then
        counted instead.

        Raises
        ------
        ScenarioError
            If the text is not a number and `interval_s` is None.
        """
        if STAMP.fullmatch(stamp):
            self.decimal_comma |= "," in stamp
            return float(stamp.replace(",", "."))
        if interval_s is not None:
            self.skipped["times that are not numbers, because the interval was given"] += 1
            return None
        excerpt = plain(stamp)[:40]
        reason = "this `date` has no %N, as BusyBox's; " if "N" in stamp else ""
        raise ScenarioError(
            f'{self.name}:{number}: the time "{excerpt}" before the sample is not a number of '
            f"seconds; {reason}record with the commands in docs/howto/identify.md, or give the "
            "interval"
        )


class Moment(NamedTuple):
    """Counters of a queue since its start; None for what is not known.

    Attributes
    ----------
    queue : str
        What distinguishes the queue from others of the log.
    name : str
        What it is called.
    line : int
        Line of the log.
    parent : str
        The queue that this one is a part of; empty for none.
    """

    queue: str
    name: str
    line: int
    parent: str
    time_s: float | None
    queue_pkts: float
    sent_bytes: float
    sent: float
    drops: float
    marks: float
    p: float | None


def _tc(log: Log, text: str, interval_s: float | None) -> Iterator[Moment]:
    """Read lines of JSON from `tc -s -j qdisc`, each with a time in s before it or without."""
    lines = text.split("\n")
    last = next((i for i in range(len(lines), 0, -1) if lines[i - 1].strip()), 0)
    sampled = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        begins = re.search(r"[\[{]", line)
        if begins is None:
            log.skipped["lines without a sample"] += 1
            continue
        stamp = line[: begins.start()].strip()
        time_s = log.time_s(number, stamp, interval_s) if stamp else None
        try:
            entries = json.loads(line[begins.start() :])
        except (ValueError, RecursionError) as error:
            if number == last and sampled:
                # The recorder was stopped while it wrote.
                log.skipped["line that is cut off at the end"] += 1
                continue
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise ScenarioError(
                f"{log.name}:{number}: is no line of `tc -s -j qdisc`: {plain(reason)}"
            ) from error
        sampled = True
        occurrences: Counter[str] = Counter()
        for entry in entries if isinstance(entries, list) else [entries]:
            if not isinstance(entry, dict) or "bytes" not in entry:
                log.skipped["entries without counters (tc prints them with -s)"] += 1
                continue
            yield _moment(log, number, time_s, entry, occurrences)


def _moment(
    log: Log, number: int, time_s: float | None, entry: Mapping[str, Any], occurrences: Counter[str]
) -> Moment:
    """Return an entry of a line; `occurrences` counts those before it, by queue."""

    def value(*keys: str) -> float | None:
        key = next((key for key in keys if entry.get(key) is not None), None)
        if key is None:
            return None
        count = entry[key]
        if (
            isinstance(count, bool)
            or not isinstance(count, int | float)
            or not (0 <= count < LARGEST)
        ):
            excerpt = plain(str(count))[:40]
            raise ScenarioError(f'{log.name}:{number}: {key} is "{excerpt}"; expected a count')
        return float(count)

    def word(key: str) -> str:
        return plain(str(entry.get(key) or ""))[:100]

    device, kind, handle, parent = (word(key) for key in ("dev", "kind", "handle", "parent"))
    # A qdisc that is replaced gets another handle in the same place.
    place = "root" if entry.get("root") else parent or handle
    queue = f"{device} {kind} {place}"
    occurrences[queue] += 1
    if occurrences[queue] > 1:
        queue += f" #{occurrences[queue]}"
    name = " ".join(filter(None, (device, kind, handle)))
    if parent and not entry.get("root"):
        name += f" (parent {parent})"
    keys = [("qlen",), ("bytes",), ("packets",), ("drops",), TC_MARKS]
    counts = [value(*names) or 0.0 for names in keys]
    above = f"{device} {_major(parent)}" if parent and not entry.get("root") else ""
    return Moment._make([queue, name, number, above, time_s, *counts, value(*TC_P)])


def _major(handle: str) -> str:
    """Return the part of a handle or a class that names the qdisc; mq has 0, or nothing."""
    return handle.partition(":")[0].lstrip("0") or "0"


def _prometheus(log: Log, text: str, interval_s: float | None) -> Iterator[Moment]:
    """Read consecutive scrapes of `forebay link --metrics`.

    A line `# time SECONDS` may precede each scrape.
    """
    time_s: float | None = None
    number = 0
    directions: dict[str, dict[str, float]] = {}

    def ended() -> Iterator[Moment]:
        for way, values in directions.items():
            counts = [values.get(key, 0.0) for key in LINK_COUNTERS]
            rest = [*counts, values.get("law_state")]
            yield Moment._make([way, way, number, "", time_s, *rest])
        directions.clear()

    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("# time "):
            yield from ended()
            time_s = log.time_s(number, line.removeprefix("# time ").strip(), interval_s)
        samples = list(link_samples(line))
        if not samples and line.startswith(PREFIX):
            log.skipped["lines that are no metrics"] += 1
        for sample in samples:
            name, labels, value = sample.name, sample.labels, sample.value
            of_part = "class" in labels or "quantile" in labels
            if of_part or (name == "law_state" and labels.get("name") != "p"):
                continue
            if name in (*LINK_COUNTERS, "law_state") and not 0 <= value < LARGEST:
                if name == "law_state" and math.isnan(value):
                    continue
                raise ScenarioError(f"{log.name}:{number}: {name} is {value}; expected a count")
            way = plain(labels.get("direction", "link"))
            direction = directions.setdefault(way, {})
            if name in direction and name != "drops_total":
                yield from ended()
                direction = directions.setdefault(way, {})
            direction[name] = direction.get(name, 0.0) + value if name == "drops_total" else value
    yield from ended()


def _counted(log: Log, moments: Iterator[Moment], interval_s: float | None) -> list[QueueRecord]:
    """Return the records of counters, on grids of even times."""
    queues: dict[str, list[Moment]] = {}
    for moment in moments:
        queues.setdefault(moment.queue, []).append(moment)
    long = {queue: rows for queue, rows in queues.items() if len(rows) >= FEWEST_IN_PART}
    if not long:
        raise ScenarioError(
            f"{log.name}: has fewer than {FEWEST_IN_PART} samples of a queue; expected {ALLOWED}"
        )
    short = [rows[0].name for queue, rows in queues.items() if queue not in long]
    if short:
        log.skipped[f"queues with fewer than {FEWEST_IN_PART} samples ({short[0]})"] = len(short)
    parents = Counter(rows[0].parent for rows in long.values() if rows[0].parent)
    records = []
    for rows in long.values():
        record = _on_grid(log, rows, interval_s)
        device, _, handle = _names(rows[0].name)
        own = f"{device} {_major(handle)}" if handle else ""
        # The children of mq have its handle.
        records.append(replace(record, children=0 if own == rows[0].parent else parents[own]))
    return records


def _names(name: str) -> tuple[str, str, str]:
    """Return device, kind and handle of a name; empty where it has fewer words."""
    device, kind, handle, *_ = [*name.split(), "", "", ""]
    return device, kind, handle


def _on_grid(log: Log, rows: Sequence[Moment], interval_s: float | None) -> QueueRecord:
    timed = all(row.time_s is not None for row in rows)
    if not timed and interval_s is None:
        raise ScenarioError(
            f"{log.name}: has no times; expected a time in s before each sample, or --interval"
        )
    if timed:
        times_s = np.array([row.time_s for row in rows], float)
    else:
        times_s = np.arange(len(rows)) * float(interval_s or 1)
    counts = np.array([(row.sent_bytes, row.sent, row.drops, row.marks) for row in rows], float)
    record = counter_parts(times_s, counts, [row.line for row in rows], log.name)
    gauges = np.array([(row.queue_pkts, row.p or 0.0) for row in rows], float)[record.samples]
    columns: list[list[Floats]] = []
    for part in record.parts:
        part_s = record.times_s[part]
        # No two samples of a part are far apart, so the grid has few times more than they.
        grid = np.arange(part_s[0], part_s[-1] + 0.5 * record.step_s, record.step_s)
        both = np.hstack([record.counters[part], gauges[part]])
        even = [np.interp(grid, part_s, column) for column in both.T]
        sent_bytes, sent, drops, marks = (np.diff(column) for column in even[:4])
        arrivals = np.maximum(sent + drops + np.diff(even[4]), 0.0)
        columns.append([even[4][1:], arrivals, drops, drops + marks, sent_bytes, even[5][1:]])
    queue, arrivals, drops, signals, sent_bytes, p = (
        np.concatenate(column) for column in zip(*columns, strict=True)
    )
    starts = itertools.accumulate((len(part[0]) for part in columns[:-1]), initial=0)
    return QueueRecord(
        rows[0].name,
        record.step_s,
        queue,
        arrivals,
        drops,
        signals,
        sent_bytes,
        p if all(row.p is not None for row in rows) else None,
        tuple(starts),
        (*log.remarks(), *record.remarks),
    )


# --- counters -----------------------------------------------------------------------------------

#: Counters by column, as remarks call them.
COUNTERS = ("bytes", "packets", "drops", "marks")
#: Size at which a counter of 32 bits begins again.
WRAP = 2.0**32
#: A counter has wrapped if it was this far, and then grew by no more than so many times what it
#: grows otherwise; else the counter was reset.
WRAP_FROM, WRAP_GROWTH = 2.0**31, 10.0
#: Samples that are farther apart than so many usual intervals are not joined.
GAP = 10.0
#: If the counters have grown over a gap by no more than so many times what they grow in an
#: interval, the clock has stepped, and no time has passed.
STEP_GROWTH = 3.0
#: Fewest samples between two cuts that are used.
FEWEST_IN_PART = 4
#: Most events of a kind that are reported one by one.
MOST_EVENTS = 3
#: The consequence of an event that splits the record.
SPLIT = "the record was split there"
#: The steps with an event, the event of a step in words, and its consequence.
EventKind = tuple[Flags, Callable[[int], str], str]


@dataclass(frozen=True)
class CounterParts:
    """The parts of a record in which the clock and every counter grow.

    Attributes
    ----------
    times_s : array of shape (n,)
        Times of the samples.
    counters : array of shape (n, 4)
        Counters at these times, continued where they have wrapped.
    samples : array of shape (n,)
        Numbers of the samples that remain, of those that were given.
    parts : list of slice
        Rows of each part.
    step_s : float
        Usual interval between samples.
    remarks : list of str
        What was met, where, and what was done.
    """

    times_s: Floats
    counters: Floats
    samples: NDArray[np.int64]
    parts: Sequence[slice]
    step_s: float
    remarks: Sequence[str]


def counter_parts(
    times_s: Floats, counters: Floats, lines: Sequence[int], where: str
) -> CounterParts:
    """Return the parts of a record whose clock and counters grow.

    The counters of a queue restart if it is replaced, a counter of 32 bits wraps, NTP sets a clock,
    and a recorder pauses. An interval that contains such an event is left out; those on
    both sides are used.

    Parameters
    ----------
    times_s : array of shape (n,)
        Times of the samples in the order in which they were recorded.
    counters : array of shape (n, 4)
        Counters in the order of `COUNTERS`.
    lines : sequence of int
        Line of each sample in its file, for remarks.
    where : str
        Name of the file in errors.

    Raises
    ------
    ScenarioError
        If the times do not grow, or no part is long enough.
    """
    remarks: list[str] = []
    samples = np.flatnonzero(np.append(np.diff(times_s) != 0, True))
    if len(samples) < len(times_s):
        count = len(times_s) - len(samples)
        remarks.append(f"{count} samples have the time of the sample after them, and are left out")
    times_s, counters, line = times_s[samples], counters[samples], np.asarray(lines)[samples]
    steps_s = np.diff(times_s)
    if not np.any(steps_s > 0):
        raise ScenarioError(f"{where}: the times of the samples do not grow")
    step_s = float(np.median(steps_s[steps_s > 0]))
    counters, wrapped = _unwrapped(counters)
    growth = np.diff(counters, axis=0)
    reset = np.any(growth < 0, axis=1)
    back, ahead = steps_s < 0, steps_s > GAP * step_s
    usual = np.median(growth[~(reset | back | ahead)], axis=0) if len(growth) else growth
    stepped = back | (ahead & ~reset & (growth[:, 0] <= STEP_GROWTH * max(usual[0], 1.0)))
    silent = ahead & ~stepped
    remarks += _events(line, _kinds(steps_s, step_s, stepped, silent, reset, wrapped))
    ends = [0, *(np.flatnonzero(reset | back | ahead) + 1).tolist(), len(times_s)]
    pieces = [slice(a, b) for a, b in itertools.pairwise(ends)]
    long = [piece for piece in pieces if piece.stop - piece.start >= FEWEST_IN_PART]
    lost = len(times_s) - sum(piece.stop - piece.start for piece in long)
    if not long:
        reasons = "; ".join(remarks)
        raise ScenarioError(
            f"{where}: has no {FEWEST_IN_PART} samples in a row over which the clock and the "
            "counters grow" + (f" ({reasons})" if reasons else "")
        )
    if lost:
        remarks.append(f"{lost} samples between cuts are too few to say anything, and are left out")
    return CounterParts(times_s, counters, samples, long, step_s, remarks)


def _unwrapped(counters: Floats) -> tuple[Floats, Flags]:
    """Return the counters continued beyond 2^32, and at which steps which of them has wrapped."""
    growth = np.diff(counters, axis=0)
    flags = np.zeros(growth.shape, bool)
    for column in range(growth.shape[1]):
        steps = growth[:, column]
        grown = steps[steps > 0]
        largest = WRAP_GROWTH * float(np.quantile(grown, 0.99)) if len(grown) else 0.0
        before = counters[:-1, column]
        flags[:, column] = (
            (steps < 0) & (before >= WRAP_FROM) & (before < WRAP) & (steps + WRAP <= largest)
        )
    more = np.vstack([np.zeros((1, growth.shape[1])), np.cumsum(WRAP * flags, axis=0)])
    return counters + more, flags


def _kinds(
    steps_s: Floats, step_s: float, stepped: Flags, silent: Flags, reset: Flags, wrapped: Flags
) -> list[EventKind]:
    """Return the kinds of events that a record of counters may have."""
    kinds: list[EventKind] = [
        (stepped, lambda i: f"the clock stepped by {_signed_s(steps_s[i] - step_s)}", SPLIT),
        (silent, lambda i: f"there is no sample for {_short(steps_s[i])} s", SPLIT),
        (reset, lambda _: "the counters restart", SPLIT),
    ]
    for name, flags in zip(COUNTERS, wrapped.T, strict=True):
        text = f"the counter of {name} passed 2^32"
        kinds.append((flags, lambda _, text=text: text, "it was continued"))  # type: ignore[misc]
    return kinds


def _events(line: NDArray[np.int64], kinds: Iterable[EventKind]) -> list[str]:
    """Return a remark on the events of each kind: the first ones, how many more, what was done."""
    remarks = []
    for flags, event, consequence in kinds:
        rows = np.flatnonzero(flags).tolist()
        first = [f"{event(row)} at line {line[row + 1]}" for row in rows[:MOST_EVENTS]]
        more = f", and {len(rows) - len(first)} times more" if len(rows) > len(first) else ""
        if rows:
            remarks.append(f"{', '.join(first)}{more}: {consequence}")
    return remarks


def _signed_s(seconds: float) -> str:
    return f"{'−' if seconds < 0 else '+'}{_short(abs(seconds))} s"


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 1000 else f"{seconds:.3g}"
