"""Classes of flows with senders and RTTs of their own, under one law: the loop that they close
where all settle (`forebay.control.rest`).

Around that point, with N flows in a class and x of each window's motion
(`forebay.control.senders`),

q' = Σ (N/R)·δW − (Σ N·W/R²)/C·q, x' = a·x + b·δp(t − R) + e·q/C

is one system of which every class has a path, with its own delay and the poles of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay import _native
from forebay._native import ScenarioError
from forebay.control import gain, stepping
from forebay.control.gain import Complexes, Terms
from forebay.control.link import Link
from forebay.control.loop import Loop
from forebay.control.rest import Classes, Rows, Settled, settle
from forebay.control.senders import SENDERS, Motion, Sender
from forebay.run.scenario import Group

if TYPE_CHECKING:
    from forebay._native import LawModel, LinearModel, OperatingPoint

Floats = NDArray[np.float64]
Cell = tuple["OperatingPoint", "LinearModel"]

#: Share of the largest mode below which one is rounding.
NOTHING = 1e-13
#: Eigenvectors nearer to each other than this are moved apart by a relative `MOVED`.
ALIGNED, MOVED = 1e8, 3e-7


@dataclass(frozen=True)
class Class:
    """A class at rest; window and rate of a flow."""

    tcp: str
    flows: float
    propagation_s: float
    rtt_s: float
    window_pkts: float
    rate_pkts_per_s: float
    region: str | None


@dataclass(frozen=True)
class Rested:
    """All classes at rest."""

    probability: float
    queue_pkts: float
    classes: tuple[Class, ...]

    def as_json(self) -> dict[str, Any]:
        return {"probability": self.probability, "flows": [asdict(one) for one in self.classes]}


class MixedLoop(Loop):
    """The loop of several senders, or of one that is not Reno."""

    def __init__(self, mix: Mix, cell: Cell, terms: Terms) -> None:
        super().__init__(*cell, terms)
        self.mix = mix

    @cached_property
    def to_queue(self) -> Terms:
        if self.model["average"] is None:
            return self.terms
        bare: LinearModel = {**self.model, "average": None}
        return self.mix.terms([(self.point, bare)])

    @property
    def parts(self) -> list[tuple[Terms, float]]:
        """The paths from p to the queue, one for each RTT, with the share of the link that the
        flows on it have."""
        here = self.mix.split((self.point, self.model)).classes
        rates: dict[float, float] = {}
        for one, ratio in zip(here, self.mix.ratios, strict=True):
            rates[ratio] = rates.get(ratio, 0.0) + one.flows * one.rate_pkts_per_s
        # The longest RTT is first, as in `Mix.terms`.
        shares = [rates[ratio] / self.point.capacity_pkts_per_s for ratio in sorted(rates)[::-1]]
        paths = (replace(path, beside=None) for path in self.to_queue.paths)
        return list(zip(paths, shares, strict=True))

    def step(self, duration_s: float, points: int = 2000) -> tuple[Floats, Floats]:
        """As of `Loop`: a tenth more flows act as the change of p that they need at this queue."""
        point, model = self.point, self.model
        flows = self.mix.flows_at((point, model))
        classes = self.mix.classes
        rtts_s = classes.rtts_s(
            point.rtt_s - self.mix.age_s(model), np.array([model["queue_pkts"]])
        )
        more = classes.probability(np.array([1.1 * flows]), rtts_s)
        return stepping.step(
            model,
            self.terms,
            float(more[0]) - point.probability,
            duration_s,
            points,
            self.to_queue,
        )


@dataclass(frozen=True)
class Mix:
    """A law on a link with these classes, scaled to any number of flows and any mean RTT.

    shares: of the flows. ratios: of each RTT to the mean.
    """

    law: LawModel
    link: Link
    senders: tuple[Sender, ...]
    shares: tuple[float, ...]
    ratios: tuple[float, ...]

    @staticmethod
    def on(link: Link, law: str, params: Sequence[tuple[str, Any]]) -> Mix:
        """Raises `ScenarioError` for a parameter that is wrong, and for flows of Prague under a
        law that tells them apart."""
        model = link.model(law, params)
        groups: Sequence[Group] = link.groups or [Group("reno", link.flows, link.rtt)]
        if coupled(law) and any(SENDERS[one.tcp].ecn == "l4s" for one in groups):
            raise ScenarioError(
                f'--tcp: found "{link.senders}" with {law}, which signals flows of L4S otherwise, '
                "allowed: --l4s-flows for these"
            )
        total = sum(one.flows for one in groups)
        mean_s = link.rtt_s
        return Mix(
            model,
            link,
            tuple(SENDERS[one.tcp] for one in groups),
            tuple(one.flows / total for one in groups),
            tuple(one.rtt_s / mean_s for one in groups) if len(groups) > 1 else (1.0,),
        )

    # --- rest ---------------------------------------------------------------------------------

    @property
    def classes(self) -> Classes:
        return Classes(self.senders, self.shares, self.ratios, self.law.capacity_pkts_per_s)

    def age_s(self, model: LinearModel) -> float:
        return float(model["queue_pkts"] / self.law.capacity_pkts_per_s)

    def settle(self, flows: Floats, propagation_s: Floats | float) -> Settled:
        """How each number of flows settles, as `LawModel.rest` has it of Reno's."""

        def law(alike: Floats, rtts_s: Floats, _rows: Rows) -> Floats:
            return np.array(self.law.queues(alike.tolist(), rtts_s.tolist()))

        return settle(self.classes, law, self.law.buffer_pkts, flows, propagation_s)

    def cells(self, flows: Floats, propagation_s: float) -> tuple[list[str], list[Cell]]:
        """How each settles, and the cells of those with an equilibrium."""
        found = self.settle(flows, propagation_s)
        cells = [
            self.cell(float(p), float(queue), propagation_s)
            for how, p, queue in zip(found.how, found.probability, found.queue_pkts, strict=True)
            if how == "linear"
        ]
        return found.how, cells

    def cell(self, p: float, queue_pkts: float, propagation_s: float) -> Cell:
        """The law where all rest with this p and this queue."""
        point = self.point(p, queue_pkts, propagation_s)
        model = self.law.linear(point)
        assert model is not None
        # To rounding it is the queue of the search.
        return point, {**model, "queue_pkts": queue_pkts}

    def point(self, p: float, queue_pkts: float, propagation_s: float) -> OperatingPoint:
        """That of as many flows of Reno as need this p."""
        capacity = self.law.capacity_pkts_per_s
        rtt_s = propagation_s + queue_pkts / capacity
        return _native.OperatingPoint(math.sqrt(p / 2) * rtt_s * capacity, rtt_s, capacity)

    def alike(self, flows: float, propagation_s: float, queue_pkts: float = 0.0) -> float:
        """How many flows of Reno need the p of these with this queue."""
        rtts_s = self.classes.rtts_s(propagation_s, np.array([queue_pkts]))
        p = float(self.classes.probability(np.array([flows]), rtts_s)[0])
        return self.point(p, queue_pkts, propagation_s).flows

    def operate(self, flows: float, propagation_s: float) -> Cell | None:
        """The point of as many flows of Reno as need the same p, and the law there; None where
        there is no equilibrium."""
        _, cells = self.cells(np.array([flows]), propagation_s)
        return cells[0] if cells else None

    def rest(self, flows: float, propagation_s: float) -> tuple[str, float | None, float | None]:
        """As `LawModel.rest`, and "small"."""
        found = self.settle(np.array([flows]), propagation_s)
        queue, p = float(found.queue_pkts[0]), float(found.probability[0])
        return found.how[0], _known(queue), _known(p)

    def flows_at(self, cell: Cell) -> float:
        """All flows at a cell."""
        point, model = cell
        propagation_s = point.rtt_s - self.age_s(model)
        rtts_s = self.classes.rtts_s(propagation_s, np.array([model["queue_pkts"]]))
        p = np.array([point.probability])
        return float(point.capacity_pkts_per_s / self.classes.offered(p, rtts_s)[0])

    def split(self, cell: Cell) -> Rested:
        """All classes at a cell."""
        point, model = cell
        p, flows = point.probability, self.flows_at(cell)
        propagation_s = point.rtt_s - self.age_s(model)
        classes = []
        for sender, share, ratio in zip(self.senders, self.shares, self.ratios, strict=True):
            rtt_s = ratio * propagation_s + self.age_s(model)
            window = float(sender.window(np.asarray(p), np.asarray(rtt_s)))
            classes.append(
                Class(
                    sender.name,
                    flows * share,
                    ratio * propagation_s,
                    rtt_s,
                    window,
                    window / rtt_s,
                    sender.region(p, rtt_s),
                )
            )
        return Rested(p, model["queue_pkts"], tuple(classes))

    # --- around it ----------------------------------------------------------------------------

    def terms(self, cells: Sequence[Cell]) -> Terms:
        """Loops at cells of `operate`, as `gain.terms` has them: a path for each RTT. The cells may
        be of links with other rates."""
        built = gain.terms(cells)
        points, models = [point for point, _ in cells], [model for _, model in cells]
        p = np.array([point.probability for point in points])
        queue = np.array([model["queue_pkts"] for model in models])
        capacity = np.array([point.capacity_pkts_per_s for point in points])
        propagation_s = np.array([point.rtt_s for point in points]) - queue / capacity
        rtts_s = [np.asarray(ratio * propagation_s + queue / capacity) for ratio in self.ratios]
        flows = capacity / self.classes.offered(p, rtts_s)
        averages = [gain.average_pole(model) for model in models]
        average = None if averages[0] is None else np.array(averages, float)
        a, entries = self._system(p, flows, capacity, rtts_s, average)
        poles, right = np.linalg.eig(a)
        if np.linalg.cond(right).max() > ALIGNED:
            # Two equal poles have no fractions of their own.
            moved = 1 + MOVED * np.arange(a.shape[-1])
            a = a * np.where(np.eye(a.shape[-1]) > 0, moved, 1.0)
            poles, right = np.linalg.eig(a)
        left = np.linalg.inv(right)
        # Of the queue, or its average, which is the last state.
        seen = right[:, -1, :]
        # The sign of L is that of a law's gain: more signals, less queue.
        shares = {ratio: -seen * np.einsum("nij,nj->ni", left, b) for ratio, b in entries.items()}
        columns = list(range(a.shape[-1]))
        if len(p) == 1:
            # Modes that no signal moves, or that the queue does not show.
            size = np.max([np.abs(share[0]) for share in shares.values()], 0)
            columns = [k for k in columns if size[k] > NOTHING * size.max()]
        paths = []
        for ratio, share in sorted(shares.items(), reverse=True):
            delay_s = gain.column(ratio * propagation_s + queue / capacity)
            paths.append(
                replace(
                    built,
                    gain=1.0,
                    delay_s=delay_s,
                    poles=tuple(gain.complex_column(_complex(-poles[:, k])) for k in columns),
                    shares=tuple(gain.complex_column(_complex(share[:, k])) for k in columns),
                )
            )
        found = paths[-1]
        for path in reversed(paths[:-1]):
            found = replace(path, beside=found)
        return found

    def _system(
        self,
        p: Floats,
        flows: Floats,
        capacity: Floats,
        rtts_s: Sequence[Floats],
        average: Floats | None,
    ) -> tuple[Floats, dict[float, Floats]]:
        """The matrix of all windows, the queue and its average; and where p enters it, by the
        ratio of the RTT."""
        motions: list[Motion] = []
        for sender, rtt_s in zip(self.senders, rtts_s, strict=True):
            motions.append(sender.motion(p, rtt_s, sender.window(p, rtt_s)))
        sizes = [one.b.shape[-1] for one in motions]
        at_q = sum(sizes)
        size = at_q + 1 + (average is not None)
        a = np.zeros((len(p), size, size))
        entries: dict[float, Floats] = {}
        at = 0
        for motion, sender, share, ratio, rtt_s, k in zip(
            motions, self.senders, self.shares, self.ratios, rtts_s, sizes, strict=True
        ):
            here = slice(at, at + k)
            a[:, here, here] = motion.a
            a[:, here, at_q] = motion.e / capacity[:, None]
            per_window = flows * share / rtt_s
            a[:, at_q, here] = per_window[:, None] * motion.c
            a[:, at_q, at_q] -= per_window * sender.window(p, rtt_s) / rtt_s / capacity
            entry = entries.setdefault(ratio, np.zeros((len(p), size)))
            entry[:, here] += motion.b
            at += k
        if average is not None:
            a[:, at_q + 1, at_q], a[:, at_q + 1, at_q + 1] = average, -average
        return a, entries

    def loop(self, cell: Cell) -> MixedLoop:
        return MixedLoop(self, cell, self.terms([cell]))

    def at(self, flows: float, propagation_s: float) -> MixedLoop | None:
        """The loop where the flows settle; None where they do not."""
        cell = self.operate(flows, propagation_s)
        return None if cell is None else self.loop(cell)


def operate(
    mixes: Sequence[Mix], flows: Sequence[float], propagations_s: Sequence[float]
) -> list[Cell | None]:
    """`Mix.operate` of several links with the same senders at once, a number of flows and a mean
    RTT for each."""

    def law(alike: Floats, rtts_s: Floats, rows: Rows) -> Floats:
        asked = zip(rows.tolist(), alike.tolist(), rtts_s.tolist(), strict=True)
        return np.array([mixes[i].law.queues([n], [rtt_s])[0] for i, n, rtt_s in asked])

    every = [one.classes for one in mixes]
    classes = Classes(
        every[0].senders,
        tuple(map(np.array, zip(*(one.shares for one in every), strict=True))),
        tuple(map(np.array, zip(*(one.ratios for one in every), strict=True))),
        np.array([one.law.capacity_pkts_per_s for one in mixes]),
    )
    buffers = np.array([one.law.buffer_pkts for one in mixes])
    found = settle(classes, law, buffers, np.array(flows), np.array(propagations_s))
    return [
        one.cell(float(p), float(queue), propagation_s) if how == "linear" else None
        for one, how, p, queue, propagation_s in zip(
            mixes, found.how, found.probability, found.queue_pkts, propagations_s, strict=True
        )
    ]


@cache
def coupled(law: str) -> bool:
    """Whether a law tells classic flows and those of L4S apart."""
    return any(
        one["name"] == law and any(spec["name"] == "coupling" for spec in one["params"])
        for one in _native.laws()
    )


def _complex(values: NDArray[Any]) -> Complexes:
    return np.asarray(values, complex)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
