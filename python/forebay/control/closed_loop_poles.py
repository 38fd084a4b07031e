"""Roots of a closed loop in s: guesses from a discretisation, refined on the exact equation."""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from forebay.control import frequency_response
from forebay.control.delay_system import chebyshev, weights
from forebay.control.frequency_response import Complexes, Number, Terms

Floats = NDArray[np.float64]
AnyOf = TypeVar("AnyOf", Floats, Complexes)

#: Longest delay in intervals for which all roots of a sampled loop are computed.
LONGEST = 300
#: Largest number of past steps in a discretisation.
MOST = 320
#: Number of Chebyshev points of the longest delay.
POINTS = 30


def roots(t: Terms) -> Complexes:
    """Return the closed-loop roots from right to left; those of a sampled loop are ln z/T."""
    if t.interval_s is None:
        return _newton(t, _generator(t))
    interval_s = float(t.interval_s)
    if not t.hybrid and t.longest_s / interval_s <= LONGEST:
        z = _period_map(t, 1)
        s = np.log(z[z != 0]) / interval_s
        return np.asarray(s[np.argsort(-s.real)], complex)
    guesses = [*_generator(t)]
    if t.hybrid and t.longest_s / interval_s <= MOST / 8:
        steps = max(8, math.ceil(8 * interval_s / float(t.shortest_s)))
        z = _period_map(t, steps)
        s = np.log(z[np.abs(z) > 1e-9]) / interval_s
        guesses += list(s[np.argsort(-s.real)][:24])
    return _newton(t, np.array(guesses))


def pulse_transfer(t: Terms) -> tuple[Floats, Floats]:
    """Return hold, delay, plant and sampler as numerator and denominator in z⁰, z⁻¹, ….

    The formula is that of `frequency_response.pulse`.
    """
    assert t.interval_s is not None
    # The sum of two paths has a shared pole once.
    poles = list(dict.fromkeys(_plain(pole) for path in t.paths for pole in path.poles))
    decays = [np.exp(-pole * float(t.interval_s)) for pole in poles]
    denominator = np.array([1.0])
    for decay in decays:
        denominator = np.convolve(denominator, [1, -decay])
    total = np.zeros(1)
    for path in t.paths:
        whole, rest = frequency_response.whole_intervals(path.delay_s, t.interval_s)
        numerator: Any = np.zeros(1)
        for residue, pole in frequency_response.partial_fractions(path):
            new, old = frequency_response.gammas(pole, t.interval_s, rest)
            cofactor = np.array([1.0])
            for other_pole, decay in zip(poles, decays, strict=True):
                if other_pole != _plain(pole):
                    cofactor = np.convolve(cofactor, [1, -decay])
            part: Any = _plain(residue) * np.convolve([new, old], cofactor)
            numerator = _polyadd(numerator, part)
        total = _polyadd(total, np.concatenate([np.zeros(int(whole) + 1), numerator]))
    # Complex poles come in pairs, so the imaginary parts cancel up to rounding.
    return np.asarray(total.real), np.asarray(denominator.real)


def rational(t: Terms) -> tuple[Floats, Floats]:
    """Return the plant of one path without its delay, as a fraction in s, highest power first."""
    poles = [complex(pole) for pole in t.poles]
    bottom = np.poly([-pole for pole in poles])
    top = np.zeros(1, complex)
    if t.residues is None:
        return np.array([float(t.gain)]), np.asarray(bottom.real, float)
    for i, residue in enumerate(t.residues):
        cofactor = [-other_pole for j, other_pole in enumerate(poles) if j != i]
        top = np.polyadd(top, complex(t.gain * residue) * np.poly(cofactor))
    return np.asarray(top.real, float), np.asarray(bottom.real, float)


def _generator(t: Terms) -> Complexes:
    """Return guesses: eigenvalues of the loop's generator on Chebyshev points of the longest delay.

    The method is that of Breda, Maset and Vermiglio (2005). A sampler is approximated by Tustin's
    rule and half an interval of further delay, for roots far below the sampling frequency.
    """
    late_s = 0.0
    law_a, law_b = np.zeros((0, 0)), np.zeros((0, 1))
    law_c, acts = np.zeros((1, 0)), float(t.direct)
    # A law without gain contributes nothing, and its gain would be a divisor.
    if t.interval_s is not None and any(np.any(c) for c in t.numerator):
        interval_s = float(t.interval_s)
        order = max(len(t.numerator), len(t.denominator)) - 1
        # The unit of time is the interval and the unit of gain the largest one, for conditioning.
        top, bottom = (_tustin(c, order) for c in (t.numerator, t.denominator))
        from scipy import signal  # half a second to load, which most laws do without

        gain = float(np.abs(top).max()) or 1.0
        law_a, law_b, law_c, passes = signal.tf2ss(top / gain, bottom)
        law_a, law_b = law_a / interval_s, law_b / interval_s
        law_c, passes = gain * law_c, gain * passes
        acts += float(passes[0, 0])
        late_s = 0.0 if t.hybrid else 0.5 * interval_s
    modes = _modes(t)
    plant, size = len(modes), len(modes) + len(law_a)
    now = np.zeros((size, size), complex)
    now[:plant, :plant] = np.diag([-pole for pole in modes])
    now[plant:, :plant] = law_b
    now[plant:, plant:] = law_a
    output = np.concatenate([np.full(plant, acts), law_c.ravel()])
    longest_s = t.longest_s + late_s
    nodes, slopes = chebyshev(POINTS)
    whole = np.kron(2 / longest_s * slopes, np.eye(size)).astype(complex)
    whole[:size] = 0.0
    whole[:size, :size] = now
    for i, entries in enumerate(modes.values()):
        for residue, delay_s in entries:
            at = weights(nodes, -2 * (delay_s + late_s) / longest_s)
            whole[i] += np.kron(at, -residue * output)
    eigenvalues = np.linalg.eigvals(whole)
    return np.asarray(eigenvalues[np.argsort(-eigenvalues.real)][:60], complex)


def _modes(t: Terms) -> dict[complex, list[tuple[complex, float]]]:
    """Return the residues and delays of each pole in the paths that share it."""
    modes: dict[complex, list[tuple[complex, float]]] = {}
    for path in t.paths:
        for residue, pole in frequency_response.partial_fractions(path):
            entry = (complex(residue), float(path.delay_s))
            modes.setdefault(complex(pole), []).append(entry)
    return modes


def _period_map(t: Terms, steps: int) -> Complexes:
    """Return the eigenvalues of the state's map over one interval, in steps with a held input.

    The state is that of plant, delay and law. One step is exact for a law behind its sampler. For a
    law that also acts at once, small steps give a guess.
    """
    assert t.interval_s is not None
    interval_s = float(t.interval_s)
    dt = interval_s / steps
    past = int(frequency_response.whole_intervals(t.longest_s, dt)[0]) + 2
    modes = _modes(t)
    numerator = [float(c) for c in t.numerator]
    denominator = [float(c) for c in t.denominator]
    inputs, outputs = len(numerator) - 1, len(denominator)
    # Modes, inputs of the plant from the newest on, samples before the last, outputs of the law.
    at_past = len(modes)
    at_in = at_past + past
    at_out = at_in + inputs
    size = at_out + outputs
    queue = np.zeros(size)
    queue[:at_past] = 1.0
    move = np.zeros((size, size), complex)
    acts = -float(t.direct) * queue
    acts[at_out] = -1.0
    for i in range(1, past):
        move[at_past + i, at_past + i - 1] = 1.0
    move[at_past] = acts
    for i, (pole, entries) in enumerate(modes.items()):
        move[i, i] = cmath.exp(-pole * dt)
        for residue, delay_s in entries:
            whole, rest = frequency_response.whole_intervals(delay_s, dt)
            new, old = (complex(residue * g) for g in frequency_response.gammas(pole, dt, rest))
            # The input of this step is `acts`; the one k steps ago is at_past + k − 1.
            for ago, factor in ((int(whole), new), (int(whole) + 1, old)):
                if ago == 0:
                    move[i] += factor * acts
                else:
                    move[i, at_past + ago - 1] += factor
    for i in range(size - at_in):
        move[at_in + i, at_in + i] = 1.0
    sample = np.eye(size)
    sample[at_in:] = 0.0
    sample[at_out] = (numerator[0] / denominator[0]) * queue
    for i in range(inputs):
        sample[at_out, at_in + i] += numerator[i + 1] / denominator[0]
        sample[at_in + i] = queue if i == 0 else np.eye(size)[at_in + i - 1]
    for i in range(1, outputs):
        sample[at_out, at_out + i - 1] -= denominator[i] / denominator[0]
        sample[at_out + i, at_out + i - 1] = 1.0
    return np.linalg.eigvals(np.linalg.matrix_power(move, steps) @ sample).astype(complex)


def _newton(t: Terms, guesses: Complexes) -> Complexes:
    """Return the distinct roots of 1 + L near the guesses, from right to left."""
    turn = math.inf if t.interval_s is None else math.pi / float(t.interval_s)
    s = guesses[np.abs(guesses.imag) < 1.01 * turn]
    near_s = float(t.shortest_s)
    poles = list(_modes(t))

    def f(at: Complexes) -> Complexes:
        # The factor keeps a pole that a zero nearly cancels from hiding the root next to it.
        below = np.prod([at + p for p in poles], axis=0)
        return np.asarray((1 + frequency_response.loop(t, at)) * below, complex)

    with np.errstate(all="ignore"):
        for _ in range(60):
            small = 1e-6 * (np.abs(s) + 1e-3 / near_s)
            slope = (f(s + small) - f(s - small)) / (2 * small)
            change = f(s) / slope
            # The length of a step is limited to the neighbourhood of the guess.
            size = np.abs(change) / (0.3 * (np.abs(s) + 0.1 / near_s))
            s = s - change / np.maximum(1.0, size)
        good = np.isfinite(s) & (np.abs(change) < 1e-7 * (np.abs(s) + 1e-3 / near_s))
    distinct: list[complex] = []
    for refined in s[good]:
        # A sampled loop has the same z one sampling frequency higher.
        root = complex(refined)
        if math.isfinite(turn):
            root = complex(refined.real, (refined.imag + turn) % (2 * turn) - turn)
        if all(abs(root - previous) > 1e-6 * (abs(root) + 1e-3 / near_s) for previous in distinct):
            distinct.append(root)
    return np.array(sorted(distinct, key=lambda root: -root.real), complex)


def _tustin(coefficients: Sequence[object], order: int) -> Floats:
    """Return Σ cᵢ z⁻ⁱ at z = (1 + s/2)/(1 − s/2), times (1 + s/2)^order; highest power first."""
    total = np.zeros(order + 1)
    for i, c in enumerate(coefficients):
        term = np.array([float(c)])  # type: ignore[arg-type]
        for k in range(order):
            term = np.polymul(term, [-0.5, 1] if k < i else [0.5, 1])
        total += np.pad(term, (order + 1 - len(term), 0))
    return total


def _plain(number: Number) -> float | complex:
    """Return a number without imaginary part as a float, whose sums round differently."""
    value = complex(number)
    return value if value.imag else value.real


def _polyadd(a: AnyOf, b: AnyOf) -> AnyOf:
    """Return the sum of polynomials with the constant term first."""
    total = np.zeros(max(len(a), len(b)), np.result_type(a, b))
    total[: len(a)] += a
    total[: len(b)] += b
    return total
