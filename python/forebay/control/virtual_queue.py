"""AVQ and E-AVQ: loops of rates, which have no queue (e-avq section 3.2).

Of N users with RTT d, marked by p = (λ − C̃)/λ, the rate λ moves by
δλ' = −K11·δλ − K12·δλ(t − d) + K2·δC̃(t − d), and the virtual capacity by
δC̃' = −K_i·δλ − K_p·δλ' − K_d·δλ'' (e-avq eq. 18); AVQ has K_i = α alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from forebay.control.delay_system import DelaySystem

#: β of e-avq eq. (15)
BETA = 2 / 3


@dataclass(frozen=True)
class RateLoop:
    """TCP under a virtual queue.

    capacity_pkts_per_s, flows, rtt_s: C, N and d.
    gamma: wanted utilisation.
    k_i: per second; k_p: a number; k_d: in seconds.
    """

    capacity_pkts_per_s: float
    flows: float
    rtt_s: float
    k_i: float
    k_p: float = 0.0
    k_d: float = 0.0
    gamma: float = 0.98

    @property
    def k11(self) -> float:
        """N/(γCd²)."""
        return self.flows / (self.gamma * self.capacity_pkts_per_s * self.rtt_s**2)

    @property
    def k2(self) -> float:
        """βγC/N, which is K12 too."""
        return BETA * self.gamma * self.capacity_pkts_per_s / self.flows

    @property
    def system(self) -> DelaySystem:
        """e-avq eq. (21): of neutral type where K_d > 0."""
        k2 = self.k2
        b = [k2 * self.k_d, k2 + k2 * self.k_p, k2 * self.k_i]
        return DelaySystem([1.0, self.k11, 0.0], b, self.rtt_s)

    @property
    def stable(self) -> bool:
        """Whether every root decays."""
        return self.system.stable()

    @property
    def settling_s(self) -> float:
        """Time in which the slowest root falls to 2 %; inf where it does not."""
        root = self.system.rightmost().real
        return -4 / root if root < 0 else math.inf

    def printed_theorem(self) -> bool:
        """Conditions (22) and (23) as e-avq prints them, which are wrong: see docs/theory.md."""
        k11, k12, k2 = self.k11, self.k2, self.k2
        kd = k2 * self.k_d
        kp = k12 + k2 * self.k_p
        m0 = 2 * k11 + 2 * kp * kd
        m1 = 2 * (kp + k11 * kd)
        m2 = 2 * k2 * self.k_i * kp
        m3 = 2 * k11 * k2 * self.k_i
        m4 = 4 * k2**2 * self.k_i**2
        discriminant = (m0 * m3 + m1 * m2) ** 2 - 4 * (m1 * m3 + m4) * (m0 * m2 - m4)
        return discriminant < 0 or (m0 - m1) * (m2 - m3) > 0

    def far_roots_real_s(self) -> float:
        """Re s of the roots far from the origin, ln(K2·K_d)/d; −inf without K_d."""
        kd = self.k2 * self.k_d
        return math.log(kd) / self.rtt_s if kd > 0 else -math.inf
