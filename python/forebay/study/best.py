"""Which law is best where, and where that may be chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from forebay.run import stats

if TYPE_CHECKING:
    from forebay.study.study import Study


def best(study: Study, metric: str, *axes: str, largest: bool) -> pl.DataFrame:
    """The law with the best mean at each place of `axes`: these, law, mean, next, p, and ties.

    largest: whether more is better. next: the second best. p: of a paired t test between both over
    the seeds, adjusted by Holm for all the laws that the first was chosen from; NaN for one seed.
    ties: whether it may be chance, at 95 %.
    """
    values = study.by_seed(metric, *axes)
    rows = []
    for place, of_place in values.group_by(list(axes), maintain_order=True):
        by_law: dict[str, dict[int, float]] = {}
        for law, seed, value in of_place.select("law", "seed", metric).iter_rows():
            by_law.setdefault(law, {})[seed] = value
        means = {law: sum(some.values()) / len(some) for law, some in by_law.items()}
        order = sorted(means, key=lambda law: means[law], reverse=largest)
        second = order[1] if len(order) > 1 else ""
        pairs = stats.compare({law: by_law[law] for law in order})
        p = next((one.p for one in pairs if {one.first, one.second} == {order[0], second}), None)
        chance = bool(second) and (p is None or p >= 1 - stats.LEVEL)
        rows.append((*place, order[0], means[order[0]], second, p, chance))
    names = [*axes, "law", "mean", "next", "p", "ties"]
    return pl.DataFrame(rows, names, orient="row").sort(axes)
