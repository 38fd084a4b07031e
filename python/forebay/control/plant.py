"""The plant that a law controls: flows on a link, their equilibria under a law, and their loops.

Designs, maps and searches use any of four plants in the same way. `PublishedPlant` has flows of
Reno with one RTT, `AckClockedPlant` (`ack_clocking`) such flows with ACKs as their clock,
`MixedPlant` (`plants`) flows of several senders and RTTs, and `CoupledPlant` (`plants`) classic
flows with flows of L4S. `plants.plant_on` chooses the plant of a link.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay._native import FlowModel, LawModel
from forebay.control import frequency_response
from forebay.control.frequency_response import Terms
from forebay.control.loop import Loop

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
#: Reasons why there is no equilibrium.
REASONS = {
    "saturated": "TCP would need a probability of 1 or more",
    "full": "beyond the buffer",
    "jump": "the law's probability jumps past the one that TCP needs",
    "empty": "the law signals more than TCP needs with an empty queue",
    "unmodelled": "the law has no linear model there",
    "small": "TCP would need a window below the least that it keeps",
}


class Equilibrium(NamedTuple):
    """The equilibrium of flows under a law.

    Attributes
    ----------
    point : OperatingPoint
        Operating point of the number of Reno flows that need the same probability.
    model : LinearModel
        The law's linear model there.
    """

    point: OperatingPoint
    model: LinearModel


class Settling(NamedTuple):
    """The outcome of a search for the equilibrium, as `FlowModel.settle` reports it.

    Attributes
    ----------
    how : str
        "linear" if there is an equilibrium, or else a key of `REASONS`.
    queue_pkts, probability : float or None
        Queue and signal probability, where they apply.
    equilibrium : Equilibrium or None
        The equilibrium.
    """

    how: str
    queue_pkts: float | None
    probability: float | None
    equilibrium: Equilibrium | None


@dataclass(frozen=True)
class CoupledClass:
    """Classic or L4S flows at equilibrium; `rtt_s` includes queueing, and the rate is per flow."""

    flows: float
    window_pkts: float
    rtt_s: float
    probability: float
    rate_pkts_per_s: float = field(init=False)

    def __post_init__(self) -> None:
        """Compute the rate of a flow from its window and its RTT."""
        object.__setattr__(self, "rate_pkts_per_s", self.window_pkts / self.rtt_s)


@dataclass(frozen=True)
class CoupledEquilibrium:
    """The equilibrium of classic and L4S flows.

    Attributes
    ----------
    root : float
        Output p' of the controller.
    coupling : float
        Coupling factor k.
    classic, l4s : CoupledClass
        The two classes.
    queue_pkts : float
        Packets in both queues.
    """

    root: float
    coupling: float
    classic: CoupledClass
    l4s: CoupledClass
    queue_pkts: float

    @property
    def ratio(self) -> float:
        """Rate of an L4S flow over that of a classic flow, √2/k·R_C/R_L."""
        return self.l4s.rate_pkts_per_s / self.classic.rate_pkts_per_s

    def to_dict(self) -> dict[str, Any]:
        """Return the equilibrium for JSON."""
        return {
            "p_root": self.root,
            "coupling": self.coupling,
            "rate_ratio": self.ratio,
            "classic": asdict(self.classic),
            "l4s": asdict(self.l4s),
        }


@dataclass(frozen=True)
class ClassEquilibrium:
    """One class of flows at equilibrium: sender, number, RTTs, window and rate of a flow."""

    tcp: str
    flows: float
    propagation_s: float
    rtt_s: float
    window_pkts: float
    rate_pkts_per_s: float
    region: str | None


@dataclass(frozen=True)
class MixedEquilibrium:
    """The equilibrium of several classes of flows."""

    probability: float
    queue_pkts: float
    classes: tuple[ClassEquilibrium, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the equilibrium for JSON."""
        return {"probability": self.probability, "flows": [asdict(c) for c in self.classes]}


@dataclass(frozen=True)
class LoadLine:
    """The loops of several loads on one link.

    Attributes
    ----------
    how : list of str
        Outcome for each load, as in `Settling`.
    loops : list of (array, Terms)
        Loops with an equilibrium, by kind, as columns with the indices of their loads.
    """

    how: list[str]
    loops: list[tuple[Rows, Terms]]


class Plant:
    """Flows on a link under a law.

    A subclass has the response of its flows (`flow_model`), and `terms` if the loop is not that of
    Reno flows as published.
    """

    law: LawModel

    @property
    def flow_model(self) -> FlowModel:
        """The response of the flows to the law's signals."""
        raise NotImplementedError

    @property
    def published(self) -> bool:
        """True if design rules are made for such flows: Reno flows with one RTT, and L4S flows."""
        return True

    def reno_flows(self, flows: float, propagation_s: float, queue_pkts: float) -> float:
        """Return the number of Reno flows that need the same probability with this queue.

        Parameters
        ----------
        flows : float
            Number of flows of the plant.
        propagation_s : float
            RTT without queueing, in seconds.
        queue_pkts : float
            Queue in packets.
        """
        capacity = self.law.capacity_pkts_per_s
        return self.flow_model.operating_point(flows, propagation_s, queue_pkts, capacity).flows

    def settle(self, flows: float, propagation_s: float) -> Settling:
        """Return the equilibrium of the flows, or the reason why there is none.

        Parameters
        ----------
        flows : float
            Number of flows.
        propagation_s : float
            RTT without queueing, in seconds.
        """
        return self._settle_all([flows], propagation_s)[0]

    def _settle_all(self, flows: Sequence[float], propagation_s: float) -> list[Settling]:
        return [
            Settling(how, queue_pkts, p, Equilibrium(*cell) if cell else None)
            for how, queue_pkts, p, cell in self.flow_model.settle(self.law, flows, propagation_s)
        ]

    def equilibrium(self, flows: float, propagation_s: float) -> Equilibrium | None:
        """Return the equilibrium of the flows; None if there is none.

        Parameters
        ----------
        flows : float
            Number of flows.
        propagation_s : float
            RTT without queueing, in seconds.
        """
        return self.settle(flows, propagation_s).equilibrium

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """Return the loops at equilibria of one kind as columns."""
        return frequency_response.terms(equilibria)

    def loop(self, equilibrium: Equilibrium) -> Loop:
        """Return the loop at an equilibrium."""
        return Loop(*equilibrium, self.terms([equilibrium]))

    def loop_at(self, flows: float, propagation_s: float) -> Loop | None:
        """Return the loop at the equilibrium of the flows; None if there is none.

        Parameters
        ----------
        flows : float
            Number of flows.
        propagation_s : float
            RTT without queueing, in seconds.
        """
        equilibrium = self.equilibrium(flows, propagation_s)
        return None if equilibrium is None else self.loop(equilibrium)

    def load_line(self, flows: Floats, propagation_s: float) -> LoadLine:
        """Return the loops of several numbers of flows.

        Parameters
        ----------
        flows : array of shape (n,)
            Numbers of flows.
        propagation_s : float
            RTT without queueing, in seconds.
        """
        settled = self._settle_all(flows.tolist(), propagation_s)
        kinds: dict[Hashable, list[int]] = {}
        for i, settling in enumerate(settled):
            if settling.equilibrium is not None:
                kind = frequency_response.kind(settling.equilibrium.model)
                kinds.setdefault(kind, []).append(i)
        loops = [
            (np.array(loads), self.terms([e for i in loads if (e := settled[i].equilibrium)]))
            for loads in kinds.values()
        ]
        return LoadLine([settling.how for settling in settled], loops)

    def coupled_classes(self, _equilibrium: Equilibrium) -> CoupledEquilibrium | None:
        """Return the equilibrium of classic and L4S flows; None unless there are both."""
        return None

    def mixed_senders(self, _equilibrium: Equilibrium) -> MixedEquilibrium | None:
        """Return the equilibrium of all classes of flows; None for Reno flows with one RTT."""
        return None


@dataclass(frozen=True)
class PublishedPlant(Plant):
    """Flows of Reno with one RTT under a law, as published (Hollot et al. 2002)."""

    law: LawModel

    @property
    def flow_model(self) -> FlowModel:
        """Flows of Reno with one RTT."""
        return FlowModel.reno()
