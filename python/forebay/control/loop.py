"""The loop of TCP, a queue and a law: its frequency response, margins and roots.

The plant is the linearised fluid model of TCP and the queue with its delay,
P(s) = C²/(2N)/((s + 2N/(R²C))(s + 1/R))·e^{−sR} (pi-pd eq. 1, with the numerators of its Example
1); the law is its own linear model, measured against the law in crates/forebay-core/tests.
Delay, sampler and zero-order hold are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from forebay._native import OperatingPoint
from forebay.control.delay import DelaySystem

if TYPE_CHECKING:
    from forebay._native import LawModel, LinearModel

Complexes = NDArray[np.complex128]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Margins:
    """How far a stable loop is from oscillation.

    phase_deg: least lag at a crossover that would make it oscillate.
    gain_db: least rise of the gain that would; inf where none does.
    delay_s: least further delay that would.
    sensitivity: largest |1/(1 + L)|: by how much the loop amplifies a disturbance, at worst.
    crossover_rad_s: where |L| falls through one; nan where it is below one throughout.
    phase_crossover_rad_s: where L crosses the negative real axis; nan where it does not.
    """

    phase_deg: float
    gain_db: float
    delay_s: float
    sensitivity: float
    crossover_rad_s: float
    phase_crossover_rad_s: float


@dataclass(frozen=True)
class Plant:
    """Rational plant gain/((s + p1)…(s + pn)) after a delay; poles are the p."""

    gain: float
    poles: tuple[float, ...]
    delay_s: float

    @staticmethod
    def of(point: OperatingPoint) -> Plant:
        """TCP and the queue."""
        return Plant(point.plant_gain, (point.tcp_pole, point.queue_pole), point.rtt_s)

    def response(self, omega: ArrayLike) -> Complexes:
        """P(jω)."""
        s = np.asarray(1j * np.asarray(omega, float), complex)
        result = np.asarray(self.gain * np.exp(-s * self.delay_s), complex)
        for pole in self.poles:
            result = result / (s + pole)
        return result

    def residues(self) -> list[tuple[float, float]]:
        """(r, p) of the partial fractions Σ r/(s + p). Poles that meet are held 1e-6 apart."""
        poles: list[float] = []
        for pole in self.poles:
            apart = pole
            while any(abs(apart - other) < 1e-6 * apart for other in poles):
                apart *= 1 + 2e-6
            poles.append(apart)
        return [(self.gain / math.prod(q - p for q in poles if q is not p), p) for p in poles]


class Loop:
    """A law around a plant; its loop gain L is positive at rest, and the feedback negative.

    point: where flows settle.
    model: the law there, from `LawModel.operate` or `LawModel.linear`.
    """

    def __init__(self, point: OperatingPoint, model: LinearModel) -> None:
        self.point = point
        self.model = model
        self.queue_plant = Plant.of(point)
        #: with the average's pole, K = −C·ln(1 − w_q) (staqm section III.A)
        self.plant = self.queue_plant
        average = model["average"]
        if average is not None and average[0] < 1:
            pole = -math.log1p(-average[0]) / average[1]
            self.plant = Plant(
                self.plant.gain * pole, (*self.plant.poles, pole), self.plant.delay_s
            )

    @staticmethod
    def at(law: LawModel, flows: float, propagation_s: float) -> Loop | None:
        """The loop where the flows settle; None where the law has no equilibrium for them."""
        found = law.operate(flows, propagation_s)
        return None if found is None else Loop(*found)

    @property
    def interval_s(self) -> float | None:
        """Of the sampler, if there is one."""
        sampled = self.model["sampled"]
        return None if sampled is None else sampled[0]

    @property
    def sampler_only(self) -> bool:
        """Whether all of the law is behind its sampler: then the loop is a discrete system."""
        return self.model["sampled"] is not None and self.model["direct"] == 0

    @property
    def highest_rad_s(self) -> float:
        """Half the sampling frequency, or where a continuous loop has long been quiet."""
        if self.sampler_only and self.interval_s is not None:
            return math.pi / self.interval_s
        return max(100 / self.point.rtt_s, 10 * max(self.plant.poles))

    def grid(self, points: int = 4000) -> Floats:
        """Frequencies that show all of the loop, in rad/s."""
        low = 1e-3 * min(*self.plant.poles, 1 / self.point.rtt_s)
        high = self.highest_rad_s
        fine = np.linspace(0, min(high, 40 / self.point.rtt_s), points)[1:]
        return np.union1d(np.geomspace(low, high, points), fine)

    def response(self, omega: ArrayLike) -> Complexes:
        """L(jω).

        Behind a sampler it is the exact pulse transfer function of plant, delay and hold, at
        e^{jωT}. Of a law that acts on two ways, at once and through a sampler, it leaves out
        what the sampler folds from above half its frequency; the average has taken that away.
        """
        omega = np.asarray(omega, float)
        sampled = self.model["sampled"]
        if sampled is None:
            return self.model["direct"] * self.plant.response(omega)
        interval_s, numerator, denominator = sampled
        z_1 = np.exp(-1j * omega * interval_s)
        law = np.polyval(numerator[::-1], z_1) / np.polyval(denominator[::-1], z_1)
        if self.sampler_only:
            return law * pulse_response(self.plant, interval_s, z_1)
        half = 0.5 * omega * interval_s
        hold = np.exp(-1j * half) * np.sinc(half / math.pi)
        result: Complexes = (self.model["direct"] + law * hold) * self.plant.response(omega)
        return result

    @cached_property
    def margins(self) -> Margins:
        """Of the loop as it is; of an unstable one, phase and gain are what it lacks, below 0."""
        omega = self.grid()
        response = self.response(omega)
        angle = np.unwrap(np.angle(response))

        def phase_deg(w: float) -> float:
            """180° and the angle of L, followed from low frequencies."""
            near = float(np.interp(w, omega, angle))
            exact = float(np.angle(self.response(w)))
            return 180 + math.degrees(exact + 2 * math.pi * round((near - exact) / (2 * math.pi)))

        crossovers = self._where(omega, np.log(np.abs(response)), lambda r: math.log(abs(r)))
        turns = self._where(omega, response.imag, lambda r: float(r.imag))
        turns = [w for w in turns if self.response(w).real < 0]
        phases = [(phase_deg(w), w) for w in crossovers]
        gains = [-20 * math.log10(abs(self.response(w))) for w in turns]
        if self.stable:
            # Lag and lead both count; more delay only adds lag.
            phases = [(_wrapped(phase), w) for phase, w in phases]
            phase = min((abs(phase) for phase, _ in phases), default=math.inf)
            delay = min((math.radians(p % 360) / w for p, w in phases), default=math.inf)
            gain = min((gain for gain in gains if gain > 0), default=math.inf)
        else:
            phase = min((phase for phase, _ in phases), default=math.nan)
            delay = min((math.radians(p) / w for p, w in phases), default=math.nan)
            gain = min(gains, default=math.nan)
        return Margins(
            phase_deg=phase,
            gain_db=gain,
            delay_s=delay,
            sensitivity=float(np.max(1 / np.abs(1 + response))),
            crossover_rad_s=max(crossovers, default=math.nan),
            phase_crossover_rad_s=min(turns, default=math.nan),
        )

    def _where(self, omega: Floats, values: Floats, of: Callable[[complex], float]) -> list[float]:
        """Where a function of L changes sign, to twelve digits; `values` has it on the grid."""
        at = np.flatnonzero(np.signbit(values[1:]) != np.signbit(values[:-1]))

        def value(w: float) -> float:
            return of(complex(self.response(w)))

        return [float(optimize.brentq(value, omega[i], omega[i + 1])) for i in at]

    @cached_property
    def system(self) -> DelaySystem:
        """The characteristic equation of the loop in s.

        Exact where the law has no sampler. A sampled path stands in it by Tustin's rule, with
        half an interval more of delay, for roots far below the sampling frequency.
        """
        a, b = np.array([1.0]), np.array([self.plant.gain])
        for pole in self.plant.poles:
            a = np.polymul(a, [1, pole])
        delay_s = self.plant.delay_s
        sampled = self.model["sampled"]
        if sampled is None:
            return DelaySystem(a.tolist(), (self.model["direct"] * b).tolist(), delay_s)
        interval_s, numerator, denominator = sampled
        order = max(len(numerator), len(denominator)) - 1
        top, bottom = (_tustin(c, order, interval_s) for c in (numerator, denominator))
        law = np.polyadd(top, self.model["direct"] * bottom)
        if self.sampler_only:
            delay_s += 0.5 * interval_s
        a, b = np.polymul(a, bottom), np.polymul(b, law)
        return DelaySystem(a.tolist(), b.tolist(), delay_s)

    @cached_property
    def roots(self) -> Complexes:
        """Closed-loop roots in s, from right to left.

        Of a sampled loop, all of them, as ln z/T; of a continuous one the rightmost ten.
        """
        if self.sampler_only:
            z = self.z_roots
            assert self.interval_s is not None
            with np.errstate(divide="ignore"):
                s = np.log(z[z != 0]) / self.interval_s
            ordered: Complexes = s[np.argsort(-s.real)]
            return ordered
        return self.system.roots()

    @cached_property
    def z_roots(self) -> Complexes:
        """All roots of a sampled loop, which has finitely many: it is stable where |z| < 1."""
        assert self.model["sampled"] is not None
        interval_s, numerator, denominator = self.model["sampled"]
        top, bottom = pulse_transfer(self.plant, interval_s)
        return np.roots(
            _polyadd(np.convolve(denominator, bottom), np.convolve(numerator, top))
        ).astype(complex)

    @cached_property
    def stable(self) -> bool:
        """Whether every root decays: exact for a sampled and for a continuous loop."""
        if self.sampler_only:
            return bool(np.all(np.abs(self.z_roots) < 1))
        return self.system.stable()

    @property
    def settling_s(self) -> float:
        """Time in which the slowest root falls to 2 %, 4/|Re s|; inf where it does not."""
        rate = -float(self.roots[0].real)
        return 4 / rate if rate > 0 and self.stable else math.inf

    def step(self, duration_s: float, points: int = 2000) -> tuple[Floats, Floats]:
        """Deviation of the queue, in packets, after a tenth more flows have come: (t, q).

        The flows act on TCP as a change of the probability by δp = −p0·δN·2/N would: with N in
        W0 = RC/N fixed by the link, the equilibrium asks for 2δN/N more of p. The response is
        that of the linear loop to that step, in small steps that hold its delay exactly.
        """
        return _simulate(self, 0.2 * self.point.probability, duration_s, points)


def pulse_transfer(plant: Plant, interval_s: float) -> tuple[Floats, Floats]:
    """Hold, delay, plant and sampler as numerator and denominator in z⁰, z⁻¹, …

    With R = nT + δ each mode r/(s + p) becomes r(Γ0 z⁻ⁿ⁻¹ + Γ1 z⁻ⁿ⁻²)/(1 − e^{−pT}z⁻¹) (Åström and
    Wittenmark, Computer-Controlled Systems, section 2.3): an interval starts with the input
    held before, for δ.
    """
    whole, rest = _whole_intervals(plant.delay_s, interval_s)
    residues = plant.residues()
    denominator = np.array([1.0])
    for _, pole in residues:
        denominator = np.convolve(denominator, [1, -math.exp(-pole * interval_s)])
    numerator = np.zeros(1)
    for residue, pole in residues:
        new, old = _gammas(pole, interval_s, rest)
        others = np.array([1.0])
        for _, other in residues:
            if other != pole:
                others = np.convolve(others, [1, -math.exp(-other * interval_s)])
        numerator = _polyadd(numerator, residue * np.convolve([new, old], others))
    return np.concatenate([np.zeros(whole + 1), numerator]), denominator


def pulse_response(plant: Plant, interval_s: float, z_1: Complexes) -> Complexes:
    """`pulse_transfer` at z⁻¹."""
    whole, rest = _whole_intervals(plant.delay_s, interval_s)
    total = np.zeros_like(z_1)
    for residue, pole in plant.residues():
        new, old = _gammas(pole, interval_s, rest)
        total += residue * (new + old * z_1) / (1 - math.exp(-pole * interval_s) * z_1)
    return total * z_1 ** (whole + 1)


def _whole_intervals(delay_s: float, interval_s: float) -> tuple[int, float]:
    whole = math.floor(delay_s / interval_s + 1e-9)
    return whole, max(delay_s - whole * interval_s, 0.0)


def _gammas(pole: float, interval_s: float, rest_s: float) -> tuple[float, float]:
    """What a mode gains in an interval from the input that comes in it, and from the one before."""
    new = -math.expm1(-pole * (interval_s - rest_s)) / pole
    old = math.exp(-pole * (interval_s - rest_s)) * -math.expm1(-pole * rest_s) / pole
    return new, old


def _polyadd(a: Floats, b: Floats) -> Floats:
    """Sum of polynomials with the constant term first."""
    total = np.zeros(max(len(a), len(b)))
    total[: len(a)] += a
    total[: len(b)] += b
    return total


def _tustin(coefficients: Sequence[float], order: int, interval_s: float) -> Floats:
    """Σ cᵢ z⁻ⁱ at z = (1 + sT/2)/(1 − sT/2), times (1 + sT/2)^order; highest power first."""
    half = 0.5 * interval_s
    total = np.zeros(order + 1)
    for i, c in enumerate(coefficients):
        term = np.array([float(c)])
        for k in range(order):
            term = np.polymul(term, [-half, 1] if k < i else [half, 1])
        total += np.pad(term, (order + 1 - len(term), 0))
    return total


def _wrapped(degrees: float) -> float:
    """The same angle in (−180, 180]."""
    return 180 - (180 - degrees) % 360


def _simulate(loop: Loop, step: float, duration_s: float, points: int) -> tuple[Floats, Floats]:
    """The linear loop in time: each mode of the plant exactly over steps with a held input.

    A step of the probability's set-point acts at the plant's input, undelayed by it for the
    reader's convenience: the answer starts at t = R.
    """
    interval_s = loop.interval_s
    fine = duration_s / points
    # The law's samples fall on steps, and a delay is a whole number of them, to a step.
    dt = interval_s / max(1, math.ceil(interval_s / fine)) if interval_s else fine
    dt = min(dt, loop.point.rtt_s / 20) if not interval_s else dt
    steps = math.ceil(duration_s / dt)
    per_sample = round(interval_s / dt) if interval_s else 1
    whole, rest = _whole_intervals(loop.plant.delay_s, dt)
    queue_modes = [(r, p, *_gammas(p, dt, rest)) for r, p in loop.queue_plant.residues()]
    modes = np.zeros(len(queue_modes))
    average = loop.model["average"]
    pole = -math.log1p(-average[0]) / average[1] if average and average[0] < 1 else None
    smoothed = 0.0
    sampled = loop.model["sampled"]
    numerator, denominator = (sampled[1], sampled[2]) if sampled else ([0.0], [1.0])
    inputs, outputs = np.zeros(len(numerator)), np.zeros(len(denominator))
    history = np.zeros(steps + whole + 3)
    queue = np.zeros(steps + 1)
    decay = [math.exp(-p * dt) for _, p, _, _ in queue_modes]
    held = 0.0
    for k in range(steps):
        q = queue[k]
        seen = smoothed if pole is not None else q
        if sampled and k % per_sample == 0:
            inputs = np.concatenate([[seen], inputs[:-1]])
            held = (
                np.dot(numerator, inputs) - np.dot(denominator[1:], outputs[:-1])
            ) / denominator[0]
            outputs = np.concatenate([[held], outputs[:-1]])
        # `history` runs `whole` + 1 steps ahead of the plant.
        history[k + whole + 1] = step - (held + loop.model["direct"] * seen)
        new, old = history[k + 1], history[k]
        for i, (r, _, gamma_new, gamma_old) in enumerate(queue_modes):
            modes[i] = decay[i] * modes[i] + r * (gamma_new * new + gamma_old * old)
        queue[k + 1] = modes.sum()
        if pole is not None:
            smoothed += -math.expm1(-pole * dt) * (0.5 * (queue[k + 1] + q) - smoothed)
    return np.arange(steps + 1, dtype=float) * dt, queue
