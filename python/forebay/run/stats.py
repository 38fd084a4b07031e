"""Intervals and comparisons over seeds."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Level of every interval, and of every test as 1 − LEVEL.
LEVEL = 0.95


def mean_and_interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval (Student's t).

    NaN values (a metric that does not apply) are left out. The half width is NaN for fewer
    than two values, the mean for none.
    """
    x = np.asarray(values, dtype=float)
    x = x[~np.isnan(x)]
    if len(x) == 0:
        return float("nan"), float("nan")
    if len(x) == 1:
        return float(x[0]), float("nan")
    quantile = student(len(x) - 1)
    return float(x.mean()), quantile * (_variance(x) / len(x)) ** 0.5


def difference_and_interval(
    first: Sequence[float] | NDArray[np.float64], second: Sequence[float] | NDArray[np.float64]
) -> tuple[float, float]:
    """Mean of `first` less that of `second`, and half the width of its 95 % confidence interval.

    Welch's t interval, for independent samples whose variances may differ (Welch 1947). NaN
    values are left out. The half width is NaN where either has fewer than two values.
    """
    x, y = (np.asarray(values, dtype=float) for values in (first, second))
    x, y = x[~np.isnan(x)], y[~np.isnan(y)]
    if len(x) == 0 or len(y) == 0:
        return float("nan"), float("nan")
    difference = float(x.mean() - y.mean())
    if len(x) == 1 or len(y) == 1:
        return difference, float("nan")
    # Squared standard errors of the two means.
    a, b = _variance(x) / len(x), _variance(y) / len(y)
    if a + b == 0:
        return difference, 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    quantile = student(freedom)
    return difference, quantile * (a + b) ** 0.5


def student(freedom: float) -> float:
    """Quantile of Student's t that leaves out half of 1 − LEVEL on each side."""
    from scipy import special  # a tenth of a second to load, which one seed does without

    return float(special.stdtrit(freedom, (1 + LEVEL) / 2))


def _variance(x: NDArray[np.float64]) -> float:
    """Of a sample; zero for equal values, whose mean may be rounded."""
    return 0.0 if np.ptp(x) == 0 else float(x.var(ddof=1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values adjusted for their number by Holm's step-down method (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


@dataclass(frozen=True)
class Comparison:
    """Two laws under one metric, over the seeds that both ran with."""

    first: str
    second: str
    seeds: int
    #: mean of first − second
    difference: float
    #: adjusted for the number of pairs
    p: float

    @property
    def significant(self) -> bool:
        return self.p < 1 - LEVEL


def compare(by_law: Mapping[str, Mapping[int, float]]) -> list[Comparison]:
    """Compares every pair of laws, given metric values by law and seed.

    A paired t-test over the common seeds, since one seed gives all laws the same flows and
    start times; p values are adjusted for the number of pairs by Holm's method. Pairs with
    fewer than two common seeds, or with values that are NaN, are left out.
    """
    pairs: list[tuple[str, str, NDArray[np.float64]]] = []
    for first, second in itertools.combinations(by_law, 2):
        a, b = by_law[first], by_law[second]
        difference = np.array([a[seed] - b[seed] for seed in a if seed in b], dtype=float)
        difference = difference[~np.isnan(difference)]
        if len(difference) >= 2:
            pairs.append((first, second, difference))
    adjusted = holm([_paired_t(difference) for _, _, difference in pairs])
    return [
        Comparison(first, second, len(difference), float(difference.mean()), p)
        for (first, second, difference), p in zip(pairs, adjusted, strict=True)
    ]


def _paired_t(difference: NDArray[np.float64]) -> float:
    """Two-sided p of a mean difference; without any spread it is 0, or 1 for no difference."""
    if np.ptp(difference) == 0:
        return 1.0 if difference[0] == 0 else 0.0
    from scipy import special  # not scipy.stats, which takes half a second more to load

    seeds = len(difference)
    t = float(difference.mean()) / (float(difference.var(ddof=1)) / seeds) ** 0.5
    return float(2 * special.stdtr(seeds - 1, -abs(t)))
