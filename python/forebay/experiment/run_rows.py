"""The stored form of a run.

A run is stored under the digest of everything that its numbers depend on (`configs`). It has a row
for each of its links, in columns that any reader of Parquet understands (`SCHEMA`), and its arrays
are in a file of their own (`packed`). In that file each array is a list:
`pl.read_parquet(file).explode("samples.time_s", "samples.queue_pkts")` makes a table of samples.
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

#: Columns that describe a run; `config` and `seed` identify it.
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
#: Columns of lists, which a cell of CSV cannot hold.
LISTS = {"classes": CLASSES, "traffic": TRAFFIC}
SCHEMA: dict[str, Any] = {**FACTS, **dict.fromkeys(METRICS, pl.Float64), **LISTS}
#: The columns that identify a row.
KEY = ("config", "seed", "link")
#: Length of a digest in bytes: two of a million runs share a digest in one of 10^26 stores.
DIGEST_BYTES = 16


def version() -> str:
    """Return the version of stored runs; runs of another version are not reused.

    It changes with the numbers of the simulator and with the metrics that are stored.
    """
    columns = json.dumps([list(METRICS), list(CLASS_METRICS), list(TRAFFIC_METRICS)])
    return (
        f"results-{RESULTS_VERSION}-{hashlib.blake2b(columns.encode(), digest_size=3).hexdigest()}"
    )


@dataclass(frozen=True)
class MadeBy:
    """The engine that makes a run, and what its numbers depend on besides the scenario.

    Attributes
    ----------
    engine : str
        Name of the engine.
    version : str
        Version of the engine (`Engine.version`); empty for the simulator.
    """

    engine: str
    version: str

    @property
    def digest_parts(self) -> tuple[str, ...]:
        """Texts that a digest includes.

        The simulator has none, since its version is that of the store.
        """
        return (self.engine, self.version) if self.version else ()


SIMULATED = MadeBy("packets", "")


def configs(
    plan: Plan, point: int, made_by: MadeBy = SIMULATED, *, prototypes: bool = False
) -> list[str | None]:
    """Return the digest of a point under each law.

    It covers the link, the traffic and the law with every default: everything that the numbers
    depend on besides the seed. The scenario's spelling, its prose and other points do not count.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    point : int
        Index of the point.
    made_by : MadeBy, default SIMULATED
        The engine of the runs.
    prototypes : bool, default False
        True to include laws in Python, which are digested by the contents of their file, without
        the modules that it imports.

    Returns
    -------
    list[str | None]
        A digest per law; None for a law in Python, whose runs are not stored, unless `prototypes`
        is true and the law has a file.
    """
    scenario, laws = plan.resolved(point)
    if prototypes:
        at = plan.points[point].laws
        laws = [
            _in_python(info) if law is None else law for law, info in zip(laws, at, strict=True)
        ]
    return [None if law is None else _digest(scenario, law, *made_by.digest_parts) for law in laws]


def _in_python(law: LawInfo) -> str | None:
    """Return a text that identifies a law written in Python; None for a law of the registry.

    The law's `source` has a hash of its file.
    """
    identity = [__version__, law.source, law.params, law.queue, law.target_pkts]
    return json.dumps(identity) if law.source else None


def _digest(*texts: str) -> str:
    """Return the digest of several texts; the length of each is part of it."""
    hash_ = hashlib.blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        data = text.encode()
        hash_.update(len(data).to_bytes(8, "big") + data)
    return hash_.hexdigest()


@dataclass(frozen=True)
class LawAtPoint:
    """The properties that all runs of a law at a point share.

    Attributes
    ----------
    config : str
        The digest of the law at the point.
    columns : dict[str, Any]
        Values of the columns that do not depend on the run.
    """

    config: str
    columns: dict[str, Any]

    def run(self, run: Run) -> list[dict[str, Any]]:
        """Return the rows of a finished run, one for each link."""
        cost = run.metrics[COST]
        return [self._row(run.seed, i, link, cost) for i, link in enumerate(run.links)]

    def fault(self, seed: int, why: str) -> list[dict[str, Any]]:
        """Return the row of a failed run.

        Parameters
        ----------
        seed : int
            The seed of the run.
        why : str
            The message of the failure.
        """
        return [{**self.columns, "seed": seed, "link": 0, "fault": why.rstrip()}]

    def _row(self, seed: int, number: int, link: Observed, cost_s: float) -> dict[str, Any]:
        return {
            **self.columns,
            "seed": seed,
            "link": number,
            "link_name": link.link,
            COST: cost_s,
            **{name: link.metrics[name] for name in METRICS},
            "classes": [{"name": item.name, **item.metrics} for item in link.classes],
            "traffic": [{"traffic": item.traffic, **item.metrics} for item in link.traffic],
        }


def law_at_point(
    plan: Plan, point: int, law: int, config: str, made_by: MadeBy = SIMULATED
) -> LawAtPoint:
    """Return the shared columns of the runs of a law at a point.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    point : int
        Index of the point.
    law : int
        Index of the law.
    config : str
        The digest of the law at the point.
    made_by : MadeBy, default SIMULATED
        The engine of the runs.
    """
    at, law_info = plan.points[point], plan.points[point].laws[law]
    rtts = [rtt for traffic in at.traffic for rtt in traffic.rtts_s]
    columns = {
        "config": config,
        "title": plan.title,
        "law": law_info.kind or law_info.label,
        "parameters": json.dumps(dict(law_info.params)),
        "queue": law_info.queue,
        "rate_bps": at.links[0].rate_bps,
        "rtt_s": sum(rtts) / len(rtts) if rtts else None,
        "flows": sum(traffic.flows for traffic in at.traffic),
        "duration_s": at.duration_s,
        "engine": made_by.engine,
    }
    return LawAtPoint(config, columns)


def table(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Return rows as a table that has every column of `SCHEMA`."""
    listed = list(rows)
    return pl.DataFrame({name: [row.get(name) for row in listed] for name in SCHEMA}, SCHEMA)


#: Prefixes of the columns of samples, and of the arrays of each class.
SAMPLE_COLUMN, CLASS_COLUMN = "samples.", "classes."
#: The arrays of a link.
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
    """Return the arrays of a run as the contents of a Parquet file."""
    links = run.links
    names = dict.fromkeys(name for link in links for name in link.samples)
    columns = [
        _lists(f"{SAMPLE_COLUMN}{name}", [link.samples.get(name) for link in links])
        for name in names
    ]
    columns += [_lists(name, [getattr(link, name) for link in links]) for name in ARRAYS]
    for name, inner in OF_CLASS.items():
        of_classes = [
            [pl.Series(getattr(class_, name)) for class_ in link.classes] for link in links
        ]
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
    """Return a column with one list per link."""
    series = [None if array is None else pl.Series(array) for array in arrays]
    inner = next(column.dtype for column in series if column is not None)
    return pl.Series(name, series, pl.List(inner))


def observed(
    link: str,
    metrics: dict[str, float],
    classes: Sequence[tuple[str, dict[str, float]]],
    traffic: list[TrafficObserved],
    arrays: dict[str, pl.Series | None],
) -> Observed:
    """Return the observations at a link from stored values.

    Parameters
    ----------
    link : str
        Name of the link.
    metrics : dict[str, float]
        Metrics of the link.
    classes : Sequence[tuple[str, dict[str, float]]]
        Name and metrics of each class of its queue.
    traffic : list[TrafficObserved]
        Metrics of each traffic that crosses the link.
    arrays : dict[str, pl.Series | None]
        The link's row of the table in `packed`, by column; empty for a run whose metrics alone are
        stored.
    """
    stored = {name: values for name, values in arrays.items() if values is not None}
    return Observed(
        link=link,
        metrics=metrics,
        samples={
            name.removeprefix(SAMPLE_COLUMN): values.to_numpy()
            for name, values in stored.items()
            if name.startswith(SAMPLE_COLUMN)
        },
        classes=[
            ClassObserved(
                name,
                class_metrics,
                *(
                    stored[f"{CLASS_COLUMN}{array_name}"][i].to_numpy() if stored else None
                    for array_name in OF_CLASS
                ),
            )
            for i, (name, class_metrics) in enumerate(classes)
        ],
        traffic=traffic,
        goodput=[
            GoodputSeries(
                **series
                | {"columns": [np.array(column, np.float32) for column in series["columns"]]}
            )
            for series in stored.get("goodput", ())
        ],
        **{name: stored[name].to_numpy() if stored else None for name in ARRAYS},
    )
