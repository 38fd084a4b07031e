"""A design in words, from the link to the margins, and what to change. The sentences stand in
`design_reasons.txt.j2`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from forebay.control import margins
from forebay.control.headroom import gain_step, room
from forebay.control.robust_settings import CALM
from forebay.report import templates

if TYPE_CHECKING:
    from forebay.control.designed_law import Design

#: Fast retransmit needs three packets after the lost one.
LEAST_WINDOW_PKTS = 4.0


class Cut(NamedTuple):
    """The probability is cut at zero room_pkts below the set-point, and sawteeth swing the queue by
    swing_pkts; a smaller `key` would leave more room."""

    room_pkts: float
    swing_pkts: float
    key: str | None


def paragraph(design: Design) -> str:
    """One paragraph from the link to the margins."""
    link, loop = design.link, design.loop
    stable = loop is not None and loop.stable
    reach_is_known = stable and design.modelled_elsewhere
    fewest, longest_s = _reach(design) if reach_is_known else (None, None)
    (text,) = templates.paragraphs(
        "design_reasons.txt.j2",
        design=design,
        link=link,
        point=design.point,
        classes=design.classes,
        senders=design.senders,
        small_windows=design.window_pkts < LEAST_WINDOW_PKTS,
        misses_target=abs(design.held_pkts - link.target_pkts) > 0.01 * link.target_pkts,
        loop=loop,
        margins=design.margins,
        usual=design.published,
        fewest=fewest,
        longest_s=longest_s,
        cut=_cut(design),
        step=gain_step(design),
        sawtooth=design.sawtooth,
        calm=CALM,
        infinite=math.inf,
    )
    return text


def _cut(design: Design) -> Cut | None:
    """None where there is room."""
    found = room(design)
    if found is None or found.suffices:
        return None
    return Cut(*found, design.model().slowed_by if design.modelled_elsewhere else None)


def _reach(design: Design) -> tuple[float | None, float | None]:
    """The fewest flows and the longest propagation at which these gains are stable; None where
    that is absurd."""
    plant, link = design.among_flows(), design.link

    def stable(flows: float, rtt_s: float) -> bool:
        loop = plant.loop_at(flows, rtt_s)
        return loop is not None and loop.stable

    fewest = _edge(lambda factor: stable(link.flows * factor, link.rtt_s), 1e-3)
    longest = _edge(lambda factor: stable(link.flows, link.rtt_s * factor), 1e3)
    return fewest and link.flows * fewest, longest and link.rtt_s * longest


def _edge(stable: Callable[[float], bool], far: float) -> float | None:
    """The factor between 1 and `far` at which stability ends; None where it does not."""
    good, step = 1.0, far ** (1 / 24)
    while stable(good * step):
        good *= step
        if abs(math.log(good)) >= abs(math.log(far)) - 1e-9:
            return None
    log, width = math.log(good), math.log(step)
    return math.exp(
        margins.edge(lambda x: stable(math.exp(x)), log, log + width, 2**-12 * abs(width))
    )
