"""Parts of the map, and the law that is best in each.

The best law has a short delay without an idle link: of the laws that keep up, the one with the
smallest 95th percentile of the queuing delay. In a part of the map, the delays of its points are
compared as logarithms, law by law at the same point, since a law's delay spans three decades.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from forebay.experiment.table import RunTable
from tools.atlas.runs import KEEPS_UP, LEAST_S

#: Smallest number of points from which a part of the map has a best law.
FEWEST = 3


@dataclass(frozen=True)
class Axis:
    """A column of the table, divided at `edges`.

    Attributes
    ----------
    column : str
        Name of the column.
    title : str
        Name of the quantity.
    unit : str
        Unit in which the page shows it.
    scale : float
        Factor from the base unit to `unit`.
    edges : tuple[float, ...]
        Edges of the parts in the base unit.
    """

    column: str
    title: str
    unit: str
    scale: float
    edges: tuple[float, ...]

    def part(self, index: int) -> str:
        """Return a part of the axis in words."""
        low, high = self.edges[index : index + 2]
        return f"{self.number(low)} to {self.number(high)} {self.unit}".rstrip()

    def number(self, value: float) -> str:
        """Return a value in the unit of the axis."""
        return (
            f"{value * self.scale:.2g}" if value * self.scale < 100 else f"{value * self.scale:.0f}"
        )

    def thirds(self) -> Axis:
        """Return the axis in three parts."""
        step = (len(self.edges) - 1) // 3
        return Axis(self.column, self.title, self.unit, self.scale, self.edges[::step])

    def index(self, values: pl.Series) -> np.ndarray:
        """Return the index of the part of each value; the ends belong to the outer parts."""
        indices = np.searchsorted(self.edges[1:-1], values.to_numpy(), side="right")
        return np.asarray(indices, dtype=np.int64)


def _log(low: float, high: float, parts: int) -> tuple[float, ...]:
    """Return edges at equal ratios."""
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
class BestInPart:
    """The best law of a part of the map.

    Attributes
    ----------
    law : str | None
        Label of the law; None if the part has too few points.
    points : int
        Number of points.
    alike : tuple[str, ...], default ()
        Laws over which the lead is not significant (`statistics.best` over the points), in the
        order of their delays.
    delay_s : float, default float('nan')
        Geometric mean of the delay in seconds.
    relative_goodput : float, default float('nan')
        Mean goodput relative to the best law's.
    behind : str, default ''
        The next law that is significantly worse; empty if there is none.
    behind_s : float, default float('nan')
        Its geometric mean delay in seconds.
    """

    law: str | None
    points: int
    alike: tuple[str, ...] = ()
    delay_s: float = float("nan")
    relative_goodput: float = float("nan")
    behind: str = ""
    behind_s: float = float("nan")


def best(table: pl.DataFrame, laws: Sequence[str] | None = None) -> BestInPart:
    """Return the best law of the rows of a part of the map."""
    if laws is not None:
        table = table.filter(pl.col("law").is_in(list(laws)))
    points = table["point"].n_unique()
    if points < FEWEST:
        return BestInPart(None, points)
    # group_by(...).mean() differs in its last bit from call to call; the mean of a list does not.
    kept_by_law = dict(
        table.group_by("law").agg("kept").with_columns(pl.col("kept").list.mean()).rows()
    )
    # If no law keeps up at all points, the one with the largest goodput counts.
    least = min(KEEPS_UP, max(kept_by_law.values()))
    delays = RunTable(
        table.with_columns(log_delay=pl.col("delay_p95_s").clip(lower_bound=LEAST_S).log()),
        replicate="point",
    )
    best_law = delays.best_of(
        "log_delay", [law for law in kept_by_law if kept_by_law[law] >= least], more=False
    )
    assert best_law is not None
    return BestInPart(
        best_law.law,
        points,
        tuple(best_law.ties),
        math.exp(best_law.means[best_law.law]),
        kept_by_law[best_law.law],
        best_law.behind or "",
        math.exp(best_law.means[best_law.behind]) if best_law.behind else math.nan,
    )


def grid(table: pl.DataFrame, x: Axis, y: Axis) -> dict[tuple[int, int], pl.DataFrame]:
    """Return the rows of each cell, by its indices along x and y."""
    placed = table.with_columns(
        pl.Series("x_", x.index(table[x.column])), pl.Series("y_", y.index(table[y.column]))
    )
    return {
        (int(i), int(j)): rows for (i, j), rows in placed.group_by("x_", "y_", maintain_order=True)
    }


def parts(table: pl.DataFrame, axis: Axis) -> list[tuple[int, pl.DataFrame]]:
    """Return the rows of each part of an axis that has any."""
    places = pl.Series("x_", axis.index(table[axis.column]))
    return [
        (i, table.filter(places == i)) for i in range(len(axis.edges) - 1) if (places == i).any()
    ]


def near(table: pl.DataFrame, factor: float) -> pl.DataFrame:
    """Return how often each law keeps up, is near the best one, and is the best one.

    The columns are `kept_up` (share of points at which the law keeps up), `near` (its delay is then
    at most `factor` times the smallest of the laws that keep up) and `best` (no law's delay is
    smaller).
    """
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
