"""Which law to use when: sentences drawn from the averages and their tests."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from forebay._base.metrics import METRICS, with_interval
from forebay._base.statistics import Best
from forebay.campaign.suite_results import Suite

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
class Advice:
    """One need, and which law serves it."""

    need: str
    metric: str
    best: Best
    #: of the laws with one queue for all flows, where the best has more
    single: Best | None
    #: in sentences
    text: str


def advice(suite: Suite) -> list[Advice]:
    """For each need the best law over all cases, by averages over seeds."""
    found = []
    for need, metric in NEEDS:
        waits = metric == "delay_p95_s"
        laws = _busy(suite) if waits else suite.laws
        bound = f", with at least {100 * ENOUGH:.0f} % of the most goodput" if waits else ""
        best, single = suite.best(metric, laws), None
        if best is None:
            continue
        text = f"{in_words(suite, metric, best)}."
        if best.law in suite.per_flow:
            single = suite.best(metric, [law for law in laws if law not in suite.per_flow])
        if single is not None:
            text += f" With one queue for all flows: {in_words(suite, metric, single)}."
        found.append(Advice(need + bound, metric, best, single, text))
    return found


def in_words(suite: Suite, metric: str, best: Best) -> str:
    """The best law with its average, the laws over which its lead may be chance, and the next."""
    text = f"{best.law} ({written(suite, metric, best.law)})"
    if len(suite.seeds) < 2:
        return f"{text}; one seed, so any difference may be chance"
    if best.ties:
        text += f"; its lead over {_list(best.ties)} may be chance"
    if best.behind:
        text += f"; then {best.behind} with {written(suite, metric, best.behind)}"
    return text


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


def _list(names: Sequence[str]) -> str:
    if len(names) > NAMED:
        names = [*names[: NAMED - 1], f"{len(names) - NAMED + 1} more"]
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last
