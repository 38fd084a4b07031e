"""How often a law that does not lead is called the best: at most in 5 percent of comparisons."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay._base import statistics


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
