"""Intervals and comparisons, against numbers worked by hand or by another way."""

from __future__ import annotations

import math

import pytest

from forebay.run import stats
from forebay.run.metrics import with_interval


def test_an_interval_worked_by_hand() -> None:
    # 1, 2, 3: s = 1, t(0.975, 2) = 4.302653, half width 4.302653 / sqrt(3)
    mean, half_width = stats.mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half_width == pytest.approx(2.484138, abs=1e-6)


def test_an_interval_needs_two_values() -> None:
    nan = float("nan")
    mean, half_width = stats.mean_and_interval([5.0, nan])
    assert mean == 5.0
    assert math.isnan(half_width)
    assert all(math.isnan(value) for value in stats.mean_and_interval([nan]))


def test_a_difference_of_independent_means_worked_by_hand() -> None:
    # Standard errors 1/sqrt(3) and 2/sqrt(3) squared are 1/3 and 4/3; their freedom is
    # (5/3)^2 / ((1/9 + 16/9) / 2) = 50/17, where scipy has t(0.975) = 3.218846.
    difference, half_width = stats.difference_and_interval([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
    assert difference == -4.0
    assert half_width == pytest.approx(3.218846 * (5 / 3) ** 0.5, rel=1e-4)
    from scipy.stats import ttest_ind

    first, second = [1.0, 2.0, 4.0, 9.0], [3.0, 3.5, 3.25]
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(stats.LEVEL)
    difference, half_width = stats.difference_and_interval(first, second)
    assert (difference - half_width, difference + half_width) == pytest.approx(
        (interval.low, interval.high)
    )


def test_a_difference_of_single_runs_has_no_interval() -> None:
    difference, half_width = stats.difference_and_interval([5.0], [1.0, 2.0])
    assert difference == 3.5
    assert math.isnan(half_width)
    assert stats.difference_and_interval([2.0, 2.0], [1.0, 1.0]) == (1.0, 0.0)


def test_equal_values_have_no_interval_however_their_mean_is_rounded() -> None:
    equal = [0.1] * 3
    assert sum(equal) / 3 != 0.1
    assert stats.mean_and_interval(equal)[1] == 0.0
    assert stats.difference_and_interval(equal, [0.3] * 3)[1] == 0.0


def test_holm_worked_by_hand() -> None:
    # Sorted: 0.005·4, 0.01·3, 0.03·2, 0.04·1, each at least the one before.
    adjusted = stats.holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.6, 0.7]) == [1.0, 1.0]
    assert stats.holm([]) == []


def test_comparisons_are_paired_over_common_seeds() -> None:
    # Seeds differ a lot, laws by 1 in every seed: only a paired test sees it.
    a = {seed: 100.0 * seed for seed in range(1, 6)}
    b = {seed: value + 1 + 0.01 * seed for seed, value in a.items()} | {9: 0.0}
    c = {seed: value + (-1) ** seed for seed, value in a.items()}
    ab, ac, bc = stats.compare({"a": a, "b": b, "c": c})
    assert (ab.first, ab.second, ab.seeds) == ("a", "b", 5)
    assert ab.difference == pytest.approx(-1.03)
    assert ab.significant
    assert not ac.significant
    assert bc.seeds == 5


def test_values_without_spread() -> None:
    same, other = {1: 1.0, 2: 2.0}, {1: 2.0, 2: 3.0}
    assert stats.compare({"a": same, "b": dict(same)})[0].p == 1.0
    assert stats.compare({"a": same, "b": other})[0].p == 0.0
    assert stats.compare({"a": {1: 1.0}, "b": {1: 2.0}}) == []


@pytest.mark.parametrize(
    ("mean", "half_width", "text"),
    [
        (197.71, 2.84, "197.7 ± 2.8"),
        (648.2, 11.4, "648 ± 11"),
        (0.05472, 0.00012, "0.05472 ± 0.00012"),
        (100.00001, 0.00002, "100.00 ± 0.00"),
        (173.2, 152.0, "173 ± 152"),
        (5.0, float("nan"), "5.000"),
        (341.0, float("nan"), "341.0"),
        (12345.6, float("nan"), "1.235e+04"),
        (0.0, float("nan"), "0"),
        (float("nan"), float("nan"), "–"),
        (0.0, 0.0, "0.000 ± 0.000"),
    ],
)
def test_how_intervals_are_written(mean: float, half_width: float, text: str) -> None:
    assert with_interval(mean, half_width) == text
