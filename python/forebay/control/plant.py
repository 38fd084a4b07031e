"""What designs, maps and searches ask of any plant: where flows settle under a law, and their loop.

Four are one: `published` has flows of Reno with one RTT, `coupled_classes` flows of L4S beside
them, `mixed_senders` any senders and RTTs, `ack_clocking` Reno with ACKs as the clock.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from forebay.control import frequency_response
from forebay.control.frequency_response import Terms
from forebay.control.loop import Loop

if TYPE_CHECKING:
    from forebay._native import FlowModel, LawModel, LinearModel, OperatingPoint
    from forebay.control.class_equilibria import CoupledEquilibrium, MixedEquilibrium

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
#: Why there is no equilibrium, by how the flows settle.
REASONS = {
    "saturated": "TCP would need a probability of 1 or more",
    "full": "beyond the buffer",
    "jump": "the law's probability jumps past the one that TCP needs",
    "empty": "the law signals more than TCP needs with an empty queue",
    "unmodelled": "the law has no linear model there",
    "small": "TCP would need a window below the least that it keeps",
}


class Equilibrium(NamedTuple):
    """Where flows rest under a law: the point of as many flows of Reno as need the same
    probability, and the law's linear model there."""

    point: OperatingPoint
    model: LinearModel


class Settling(NamedTuple):
    """How flows settle, as `FlowModel.settle` has it: "linear" where they have an equilibrium; the
    queue and probability, None for what does not apply; and the equilibrium."""

    how: str
    queue_pkts: float | None
    probability: float | None
    equilibrium: Equilibrium | None


@dataclass(frozen=True)
class LoadLine:
    """Loops of several loads on one link: how each load settles, and the loops of those with an
    equilibrium as columns, by kind, with the numbers of their loads."""

    how: list[str]
    loops: list[tuple[Rows, Terms]]


class Plant:
    """Flows on a link with a law. A kind of flows says how they answer (`flow_model`), and where
    their loop is not that of Reno as published, its `terms`."""

    law: LawModel

    @property
    def flow_model(self) -> FlowModel:
        """How the flows answer the law."""
        raise NotImplementedError

    @property
    def published(self) -> bool:
        """Whether the flows are those of which design rules know: Reno's with one RTT, and flows of
        L4S in the place of some."""
        return True

    def reno_flows(self, flows: float, propagation_s: float, queue_pkts: float) -> float:
        """How many flows of Reno need the probability of these with this queue."""
        capacity = self.law.capacity_pkts_per_s
        return self.flow_model.operating_point(flows, propagation_s, queue_pkts, capacity).flows

    def settle(self, flows: float, propagation_s: float) -> Settling:
        """How the flows settle, or why they do not."""
        return self._settle_all([flows], propagation_s)[0]

    def _settle_all(self, flows: Sequence[float], propagation_s: float) -> list[Settling]:
        return [
            Settling(how, queue_pkts, p, self._equilibrium(*there) if there else None)
            for how, queue_pkts, p, there in self.flow_model.settle(self.law, flows, propagation_s)
        ]

    def _equilibrium(self, point: OperatingPoint, model: LinearModel) -> Equilibrium:
        """Of what the law has there."""
        return Equilibrium(point, model)

    def equilibrium(self, flows: float, propagation_s: float) -> Equilibrium | None:
        """Where the flows settle; None where they do not."""
        return self.settle(flows, propagation_s).equilibrium

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """The loops at equilibria of one kind, as columns."""
        return frequency_response.terms(equilibria)

    def loop(self, equilibrium: Equilibrium) -> Loop:
        """The loop there."""
        return Loop(*equilibrium, self.terms([equilibrium]))

    def loop_at(self, flows: float, propagation_s: float) -> Loop | None:
        """The loop where the flows settle; None where they do not."""
        there = self.equilibrium(flows, propagation_s)
        return None if there is None else self.loop(there)

    def load_line(self, flows: Floats, propagation_s: float) -> LoadLine:
        """The loops of several numbers of flows."""
        settled = self._settle_all(flows.tolist(), propagation_s)
        kinds: dict[Hashable, list[int]] = {}
        for i, (*_, there) in enumerate(settled):
            if there is not None:
                kinds.setdefault(frequency_response.kind(there.model), []).append(i)
        loops = [
            (np.array(loads), self.terms([there for i in loads if (there := settled[i][3])]))
            for loads in kinds.values()
        ]
        return LoadLine([each.how for each in settled], loops)

    def coupled_classes(self, _equilibrium: Equilibrium) -> CoupledEquilibrium | None:
        """Classic and L4S flows at rest, where there are both."""
        return None

    def mixed_senders(self, _equilibrium: Equilibrium) -> MixedEquilibrium | None:
        """All classes of flows at rest, where they are not Reno's with one RTT."""
        return None
