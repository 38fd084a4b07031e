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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.control import gain
from forebay.control.gain import Terms
from forebay.control.loop import Loop

if TYPE_CHECKING:
    from forebay._native import LawModel, LinearModel, OperatingPoint

Floats = NDArray[np.float64]
Cell = tuple["OperatingPoint", "LinearModel"]

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
class Rest:
    """Where flows rest; numbers, or arrays of one shape.

    probability: p. in_flight_pkts: n, of a flow.
    """

    probability: Any
    in_flight_pkts: Any

    @staticmethod
    def signalled(probability: Any) -> Rest:
        """With this probability: (1 − p)b² = κpW²a² is a quadratic in n."""
        p = np.asarray(probability, float)
        c = np.sqrt((1 - p) / (KAPPA * p))
        linear = 1 + UNSENT_PKTS * p - c * KAPPA * p
        n = 2 * (c - UNSENT_PKTS)
        n = n / (linear + np.sqrt(linear**2 + 4 * p * (c - UNSENT_PKTS)))
        return Rest(_plain(p), _plain(n))

    @staticmethod
    def holding(in_flight_pkts: Any) -> Rest:
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
        return Rest(_plain(p), _plain(n))

    @property
    def window_pkts(self) -> Any:
        """W."""
        return self.in_flight_pkts + UNSENT_PKTS

    @property
    def signals(self) -> Any:
        """λ, of a flow in a round trip."""
        return self.in_flight_pkts * self.probability


@dataclass(frozen=True)
class Sawtooth:
    """A law on a link with such flows.

    An operating point of `operate` is that of as many flows as need its probability by the
    published equations: so the law is linearised where it rests. Its number of flows is theirs.
    """

    law: LawModel

    def operate(self, flows: float, propagation_s: float) -> Cell | None:
        """Where the flows settle; None where they do not."""
        counted = self._alike(flows, propagation_s)
        found = None
        for _ in range(STEPS):
            found = self.law.operate(float(counted), propagation_s)
            if found is None:
                return None
            last, counted = counted, self._alike(flows, found[0].rtt_s)
            if abs(counted - last) <= SAME * counted:
                break
        return found

    def operate_all(
        self, flows: Sequence[float], propagation_s: float
    ) -> tuple[list[str], list[list[float]]]:
        """As `LawModel.operate_all` has it."""
        given = np.asarray(flows, float)
        # R only grows with the queue, so p comes down to its place from above.
        counted = self._alike(given, propagation_s)
        rest, rows = self.law.operate_all(counted.tolist(), propagation_s)
        for _ in range(STEPS):
            there = np.array([how == "linear" for how in rest])
            if not there.any():
                break
            last = counted.copy()
            counted[there] = self._alike(given[there], np.array([row[1] for row in rows]))
            rest, rows = self.law.operate_all(counted.tolist(), propagation_s)
            if np.max(np.abs(counted / last - 1)) <= SAME:
                break
        return rest, rows

    def at(self, flows: float, propagation_s: float) -> Loop | None:
        """The loop where the flows settle; None where they do not."""
        cell = self.operate(flows, propagation_s)
        return None if cell is None else self.loop(cell)

    def loop(self, cell: Cell) -> Loop:
        return Loop(*cell, self.terms([cell]))

    def terms(self, cells: Sequence[Cell]) -> Terms:
        """Loops at points of `operate`, as `gain.terms` has them."""
        points = [point for point, _ in cells]
        rtt_s = np.array([point.rtt_s for point in points])
        probability = np.array([point.probability for point in points])
        return self._terms(gain.terms(cells), rtt_s, probability)

    def numbered(self, rows: Sequence[Sequence[float]]) -> Terms:
        """Loops of `operate_all`, as `gain.numbered` has them."""
        found = np.asarray(rows)
        load = found[:, 0] / (found[:, 1] * self.law.capacity_pkts_per_s)
        return self._terms(gain.numbered(rows), found[:, 1], 2 * load**2)

    def _alike(self, flows: Any, rtt_s: Any) -> Any:
        """How many flows need the same probability by the published p = 2N²/(RC)²."""
        pipe_pkts = rtt_s * self.law.capacity_pkts_per_s
        return pipe_pkts * np.sqrt(Rest.holding(pipe_pkts / flows).probability / 2)

    def _terms(self, published: Terms, rtt_s: Floats, probability: Floats) -> Terms:
        """With this plant in the place of the published one's gain, poles and delay."""
        rest = Rest.signalled(probability)
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
        poles = (gain.column(pace * (2 / w + psi / n)), *averages)
        return replace(
            published,
            gain=gain.column(answer),
            poles=gain.apart(poles),
            delay_s=gain.column(LATE * rtt_s),
        )


def _plain(x: Any) -> Any:
    return float(x) if np.ndim(x) == 0 else x
