"""Counters of a queue over time, cut where the clock or a counter does not grow.

A queue that is replaced begins to count anew, a counter of 32 bits passes its end, a clock is set
by NTP, and a recorder pauses. No interval that has one of these in it says anything, but those on
both sides do.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forebay._native import ScenarioError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

#: Counters by column, as remarks call them.
COUNTERS = ("bytes", "packets", "drops", "marks")
#: Size at which a counter of 32 bits begins again.
WRAP = 2.0**32
#: A counter has wrapped if it was this far, and then grew by no more than so many times what it
#: grows otherwise; else it has begun anew.
WRAP_FROM, WRAP_GROWTH = 2.0**31, 10.0
#: Samples that are farther apart than so many usual intervals are not joined.
GAP = 10.0
#: If the counters have grown over a gap by no more than so many times what they grow in an
#: interval, the clock has stepped, and no time has passed.
STEP_GROWTH = 3.0
#: Fewest samples between two cuts that are used.
FEWEST = 4
#: Most events of a kind that are told one by one.
MOST_TOLD = 3


@dataclass(frozen=True)
class CounterParts:
    """The parts of a record in which the clock and every counter grow.

    Attributes
    ----------
    times_s : array of shape (n,)
        Times of the samples.
    counters : array of shape (n, 4)
        Counters at these times, continued where they have wrapped.
    samples : array of shape (n,)
        Numbers of the samples that remain, of those that were given.
    parts : list of slice
        Rows of each part.
    step_s : float
        Usual interval between samples.
    remarks : list of str
        What was met, where, and what was done.
    """

    times_s: Floats
    counters: Floats
    samples: NDArray[np.int64]
    parts: Sequence[slice]
    step_s: float
    remarks: Sequence[str]


def parts(times_s: Floats, counters: Floats, lines: Sequence[int], where: str) -> CounterParts:
    """Return the parts of a record whose clock and counters grow.

    Parameters
    ----------
    times_s : array of shape (n,)
        Times of the samples in the order in which they were recorded.
    counters : array of shape (n, 4)
        Counters in the order of `COUNTERS`.
    lines : sequence of int
        Line of each sample in its file, for remarks.
    where : str
        Name of the file in errors.

    Raises
    ------
    ScenarioError
        If the times do not grow, or no part is long enough.
    """
    remarks: list[str] = []
    samples = np.flatnonzero(np.append(np.diff(times_s) != 0, True))
    if len(samples) < len(times_s):
        count = len(times_s) - len(samples)
        remarks.append(f"{count} samples have the time of the sample after them, and are left out")
    times_s, counters, line = times_s[samples], counters[samples], np.asarray(lines)[samples]
    steps_s = np.diff(times_s)
    if not np.any(steps_s > 0):
        raise ScenarioError(f"{where}: the times of the samples do not grow")
    step_s = float(np.median(steps_s[steps_s > 0]))
    counters, wrapped = _unwrapped(counters)
    growth = np.diff(counters, axis=0)
    reset = np.any(growth < 0, axis=1)
    back, ahead = steps_s < 0, steps_s > GAP * step_s
    usual = np.median(growth[~(reset | back | ahead)], axis=0) if len(growth) else growth
    stepped = back | (ahead & ~reset & (growth[:, 0] <= STEP_GROWTH * max(usual[0], 1.0)))
    remarks += _events(line, steps_s - step_s, steps_s, stepped, ahead & ~stepped, reset)
    for name, flags in zip(COUNTERS, wrapped.T, strict=True):
        wraps = [f"the counter of {name} passed 2^32 at line {at}" for at in _lines(line, flags)]
        remarks += _told(wraps, flags, "it was continued")
    ends = [0, *(np.flatnonzero(reset | back | ahead) + 1).tolist(), len(times_s)]
    pieces = [slice(a, b) for a, b in itertools.pairwise(ends)]
    long = [piece for piece in pieces if piece.stop - piece.start >= FEWEST]
    lost = len(times_s) - sum(piece.stop - piece.start for piece in long)
    if not long:
        reasons = "; ".join(remarks)
        raise ScenarioError(
            f"{where}: has no {FEWEST} samples in a row over which the clock and the counters grow"
            + (f" ({reasons})" if reasons else "")
        )
    if lost:
        remarks.append(f"{lost} samples between cuts are too few to say anything, and are left out")
    return CounterParts(times_s, counters, samples, long, step_s, remarks)


def _unwrapped(counters: Floats) -> tuple[Floats, Flags]:
    """Return the counters continued beyond 2^32, and at which steps which of them has wrapped."""
    growth = np.diff(counters, axis=0)
    flags = np.zeros(growth.shape, bool)
    for column in range(growth.shape[1]):
        steps = growth[:, column]
        grown = steps[steps > 0]
        largest = WRAP_GROWTH * float(np.quantile(grown, 0.99)) if len(grown) else 0.0
        before = counters[:-1, column]
        flags[:, column] = (
            (steps < 0) & (before >= WRAP_FROM) & (before < WRAP) & (steps + WRAP <= largest)
        )
    more = np.vstack([np.zeros((1, growth.shape[1])), np.cumsum(WRAP * flags, axis=0)])
    return counters + more, flags


def _events(
    line: NDArray[np.int64],
    moved_s: Floats,
    steps_s: Floats,
    stepped: Flags,
    silent: Flags,
    reset: Flags,
) -> list[str]:
    """Return remarks on where the record is split: for each step, what is true of it."""
    kinds: list[tuple[Flags, Callable[[int], str]]] = [
        (stepped, lambda i: f"the clock stepped by {_signed_s(float(moved_s[i]))}"),
        (silent, lambda i: f"there is no sample for {_short(float(steps_s[i]))} s"),
        (reset, lambda _: "the counters begin anew"),
    ]
    remarks = []
    for flags, event in kinds:
        rows = np.flatnonzero(flags)[:MOST_TOLD].tolist()
        events = [f"{event(row)} at line {line[row + 1]}" for row in rows]
        remarks += _told(events, flags, "the record was split there")
    return remarks


def _lines(line: NDArray[np.int64], flags: Flags) -> list[int]:
    """Return the lines after the first steps that have a flag."""
    return [int(line[row + 1]) for row in np.flatnonzero(flags)[:MOST_TOLD]]


def _told(events: list[str], flags: Flags, done: str) -> list[str]:
    """Return one remark on the events of a kind, of which `events` has the first."""
    count = int(np.count_nonzero(flags))
    if not count:
        return []
    more = f", and {count - len(events)} times more" if count > len(events) else ""
    return [f"{', '.join(events)}{more}: {done}"]


def _signed_s(seconds: float) -> str:
    return f"{'−' if seconds < 0 else '+'}{_short(abs(seconds))} s"


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 1000 else f"{seconds:.3g}"
