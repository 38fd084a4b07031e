"""How far below its set-point a law's probability is cut at zero, beside how far flows swing the
queue: an integral loses what is cut off, and the queue settles lower."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from forebay.theory.plant.loaded_link import PLAIN
from forebay.theory.plant.senders import SENDERS

if TYPE_CHECKING:
    from forebay.theory.design.designed_law import Design

#: With room for this number of standard deviations of the queue, the probability seldom reaches
#: zero.
ROOM = 4.0
#: What the queue moves by whoever sends: it is counted in whole packets.
LEAST_SWING_PKTS = 0.5


class Room(NamedTuple):
    """The probability is cut at zero room_pkts below the set-point, and the windows' sawteeth swing
    the queue by swing_pkts, a standard deviation."""

    room_pkts: float
    swing_pkts: float

    @property
    def suffices(self) -> bool:
        return self.room_pkts >= ROOM * self.swing_pkts


def room(made: Design) -> Room | None:
    """None for a law that does not integrate the queue itself."""
    if made.loop is None:
        return None
    model = made.loop.model
    if not model["integrates"] or model["average"] is not None or model["one_sided"]:
        return None
    p = made.loop.point.probability
    classes = [(PLAIN, made.link.flows, made.point.window_pkts)]
    if made.senders is not None:
        p = made.senders.probability
        classes = [(one.tcp, one.flows, one.window_pkts) for one in made.senders.classes]
    swing_pkts = math.hypot(
        LEAST_SWING_PKTS,
        *(
            _share(SENDERS[tcp].reduction(p)) * window_pkts * math.sqrt(flows)
            for tcp, flows, window_pkts in classes
        ),
    )
    return Room(p / model["proportional"], swing_pkts)


def _share(reduction: float) -> float:
    """Standard deviation over mean of a window that moves evenly between its most and what a
    reduction leaves."""
    return reduction / (1 - reduction / 2) / math.sqrt(12)
