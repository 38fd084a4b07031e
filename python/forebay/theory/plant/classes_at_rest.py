"""What each class of flows has where all rest: windows, rates and round trips."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class CoupledEquilibrium:
    """Where both classes rest.

    root: p'. coupling: k. window_*_pkts, rate_*_pkts_per_s: of a flow. rtt_*_s: with what it
    waits for. queue_pkts: of both classes.
    """

    root: float
    coupling: float
    classic_flows: float
    l4s_flows: float
    window_classic_pkts: float
    window_l4s_pkts: float
    rtt_classic_s: float
    rtt_l4s_s: float
    queue_pkts: float

    @property
    def rate_classic_pkts_per_s(self) -> float:
        return self.window_classic_pkts / self.rtt_classic_s

    @property
    def rate_l4s_pkts_per_s(self) -> float:
        return self.window_l4s_pkts / self.rtt_l4s_s

    @property
    def ratio(self) -> float:
        """Rate of an L4S flow over that of a classic one; √2/k·R_C/R_L."""
        return self.rate_l4s_pkts_per_s / self.rate_classic_pkts_per_s

    @property
    def probability_classic(self) -> float:
        """p_C."""
        return self.root**2

    @property
    def probability_l4s(self) -> float:
        """p_L."""
        return self.coupling * self.root

    def as_json(self) -> dict[str, Any]:
        return {
            "p_root": self.root,
            "coupling": self.coupling,
            "rate_ratio": self.ratio,
            "classic": {
                "flows": self.classic_flows,
                "window_pkts": self.window_classic_pkts,
                "rtt_s": self.rtt_classic_s,
                "probability": self.probability_classic,
                "rate_pkts_per_s": self.rate_classic_pkts_per_s,
            },
            "l4s": {
                "flows": self.l4s_flows,
                "window_pkts": self.window_l4s_pkts,
                "rtt_s": self.rtt_l4s_s,
                "probability": self.probability_l4s,
                "rate_pkts_per_s": self.rate_l4s_pkts_per_s,
            },
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
