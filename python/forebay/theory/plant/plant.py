"""What designs, maps and searches ask of any plant: where flows settle under a law, and their loop.

Four fulfil it: `published` has flows of Reno with one RTT, `coupled_classes` flows of L4S beside
them, `mixed_senders` any senders and RTTs, `ack_clocking` Reno with ACKs as the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Terms

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint
    from forebay.theory.loop.loop import Loop
    from forebay.theory.plant.classes_at_rest import CoupledEquilibrium, MixedEquilibrium

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]
T = TypeVar("T")


class Equilibrium(NamedTuple):
    """Where flows rest under a law: the point of as many flows of Reno as need the same
    probability, and the law's linear model there."""

    point: OperatingPoint
    model: LinearModel


class Settling(NamedTuple):
    """How flows settle, as `LawModel.rest` has it: "linear" where they have an equilibrium; and the
    queue and probability, None for what does not apply."""

    how: str
    queue_pkts: float | None
    probability: float | None


@dataclass(frozen=True)
class LoadLine:
    """Loops of several loads on one link: how each load settles, and the loops of those with an
    equilibrium as columns, by kind, with the numbers of their loads."""

    how: list[str]
    loops: list[tuple[Rows, Terms]]


class Plant(Protocol):
    """Flows on a link with a law."""

    @property
    def published(self) -> bool:
        """Whether the flows are those of which design rules know: Reno's with one RTT, and flows of
        L4S in the place of some."""

    def reno_flows(self, flows: float, propagation_s: float, queue_pkts: float) -> float:
        """How many flows of Reno need the probability of these with this queue."""

    def equilibrium(self, flows: float, propagation_s: float) -> Equilibrium | None:
        """Where the flows settle; None where they do not."""

    def settle(self, flows: float, propagation_s: float) -> Settling:
        """How the flows settle, or why they do not."""

    def loop(self, equilibrium: Equilibrium) -> Loop:
        """The loop there."""

    def loop_at(self, flows: float, propagation_s: float) -> Loop | None:
        """The loop where the flows settle; None where they do not."""

    def load_line(self, flows: Floats, propagation_s: float) -> LoadLine:
        """The loops of several numbers of flows."""

    def coupled_classes(self, equilibrium: Equilibrium) -> CoupledEquilibrium | None:
        """Classic and L4S flows at rest, where there are both."""

    def mixed_senders(self, equilibrium: Equilibrium) -> MixedEquilibrium | None:
        """All classes of flows at rest, where they are not Reno's with one RTT."""


class PlantMethods:
    """What is the same for all plants, and what most do not have."""

    @property
    def published(self) -> bool:
        return True

    def loop_at(self: Plant, flows: float, propagation_s: float) -> Loop | None:
        there = self.equilibrium(flows, propagation_s)
        return None if there is None else self.loop(there)

    def coupled_classes(self, equilibrium: Equilibrium) -> CoupledEquilibrium | None:  # noqa: ARG002
        return None

    def mixed_senders(self, equilibrium: Equilibrium) -> MixedEquilibrium | None:  # noqa: ARG002
        return None


def load_line(
    how: list[str],
    found: Sequence[T],
    kind: Callable[[T], Hashable],
    terms: Callable[[list[T]], Terms],
) -> LoadLine:
    """`found` has the loops of loads that are "linear", in their order; `terms` makes columns of
    those of one kind."""
    loads = np.flatnonzero(np.array(how) == "linear")
    kinds: dict[Hashable, list[int]] = {}
    for i, each in enumerate(found):
        kinds.setdefault(kind(each), []).append(i)
    return LoadLine(
        how, [(loads[group], terms([found[i] for i in group])) for group in kinds.values()]
    )


def line_of_equilibria(
    how: list[str],
    equilibria: Sequence[Equilibrium],
    terms: Callable[[list[Equilibrium]], Terms],
) -> LoadLine:
    """`load_line` of equilibria."""
    return load_line(how, equilibria, lambda each: frequency_response.kind(each.model), terms)
