"""The arrays of a run in a file of its own: a row for each link, in which each array is a list.

`pl.read_parquet(file).explode("samples.time_s", "samples.queue_pkts")` makes a table of samples.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay._native import ClassObserved, GoodputSeries, Observed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forebay._native import Run, TrafficObserved

#: Before the name of a column of samples, and of an array of each class.
SAMPLES, CLASSES = "samples.", "classes."
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
    links: list[Observed] = [run, *run.others]
    names = dict.fromkeys(name for link in links for name in link.samples)
    columns = [
        _lists(f"{SAMPLES}{name}", [link.samples.get(name) for link in links]) for name in names
    ]
    columns += [_lists(name, [getattr(link, name) for link in links]) for name in ARRAYS]
    for name, inner in OF_CLASS.items():
        of_classes = [[pl.Series(getattr(each, name)) for each in link.classes] for link in links]
        columns.append(pl.Series(f"{CLASSES}{name}", of_classes, pl.List(pl.List(inner))))
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
    """What was observed at a link, from a store.

    classes: name and metrics of each. arrays: the row of `packed` by its columns; empty for a run
    of which only metrics are kept.
    """
    found = {name: values for name, values in arrays.items() if values is not None}
    return Observed(
        link=link,
        metrics=metrics,
        samples={
            name.removeprefix(SAMPLES): values.to_numpy()
            for name, values in found.items()
            if name.startswith(SAMPLES)
        },
        classes=[
            ClassObserved(
                name,
                of_class,
                *(found[f"{CLASSES}{each}"][i].to_numpy() if found else None for each in OF_CLASS),
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
