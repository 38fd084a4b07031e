"""Where a law's gains step within the reach of the queue's own moves, and how far those reach: what
rules need of it, before there is a design.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from forebay._native import OperatingPoint
from forebay.control.senders import SENDERS

if TYPE_CHECKING:
    from forebay._native import LawModel
    from forebay.control.class_equilibria import MixedEquilibrium
    from forebay.control.loop import Loop

#: With room for this number of standard deviations of the queue, the probability seldom reaches
#: zero.
ROOM = 4.0
#: What the queue moves by whoever sends: it is counted in whole packets.
LEAST_SWING_PKTS = 0.5
#: Gains that differ by this factor between probabilities that differ by `NEAR` step there.
STEPS, NEAR = 1.5, 2 ** (1 / 8)


class GainStep(NamedTuple):
    """A law's gains grow by `factor` above a `probability` of signals, which the law comes to
    room_pkts from its set-point; the windows' sawteeth swing the queue by swing_pkts."""

    probability: float
    factor: float
    room_pkts: float
    swing_pkts: float


def step_within(law: LawModel, loop: Loop, swing_pkts: float) -> GainStep | None:
    """The same of a law at rest, by its linear models at other loads."""
    if not integrates_queue(loop):
        return None
    here, p0 = loop.model["proportional"], loop.point.probability
    reach = ROOM * swing_pkts * here
    found = [
        GainStep(p, factor, abs(p - p0) / here, swing_pkts)
        for end in (min(p0 + reach, 1.0), max(p0 - reach, 0.01 * p0))
        for p, factor in _steps(law, loop.point, end)
    ]
    return min(found, key=lambda one: one.room_pkts, default=None)


def _steps(law: LawModel, point: OperatingPoint, end: float) -> Iterator[tuple[float, float]]:
    """Probabilities at which the law's gains step on the way to `end`, and the factor upwards."""

    def gain(p: float) -> float:
        flows = point.rtt_s * point.capacity_pkts_per_s * math.sqrt(p / 2)
        model = law.linear(OperatingPoint(flows, point.rtt_s, point.capacity_pkts_per_s))
        return math.nan if model is None else model["proportional"]

    def stepped(low: float, high: float) -> bool:
        return not 1 / STEPS < gain(high) / gain(low) < STEPS

    p0 = point.probability
    pieces = max(1, math.ceil(abs(math.log(end / p0) / math.log(NEAR))))
    way = [p0 * (end / p0) ** (i / pieces) for i in range(pieces + 1)]
    for a, b in itertools.pairwise(way):
        if not stepped(a, b):
            continue
        before, after = a, b
        for _ in range(40):
            middle = math.sqrt(before * after)
            before, after = (before, middle) if stepped(before, middle) else (middle, after)
        yield after, gain(max(before, after)) / gain(min(before, after))


def swing_pkts(senders: Iterable[tuple[str, float, float]], p: float) -> float:
    """Standard deviation of the queue by the sawteeth of (sender, flows, window) where a signal
    comes with p."""
    return math.hypot(
        LEAST_SWING_PKTS,
        *(
            _share(SENDERS[tcp].reduction(p)) * window_pkts * math.sqrt(flows)
            for tcp, flows, window_pkts in senders
        ),
    )


def swing_of_classes(rests: MixedEquilibrium) -> float:
    """`swing_pkts` of classes at rest. L4S flows wait in a queue of their own, which no set-point
    holds."""
    classes = [(one.tcp, one.flows, one.window_pkts) for one in rests.classes if one.tcp in SENDERS]
    return swing_pkts(classes, rests.probability)


def integrates_queue(loop: Loop) -> bool:
    model = loop.model
    return model["integrates"] and model["average"] is None and not model["one_sided"]


def _share(reduction: float) -> float:
    """Standard deviation over mean of a window that moves evenly between its most and what a
    reduction leaves."""
    return reduction / (1 - reduction / 2) / math.sqrt(12)
