"""Classes of flows with senders and RTTs of their own, under one law: the loop that they close
where all settle (`forebay.theory.plant.equilibrium`).

Around that point, with N flows in a class and x of each window's motion
(`forebay.theory.plant.senders`),

q' = Σ (N/R)·δW − (Σ N·W/R²)/C·q, x' = a·x + b·δp(t − R) + e·q/C

is one system of which every class has a path, with its own delay and the poles of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._native import ScenarioError
from forebay.base import quantities
from forebay.scenarios.builder import Group
from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Complexes, Terms
from forebay.theory.loop.loop import Loop
from forebay.theory.plant.classes_at_rest import ClassEquilibrium, MixedEquilibrium
from forebay.theory.plant.equilibrium import FlowClasses, Settlings, settle
from forebay.theory.plant.loaded_link import LoadedLink
from forebay.theory.plant.plant import (
    Equilibrium,
    Floats,
    LoadLine,
    PlantMethods,
    Rows,
    Settling,
    line_of_equilibria,
)
from forebay.theory.plant.senders import SENDERS, Motion, Sender

if TYPE_CHECKING:
    from forebay._native import LawModel, LinearModel, OperatingPoint

#: Share of the largest mode below which one is rounding.
NOTHING = 1e-13
#: Eigenvectors nearer to each other than this are moved apart by a relative `MOVED`.
ALIGNED, MOVED = 1e8, 3e-7


class MixedLoop(Loop):
    """The loop of several senders, or of one that is not Reno."""

    def __init__(self, mix: MixedPlant, equilibrium: Equilibrium, terms: Terms) -> None:
        super().__init__(*equilibrium, terms)
        self.mix = mix
        self.equilibrium = equilibrium

    @cached_property
    def to_queue(self) -> Terms:
        if self.model["average"] is None:
            return self.terms
        bare: LinearModel = {**self.model, "average": None}
        return self.mix.terms([Equilibrium(self.point, bare)])

    def _before_average(self) -> Terms:
        return self.to_queue

    @property
    def signal_paths(self) -> list[tuple[Terms, float]]:
        if self.to_queue.beside is None:
            return super().signal_paths
        here = self.mix.mixed_senders(self.equilibrium).classes
        rates: dict[float, float] = {}
        for each, ratio in zip(here, self.mix.ratios, strict=True):
            rates[ratio] = rates.get(ratio, 0.0) + each.flows * each.rate_pkts_per_s
        # The longest RTT is first, as in `MixedPlant.terms`.
        shares = [rates[ratio] / self.point.capacity_pkts_per_s for ratio in sorted(rates)[::-1]]
        paths = (replace(path, beside=None) for path in self.to_queue.paths)
        return list(zip(paths, shares, strict=True))

    @property
    def window_pkts(self) -> float:
        """Of the first class: the point is that of as many flows of Reno as need the same p."""
        return self.mix.mixed_senders(self.equilibrium).classes[0].window_pkts

    def probability_step(self) -> float:
        """The change of p that a tenth more flows need at this queue."""
        point, model, classes = self.point, self.model, self.mix.classes
        propagation_s = point.rtt_s - self.mix.age_s(model)
        rtts_s = classes.rtts_s(propagation_s, np.array([model["queue_pkts"]]))
        more = classes.probability(np.array([1.1 * self.mix.flows_at(self.equilibrium)]), rtts_s)
        return float(more[0]) - point.probability


@dataclass(frozen=True)
class MixedPlant(PlantMethods):
    """A law on a link with these classes, scaled to any number of flows and any mean RTT.

    shares: of the flows. ratios: of each RTT to the mean.
    """

    law: LawModel
    link: LoadedLink
    senders: tuple[Sender, ...]
    shares: tuple[float, ...]
    ratios: tuple[float, ...]

    @staticmethod
    def on_link(link: LoadedLink, law: str, params: Sequence[tuple[str, Any]]) -> MixedPlant:
        """Raises `ScenarioError` for a parameter that is wrong, and for flows of Prague under a
        law that tells them apart."""
        model = link.model(law, params)
        groups: Sequence[Group] = link.groups or [Group("reno", link.flows, link.rtt)]
        if model.coupling is not None and any(SENDERS[one.tcp].ecn == "l4s" for one in groups):
            raise ScenarioError(
                f'--tcp: found "{link.senders}" with {law}, which signals flows of L4S otherwise, '
                "allowed: --l4s-flows for these"
            )
        total = sum(one.flows for one in groups)
        mean_s = link.rtt_s
        return MixedPlant(
            model,
            link,
            tuple(SENDERS[one.tcp] for one in groups),
            tuple(one.flows / total for one in groups),
            tuple(one.rtt_s / mean_s for one in groups) if len(groups) > 1 else (1.0,),
        )

    # --- rest ---------------------------------------------------------------------------------

    @property
    def classes(self) -> FlowClasses:
        return FlowClasses(self.senders, self.shares, self.ratios, self.law.capacity_pkts_per_s)

    def age_s(self, model: LinearModel) -> float:
        return float(model["queue_pkts"] / self.law.capacity_pkts_per_s)

    @property
    def published(self) -> bool:
        return False

    def settle_all(self, flows: Floats, propagation_s: Floats | float) -> Settlings:
        """How each number of flows settles."""

        def law(alike: Floats, rtts_s: Floats, _rows: Rows) -> Floats:
            return np.array(self.law.queues(alike.tolist(), rtts_s.tolist()))

        return settle(self.classes, law, self.law.buffer_pkts, flows, propagation_s)

    def equilibria(
        self, flows: Floats, propagation_s: float
    ) -> tuple[list[str], list[Equilibrium]]:
        """How each settles, and the equilibria of those that have one."""
        found = self.settle_all(flows, propagation_s)
        linear = [
            self.equilibrium_of(float(p), float(queue), propagation_s)
            for how, p, queue in zip(found.how, found.probability, found.queue_pkts, strict=True)
            if how == "linear"
        ]
        return found.how, linear

    def equilibrium_of(self, p: float, queue_pkts: float, propagation_s: float) -> Equilibrium:
        """The law where all rest with this p and this queue."""
        point = self.point(p, queue_pkts, propagation_s)
        model = self.law.linear(point)
        assert model is not None
        # To rounding it is the queue of the search.
        return Equilibrium(point, {**model, "queue_pkts": queue_pkts})

    def point(self, p: float, queue_pkts: float, propagation_s: float) -> OperatingPoint:
        """That of as many flows of Reno as need this p."""
        capacity = self.law.capacity_pkts_per_s
        rtt_s = propagation_s + queue_pkts / capacity
        return _native.OperatingPoint(math.sqrt(p / 2) * rtt_s * capacity, rtt_s, capacity)

    def reno_flows(self, flows: float, propagation_s: float, queue_pkts: float = 0.0) -> float:
        rtts_s = self.classes.rtts_s(propagation_s, np.array([queue_pkts]))
        p = float(self.classes.probability(np.array([flows]), rtts_s)[0])
        return self.point(p, queue_pkts, propagation_s).flows

    def equilibrium(self, flows: float, propagation_s: float) -> Equilibrium | None:
        _, found = self.equilibria(np.array([flows]), propagation_s)
        return found[0] if found else None

    def settle(self, flows: float, propagation_s: float) -> Settling:
        """ "small" where a window would be less than its sender keeps."""
        found = self.settle_all(np.array([flows]), propagation_s)
        queue, p = float(found.queue_pkts[0]), float(found.probability[0])
        return Settling(found.how[0], quantities.finite(queue), quantities.finite(p))

    def flows_at(self, equilibrium: Equilibrium) -> float:
        """All flows at an equilibrium."""
        point, model = equilibrium
        propagation_s = point.rtt_s - self.age_s(model)
        rtts_s = self.classes.rtts_s(propagation_s, np.array([model["queue_pkts"]]))
        p = np.array([point.probability])
        return float(point.capacity_pkts_per_s / self.classes.offered(p, rtts_s)[0])

    def mixed_senders(self, equilibrium: Equilibrium) -> MixedEquilibrium:
        point, model = equilibrium
        p, flows = point.probability, self.flows_at(equilibrium)
        propagation_s = point.rtt_s - self.age_s(model)
        classes = []
        for sender, share, ratio in zip(self.senders, self.shares, self.ratios, strict=True):
            rtt_s = ratio * propagation_s + self.age_s(model)
            window = float(sender.window(np.asarray(p), np.asarray(rtt_s)))
            classes.append(
                ClassEquilibrium(
                    sender.name,
                    flows * share,
                    ratio * propagation_s,
                    rtt_s,
                    window,
                    window / rtt_s,
                    sender.region(p, rtt_s),
                )
            )
        return MixedEquilibrium(p, model["queue_pkts"], tuple(classes))

    # --- around it ----------------------------------------------------------------------------

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """A path for each RTT. The equilibria may be of links with other rates."""
        built = frequency_response.terms(equilibria)
        points, models = [each.point for each in equilibria], [each.model for each in equilibria]
        p = np.array([point.probability for point in points])
        queue = np.array([model["queue_pkts"] for model in models])
        capacity = np.array([point.capacity_pkts_per_s for point in points])
        propagation_s = np.array([point.rtt_s for point in points]) - queue / capacity
        rtts_s = [np.asarray(ratio * propagation_s + queue / capacity) for ratio in self.ratios]
        flows = capacity / self.classes.offered(p, rtts_s)
        averages = [frequency_response.average_pole(model) for model in models]
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
            delay_s = frequency_response.column(ratio * propagation_s + queue / capacity)
            paths.append(
                replace(
                    built,
                    gain=1.0,
                    delay_s=delay_s,
                    poles=tuple(
                        frequency_response.complex_column(_complex(-poles[:, k])) for k in columns
                    ),
                    shares=tuple(
                        frequency_response.complex_column(_complex(share[:, k])) for k in columns
                    ),
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

    def loop(self, equilibrium: Equilibrium) -> MixedLoop:
        return MixedLoop(self, equilibrium, self.terms([equilibrium]))

    def load_line(self, flows: Floats, propagation_s: float) -> LoadLine:
        return line_of_equilibria(*self.equilibria(flows, propagation_s), self.terms)


def equilibria_on_links(
    mixes: Sequence[MixedPlant], flows: Sequence[float], propagations_s: Sequence[float]
) -> list[Equilibrium | None]:
    """`MixedPlant.equilibrium` of several links with the same senders at once, a number of flows
    and a mean RTT for each."""

    def law(alike: Floats, rtts_s: Floats, rows: Rows) -> Floats:
        asked = zip(rows.tolist(), alike.tolist(), rtts_s.tolist(), strict=True)
        return np.array([mixes[i].law.queues([n], [rtt_s])[0] for i, n, rtt_s in asked])

    every = [mix.classes for mix in mixes]
    classes = FlowClasses(
        every[0].senders,
        tuple(map(np.array, zip(*(each.shares for each in every), strict=True))),
        tuple(map(np.array, zip(*(each.ratios for each in every), strict=True))),
        np.array([mix.law.capacity_pkts_per_s for mix in mixes]),
    )
    buffers = np.array([mix.law.buffer_pkts for mix in mixes])
    found = settle(classes, law, buffers, np.array(flows), np.array(propagations_s))
    return [
        mix.equilibrium_of(float(p), float(queue), propagation_s) if how == "linear" else None
        for mix, how, p, queue, propagation_s in zip(
            mixes, found.how, found.probability, found.queue_pkts, propagations_s, strict=True
        )
    ]


def _complex(values: NDArray[Any]) -> Complexes:
    return np.asarray(values, complex)
