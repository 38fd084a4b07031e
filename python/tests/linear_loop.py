"""Linear loops computed in other ways than `forebay.control` does, to compare with it.

`sampled` builds the closed loop's matrix from matrix exponentials; `hybrid` integrates the delay
equation of a law that also acts at once, in small steps.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import expm

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint

Matrix = NDArray[Any]


def plant(point: OperatingPoint, model: LinearModel) -> tuple[Matrix, Matrix, Matrix]:
    """x' = A x + B u, y = C x, of TCP, the queue and the average, from signals with the sign of
    the plant's gain."""
    chain = [point.tcp_pole, point.queue_pole]
    average = model["average"]
    if average is not None:
        chain.append(-math.log1p(-average[0]) / average[1])
    size = len(chain)
    a = np.diag([-pole for pole in chain])
    a[1, 0] = 1.0
    if average is not None:
        a[2, 1] = chain[2]
    b, c = np.zeros((size, 1)), np.zeros((1, size))
    b[0, 0], c[0, -1] = point.plant_gain, 1.0
    return a, b, c


def sampled(
    point: OperatingPoint, model: LinearModel, gain: float = 1.0, more_delay_s: float = 0.0
) -> Matrix:
    """The closed loop from sample to sample, of a law behind a sampler alone."""
    assert model["sampled"] is not None
    assert model["direct"] == 0
    interval_s, numerator, denominator = model["sampled"]
    a, b, c = plant(point, model)
    size = len(a)
    delay_s = point.rtt_s + more_delay_s
    whole = math.floor(delay_s / interval_s)
    rest_s = delay_s - whole * interval_s

    def step(duration_s: float) -> tuple[Matrix, Matrix]:
        both = expm(np.block([[a, b], [np.zeros((1, size + 1))]]) * duration_s)
        return both[:size, :size], both[:size, size:]

    move, _ = step(interval_s)
    late, new = step(interval_s - rest_s)
    old = late @ step(rest_s)[1]
    ins, outs = len(numerator) - 1, len(denominator) - 1
    # The plant, u of the last whole + 1 samples, samples of y, and outputs of the law.
    states = size + whole + 1 + ins + outs
    y = np.zeros(states)
    y[:size] = c
    u = -numerator[0] * y
    at_in, at_out = size + whole + 1, size + whole + 1 + ins
    u[at_in : at_in + ins] -= numerator[1:]
    # The law's own outputs are −u.
    u[at_out : at_out + outs] += denominator[1:]
    u = gain_of(u, gain, slice(at_out, at_out + outs))
    matrix = np.zeros((states, states))
    matrix[:size, :size] = move
    for ago, factor in ((whole, new), (whole + 1, old)):
        if ago == 0:
            matrix[:size] += factor @ u[None]
        else:
            matrix[:size, size + ago - 1] += factor[:, 0]
    matrix[size] = u
    for k in range(1, whole + 1):
        matrix[size + k, size + k - 1] = 1.0
    if ins:
        matrix[at_in] = y
    for k in range(1, ins):
        matrix[at_in + k, at_in + k - 1] = 1.0
    if outs:
        matrix[at_out] = -u
    for k in range(1, outs):
        matrix[at_out + k, at_out + k - 1] = 1.0
    return matrix


def gain_of(u: Matrix, gain: float, law: slice) -> Matrix:
    """The law's output times a gain, with its own outputs kept in that unit."""
    scaled = gain * u
    scaled[law] = u[law]
    return scaled


def critical_gain_db(point: OperatingPoint, model: LinearModel) -> float:
    """Where a sampled loop's largest eigenvalue leaves the unit circle."""

    def grows(db: float) -> bool:
        matrix = sampled(point, model, 10 ** (db / 20))
        return bool(np.abs(np.linalg.eigvals(matrix)).max() > 1)

    low, high = 0.0, 1.0
    while not grows(high):
        low, high = high, high + 1
        assert high < 100
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if grows(middle) else (middle, high)
    return high


def hybrid(point: OperatingPoint, model: LinearModel, periods: int = 40) -> complex:
    """Growth (1/s) and frequency (rad/s) of the slowest swing of a law that acts at once and
    through a sampler: classical Runge–Kutta over a sixtieth of the RTT, and Prony's fit to what the
    sampler sees."""
    assert model["sampled"] is not None
    interval_s, numerator, denominator = model["sampled"]
    a, b, _ = plant(point, model)
    each = math.ceil(interval_s / (point.rtt_s / 60))
    dt, acts = interval_s / each, [0.0]
    ago = point.rtt_s / dt

    def past(steps: float) -> float:
        at = steps - ago
        if at < 0:
            return 0.0
        i, part = int(at), at - int(at)
        if i + 1 >= len(acts):
            return acts[-1]
        # What is held jumps at a sample: a step before one goes on as it was.
        if (i + 1) % each == 0 and i:
            return acts[i] + part * (acts[i] - acts[i - 1])
        return acts[i] + part * (acts[i + 1] - acts[i])

    state, held = np.zeros(len(a)), 0.0
    state[1] = 1.0
    ins, outs, seen = [0.0] * len(numerator), [0.0] * len(denominator), []
    acts.clear()
    for k in range(each * periods):
        if k % each == 0:
            seen.append(float(state[-1]))
            ins = [seen[-1], *ins[:-1]]
            held = float(np.dot(numerator, ins) - np.dot(denominator[1:], outs[:-1]))
            held /= denominator[0]
            outs = [held, *outs[:-1]]
        acts.append(-(held + model["direct"] * float(state[-1])))
        force = [b[:, 0] * past(k + part) for part in (0.0, 0.5, 1.0)]
        k1 = a @ state + force[0]
        k2 = a @ (state + dt / 2 * k1) + force[1]
        k3 = a @ (state + dt / 2 * k2) + force[1]
        k4 = a @ (state + dt * k3) + force[2]
        state = state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    tail = np.array(seen[periods // 3 :])
    tail /= np.abs(tail).max()
    order = 4
    rows = np.column_stack([tail[i : len(tail) - order + i] for i in range(order)])
    fit = np.linalg.lstsq(rows, tail[order:], rcond=None)[0]
    z = np.roots(np.concatenate([[1.0], -fit[::-1]])).astype(complex)
    # The mode that carries the signal, not the fit's noise.
    powers = z[None, :] ** np.arange(len(tail))[:, None]
    weight = np.abs(np.linalg.lstsq(powers, tail.astype(complex), rcond=None)[0])
    return complex(np.log(z[np.argmax(weight)]) / interval_s)
