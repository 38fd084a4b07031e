"""Gain margins and stability of many loops at once, for maps and searches.

Stability is the count of each loop (`margins`). Crossings of the real axis are interpolated on one
line of frequencies for all; a loop too near to the edge for these goes to `Loop`'s own margin,
which refines them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.control import frequency_response, margins
from forebay.control.frequency_response import Complexes, Terms
from forebay.control.loop import Loop

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Frequencies of the count, as shares of the highest. The delay turns the curve by at most
#: `gain.QUIET` radians on the way, so the linear part is fine enough to follow it.
SHARES = np.union1d(np.geomspace(2e-6, 1, 200), np.linspace(0.02, 1, 320))
#: Nearer to the edge than this, in dB, each loop is counted by itself.
NEAR_DB = 0.02
#: Margins beyond this count as this.
MOST_DB = 60.0
#: Shares of half the sampling frequency from which crossings are looked for, and Newton's steps.
STARTS, ROUNDS = np.linspace(0.1, 1.0, 10), 12
#: Guesses so far from the nearest do not come before it.
AROUND_DB = 10.0
#: Newton's step of a difference, and |1 + L| that is zero.
SMALL, ENOUGH = 1e-6, 1e-11
#: Of a factor e.
DECIBELS = 20 / math.log(10)


def count_loops(loops: Sequence[Loop]) -> list[tuple[float, bool]]:
    """Gain margin in dB of each loop, and whether it is stable."""
    margin, stable = np.full(len(loops), np.nan), np.zeros(len(loops), bool)
    kinds: dict[object, list[int]] = {}
    for i, loop in enumerate(loops):
        kinds.setdefault(frequency_response.shape(loop.terms), []).append(i)
    for group in kinds.values():
        columns = frequency_response.stacked([loops[i].terms for i in group])
        margin[group], stable[group] = count_columns(columns, len(group))
    for i in map(int, np.flatnonzero(is_near_edge(margin))):
        margin[i], stable[i] = exact(loops[i], margin[i])
    return list(zip(margin.tolist(), stable.tolist(), strict=True))


def is_near_edge(margin_db: Floats) -> Flags:
    """Of which loops the count is too coarse: `exact` has them."""
    return np.asarray(np.abs(margin_db) < NEAR_DB)


def exact(loop: Loop, near_db: float) -> tuple[float, bool]:
    """Margin and stability by the loop's own count. Of a law that acts both ways `near_db` is
    exact, as the margin where 1 + L is zero, and only its side is asked."""
    found = abs(near_db)
    if not loop.terms.hybrid:
        found = min(MOST_DB, abs(margins.gain_db(loop.terms, loop.grid, loop.stable)))
    return (found if loop.stable else -found), loop.stable


def count_columns(t: Terms, rows: int) -> tuple[Floats, Flags]:
    """Gain margins in dB of so many loops of one kind, and whether each is stable."""
    if t.hybrid:
        line = 1j * SHARES * frequency_response.highest_rad_s(t)
        t = replace(t, folds=frequency_response.folds(t, line))
    stable, row, db, omega = _count(t, rows)
    if t.hybrid:
        row, db = _both_ways(t, stable, row, db, omega)
    # Of a stable loop the least rise of the gain to −1; of an unstable one what it lacks. The
    # sign says which also where the curve comes back.
    rise, lack = _nearest(stable, row, db)
    return np.where(stable, rise, -np.abs(lack)), stable


def _nearest(stable: Flags, row: NDArray[np.intp], db: Floats) -> tuple[Floats, Floats]:
    """Of each row the least rise to a crossing, and the least of all."""
    rise, lack = np.full(len(stable), MOST_DB), np.full(len(stable), MOST_DB)
    np.minimum.at(rise, row, np.where(db > 0, db, MOST_DB))
    np.minimum.at(lack, row, db)
    return rise, lack


def _count(t: Terms, rows: int) -> tuple[Flags, NDArray[np.intp], Floats, Floats]:
    """Which loops are stable; and of each crossing of the negative real axis its row, how much
    more gain takes it to −1, in dB, and its frequency in rad/s, nan at z = −1."""
    stable = np.array([count == 0 for count in t.native.unstable_roots()])
    high = _column(frequency_response.highest_rad_s(t), rows)
    omega = SHARES * high[:, None]
    response = frequency_response.loop(t, 1j * omega)
    ended, end_db = np.zeros(0, np.intp), np.zeros(0)
    if t.interval_s is not None:
        # At z = −1 the curve is real, but for rounding.
        ends = high >= (1 - 1e-12) * math.pi / _column(t.interval_s, rows)
        response[ends, -1] = response[ends, -1].real
        end = response[:, -1].real
        ended = np.flatnonzero(ends & (end < 0))
        end_db = -20 * np.log10(-end[ended])
    row, at, k = _crossings(response)
    return (
        np.broadcast_to(stable, rows),
        np.concatenate([row, ended]),
        np.concatenate([-20 * np.log10(-at), end_db]),
        np.concatenate([omega[row, k], np.full(len(ended), np.nan)]),
    )


def _both_ways(
    t: Terms, stable: Flags, row: NDArray[np.intp], db: Floats, omega: Floats
) -> tuple[NDArray[np.intp], Floats]:
    """The crossings of loops whose law acts both ways: of these the gain enters what the sampler
    folds more than once, and those of `_block` are guesses."""
    rows = len(stable)
    slow = _column(t.interval_s, rows) > 0.25 * _column(t.shortest_s, rows)
    # With a slow sampler the crossing at another gain is another one: look from everywhere.
    row, db, omega = row[~slow[row]], db[~slow[row]], omega[~slow[row]]
    rise, lack = _nearest(stable, row, db)
    near = (db <= np.where(stable, rise, lack)[row] + AROUND_DB) & np.isfinite(omega)
    if near.any():
        db[near] = _refined(_rows(t, row[near]), omega[near], db[near])
    folded = np.flatnonzero(slow)
    if not len(folded):
        return row, db
    starts = np.tile(folded, len(STARTS))
    high = _column(frequency_response.highest_rad_s(t), rows)[starts] * np.repeat(
        STARTS, len(folded)
    )
    every = replace(_rows(t, starts), folds=None)
    found = _refined(every, high, np.full(len(starts), np.nan))
    keep = np.isfinite(found)
    return np.concatenate([row, starts[keep]]), np.concatenate([db, found[keep]])


def _crossings(loop: Complexes) -> tuple[NDArray[np.intp], Floats, NDArray[np.intp]]:
    """Of the negative real axis: of each its row, its place on the axis, and the frequency before
    it."""
    re, im = loop.real, loop.imag
    below = np.signbit(im)
    row, k = np.nonzero(below[:, 1:] != below[:, :-1])
    gap = im[row, k] - im[row, k + 1]
    share = im[row, k] / np.where(gap == 0, 1.0, gap)
    at = re[row, k] + share * (re[row, k + 1] - re[row, k])
    left = at < 0
    return row[left], at[left], k[left]


def _column(x: Any, rows: int) -> Floats:
    return np.broadcast_to(np.asarray(0.0 if x is None else x, float), (rows, 1))[:, 0]


def _rows(t: Terms, row: NDArray[Any]) -> Terms:
    def pick(x: Any) -> Any:
        return x[row] if isinstance(x, np.ndarray) else x

    return replace(
        t,
        gain=pick(t.gain),
        poles=tuple(map(pick, t.poles)),
        delay_s=pick(t.delay_s),
        direct=pick(t.direct),
        interval_s=pick(t.interval_s),
        numerator=tuple(map(pick, t.numerator)),
        denominator=tuple(map(pick, t.denominator)),
        beside=t.beside and _rows(t.beside, row),
        shares=None if t.shares is None else tuple(map(pick, t.shares)),
    )


def _refined(t: Terms, omega: Floats, db: Floats) -> Floats:
    """The plant's gain at which 1 + L is zero, by Newton's method on gain and frequency from a
    guess; without one, nan where there is none."""
    start = np.where(np.isnan(db), 1.0, db)
    x, w = start[:, None] / DECIBELS, np.log(omega)[:, None]

    good = np.zeros(len(x), bool)
    left = np.arange(len(x))
    with np.errstate(all="ignore"):
        for last in [*[False] * ROUNDS, True]:
            u, v = x[left], w[left]
            # As it is, with a little more gain, and a little quicker.
            log_gain, log_omega = (
                np.concatenate([u, u + SMALL, u]),
                np.concatenate([v, v, v + SMALL]),
            )
            here = _rows(t, np.tile(left, 3)).changed(gain=np.exp(log_gain))
            now, by_x, by_w = np.split(1 + frequency_response.loop(here, 1j * np.exp(log_omega)), 3)
            done = (np.abs(now) < (1e-6 if last else ENOUGH))[:, 0]
            good[left[done]] = True
            by_x, by_w = (by_x - now) / SMALL, (by_w - now) / SMALL
            det = by_x.real * by_w.imag - by_x.imag * by_w.real
            dx = (-now.real * by_w.imag + now.imag * by_w.real) / det
            dw = (-by_x.real * now.imag + by_x.imag * now.real) / det
            if last:
                break
            left, dx, dw = left[~done], dx[~done], dw[~done]
            x[left] += np.clip(dx, -0.2, 0.2)
            w[left] += np.clip(dw, -0.2, 0.2)
            if not len(left):
                break
    found: Floats = np.where(good, DECIBELS * x[:, 0], db)
    return found
