"""Stability by Nyquist's count, and the margins of a loop.

Nothing here relies on one grid: the count (crates/forebay-theory/src/stability.rs) halves its steps
until the curve turns little in each, and crossings and extremes are refined between the grid's
points. A sampled loop ends at z = −1, where its curve is on the real axis.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay.control import frequency_response
from forebay.control.frequency_response import Complexes, Terms

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Largest |1/(1 + L)| that is calm: at least 6 dB and 29° (Åström and Hägglund 2006).
CALM = 2.0
#: Most frequencies of a grid's even part.
MOST = 60_000
#: Beyond the last frequency at which |L| is this large, no crossing matters.
SMALL = 0.2
#: By how much a curve's size may differ between two frequencies from what it is at both, in dB.
NEAR_DB = 1.0


@dataclass(frozen=True)
class Margins:
    """How far a stable loop is from oscillation; an unstable one has no phase, delay and
    sensitivity, which are nan.

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
    """How many roots of the closed loop grow, by Nyquist's count; raises `ValueError` where a root
    is on the edge, to rounding."""
    (count,) = t.native.unstable_roots()
    if count is None:
        raise ValueError("a root lies on the edge of stability")
    return count


def stable(t: Terms) -> bool:
    """Whether every root decays; on the edge, False."""
    return t.native.unstable_roots() == [0]


def grid(t: Terms, high: float) -> Floats:
    """Frequencies that show all of the loop: even in the logarithm, and even where the delay turns
    a curve that is not yet small."""
    low = 1e-4 * min(t.slowest, 1 / t.longest_s, high)
    base = np.geomspace(low, high, 2200)
    loud = np.flatnonzero(np.abs(frequency_response.loop(t, 1j * base)) > SMALL)
    last = base[min(loud[-1] + 1, len(base) - 1)] if len(loud) else low
    lag_s = t.longest_s + (float(t.interval_s) if t.interval_s is not None else 0.0)
    steps = min(math.ceil(2 * last * lag_s) + 1, MOST)
    even = np.linspace(low, last, max(steps, 2))
    fine = np.linspace(0, min(high, frequency_response.QUIET / float(t.shortest_s)), 2000)[1:]
    return np.union1d(np.union1d(base, even), fine)


def margins(t: Terms, omega: Floats, is_stable: bool) -> Margins:
    """Of the loop over a grid that ends at half the sampling frequency, if it has one."""

    def at(w: float) -> complex:
        return complex(frequency_response.loop(t, np.array([1j * w]))[0])

    response = frequency_response.loop(t, 1j * omega)
    size = np.abs(response)
    crossovers = _zeros(omega, np.log(size), lambda w: math.log(abs(at(w))), 0.2)
    turns, gains = _turns(t, omega, response)
    phase = delay = sensitivity = math.nan
    if is_stable:
        # Lag and lead both count; more delay only adds lag.
        left = [math.remainder(math.pi + cmath.phase(at(w)), 2 * math.pi) for w in crossovers]
        phase = math.degrees(min(map(abs, left), default=math.inf))
        lags = zip(left, crossovers, strict=True)
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
    """`margins(t, omega, is_stable).gain_db` alone."""
    response = frequency_response.loop(t, 1j * omega)
    return _margin_db(t, _turns(t, omega, response, _nearest(response, is_stable))[1], is_stable)


def _nearest(response: Complexes, is_stable: bool) -> Flags:
    """Between which frequencies the crossing lies that `_margin_db` takes: within its two ends'
    range and as much again, it may be the nearest."""
    with np.errstate(divide="ignore"):
        db = -20 * np.log10(np.abs(response))
    low, high = np.minimum(db[1:], db[:-1]), np.maximum(db[1:], db[:-1])
    slack = high - low + NEAR_DB
    low, high = low - slack, high + slack
    sure = np.signbit(response.imag[1:]) != np.signbit(response.imag[:-1])
    sure &= (response.real[1:] < 0) & (response.real[:-1] < 0)
    if is_stable:
        sure &= low > 0
    most = high[sure].min(initial=math.inf)
    return np.asarray((low <= most) & ((high > 0) if is_stable else True), bool)


def _margin_db(t: Terms, gains: list[float], is_stable: bool) -> float:
    if is_stable:
        db = min((one for one in gains if one > 0), default=math.inf)
    else:
        db = min(gains, default=math.nan)
    return _gain_db(t, db, is_stable) if t.hybrid and not math.isnan(db) else db


def _turns(
    t: Terms, omega: Floats, response: Complexes, among: Flags | None = None
) -> tuple[list[float], list[float]]:
    """Where L crosses the negative real axis, and −|L| in dB there; among some pairs of
    neighbours of the grid, if these are given."""

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
    """The largest |1/(1 + L)|; a law that also acts at once does so above half its sampling
    frequency, too.

    enough: a peak above this is not looked for between the frequencies of the grid.
    """
    if t.hybrid:
        omega = np.union1d(
            omega, np.linspace(0, frequency_response.QUIET / float(t.shortest_s), 2000)[1:]
        )

    def least(w: float) -> float:
        return 1 / abs(complex(frequency_response.sensitivity(t, np.array([1j * w]))[0]))

    inverse = 1 / np.abs(frequency_response.sensitivity(t, 1j * omega))
    seen = 1 / float(inverse.min())
    return seen if seen > enough else 1 / _least(omega, inverse, least)


def _first(turns: list[float], gains: list[float], is_stable: bool) -> float:
    """The crossing of the real axis that gives the gain margin, or else the first."""
    wanted = [(g, w) for g, w in zip(gains, turns, strict=True) if g > 0 or not is_stable]
    return min(wanted)[1] if wanted else min(turns, default=math.nan)


def _zeros(
    omega: Floats,
    values: Floats,
    of: Callable[[float], float],
    near: float,
    among: Flags | None = None,
) -> list[float]:
    """Where a function changes sign, to twelve digits; `values` has it on the grid.

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
    """The least value of a function that the grid has as `values`, between its points, too."""
    least = float(values.min())
    inside = np.flatnonzero((values[1:-1] <= values[:-2]) & (values[1:-1] <= values[2:])) + 1
    for i in inside[np.argsort(values[inside])][:6]:
        least = min(least, _minimum(of, float(omega[i - 1]), float(omega[i + 1]))[1])
    return least


def _minimum(of: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    from scipy import optimize

    found = optimize.minimize_scalar(
        of, bounds=(low, high), method="bounded", options={"xatol": 1e-10 * high}
    )
    return float(found.x), float(found.fun)


def _delay_s(t: Terms, guess_s: float) -> float:
    """The least further delay that makes a sampled loop oscillate, by trying: delay acts on it in
    parts of an interval, and not as a lag alone."""
    interval_s = float(t.interval_s or 0.0)
    far_s = 1.5 * guess_s if math.isfinite(guess_s) else 8 * (interval_s + t.longest_s)
    # With an interval longer than the RTT there may be more than one way to the edge.
    tried = np.linspace(0, far_s, 49 if interval_s > 0.5 * float(t.shortest_s) else 9)[1:]
    bad = None
    for _ in range(4):
        bad = next((i for i, one in enumerate(tried) if not stable(t.changed(delay_s=one))), None)
        if bad is not None:
            break
        tried = tried + far_s
    if bad is None:
        return math.inf
    bad_s = float(tried[bad])
    good_s = bad_s - float(tried[1] - tried[0])
    return edge(lambda delay_s: stable(t.changed(delay_s=delay_s)), good_s, bad_s, 1e-5 * bad_s)


def edge(holds: Callable[[float], bool], good: float, bad: float, closeness: float) -> float:
    """Where something that holds at one number and not at another ends to hold."""
    from scipy import optimize

    return float(optimize.bisect(lambda x: 1.0 if holds(x) else -1.0, good, bad, xtol=closeness))


def _gain_db(t: Terms, guess_db: float, is_stable: bool) -> float:
    """The gain of the plant at which a law that acts both ways starts to oscillate: it enters
    what the sampler folds more than once, so that the crossing is a guess."""

    def good(db: float) -> bool:
        return stable(t.changed(gain=10 ** (db / 20)))

    way = 1.0 if is_stable else -1.0
    far = min(abs(guess_db) + 10, 60.0)
    tried = way * np.union1d(np.arange(1.0, far + 1), 0.999 * abs(min(guess_db, far, key=abs)))
    last = 0.0
    for one in tried[np.argsort(np.abs(tried))]:
        if good(float(one)) != is_stable:
            break
        last = float(one)
    else:
        return math.inf if is_stable else guess_db
    return edge(good, last, float(one), 1e-4)
