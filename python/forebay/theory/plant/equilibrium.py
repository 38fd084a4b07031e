"""Where classes of flows with senders and RTTs of their own rest under one law.

A class has N flows with windows W(p, R), R = T + q/C of its own T, and all see one p. They rest
where Σ N·W/R = C, which for a queue q has one p, as each W falls with p; and where the law has that
p at that q. A law knows p by the flows of Reno that need it: it is asked at N = RC·√(p/2) of them.

All rows are solved at once, each with a link of its own where need be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import elementwise

from forebay.theory.plant.senders import Sender

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
#: The law's queue at as many flows of Reno, with a mean RTT, of these rows; nan where it has none.
Law = Callable[[Floats, Floats, Rows], Floats]

#: Relative change at which p is found, and steps until it is given up.
SAME, STEPS = 1e-14, 200
#: Of the search for the queue, as `LawSpec::operate` has them in Rust.
LONGEST_PKTS, NARROW, AGREE = 1e12, 1e-12, 1e-6


@dataclass(frozen=True)
class FlowClasses:
    """Classes of flows on a link, scaled to any number of flows and any mean RTT.

    senders: one for each. shares: of the flows. ratios: of each RTT to the mean. These and
    capacity_pkts_per_s may have a row for each link.
    """

    senders: tuple[Sender, ...]
    shares: tuple[float | Floats, ...]
    ratios: tuple[float | Floats, ...]
    capacity_pkts_per_s: float | Floats

    def of_rows(self, rows: Rows) -> FlowClasses:
        """Those of some rows."""

        def pick(value: float | Floats) -> float | Floats:
            return value if np.ndim(value) == 0 else np.asarray(value)[rows]

        return replace(
            self,
            shares=tuple(map(pick, self.shares)),
            ratios=tuple(map(pick, self.ratios)),
            capacity_pkts_per_s=pick(self.capacity_pkts_per_s),
        )

    def rtts_s(self, propagation_s: Floats | float, queue_pkts: Floats) -> list[Floats]:
        """R of each class."""
        age_s = queue_pkts / self.capacity_pkts_per_s
        return [np.asarray(ratio * propagation_s + age_s) for ratio in self.ratios]

    def offered(self, p: Floats, rtts_s: Sequence[Floats]) -> Floats:
        """Packets per second of an average flow."""
        rates = [
            share * sender.window(p, rtt_s) / rtt_s
            for sender, share, rtt_s in zip(self.senders, self.shares, rtts_s, strict=True)
        ]
        return np.asarray(sum(rates))

    def probability(
        self, flows: Floats, rtts_s: Sequence[Floats], near: Floats | None = None
    ) -> Floats:
        """The p with which these flows fill the link: Newton's method on logarithms, within
        bounds. near: a guess."""
        wanted = np.log(self.capacity_pkts_per_s / flows)
        low, high = np.full(np.shape(flows), -60.0), np.full(np.shape(flows), 30.0)
        x, small = np.full(np.shape(flows), -5.0) if near is None else np.log(near), 1e-7
        for _ in range(STEPS):
            off = np.log(self.offered(np.exp(x), rtts_s)) - wanted
            low, high = np.where(off > 0, x, low), np.where(off > 0, high, x)
            slope = (np.log(self.offered(np.exp(x + small), rtts_s)) - wanted - off) / small
            step = x - off / np.where(slope < 0, slope, -1.0)
            last, x = x, np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
            if np.all(np.abs(x - last) <= SAME * (1 + np.abs(x))):
                break
        return np.asarray(np.exp(x))

    def alike(self, p: Floats, propagation_s: Floats | float, queue_pkts: Floats) -> Floats:
        """How many flows of Reno need this p with this queue."""
        rtt_s = propagation_s + queue_pkts / self.capacity_pkts_per_s
        return np.asarray(np.sqrt(p / 2) * rtt_s * self.capacity_pkts_per_s)

    def small(self, p: Floats, rtts_s: Sequence[Floats]) -> NDArray[np.bool_]:
        """Where a window would be less than its sender keeps."""
        small = np.zeros(len(p), bool)
        with np.errstate(invalid="ignore"):
            for sender, rtt_s in zip(self.senders, rtts_s, strict=True):
                small |= sender.window(p, rtt_s) < sender.least_pkts
        return small


@dataclass(frozen=True)
class Settlings:
    """How numbers of flows settle, one for each: as `LawModel.rest` has it, the queue, and p.

    how is also "small": a window would be less than its sender keeps.
    """

    how: list[str]
    queue_pkts: Floats
    probability: Floats


def settle(
    classes: FlowClasses,
    law: Law,
    buffer_pkts: float | Floats,
    flows: Floats,
    propagation_s: Floats | float,
) -> Settlings:
    """How each number of flows settles, as `LawModel.rest` has it of Reno's."""
    flows = np.asarray(flows, float)
    propagation_s = np.broadcast_to(np.asarray(propagation_s, float), flows.shape)
    known = np.full(len(flows), np.nan)

    def law_at(queue: Floats, rows: Rows) -> tuple[Floats, Floats]:
        """The law's queue, and p, where those flows have this queue."""
        there, of = classes.of_rows(rows), propagation_s[rows]
        near = None if np.isnan(known[rows]).any() else known[rows]
        p = there.probability(flows[rows], there.rtts_s(of, queue), near)
        known[rows] = p
        rtt_s = of + queue / there.capacity_pkts_per_s
        return law(there.alike(p, of, queue), rtt_s, rows), p

    how = np.full(len(flows), "", dtype=object)
    queue, found_p = np.full(len(flows), np.nan), np.full(len(flows), np.nan)
    first, p = law_at(np.zeros(len(flows)), np.arange(len(flows)))
    empty = first < 0
    how[empty], found_p[empty] = "empty", p[empty]
    # Where the law integrates, its queue does not depend on the network.
    rows = np.flatnonzero(~empty & np.isfinite(first))
    again, p = law_at(first[rows], rows)
    same = again == first[rows]
    at = rows[same]
    how[at], queue[at], found_p[at] = "rests", first[at], p[same]
    rows = np.flatnonzero(how == "")
    # Without an equilibrium the law cannot signal enough: the queue is longer.
    high, above = np.ones(len(flows)), rows
    while len(above):
        law_pkts, _ = law_at(high[above], above)
        above = above[np.isnan(law_pkts) | (law_pkts > high[above])]
        high[above] *= 2
        above = above[high[above] <= LONGEST_PKTS]
    how[rows[high[rows] > LONGEST_PKTS]] = "unmodelled"
    rows = rows[high[rows] <= LONGEST_PKTS]
    if len(rows):
        _meet(law_at, rows, high)
        law_pkts, p = law_at(high[rows], rows)
        agrees = np.abs(law_pkts - high[rows]) <= AGREE * (1 + high[rows])
        queue[rows] = np.where(agrees, high[rows], law_pkts)
        jump = ~agrees & np.isfinite(law_pkts)
        if jump.any():
            p[jump] = law_at(law_pkts[jump], rows[jump])[1]
        how[rows] = np.where(agrees, "rests", np.where(jump, "jump", "unmodelled"))
        found_p[rows] = p
    resting = np.isin(how, ["rests", "jump"])
    how[resting & (queue > buffer_pkts)] = "full"
    how[np.isin(how, ["rests", "jump", "full"]) & (found_p >= 1)] = "saturated"
    rests = how == "rests"
    how[rests & classes.small(found_p, classes.rtts_s(propagation_s, queue))] = "small"
    how[how == "rests"] = "linear"
    return Settlings([str(one) for one in how], queue, found_p)


def _meet(
    law_at: Callable[[Floats, Rows], tuple[Floats, Floats]], rows: Rows, high: Floats
) -> None:
    """Moves `high` of these rows down to where the law's queue is the queue, by Chandrupatla's
    method; to the upper side of a jump. It is at 1, or has just been doubled."""

    def off(queue: Floats, row: Floats) -> Floats:
        law_pkts, _ = law_at(queue, row.astype(np.intp))
        return np.where(np.isnan(law_pkts), LONGEST_PKTS, law_pkts - queue)

    found = elementwise.find_root(
        off,
        (np.where(high[rows] > 1, 0.5 * high[rows], 0.0), high[rows]),
        args=(rows.astype(float),),
        tolerances={"xatol": 0.0, "xrtol": NARROW, "fatol": 0.0, "frtol": 0.0},
    )
    (left, right), (at_left, _) = found.bracket, found.f_bracket
    high[rows] = np.where(found.f_x == 0, found.x, np.where(at_left <= 0, left, right))
