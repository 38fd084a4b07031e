"""Which axis matters: the share of a metric's variance over the study that goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from forebay.campaign.study import Study


@dataclass(frozen=True)
class Effect:
    """Sobol's indices of an axis under a law, from 0 to 1.

    first: the share of the variance that the axis explains alone. total: with all that it does
    together with others; NaN where a sample does not tell.
    """

    law: str
    axis: str
    first: float
    total: float


def effects(study: Study, metric: str) -> list[Effect]:
    """Of each axis under each law, of means over the seeds.

    A whole grid has them exactly (Sobol 2001, with equal weights for its values); from a sample
    the first one is estimated by SALib's RBD-FAST (Tarantola et al. 2006), and for a list that is
    crossed with the sample by the means at its values. Raises `ImportError` without SALib, for a
    sample alone.
    """
    axes = study.axes
    sampled = study.points.sampled
    means = study.cells(metric, *axes)
    found = []
    for law in study.points.laws:
        of_law = means.filter(pl.col("law") == law)
        values = of_law["mean"].to_numpy()
        # With few points, or a metric that stands still, shares are noise.
        if len(values) < 4 or np.ptp(values) == 0:
            continue
        whole = not sampled and len(values) == len(study.points)
        for place, axis in enumerate(axes):
            if of_law[axis].n_unique() < 2:
                continue
            if whole:
                others = [one for one in axes if one != axis]
                first = _explained(of_law, [axis])
                total = 1 - (_explained(of_law, others) if others else 0.0)
            elif axis not in sampled:
                # RBD-FAST orders by the axis; many equal values would keep the order of the sample.
                first, total = _explained(of_law, [axis]), float("nan")
            else:
                first, total = _of_sample(of_law, axes)[place], float("nan")
            found.append(Effect(law, axis, first, total))
    return found


def _explained(table: pl.DataFrame, axes: list[str]) -> float:
    """Var(E[y | axes]) over Var(y), of a whole grid."""
    within = table.with_columns(pl.col("mean").mean().over(axes).alias("expected"))
    return float(np.var(within["expected"].to_numpy()) / np.var(table["mean"].to_numpy()))


def _of_sample(table: pl.DataFrame, axes: list[str]) -> list[float]:
    from SALib.analyze import rbd_fast  # type: ignore[import-untyped]

    # Ranks: the order of the values is all that the method sorts by, and texts have one, too.
    x = np.column_stack([table[axis].rank("dense").to_numpy() for axis in axes]).astype(float)
    bounds = [[float(column.min()), float(max(column.max(), column.min() + 1))] for column in x.T]
    problem = {"num_vars": len(axes), "names": axes, "bounds": bounds}
    found: dict[str, Any] = rbd_fast.analyze(
        problem, x, table["mean"].to_numpy(), num_resamples=2, seed=1
    )
    return [float(np.clip(value, 0, 1)) for value in found["S1"]]
