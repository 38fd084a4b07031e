"""The gain of a sampled loop at any complex s, for one loop or for many at once.

A law acts on the (averaged) queue at once with the gain d, and through D(z), which is sampled every
T and held. With G(s) for plant, delay and average:

- Without D the loop is continuous: L = d·G.
- Without d it is discrete: L = D(z)·Z{H·G}, the pulse transfer function of hold, delay and plant.
- With both, the direct part closes a loop of its own, and the sampler observes G/(1 + d·G) in place
  of G: L_s = D(z)·Z{H·G/(1 + d·G)}.

The formulas are in crates/forebay-theory/src/frequency_response.rs. Numbers may be scalars, or
columns with a row for each loop; s then has a row for each loop, too, or one line for all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay._native import Loops

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint

Complexes = NDArray[np.complexfloating[Any, Any]]
Exact = NDArray[np.complex128]
Floats = NDArray[np.float64]
#: A number of one loop, or a column with a row for each loop.
Number = float | complex | Floats | Complexes

#: An alias term is omitted if it is below this fraction of the sampler's input at this number of
#: frequencies.
NOTHING, PROBES = 1e-8, 9
#: Fields of `Terms` that are numbers, or tuples of numbers.
NUMBERS = (
    *("gain", "poles", "delay_s", "direct", "interval_s"),
    *("numerator", "denominator", "residues"),
)
#: Relative distance of poles below which they are moved apart for partial fractions.
APART = 1e-6
#: Poles below this value, times the longest delay, count as zero: an integral.
AT_ZERO = 1e-9
#: Frequency times R beyond which a continuous loop is quiet.
QUIET = 40.0


@dataclass(frozen=True)
class Terms:
    """One loop, or a column of loops of one kind.

    Attributes
    ----------
    gain, poles, delay_s : float or column
        The plant gain·e^{−s·delay}/((s + p1)…(s + pn)), whose poles may be complex.
    residues : tuple or None
        With residues the plant is gain·e^{−s·delay}·Σ residue/(s + pole).
    direct : float or column
        Direct gain d.
    interval_s, numerator, denominator : float or column
        Sampling interval and coefficients of D in z⁰, z⁻¹, …; the interval is None without a
        sampler.
    hybrid : bool
        True if the law acts both ways.
    parallel : Terms or None
        A further path from the law's output to its input, with the same sampler, which may have
        another path in parallel.
    aliases : tuple of int or None
        Alias terms that are counted, from `alias_terms`; None counts as many as are needed.
    """

    gain: float | Floats
    poles: tuple[Number, ...]
    delay_s: float | Floats
    direct: float | Floats
    interval_s: float | Floats | None = None
    numerator: tuple[float | Floats, ...] = (0.0,)
    denominator: tuple[float | Floats, ...] = (1.0,)
    hybrid: bool = False
    parallel: Terms | None = None
    residues: tuple[Number, ...] | None = None
    aliases: tuple[int, ...] | None = None

    def changed(self, gain: float | Floats = 1.0, delay_s: float | Floats = 0.0) -> Terms:
        """Return the loop with another plant.

        Parameters
        ----------
        gain : float or column, optional
            Factor on the plant's gain.
        delay_s : float or column, optional
            Further delay in seconds.
        """
        parallel = self.parallel and self.parallel.changed(gain, delay_s)
        delay_s = self.delay_s + delay_s
        return replace(self, gain=self.gain * gain, delay_s=delay_s, parallel=parallel)

    def sampled(self, interval_s: float | Floats) -> Terms:
        """Return the loop behind a sampler and hold of this interval."""
        parallel = self.parallel and self.parallel.sampled(interval_s)
        return replace(self, interval_s=interval_s, parallel=parallel)

    def rows(self, row: NDArray[np.intp]) -> Terms:
        """Return these rows of the columns of loops."""

        def pick(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(pick, value))
            return value[row] if isinstance(value, np.ndarray) else value

        numbers = {name: pick(getattr(self, name)) for name in NUMBERS}
        return replace(self, **numbers, parallel=self.parallel and self.parallel.rows(row))

    @cached_property
    def native(self) -> Loops:
        """The loops as the native module takes them."""
        sampler = None
        if self.interval_s is not None:
            numerator, denominator = map(_flat_each, (self.numerator, self.denominator))
            sampler = _flat(self.interval_s), numerator, denominator
        paths = [
            (
                _flat(path.gain),
                _flat_each(path.poles, complex),
                None if path.residues is None else _flat_each(path.residues, complex),
                _flat(path.delay_s),
            )
            for path in self.paths
        ]
        return Loops(paths, _flat(self.direct), sampler, self.hybrid, self.aliases)

    @property
    def paths(self) -> tuple[Terms, ...]:
        """All paths, in parallel."""
        return (self,) if self.parallel is None else (self, *self.parallel.paths)

    @property
    def longest_s(self) -> float:
        """Longest delay of a path, in seconds."""
        return max(float(np.max(path.delay_s)) for path in self.paths)

    @property
    def shortest_s(self) -> float | Floats:
        """Shortest delay of a path, in seconds, for each loop."""
        shortest: float | Floats = self.delay_s
        for path in self.paths[1:]:
            shortest = np.minimum(shortest, path.delay_s)
        return shortest

    @property
    def slowest(self) -> float:
        """Absolute value of the smallest pole that is not at zero; ``inf`` without one."""
        sizes = np.concatenate([np.ravel(np.abs(pole)) for t in self.paths for pole in t.poles])
        return float(sizes[sizes > AT_ZERO / self.longest_s].min(initial=math.inf))


def terms(cells: Sequence[tuple[OperatingPoint, LinearModel]]) -> Terms:
    """Return loops of one kind (see `kind`) as columns; a single loop as scalars."""
    points, models = [point for point, _ in cells], [model for _, model in cells]
    gain = [point.plant_gain for point in points]
    poles = [[point.tcp_pole for point in points], [point.queue_pole for point in points]]
    pole = [average_pole(model) for model in models]
    if pole[0] is not None:
        averages = [p for p in pole if p is not None]
        gain = [g * p for g, p in zip(gain, averages, strict=True)]
        poles.append(averages)
    sampled = [model["sampled"] for model in models]
    direct = [model["direct"] for model in models]
    built = Terms(
        column(gain),
        separate_repeated_poles(tuple(map(column, poles))),
        # The plant's delay, and the measurement delay of the queue that the law acts on.
        column([point.rtt_s + model["age_s"] for point, model in cells]),
        column(direct),
    )
    if sampled[0] is None:
        return built
    samplers = [sampler for sampler in sampled if sampler is not None]

    def coefficients(lists: list[list[float]]) -> tuple[float | Floats, ...]:
        return tuple(column(list(power)) for power in itertools.zip_longest(*lists, fillvalue=0.0))

    return replace(
        built,
        interval_s=column([sampler[0] for sampler in samplers]),
        numerator=coefficients([sampler[1] for sampler in samplers]),
        denominator=coefficients([sampler[2] for sampler in samplers]),
        hybrid=any(direct),
    )


def shape(t: Terms) -> tuple[object, ...]:
    """Return the shape of a loop; loops of one shape can be `stacked` as columns."""
    own = (len(t.poles), t.residues is None, t.interval_s is None, t.hybrid)
    return (*own, len(t.numerator), len(t.denominator), t.parallel and shape(t.parallel))


def stacked(loops: Sequence[Terms]) -> Terms:
    """Return single loops of one shape as columns."""

    def columns(name: str) -> Any:
        values = [getattr(t, name) for t in loops]
        if values[0] is None:
            return None
        if not isinstance(values[0], tuple):
            return column(values)
        rows = zip(*values, strict=True)
        return tuple(complex_column(np.array(row, complex)) for row in rows)

    parallel = [t.parallel for t in loops if t.parallel is not None]
    numbers = {name: columns(name) for name in NUMBERS}
    return replace(loops[0], **numbers, parallel=stacked(parallel) if parallel else None)


def column(values: Sequence[float] | Floats) -> float | Floats:
    """Return a column with a number for each loop, or the number that all loops share.

    Terms that depend on shared numbers alone are computed once.
    """
    numbers = np.asarray(values, float)
    return float(numbers[0]) if (numbers == numbers[0]).all() else numbers[:, None]


def complex_column(values: Complexes) -> Number:
    """Return a `column` of numbers that may be complex; of floats if all are real."""
    if not values.imag.any():
        return column(np.asarray(values.real, float))
    return complex(values[0]) if (values == values[0]).all() else values[:, None]


def kind(model: LinearModel) -> tuple[bool, bool, bool]:
    """Return the kind of a law's loop; loops of one kind have the same formulas."""
    return average_pole(model) is not None, model["direct"] != 0, model["sampled"] is not None


def average_pole(model: LinearModel) -> float | None:
    """Return K = −C·ln(1 − w_q) (self-tuning paper, section III.A); None without an average."""
    average = model["average"]
    if average is None or average[0] >= 1:
        return None
    return -math.log1p(-average[0]) / average[1]


def _gain(native: Callable[[Loops, Exact], Exact]) -> Callable[[Terms, Complexes], Complexes]:
    """Return a function of loops at a line of s, or at a line of s for each loop."""

    def gain(t: Terms, s: Complexes) -> Complexes:
        rows = native(t.native, np.atleast_2d(np.asarray(s, complex)))
        return rows if len(rows) > 1 else rows.reshape(np.shape(s))

    gain.__doc__ = native.__doc__
    return gain


plant = _gain(Loops.plant)
pulse = _gain(Loops.pulse)
law = _gain(Loops.law)
hold = _gain(Loops.hold)
#: With both ways, 1 + L = (1 + d·G)(1 + L_s): without alias terms that is L = (d + D·H/T)·G.
loop = _gain(Loops.loop_gain)
#: 1/(1 + L); with both ways, its component at the sine's own frequency.
sensitivity = _gain(Loops.sensitivity)


def alias_terms(t: Terms, s: Complexes) -> tuple[int, ...]:
    """Return the terms of Poisson's sum that matter on a line of the imaginary axis.

    They exceed `NOTHING` of the sampler's input at one of `PROBES` frequencies. The term of the
    sine's own frequency is not included.

    Parameters
    ----------
    t : Terms
        The loops.
    s : array
        Complex frequencies.
    """
    at = np.linspace(0, s.shape[-1] - 1, PROBES).astype(int)
    return tuple(t.native.counted_folds(np.atleast_2d(s[..., at]), NOTHING))


def _flat(numbers: Any, dtype: type = float) -> NDArray[Any]:
    return np.ravel(np.asarray(numbers, dtype))


def _flat_each(columns: Sequence[Any], dtype: type = float) -> list[NDArray[Any]]:
    return [_flat(numbers, dtype) for numbers in columns]


def highest_rad_s(t: Terms) -> float | Floats:
    """Return half the sampling frequency, or a frequency at which the loop is quiet."""
    quiet = QUIET / np.asarray(t.shortest_s)
    if t.interval_s is None:
        return _plain(quiet)
    return _plain(np.minimum(quiet, math.pi / np.asarray(t.interval_s)))


def partial_fractions(t: Terms) -> list[tuple[Number, Number]]:
    """Return residues and poles (r, p) of the plant's partial fractions Σ r/(s + p)."""
    if t.residues is not None:
        return [(t.gain * r, pole) for r, pole in zip(t.residues, t.poles, strict=True)]
    fractions: list[tuple[Number, Number]] = []
    for i, pole in enumerate(t.poles):
        residue: Any = t.gain
        for j, other_pole in enumerate(t.poles):
            if i != j:
                residue = residue / (other_pole - pole)
        fractions.append((residue, pole))
    return fractions


def whole_intervals(
    delay_s: float | Floats, interval_s: float | Floats
) -> tuple[float | Floats, float | Floats]:
    """Return n and δ of a delay nT + δ.

    Parameters
    ----------
    delay_s : float or column
        The delay.
    interval_s : float or column
        The interval T.
    """
    whole = np.floor(np.asarray(delay_s) / interval_s + 1e-9)
    return _plain(whole), _plain(np.maximum(delay_s - whole * interval_s, 0.0))


def gammas(
    pole: Number, interval_s: float | Floats, rest_s: float | Floats
) -> tuple[Number, Number]:
    """Return the gains of a mode from the input of this interval and of the previous one.

    Parameters
    ----------
    pole : float, complex or column
        Pole of the mode.
    interval_s : float or column
        The interval.
    rest_s : float or column
        Delay beyond whole intervals.
    """
    remaining = np.asarray(interval_s) - rest_s
    after = np.exp(-pole * remaining) * _rise(pole, np.asarray(rest_s))
    return _rise(pole, remaining), after


def _rise(pole: Number, time_s: Floats) -> Any:
    """Return (1 − e^{−p·t})/p, the response of a mode after a time with an input of one."""
    if np.ndim(pole) == 0 and pole == 0:
        return time_s
    return -np.expm1(-pole * time_s) / pole


def separate_repeated_poles(poles: tuple[float | Floats, ...]) -> tuple[float | Floats, ...]:
    """Perturb repeated poles so that a partial-fraction expansion exists."""
    distinct: list[float | Floats] = []
    for pole in poles:
        moved = np.asarray(pole, float)
        for _ in poles:
            near = np.zeros_like(moved, bool)
            for pole_before in distinct:
                near = near | (np.abs(moved - pole_before) < APART * moved)
            if near.any():
                moved = np.where(near, moved * (1 + 2 * APART), moved)
        distinct.append(_plain(moved))
    return tuple(distinct)


def _plain(x: Floats) -> float | Floats:
    return float(x) if x.ndim == 0 else x
