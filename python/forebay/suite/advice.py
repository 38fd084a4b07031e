"""Which law to use when: sentences drawn from the averages and their tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from forebay.run import stats
from forebay.run.metrics import METRICS, with_interval
from forebay.suite.results import MORE, Suite

#: What a user may want, and the metric that tells it.
NEEDS = [
    ("Short waits", "delay_p95_s"),
    ("Short transfers that end soon beside long ones", "flow_completion_p95_s"),
    ("Equal shares", "jain"),
    ("All of the link", "goodput_bps"),
    ("Few losses", "drop_rate"),
]


#: A law that leaves more of the link idle than the rest of this share waits little at their cost.
ENOUGH = 0.9
#: Laws to be named in one list; the others are counted.
NAMED = 4


@dataclass(frozen=True)
class Best:
    """The best law of some under one metric."""

    law: str
    #: its average, with interval and unit
    value: str
    #: laws whose difference from it may be chance
    equals: list[str]
    #: and the next one that differs, with its average
    behind: str

    def words(self, seeds: int) -> str:
        text = f"{self.law} ({self.value})"
        if seeds < 2:
            return f"{text}; one seed, so any difference may be chance"
        if self.equals:
            text += f"; its lead over {_list(self.equals)} may be chance"
        if self.behind:
            text += f"; then {self.behind}"
        return text


@dataclass(frozen=True)
class Advice:
    """One need, and which law serves it."""

    need: str
    metric: str
    best: Best
    #: of the laws with one queue for all flows, where the best has more
    single: Best | None


def advice(suite: Suite) -> list[Advice]:
    """For each need the best law over all cases, by averages over seeds."""
    single = [law for law in suite.laws if law not in suite.divided]
    found = []
    for need, metric in NEEDS:
        waits = metric == "delay_p95_s"
        laws = _busy(suite) if waits else suite.laws
        bound = f", with at least {100 * ENOUGH:.0f} % of the most goodput" if waits else ""
        best = _best(suite, laws, metric)
        if best is None:
            continue
        alone = [law for law in laws if law in single]
        other = _best(suite, alone, metric) if best.law in suite.divided else None
        found.append(Advice(need + bound, metric, best, other))
    return found


def unbeaten(suite: Suite) -> list[str]:
    """Laws that no other beats in both the 95th percentile of the delay and the goodput, by
    delay."""
    found: list[str] = []
    most = -math.inf
    delay = {law: suite.average(law, "delay_p95_s").mean for law in suite.laws}
    for law in sorted(suite.laws, key=lambda law: delay[law]):
        goodput = suite.average(law, "goodput_bps").mean
        if goodput > most:
            found.append(law)
            most = goodput
    return found


def _busy(suite: Suite) -> list[str]:
    """Laws under which the link carries enough."""
    goodput = {law: suite.average(law, "goodput_bps").mean for law in suite.laws}
    return [law for law in suite.laws if goodput[law] >= ENOUGH * max(goodput.values())]


def written(suite: Suite, metric: str, law: str) -> str:
    """An average with its interval and unit."""
    cell, of = suite.average(law, metric), METRICS[metric]
    text = with_interval(of.scale * cell.mean, of.scale * cell.half_width)
    return f"{text} {of.unit}".strip()


def _best(suite: Suite, laws: Sequence[str], metric: str) -> Best | None:
    values = {law: suite.by_seed(law, metric) for law in laws}
    means = {law: float(np.mean(list(found.values()))) for law, found in values.items() if found}
    ranked = sorted(
        (law for law, mean in means.items() if np.isfinite(mean)),
        key=lambda law: -means[law] if metric in MORE else means[law],
    )
    if not ranked:
        return None
    first, *others = ranked
    tests = [stats.compare({first: values[first], law: values[law]}) for law in others]
    adjusted = stats.holm([test[0].p if test else 1.0 for test in tests])
    equals = [law for law, p in zip(others, adjusted, strict=True) if p >= 1 - stats.LEVEL]
    rest = [law for law in others if law not in equals]
    behind = f"{rest[0]} with {written(suite, metric, rest[0])}" if rest else ""
    return Best(first, written(suite, metric, first), equals, behind)


def _list(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last
