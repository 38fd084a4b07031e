"""Plants of flows with several senders and RTTs, of classic and L4S flows, and of any link.

A class has N flows with windows W(p, R), where R = T + q/C with a T of its own; all classes receive
signals with the same p. At the equilibrium Σ N·W/R = C. For a queue q this has one solution p,
since each W decreases with p; and the law has that p at that q (`MixedFlows` in
crates/forebay-theory). A law knows p by the number of Reno flows that need it, N = RC·√(p/2).
Around that point, with the state x of each window (`forebay.control.senders`),

q' = Σ (N/R)·δW − (Σ N·W/R²)/C·q, x' = a·x + b·δp(t − R) + e·q/C

is one system in which every class has a path with its own delay and the poles of all classes. For a
class with ACK clocking, N·δW' enters the queue, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

import forebay._native as _native
from forebay._base.errors import ParameterError
from forebay._base.words import check_choice
from forebay._native import FlowModel
from forebay.control import frequency_response
from forebay.control.ack_clocking import AckClockedPlant
from forebay.control.frequency_response import Number, Terms
from forebay.control.link import Link, whole
from forebay.control.loop import Loop
from forebay.control.plant import (
    ClassEquilibrium,
    CoupledClass,
    CoupledEquilibrium,
    Equilibrium,
    Floats,
    MixedEquilibrium,
    Plant,
    PublishedPlant,
)
from forebay.control.senders import SENDERS, Sender
from forebay.scenario.builder import Group

if TYPE_CHECKING:
    from typing import Self

    from forebay._native import LawModel, LinearModel

#: Plants of Reno flows: that of the papers, or that of `ack_clocking`, which has ACKs as the flows'
#: clock and windows as sawteeth.
Windows = Literal["published", "sawtooth"]
WINDOWS: tuple[Windows, ...] = get_args(Windows)
#: The queue discipline in which all packets share one queue.
ONE_LINE = "fifo"
#: Size relative to the largest mode below which a mode is rounding.
NOTHING = 1e-13
#: Condition number of eigenvectors above which the poles are moved apart by a relative `MOVED`.
ALIGNED, MOVED = 1e8, 3e-7


class MixedLoop(Loop):
    """The loop of flows with several senders or RTTs, or of one sender other than Reno."""

    def __init__(self, plant: MixedPlant, equilibrium: Equilibrium, terms: Terms) -> None:
        super().__init__(*equilibrium, terms)
        self.plant = plant
        self.equilibrium = equilibrium

    @cached_property
    def to_queue(self) -> Terms:
        """Terms from the signal probability to the queue, without the law's average."""
        if self.model["average"] is None:
            return self.terms
        bare: LinearModel = {**self.model, "average": None}
        return self.plant.terms([Equilibrium(self.point, bare)])

    def _before_average(self) -> Terms:
        return self.to_queue

    @property
    def signal_paths(self) -> list[tuple[Terms, float]]:
        """The paths of the signal with the share of the link's rate that each carries."""
        classes = self.plant.classes
        if self.to_queue.parallel is None or any(group.coupling is not None for group in classes):
            return super().signal_paths
        states = self.plant.class_equilibria(self.equilibrium).classes
        rates: dict[float, float] = {}
        for state, group in zip(states, classes, strict=True):
            rates[group.ratio] = rates.get(group.ratio, 0.0) + state.flows * state.rate_pkts_per_s
        # The longest RTT is first, as in `MixedPlant.terms`.
        shares = [rates[ratio] / self.point.capacity_pkts_per_s for ratio in sorted(rates)[::-1]]
        paths = (replace(path, parallel=None) for path in self.to_queue.paths)
        return list(zip(paths, shares, strict=True))

    @property
    def window_pkts(self) -> float:
        """Window of the first class, in packets; `point` is that of Reno flows with the same p."""
        return self.plant.class_equilibria(self.equilibrium).classes[0].window_pkts

    def probability_step(self) -> float:
        """Return the change of p that 10 % more flows need at this queue."""
        point, plant = self.point, self.plant
        age_s = self.model["queue_pkts"] / point.capacity_pkts_per_s
        states = plant.class_equilibria(self.equilibrium).classes
        flows = sum(
            state.flows - group.fixed_flows
            for state, group in zip(states, plant.classes, strict=True)
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

    Attributes
    ----------
    sender : Sender
        Congestion control.
    share : float
        Fraction of the number of flows that the plant is evaluated for.
    ratio : float
        RTT without queueing, relative to the mean RTT.
    fixed_flows : float
        Further flows, whose number does not vary.
    coupling : float or None
        k of L4S flows, which are marked with k·√p; None for other flows.
    waits : bool
        True if their packets wait in the queue that the law observes.
    """

    sender: Sender
    share: float
    ratio: float
    fixed_flows: float = 0.0
    coupling: float | None = None
    waits: bool = True

    def probability(self, p: Floats) -> Floats:
        """Return the probability of a signal to this class, for the law's p."""
        return p if self.coupling is None else np.asarray(self.coupling * np.sqrt(p))

    def slope(self, p: Floats) -> Floats:
        """Return the derivative of `probability` by p."""
        return np.ones_like(p) if self.coupling is None else self.coupling / (2 * np.sqrt(p))


@dataclass(frozen=True)
class MixedPlant(Plant):
    """A law on a link with classes of flows, for any number of flows and any mean RTT."""

    law: LawModel
    link: Link
    classes: tuple[FlowClass, ...]

    @classmethod
    def on_link(cls, link: Link, law: str, params: Sequence[tuple[str, Any]]) -> Self:
        """Return the plant of a link's flows under a law.

        Parameters
        ----------
        link : Link
            The link and its flows.
        law : str
            Name of the law.
        params : sequence of (name, value)
            Parameters of the law.

        Raises
        ------
        ScenarioError
            If a parameter is wrong, or the law signals Prague flows in another way than classic
            flows.
        """
        model = link.model(law, params)
        groups: Sequence[Group] = link.groups or [Group("reno", link.flows, link.rtt)]
        if model.coupling is not None and any(SENDERS[group.tcp].ecn == "l4s" for group in groups):
            expected = "other senders; l4s_flows is the number of L4S flows"
            reason = f"{law} signals these in another way than classic flows"
            raise ParameterError("senders", link.senders, expected, reason=reason)
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

    # --- the equilibrium ----------------------------------------------------------------------

    @property
    def flow_model(self) -> FlowModel:
        """The classes as the native module models them."""
        plain = [group for group in self.classes if group.coupling is None]
        l4s = [
            (group.fixed_flows, group.coupling, not group.waits)
            for group in self.classes
            if group.coupling is not None
        ]
        return FlowModel.mixed(
            [group.sender.name for group in plain],
            [group.share for group in plain],
            [group.ratio for group in plain],
            l4s[0] if l4s else None,
        )

    @property
    def published(self) -> bool:
        """False: no publication has this linear model."""
        return False

    def _rtts_s(self, equilibria: Sequence[Equilibrium], group: FlowClass) -> Floats:
        ages_s = np.array(
            [model["queue_pkts"] / point.capacity_pkts_per_s for point, model in equilibria]
        )
        rtts_s = np.array([point.rtt_s for point, _ in equilibria])
        return np.asarray(group.ratio * (rtts_s - ages_s) + group.waits * ages_s)

    def _class_states(
        self, equilibria: Sequence[Equilibrium]
    ) -> list[tuple[Floats, Floats, Floats]]:
        """Return number of flows, window and RTT of each class at equilibria."""
        p = np.array([point.probability for point, _ in equilibria])
        capacity = np.array([point.capacity_pkts_per_s for point, _ in equilibria])
        shared, fixed, windows = np.zeros(len(p)), np.zeros(len(p)), []
        for group in self.classes:
            rtt_s = self._rtts_s(equilibria, group)
            window = group.sender.window(group.probability(p), rtt_s)
            shared = shared + group.share * (window / rtt_s)
            fixed = fixed + group.fixed_flows * (window / rtt_s)
            windows.append((window, rtt_s))
        flows = (capacity - fixed) / shared
        counts = [group.share * flows + group.fixed_flows for group in self.classes]
        return [(count, *window) for count, window in zip(counts, windows, strict=True)]

    def mixed_senders(self, equilibrium: Equilibrium) -> MixedEquilibrium | None:
        """Return the equilibrium of all classes."""
        return self.class_equilibria(equilibrium)

    def class_equilibria(self, equilibrium: Equilibrium) -> MixedEquilibrium:
        """Return the equilibrium of all classes."""
        point, model = equilibrium
        age_s = model["queue_pkts"] / point.capacity_pkts_per_s
        classes = []
        states = self._class_states([equilibrium])
        for group, (flows, windows, rtts_s) in zip(self.classes, states, strict=True):
            window, rtt_s = float(windows[0]), float(rtts_s[0])
            p = float(group.probability(np.array(point.probability)))
            classes.append(
                ClassEquilibrium(
                    group.sender.name if group.coupling is None else "l4s",
                    float(flows[0]),
                    rtt_s - group.waits * age_s,
                    rtt_s,
                    window,
                    window / rtt_s,
                    group.sender.region(p, rtt_s),
                )
            )
        return MixedEquilibrium(point.probability, model["queue_pkts"], tuple(classes))

    # --- around it ----------------------------------------------------------------------------

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """Return a path for each RTT; the equilibria may be of links with different rates."""
        built = frequency_response.terms(equilibria)
        a, entries = self.system(equilibria)
        ages_s = np.array([model["age_s"] for _, model in equilibria])
        poles, vectors = np.linalg.eig(a)
        if np.linalg.cond(vectors).max() > ALIGNED:
            # Equal poles have no partial fractions.
            moved = 1 + MOVED * np.arange(a.shape[-1])
            a = a * np.where(np.eye(a.shape[-1]) > 0, moved, 1.0)
            poles, vectors = np.linalg.eig(a)
        left_vectors = np.linalg.inv(vectors)
        # The queue, or its average, is the last state.
        observed = vectors[:, -1, :]
        # L has the sign of a law's gain, since more signals shorten the queue.
        shares = {
            path: -observed * np.einsum("nij,nj->ni", left_vectors, b)
            for path, b in entries.items()
        }
        columns = list(range(a.shape[-1]))
        if len(equilibria) == 1:
            # Modes that no signal excites, or that do not act on the queue, are omitted.
            size = np.max([np.abs(share[0]) for share in shares.values()], 0)
            columns = [k for k in columns if size[k] > NOTHING * size.max()]
        chain: Terms | None = None
        # The longest RTT is first in the chain, and therefore added last.
        for (ratio, waits), share in sorted(shares.items()):
            group = FlowClass(SENDERS["reno"], 0.0, ratio, waits=waits)
            # An L4S packet with a queue of its own takes the link from the head at once.
            late_s = self._rtts_s(equilibria, group) + waits * ages_s
            chain = replace(
                built,
                gain=1.0,
                delay_s=frequency_response.column(late_s),
                poles=tuple(_column(-poles[:, k]) for k in columns),
                residues=tuple(_column(share[:, k]) for k in columns),
                parallel=chain,
            )
        assert chain is not None
        return chain

    def system(
        self, equilibria: Sequence[Equilibrium]
    ) -> tuple[Floats, dict[tuple[float, bool], Floats]]:
        """Return the matrix of windows, queue and average, and the columns of p.

        The columns are indexed by the ratio of the RTT, and by True if packets wait. The queue is
        that which the law observes, as the packets that the link sends while its head waits.
        """
        p = np.array([point.probability for point, _ in equilibria])
        capacity = np.array([point.capacity_pkts_per_s for point, _ in equilibria])
        states = self._class_states(equilibria)
        averages = [frequency_response.average_pole(model) for _, model in equilibria]
        # Flows with a queue of their own leave the rest of the link to the queue of the law.
        ahead = sum(
            flows * window / rtt_s
            for group, (flows, window, rtt_s) in zip(self.classes, states, strict=True)
            if not group.waits
        )
        scale = capacity / (capacity - ahead)
        motions = [
            group.sender.motion(group.probability(p), rtt_s)
            for group, (_, _, rtt_s) in zip(self.classes, states, strict=True)
        ]
        sizes = [motion.b.shape[-1] for motion in motions]
        at_q = sum(sizes)
        size = at_q + 1 + (averages[0] is not None)
        a = np.zeros((len(p), size, size))
        entries: dict[tuple[float, bool], Floats] = {}
        at = 0
        for motion, group, (flows, window, rtt_s), k in zip(
            motions, self.classes, states, sizes, strict=True
        ):
            block = slice(at, at + k)
            # Change of the RTT with the queue.
            wait = group.waits / capacity
            a[:, block, block] = motion.a
            a[:, block, at_q] = motion.e * wait[:, None]
            a[:, at_q, block] = (scale * flows / rtt_s)[:, None] * motion.c
            a[:, at_q, at_q] -= scale * flows * window / rtt_s**2 * wait
            clocked = (scale * motion.clocked * flows)[:, None] * motion.c
            a[:, at_q, block] += np.einsum("ni,nij->nj", clocked, motion.a)
            a[:, at_q, at_q] += np.einsum("ni,ni->n", clocked, motion.e) * wait
            entry = entries.setdefault((group.ratio, group.waits), np.zeros((len(p), size)))
            by_p = motion.b * group.slope(p)[:, None]
            entry[:, block] += by_p
            entry[:, at_q] += np.einsum("ni,ni->n", clocked, by_p)
            at += k
        if averages[0] is not None:
            average = np.array(averages, float)
            a[:, at_q + 1, at_q], a[:, at_q + 1, at_q + 1] = average, -average
        return a, entries

    def loop(self, equilibrium: Equilibrium) -> MixedLoop:
        """Return the loop at an equilibrium."""
        return MixedLoop(self, equilibrium, self.terms([equilibrium]))


def check_coupled(link: Link, law: str, model: LawModel) -> tuple[float, bool]:
    """Return k of a coupled law, and True if L4S flows have a queue of their own.

    Parameters
    ----------
    link : Link
        The link, which has L4S flows.
    law : str
        Name of the law.
    model : LawModel
        The law on the link.

    Raises
    ------
    ParameterError
        If the law is not coupled, or does not integrate.
    """
    if model.coupling is None:
        names = [entry["name"] for entry in _native.laws() if entry["coupled"]]
        raise ParameterError(
            "l4s_flows",
            whole(link.l4s_flows),
            f"0, or one of the laws {', '.join(names)}",
            reason=f"{law} does not distinguish L4S flows",
        )
    if model.coupling <= 0:
        raise ParameterError("overrides", 0, "more than 0 with L4S flows", item="coupling")
    point = _native.OperatingPoint(1.0, link.rtt_s, model.capacity_pkts_per_s)
    linear = model.linear(point)
    if linear is not None and not linear["integrates"]:
        raise ParameterError(
            "l4s_flows",
            whole(link.l4s_flows),
            "0, or a gain that integrates",
            reason=f"{law} has no integral with these gains",
        )
    queue = next(entry["queue"] for entry in _native.laws() if entry["name"] == law)
    return model.coupling, queue != ONE_LINE


def _column(values: NDArray[Any]) -> Number:
    return frequency_response.complex_column(np.asarray(values, complex))


class DelayLoop(MixedLoop):
    """The loop of classic and L4S flows, which controls the delay of the head of the queue."""

    controlled_quantity = "Queuing delay at the link's rate"
    probability_step = Loop.probability_step


@dataclass(frozen=True)
class CoupledPlant(MixedPlant):
    """Flows of Reno with one RTT, and flows of L4S, under one coupled law.

    A PI controller of the classic queue's delay d has the output p'. A classic packet is signalled
    with p_C = p'², an L4S packet marked with p_L = k·p' (RFC 9332 section 2.1; De Schepper et al.,
    CoNEXT 2016). At equilibrium the windows are W_C = √2/p' of Reno and W_L = 2/(k·p') of a
    scalable sender, with N_C·W_C/R_C + N_L·W_L/R_L = C. An L4S flow thus counts as (√2/k)·R_C/R_L
    flows of Reno, and the law has the operating point of that many. L4S packets have a queue of
    their own that is next to empty: their RTT R_L includes no classic delay, and marks above the
    step of that queue are not modelled.

    Around that point, with C_C for the classic flows' share of the link and g for the gain of the
    estimate α of the share of marks (RFC 8257 section 3.3):

    W_C' = 1/R_C − W_C²/(2R_C)·p'(t − R_C)²
    W_L' = 1/R_L − W_L·α/(2R_L), α' = (g/R_L)·(k·p'(t − R_L) − α)
    d' = (N_C·W_C(t − d0)/(T_p + d) + N_L·W_L/R_L − C)/C_C

    A classic packet counts in the head's delay once it is the head; an L4S packet takes the link
    from the head at once.
    """

    @property
    def published(self) -> bool:
        """True: the linear model is published."""
        return True

    def coupled_classes(self, equilibrium: Equilibrium) -> CoupledEquilibrium:
        """Return the equilibrium of the classic and the L4S flows."""
        point, model = equilibrium
        (_, l4s), root = self.classes, math.sqrt(point.probability)
        assert l4s.coupling is not None
        classic, scalable = (
            CoupledClass(state.flows, state.window_pkts, state.rtt_s, p)
            for state, p in zip(
                self.class_equilibria(equilibrium).classes,
                (point.probability, l4s.coupling * root),
                strict=True,
            )
        )
        # L4S flows with a queue of their own keep it nearly empty.
        ahead = 0.0 if l4s.waits else scalable.flows * scalable.rate_pkts_per_s
        queue_pkts = model["queue_pkts"] * (1 - ahead / point.capacity_pkts_per_s)
        return CoupledEquilibrium(root, l4s.coupling, classic, scalable, queue_pkts)

    def mixed_senders(self, _equilibrium: Equilibrium) -> None:
        """Return None, since `coupled_classes` describes these flows."""

    def loop(self, equilibrium: Equilibrium) -> DelayLoop:
        """Return the loop at an equilibrium."""
        return DelayLoop(self, equilibrium, self.terms([equilibrium]))


def plant_on(
    link: Link, law: str, params: Sequence[tuple[str, Any]], windows: Windows = "published"
) -> Plant:
    """Return the plant of a link's flows under a law.

    Parameters
    ----------
    link : Link
        The link and its flows.
    law : str
        Name of the law in `forebay laws`.
    params : sequence of (name, value)
        Parameters of the law.
    windows : {"published", "sawtooth"}, optional
        The description of Reno flows.

    Raises
    ------
    ScenarioError
        If a parameter is wrong, or the flows do not suit the law or the description.
    """
    check_choice("windows", windows, WINDOWS)
    conflict = "the flows have several RTTs, or senders other than reno" if link.groups else ""
    conflict = "there are L4S flows" if link.l4s_flows else conflict
    if windows != WINDOWS[0]:
        if conflict:
            raise ParameterError("windows", windows, WINDOWS[0], reason=conflict)
        return AckClockedPlant(link.model(law, params))
    if link.groups:
        return MixedPlant.on_link(link, law, params)
    if link.l4s_flows:
        return CoupledPlant.on_link(link, law, params)
    return PublishedPlant(link.model(law, params))
