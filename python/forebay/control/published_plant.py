"""Flows of Reno with one RTT, as published (Hollot et al. 2002; pi-pd eq. 1)."""

from __future__ import annotations

from dataclasses import dataclass

from forebay._native import FlowModel, LawModel
from forebay.control.plant import Plant


@dataclass(frozen=True)
class PublishedPlant(Plant):
    """A law among such flows."""

    law: LawModel

    @property
    def flow_model(self) -> FlowModel:
        return FlowModel.reno()
