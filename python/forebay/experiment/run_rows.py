"""The stored form of a run: the digest of all that its numbers depend on, a row for each of its
links in columns that any reader of Parquet knows, and its arrays in a file of their own.

In that file each array is a list: `pl.read_parquet(file).explode("samples.time_s",
"samples.queue_pkts")` makes a table of samples.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay._base.metrics import CLASS_METRICS, COST, METRICS, TRAFFIC_METRICS
from forebay._native import RESULTS_VERSION, ClassObserved, GoodputSeries, Observed, __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forebay._native import LawInfo, Plan, Run, TrafficObserved

#: What the run was, in words and numbers; `config` and `seed` are what finds it.
FACTS: dict[str, Any] = {
    "config": pl.String,
    "seed": pl.UInt64,
    "link": pl.UInt16,
    "link_name": pl.String,
    "title": pl.String,
    "law": pl.String,
    "parameters": pl.String,
    "queue": pl.String,
    "rate_bps": pl.UInt64,
    "rtt_s": pl.Float64,
    "flows": pl.UInt32,
    "duration_s": pl.Float64,
    "engine": pl.String,
    "fault": pl.String,
    COST: pl.Float64,
}
CLASSES = pl.List(pl.Struct({"name": pl.String, **dict.fromkeys(CLASS_METRICS, pl.Float64)}))
TRAFFIC = pl.List(pl.Struct({"traffic": pl.UInt32, **dict.fromkeys(TRAFFIC_METRICS, pl.Float64)}))
#: Columns that are lists, which a cell of CSV cannot hold.
LISTS = {"classes": CLASSES, "traffic": TRAFFIC}
SCHEMA: dict[str, Any] = {**FACTS, **dict.fromkeys(METRICS, pl.Float64), **LISTS}
#: What tells one row from another.
KEY = ("config", "seed", "link")
#: Bytes of a digest: among a million runs two are alike once in 10^26 stores.
DIGEST_BYTES = 16


def version() -> str:
    """Runs of another version are not found: the simulator's numbers, or what is kept of a run,
    were different then."""
    kept = json.dumps([list(METRICS), list(CLASS_METRICS), list(TRAFFIC_METRICS)])
    return f"results-{RESULTS_VERSION}-{hashlib.blake2b(kept.encode(), digest_size=3).hexdigest()}"


@dataclass(frozen=True)
class MadeBy:
    """The engine that makes a run, and what its numbers depend on beside the scenario."""

    engine: str
    version: str

    @property
    def told(self) -> tuple[str, ...]:
        """What a digest has of it; nothing of the simulator, whose version is the store's."""
        return (self.engine, self.version) if self.version else ()


SIMULATED = MadeBy("packets", "")


def configs(
    plan: Plan, point: int, made: MadeBy = SIMULATED, *, prototypes: bool = False
) -> list[str | None]:
    """For each law, the digest of the point under it: link, traffic and law with every default.

    All that the numbers depend on beside the seed is in it; how the file is spelled, its prose and
    its other points are not. None for a prototype in Python: what its code does no text says, so
    its runs are not stored. With `prototypes`, the contents of its file say it, and what that
    imports does not count; None for one without a file.
    """
    scenario, laws = plan.resolved(point)
    if prototypes:
        at = plan.points[point].laws
        laws = [
            _in_python(info) if law is None else law for law, info in zip(laws, at, strict=True)
        ]
    return [None if law is None else _digest(scenario, law, *made.told) for law in laws]


def _in_python(law: LawInfo) -> str | None:
    """What tells a prototype from others: `source` has a hash of its file."""
    told = [__version__, law.source, law.params, law.queue, law.target_pkts]
    return json.dumps(told) if law.source else None


def _digest(*texts: str) -> str:
    hash_ = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        data = text.encode()
        hash_.update(len(data).to_bytes(8, "big") + data)
    return hash_.hexdigest()


@dataclass(frozen=True)
class LawAtPoint:
    """What all runs of a law at a point have in common."""

    config: str
    columns: dict[str, Any]

    def run(self, run: Run) -> list[dict[str, Any]]:
        """The rows of a run that has ended."""
        cost = run.metrics[COST]
        return [self._row(run.seed, i, one, cost) for i, one in enumerate(run.links)]

    def fault(self, seed: int, why: str) -> list[dict[str, Any]]:
        """The row of a run that failed."""
        return [{**self.columns, "seed": seed, "link": 0, "fault": why.rstrip()}]

    def _row(self, seed: int, number: int, one: Observed, cost_s: float) -> dict[str, Any]:
        return {
            **self.columns,
            "seed": seed,
            "link": number,
            "link_name": one.link,
            COST: cost_s,
            **{name: one.metrics[name] for name in METRICS},
            "classes": [{"name": each.name, **each.metrics} for each in one.classes],
            "traffic": [{"traffic": each.traffic, **each.metrics} for each in one.traffic],
        }


def law_at_point(
    plan: Plan, point: int, law: int, config: str, made: MadeBy = SIMULATED
) -> LawAtPoint:
    """Of a law at a point by their numbers, with the digest of both."""
    at, of_law = plan.points[point], plan.points[point].laws[law]
    rtts = [rtt for traffic in at.traffic for rtt in traffic.rtts_s]
    columns = {
        "config": config,
        "title": plan.title,
        "law": of_law.kind or of_law.label,
        "parameters": json.dumps(dict(of_law.params)),
        "queue": of_law.queue,
        "rate_bps": at.links[0].rate_bps,
        "rtt_s": sum(rtts) / len(rtts) if rtts else None,
        "flows": sum(traffic.flows for traffic in at.traffic),
        "duration_s": at.duration_s,
        "engine": made.engine,
    }
    return LawAtPoint(config, columns)


def table(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Rows as a table with every column."""
    listed = list(rows)
    return pl.DataFrame({name: [row.get(name) for row in listed] for name in SCHEMA}, SCHEMA)


#: What stands before the name of a column of samples, and of an array of each class.
SAMPLE_COLUMN, CLASS_COLUMN = "samples.", "classes."
#: Arrays of a link.
ARRAYS = (
    "delay_s",
    "delay_packets",
    "flow_traffic",
    "flow_goodput_bps",
    "transfer_traffic",
    "transfer_packets",
    "transfer_s",
)
OF_CLASS = {"delay_s": pl.Float64, "delay_packets": pl.UInt64}
GOODPUT: dict[str, Any] = {
    "traffic": pl.UInt32,
    "flows": pl.UInt32,
    "interval_s": pl.Float64,
    "quantiles": pl.List(pl.Float64),
    "columns": pl.List(pl.List(pl.Float32)),
}


def packed(run: Run) -> bytes:
    """The arrays of a run as Parquet."""
    links = run.links
    names = dict.fromkeys(name for link in links for name in link.samples)
    columns = [
        _lists(f"{SAMPLE_COLUMN}{name}", [link.samples.get(name) for link in links])
        for name in names
    ]
    columns += [_lists(name, [getattr(link, name) for link in links]) for name in ARRAYS]
    for name, inner in OF_CLASS.items():
        of_classes = [[pl.Series(getattr(each, name)) for each in link.classes] for link in links]
        columns.append(pl.Series(f"{CLASS_COLUMN}{name}", of_classes, pl.List(pl.List(inner))))
    goodput = [
        [
            {name: getattr(series, name) for name in GOODPUT}
            | {"columns": [column.tolist() for column in series.columns]}
            for series in link.goodput
        ]
        for link in links
    ]
    columns.append(pl.Series("goodput", goodput, pl.List(pl.Struct(GOODPUT))))
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def _lists(name: str, arrays: list[NDArray[Any] | None]) -> pl.Series:
    series = [None if array is None else pl.Series(array) for array in arrays]
    inner = next(one.dtype for one in series if one is not None)
    return pl.Series(name, series, pl.List(inner))


def observed(
    link: str,
    metrics: dict[str, float],
    classes: Sequence[tuple[str, dict[str, float]]],
    traffic: list[TrafficObserved],
    arrays: dict[str, pl.Series | None],
) -> Observed:
    """Return the observations at a link, from a store.

    classes: name and metrics of each. arrays: the row of `packed` by its columns; empty for a run
    of which only metrics are kept.
    """
    found = {name: values for name, values in arrays.items() if values is not None}
    return Observed(
        link=link,
        metrics=metrics,
        samples={
            name.removeprefix(SAMPLE_COLUMN): values.to_numpy()
            for name, values in found.items()
            if name.startswith(SAMPLE_COLUMN)
        },
        classes=[
            ClassObserved(
                name,
                of_class,
                *(
                    found[f"{CLASS_COLUMN}{each}"][i].to_numpy() if found else None
                    for each in OF_CLASS
                ),
            )
            for i, (name, of_class) in enumerate(classes)
        ],
        traffic=traffic,
        goodput=[
            GoodputSeries(
                **series
                | {"columns": [np.array(column, np.float32) for column in series["columns"]]}
            )
            for series in found.get("goodput", ())
        ],
        **{name: found[name].to_numpy() if found else None for name in ARRAYS},
    )
