"""Classes of flows with senders and RTTs of their own, under one law: the loop that they close
where all settle.

A class has N flows with windows W(p, R), R = T + q/C of its own T, and all see one p. They rest
where Σ N·W/R = C, which for a queue q has one p, as each W falls with p; and where the law has that
p at that q (`MixedFlows` in `equilibrium.rs` of forebay-theory). A law knows p by the flows of
Reno that need it: it is asked at N = RC·√(p/2) of them. Around that point, with x of each window's
motion (`forebay.control.senders`),

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

import forebay._native as _native
from forebay._native import FlowModel, ScenarioError
from forebay.control import frequency_response
from forebay.control.class_equilibria import ClassEquilibrium, MixedEquilibrium
from forebay.control.frequency_response import Complexes, Terms
from forebay.control.loaded_link import LoadedLink
from forebay.control.loop import Loop
from forebay.control.plant import Equilibrium, Floats, Plant
from forebay.control.senders import SENDERS, Sender
from forebay.scenario.builder import Group

if TYPE_CHECKING:
    from typing import Self

    from forebay._native import LawModel, LinearModel

#: The queue in which all packets wait in one line.
ONE_LINE = "fifo"
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
        classes = self.plant.classes
        if self.to_queue.beside is None or any(each.coupling is not None for each in classes):
            return super().signal_paths
        rests = self.plant.rests(self.equilibrium).classes
        rates: dict[float, float] = {}
        for rest, each in zip(rests, classes, strict=True):
            rates[each.ratio] = rates.get(each.ratio, 0.0) + rest.flows * rest.rate_pkts_per_s
        # The longest RTT is first, as in `MixedPlant.terms`.
        shares = [rates[ratio] / self.point.capacity_pkts_per_s for ratio in sorted(rates)[::-1]]
        paths = (replace(path, beside=None) for path in self.to_queue.paths)
        return list(zip(paths, shares, strict=True))

    @property
    def window_pkts(self) -> float:
        """Of the first class: the point is that of as many flows of Reno as need the same p."""
        return self.plant.rests(self.equilibrium).classes[0].window_pkts

    def probability_step(self) -> float:
        """The change of p that a tenth more flows need at this queue."""
        point, plant = self.point, self.plant
        age_s = self.model["queue_pkts"] / point.capacity_pkts_per_s
        rests = plant.rests(self.equilibrium).classes
        flows = sum(
            rest.flows - each.fixed_flows for rest, each in zip(rests, plant.classes, strict=True)
        )
        more = plant.flow_model.operating_point(
            1.1 * flows,
            point.rtt_s - age_s,
            self.model["queue_pkts"],
            point.capacity_pkts_per_s,
        )
        return more.probability - point.probability


@dataclass(frozen=True)
class FlowClass:
    """A class of flows of the plant.

    share: of the number of flows that is asked of the plant; fixed_flows: and so many besides.
    ratio: of its RTT without a queue to the mean. coupling: k of flows of L4S, which are marked
    with k·√p; None of others. waits: whether its packets wait in the queue that the law sees.
    """

    sender: Sender
    share: float
    ratio: float
    fixed_flows: float = 0.0
    coupling: float | None = None
    waits: bool = True

    def probability(self, p: Floats) -> Floats:
        """Of a signal to this class, where the law has p."""
        return p if self.coupling is None else np.asarray(self.coupling * np.sqrt(p))

    def slope(self, p: Floats) -> Floats:
        """How that changes with p."""
        return np.ones_like(p) if self.coupling is None else self.coupling / (2 * np.sqrt(p))


@dataclass(frozen=True)
class MixedPlant(Plant):
    """A law on a link with these classes, scaled to any number of flows and any mean RTT."""

    law: LawModel
    link: LoadedLink
    classes: tuple[FlowClass, ...]

    @classmethod
    def on_link(cls, link: LoadedLink, law: str, params: Sequence[tuple[str, Any]]) -> Self:
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
        classes = [
            FlowClass(SENDERS[group.tcp], group.flows / total, group.rtt_s / mean_s)
            for group in groups
        ]
        if link.l4s_flows:
            coupling, apart = check_coupled(link, law, model)
            l4s = FlowClass(SENDERS["dctcp"], 0.0, 1.0, link.l4s_flows, coupling, not apart)
            classes.append(l4s)
        return cls(model, link, tuple(classes))

    # --- rest ---------------------------------------------------------------------------------

    @property
    def flow_model(self) -> FlowModel:
        plain = [each for each in self.classes if each.coupling is None]
        l4s = [
            (each.fixed_flows, each.coupling, not each.waits)
            for each in self.classes
            if each.coupling is not None
        ]
        return FlowModel.mixed(
            [each.sender.name for each in plain],
            [each.share for each in plain],
            [each.ratio for each in plain],
            l4s[0] if l4s else None,
        )

    @property
    def published(self) -> bool:
        return False

    def _rtts_s(self, equilibria: Sequence[Equilibrium], each: FlowClass) -> Floats:
        ages_s = np.array(
            [model["queue_pkts"] / point.capacity_pkts_per_s for point, model in equilibria]
        )
        rtts_s = np.array([point.rtt_s for point, _ in equilibria])
        return np.asarray(each.ratio * (rtts_s - ages_s) + each.waits * ages_s)

    def _at_rest(self, equilibria: Sequence[Equilibrium]) -> list[tuple[Floats, Floats, Floats]]:
        """Of each class its number of flows, window and round trip."""
        p = np.array([point.probability for point, _ in equilibria])
        capacity = np.array([point.capacity_pkts_per_s for point, _ in equilibria])
        rtts_s = [self._rtts_s(equilibria, each) for each in self.classes]
        windows = [
            each.sender.window(each.probability(p), rtt_s)
            for each, rtt_s in zip(self.classes, rtts_s, strict=True)
        ]
        rates = [window / rtt_s for window, rtt_s in zip(windows, rtts_s, strict=True)]
        shared = sum(each.share * rate for each, rate in zip(self.classes, rates, strict=True))
        fixed = sum(each.fixed_flows * rate for each, rate in zip(self.classes, rates, strict=True))
        flows = (capacity - fixed) / shared
        counts = [each.share * flows + each.fixed_flows for each in self.classes]
        return list(zip(counts, windows, rtts_s, strict=True))

    def mixed_senders(self, equilibrium: Equilibrium) -> MixedEquilibrium | None:
        return self.rests(equilibrium)

    def rests(self, equilibrium: Equilibrium) -> MixedEquilibrium:
        """All classes at rest."""
        point, model = equilibrium
        age_s = model["queue_pkts"] / point.capacity_pkts_per_s
        classes = []
        rests = self._at_rest([equilibrium])
        for each, (flows, windows, rtts_s) in zip(self.classes, rests, strict=True):
            window, rtt_s = float(windows[0]), float(rtts_s[0])
            p = float(each.probability(np.array(point.probability)))
            classes.append(
                ClassEquilibrium(
                    each.sender.name if each.coupling is None else "l4s",
                    float(flows[0]),
                    rtt_s - each.waits * age_s,
                    rtt_s,
                    window,
                    window / rtt_s,
                    each.sender.region(p, rtt_s),
                )
            )
        return MixedEquilibrium(point.probability, model["queue_pkts"], tuple(classes))

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
        shares = {path: -seen * np.einsum("nij,nj->ni", left, b) for path, b in entries.items()}
        columns = list(range(a.shape[-1]))
        if len(equilibria) == 1:
            # Modes that no signal moves, or that the queue does not show.
            size = np.max([np.abs(share[0]) for share in shares.values()], 0)
            columns = [k for k in columns if size[k] > NOTHING * size.max()]
        paths = []
        for (ratio, waits), share in sorted(shares.items(), reverse=True):
            each = FlowClass(SENDERS["reno"], 0.0, ratio, waits=waits)
            # An L4S packet with a queue of its own takes the link from the head at once.
            late_s = self._rtts_s(equilibria, each) + waits * ages_s
            paths.append(
                replace(
                    built,
                    gain=1.0,
                    delay_s=frequency_response.column(late_s),
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

    def system(
        self, equilibria: Sequence[Equilibrium]
    ) -> tuple[Floats, dict[tuple[float, bool], Floats]]:
        """The matrix of all windows, the queue and its average; and where p enters it, by the
        ratio of the RTT and whether packets wait. The queue is that which the law sees, as what the
        link sends while its head waits."""
        p = np.array([point.probability for point, _ in equilibria])
        capacity = np.array([point.capacity_pkts_per_s for point, _ in equilibria])
        rests = self._at_rest(equilibria)
        averages = [frequency_response.average_pole(model) for _, model in equilibria]
        # What flows with a queue of their own leave of the link to that of the law.
        ahead = sum(
            flows * window / rtt_s
            for each, (flows, window, rtt_s) in zip(self.classes, rests, strict=True)
            if not each.waits
        )
        scale = capacity / (capacity - ahead)
        motions = [
            each.sender.motion(each.probability(p), rtt_s)
            for each, (_, _, rtt_s) in zip(self.classes, rests, strict=True)
        ]
        sizes = [motion.b.shape[-1] for motion in motions]
        at_q = sum(sizes)
        size = at_q + 1 + (averages[0] is not None)
        a = np.zeros((len(p), size, size))
        entries: dict[tuple[float, bool], Floats] = {}
        at = 0
        for motion, each, (flows, window, rtt_s), k in zip(
            motions, self.classes, rests, sizes, strict=True
        ):
            here = slice(at, at + k)
            # Of the round trip by the queue.
            wait = each.waits / capacity
            a[:, here, here] = motion.a
            a[:, here, at_q] = motion.e * wait[:, None]
            a[:, at_q, here] = (scale * flows / rtt_s)[:, None] * motion.c
            a[:, at_q, at_q] -= scale * flows * window / rtt_s**2 * wait
            clocked = (scale * motion.clocked * flows)[:, None] * motion.c
            a[:, at_q, here] += np.einsum("ni,nij->nj", clocked, motion.a)
            a[:, at_q, at_q] += np.einsum("ni,ni->n", clocked, motion.e) * wait
            entry = entries.setdefault((each.ratio, each.waits), np.zeros((len(p), size)))
            by_p = motion.b * each.slope(p)[:, None]
            entry[:, here] += by_p
            entry[:, at_q] += np.einsum("ni,ni->n", clocked, by_p)
            at += k
        if averages[0] is not None:
            average = np.array(averages, float)
            a[:, at_q + 1, at_q], a[:, at_q + 1, at_q + 1] = average, -average
        return a, entries

    def loop(self, equilibrium: Equilibrium) -> MixedLoop:
        return MixedLoop(self, equilibrium, self.terms([equilibrium]))


def check_coupled(link: LoadedLink, law: str, model: LawModel) -> tuple[float, bool]:
    """k of a law beside flows of L4S, and whether these have a queue of their own. Raises
    `ScenarioError` for a law that is not coupled, or does not integrate."""
    if model.coupling is None:
        names = [entry["name"] for entry in _native.laws() if entry["coupled"]]
        raise ScenarioError(
            f"--l4s-flows: found {link.l4s_flows:g} with {law}, which tells no classes "
            f"apart, allowed: 0, or one of {', '.join(names)}"
        )
    if model.coupling <= 0:
        raise ScenarioError("--set coupling: found 0, allowed: above 0 with L4S flows")
    point = _native.OperatingPoint(1.0, link.rtt_s, model.capacity_pkts_per_s)
    linear = model.linear(point)
    if linear is not None and not linear["integrates"]:
        raise ScenarioError(
            f"--l4s-flows: found {link.l4s_flows:g} with {law} without an integral, "
            "allowed: 0, or a gain that integrates"
        )
    queue = next(entry["queue"] for entry in _native.laws() if entry["name"] == law)
    return model.coupling, queue != ONE_LINE


def _complex(values: NDArray[Any]) -> Complexes:
    return np.asarray(values, complex)
