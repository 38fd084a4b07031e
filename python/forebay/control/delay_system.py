"""Exact stability of linear systems with one delay.

The roots of a(s) + b(s)·e^{−sh} decide. The system is retarded if b has the lower degree, and
neutral if both degrees are equal. The roots are counted by the argument principle. They are
computed as eigenvalues of the system's operator on Chebyshev points, which Newton's method refines.
Neither method replaces the delay by a rational function.

`RateLoop` is such a system: the loop of AVQ and E-AVQ, which act on rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Complexes = NDArray[np.complex128]
Floats = NDArray[np.float64]

#: Number of Chebyshev points on which roots are guessed, without the first.
POINTS = 60


@dataclass(frozen=True)
class DelaySystem:
    """The characteristic equation a(s) + b(s)·e^{−sh} = 0.

    Attributes
    ----------
    a, b : sequence of float
        Coefficients, highest power first; the degree of b is at most that of a.
    delay_s : float
        Delay h > 0 in seconds.

    Raises
    ------
    ValueError
        If the system is advanced, that is if b has a higher degree than a.
    """

    a: Sequence[float]
    b: Sequence[float]
    delay_s: float

    def __post_init__(self) -> None:
        """Remove leading zeros of the polynomials, and check their degrees."""
        a, b = (np.trim_zeros(np.asarray(c, float), "f") for c in (self.a, self.b))
        if len(b) > len(a):
            raise ValueError("b has a higher degree than a: the system needs its own future")
        if len(a) < 2:
            raise ValueError("a has no root: nothing has a memory")
        if not self.delay_s > 0:
            raise ValueError(f"delay_s: {self.delay_s} is not valid; expected more than 0")
        object.__setattr__(self, "a", tuple(float(x) for x in a / a[0]))
        object.__setattr__(self, "b", tuple(float(x) for x in b / a[0]))

    @property
    def order(self) -> int:
        """Degree of a."""
        return len(self.a) - 1

    @property
    def neutral_gain(self) -> float:
        """Ratio b_n/a_n, which is zero for a retarded system.

        If its absolute value is 1 or more, infinitely many roots are in the right half-plane, along
        Re s = ln|b_n/a_n|/h (Hale and Verduyn Lunel 1993).
        """
        return self.b[0] if len(self.b) == len(self.a) else 0.0

    def __call__(self, s: ArrayLike) -> Complexes:
        """Return the characteristic function at complex `s`."""
        s = np.asarray(s, complex)
        f = np.polyval(self.a, s) + np.polyval(self.b, s) * np.exp(-s * self.delay_s)
        return np.asarray(f, complex)

    def slope(self, s: ArrayLike) -> Complexes:
        """Return df/ds."""
        s = np.asarray(s, complex)
        b = np.polyval(np.polyder(self.b), s) - self.delay_s * np.polyval(self.b, s)
        slope = np.polyval(np.polyder(self.a), s) + b * np.exp(-s * self.delay_s)
        return np.asarray(slope, complex)

    def shifted(self, by: float) -> DelaySystem:
        """Return the system whose roots are those of this one, moved to the left by `by`."""
        weight = math.exp(-by * self.delay_s)
        return DelaySystem(
            _shift(self.a, by), [weight * c for c in _shift(self.b, by)], self.delay_s
        )

    def unstable_roots(self) -> float:
        """Return the number of roots with Re s > 0; infinite if neutral with |b_n/a_n| ≥ 1.

        It is the change of the argument of f along the boundary of a half-disc that contains them
        all.

        Raises
        ------
        ValueError
            If a root is on the imaginary axis, up to rounding.
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
        """Return True if every root has Re s < 0; False on the boundary."""
        try:
            return self.unstable_roots() == 0
        except ValueError:
            return False

    def roots(self, count: int = 10) -> Complexes:
        """Return the rightmost roots, from right to left.

        For a neutral system with |b_n/a_n| > 0, whose chain of roots is infinite, they are the
        rightmost roots of moderate size.

        Parameters
        ----------
        count : int, optional
            Number of roots.
        """
        guesses = self._eigenvalues()
        guesses = guesses[np.argsort(-guesses.real)][: 4 * count + 20]
        refined = self._newton(guesses)
        refined = refined[np.argsort(-refined.real, kind="stable")]
        return refined[:count]

    def rightmost(self) -> complex:
        """Return the rightmost root, with Im s ≥ 0."""
        root = self.roots(2)[0]
        return complex(root.real, abs(root.imag))

    def _radius(self) -> float:
        """Return a bound of the roots with Re s ≥ 0: beyond it |a| > |b| ≥ |b·e^{−sh}|."""
        b = np.pad(np.abs(self.b), (len(self.a) - len(self.b), 0))
        # (|a_n| − |b_n|)rⁿ − Σ(|a_i| + |b_i|)rⁱ has one positive root, by Descartes' rule.
        bound = -(np.abs(self.a) + b)
        bound[0] = 1 - b[0]
        real = [float(r.real) for r in np.roots(bound) if abs(r.imag) < 1e-9 * abs(r)]
        return 1.01 * max(real, default=1.0)

    def _turn(self, radius: float) -> float:
        """Return the angle by which the phase of f(jω) changes from ω = 0 to `radius`."""
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

    def _eigenvalues(self) -> Complexes:
        """Return the eigenvalues of the system's operator on `POINTS` + 1 Chebyshev points.

        The points are in [−h, 0]. With x = (y, y', …): x'(0) + D·x'(−h) = A0·x(0) + A1·x(−h), and
        x' = dx/dθ inside (Breda, Maset and Vermiglio 2005, with the neutral term as a boundary
        condition).
        """
        n = self.order
        # The unit of time is h/2, for conditioning.
        unit = 0.5 * self.delay_s
        scale = unit ** np.arange(n, -1, -1.0)
        a = np.array(self.a) * scale[0] / scale
        b = np.pad(self.b, (n + 1 - len(self.b), 0)) * scale[0] / scale
        now, past = np.eye(n, k=1), np.zeros((n, n))
        now[-1] = -a[1:][::-1]
        past[-1] = -b[1:][::-1]
        _, differentiate = chebyshev(POINTS)
        size = n * (POINTS + 1)
        lhs, rhs = np.eye(size), np.kron(differentiate, np.eye(n))
        lhs[n - 1, -1] = b[0]
        rhs[:n] = 0
        rhs[:n, :n] = now
        rhs[:n, -n:] = past
        from scipy import linalg  # a tenth of a second to load, which most loops do without

        return np.asarray(linalg.eigvals(linalg.solve(lhs, rhs)) / unit, complex)

    def _newton(self, guesses: Complexes) -> Complexes:
        """Return the distinct roots near the guesses; a guess that does not converge is dropped."""
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
            if all(abs(root - previous) > 1e-7 * (abs(root) + unit) for previous in distinct):
                distinct.append(complex(root))
        return np.array(distinct, complex)


def _shift(coefficients: Sequence[float], by: float) -> list[float]:
    """Return the coefficients of c(s + by)."""
    shifted = np.poly1d(list(coefficients))(np.poly1d([1.0, by]))
    return [float(x) for x in np.atleast_1d(shifted.coefficients)]


def chebyshev(points: int) -> tuple[Floats, Floats]:
    """Return Chebyshev nodes from 0 to −2 and the matrix that differentiates polynomials there."""
    k = np.arange(points + 1)
    x = np.cos(np.pi * k / points)
    c = np.where((k == 0) | (k == points), 2.0, 1.0) * (-1.0) ** k
    difference = x[:, None] - x[None, :]
    matrix = np.outer(c, 1 / c) / (difference + np.eye(points + 1))
    matrix -= np.diag(matrix.sum(axis=1))
    return x - 1, matrix


def weights(nodes: Floats, at: float) -> Floats:
    """Return barycentric interpolation weights at Chebyshev nodes (Berrut and Trefethen 2004).

    Parameters
    ----------
    nodes : array of shape (n,)
        The nodes.
    at : float
        The point to which values at the nodes are interpolated.
    """
    off = at - nodes
    if np.any(np.abs(off) < 1e-14):
        return np.asarray(np.abs(off) < 1e-14, float)
    ends = np.where((nodes == nodes[0]) | (nodes == nodes[-1]), 0.5, 1.0)
    parts = ends * (-1.0) ** np.arange(len(nodes)) / off
    return np.asarray(parts / parts.sum(), float)


#: β of equation (15) of the E-AVQ paper (Wang, Liao and Tian; `forebay cite e-avq`).
BETA = 2 / 3


@dataclass(frozen=True)
class RateLoop:
    """The loop of TCP with AVQ or E-AVQ, which act on a virtual queue (E-AVQ paper, section 3.2).

    N users with RTT d receive marks with p = (λ − C̃)/λ. Their rate λ follows δλ' = −K11·δλ −
    K12·δλ(t − d) + K2·δC̃(t − d), and the virtual capacity follows δC̃' = −K_i·δλ − K_p·δλ' −
    K_d·δλ'' (equation 18). AVQ has K_i = α alone.

    Attributes
    ----------
    capacity_pkts_per_s, flows, rtt_s : float
        C, N and d.
    k_i : float
        Integral gain, per second.
    k_p : float
        Proportional gain.
    k_d : float
        Derivative gain, in seconds.
    gamma : float
        Target utilisation.
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
        """K11 = N/(γCd²)."""
        return self.flows / (self.gamma * self.capacity_pkts_per_s * self.rtt_s**2)

    @property
    def k2(self) -> float:
        """K2 = βγC/N, which also is K12."""
        return BETA * self.gamma * self.capacity_pkts_per_s / self.flows

    @property
    def system(self) -> DelaySystem:
        """The system of equation (21) of the E-AVQ paper, which is neutral if K_d > 0."""
        k2 = self.k2
        b = [k2 * self.k_d, k2 + k2 * self.k_p, k2 * self.k_i]
        return DelaySystem([1.0, self.k11, 0.0], b, self.rtt_s)

    @property
    def stable(self) -> bool:
        """True if every root decays."""
        return self.system.stable()

    @property
    def settling_s(self) -> float:
        """Settling time of the slowest root to 2 %, in seconds; ``inf`` if it does not decay."""
        root = self.system.rightmost().real
        return -4 / root if root < 0 else math.inf

    def printed_theorem(self) -> bool:
        """Evaluate conditions (22) and (23) as printed in the E-AVQ paper.

        They are wrong; docs/explanation/theory.md has the correct ones.
        """
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
        """Return Re s of the roots far from the origin, ln(K2·K_d)/d; −inf without K_d."""
        kd = self.k2 * self.k_d
        return math.log(kd) / self.rtt_s if kd > 0 else -math.inf
