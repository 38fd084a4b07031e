"""PiGains and interval of a PI from inside the set that is calm over the whole range.

`pi_stabilising_set` has the exact set of gains with |1/(1 + L)| ≤ 2 at every corner. Where a
law is a PI, whatever it calls its gains (`pi_forms`), nothing need be searched for:
this goes through set-points and intervals, and takes from each set the gains with the least of the
goal's own number at the worst corner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from forebay._base import quantities
from forebay._native import ScenarioError
from forebay.control import disturbances, pi_forms, pi_stabilising_set
from forebay.control.design import LONGEST
from forebay.control.loop import Loop
from forebay.control.pi_forms import PiLaw
from forebay.control.pi_stabilising_set import TAKEN, Corner, PiGains
from forebay.control.plants import plant_on
from forebay.tuning import candidates
from forebay.tuning.candidates import Candidate, Goal, Params, Point, Space
from forebay.tuning.gain_search import TIE
from forebay.tuning.local_models import keeps
from forebay.tuning.ranges import Condition, Ranges

Floats = NDArray[np.float64]

#: Set-points that are tried at first, and how many times the best is closed in on.
TARGETS, CLOSER = 9, 2
#: Values of K_p, from a thousandth of the largest; shares of the largest K_i at each.
TRIED, SHARES = 28, (1.0, 0.6, 0.3, 0.1)
#: Shortest sampling interval, in s.
SHORTEST_S = 5e-4
#: The gains are this much inside the set, as what lies between two frequencies is not seen; and
#: they go further inside for as long as the exact peak is above its bound.
INSIDE, STEPS = 0.99, 12


@dataclass(frozen=True)
class Region(Space):
    """The calm sets of a law that is a PI. A point has "target" in packets on the fastest link (of
    a range of rates it is held as a time), "k_p", "k_i" and "interval" in s."""

    ranges: Ranges
    form: PiLaw

    @property
    def timed(self) -> bool:
        """Whether the set-point is a time: a queue of so many packets is another delay at each
        rate."""
        return self.ranges.rates_bps[0] < self.ranges.rates_bps[1]

    def params(self, point: Point) -> Params:
        gains = PiGains(point["k_p"], point["k_i"], point["interval"])
        found = self.form.params(gains.a, gains.b)
        if found is None:
            raise ScenarioError(f"{self.law}: found no gains, allowed: others")
        return (
            (self.form.keys[0], self._target(point["target"])),
            *((name, self.form.text(value, gains.a, gains.b)) for name, value in found),
            (self.form.keys[1], quantities.time(point["interval"])),
            *self.fixed,
        )

    def queue_pkts(self, point: Point, condition: Condition) -> float:
        return self._queue_pkts(point["target"], condition)

    def moved(self, point: Point, share: float) -> dict[str, float] | None:
        """`share` of the set-point, with gains from the set that is calm there: as fast a PI as
        the point's, as a share of the fastest."""
        here, there = point["target"], share * point["target"]
        if there < self._least():
            return None
        old, new = self.calm(here, point["interval"]), self.calm(there, point["interval"])
        if old is None or new is None:
            return None
        k_p = new.k_p[np.argmin(np.abs(new.k_p / new.k_p[-1] - point["k_p"] / old.k_p[-1]))]
        most, before = new.most_k_i(k_p), old.most_k_i(point["k_p"])
        if most <= 0 or before <= 0:
            return None
        k_i = most * min(1.0, point["k_i"] / before)
        return self._exact(there, PiGains(float(k_p), float(k_i), point["interval"]))

    def fastest(self, target: float, interval_s: float) -> dict[str, float] | None:
        """The gains with the largest calm K_i, which reject disturbances best (Åström and
        Hägglund 2006)."""
        calm = self.calm(target, interval_s) if target >= self._least() else None
        if calm is None:
            return None
        able = np.where(2 * calm.k_p > calm.k_i * interval_s, calm.k_i, 0.0)
        i = int(able.argmax())
        if able[i] <= 0:
            return None
        return self._exact(target, PiGains(float(calm.k_p[i]), float(able[i]), interval_s))

    def best(self, goal: Goal) -> Candidate | None:
        """The gains with the least of the goal's number; None where no one set is calm at every
        corner, or none with the goodput."""
        low, high = self._ends()
        found: tuple[float, float, PiGains] | None = None
        for target in np.geomspace(low, high, TARGETS):
            for interval_s in self._intervals(target):
                found = self._better(found, float(target), interval_s, goal)
        step = (high / low) ** (1 / (TARGETS - 1))
        for _ in range(CLOSER):
            if found is None:
                return None
            step = math.sqrt(step)
            _, centre, gains = found
            for target in (centre / step, centre * step):
                if low <= target <= high:
                    found = self._better(found, target, gains.interval_s, goal)
        if found is None:
            return None
        point = self._exact(found[1], found[2])
        if point is None:
            return None
        local = self.local(point, self.ranges, self.ranges.conditions)
        return candidates.searched(self, goal, point, local)

    def calm(self, target: float, interval_s: float) -> Calm | None:
        """The set of a set-point and an interval; None where a place has no equilibrium."""
        corners, held = [], []
        for condition in self.ranges.conditions:
            found = self._corner(condition, target, interval_s)
            if found is None:
                return None
            corners.append(found)
            held.append(found.flows > (1 - 1e-6) * self.ranges.flows[0])
        if not any(held):
            held = [True] * len(held)
        counted = [one for one, count in zip(corners, held, strict=True) if count]
        most = min(one.most_k_p() for one in counted)
        k_p = np.geomspace(1e-3 * most, most, TRIED + 1)[:-1]
        k_i = np.min([one.robust_k_i(k_p) for one in counted], axis=0)
        return Calm(corners, held, k_p, k_i)

    def _better(
        self,
        found: tuple[float, float, PiGains] | None,
        target: float,
        interval_s: float,
        goal: Goal,
    ) -> tuple[float, float, PiGains] | None:
        """Cost, set-point and gains: those that were found, or better ones here."""
        calm = self.calm(target, interval_s)
        if calm is None or not (calm.k_i > 0).any():
            return found
        k_p = np.repeat(calm.k_p, len(SHARES))
        k_i = np.outer(calm.k_i, SHARES).ravel()
        able = (k_i > 0) & (k_p > 0.5 * k_i * interval_s)
        k_p, k_i = k_p[able], k_i[able]
        if not len(k_p):
            return found
        cost = self.cost(calm, k_p, k_i, goal)
        for i in np.argsort(cost)[:3]:
            gains = PiGains(float(k_p[i]), float(k_i[i]), interval_s)
            if found is not None and cost[i] >= found[0]:
                break
            if math.isfinite(cost[i]) and self.form.params(gains.a, gains.b) is not None:
                return float(cost[i]), target, gains
        return found

    def cost(self, calm: Calm, k_p: Floats, k_i: Floats, goal: Goal) -> Floats:
        """The goal's number at the worst place with each pair of gains, as `gain_search.loss` has;
        infinite where the queue would be empty too often."""
        worst = np.zeros(len(k_p))
        for one, held in zip(calm.corners, calm.held, strict=True):
            noise, load = deviations(one, k_p, k_i)
            queue = one.queue_pkts
            per_s = one.point.capacity_pkts_per_s
            both = np.hypot(noise, load)
            p95_s = (queue + 1.645 * both) / per_s
            number = p95_s if goal.least == "delay_p95_s" else both / per_s
            idle = 0.5 * special.erfc(queue / np.maximum(noise, 1e-12) / math.sqrt(2))
            number = np.where(held & (idle > goal.give_up), math.inf, number + TIE * p95_s)
            worst = np.maximum(worst, number)
        return worst

    def own(self, point: Point) -> list[tuple[Condition, PiGains, Params]]:
        """The PI with the largest calm K_i of each place alone, where margins count, and its
        parameters; none where the law cannot have them."""
        calm = self.calm(point["target"], point["interval"])
        found = []
        for one in calm.counted if calm else []:
            alone = pi_stabilising_set.choose([one], point["interval"])
            try:
                params = self.params({**point, "k_p": alone.k_p, "k_i": alone.k_i})
            except ScenarioError:
                params = ()
            assert isinstance(one.place, Condition)
            found.append((one.place, alone, params))
        return found

    def _exact(self, target: float, gains: PiGains) -> dict[str, float] | None:
        """The point with these gains, moved inside the set until the exact peaks keep the bound."""
        k_p, k_i = gains.k_p, gains.k_i
        for _ in range(STEPS):
            point = {"target": target, "k_p": k_p, "k_i": INSIDE * k_i}
            point["interval"] = gains.interval_s
            try:
                local = self.local(point, self.ranges, self.ranges.conditions)
            except ScenarioError:
                return None
            if keeps(local):
                return point
            k_p, k_i = 0.97 * k_p, 0.95 * k_i
        return None

    def _corner(self, condition: Condition, target: float, interval_s: float) -> Placed | None:
        """A place behind the law's path, at rest with the flows that the model counts."""
        queue_pkts = self._queue_pkts(target, condition)
        flows = self.ranges.native.active_flows(condition.plain, queue_pkts)
        some = self.form.params(*pi_stabilising_set.ANY)
        assert some is not None
        params = [
            (self.form.keys[0], self._target(target)),
            *some,
            (self.form.keys[1], quantities.time(interval_s)),
        ]
        plant = plant_on(self.ranges.link(condition, flows), self.law, params)
        there = plant.equilibrium(flows, condition.rtt_s)
        if there is None or there.model["queue_pkts"] > self.ranges.buffer_pkts:
            return None
        path = pi_forms.law_path(there.model, *pi_stabilising_set.ANY)
        if path is None:
            return None
        return placed(condition, flows, plant.loop(there), interval_s, path)

    def _target(self, target: float) -> str:
        """As the law takes it."""
        if not self.timed:
            return f"{target:.4g}p"
        fastest = self.ranges.rates_bps[1] / (8 * self.ranges.packet_bytes)
        return f"{1e3 * target / fastest:.4g}ms"

    def _queue_pkts(self, target: float, condition: Condition) -> float:
        if not self.timed:
            return target
        return target * condition.rate_bps / self.ranges.rates_bps[1]

    def _least(self) -> float:
        """A packet on the slowest link: a set-point below its time signals whenever one waits (RFC
        8290 section 5.2.1), and real packets come in bursts."""
        low, high = self.ranges.rates_bps
        return high / low if self.timed else 1.0

    def _ends(self) -> tuple[float, float]:
        """Set-points from one of five packets (on the slowest link one and a half) up to half the
        buffer."""
        low = 5.0
        if self.timed:
            low = max(low, 1.5 * self.ranges.rates_bps[1] / self.ranges.rates_bps[0])
        return low, max(1.2 * low, 0.5 * self.ranges.buffer_pkts)

    def _intervals(self, target: float) -> list[float]:
        """The law's own, and shorter and longer ones that suit the shortest round trip with its
        queue."""
        shortest_s = min(
            min(one.rtt_s for one in self.ranges.groups(condition))
            + self._queue_pkts(target, condition) / self.ranges.capacity_pkts_per_s(condition)
            for condition in self.ranges.conditions
        )
        tried = (self.form.interval_s, TAKEN * shortest_s, 0.5 * TAKEN * shortest_s)
        rounded = [float(f"{one:.2g}") for one in tried]
        longest = max(LONGEST * shortest_s, SHORTEST_S)
        fits = [min(max(one, SHORTEST_S), longest) for one in rounded if one <= longest]
        return list(dict.fromkeys(fits or [SHORTEST_S]))


@dataclass(frozen=True)
class Placed(Corner):
    """A corner with the flows that count, its resting queue, and how TCP's losses and the load move
    that queue: density times the width of each frequency, without the law."""

    flows: float
    queue_pkts: float
    noise: Floats
    load: Floats


@dataclass(frozen=True)
class Calm:
    """The calm set of one set-point and interval: the largest K_i at each K_p; held: of which
    corners the margins count."""

    corners: list[Placed]
    held: list[bool]
    k_p: Floats
    k_i: Floats

    @property
    def counted(self) -> list[Placed]:
        return [one for one, count in zip(self.corners, self.held, strict=True) if count]

    def most_k_i(self, k_p: float) -> float:
        return min(float(one.robust_k_i(np.array([k_p]))[0]) for one in self.counted)


def placed(
    place: Condition,
    flows: float,
    loop: Loop,
    interval_s: float,
    path: Floats,
) -> Placed:
    """A corner with the frequencies that `disturbances.queue_deviations` goes through."""
    high, point = math.pi / interval_s, loop.point
    omega = disturbances.TURNS / point.rtt_s
    omega = np.append(omega[omega < high], high)
    found = pi_stabilising_set.corner(
        place, point, interval_s, path, omega=omega, plant=loop.to_queue
    )
    width = np.gradient(omega)
    width[[0, -1]] *= 0.5
    # What is beyond the last of those frequencies does not count, as there.
    width[omega > 1.01 * disturbances.TURNS[-1] / point.rtt_s] = 0.0
    noise, load = (width / math.pi * part for part in disturbances.densities(loop, omega))
    queue = loop.model["queue_pkts"]
    return Placed(place, point, omega, found.response, found.integral, flows, queue, noise, load)


def deviations(one: Placed, k_p: Floats, k_i: Floats) -> tuple[Floats, Floats]:
    """Of the queue in packets, by TCP's own losses and by the load, with each pair of gains."""
    law = k_p[:, None] - 1j * one.integral * k_i[:, None]
    square = 1 / np.abs(1 + law * one.response) ** 2
    # Not by BLAS, whose sums depend on how many threads it has.
    noise, load = (np.einsum("ij,j->i", square, part) for part in (one.noise, one.load))
    return np.sqrt(noise), np.sqrt(load)


def region_of(law: str, ranges: Ranges) -> Region | None:
    """None for a law that is no PI."""
    search_space = candidates.space(law, ranges)
    form = pi_forms.pi_law(law)
    if search_space is None or form is None:
        return None
    return Region(law, (), search_space.native, ranges, form, fixed=search_space.fixed)


def space_of(candidate: Candidate, ranges: Ranges) -> Space | None:
    """Where a candidate was found: a region, or the space of a search."""
    if "k_i" in candidate.point:
        return region_of(candidate.law, ranges)
    return candidates.space(candidate.law, ranges)
