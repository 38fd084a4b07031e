"""Parts of the map, and the law that is best in each.

Best is a short wait without an idle link: of the laws that keep up, the one with the shortest 95th
percentile of the queuing delay. In a part of the map the delays of its points are compared as
logarithms, law by law at the same point, since a law's delay spans three decades over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from forebay.atlas.runs import KEEPS_UP, LEAST_S
from forebay.run import stats

#: Fewest points of which a part of the map says anything.
FEWEST = 3


@dataclass(frozen=True)
class Axis:
    """A column of the table, cut at `edges`, in the base unit."""

    column: str
    title: str
    unit: str
    #: a value times `scale` is in `unit`
    scale: float
    edges: tuple[float, ...]

    def part(self, index: int) -> str:
        low, high = self.edges[index : index + 2]
        return f"{self.number(low)} to {self.number(high)} {self.unit}".rstrip()

    def number(self, value: float) -> str:
        return (
            f"{value * self.scale:.2g}" if value * self.scale < 100 else f"{value * self.scale:.0f}"
        )

    def thirds(self) -> Axis:
        """The same in three parts."""
        step = (len(self.edges) - 1) // 3
        return Axis(self.column, self.title, self.unit, self.scale, self.edges[::step])

    def index(self, values: pl.Series) -> np.ndarray:
        """The part of each value; the ends belong to the outer ones."""
        found = np.searchsorted(self.edges[1:-1], values.to_numpy(), side="right")
        return np.asarray(found, dtype=np.int64)


def _log(low: float, high: float, parts: int) -> tuple[float, ...]:
    return tuple(float(edge) for edge in np.geomspace(low, high, parts + 1))


RATE = Axis("rate_bps", "rate", "Mbit/s", 1e-6, _log(1e6, 1e9, 6))
RTT = Axis("rtt_s", "round trip", "ms", 1e3, _log(5e-3, 0.3, 6))
FLOWS = Axis("flows", "flows", "flows", 1, _log(1, 1000, 6))
#: Window of each flow that fills the link and no queue: below about four packets no law can ask
#: for less (RFC 5681 section 3.2 needs three duplicate ACKs).
WINDOW = Axis(
    "window_pkts", "window", "packets", 1, (0.0, 1.0, 4.0, 16.0, 64.0, 256.0, float("inf"))
)


@dataclass(frozen=True)
class Best:
    """The best law of a part of the map. law: None where too few points are there.

    alike: laws whose delay cannot be told from its own, by a paired t test over the points,
    adjusted by Holm's method; in the order of their delays. delay_s: geometric mean. behind: the
    next law that is worse beyond chance. others: how many more keep up.
    """

    law: str | None
    points: int
    alike: tuple[str, ...] = ()
    delay_s: float = float("nan")
    kept: float = float("nan")
    behind: str = ""
    behind_s: float = float("nan")


def best(table: pl.DataFrame, laws: Sequence[str] | None = None) -> Best:
    """Of the rows of a part of the map."""
    if laws is not None:
        table = table.filter(pl.col("law").is_in(list(laws)))
    points = table["point"].n_unique()
    if points < FEWEST:
        return Best(None, points)
    by_law = {str(law): rows for (law,), rows in table.group_by("law", maintain_order=True)}
    kept = {law: float(rows["kept"].mean()) for law, rows in by_law.items()}  # type: ignore[arg-type]
    # Where no law keeps up at all points, the one that does best.
    least = min(KEEPS_UP, max(kept.values()))
    delays = {
        law: dict(zip(rows["point"], np.log(np.maximum(rows["delay_p95_s"], LEAST_S)), strict=True))
        for law, rows in by_law.items()
        if kept[law] >= least
    }
    mean = {law: float(np.mean(list(values.values()))) for law, values in delays.items()}
    order = sorted(mean, key=lambda law: mean[law])
    first = order[0]
    p = {}
    if len(order) > 1:
        found = [stats.compare({first: delays[first], law: delays[law]}) for law in order[1:]]
        adjusted = stats.holm([one[0].p if one else 1.0 for one in found])
        p = dict(zip(order[1:], adjusted, strict=True))
    alike = tuple(law for law in order[1:] if p[law] >= 1 - stats.LEVEL)
    behind = next((law for law in order[1:] if law not in alike), "")
    return Best(
        first,
        points,
        alike,
        float(np.exp(mean[first])),
        kept[first],
        behind,
        float(np.exp(mean[behind])) if behind else float("nan"),
    )


def grid(table: pl.DataFrame, x: Axis, y: Axis) -> dict[tuple[int, int], pl.DataFrame]:
    """The rows of each cell, by its place along x and y."""
    placed = table.with_columns(
        pl.Series("x_", x.index(table[x.column])), pl.Series("y_", y.index(table[y.column]))
    )
    return {
        (int(i), int(j)): rows for (i, j), rows in placed.group_by("x_", "y_", maintain_order=True)
    }


def parts(table: pl.DataFrame, axis: Axis) -> list[tuple[int, pl.DataFrame]]:
    """The rows of each part of an axis that has any."""
    places = pl.Series("x_", axis.index(table[axis.column]))
    return [
        (i, table.filter(places == i)) for i in range(len(axis.edges) - 1) if (places == i).any()
    ]


def near(table: pl.DataFrame, factor: float) -> pl.DataFrame:
    """For each law: `kept_up`, the share of points at which it keeps up, `near`, at which its delay
    is then at most `factor` of the shortest of the laws that keep up, and `best`, at which no
    law's is shorter."""
    delay = pl.col("delay_p95_s").clip(lower_bound=LEAST_S)
    up = pl.col("kept") >= KEEPS_UP
    judged = table.with_columns(delay.alias("delay"), up.alias("up")).with_columns(
        pl.when("up").then("delay").min().over("point").alias("shortest")
    )
    ratio = pl.col("delay") / pl.col("shortest")
    return judged.group_by("law", maintain_order=True).agg(
        pl.col("up").mean().alias("kept_up"),
        (pl.col("up") & (ratio <= factor)).mean().alias("near"),
        (pl.col("up") & (ratio <= 1)).mean().alias("best"),
    )
