"""Reno flows with ACK clocking and sawtooth windows: their equilibrium and their plant.

In the published plant (Hollot et al. 2001), a flow with a window of W packets and a round-trip time
R sends W/R packets per second, and the queue follows this rate with a lag of R. Real senders
differ: an ACK releases a packet, and so does a growing window. The rate of a flow is therefore
x = n/R + dn/dt, where n is its number of packets in flight (Jacobsson, Andrew, Tang, Low and
Hjalmarsson, IEEE Trans. Automatic Control 54(3), 2009). While the link is busy, the queue q equals
the packets in flight beyond the bandwidth-delay product C·T, q = Σn − C·T, without a lag: the pole
at 1/R is cancelled.

This module linearises the `sawtooth` windows of the fluid model (crates/forebay-fluid,
docs/explanation/fluid.md) for flows whose packets are marked with the probability p:

W' = x_d·((1 − p_d)/(W·a) − κ·p_d·W·a/b²), n = W − ½, a = 1 + λ, b = 1 + κλ, λ = x_d·p_d·R

Here λ is the number of signals per round trip, and κ = E[W²]/(2E[W]²) = 7/12, where E is the mean
over flows at different points of their sawtooth. The index d means the value of 1.25 R earlier: a
signal takes R to reach the sender, which halves its window during the next half round trip, so
after R/4 on average. At the equilibrium, (1 − p)·b² = κ·p·W²·a².

In the linearised system, W, n, R, p, λ, a and b are the values at the equilibrium, δ denotes a
deviation from it, N is the number of flows, ε = κ·p·W·a/b², and ψ = 2λ(1 − κ)/(a·b):

δW' = −(n/R)·ε·((2/W + ψ/n)·δW + ψ·(R/n)·δW'_d + (1/(1 − p) + ψ)·δp_d/p), δq = N·δW

δW'_d, the packets that a growing window released 1.25 R ago, is taken without its delay, since ε·ψ
is below 0.02 for windows of 6 packets and more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forebay._native import FlowModel, LawModel
from forebay.control import frequency_response
from forebay.control.frequency_response import Terms
from forebay.control.plant import Equilibrium, Plant

#: E[W²]/(2E[W]²) of flows at different points of their sawtooth (`SPREAD` in
#: crates/forebay-fluid).
KAPPA = 7 / 12
#: Time from a packet to the effect of its signal on the packets in flight, in round trips.
LATE = 1.25
#: Part of a window that is not in flight: half a packet, since only whole packets are sent.
UNSENT_PKTS = 0.5


@dataclass(frozen=True)
class AckClockedEquilibrium:
    """The equilibrium of such flows, as numbers or as arrays of one shape.

    Attributes
    ----------
    probability : float or array
        Signal probability p.
    in_flight_pkts : float or array
        Packets of a flow that are in flight, n.
    """

    probability: Any
    in_flight_pkts: Any

    @staticmethod
    def at_probability(probability: Any) -> AckClockedEquilibrium:
        """Return the equilibrium at a signal probability.

        (1 − p)b² = κ·p·W²·a² is a quadratic equation in n.
        """
        p = np.asarray(probability, float)
        c = np.sqrt((1 - p) / (KAPPA * p))
        linear = 1 + UNSENT_PKTS * p - c * KAPPA * p
        n = 2 * (c - UNSENT_PKTS)
        n = n / (linear + np.sqrt(linear**2 + 4 * p * (c - UNSENT_PKTS)))
        return AckClockedEquilibrium(_plain(p), _plain(n))

    @property
    def window_pkts(self) -> Any:
        """Window W of a flow, in packets."""
        return self.in_flight_pkts + UNSENT_PKTS

    @property
    def signals(self) -> Any:
        """Signals that a flow receives in a round trip, λ."""
        return self.in_flight_pkts * self.probability


@dataclass(frozen=True)
class AckClockedPlant(Plant):
    """Such flows on a link under a law.

    The point of an equilibrium has the number of flows that need its probability by the published
    equations, so the law is linearised at its own equilibrium.
    """

    law: LawModel

    @property
    def flow_model(self) -> FlowModel:
        """Flows whose packets leave as ACKs arrive."""
        return FlowModel.ack_clocked()

    def terms(self, equilibria: Sequence[Equilibrium]) -> Terms:
        """Return the published loops with this plant's gain, poles and delay."""
        published = frequency_response.terms(equilibria)
        rtt_s = np.array([point.rtt_s for point, _ in equilibria])
        ages_s = np.array([model["age_s"] for _, model in equilibria])
        equilibrium = AckClockedEquilibrium.at_probability(
            np.array([point.probability for point, _ in equilibria])
        )
        p, n = equilibrium.probability, equilibrium.in_flight_pkts
        w, signals = equilibrium.window_pkts, equilibrium.signals
        a, b = 1 + signals, 1 + KAPPA * signals
        e = KAPPA * p * w * a / b**2
        psi = 2 * signals * (1 - KAPPA) / (a * b)
        pace = n / rtt_s * e / (1 + e * psi)
        flows = rtt_s * self.law.capacity_pkts_per_s / n
        gain = flows * pace * (1 / (1 - p) + psi) / p
        # The pole of a law's average comes after both published poles.
        averages: list[Any] = list(published.poles[2:])
        for pole in averages:
            gain = gain * np.ravel(pole)
        poles = (frequency_response.column(pace * (2 / w + psi / n)), *averages)
        return replace(
            published,
            gain=frequency_response.column(gain),
            poles=frequency_response.separate_repeated_poles(poles),
            delay_s=frequency_response.column(LATE * rtt_s + ages_s),
        )


def _plain(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x
