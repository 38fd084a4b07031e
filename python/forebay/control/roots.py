"""Roots of a closed loop in s: guesses from a discretisation, refined on the exact equation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forebay.control import gain
from forebay.control.delay import DelaySystem
from forebay.control.gain import Complexes, Terms

Floats = NDArray[np.float64]

#: Longest delay in intervals for which all roots of a sampled loop are computed.
LONGEST = 300
#: Most steps of history in a discretisation.
MOST = 320


def roots(t: Terms) -> Complexes:
    """From right to left; of a sampled loop as ln z/T."""
    if t.interval_s is None:
        return continuous(t).roots()
    interval_s = float(t.interval_s)
    if not t.hybrid and float(t.delay_s) / interval_s <= LONGEST:
        z = z_roots(t)
        with np.errstate(divide="ignore"):
            s = np.log(z[z != 0]) / interval_s
        return np.asarray(s[np.argsort(-s.real)], complex)
    guesses = [*continuous(t).roots(points=24)]
    if t.hybrid and float(t.delay_s) / interval_s <= MOST / 8:
        guesses += list(_period_map(t))
    return _newton(t, np.array(guesses))


def z_roots(t: Terms) -> Complexes:
    """All roots of a loop that acts through its sampler alone; it is stable where |z| < 1."""
    top, bottom = pulse_transfer(t)
    return np.roots(
        _polyadd(
            np.convolve([float(c) for c in t.denominator], bottom),
            np.convolve([float(c) for c in t.numerator], top),
        )
    ).astype(complex)


def pulse_transfer(t: Terms) -> tuple[Floats, Floats]:
    """Hold, delay, plant and sampler as numerator and denominator in z⁰, z⁻¹, …; `gain.pulse` has
    the formula."""
    assert t.interval_s is not None
    # A pole that two paths share is one of their sum.
    poles = list(dict.fromkeys(float(pole) for path in t.paths for pole in path.poles))
    decays = [math.exp(-pole * float(t.interval_s)) for pole in poles]
    denominator = np.array([1.0])
    for decay in decays:
        denominator = np.convolve(denominator, [1, -decay])
    total = np.zeros(1)
    for path in t.paths:
        whole, rest = gain.whole_intervals(path.delay_s, t.interval_s)
        numerator = np.zeros(1)
        for residue, pole in gain.residues(path):
            new, old = gain.gammas(pole, t.interval_s, rest)
            others = np.array([1.0])
            for other, decay in zip(poles, decays, strict=True):
                if other != float(pole):
                    others = np.convolve(others, [1, -decay])
            numerator = _polyadd(numerator, float(residue) * np.convolve([new, old], others))
        total = _polyadd(total, np.concatenate([np.zeros(int(whole) + 1), numerator]))
    return total, denominator


def continuous(t: Terms) -> DelaySystem:
    """The characteristic equation in s: exact where the law has no sampler.

    A sampled path stands in it by Tustin's rule, with half an interval more of delay, for roots
    far below the sampling frequency.
    """
    a, b = np.array([1.0]), np.array([float(t.gain)])
    for pole in t.poles:
        a = np.polymul(a, [1, float(pole)])
    direct, delay_s = float(t.direct), float(t.delay_s)
    if t.interval_s is None:
        return DelaySystem(a.tolist(), (direct * b).tolist(), delay_s)
    interval_s = float(t.interval_s)
    order = max(len(t.numerator), len(t.denominator)) - 1
    top, bottom = (_tustin(c, order, interval_s) for c in (t.numerator, t.denominator))
    law = np.polyadd(top, direct * bottom)
    if not t.hybrid:
        delay_s += 0.5 * interval_s
    a, b = np.polymul(a, bottom), np.polymul(b, law)
    return DelaySystem(a.tolist(), b.tolist(), delay_s)


def _period_map(t: Terms) -> Complexes:
    """Guesses: how the state of plant, delay and law moves in one interval, in small steps that
    hold the plant's input."""
    assert t.interval_s is not None
    interval_s, delay_s = float(t.interval_s), float(t.delay_s)
    steps = max(8, math.ceil(8 * interval_s / delay_s))
    dt = interval_s / steps
    whole, rest = gain.whole_intervals(delay_s, dt)
    past = int(whole) + 2
    modes = gain.residues(t)
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
    move = np.zeros((size, size))
    acts = -float(t.direct) * queue
    acts[at_out] = -1.0
    for i in range(1, past):
        move[at_past + i, at_past + i - 1] = 1.0
    move[at_past] = acts
    for i, (residue, pole) in enumerate(modes):
        new, old = (float(residue) * float(g) for g in gain.gammas(pole, dt, rest))
        move[i, i] = math.exp(-float(pole) * dt)
        # The input of this step is `acts`; the one k steps ago is at_past + k − 1.
        for ago, factor in ((past - 2, new), (past - 1, old)):
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
    z = np.linalg.eigvals(np.linalg.matrix_power(move, steps) @ sample).astype(complex)
    z = z[np.abs(z) > 1e-9]
    s = np.log(z) / interval_s
    return np.asarray(s[np.argsort(-s.real)][:24], complex)


def _newton(t: Terms, guesses: Complexes) -> Complexes:
    """Roots of 1 + L near the guesses, once each, from right to left."""
    assert t.interval_s is not None
    turn = math.pi / float(t.interval_s)
    s = guesses[np.abs(guesses.imag) < 1.01 * turn]

    def f(at: Complexes) -> Complexes:
        return 1 + gain.loop(t, at)

    with np.errstate(all="ignore"):
        for _ in range(60):
            small = 1e-6 * (np.abs(s) + 1e-3 / float(t.delay_s))
            slope = (f(s + small) - f(s - small)) / (2 * small)
            change = f(s) / slope
            # No step leaves the neighbourhood at once.
            size = np.abs(change) / (0.3 * (np.abs(s) + 0.1 / float(t.delay_s)))
            s = s - change / np.maximum(1.0, size)
        good = np.isfinite(s) & (np.abs(f(s)) < 1e-6)
    kept: list[complex] = []
    for found in s[good]:
        # z is the same a sampling frequency higher.
        root = complex(found.real, (found.imag + turn) % (2 * turn) - turn)
        if all(abs(root - other) > 1e-6 * (abs(root) + 1e-3 * turn) for other in kept):
            kept.append(root)
    return np.array(sorted(kept, key=lambda root: -root.real), complex)


def _tustin(coefficients: Sequence[object], order: int, interval_s: float) -> Floats:
    """Σ cᵢ z⁻ⁱ at z = (1 + sT/2)/(1 − sT/2), times (1 + sT/2)^order; highest power first."""
    half = 0.5 * interval_s
    total = np.zeros(order + 1)
    for i, c in enumerate(coefficients):
        term = np.array([float(c)])  # type: ignore[arg-type]
        for k in range(order):
            term = np.polymul(term, [-half, 1] if k < i else [half, 1])
        total += np.pad(term, (order + 1 - len(term), 0))
    return total


def _polyadd(a: Floats, b: Floats) -> Floats:
    """Sum of polynomials with the constant term first."""
    total = np.zeros(max(len(a), len(b)))
    total[: len(a)] += a
    total[: len(b)] += b
    return total
