"""Flows of Reno with one RTT, as published (Hollot et al. 2002; pi-pd eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.theory.loop import frequency_response
from forebay.theory.loop.loop import Loop
from forebay.theory.plant.plant import (
    Equilibrium,
    Floats,
    LoadLine,
    PlantMethods,
    Settling,
    load_line,
)

if TYPE_CHECKING:
    from forebay._native import LawModel


@dataclass(frozen=True)
class PublishedPlant(PlantMethods):
    """A law among such flows."""

    law: LawModel

    def reno_flows(
        self,
        flows: float,
        propagation_s: float,  # noqa: ARG002
        queue_pkts: float = 0.0,  # noqa: ARG002
    ) -> float:
        return flows

    def equilibrium(self, flows: float, propagation_s: float) -> Equilibrium | None:
        found = self.law.operate(flows, propagation_s)
        return None if found is None else Equilibrium(*found)

    def settle(self, flows: float, propagation_s: float) -> Settling:
        return Settling(*self.law.rest(flows, propagation_s))

    def loop(self, equilibrium: Equilibrium) -> Loop:
        return Loop(*equilibrium)

    def load_line(self, flows: Floats, propagation_s: float) -> LoadLine:
        how, rows = self.law.operate_all(flows.tolist(), propagation_s)
        return load_line(how, rows, frequency_response.numbered_kind, frequency_response.numbered)
