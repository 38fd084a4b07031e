"""Stability by Nyquist's count, and the margins of one loop or of many.

No result depends on the resolution of a grid. The count (crates/forebay-theory/src/stability.rs)
halves its steps until the phase changes little in each; crossings and extremes are refined between
the points of the grid. A sampled loop ends at z = −1, where its curve is on the real axis.

`count_columns` counts many loops at once, for maps and searches. It interpolates crossings of the
real axis on one line of frequencies for all loops. A loop so close to the edge of stability that
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

#: Largest sensitivity peak |1/(1 + L)| of a robust loop. It implies margins of at least 6 dB and
#: 29° (Åström and Hägglund 2006).
ROBUST_PEAK = 2.0
#: Largest number of evenly spaced frequencies of a grid.
MOST_FREQUENCIES = 60_000
#: Value of |L| below which no crossing matters.
QUIET_GAIN = 0.2
#: Largest excess of |L| between two frequencies over the range of both ends, in dB.
BETWEEN_DB = 1.0
#: Frequencies of the count, relative to the highest one. The delay shifts the phase by at most
#: `frequency_response.QUIET` radians in total, which the evenly spaced part resolves.
SHARES = np.union1d(np.geomspace(2e-6, 1, 200), np.linspace(0.02, 1, 320))
#: Distance from the edge of stability, in dB, within which each loop is counted by itself.
EDGE_DB = 0.02
#: Largest margin in dB; larger ones are reported as this value.
MOST_DB = 60.0
#: Fractions of half the sampling frequency from which crossings are searched, and Newton steps.
STARTS, ROUNDS = np.linspace(0.1, 1.0, 10), 12
#: Guesses this much larger than the nearest one, in dB, are not refined.
AROUND_DB = 10.0
#: Step of Newton's difference quotient, and |1 + L| that counts as zero.
DIFFERENCE, ENOUGH = 1e-6, 1e-11
#: A factor e in dB.
DECIBELS = 20 / math.log(10)


@dataclass(frozen=True)
class Margins:
    """The margins of a loop; phase, delay and sensitivity of an unstable loop are NaN.

    Attributes
    ----------
    phase_deg : float
        Phase margin: the smallest lag at a crossover that destabilises the loop.
    gain_db : float
        Gain margin: the smallest rise of the gain that destabilises the loop; ``inf`` if none does.
        It is negative for an unstable loop.
    delay_s : float
        Delay margin: the smallest further delay that destabilises the loop.
    sensitivity : float
        Sensitivity peak, the largest |1/(1 + L)|: the largest amplification of a disturbance.
    crossover_rad_s : float
        Frequency at which |L| falls below one; NaN without one.
    phase_crossover_rad_s : float
        Frequency at which L crosses the negative real axis; NaN without one.
    least_gain, most_gain : float
        Range of |L| over all frequencies, up to half the sampling frequency.
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
    """Return the number of unstable closed-loop roots, by Nyquist's count.

    Raises
    ------
    ValueError
        If a root is on the edge of stability, up to rounding.
    """
    (count,) = t.native.unstable_roots()
    if count is None:
        raise ValueError("a root lies on the edge of stability")
    return count


def stable(t: Terms) -> bool:
    """Return True if every root decays; False on the edge of stability."""
    return t.native.unstable_roots() == [0]


def grid(t: Terms, high: float) -> Floats:
    """Return frequencies in rad/s that resolve the whole loop.

    They are evenly spaced in the logarithm, and evenly where the delay rotates a curve that is
    not yet small.

    Parameters
    ----------
    t : Terms
        The loop.
    high : float
        Highest frequency in rad/s.
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
    """Compute gain, phase and delay margins.

    Parameters
    ----------
    t : Terms
        The loop.
    omega : array of shape (n,)
        Frequency grid in rad/s, up to the Nyquist frequency of a sampled loop.
    is_stable : bool
        True if the loop is stable.
    """

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
    """Return the gain margin alone, as `margins` does.

    Parameters
    ----------
    t : Terms
        The loop.
    omega : array of shape (n,)
        Frequency grid in rad/s.
    is_stable : bool
        True if the loop is stable.
    """
    response = frequency_response.loop(t, 1j * omega)
    return _margin_db(t, _turns(t, omega, response, _candidates(response, is_stable))[1], is_stable)


def _candidates(response: Complexes, is_stable: bool) -> Flags:
    """Return the pairs of frequencies between which the crossing of `_margin_db` may lie.

    Between two frequencies the gain may exceed the range of both ends by that range again.
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

    `among` selects the pairs of neighbouring frequencies that are searched; None selects all.
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
    """Return the sensitivity peak, the largest |1/(1 + L)|.

    A law that also acts at once is evaluated above half its sampling frequency, too.

    Parameters
    ----------
    t : Terms
        The loop.
    omega : array of shape (n,)
        Frequency grid in rad/s.
    enough : float, optional
        A peak above this value is not refined between the frequencies of the grid.
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

    An extreme between zero and `near` may hide two zeros, and is searched. `among` selects the
    pairs of neighbouring frequencies; None selects all.
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
    """Return the minimum of a function, also between the points of the grid."""
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
    """Return the smallest further delay that destabilises a sampled loop.

    It is searched for, since a delay of a fraction of an interval is not a lag alone.
    """
    interval_s = float(t.interval_s or 0.0)
    far_s = 1.5 * guess_s if math.isfinite(guess_s) else 8 * (interval_s + t.longest_s)
    # With an interval longer than the RTT, stability may be lost and regained.
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
    """Bisect for the largest distance from `good` at which `holds` is true.

    Parameters
    ----------
    holds : callable
        The predicate.
    good, bad : float
        Values at which it is true and false.
    closeness : float
        Tolerance of the result.
    """
    from scipy import optimize

    return float(optimize.bisect(lambda x: 1.0 if holds(x) else -1.0, good, bad, xtol=closeness))


def _gain_db(t: Terms, guess_db: float, is_stable: bool) -> float:
    """Return the gain in dB at which a law that acts both ways becomes unstable.

    The gain enters the alias terms more than once, so the crossing is only a guess.
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
    """Return True for loops for which the count is too coarse; see `loop.count_loops`."""
    return np.asarray(np.abs(margin_db) < EDGE_DB)


def count_columns(t: Terms, rows: int) -> tuple[Floats, Flags]:
    """Return the gain margins in dB of many loops of one kind, and True for stable loops.

    Parameters
    ----------
    t : Terms
        The loops, as columns.
    rows : int
        Number of loops.
    """
    if t.hybrid:
        line = 1j * SHARES * frequency_response.highest_rad_s(t)
        t = replace(t, aliases=frequency_response.alias_terms(t, line))
    stable, row, db, omega = _count(t, rows)
    if t.hybrid:
        row, db = _both_ways(t, stable, row, db, omega)
    # A stable loop has the smallest rise of its gain to −1; an unstable one its excess, with a
    # negative sign.
    rise, lack = _nearest(stable, row, db)
    return np.where(stable, rise, -np.abs(lack)), stable


def _nearest(stable: Flags, row: NDArray[np.intp], db: Floats) -> tuple[Floats, Floats]:
    """Return the smallest rise to a crossing for each row, and the smallest change of all."""
    rise, lack = np.full(len(stable), MOST_DB), np.full(len(stable), MOST_DB)
    np.minimum.at(rise, row, np.where(db > 0, db, MOST_DB))
    np.minimum.at(lack, row, db)
    return rise, lack


def _count(t: Terms, rows: int) -> tuple[Flags, NDArray[np.intp], Floats, Floats]:
    """Return the stable loops and the crossings of the negative real axis.

    A crossing has its row, the gain in dB that moves it to −1, and its frequency in rad/s, which is
    NaN at z = −1.
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
    """Return the crossings of loops whose law acts both ways, refined from those of `_count`."""
    rows = len(stable)
    slow = _column(t.interval_s, rows) > 0.25 * _column(t.shortest_s, rows)
    # With a slow sampler the crossing at another gain is a different one: start everywhere.
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
    """Find where Nyquist curves cross the negative real axis.

    Parameters
    ----------
    loop : array of shape (loops, frequencies)
        Open-loop responses, a row for each loop.

    Returns
    -------
    tuple of array
        For each crossing: the row of the loop, the real part at the crossing, and the index of the
        frequency before it.
    """
    re, im = loop.real, loop.imag
    below = np.signbit(im)
    row, k = np.nonzero(below[:, 1:] != below[:, :-1])
    gap = im[row, k] - im[row, k + 1]
    fraction = im[row, k] / np.where(gap == 0, 1.0, gap)
    at = re[row, k] + fraction * (re[row, k + 1] - re[row, k])
    negative = at < 0
    return row[negative], at[negative], k[negative]


def _column(x: Any, rows: int) -> Floats:
    return np.broadcast_to(np.asarray(0.0 if x is None else x, float), (rows, 1))[:, 0]


def _refined(t: Terms, omega: Floats, db: Floats) -> Floats:
    """Return the gain in dB at which 1 + L is zero, by Newton's method from a guess.

    The guess, which may be NaN, is returned where the method does not converge.
    """
    start = np.where(np.isnan(db), 1.0, db)
    x, w = start[:, None] / DECIBELS, np.log(omega)[:, None]

    good = np.zeros(len(x), bool)
    open_rows = np.arange(len(x))
    with np.errstate(all="ignore"):
        for last in [*[False] * ROUNDS, True]:
            u, v = x[open_rows], w[open_rows]
            # Unchanged, with a slightly larger gain, and at a slightly higher frequency.
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
