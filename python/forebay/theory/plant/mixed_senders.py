"""Classes of flows with senders and RTTs of their own, under one law: the loop that they close
where all settle.

A class has N flows with windows W(p, R), R = T + q/C of its own T, and all see one p. They rest
where Σ N·W/R = C, which for a queue q has one p, as each W falls with p; and where the law has that
p at that q (`MixedFlows` in crates/forebay-core/src/equilibrium.rs). A law knows p by the flows of
Reno that need it: it is asked at N = RC·√(p/2) of them. Around that point, with x of each window's
motion (`forebay.theory.plant.senders`),

q' = Σ (N/R)·δW − (Σ N·W/R²)/C·q, x' = a·x + b·δp(t − R) + e·q/C

is one system of which every class has a path, with its own delay and the poles of all. Of a class
with ACKs as its clock, N·δW' goes into the queue, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._native import FlowModel, ScenarioError
from forebay.scenarios.builder import Group
from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Complexes, Terms
from forebay.theory.loop.loop import Loop
from forebay.theory.plant.classes_at_rest import ClassEquilibrium, MixedEquilibrium
from forebay.theory.plant.loaded_link import LoadedLink
from forebay.theory.plant.plant import Equilibrium, Floats, Plant
from forebay.theory.plant.senders import SENDERS, Motion, Sender

if TYPE_CHECKING:
    from forebay._native import LawModel, LinearModel

#: Share of the largest mode below which one is rounding.
NOTHING = 1e-13
#: Eigenvectors nearer to each other than this are moved apart by a relative `MOVED`.
ALIGNED, MOVED = 1e8, 3e-7


class MixedLoop(Loop):
    """The loop of several senders, or of one that is not Reno."""

    def __init__(self, plant: MixedPlant, equilibrium: Equilibrium, terms: Terms) -> None:
        super().__init__(*equilibrium, terms)
        self.plant = plant
        self.equilibrium = equilibrium

    @cached_property
    def to_queue(self) -> Terms:
        if self.model["average"] is None:
            return self.terms
        bare: LinearModel = {**self.model, "average": None}
        return self.plant.terms([Equilibrium(self.point, bare)])

    def _before_average(self) -> Terms:
        return self.to_queue

    @property
    def signal_paths(self) -> list[tuple[Terms, float]]:
        if self.to_queue.beside is None:
            return super().signal_paths
        here = self.plant.mixed_senders(self.equilibrium).classes
        rates: dict[float, float] = {}
        for each, ratio in zip(here, self.plant.ratios, strict=True):
            rates[ratio] = rates.get(ratio, 0.0) + each.flows * each.rate_pkts_per_s
        # The longest RTT is first, as in `MixedPlant.terms`.
        shares = [rates[ratio] / self.point.capacity_pkts_per_s for ratio in sorted(rates)[::-1]]
        paths = (replace(path, beside=None) for path in self.to_queue.paths)
        return list(zip(paths, shares, strict=True))

    @property
    def window_pkts(self) -> float:
        """Of the first class: the point is that of as many flows of Reno as need the same p."""
        return self.plant.mixed_senders(self.equilibrium).classes[0].window_pkts

    def probability_step(self) -> float:
        """The change of p that a tenth more flows need at this queue."""
        point, plant = self.point, self.plant
        age_s = self.model["queue_pkts"] / point.capacity_pkts_per_s
        flows = sum(each.flows for each in plant.mixed_senders(self.equilibrium).classes)
        more = plant.flow_model.probability(
            1.1 * flows,
            point.rtt_s - age_s,
            self.model["queue_pkts"],
            point.capacity_pkts_per_s,
        )
        return more - point.probability


@dataclass(frozen=True)
class MixedPlant(Plant):
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
        mean_s = link.rtt_s if len(groups) > 1 else groups[0].rtt_s
        total = sum(group.flows for group in groups)
        return MixedPlant(
            model,
            link,
            tuple(SENDERS[group.tcp] for group in groups),
            tuple(group.flows / total for group in groups),
            tuple(group.rtt_s / mean_s for group in groups),
        )

    # --- rest ---------------------------------------------------------------------------------

    @property
    def flow_model(self) -> FlowModel:
        return FlowModel.mixed([each.name for each in self.senders], self.shares, self.ratios)

    @property
    def published(self) -> bool:
        return False

    def _rtts_s(self, equilibria: Sequence[Equilibrium], ratio: float) -> Floats:
        """Of classes with this ratio of their RTT without a queue to the mean."""
        ages_s = np.array(
            [model["queue_pkts"] / point.capacity_pkts_per_s for point, model in equilibria]
        )
        rtts_s = np.array([point.rtt_s for point, _ in equilibria])
        return np.asarray(ratio * (rtts_s - ages_s) + ages_s)

    def _mean_rate(self, p: Floats, rtts_s: Sequence[Floats]) -> Floats:
        """Packets per second of an average flow."""
        classes = zip(self.senders, self.shares, rtts_s, strict=True)
        rates = [share * each.window(p, rtt_s) / rtt_s for each, share, rtt_s in classes]
        return np.asarray(np.sum(rates, axis=0))

    def mixed_senders(self, equilibrium: Equilibrium) -> MixedEquilibrium:
        point, model = equilibrium
        p, age_s = point.probability, model["queue_pkts"] / point.capacity_pkts_per_s
        rtts_s = [float(self._rtts_s([equilibrium], ratio)[0]) for ratio in self.ratios]
        mean_rate = self._mean_rate(np.array(p), [np.array(rtt_s) for rtt_s in rtts_s])
        flows = point.capacity_pkts_per_s / float(mean_rate)
        classes = []
        for sender, share, rtt_s in zip(self.senders, self.shares, rtts_s, strict=True):
            window = float(sender.window(np.array(p), np.array(rtt_s)))
            classes.append(
                ClassEquilibrium(
                    sender.name,
                    flows * share,
                    rtt_s - age_s,
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
        a, entries = self.system(equilibria)
        ages_s = np.array([model["age_s"] for _, model in equilibria])
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
        if len(equilibria) == 1:
            # Modes that no signal moves, or that the queue does not show.
            size = np.max([np.abs(share[0]) for share in shares.values()], 0)
            columns = [k for k in columns if size[k] > NOTHING * size.max()]
        paths = []
        for ratio, share in sorted(shares.items(), reverse=True):
            delay_s = frequency_response.column(self._rtts_s(equilibria, ratio) + ages_s)
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

    def system(self, equilibria: Sequence[Equilibrium]) -> tuple[Floats, dict[float, Floats]]:
        """The matrix of all windows, the queue and its average; and where p enters it, by the
        ratio of the RTT."""
        p = np.array([point.probability for point, _ in equilibria])
        capacity = np.array([point.capacity_pkts_per_s for point, _ in equilibria])
        rtts_s = [self._rtts_s(equilibria, ratio) for ratio in self.ratios]
        flows = capacity / self._mean_rate(p, rtts_s)
        averages = [frequency_response.average_pole(model) for _, model in equilibria]
        motions: list[Motion] = []
        for sender, rtt_s in zip(self.senders, rtts_s, strict=True):
            motions.append(sender.motion(p, rtt_s))
        sizes = [one.b.shape[-1] for one in motions]
        at_q = sum(sizes)
        size = at_q + 1 + (averages[0] is not None)
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
            clocked = (motion.clocked * flows * share)[:, None] * motion.c
            a[:, at_q, here] += np.einsum("ni,nij->nj", clocked, motion.a)
            a[:, at_q, at_q] += np.einsum("ni,ni->n", clocked, motion.e) / capacity
            a[:, at_q, at_q] -= per_window * sender.window(p, rtt_s) / rtt_s / capacity
            entry = entries.setdefault(ratio, np.zeros((len(p), size)))
            entry[:, here] += motion.b
            entry[:, at_q] += np.einsum("ni,ni->n", clocked, motion.b)
            at += k
        if averages[0] is not None:
            average = np.array(averages, float)
            a[:, at_q + 1, at_q], a[:, at_q + 1, at_q + 1] = average, -average
        return a, entries

    def loop(self, equilibrium: Equilibrium) -> MixedLoop:
        return MixedLoop(self, equilibrium, self.terms([equilibrium]))


def _complex(values: NDArray[Any]) -> Complexes:
    return np.asarray(values, complex)
