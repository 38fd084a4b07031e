"""How far from its set-point a law leaves its linear model, beside how far flows swing the queue.

- Below it the probability is cut at zero: an integral loses what is cut off, and the queue settles
  lower.
- PIE's gains step with its probability (RFC 8033 section 4.2). A change that crosses a step is made
  with the gains of where it began: upwards with the smaller ones, and downwards with the larger
  ones. So p loses at each crossing, and the integral makes up for it by a queue above its
  set-point. With gains g1 below and g2 above, a sample loses (g2/g1 − g1/g2)/4 times the mean
  square of its change and the density at the step: nothing, if p moved by small changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from forebay.control.gain_steps import (
    ROOM,
    GainStep,
    integrates_queue,
    step_within,
    swing_of_classes,
    swing_pkts,
)
from forebay.control.loaded_link import PLAIN

if TYPE_CHECKING:
    from forebay.control.designed_law import Design


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
    if made.loop is None or not integrates_queue(made.loop):
        return None
    p = made.loop.point.probability if made.senders is None else made.senders.probability
    return Room(p / made.loop.model["proportional"], _swing_of(made))


def gain_step(made: Design) -> GainStep | None:
    """The nearest step of a law's gains within the reach of the queue's own moves, by either plant:
    packets of Reno need a smaller p than 2/W²."""
    if not made.modelled_elsewhere:
        return None
    law, swing = made.model(), _swing_of(made)
    loops = [loop for loop in (made.loop, made.sawtooth) if loop is not None]
    found = [step for loop in loops if (step := step_within(law, loop, swing)) is not None]
    return min(found, key=lambda one: one.room_pkts, default=None)


def _swing_of(made: Design) -> float:
    if made.senders is not None:
        return swing_of_classes(made.senders)
    point = made.point
    return swing_pkts([(PLAIN, made.link.flows, point.window_pkts)], point.probability)
