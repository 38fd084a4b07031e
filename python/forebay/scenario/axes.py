"""The axes of a sweep: what varies together, as numbers with a unit where it has some.

The reader of scenarios in Rust also asks here for samples of the ranges of a sweep, since SciPy has
the sequences (docs/contribute/decisions/041).
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
    """One line of `[sweep]`: keys that vary together.

    keys: as the scenario writes them.
    values: what the keys are set to, in the order of the axis; by number where there are numbers.
    numbers: the value of the first key, in `unit`; empty where a value is no number.
    texts: each value in words.
    places: by index of the point, which of the values it has.
    """

    keys: list[str]
    values: list[tuple[object, ...]]
    numbers: list[float]
    unit: str
    texts: list[str]
    places: dict[int, int]

    @property
    def one(self) -> bool:
        """Whether a number says all of a value: of one key, or of several that are alike."""
        texts = [set(map(quantities.toml, value)) for value in self.values]
        return bool(self.numbers) and all(len(each) == 1 for each in texts)

    @property
    def short(self) -> list[str]:
        """Each value, without the unit where a number says all."""
        return [f"{number:.9g}" for number in self.numbers] if self.one else self.texts

    def value_at(self, point: int) -> str:
        """The value of a point, by its index, as `short` has it."""
        return self.short[self.places[point]]


def sweep_axes(points: Mapping[int, Mapping[str, object]]) -> list[Axis]:
    """The axes of points, given what each sets; keys with one value are no axis.

    Keys vary together where each value of one goes with one value of the other.
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
    pairs = set(zip(a, b, strict=True))
    return len(pairs) == len(set(a)) == len(set(b))


def _axis(keys: list[str], points: Mapping[int, Mapping[str, object]]) -> Axis:
    of_point = {i: tuple(settings[key] for key in keys) for i, settings in points.items()}
    # Lists cannot be keys.
    values = list({json.dumps(value): value for value in of_point.values()}.values())
    found = [quantities.read(value[0]) for value in values]
    numbers = [one for one in found if one is not None]
    base = {one[1] for one in numbers}
    unit = ""
    different = {one for one, _ in numbers}
    if len(different) == len(values) and len(base) == 1:
        order = sorted(range(len(values)), key=lambda i: numbers[i][0])
        values = [values[i] for i in order]
        unit, scale = quantities.unit_for(base.pop(), max(abs(n) for n, _ in numbers))
        plain = [float(f"{numbers[i][0] / scale:.9g}") for i in order]
    else:
        plain = []
    place = {json.dumps(value): i for i, value in enumerate(values)}
    return Axis(
        keys,
        values,
        plain,
        unit,
        [" / ".join(dict.fromkeys(quantities.toml(one) for one in value)) for value in values],
        {i: place[json.dumps(value)] for i, value in of_point.items()},
    )


def sorted_texts(texts: Sequence[str]) -> list[str] | None:
    """Different texts in the order of their quantities; None where not all are of one kind."""
    different = list(dict.fromkeys(texts))
    found = [quantities.read(text) for text in different]
    known = [one for one in found if one is not None]
    if len(known) < len(different) or len({base for _, base in known}) > 1:
        return None
    return [different[i] for i in sorted(range(len(different)), key=lambda i: known[i][0])]


def draw(method: str, points: int, columns: int, seed: int) -> NDArray[np.float64]:
    """A row for each point, with a share from 0 to 1 for each column.

    method: "sobol", a scrambled sequence whose first points are the same whatever their number, or
    "latin", a hypercube.
    """
    from scipy.stats import qmc  # half a second to load

    make = qmc.Sobol if method == "sobol" else qmc.LatinHypercube
    shares: NDArray[np.float64] = make(columns, seed=seed).random(points)
    return shares
