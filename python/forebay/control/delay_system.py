"""Exact stability of linear systems with one delay.

The roots of a(s) + b(s)·e^{−sh} decide: the system is retarded where b has the lower degree,
neutral where both degrees are equal. They are counted by the argument principle, and found as
eigenvalues of the system's operator on a grid of Chebyshev points, then refined by Newton's
method. Neither replaces the delay by a rational function.

`RateLoop` is such a system: the loop of AVQ and E-AVQ, which act on rates and have no queue.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Complexes = NDArray[np.complex128]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DelaySystem:
    """a(s) + b(s)·e^{−sh} = 0.

    a, b: coefficients, highest power first; the degree of b is at most that of a.
    delay_s: h > 0.

    Raises `ValueError` for an advanced system, with a degree of b above that of a.
    """

    a: Sequence[float]
    b: Sequence[float]
    delay_s: float

    def __post_init__(self) -> None:
        a, b = (np.trim_zeros(np.asarray(c, float), "f") for c in (self.a, self.b))
        if len(b) > len(a):
            raise ValueError("b has a higher degree than a: the system needs its own future")
        if len(a) < 2:
            raise ValueError("a has no root: nothing has a memory")
        if not self.delay_s > 0:
            raise ValueError(f"delay_s: found {self.delay_s}, allowed: above 0")
        object.__setattr__(self, "a", tuple(float(x) for x in a / a[0]))
        object.__setattr__(self, "b", tuple(float(x) for x in b / a[0]))

    @property
    def order(self) -> int:
        return len(self.a) - 1

    @property
    def neutral_gain(self) -> float:
        """b_n/a_n: zero for a retarded system. From 1 on, in size, roots without number are
        in the right half-plane, along Re s = ln|b_n/a_n|/h (Hale and Verduyn Lunel 1993)."""
        return self.b[0] if len(self.b) == len(self.a) else 0.0

    def __call__(self, s: ArrayLike) -> Complexes:
        s = np.asarray(s, complex)
        f = np.polyval(self.a, s) + np.polyval(self.b, s) * np.exp(-s * self.delay_s)
        return np.asarray(f, complex)

    def slope(self, s: ArrayLike) -> Complexes:
        """df/ds."""
        s = np.asarray(s, complex)
        b = np.polyval(np.polyder(self.b), s) - self.delay_s * np.polyval(self.b, s)
        slope = np.polyval(np.polyder(self.a), s) + b * np.exp(-s * self.delay_s)
        return np.asarray(slope, complex)

    def shifted(self, by: float) -> DelaySystem:
        """The same system with its roots moved to the left by `by`."""
        weight = math.exp(-by * self.delay_s)
        return DelaySystem(
            _shift(self.a, by), [weight * c for c in _shift(self.b, by)], self.delay_s
        )

    def unstable_roots(self) -> float:
        """Return the number of roots with Re s > 0; infinite if neutral with |b_n/a_n| ≥ 1.

        The argument of f along the boundary of the right half of a disc that holds them all.
        Raises `ValueError` where a root is on the imaginary axis, to rounding.
        """
        if abs(self.neutral_gain) >= 1:
            return math.inf
        radius = self._radius()
        turn = -2 * self._turn(radius)
        # The arc: a's own roots, all inside, and 1 + (b/a)e^{−sh}, in the right half-plane.
        end = complex(0, radius)
        roots = np.roots(self.a)
        turn += float(np.sum(np.angle(end - roots) - np.angle(-end - roots)))
        rest = 1 + np.polyval(self.b, end) / np.polyval(self.a, end) * np.exp(-end * self.delay_s)
        turn += 2 * float(np.angle(rest))
        count = turn / (2 * math.pi)
        if abs(count - round(count)) > 0.05:
            raise ValueError("a root lies on the imaginary axis")
        return round(count)

    def stable(self) -> bool:
        """True if every root has Re s < 0; False on the boundary."""
        try:
            return self.unstable_roots() == 0
        except ValueError:
            return False

    def roots(self, count: int = 10, points: int = 60) -> Complexes:
        """The `count` rightmost roots, from right to left.

        Of a neutral system with |b_n/a_n| > 0 they are the rightmost of those of moderate
        size: its chain of roots has no end.
        """
        guesses = self._eigenvalues(points)
        guesses = guesses[np.argsort(-guesses.real)][: 4 * count + 20]
        refined = self._newton(guesses)
        refined = refined[np.argsort(-refined.real, kind="stable")]
        return refined[:count]

    def rightmost(self) -> complex:
        """The rightmost root, with Im s ≥ 0."""
        root = self.roots(2)[0]
        return complex(root.real, abs(root.imag))

    def _radius(self) -> float:
        """No root with Re s ≥ 0 is larger: there |a| > |b| ≥ |b e^{−sh}|."""
        b = np.pad(np.abs(self.b), (len(self.a) - len(self.b), 0))
        # (|a_n| − |b_n|)rⁿ − Σ(|a_i| + |b_i|)rⁱ has one positive root, by Descartes' rule.
        bound = -(np.abs(self.a) + b)
        bound[0] = 1 - b[0]
        real = [float(r.real) for r in np.roots(bound) if abs(r.imag) < 1e-9 * abs(r)]
        return 1.01 * max(real, default=1.0)

    def _turn(self, radius: float) -> float:
        """Return the angle by which arg f(jω) turns from ω = 0 to `radius`."""
        steps = max(200, math.ceil(8 * radius * self.delay_s))
        omega = np.union1d(np.linspace(0, radius, steps), np.geomspace(1e-6, 1, 200) * radius)
        for _ in range(60):
            f = self(1j * omega)
            if np.any(f == 0):
                raise ValueError("a root lies on the imaginary axis")
            angle = np.angle(f[1:] / f[:-1])
            wide = np.abs(angle) > 0.4
            if not wide.any():
                return float(angle.sum())
            omega = np.union1d(omega, 0.5 * (omega[1:] + omega[:-1])[wide])
        raise ValueError("a root lies on the imaginary axis")

    def _eigenvalues(self, points: int) -> Complexes:
        """The operator of the system on `points` + 1 Chebyshev points of [−h, 0].

        With x = (y, y', …): x'(0) + D x'(−h) = A0 x(0) + A1 x(−h), and x' = dx/dθ inside
        (Breda, Maset and Vermiglio 2005; the neutral term as a boundary condition).
        """
        n = self.order
        # Time in units of h/2, and y's derivatives in that unit, keep the numbers moderate.
        unit = 0.5 * self.delay_s
        scale = unit ** np.arange(n, -1, -1.0)
        a = np.array(self.a) * scale[0] / scale
        b = np.pad(self.b, (n + 1 - len(self.b), 0)) * scale[0] / scale
        now, past = np.eye(n, k=1), np.zeros((n, n))
        now[-1] = -a[1:][::-1]
        past[-1] = -b[1:][::-1]
        _, differentiate = chebyshev(points)
        size = n * (points + 1)
        lhs, rhs = np.eye(size), np.kron(differentiate, np.eye(n))
        lhs[n - 1, -1] = b[0]
        rhs[:n] = 0
        rhs[:n, :n] = now
        rhs[:n, -n:] = past
        from scipy import linalg  # a tenth of a second to load, which most loops do without

        return np.asarray(linalg.eigvals(linalg.solve(lhs, rhs)) / unit, complex)

    def _newton(self, guesses: Complexes) -> Complexes:
        """Roots near the guesses, once each; guesses that wander off are dropped."""
        s = guesses.copy()
        with np.errstate(all="ignore"):
            for _ in range(50):
                step = self(s) / self.slope(s)
                s = s - step
        unit = 1 / self.delay_s
        near = np.abs(s - guesses) < 0.5 * (np.abs(guesses) * 0.1 + unit)
        size = np.polyval(np.abs(self.a), np.abs(s)) + np.polyval(
            np.abs(self.b), np.abs(s)
        ) * np.exp(np.minimum(-s.real * self.delay_s, 700))
        with np.errstate(all="ignore"):
            good = near & np.isfinite(s) & (np.abs(self(s)) < 1e-9 * size)
        distinct: list[complex] = []
        for root in s[good]:
            if all(abs(root - known_root) > 1e-7 * (abs(root) + unit) for known_root in distinct):
                distinct.append(complex(root))
        return np.array(distinct, complex)


def _shift(coefficients: Sequence[float], by: float) -> list[float]:
    """c(s + by)."""
    shifted = np.poly1d(list(coefficients))(np.poly1d([1.0, by]))
    return [float(x) for x in np.atleast_1d(shifted.coefficients)]


def chebyshev(points: int) -> tuple[Floats, Floats]:
    """Nodes from 0 to −2, and the matrix that differentiates a polynomial given there."""
    k = np.arange(points + 1)
    x = np.cos(np.pi * k / points)
    c = np.where((k == 0) | (k == points), 2.0, 1.0) * (-1.0) ** k
    difference = x[:, None] - x[None, :]
    matrix = np.outer(c, 1 / c) / (difference + np.eye(points + 1))
    matrix -= np.diag(matrix.sum(axis=1))
    return x - 1, matrix


def weights(nodes: Floats, at: float) -> Floats:
    """Return barycentric interpolation weights at Chebyshev nodes (Berrut and Trefethen 2004)."""
    off = at - nodes
    if np.any(np.abs(off) < 1e-14):
        return np.asarray(np.abs(off) < 1e-14, float)
    ends = np.where((nodes == nodes[0]) | (nodes == nodes[-1]), 0.5, 1.0)
    parts = ends * (-1.0) ** np.arange(len(nodes)) / off
    return np.asarray(parts / parts.sum(), float)


#: β of e-avq eq. (15)
BETA = 2 / 3


@dataclass(frozen=True)
class RateLoop:
    """TCP under a virtual queue, AVQ's or E-AVQ's (e-avq section 3.2).

    Of N users with RTT d, marked by p = (λ − C̃)/λ, the rate λ moves by
    δλ' = −K11·δλ − K12·δλ(t − d) + K2·δC̃(t − d), and the virtual capacity by
    δC̃' = −K_i·δλ − K_p·δλ' − K_d·δλ'' (e-avq eq. 18); AVQ has K_i = α alone.

    capacity_pkts_per_s, flows, rtt_s: C, N and d.
    gamma: target utilisation.
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
        """True if every root decays."""
        return self.system.stable()

    @property
    def settling_s(self) -> float:
        """Time in which the slowest root falls to 2 %; inf where it does not."""
        root = self.system.rightmost().real
        return -4 / root if root < 0 else math.inf

    def printed_theorem(self) -> bool:
        """Evaluate conditions (22) and (23) as printed in e-avq; docs/explanation/theory.md corrects them."""
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
