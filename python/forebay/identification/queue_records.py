"""Samples of one queue at even intervals, from what is recorded: a run's or a link's Parquet, logs
of `tc -s -j qdisc`, and scrapes of Prometheus text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay._native import ScenarioError
from forebay.base.link_metrics import link_samples

Floats = NDArray[np.float64]

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


@dataclass(frozen=True)
class QueueRecord:
    """One queue over time; a row covers the interval before `time_s`.

    packets sent, signals and bytes are of that interval; queue_pkts is at its end. p: the law's
    probability at its end; None where it is not recorded.
    """

    name: str
    interval_s: float
    queue_pkts: Floats
    arrivals: Floats
    drops: Floats
    signals: Floats
    sent_bytes: Floats
    p: Floats | None = None

    @property
    def duration_s(self) -> float:
        return self.interval_s * len(self.queue_pkts)

    def window(self, start_s: float | None, end_s: float | None) -> QueueRecord:
        """The rows between two times since the start; the first sixth is left out where no start
        is given."""
        first = round((START * self.duration_s if start_s is None else start_s) / self.interval_s)
        last = None if end_s is None else round(end_s / self.interval_s)
        rows = slice(first, last)
        cut = replace(
            self,
            queue_pkts=self.queue_pkts[rows],
            arrivals=self.arrivals[rows],
            drops=self.drops[rows],
            signals=self.signals[rows],
            sent_bytes=self.sent_bytes[rows],
            p=None if self.p is None else self.p[rows],
        )
        if len(cut.queue_pkts) < FEWEST:
            raise ScenarioError(
                f"{self.name.rstrip(':')}: found {len(cut.queue_pkts)} samples from "
                f"{first * self.interval_s:.4g} s on, allowed: at least {FEWEST}"
            )
        return cut


def read_records(path: Path, interval_s: float | None = None) -> list[QueueRecord]:
    """Every queue that is recorded in a file or folder.

    interval_s: between the lines of a log that has no times. Raises `ScenarioError`.
    """
    file = path / SAMPLES if path.is_dir() else path
    if not file.is_file():
        raise ScenarioError(f"{path}: found no {file.name}, allowed: {ALLOWED}")
    if file.suffix == ".parquet":
        return _parquet(file)
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(f"{file}: found {error}, allowed: {ALLOWED}") from error
    if file.suffix in {".jsonl", ".json"} or re.match(r"\s*([\d.]+\s+)?[\[{]", text):
        return _counted(file, _tc(file, text), interval_s)
    if "forebay_link_" in text:
        return _counted(file, _prometheus(text), interval_s)
    raise ScenarioError(f"{file}: found another format, allowed: {ALLOWED}")


def _parquet(file: Path) -> list[QueueRecord]:
    import polars as pl

    try:
        table = pl.read_parquet(file)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ScenarioError(f"{file}: found no Parquet ({error}), allowed: {ALLOWED}") from error
    missing = {"time_s", "queue_pkts", "arrivals", "departed_bytes"} - set(table.columns)
    if missing:
        raise ScenarioError(f"{file}: found no {', '.join(sorted(missing))}, allowed: {ALLOWED}")
    keys = [key for key in KEYS if key in table.columns]
    found = []
    groups = table.partition_by(keys, as_dict=True, maintain_order=True) if keys else {(): table}
    for values, one in groups.items():
        time_s = one["time_s"].to_numpy()
        if len(time_s) < 2:
            continue

        def column(name: str, one: pl.DataFrame = one) -> Floats:
            return one[name].fill_null(0).to_numpy().astype(float)

        there = [name for name in SIGNALS if name in one.columns]
        p = None
        if "p" in one.columns and one["p"].null_count() < len(one):
            p = column("p")
            # A law that reports NaN has no probability.
            p = None if np.isnan(p).any() else p
        name = ", ".join(str(value) for value in values if str(value))
        found.append(
            QueueRecord(
                name or file.stem,
                float(np.median(np.diff(time_s))),
                column("queue_pkts"),
                column("arrivals"),
                _sum([column(key) for key in there if "drops" in key], len(one)),
                _sum([column(key) for key in there], len(one)),
                column("departed_bytes"),
                p,
            )
        )
    return found


def _sum(columns: Sequence[Floats], rows: int) -> Floats:
    return np.sum(columns, axis=0) if columns else np.zeros(rows)


class Moment(NamedTuple):
    """Counters of a queue since its start; None for what is not known."""

    name: str
    time_s: float | None
    queue_pkts: float
    sent_bytes: float
    sent: float
    drops: float
    marks: float
    p: float | None


def _tc(file: Path, text: str) -> Iterator[Moment]:
    """Lines of JSON as `tc -s -j qdisc` prints it, each with a time in s before it or not."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        stamp, _, rest = line.strip().partition(" ")
        timed = re.fullmatch(r"\d+(\.\d+)?", stamp) is not None
        try:
            entries = json.loads(rest if timed else line)
        except json.JSONDecodeError as error:
            raise ScenarioError(
                f"{file}:{number}: found no JSON ({error.msg}), allowed: a line of `tc -s -j qdisc`"
            ) from error
        for entry in entries if isinstance(entries, list) else [entries]:
            if not isinstance(entry, dict) or "bytes" not in entry:
                continue

            def value(*names: str, entry: dict[str, Any] = entry) -> float | None:
                numbers = (entry.get(name) for name in names)
                return next((float(n) for n in numbers if isinstance(n, int | float)), None)

            name = " ".join(
                str(entry[key]) for key in ("dev", "kind", "handle") if entry.get(key) is not None
            )
            counters = [("qlen",), ("bytes",), ("packets",), ("drops",), TC_MARKS]
            counts = [value(*names) or 0.0 for names in counters]
            yield Moment._make([name, float(stamp) if timed else None, *counts, value(*TC_P)])


def _prometheus(text: str) -> Iterator[Moment]:
    """Scrapes of `forebay link --metrics`, one after the other, with `# time SECONDS` before each
    or not."""
    time_s: float | None = None
    found: dict[str, dict[str, float]] = {}

    def ended() -> Iterator[Moment]:
        for way, values in found.items():
            counts = [values.get(key, 0.0) for key in LINK_COUNTERS]
            yield Moment._make([way, time_s, *counts, values.get("law_state")])
        found.clear()

    for line in text.splitlines():
        if stamp := re.fullmatch(r"# time ([\d.]+)", line):
            yield from ended()
            time_s = float(stamp[1])
        for sample in link_samples(line):
            name, labels, value = sample.name, sample.labels, sample.value
            of_part = "class" in labels or "quantile" in labels
            if of_part or (name == "law_state" and labels["name"] != "p"):
                continue
            way = labels.get("direction", "link")
            here = found.setdefault(way, {})
            if name in here and name != "drops_total":
                yield from ended()
                here = found.setdefault(way, {})
            here[name] = here.get(name, 0.0) + value if name == "drops_total" else value
    yield from ended()


def _counted(file: Path, moments: Iterator[Moment], interval_s: float | None) -> list[QueueRecord]:
    """Records of counters that only grow, on a grid of even times."""
    queues: dict[str, list[Moment]] = {}
    for moment in moments:
        queues.setdefault(moment.name, []).append(moment)
    found = []
    for name, rows in queues.items():
        if len(rows) < 3:
            continue
        timed = all(row.time_s is not None for row in rows)
        if not timed and interval_s is None:
            raise ScenarioError(
                f"{file}: found no times, allowed: a time in s before each sample, or --interval"
            )
        table: Floats = np.array([[x or 0.0 for x in row[1:]] for row in rows], float)
        steps = np.arange(len(rows)) * float(interval_s or 1)
        time_s: Floats = np.asarray(table[:, 0] if timed else steps, float)
        step_s = float(np.median(np.diff(time_s)))
        if not step_s > 0:
            raise ScenarioError(f"{file}: found times that do not grow, allowed: one per sample")
        grid: Floats = np.asarray(np.arange(time_s[0], time_s[-1] + 0.5 * step_s, step_s), float)

        even = [np.interp(grid, time_s, column) for column in table[:, 1:].T]
        queue, p = even[0], even[5]
        sent_bytes, sent, drops, marks = (np.diff(column) for column in even[1:5])
        found.append(
            QueueRecord(
                name,
                step_s,
                queue[1:],
                np.maximum(sent + drops + np.diff(queue), 0.0),
                drops,
                drops + marks,
                sent_bytes,
                p[1:] if all(row.p is not None for row in rows) else None,
            )
        )
    if not found:
        raise ScenarioError(
            f"{file}: found fewer than three samples of a queue, allowed: {ALLOWED}"
        )
    return found
