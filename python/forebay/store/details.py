"""The arrays of a run in a file of its own: a row for each link, in which each array is a list.

`pl.read_parquet(file).explode("samples.time_s", "samples.queue_pkts")` makes a table of samples.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forebay._native import Observed, Run
    from forebay.store.place import Folder, Remote

SAMPLES = "samples."
#: Arrays of a link, and of a class.
ARRAYS = (
    "delay_s",
    "delay_packets",
    "flow_traffic",
    "flow_goodput_bps",
    "transfer_traffic",
    "transfer_packets",
    "transfer_s",
)
OF_CLASS = ("delay_s", "delay_packets")
SERIES = ("traffic", "flows", "interval_s", "quantiles", "columns")
#: Columns that are held in memory; a page looks at a column more than once.
HELD = 64
#: Files up to this size are read and held whole: to read one takes as long as a column of it.
SMALL_BYTES, HELD_WHOLE = 1 << 18, 32


def packed(run: Run) -> bytes:
    """The arrays of a run as Parquet."""
    links: list[Observed] = [run, *run.others]
    names = dict.fromkeys(name for one in links for name in one.samples)
    columns = [
        _lists(f"{SAMPLES}{name}", [one.samples.get(name) for one in links]) for name in names
    ]
    columns += [_lists(name, [getattr(one, name) for one in links]) for name in ARRAYS]
    for name in OF_CLASS:
        of_classes = [[pl.Series(getattr(each, name)) for each in one.classes] for one in links]
        inner = pl.Float64 if name == "delay_s" else pl.UInt64
        columns.append(pl.Series(f"classes.{name}", of_classes, pl.List(pl.List(inner))))
    series: dict[str, Any] = {
        "traffic": pl.UInt32,
        "flows": pl.UInt32,
        "interval_s": pl.Float64,
        "quantiles": pl.List(pl.Float64),
        "columns": pl.List(pl.List(pl.Float32)),
    }
    goodput = [
        [
            {
                **{name: getattr(each, name) for name in SERIES[:-1]},
                "columns": [column.tolist() for column in each.columns],
            }
            for each in one.goodput
        ]
        for one in links
    ]
    columns.append(pl.Series("goodput", goodput, pl.List(pl.Struct(series))))
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer, compression="zstd", statistics=False)
    return buffer.getvalue()


def _lists(name: str, arrays: list[NDArray[Any] | None]) -> pl.Series:
    series = [None if array is None else pl.Series(array) for array in arrays]
    inner = next(one.dtype for one in series if one is not None)
    return pl.Series(name, series, pl.List(inner))


class File:
    """The file of a run."""

    def __init__(self, place: Folder | Remote, name: str) -> None:
        self.place, self.name = place, name

    def __hash__(self) -> int:
        return hash((self.place.address, self.name))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and hash(self) == hash(other)


def _column(file: File, column: str) -> pl.Series:
    whole = _whole(file)
    return _alone(file, column) if whole is None else whole[column]


@lru_cache(maxsize=HELD_WHOLE)
def _whole(file: File) -> pl.DataFrame | None:
    """All of a small file; None of a large one."""
    found = file.place.read(file.name)
    return pl.read_parquet(io.BytesIO(found)) if len(found) <= SMALL_BYTES else None


@lru_cache(maxsize=HELD)
def _alone(file: File, column: str) -> pl.Series:
    whole = io.BytesIO(file.place.read(file.name))
    return pl.read_parquet(whole, columns=[column])[column]


@lru_cache(maxsize=HELD)
def _names(file: File) -> list[str]:
    return list(pl.read_parquet_schema(io.BytesIO(file.place.read(file.name))))


class Samples(Mapping[str, "NDArray[Any]"]):
    """The samples of a stored run at one link; each column is read when it is looked at."""

    def __init__(self, file: File, link: int) -> None:
        self._file, self._link = file, link

    def __getitem__(self, name: str) -> NDArray[Any]:
        if f"{SAMPLES}{name}" not in _names(self._file):
            raise KeyError(name)
        found = _column(self._file, f"{SAMPLES}{name}")[self._link]
        if found is None:
            raise KeyError(name)
        return cast("NDArray[Any]", found.to_numpy())

    def __iter__(self) -> Iterator[str]:
        columns = [name for name in _names(self._file) if name.startswith(SAMPLES)]
        here = (name for name in columns if _column(self._file, name)[self._link] is not None)
        return (name.removeprefix(SAMPLES) for name in here)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True)
class Series:
    """As `forebay._native.GoodputSeries`."""

    traffic: int
    flows: int
    interval_s: float
    quantiles: list[float]
    columns: list[NDArray[np.float32]]


@dataclass
class OfClass:
    """As `forebay._native.ClassObserved`."""

    name: str
    metrics: dict[str, float]
    delay_s: NDArray[np.float64] | None = None
    delay_packets: NDArray[np.uint64] | None = None


@dataclass
class Link:
    """As `forebay._native.Observed`, read from a store; arrays when they are first looked at."""

    link: str
    metrics: dict[str, float]
    classes: list[OfClass]
    number: int
    file: File | None
    samples: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is None:
            return
        self.samples = Samples(self.file, self.number)
        for i, one in enumerate(self.classes):
            one.delay_s = _column(self.file, "classes.delay_s")[self.number][i].to_numpy()
            one.delay_packets = _column(self.file, "classes.delay_packets")[self.number][
                i
            ].to_numpy()

    def __getattr__(self, name: str) -> NDArray[Any] | None:
        if name not in ARRAYS:
            raise AttributeError(name)
        if self.file is None:
            return None
        return cast("NDArray[Any]", _column(self.file, name)[self.number].to_numpy())

    @property
    def goodput(self) -> list[Series]:
        if self.file is None:
            return []
        return [
            Series(
                **{name: one[name] for name in SERIES[:-1]},
                columns=[np.array(column, np.float32) for column in one["columns"]],
            )
            for one in _column(self.file, "goodput")[self.number]
        ]


@dataclass
class StoredRun(Link):
    """As `forebay._native.Run`, read from a store."""

    point: int = 0
    law: int = 0
    seed: int = 0
    others: list[Link] = field(default_factory=list)
