"""Stability by Nyquist's count, and the margins of one loop or of many.

Nothing here relies on one grid: the count (crates/forebay-theory/src/stability.rs) halves its steps
until the curve turns little in each, and crossings and extremes are refined between the grid's
points. A sampled loop ends at z = −1, where its curve is on the real axis.

`count_columns` counts many loops at once, for maps and searches. It interpolates crossings of the
real axis on one line of frequencies for all loops; a loop so near to the edge of stability that
this is too coarse (`is_near_edge`) needs the margin that `margins` refines.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.control import frequency_response
from forebay.control.frequency_response import Complexes, Terms

#: Largest |1/(1 + L)| of a robust loop: at least 6 dB and 29° (Åström and Hägglund 2006).
ROBUST_PEAK = 2.0
#: Most frequencies of a grid's even part.
MOST_FREQUENCIES = 60_000
#: Beyond the last frequency at which |L| is this large, no crossing matters.
QUIET_GAIN = 0.2
#: Most that a curve's size between two frequencies differs from the range of both ends, in dB.
BETWEEN_DB = 1.0
#: Frequencies of the count, as shares of the highest. The delay turns the curve by at most
#: `gain.QUIET` radians on the way, so the linear part is fine enough to follow it.
SHARES = np.union1d(np.geomspace(2e-6, 1, 200), np.linspace(0.02, 1, 320))
#: Nearer to the edge than this, in dB, each loop is counted by itself.
EDGE_DB = 0.02
#: Margins beyond this count as this.
MOST_DB = 60.0
#: Shares of half the sampling frequency from which crossings are looked for, and Newton's steps.
STARTS, ROUNDS = np.linspace(0.1, 1.0, 10), 12
#: Guesses so far from the nearest do not come before it.
AROUND_DB = 10.0
#: Newton's step of a difference, and |1 + L| that is zero.
DIFFERENCE, ENOUGH = 1e-6, 1e-11
#: Of a factor e.
DECIBELS = 20 / math.log(10)


@dataclass(frozen=True)
class Margins:
    """The margins of a stable loop; phase, delay and sensitivity of an unstable one are nan.

    phase_deg: least lag at a crossover that would make it oscillate.
    gain_db: least rise of the plant's gain that would; inf where none does. Below zero it is what
        an unstable loop has too much.
    delay_s: least further delay that would make it oscillate.
    sensitivity: largest |1/(1 + L)|: by how much the loop amplifies a disturbance, at worst.
    crossover_rad_s: where |L| falls through one; nan where it does not.
    phase_crossover_rad_s: where L crosses the negative real axis; nan where it does not.
    least_gain, most_gain: |L| over all frequencies, up to half the sampling frequency.
    """

    phase_deg: float
    gain_db: float
    delay_s: float
    sensitivity: float
    crossover_rad_s: float
    phase_crossover_rad_s: float
    least_gain: float
    most_gain: float


def unstable_roots(t: Terms) -> int:
    """Return the number of unstable roots of the closed loop, by Nyquist's count.

    Raises `ValueError` where a root is on the edge of stability, to rounding.
    """
    (count,) = t.native.unstable_roots()
    if count is None:
        raise ValueError("a root lies on the edge of stability")
    return count


def stable(t: Terms) -> bool:
    """True if every root decays; False on the edge of stability."""
    return t.native.unstable_roots() == [0]


def grid(t: Terms, high: float) -> Floats:
    """Return frequencies that show all of the loop.

    They are even in the logarithm, and even where the delay turns a curve that is not yet small.
    """
    low = 1e-4 * min(t.slowest, 1 / t.longest_s, high)
    base = np.geomspace(low, high, 2200)
    loud = np.flatnonzero(np.abs(frequency_response.loop(t, 1j * base)) > QUIET_GAIN)
    last = base[min(loud[-1] + 1, len(base) - 1)] if len(loud) else low
    lag_s = t.longest_s + (float(t.interval_s) if t.interval_s is not None else 0.0)
    steps = min(math.ceil(2 * last * lag_s) + 1, MOST_FREQUENCIES)
    even = np.linspace(low, last, max(steps, 2))
    fine = np.linspace(0, min(high, frequency_response.QUIET / float(t.shortest_s)), 2000)[1:]
    return np.union1d(np.union1d(base, even), fine)


def margins(t: Terms, omega: Floats, is_stable: bool) -> Margins:
    """Return the margins of a loop, from a grid that ends at half the sampling frequency."""

    def at(w: float) -> complex:
        return complex(frequency_response.loop(t, np.array([1j * w]))[0])

    response = frequency_response.loop(t, 1j * omega)
    size = np.abs(response)
    crossovers = _zeros(omega, np.log(size), lambda w: math.log(abs(at(w))), 0.2)
    turns, gains = _turns(t, omega, response)
    phase = delay = sensitivity = math.nan
    if is_stable:
        # Lag and lead both count; more delay only adds lag.
        phases = [math.remainder(math.pi + cmath.phase(at(w)), 2 * math.pi) for w in crossovers]
        phase = math.degrees(min(map(abs, phases), default=math.inf))
        lags = zip(phases, crossovers, strict=True)
        delay = min((lag % (2 * math.pi) / w for lag, w in lags), default=math.inf)
        if t.interval_s is not None:
            delay = _delay_s(t, delay)
        sensitivity = peak(t, omega)
    return Margins(
        phase_deg=phase,
        gain_db=_margin_db(t, gains, is_stable),
        delay_s=delay,
        sensitivity=sensitivity,
        crossover_rad_s=max(crossovers, default=math.nan),
        phase_crossover_rad_s=_first(turns, gains, is_stable),
        least_gain=_least(omega, size, lambda w: abs(at(w))),
        most_gain=1 / _least(omega, 1 / size, lambda w: 1 / abs(at(w))),
    )


def gain_db(t: Terms, omega: Floats, is_stable: bool) -> float:
    """Return the gain margin alone, `margins(t, omega, is_stable).gain_db`."""
    response = frequency_response.loop(t, 1j * omega)
    return _margin_db(t, _turns(t, omega, response, _candidates(response, is_stable))[1], is_stable)


def _candidates(response: Complexes, is_stable: bool) -> Flags:
    """Return the pairs of frequencies between which the crossing of `_margin_db` may lie.

    Between two frequencies the gain may leave the range of both ends by that range again.
    """
    with np.errstate(divide="ignore"):
        db = -20 * np.log10(np.abs(response))
    low, high = np.minimum(db[1:], db[:-1]), np.maximum(db[1:], db[:-1])
    slack = high - low + BETWEEN_DB
    low, high = low - slack, high + slack
    sure = np.signbit(response.imag[1:]) != np.signbit(response.imag[:-1])
    sure &= (response.real[1:] < 0) & (response.real[:-1] < 0)
    if is_stable:
        sure &= low > 0
    nearest_db = high[sure].min(initial=math.inf)
    return np.asarray((low <= nearest_db) & ((high > 0) if is_stable else True), bool)


def _margin_db(t: Terms, gains: list[float], is_stable: bool) -> float:
    if is_stable:
        db = min((gain for gain in gains if gain > 0), default=math.inf)
    else:
        db = min(gains, default=math.nan)
    return _gain_db(t, db, is_stable) if t.hybrid and not math.isnan(db) else db


def _turns(
    t: Terms, omega: Floats, response: Complexes, among: Flags | None = None
) -> tuple[list[float], list[float]]:
    """Return the frequencies at which L crosses the negative real axis, and −|L| in dB there.

    among: the pairs of neighbours of the grid that are searched; all if None.
    """

    def at(w: float) -> complex:
        return complex(frequency_response.loop(t, np.array([1j * w]))[0])

    # Where z = −1, L is real but for rounding.
    last = -1 if t.interval_s is not None else None
    size = np.abs(response)
    imag = np.asarray(response.imag / np.maximum(size, 1e-300), float)[:last]

    def sine(w: float) -> float:
        value = at(w)
        return value.imag / abs(value) if value else 0.0

    among = among if among is None else among[:last]
    turns = [w for w in _zeros(omega[:last], imag, sine, 0.05, among) if at(w).real < 0]
    if t.interval_s is not None and response[-1].real < 0:
        turns.append(float(omega[-1]))
    return turns, [-20 * math.log10(abs(at(w))) for w in turns]


def peak(t: Terms, omega: Floats, enough: float = math.inf) -> float:
    """Return the largest |1/(1 + L)|.

    A law that also acts at once does so above half its sampling frequency, too.
    enough: a peak above this is not refined between the frequencies of the grid.
    """
    if t.hybrid:
        omega = np.union1d(
            omega, np.linspace(0, frequency_response.QUIET / float(t.shortest_s), 2000)[1:]
        )

    def least(w: float) -> float:
        return 1 / abs(complex(frequency_response.sensitivity(t, np.array([1j * w]))[0]))

    inverse = 1 / np.abs(frequency_response.sensitivity(t, 1j * omega))
    on_grid = 1 / float(inverse.min())
    return on_grid if on_grid > enough else 1 / _least(omega, inverse, least)


def _first(turns: list[float], gains: list[float], is_stable: bool) -> float:
    """Return the crossing of the real axis that gives the gain margin, or else the first."""
    rises = [(g, w) for g, w in zip(gains, turns, strict=True) if g > 0 or not is_stable]
    return min(rises)[1] if rises else min(turns, default=math.nan)


def _zeros(
    omega: Floats,
    values: Floats,
    of: Callable[[float], float],
    near: float,
    among: Flags | None = None,
) -> list[float]:
    """Return the zeros of a function to twelve digits; `values` has it on the grid.

    An extreme between zero and `near` may hide two changes: it is looked for. among: pairs of
    neighbours of the grid that count; all if None.
    """
    if among is None:
        among = np.ones(len(values) - 1, bool)
    at = np.flatnonzero((np.signbit(values[1:]) != np.signbit(values[:-1])) & among)
    brackets = [(float(omega[i]), float(omega[i + 1])) for i in at]
    size = np.abs(values)
    low = (size[1:-1] <= size[:-2]) & (size[1:-1] <= size[2:]) & (size[1:-1] < near)
    same = (np.signbit(values[1:-1]) == np.signbit(values[:-2])) & (
        np.signbit(values[1:-1]) == np.signbit(values[2:])
    )
    for i in np.flatnonzero(low & same & (among[1:] | among[:-1])) + 1:
        sign = -1.0 if np.signbit(values[i]) else 1.0
        a, b = float(omega[i - 1]), float(omega[i + 1])
        w, least = _minimum(lambda x, sign=sign: sign * of(x), a, b)  # type: ignore[misc]
        if least < 0:
            brackets += [(a, w), (w, b)]
    if not brackets:
        return []
    from scipy import optimize  # a tenth of a second to load, which many a loop does without

    return sorted(float(optimize.brentq(of, a, b, xtol=1e-12 * b)) for a, b in brackets)


def _least(omega: Floats, values: Floats, of: Callable[[float], float]) -> float:
    """Return the least value of a function, also between the points of the grid."""
    least = float(values.min())
    inside = np.flatnonzero((values[1:-1] <= values[:-2]) & (values[1:-1] <= values[2:])) + 1
    for i in inside[np.argsort(values[inside])][:6]:
        least = min(least, _minimum(of, float(omega[i - 1]), float(omega[i + 1]))[1])
    return least


def _minimum(of: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    from scipy import optimize

    minimum = optimize.minimize_scalar(
        of, bounds=(low, high), method="bounded", options={"xatol": 1e-10 * high}
    )
    return float(minimum.x), float(minimum.fun)


def _delay_s(t: Terms, guess_s: float) -> float:
    """Return the least further delay that makes a sampled loop oscillate.

    It is searched for, as delay acts on such a loop in parts of an interval, not as a lag alone.
    """
    interval_s = float(t.interval_s or 0.0)
    far_s = 1.5 * guess_s if math.isfinite(guess_s) else 8 * (interval_s + t.longest_s)
    # With an interval longer than the RTT there may be more than one way to the edge.
    delays_s = np.linspace(0, far_s, 49 if interval_s > 0.5 * float(t.shortest_s) else 9)[1:]
    bad = None
    for _ in range(4):
        bad = next((i for i, d in enumerate(delays_s) if not stable(t.changed(delay_s=d))), None)
        if bad is not None:
            break
        delays_s = delays_s + far_s
    if bad is None:
        return math.inf
    bad_s = float(delays_s[bad])
    good_s = bad_s - float(delays_s[1] - delays_s[0])
    return edge(lambda delay_s: stable(t.changed(delay_s=delay_s)), good_s, bad_s, 1e-5 * bad_s)


def edge(holds: Callable[[float], bool], good: float, bad: float, closeness: float) -> float:
    """Bisect for the largest distance from `good` at which `holds` is true."""
    from scipy import optimize

    return float(optimize.bisect(lambda x: 1.0 if holds(x) else -1.0, good, bad, xtol=closeness))


def _gain_db(t: Terms, guess_db: float, is_stable: bool) -> float:
    """Return the gain at which a law that acts both ways starts to oscillate, in dB.

    The gain enters the alias terms more than once, so that the crossing is a guess.
    """

    def good(db: float) -> bool:
        return stable(t.changed(gain=10 ** (db / 20)))

    way = 1.0 if is_stable else -1.0
    far = min(abs(guess_db) + 10, 60.0)
    gains_db = way * np.union1d(np.arange(1.0, far + 1), 0.999 * abs(min(guess_db, far, key=abs)))
    previous = 0.0
    for db in map(float, gains_db[np.argsort(np.abs(gains_db))]):
        if good(db) != is_stable:
            return edge(good, previous, db, 1e-4)
        previous = db
    return math.inf if is_stable else guess_db


Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def is_near_edge(margin_db: Floats) -> Flags:
    """Return the loops for which the count is too coarse; see `loop.count_loops`."""
    return np.asarray(np.abs(margin_db) < EDGE_DB)


def count_columns(t: Terms, rows: int) -> tuple[Floats, Flags]:
    """Return gain margins in dB of `rows` loops of one kind, and the loops that are stable."""
    if t.hybrid:
        line = 1j * SHARES * frequency_response.highest_rad_s(t)
        t = replace(t, aliases=frequency_response.alias_terms(t, line))
    stable, row, db, omega = _count(t, rows)
    if t.hybrid:
        row, db = _both_ways(t, stable, row, db, omega)
    # Of a stable loop the least rise of the gain to −1; of an unstable one what it lacks. The
    # sign says which also where the curve comes back.
    rise, lack = _nearest(stable, row, db)
    return np.where(stable, rise, -np.abs(lack)), stable


def _nearest(stable: Flags, row: NDArray[np.intp], db: Floats) -> tuple[Floats, Floats]:
    """Return the least rise to a crossing for each row, and the least of all."""
    rise, lack = np.full(len(stable), MOST_DB), np.full(len(stable), MOST_DB)
    np.minimum.at(rise, row, np.where(db > 0, db, MOST_DB))
    np.minimum.at(lack, row, db)
    return rise, lack


def _count(t: Terms, rows: int) -> tuple[Flags, NDArray[np.intp], Floats, Floats]:
    """Return the stable loops and the crossings of the negative real axis.

    A crossing has its row, the gain in dB that takes it to −1, and its frequency in rad/s, which
    is nan at z = −1.
    """
    stable = np.array([count == 0 for count in t.native.unstable_roots()])
    high = _column(frequency_response.highest_rad_s(t), rows)
    omega = SHARES * high[:, None]
    response = frequency_response.loop(t, 1j * omega)
    at_end, end_db = np.zeros(0, np.intp), np.zeros(0)
    if t.interval_s is not None:
        # At z = −1 the curve is real, but for rounding.
        ends = high >= (1 - 1e-12) * math.pi / _column(t.interval_s, rows)
        response[ends, -1] = response[ends, -1].real
        end = response[:, -1].real
        at_end = np.flatnonzero(ends & (end < 0))
        end_db = -20 * np.log10(-end[at_end])
    row, at, k = _crossings(response)
    return (
        np.broadcast_to(stable, rows),
        np.concatenate([row, at_end]),
        np.concatenate([-20 * np.log10(-at), end_db]),
        np.concatenate([omega[row, k], np.full(len(at_end), np.nan)]),
    )


def _both_ways(
    t: Terms, stable: Flags, row: NDArray[np.intp], db: Floats, omega: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """Return the crossings of loops whose law acts both ways, from those of `_count` as guesses."""
    rows = len(stable)
    slow = _column(t.interval_s, rows) > 0.25 * _column(t.shortest_s, rows)
    # With a slow sampler the crossing at another gain is another one: look from everywhere.
    row, db, omega = row[~slow[row]], db[~slow[row]], omega[~slow[row]]
    rise, lack = _nearest(stable, row, db)
    near = (db <= np.where(stable, rise, lack)[row] + AROUND_DB) & np.isfinite(omega)
    if near.any():
        db[near] = _refined(t.rows(row[near]), omega[near], db[near])
    folded = np.flatnonzero(slow)
    if not len(folded):
        return row, db
    starts = np.tile(folded, len(STARTS))
    high = _column(frequency_response.highest_rad_s(t), rows)[starts] * np.repeat(
        STARTS, len(folded)
    )
    every = replace(t.rows(starts), aliases=None)
    refined = _refined(every, high, np.full(len(starts), np.nan))
    keep = np.isfinite(refined)
    return np.concatenate([row, starts[keep]]), np.concatenate([db, refined[keep]])


def _crossings(loop: Complexes) -> tuple[NDArray[np.intp], Floats, NDArray[np.intp]]:
    """Return row, position and preceding frequency of each crossing of the negative real axis."""
    re, im = loop.real, loop.imag
    below = np.signbit(im)
    row, k = np.nonzero(below[:, 1:] != below[:, :-1])
    gap = im[row, k] - im[row, k + 1]
    share = im[row, k] / np.where(gap == 0, 1.0, gap)
    at = re[row, k] + share * (re[row, k + 1] - re[row, k])
    negative = at < 0
    return row[negative], at[negative], k[negative]


def _column(x: Any, rows: int) -> Floats:
    return np.broadcast_to(np.asarray(0.0 if x is None else x, float), (rows, 1))[:, 0]


def _refined(t: Terms, omega: Floats, db: Floats) -> Floats:
    """Return the plant's gain in dB at which 1 + L is zero, by Newton's method from a guess.

    The guess itself is returned where the method does not converge; it may be nan.
    """
    start = np.where(np.isnan(db), 1.0, db)
    x, w = start[:, None] / DECIBELS, np.log(omega)[:, None]

    good = np.zeros(len(x), bool)
    open_rows = np.arange(len(x))
    with np.errstate(all="ignore"):
        for last in [*[False] * ROUNDS, True]:
            u, v = x[open_rows], w[open_rows]
            # As it is, with a little more gain, and a little quicker.
            log_gain, log_omega = (
                np.concatenate([u, u + DIFFERENCE, u]),
                np.concatenate([v, v, v + DIFFERENCE]),
            )
            loops = t.rows(np.tile(open_rows, 3)).changed(gain=np.exp(log_gain))
            now, by_x, by_w = np.split(
                1 + frequency_response.loop(loops, 1j * np.exp(log_omega)), 3
            )
            done = (np.abs(now) < (1e-6 if last else ENOUGH))[:, 0]
            good[open_rows[done]] = True
            by_x, by_w = (by_x - now) / DIFFERENCE, (by_w - now) / DIFFERENCE
            det = by_x.real * by_w.imag - by_x.imag * by_w.real
            dx = (-now.real * by_w.imag + now.imag * by_w.real) / det
            dw = (-by_x.real * now.imag + by_x.imag * now.real) / det
            if last:
                break
            open_rows, dx, dw = open_rows[~done], dx[~done], dw[~done]
            x[open_rows] += np.clip(dx, -0.2, 0.2)
            w[open_rows] += np.clip(dw, -0.2, 0.2)
            if not len(open_rows):
                break
    return np.asarray(np.where(good, DECIBELS * x[:, 0], db), float)
