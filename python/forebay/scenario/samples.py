"""Samples of the ranges of a sweep: the reader of scenarios in Rust asks for them here, since SciPy
has the sequences (docs/decisions/041)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def draw(method: str, points: int, columns: int, seed: int) -> NDArray[np.float64]:
    """A row for each point, with a share from 0 to 1 for each column.

    method: "sobol", a scrambled sequence whose first points are the same whatever their number, or
    "latin", a hypercube.
    """
    from scipy.stats import qmc  # half a second to load

    make = qmc.Sobol if method == "sobol" else qmc.LatinHypercube
    shares: NDArray[np.float64] = make(columns, seed=seed).random(points)
    return shares
