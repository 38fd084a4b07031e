"""TCP with ACKs as its clock and windows in sawteeth: where it rests, and the plant there.

The published plant (pi-pd eq. 1) has flows that send W/R, and a queue that follows them with a lag
of R. But an ACK lets a packet go, and so does a window that grows: x = n/R + dn/dt, with n packets
in flight (Jacobsson, Andrew, Tang, Low and Hjalmarsson, IEEE Trans. Automatic Control 54(3), 2009).
While the link is busy, the queue is what is in flight beyond the pipe, q = Σn − CT, at once: the
pole at 1/R is cancelled. This is the linearisation of all that the fluid's `sawtooth` windows have
(crates/forebay-fluid, docs/fluid.md), for flows that are marked:

W' = x_d·((1 − p_d)/(W·a) − κ·p_d·W·a/b²), n = W − ½, a = 1 + λ, b = 1 + κλ, λ = x_d·p_d·R

with κ = E[W²]/(2E[W]²) = 7/12, and x_d and p_d of 1.25 R before: a sender that halves its window
takes half a round trip to. At rest (1 − p)b² = κ·p·W²·a². With E = κ·p·W·a/b² and
ψ = 2λ(1 − κ)/(a·b), the same in deviations is

W' = −(n/R)·E·((2/W + ψ/n)·W + ψ·(R/n)·W'_d + (1/(1 − p) + ψ)·p_d/p), q = N·W

W'_d, the packets that a growing window let go 1.25 R ago, is taken without its delay: Eψ is below
0.02 for windows of 6 packets and more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from forebay.theory.loop import frequency_response
from forebay.theory.loop.frequency_response import Terms
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


#: E[W²]/(2E[W]²) of flows at different points of their sawtooth (`SPREAD` in
#: crates/forebay-fluid).
KAPPA = 7 / 12
#: From a packet to what its signal does to those in flight, in round trips.
LATE = 1.25
#: What of a window is not in flight: half a packet, as only whole ones are sent.
UNSENT_PKTS = 0.5
#: Of a fixed point: relative change at which it is found, and steps until it is given up.
SAME, STEPS = 1e-12, 100


@dataclass(frozen=True)
class AckClockedEquilibrium:
    """Where flows rest; numbers, or arrays of one shape.

    probability: p. in_flight_pkts: n, of a flow.
    """

    probability: Any
    in_flight_pkts: Any

    @staticmethod
    def at_probability(probability: Any) -> AckClockedEquilibrium:
        """With this probability: (1 − p)b² = κpW²a² is a quadratic in n."""
        p = np.asarray(probability, float)
        c = np.sqrt((1 - p) / (KAPPA * p))
        linear = 1 + UNSENT_PKTS * p - c * KAPPA * p
        n = 2 * (c - UNSENT_PKTS)
        n = n / (linear + np.sqrt(linear**2 + 4 * p * (c - UNSENT_PKTS)))
        return AckClockedEquilibrium(_plain(p), _plain(n))

    @staticmethod
    def with_in_flight(in_flight_pkts: Any) -> AckClockedEquilibrium:
        """With this many packets under way: by Newton's method in log p, in which the logarithms
        of both sides are nearly lines."""
        n = np.asarray(in_flight_pkts, float)
        w = n + UNSENT_PKTS
        p = 1 / (1 + KAPPA * w**2)
        for _ in range(STEPS):
            a, b = 1 + n * p, 1 + KAPPA * n * p
            error = np.log((1 - p) * b**2 / (KAPPA * p * (w * a) ** 2))
            p = p * np.exp(error / (1 / (1 - p) + 2 / b - 2 / a))
            if np.max(np.abs(error)) < SAME:
                break
        return AckClockedEquilibrium(_plain(p), _plain(n))

    @property
    def window_pkts(self) -> Any:
        """W."""
        return self.in_flight_pkts + UNSENT_PKTS

    @property
    def signals(self) -> Any:
        """λ, of a flow in a round trip."""
        return self.in_flight_pkts * self.probability


@dataclass(frozen=True)
class AckClockedPlant(PlantMethods):
    """A law on a link with such flows.

    The point of an equilibrium is that of as many flows as need its probability by the
    published equations: so the law is linearised where it rests. Its number of flows is theirs.
    """

    law: LawModel

    def reno_flows(self, flows: float, propagation_s: float, queue_pkts: float = 0.0) -> float:
        rtt_s = propagation_s + queue_pkts / self.law.capacity_pkts_per_s
        return float(self._alike(flows, rtt_s))

    def equilibrium(self, flows: float, propagation_s: float) -> Equilibrium | None:
        counted = self._alike(flows, propagation_s)
        found = None
        for _ in range(STEPS):
            found = self.law.operate(float(counted), propagation_s)
            if found is None:
                return None
            last, counted = counted, self._alike(flows, found[0].rtt_s)
            if abs(counted - last) <= SAME * counted:
                break
        return None if found is None else Equilibrium(*found)

    def settle(self, flows: float, propagation_s: float) -> Settling:
        there = self.equilibrium(flows, propagation_s)
        at_s = propagation_s if there is None else there.point.rtt_s
        return Settling(*self.law.rest(float(self._alike(flows, at_s)), propagation_s))

    def load_line(self, flows: Floats, propagation_s: float) -> LoadLine:
        # R only grows with the queue, so p comes down to its place from above.
        counted = self._alike(flows, propagation_s)
        how, rows = self.law.operate_all(counted.tolist(), propagation_s)
        for _ in range(STEPS):
            there = np.array([each == "linear" for each in how])
            if not there.any():
                break
            last = counted.copy()
            counted[there] = self._alike(flows[there], np.array([row[1] for row in rows]))
            how, rows = self.law.operate_all(counted.tolist(), propagation_s)
            if np.max(np.abs(counted / last - 1)) <= SAME:
                break

        def terms(rows: list[list[float]]) -> Terms:
            numbers = np.asarray(rows)
            load = numbers[:, 0] / (numbers[:, 1] * self.law.capacity_pkts_per_s)
            return self._terms(frequency_response.numbered(rows), numbers[:, 1], 2 * load**2)

        return load_line(how, rows, frequency_response.numbered_kind, terms)

    def loop(self, equilibrium: Equilibrium) -> Loop:
        point = equilibrium.point
        published = frequency_response.terms([equilibrium])
        rtt_s, probability = np.array([point.rtt_s]), np.array([point.probability])
        return Loop(*equilibrium, self._terms(published, rtt_s, probability))

    def _alike(self, flows: Any, rtt_s: Any) -> Any:
        """How many flows need the same probability by the published p = 2N²/(RC)²."""
        pipe_pkts = rtt_s * self.law.capacity_pkts_per_s
        return pipe_pkts * np.sqrt(
            AckClockedEquilibrium.with_in_flight(pipe_pkts / flows).probability / 2
        )

    def _terms(self, published: Terms, rtt_s: Floats, probability: Floats) -> Terms:
        """With this plant in the place of the published one's gain, poles and delay."""
        rest = AckClockedEquilibrium.at_probability(probability)
        p, n, w, signals = rest.probability, rest.in_flight_pkts, rest.window_pkts, rest.signals
        a, b = 1 + signals, 1 + KAPPA * signals
        e = KAPPA * p * w * a / b**2
        psi = 2 * signals * (1 - KAPPA) / (a * b)
        pace = n / rtt_s * e / (1 + e * psi)
        flows = rtt_s * self.law.capacity_pkts_per_s / n
        answer = flows * pace * (1 / (1 - p) + psi) / p
        # A law's average follows both published poles.
        averages: list[Any] = list(published.poles[2:])
        for pole in averages:
            answer = answer * np.ravel(pole)
        poles = (frequency_response.column(pace * (2 / w + psi / n)), *averages)
        return replace(
            published,
            gain=frequency_response.column(answer),
            poles=frequency_response.apart(poles),
            delay_s=frequency_response.column(LATE * rtt_s),
        )


def _plain(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x
