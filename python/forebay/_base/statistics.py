"""Confidence intervals and comparisons over seeds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: The confidence level of every interval; every test has the significance level 1 − LEVEL.
LEVEL = 0.95


def are_alike(values: Sequence[float] | NDArray[np.float64]) -> bool:
    """Return True if several values are all the same to the bit.

    Replicates that are alike do not show how much a number varies by chance, so there is neither
    an interval nor a test. NaN values (a metric that does not apply) are omitted.
    """
    x = np.asarray(values, dtype=float)
    x = x[~np.isnan(x)]
    return len(x) > 1 and bool(np.ptp(x) == 0)


def are_one_run(runs: Sequence[Mapping[str, float]]) -> bool:
    """Return True if several runs have the same metrics to the bit.

    The seeds then changed nothing, and together the runs are no more evidence than one run.
    """
    first, *other_runs = [
        {name: value for name, value in run.items() if not math.isnan(value)} for run in runs
    ] or [{}]
    return len(runs) > 1 and all(metrics == first for metrics in other_runs)


def mean_and_interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the mean and half the width of its 95 % confidence interval (Student's t).

    NaN values (a metric that does not apply) are omitted. The half width is NaN for fewer than two
    values and for values that are all alike (see `are_alike`); the mean of no values is NaN.
    """
    x = np.asarray(values, dtype=float)
    x = x[~np.isnan(x)]
    if len(x) == 0:
        return float("nan"), float("nan")
    means, half_widths = means_and_intervals(x[np.newaxis])
    return float(means[0]), float(half_widths[0])


def means_and_intervals(
    samples: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the mean and the half width of each row of a matrix without NaN.

    Each row is treated like the values of `mean_and_interval`.
    """
    means, count = samples.mean(axis=1), samples.shape[1]
    if count == 1:
        return means, np.full_like(means, np.nan)
    alike = np.ptp(samples, axis=1) == 0
    # The sum of equal values is rounded, so their computed mean may differ from them.
    means = np.where(alike, samples[:, 0], means)
    variances = np.where(alike, np.nan, samples.var(axis=1, ddof=1))
    return means, student_quantile(count - 1) * np.sqrt(variances / count)


def difference_and_interval(
    first: Sequence[float] | NDArray[np.float64],
    second: Sequence[float] | NDArray[np.float64],
    level: float = LEVEL,
) -> tuple[float, float]:
    """Return the difference of two means, and half the width of its interval.

    The interval is Welch's t interval, for independent samples whose variances may differ (Welch
    1947). NaN values are omitted.

    Parameters
    ----------
    first : Sequence[float] | NDArray[np.float64]
        The first sample.
    second : Sequence[float] | NDArray[np.float64]
        The second sample, whose mean is subtracted.
    level : float, default LEVEL
        Confidence level.

    Returns
    -------
    tuple[float, float]
        The difference and the half width. The half width is NaN if either sample has fewer than two
        values, or if the values of each sample are all alike.
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
        return difference, float("nan")
    freedom = (a + b) ** 2 / (a**2 / (len(x) - 1) + b**2 / (len(y) - 1))
    quantile = student_quantile(freedom, level)
    return difference, quantile * (a + b) ** 0.5


def student_quantile(freedom: float, level: float = LEVEL) -> float:
    """Return the quantile of Student's t that leaves out half of 1 − `level` on each side.

    Parameters
    ----------
    freedom : float
        Degrees of freedom.
    level : float, default LEVEL
        Confidence level.
    """
    from scipy import special  # a tenth of a second to load, which one seed does without

    return float(special.stdtrit(freedom, (1 + level) / 2))


def _variance(x: NDArray[np.float64]) -> float:
    """Return the variance of a sample: zero for equal values, whose mean may be rounded."""
    return 0.0 if are_alike(x) else float(x.var(ddof=1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number by Holm's step-down method (Holm 1979)."""
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


@dataclass(frozen=True)
class PairedDifference:
    """The difference of two laws in one metric, over the seeds that both ran with.

    Attributes
    ----------
    first : str
        Label of the first law.
    second : str
        Label of the second law.
    seeds : int
        Number of common seeds.
    difference : float
        Mean of `first` less `second`.
    half_width : float
        Half the width of the 95 % confidence interval of the difference; NaN if all seeds give the
        same difference, so there is no spread to estimate.
    p : float
        The p value of a paired t-test, adjusted for the number of comparisons; NaN without a test.
    """

    first: str
    second: str
    seeds: int
    difference: float
    half_width: float
    p: float

    @property
    def tested(self) -> bool:
        """True if there is a test: the seeds do not all give the same difference."""
        return not math.isnan(self.p)

    @property
    def significant(self) -> bool:
        """True if the difference is significant at the level 1 − `LEVEL`."""
        return self.p < 1 - LEVEL


#: The values of a law by replicate. Replicates are seeds, which give all laws the same flows and
#: start times, or links on which each law ran.
Values = Mapping[Any, float]


def compare(by_law: Mapping[str, Values]) -> list[PairedDifference]:
    """Compare every pair of laws, given metric values by law and seed.

    Each pair gets a paired t-test over the common seeds, since one seed gives all laws the same
    flows and start times; p values are adjusted for the number of tests by Holm's method. A pair
    whose seeds all give the same difference has no test. Pairs with fewer than two common seeds
    are omitted, and so are values that are NaN.
    """
    return compare_at([by_law])[0]


def compare_at(places: Sequence[Mapping[str, Values]]) -> list[list[PairedDifference]]:
    """Compare every pair of laws at each of several places, as `compare` does at one.

    The p values are adjusted for the number of tests at all places together.
    """
    return _holm_adjusted([(itertools.combinations(by_law, 2), by_law) for by_law in places])


def compare_with(chosen: str, by_law: Mapping[str, Values]) -> list[PairedDifference]:
    """Compare one law with each other law by paired t-tests, as `compare` does.

    Only these comparisons count in Holm's adjustment.

    Parameters
    ----------
    chosen : str
        The law. It must not have been chosen by these values; use `best` in that case.
    by_law : Mapping[str, Values]
        Metric values by law and seed.
    """
    pairs = [(law, chosen) for law in by_law if law != chosen]
    return _holm_adjusted([(pairs, by_law)])[0]


def _holm_adjusted(
    places: Iterable[tuple[Iterable[tuple[str, str]], Mapping[str, Values]]],
) -> list[list[PairedDifference]]:
    """Return the paired differences at each place, with p values adjusted over all places."""
    compared = [
        [difference for pair in pairs if (difference := _paired(*pair, by_law)) is not None]
        for pairs, by_law in places
    ]
    adjusted = iter(holm([pair.p for place in compared for pair in place if pair.tested]))
    return [
        [replace(pair, p=next(adjusted)) if pair.tested else pair for pair in place]
        for place in compared
    ]


def _paired(first: str, second: str, by_law: Mapping[str, Values]) -> PairedDifference | None:
    """Return the pair with the p of this comparison alone; None for fewer than two common seeds."""
    a, b = by_law[first], by_law[second]
    difference = np.array([a[seed] - b[seed] for seed in a if seed in b], dtype=float)
    difference = difference[~np.isnan(difference)]
    if len(difference) < 2:
        return None
    mean, half_width = mean_and_interval(difference)
    return PairedDifference(first, second, len(difference), mean, half_width, paired_p(difference))


@dataclass(frozen=True)
class Best:
    """The law with the best mean, and whether its lead over each other law is significant.

    Attributes
    ----------
    means : dict[str, float]
        Means by law, from the best law to the worst.
    p : dict[str, float]
        The adjusted p value of each other law's distance to the best; 1 if there is no test.
    """

    #: from the best law to the worst
    means: dict[str, float]
    #: of the others: p of their distance to the best law, adjusted; 1 where there is no test
    p: dict[str, float]

    @property
    def law(self) -> str:
        """The law with the best mean."""
        return next(iter(self.means))

    @property
    def ties(self) -> list[str]:
        """The laws over which the lead is not significant, in the order of their means."""
        return [law for law, p in self.p.items() if p >= 1 - LEVEL]

    @property
    def behind(self) -> str | None:
        """The best of the laws that are significantly worse; None if there is none."""
        return next((law for law, p in self.p.items() if p < 1 - LEVEL), None)


def best(by_law: Mapping[str, Values], *, more: bool) -> Best | None:
    """Return the law with the best mean over its seeds, tested against each other law.

    The tests are paired t-tests over the common seeds. The values that test the best law have also
    selected it, so any pair of laws might have been the tested one. The p value of the
    farthest of m other laws therefore counts m (m + 1) / 2 times, once for each pair of the
    remaining laws; then the next with m − 1, as Holm's method steps down. The probability that any
    lead is called significant without a real difference is at most 5 %
    (docs/contribute/decisions/045).

    Parameters
    ----------
    by_law : Mapping[str, Values]
        Metric values by law and seed.
    more : bool
        True if more is better.

    Returns
    -------
    Best | None
        The best law; None if no law has a value.
    """
    means = {law: mean_and_interval(list(values.values()))[0] for law, values in by_law.items()}
    ranked = sorted(
        (law for law, mean in means.items() if mean == mean),
        key=lambda law: -means[law] if more else means[law],
    )
    if not ranked:
        return None
    first, *other_laws = ranked
    # A lead without a test is not significant.
    alone = {
        law: pair.p if (pair := _paired(law, first, by_law)) and pair.tested else 1.0
        for law in other_laws
    }
    p, largest = dict.fromkeys(other_laws, 1.0), 0.0
    for count, law in zip(
        range(len(other_laws), 0, -1), sorted(other_laws, key=lambda law: alone[law]), strict=True
    ):
        largest = max(largest, min(1.0, count * (count + 1) / 2 * alone[law]))
        p[law] = largest
    return Best({law: means[law] for law in ranked}, p)


def paired_p(difference: NDArray[np.float64]) -> float:
    """Return the two-sided p value of a paired t-test, before any adjustment.

    It is NaN for fewer than two differences and for differences that are all alike: without spread
    there is no test.
    """
    if len(difference) < 2 or are_alike(difference):
        return float("nan")
    from scipy import special  # not scipy.stats, which takes half a second more to load

    seeds = len(difference)
    t = float(difference.mean()) / (float(difference.var(ddof=1)) / seeds) ** 0.5
    return float(2 * special.stdtr(seeds - 1, -abs(t)))
