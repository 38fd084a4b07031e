"""What each class of flows has where all rest: windows, rates and round trips."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class CoupledClass:
    """Classic or L4S flows at rest; window and rate of a flow, rtt_s with what it waits for."""

    flows: float
    window_pkts: float
    rtt_s: float
    probability: float
    rate_pkts_per_s: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate_pkts_per_s", self.window_pkts / self.rtt_s)


@dataclass(frozen=True)
class CoupledEquilibrium:
    """Where both classes rest. root: p'. coupling: k. queue_pkts: of both classes."""

    root: float
    coupling: float
    classic: CoupledClass
    l4s: CoupledClass
    queue_pkts: float

    @property
    def ratio(self) -> float:
        """Rate of an L4S flow over that of a classic one; √2/k·R_C/R_L."""
        return self.l4s.rate_pkts_per_s / self.classic.rate_pkts_per_s

    def as_json(self) -> dict[str, Any]:
        return {
            "p_root": self.root,
            "coupling": self.coupling,
            "rate_ratio": self.ratio,
            "classic": asdict(self.classic),
            "l4s": asdict(self.l4s),
        }


@dataclass(frozen=True)
class ClassEquilibrium:
    """A class at rest; window and rate of a flow."""

    tcp: str
    flows: float
    propagation_s: float
    rtt_s: float
    window_pkts: float
    rate_pkts_per_s: float
    region: str | None


@dataclass(frozen=True)
class MixedEquilibrium:
    """All classes at rest."""

    probability: float
    queue_pkts: float
    classes: tuple[ClassEquilibrium, ...]

    def as_json(self) -> dict[str, Any]:
        return {"probability": self.probability, "flows": [asdict(one) for one in self.classes]}
