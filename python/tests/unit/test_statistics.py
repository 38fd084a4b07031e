"""Intervals and comparisons, against numbers worked by hand or by another way."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from forebay._base import statistics
from forebay._base.metrics import with_interval
from forebay.experiment.table import Cell, RunTable


def test_an_interval_worked_by_hand() -> None:
    # 1, 2, 3: s = 1, t(0.975, 2) = 4.302653, half width 4.302653 / sqrt(3)
    mean, half_width = statistics.mean_and_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half_width == pytest.approx(2.484138, abs=1e-6)


def test_an_interval_needs_two_values() -> None:
    nan = float("nan")
    mean, half_width = statistics.mean_and_interval([5.0, nan])
    assert mean == 5.0
    assert math.isnan(half_width)
    assert all(math.isnan(value) for value in statistics.mean_and_interval([nan]))


def test_a_difference_of_independent_means_worked_by_hand() -> None:
    # Standard errors 1/sqrt(3) and 2/sqrt(3) squared are 1/3 and 4/3; their freedom is
    # (5/3)^2 / ((1/9 + 16/9) / 2) = 50/17, where scipy has t(0.975) = 3.218846.
    difference, half_width = statistics.difference_and_interval([1.0, 2.0, 3.0], [4.0, 6.0, 8.0])
    assert difference == -4.0
    assert half_width == pytest.approx(3.218846 * (5 / 3) ** 0.5, rel=1e-4)
    from scipy.stats import ttest_ind

    first, second = [1.0, 2.0, 4.0, 9.0], [3.0, 3.5, 3.25]
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(statistics.LEVEL)
    difference, half_width = statistics.difference_and_interval(first, second)
    assert (difference - half_width, difference + half_width) == pytest.approx(
        (interval.low, interval.high)
    )


def test_a_difference_of_single_runs_has_no_interval() -> None:
    difference, half_width = statistics.difference_and_interval([5.0], [1.0, 2.0])
    assert difference == 3.5
    assert math.isnan(half_width)
    difference, half_width = statistics.difference_and_interval([2.0, 2.0], [1.0, 1.0])
    assert (difference, math.isnan(half_width)) == (1.0, True)


def test_replicates_that_are_alike_have_no_interval_and_their_mean_is_not_rounded() -> None:
    equal = [0.1] * 3
    assert sum(equal) / 3 != 0.1
    mean, half_width = statistics.mean_and_interval(equal)
    assert (mean, math.isnan(half_width)) == (0.1, True)
    assert math.isnan(statistics.difference_and_interval(equal, [0.3] * 3)[1])
    # Against others that vary the variance of the others remains.
    assert statistics.difference_and_interval(equal, [0.1, 0.2, 0.3])[1] > 0
    assert statistics.are_alike([1.0, math.nan, 1.0])
    assert not statistics.are_alike([1.0, math.nan])
    assert not statistics.are_alike([1.0, 1.0 + 1e-15])


def test_runs_are_one_run_where_every_metric_is_the_same() -> None:
    run = {"a": 1.0, "b": math.nan}
    assert statistics.are_one_run([run, dict(run)])
    assert not statistics.are_one_run([run])
    assert not statistics.are_one_run([])
    assert not statistics.are_one_run([run, run | {"a": 1.0 + 1e-15}])
    assert not statistics.are_one_run([run, run | {"b": 2.0}])


def test_holm_worked_by_hand() -> None:
    # Sorted: 0.005·4, 0.01·3, 0.03·2, 0.04·1, each at least the one before.
    adjusted = statistics.holm([0.01, 0.04, 0.03, 0.005])
    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.6, 0.7]) == [1.0, 1.0]
    assert statistics.holm([]) == []


def test_comparisons_are_paired_over_common_seeds() -> None:
    # Seeds differ a lot, laws by 1 in every seed: only a paired test sees it.
    a = {seed: 100.0 * seed for seed in range(1, 6)}
    b = {seed: value + 1 + 0.01 * seed for seed, value in a.items()} | {9: 0.0}
    c = {seed: value + (-1) ** seed for seed, value in a.items()}
    ab, ac, bc = statistics.compare({"a": a, "b": b, "c": c})
    assert (ab.first, ab.second, ab.seeds) == ("a", "b", 5)
    assert ab.difference == pytest.approx(-1.03)
    assert ab.significant
    assert not ac.significant
    assert bc.seeds == 5


def test_values_without_spread() -> None:
    same, other = {1: 1.0, 2: 2.0}, {1: 2.0, 2: 3.0}
    for pair in statistics.compare({"a": same, "b": other, "c": dict(same)}):
        assert not pair.tested and not pair.significant
        assert math.isnan(pair.p) and math.isnan(pair.half_width)
    assert statistics.compare({"a": {1: 1.0}, "b": {1: 2.0}}) == []
    # A difference that all seeds give is no evidence that a law is best.
    lead = statistics.best({"a": same, "b": other}, more=False)
    assert lead is not None and (lead.law, lead.ties) == ("a", ["b"])


def test_pairs_without_a_test_do_not_count_in_the_adjustment() -> None:
    a, b = {1: 1.0, 2: 2.0, 3: 4.0}, {1: 1.5, 2: 2.7, 3: 4.6}
    alone = statistics.compare({"a": a, "b": b})[0].p
    with_copy = statistics.compare({"a": a, "b": b, "c": dict(a)})
    assert [pair.tested for pair in with_copy] == [True, False, True]
    assert with_copy[0].p == pytest.approx(2 * alone)


def test_differences_at_several_places_are_adjusted_together() -> None:
    places = [
        {"a": {1: 1.0, 2: 2.0, 3: 4.0}, "b": {1: 1.5, 2: 2.7, 3: 4.6}},
        {"a": {1: 1.0, 2: 2.0, 3: 3.0}, "b": {1: 2.0, 2: 2.5, 3: 4.4}},
    ]
    alone = [statistics.compare(by_law)[0].p for by_law in places]
    together = [pairs[0].p for pairs in statistics.compare_at(places)]
    assert together == pytest.approx(statistics.holm(alone))
    rows = [
        {"law": law, "point": str(i), "seed": seed, "wait": value}
        for i, by_law in enumerate(places)
        for law, seeds in by_law.items()
        for seed, value in seeds.items()
    ]
    table = RunTable(pl.DataFrame(rows))
    found = table.differences(["wait"], "point")
    assert [each.place for each in found] == [("0",), ("1",)]
    assert [each.pair.p for each in found] == pytest.approx(together)


def test_the_best_law_worked_by_hand() -> None:
    # Differences to the best law with means and spreads that give p of 0.0039, 0.06 and 0.74.
    values = {
        "worst": [7.0, 8.0, 9.5, 8.5],
        "best": [1.0, 2.0, 3.0, 4.0],
        "near": [1.5, 1.9, 3.2, 3.9],
        "middle": [3.0, 3.0, 4.0, 7.0],
    }
    by_law = {law: dict(enumerate(some)) for law, some in values.items()}
    found = statistics.best(by_law, more=False)
    assert found is not None
    assert list(found.means) == ["best", "near", "middle", "worst"]
    from scipy.stats import ttest_rel

    alone = {law: float(ttest_rel(values["best"], some).pvalue) for law, some in values.items()}
    # Three others: six pairs, then three, then one; never less than the one before.
    adjusted = [min(1.0, 6 * alone["worst"])]
    adjusted.append(max(adjusted[0], min(1.0, 3 * alone["middle"])))
    adjusted.append(max(adjusted[1], min(1.0, alone["near"])))
    assert [found.p[law] for law in ("worst", "middle", "near")] == pytest.approx(adjusted)
    assert (found.law, found.ties, found.behind) == ("best", ["near", "middle"], "worst")
    most = statistics.best(by_law, more=True)
    assert most is not None and most.law == "worst"


def test_the_best_law_of_few_values() -> None:
    assert statistics.best({}, more=True) is None
    assert statistics.best({"a": {1: math.nan}}, more=True) is None
    alone = statistics.best({"a": {1: 2.0}, "b": {}}, more=True)
    assert alone == statistics.Best({"a": 2.0}, {})
    assert alone.behind is None
    # One seed tells nothing.
    pair = statistics.best({"a": {1: 2.0}, "b": {1: 1.0}}, more=True)
    assert pair is not None and (pair.law, pair.ties, pair.behind) == ("a", ["b"], None)


@pytest.mark.parametrize(
    "means",
    [[0.0] * 3, [0.0] * 8, [0.0, 0.0, 9.0, 9.0, 9.0], [0.0, 0.0, 4.0, 4.0, 8.0, 8.0], [0, 0.5, 1]],
    ids=["three alike", "eight alike", "two groups", "three pairs", "a ladder"],
)
def test_a_lead_without_a_difference_is_called_real_in_at_most_5_percent(
    means: list[float],
) -> None:
    trials, seeds = 800, 6
    rng = np.random.default_rng(1)
    false = by_the_best_alone = 0
    for _ in range(trials):
        noise = rng.standard_normal((len(means), seeds)) * math.sqrt(seeds)
        by_law = {str(i): dict(enumerate(means[i] + noise[i])) for i in range(len(means))}
        found = statistics.best(by_law, more=False)
        assert found is not None
        as_good = {str(i) for i, mean in enumerate(means) if mean <= means[int(found.law)]}
        false += any(found.p[law] < 0.05 for law in as_good - {found.law})
        if len(means) == 8:
            fixed = statistics.compare_with(found.law, by_law)
            by_the_best_alone += any(pair.significant for pair in fixed)
    # Three standard errors of a share of 5 %.
    most = 0.05 + 3 * math.sqrt(0.05 * 0.95 / trials)
    assert false / trials <= most
    # So many comparisons as there are others are too few: the data chose the law, too.
    if len(means) == 8:
        assert by_the_best_alone / trials > most


def test_a_law_that_was_fixed_before_is_compared_with_each_other() -> None:
    a = {seed: float(seed) for seed in range(6)}
    b = {seed: value + 1 + 0.3 * (-1) ** seed for seed, value in a.items()}
    c = {seed: value + 0.5 * (-1) ** seed for seed, value in a.items()}
    pairs = statistics.compare_with("a", {"a": a, "b": b, "c": c, "d": {9: 1.0}})
    assert [(pair.first, pair.second) for pair in pairs] == [("b", "a"), ("c", "a")]
    alone = [statistics.compare({"a": a, name: some})[0].p for name, some in (("b", b), ("c", c))]
    assert [pair.p for pair in pairs] == pytest.approx(statistics.holm(alone))
    assert pairs[0].difference == pytest.approx(1.0)


def test_means_of_a_table_are_the_same_each_time() -> None:
    """To the last bit, on any number of threads: each law's runs are one group."""
    draw = np.random.default_rng(1)
    rows = pl.DataFrame({"law": ["a", "b"] * 5000, "seed": 1, "wait": draw.random(10_000)})
    means = {tuple(RunTable(rows).values("wait")["wait"]) for _ in range(20)}
    assert len(means) == 1


def test_a_table_has_the_means_of_its_seeds() -> None:
    rows = [
        ("a", "x", 1, 1.0), ("a", "x", 2, 3.0), ("a", "y", 1, 5.0), ("a", "y", 2, math.nan),
        ("b", "x", 1, 2.0), ("b", "x", 2, 2.5), ("b", "y", 1, 7.0), ("b", "y", 2, None),
    ]  # fmt: skip
    table = RunTable(pl.DataFrame(rows, ["law", "place", "seed", "wait"], orient="row"))
    assert table.values("wait").rows() == [
        ("a", 1, 3.0),
        ("a", 2, 3.0),
        ("b", 1, 4.5),
        ("b", 2, 2.5),
    ]
    cells = table.cell_of(["wait"], "place")
    assert cells["wait", "a", "x"] == Cell(*statistics.mean_and_interval([1.0, 3.0]), 2)
    assert (cells["wait", "a", "y"].mean, cells["wait", "a", "y"].seeds) == (5.0, 1)
    assert math.isnan(cells["wait", "a", "y"].half_width)
    best = table.best("wait", "place", more=False)
    assert best.select("place", "law", "mean", "next").rows() == [
        ("x", "a", 2.0, "b"),
        ("y", "a", 5.0, "b"),
    ]
    assert best["ties"].to_list() == [["b"], ["b"]]
    whole = table.best_of("wait", ["b"], more=True)
    assert whole is not None and whole.means == {"b": 3.5}
    assert table.best_of("wait", ["c"], more=True) is None


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
