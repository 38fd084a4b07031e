"""The axes of a sweep: keys that vary together, and their values.

The reader of scenarios in Rust also calls `draw` for samples of the ranges of a sweep, since SciPy
has the sequences (docs/contribute/decisions/041).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay._base import quantities

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Axis:
    """A line of `[sweep]`: keys that vary together.

    Attributes
    ----------
    keys : list[str]
        The keys, as the scenario writes them.
    values : list[tuple[object, ...]]
        The values of the keys, in the order of the axis; numeric values are in ascending order.
    numbers : list[float]
        The values of the first key in `unit`; empty if a value is not a number.
    unit : str
        The unit of `numbers`; empty for plain numbers.
    texts : list[str]
        Each value in words.
    places : dict[int, int]
        The index into `values` of each point, by the index of the point.
    """

    keys: list[str]
    values: list[tuple[object, ...]]
    numbers: list[float]
    unit: str
    texts: list[str]
    places: dict[int, int]

    @property
    def one(self) -> bool:
        """True if a number describes each value completely.

        That is so for an axis of one key, and for one of several keys with equal values.
        """
        texts = [set(map(quantities.toml, value)) for value in self.values]
        return bool(self.numbers) and all(len(distinct_texts) == 1 for distinct_texts in texts)

    @property
    def short(self) -> list[str]:
        """Each value in words, without the unit if a number describes the value completely."""
        return [f"{number:.9g}" for number in self.numbers] if self.one else self.texts

    def value_at(self, point: int) -> str:
        """Return the value of a point, by its index, in the form of `short`."""
        return self.short[self.places[point]]


def sweep_axes(points: Mapping[int, Mapping[str, object]]) -> list[Axis]:
    """Return the axes of points.

    Keys vary together if each value of one always occurs with the same value of the other. A key
    with a single value is not an axis.

    Parameters
    ----------
    points : Mapping[int, Mapping[str, object]]
        The settings of each point by key.
    """
    if not points:
        return []
    keys = list(next(iter(points.values())))
    columns = {key: [json.dumps(settings[key]) for settings in points.values()] for key in keys}
    groups: list[list[str]] = []
    for key in keys:
        if len(set(columns[key])) == 1:
            continue
        together = next((g for g in groups if _bijective(columns[g[0]], columns[key])), None)
        if together is None:
            groups.append([key])
        else:
            together.append(key)
    return [_axis(group, points) for group in groups]


def _bijective(a: Sequence[str], b: Sequence[str]) -> bool:
    """Return True if each value of one column always occurs with the same value of the other."""
    pairs = set(zip(a, b, strict=True))
    return len(pairs) == len(set(a)) == len(set(b))


def _axis(keys: list[str], points: Mapping[int, Mapping[str, object]]) -> Axis:
    """Return the axis of keys that vary together."""
    of_point = {i: tuple(settings[key] for key in keys) for i, settings in points.items()}
    # JSON texts stand for values that are lists, which cannot be keys.
    values = list({json.dumps(value): value for value in of_point.values()}.values())
    parsed = [quantities.read(value[0]) for value in values]
    pairs = [pair for pair in parsed if pair is not None]
    base = {pair[1] for pair in pairs}
    unit = ""
    different = {number for number, _ in pairs}
    if len(different) == len(values) and len(base) == 1:
        order = sorted(range(len(values)), key=lambda i: pairs[i][0])
        values = [values[i] for i in order]
        unit, scale = quantities.unit_for(base.pop(), max(abs(n) for n, _ in pairs))
        plain = [float(f"{pairs[i][0] / scale:.9g}") for i in order]
    else:
        plain = []
    place = {json.dumps(value): i for i, value in enumerate(values)}
    return Axis(
        keys,
        values,
        plain,
        unit,
        [" / ".join(dict.fromkeys(quantities.toml(item) for item in value)) for value in values],
        {i: place[json.dumps(value)] for i, value in of_point.items()},
    )


def sorted_texts(texts: Sequence[str]) -> list[str] | None:
    """Return distinct texts in the order of their quantities; None if their kinds differ."""
    different = list(dict.fromkeys(texts))
    parsed = [quantities.read(text) for text in different]
    quantities_of_texts = [quantity for quantity in parsed if quantity is not None]
    if (
        len(quantities_of_texts) < len(different)
        or len({base for _, base in quantities_of_texts}) > 1
    ):
        return None
    return [
        different[i] for i in sorted(range(len(different)), key=lambda i: quantities_of_texts[i][0])
    ]


def draw(method: str, points: int, columns: int, seed: int) -> NDArray[np.float64]:
    """Return samples of a sweep's ranges.

    R (array of shape (points, columns)): Positions within the ranges, from 0 to 1.

    Parameters
    ----------
    method : str
        "sobol" for a scrambled Sobol sequence, whose first points do not depend on the number of
        points, or "latin" for a Latin hypercube.
    points : int
        Number of points.
    columns : int
        Number of ranges.
    seed : int
        Seed of the sequence.
    """
    from scipy.stats import qmc  # half a second to load

    make = qmc.Sobol if method == "sobol" else qmc.LatinHypercube
    shares: NDArray[np.float64] = make(columns, seed=seed).random(points)
    return shares
