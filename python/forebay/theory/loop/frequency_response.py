"""The gain of a sampled loop at any complex s, for one loop or for many at once.

A law acts on the (averaged) queue at once with the gain d, and through D(z), sampled every T and
held. With G(s) for plant, delay and average:

- without D the loop is continuous: L = d·G;
- without d it is discrete: L = D(z)·Z{H·G}, the pulse transfer function of hold, delay and plant;
- with both, the part that acts at once closes a loop of its own, and the sampler sees
  G/(1 + d·G) instead of G: L_s = D(z)·Z{H·G/(1 + d·G)}.

Z folds every frequency above half the sampling frequency back, by Poisson's sum
Z{F} = (1/T)·Σ F(s + 2πjm/T). Of H·G it has a closed form; what the inner loop changes in it,
−H·d·G²/(1 + d·G), falls with the seventh power of frequency where G has three poles, so that a
few terms are the sum.

Numbers may be scalars, or columns with a row for each loop; s then has a row for each, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from forebay._native import LinearModel, OperatingPoint

Complexes = NDArray[np.complexfloating[Any, Any]]
Floats = NDArray[np.float64]
#: Of a loop, or a column of one for each.
Number = float | complex | Floats | Complexes

#: Least number of terms of Poisson's sum to each side by the plant's poles, for a sampler much
#: quicker than the RTT: the fewer poles, the slower its terms fall.
FOLDS = {1: 60, 2: 6}
#: A fold is left out where it is below this share of what the sampler sees, at all of so many
#: places of a line.
NOTHING, PROBES = 1e-8, 9
#: Poles nearer than this, relative to their size, are held apart for the partial fractions.
APART = 1e-6
#: Frequencies times R beyond which a continuous loop that is to be told stable is quiet.
QUIET = 40.0
#: A mode that keeps this much of itself over an interval may be split into a constant and a
#: fraction without loss of digits.
SLOW = 0.1


@dataclass(frozen=True)
class Terms:
    """One loop, or a column of loops of one kind.

    gain, poles, delay_s: of the plant, gain·e^{−s·delay}/((s + p1)…(s + pn)); poles may be complex.
    shares: the plant is gain·e^{−s·delay}·Σ share/(s + pole) instead; None without.
    direct: d. interval_s, numerator, denominator: of D, with z⁰, z⁻¹, …; None without a sampler.
    hybrid: whether the law acts both ways.
    beside: one more path from the law's output to its input, with the same sampler, which may have
        another beside it; None without.
    folds: those that are counted, as `folds` finds them; enough of them if None.
    """

    gain: float | Floats
    poles: tuple[Number, ...]
    delay_s: float | Floats
    direct: float | Floats
    interval_s: float | Floats | None = None
    numerator: tuple[float | Floats, ...] = (0.0,)
    denominator: tuple[float | Floats, ...] = (1.0,)
    hybrid: bool = False
    beside: Terms | None = None
    shares: tuple[Number, ...] | None = None
    folds: tuple[int, ...] | None = None

    def changed(self, gain: float | Floats = 1.0, delay_s: float | Floats = 0.0) -> Terms:
        """With the plant's gain times `gain`, and more delay."""
        beside = self.beside and self.beside.changed(gain, delay_s)
        return replace(self, gain=self.gain * gain, delay_s=self.delay_s + delay_s, beside=beside)

    def sampled(self, interval_s: float | Floats) -> Terms:
        """Behind a sampler and hold of this interval."""
        beside = self.beside and self.beside.sampled(interval_s)
        return replace(self, interval_s=interval_s, beside=beside)

    @property
    def paths(self) -> tuple[Terms, ...]:
        return (self,) if self.beside is None else (self, *self.beside.paths)

    @property
    def longest_s(self) -> float:
        """The longest delay of a path."""
        return max(float(np.max(path.delay_s)) for path in self.paths)

    @property
    def shortest_s(self) -> float | Floats:
        """The shortest delay of a path, of each loop."""
        found: float | Floats = self.delay_s
        for path in self.paths[1:]:
            found = np.minimum(found, path.delay_s)
        return found

    @property
    def slowest(self) -> float:
        """The smallest pole of a path, in size."""
        return min(float(np.min(np.abs(pole))) for path in self.paths for pole in path.poles)


def terms(cells: Sequence[tuple[OperatingPoint, LinearModel]]) -> Terms:
    """Loops of one kind (see `kind`) as columns; a single one as scalars."""

    points, models = [point for point, _ in cells], [model for _, model in cells]
    gain = [point.plant_gain for point in points]
    poles = [[point.tcp_pole for point in points], [point.queue_pole for point in points]]
    pole = [average_pole(model) for model in models]
    if pole[0] is not None:
        averages = [one for one in pole if one is not None]
        gain = [g * p for g, p in zip(gain, averages, strict=True)]
        poles.append(averages)
    sampled = [model["sampled"] for model in models]
    direct = [model["direct"] for model in models]
    built = Terms(
        column(gain),
        apart(tuple(column(one) for one in poles)),
        column([point.rtt_s for point in points]),
        column(direct),
    )
    if sampled[0] is None:
        return built
    there = [one for one in sampled if one is not None]

    def coefficients(lists: list[list[float]]) -> tuple[float | Floats, ...]:
        longest = max(map(len, lists))
        return tuple(
            column([one[i] if i < len(one) else 0.0 for one in lists]) for i in range(longest)
        )

    return replace(
        built,
        interval_s=column([one[0] for one in there]),
        numerator=coefficients([one[1] for one in there]),
        denominator=coefficients([one[2] for one in there]),
        hybrid=any(direct),
    )


def numbered(rows: Sequence[Sequence[float]]) -> Terms:
    """`terms` of loops of one kind and length that `LawModel.operate_all` has as numbers."""
    found = np.asarray(rows)
    delay_s, gain, tcp, queue, direct = (column(found[:, i]) for i in range(1, 6))
    poles: tuple[float | Floats, ...] = (tcp, queue)
    if 0 <= found[0, 6] < 1:
        average = column(-np.log1p(-found[:, 6]) / found[:, 7])
        gain, poles = gain * average, (*poles, average)
    built = Terms(gain, apart(poles), delay_s, direct)
    if found[0, 8] < 0:
        return built
    first, last = 10, 10 + int(found[0, 9])
    return replace(
        built,
        interval_s=column(found[:, 8]),
        numerator=tuple(column(found[:, i]) for i in range(first, last)),
        denominator=tuple(column(found[:, i]) for i in range(last, found.shape[1])),
        hybrid=bool(found[:, 5].any()),
    )


def shape(t: Terms) -> tuple[object, ...]:
    """Loops of one shape are columns of one; see `stacked`."""
    own = (len(t.poles), t.shares is None, t.interval_s is None, t.hybrid)
    return (*own, len(t.numerator), len(t.denominator), t.beside and shape(t.beside))


def stacked(loops: Sequence[Terms]) -> Terms:
    """Single loops of one shape as columns."""
    first = loops[0]

    def each(name: str) -> Any:
        values = [getattr(t, name) for t in loops]
        if values[0] is None:
            return None
        if isinstance(values[0], tuple):
            return tuple(
                complex_column(np.array(row, complex)) for row in zip(*values, strict=True)
            )
        return column(values)

    names = (
        "gain",
        "poles",
        "delay_s",
        "direct",
        "interval_s",
        "numerator",
        "denominator",
        "shares",
    )
    beside = [t.beside for t in loops if t.beside is not None]
    columns = {name: each(name) for name in names}
    return replace(first, **columns, beside=stacked(beside) if beside else None)


def numbered_kind(row: Sequence[float]) -> tuple[int, bool, bool, bool]:
    """Rows of one kind, and of as many numbers, go through `numbered` together."""
    return len(row), 0 <= row[6] < 1, row[5] != 0, row[8] >= 0


def column(values: Sequence[float] | Floats) -> float | Floats:
    """A number of each loop; one that all of them share as it is, so that what depends on such
    numbers alone is computed once."""
    found = np.asarray(values, float)
    return float(found[0]) if (found == found[0]).all() else found[:, None]


def complex_column(values: Complexes) -> Number:
    """The same for numbers that may be complex; as real ones where all of them are."""
    if not values.imag.any():
        return column(np.asarray(values.real, float))
    return complex(values[0]) if (values == values[0]).all() else values[:, None]


def kind(model: LinearModel) -> tuple[bool, bool, bool]:
    """Loops of one kind go through the same formulas."""
    return average_pole(model) is not None, model["direct"] != 0, model["sampled"] is not None


def average_pole(model: LinearModel) -> float | None:
    """K = −C·ln(1 − w_q) (staqm section III.A); None without an average."""
    average = model["average"]
    if average is None or average[0] >= 1:
        return None
    return -math.log1p(-average[0]) / average[1]


def plant(t: Terms, s: Complexes) -> Complexes:
    """G(s)."""
    return _plant(t, s, [late(s, path.delay_s) for path in t.paths])


def _plant(t: Terms, s: Complexes, delays: Sequence[Complexes]) -> Complexes:
    """G(s), with e^{−sR} of each path."""
    if t.shares is None:
        below = s + t.poles[0]
        for pole in t.poles[1:]:
            below = _into(np.multiply, below, s + pole)
        total = _into(np.multiply, reciprocal(below), t.gain * delays[0])
        return total if t.beside is None else total + _plant(t.beside, s, delays[1:])
    # Paths of several classes share their poles.
    paths = t.paths
    found = [np.zeros(1, complex) for _ in paths]
    for k, pole in enumerate(t.poles):
        mode = reciprocal(s + pole)
        for i, path in enumerate(paths):
            assert path.shares is not None
            found[i] = _into(np.add, found[i], path.shares[k] * mode)
    return np.asarray(
        sum(path.gain * x * e for path, x, e in zip(paths, found, delays, strict=True)), complex
    )


def pulse(t: Terms, s: Complexes) -> Complexes:
    """Z{H·G} at z = e^{sT}.

    With R = nT + δ each mode r/(s + p) becomes r(Γ0 z⁻ⁿ⁻¹ + Γ1 z⁻ⁿ⁻²)/(1 − e^{−pT}z⁻¹) (Åström and
    Wittenmark, Computer-Controlled Systems, section 2.3): an interval starts with the input
    held before, for δ.
    """
    assert t.interval_s is not None
    return _pulse(t, s, late(s, t.interval_s))


def _pulse(t: Terms, s: Complexes, z_1: Complexes) -> Complexes:
    assert t.interval_s is not None
    if t.shares is not None and t.beside is not None:
        return _pulses(t, s, z_1)
    whole, rest = whole_intervals(t.delay_s, t.interval_s)
    total: Complexes | None = None
    for residue, pole in residues(t):
        new, old = gammas(pole, t.interval_s, rest)
        decay = np.exp(-np.asarray(pole) * t.interval_s)
        if np.ndim(pole) and np.isrealobj(decay) and np.isrealobj(residue) and np.min(decay) > SLOW:
            # k + m/(1 − d·z⁻¹): a division, and no other product, for each of many loops.
            constant = -residue * old / decay
            mode = _fraction(residue * new - constant, decay, constant, z_1)
        else:
            mode = np.asarray(residue * ((new + old * z_1) / (1 - decay * z_1)), complex)
        total = mode if total is None else _into(np.add, total, mode)
    assert total is not None
    total = _into(np.multiply, total, _power(s * t.interval_s, whole + 1))
    return total if t.beside is None else total + _pulse(t.beside, s, z_1)


def _pulses(t: Terms, s: Complexes, z_1: Complexes) -> Complexes:
    """`_pulse` of several paths with the same poles: 1/(1 − e^{−pT}z⁻¹) of each is found once."""
    assert t.interval_s is not None
    paths = t.paths
    split = [whole_intervals(path.delay_s, t.interval_s) for path in paths]
    sums = [[np.zeros(1, complex), np.zeros(1, complex)] for _ in paths]
    for k, pole in enumerate(t.poles):
        mode = reciprocal(1 - np.exp(-np.asarray(pole) * t.interval_s) * z_1)
        for path, (_, rest), both in zip(paths, split, sums, strict=True):
            assert path.shares is not None
            for i, one in enumerate(gammas(pole, t.interval_s, rest)):
                both[i] = _into(np.add, both[i], path.gain * path.shares[k] * one * mode)
    total = np.zeros(1, complex)
    for (whole, _), (new, old) in zip(split, sums, strict=True):
        total = total + _power(s * t.interval_s, whole + 1) * (new + old * z_1)
    return total


def _power(x: Complexes, n: float | Floats) -> Complexes:
    """e^{−nx}; of loops that share a line of x there are few n."""
    if np.ndim(n) == 0 or (x.ndim > 1 and len(x) > 1):
        return late(x, n)
    few, which = np.unique(n, return_inverse=True)
    return late(x, few[:, None])[np.ravel(which)]


def late(s: Complexes, delay_s: float | Floats) -> Complexes:
    """e^{−s·delay}. On the imaginary axis by the tangent of half of the angle: numpy's takes a
    thirtieth of the time of its exponential of complex numbers."""
    if s.real.any():
        return np.asarray(np.exp(-s * delay_s), complex)
    half = np.tan(0.5 * s.imag * delay_s)
    size = 1 / (1 + half**2)
    found = np.empty(half.shape, complex)
    np.subtract(2 * size, 1, out=found.real)
    np.multiply(-2 * half, size, out=found.imag)
    return found


def reciprocal(z: Complexes) -> Complexes:
    """1/z, part by part: numpy's division of complex numbers takes five times as long."""
    found = np.conjugate(z)
    found *= 1 / (z.real**2 + z.imag**2)
    return np.asarray(found, complex)


def _fraction(top: Any, decay: Any, constant: Any, z_1: Complexes) -> Complexes:
    """m/(1 − d·z⁻¹) + k, in the same way."""
    re, im = 1 - decay * np.ascontiguousarray(z_1.real), decay * np.ascontiguousarray(z_1.imag)
    size = re**2
    size += im**2
    np.divide(top, size, out=size)
    found = np.empty(size.shape, complex)
    re *= size
    np.add(re, constant, out=found.real)
    np.multiply(im, size, out=found.imag)
    return found


def _into(of: np.ufunc, total: Complexes, other: Any) -> Complexes:
    """total ∘ other, in the place of `total` where that has room for it."""
    shape, most = np.shape(other), total.shape
    ends = zip(reversed(shape), reversed(most), strict=False)
    if len(shape) <= len(most) and all(n in (1, m) for n, m in ends):
        of(total, other, out=total)
        return total
    return np.asarray(of(total, other), complex)


def law(t: Terms, s: Complexes) -> Complexes:
    """D(e^{sT})."""
    assert t.interval_s is not None
    return _law(t, late(s, t.interval_s))


def _law(t: Terms, z_1: Complexes) -> Complexes:
    below = _series(t.denominator, z_1)
    return _into(np.multiply, reciprocal(below), _series(t.numerator, z_1))


def inner(t: Terms, s: Complexes) -> Complexes:
    """d·G, the loop that the part of the law that acts at once closes."""
    return np.asarray(t.direct * plant(t, s), complex)


def outer(t: Terms, s: Complexes) -> Complexes:
    """L_s at the sampler; the whole loop where nothing acts at once."""
    assert t.interval_s is not None
    z_1 = late(s, t.interval_s)
    seen = _pulse(t, s, z_1)
    if t.hybrid:
        seen = seen - _folded(t, s, z_1)
    return _into(np.multiply, _law(t, z_1), seen)


def folds(t: Terms, s: Complexes) -> tuple[int, ...]:
    """Which folds matter to a line of s on the imaginary axis, besides the sine's own frequency:
    those that are more than `NOTHING` of what the sampler sees, at one of `PROBES` places."""
    assert t.interval_s is not None
    every = _folds(t)
    at = np.linspace(0, s.shape[-1] - 1, PROBES).astype(int)
    s = s[..., at]
    size = NOTHING * np.abs(pulse(t, s))
    rise = 1 - late(s, t.interval_s)
    delays = [late(s, path.delay_s) for path in t.paths]
    return tuple(m for m in every if np.any(np.abs(_fold(t, s, m, rise, delays)) > size))


def _folds(t: Terms) -> tuple[int, ...]:
    if t.folds is not None:
        return t.folds
    most = FOLDS.get(min(len(path.poles) for path in t.paths), 2)
    most += math.ceil(float(np.max(np.asarray(t.interval_s) / t.shortest_s)))
    return tuple(fold for fold in range(-most, most + 1) if fold)


def _folded(t: Terms, s: Complexes, z_1: Complexes) -> Complexes:
    """Σ H·d·G²/(1 + d·G) over all that folds to s."""
    assert t.interval_s is not None
    delays = [late(s, path.delay_s) for path in t.paths]
    rise = 1 - z_1
    g = _plant(t, s, delays)
    total = reciprocal(1 + t.direct * g)
    for factor in (g, g, _held(s * t.interval_s, rise) * t.direct):
        total = _into(np.multiply, total, factor)
    for fold in _folds(t):
        total = _into(np.add, total, _fold(t, s, fold, rise, delays))
    return total


def _fold(
    t: Terms, s: Complexes, fold: int, rise: Complexes, delays: Sequence[Complexes]
) -> Complexes:
    """H·d·G²/(1 + d·G) at s + fold·2πj/T, with 1 − e^{−sT} and e^{−sR} of each path: e^{−sT} is
    the same at each, and a fold turns e^{−sR} of a whole line alike."""
    assert t.interval_s is not None
    turn = 2j * math.pi * fold / np.asarray(t.interval_s)
    there = s + turn
    turned = [one * np.exp(-turn * path.delay_s) for one, path in zip(delays, t.paths, strict=True)]
    g = _plant(t, there, turned)
    found = reciprocal(_into(np.multiply, 1 + t.direct * g, there))
    for factor in (g, g, rise, t.direct / t.interval_s):
        found = _into(np.multiply, found, factor)
    return found


def hold(t: Terms, s: Complexes) -> Complexes:
    """H/T = (1 − e^{−sT})/(sT)."""
    assert t.interval_s is not None
    return _held(s * t.interval_s, 1 - late(s, t.interval_s))


def _held(x: Complexes, rise: Complexes) -> Complexes:
    """(1 − e^{−x})/x."""
    with np.errstate(all="ignore"):
        small = np.abs(x) < 1e-4
        return np.asarray(np.where(small, 1 - x * (0.5 - x / 6), reciprocal(x) * rise), complex)


def sensitivity(t: Terms, s: Complexes) -> Complexes:
    """What a sine on the queue becomes in the closed loop: 1/(1 + L). With both ways, its
    component at the sine's own frequency."""
    if not t.hybrid:
        return np.asarray(1 / (1 + loop(t, s)), complex)
    g = plant(t, s)
    at_once = 1 / (1 + t.direct * g)
    held = hold(t, s) * g * at_once * law(t, s)
    return np.asarray(at_once * (1 - held / (1 + outer(t, s))), complex)


def loop(t: Terms, s: Complexes) -> Complexes:
    """L, whose 1 + L is zero at the roots of the closed loop.

    With both ways, 1 + L = (1 + d·G)(1 + L_s): where nothing is folded that is
    L = (d + D·H/T)·G.
    """
    if t.interval_s is None:
        return inner(t, s)
    return outer(t, s) if not t.hybrid else both(t, s, outer(t, s))


def both(t: Terms, s: Complexes, at_sampler: Complexes) -> Complexes:
    """L of a law that acts in both ways, by its L_s."""
    at_once = inner(t, s)
    return at_once + (1 + at_once) * at_sampler


def highest_rad_s(t: Terms) -> float | Floats:
    """Where a loop has shown itself: half the sampling frequency, or where it has long been
    quiet."""
    quiet = QUIET / np.asarray(t.shortest_s)
    if t.interval_s is None:
        return _plain(quiet)
    return _plain(np.minimum(quiet, math.pi / np.asarray(t.interval_s)))


def residues(t: Terms) -> list[tuple[Number, Number]]:
    """(r, p) of the plant's partial fractions Σ r/(s + p)."""
    if t.shares is not None:
        return [(t.gain * one, pole) for one, pole in zip(t.shares, t.poles, strict=True)]
    found: list[tuple[Number, Number]] = []
    for i, pole in enumerate(t.poles):
        residue: Any = t.gain
        for j, other in enumerate(t.poles):
            if i != j:
                residue = residue / (other - pole)
        found.append((residue, pole))
    return found


def whole_intervals(
    delay_s: float | Floats, interval_s: float | Floats
) -> tuple[float | Floats, float | Floats]:
    """n and δ of a delay nT + δ."""
    whole = np.floor(np.asarray(delay_s) / interval_s + 1e-9)
    return _plain(whole), _plain(np.maximum(delay_s - whole * interval_s, 0.0))


def gammas(
    pole: Number, interval_s: float | Floats, rest_s: float | Floats
) -> tuple[Number, Number]:
    """What a mode gains in an interval from the input that comes in it, and from the one before."""
    left = np.asarray(interval_s) - rest_s
    new = -np.expm1(-pole * left) / pole
    old = np.exp(-pole * left) * -np.expm1(-pole * np.asarray(rest_s)) / pole
    return new, old


def apart(poles: tuple[float | Floats, ...]) -> tuple[float | Floats, ...]:
    """Poles that are not equal, as partial fractions need them."""
    held: list[float | Floats] = []
    for pole in poles:
        moved = np.asarray(pole, float)
        for _ in poles:
            near = np.zeros_like(moved, bool)
            for other in held:
                near = near | (np.abs(moved - other) < APART * moved)
            if near.any():
                moved = np.where(near, moved * (1 + 2 * APART), moved)
        held.append(_plain(moved))
    return tuple(held)


def _series(coefficients: Sequence[float | Floats], z_1: Complexes) -> Complexes:
    """Σ cᵢ z⁻ⁱ."""
    total = np.zeros_like(z_1)
    for c in reversed(coefficients):
        total = total * z_1 + c
    return total


def _plain(x: Floats) -> float | Floats:
    return float(x) if x.ndim == 0 else x
