"""Sweeps as people think of them: ranges with steps, and samples over ranges.

    [sweep]
    "bottleneck.rate" = "1..100Mbit/s log 7"   # seven rates, each the same factor apart
    "traffic.0.rtt"   = "20..300ms lin 4"      # four, each the same distance apart

    [sweep]
    points            = "sobol 256 seed 1"     # or "latin 100"
    "bottleneck.rate" = "1..100Mbit/s log"     # sampled: a range without a number of steps

Lists in the same sweep are crossed with either. The simulator's reader sees lists alone.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forebay._native import ScenarioError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RANGE = re.compile(
    r"\s*([\d.]+?(?:e-?\d+)?)\s*([A-Za-z/%]*)\s*\.\.\s*([\d.]+(?:e-?\d+)?)"
    r"\s*((?!lin\b|log\b)[A-Za-z/%]*)"
    r"(?:\s+(lin|log))?(?:\s+(\d+))?\s*"
)
SAMPLE = re.compile(r"\s*(sobol|latin)\s+(\d+)(?:\s+seed\s+(\d+))?\s*")
SHAPE = 'a list, or a range such as "1..100Mbit/s log 7" or "20..300ms lin 4"'
#: Key of `[sweep]` that says how ranges without steps are sampled.
POINTS = "points"
#: Most steps of a range, and most points of a sample.
MOST_STEPS, MOST_SAMPLES = 10_000, 2**20
#: Units whose values are whole.
WHOLE = ("", "p", "B")


@dataclass(frozen=True)
class Range:
    """Values from `low` to `high` in `unit`, as a line or a logarithm; `count` of them if given."""

    low: float
    high: float
    unit: str
    log: bool
    count: int | None
    whole: bool

    def at(self, share: float, figures: int) -> object:
        """The value at a share of the way from 0 to 1, as a scenario writes it."""
        if share <= 0 or share >= 1:
            value = self.low if share <= 0 else self.high
        elif self.log:
            value = self.low * (self.high / self.low) ** share
        else:
            value = self.low + (self.high - self.low) * share
        if self.whole:
            number: float = round(value)
        else:
            # The ends stay as they were written.
            number = value if share in (0, 1) else float(f"{value:.{figures}g}")
        text = f"{number:.12g}"
        if self.unit:
            return f"{text}{self.unit}"
        return int(number) if self.whole else number

    def steps(self) -> list[object]:
        """Its values, each once."""
        count = self.count or 1
        shares = [i / max(count - 1, 1) for i in range(count)]
        return list(dict.fromkeys(self.at(share, 4) for share in shares))


@dataclass(frozen=True)
class Design:
    """The points of a sweep, made when they are asked for: there may be a million.

    grid: keys that vary together, and the rows of their values. sampled: ranges of a sample.
    """

    grid: list[tuple[list[str], list[tuple[object, ...]]]]
    sampled: list[tuple[str, Range]] = field(default_factory=list)
    method: str = ""
    samples: int = 1
    seed: int = 1

    def __len__(self) -> int:
        return self.samples * math.prod(len(rows) for _, rows in self.grid)

    @property
    def keys(self) -> list[str]:
        """Everything that is set at a point."""
        return [key for keys, _ in self.grid for key in keys] + [key for key, _ in self.sampled]

    @cached_property
    def _sample(self) -> NDArray[np.float64]:
        from scipy.stats import qmc  # half a second to load

        make = qmc.Sobol if self.method == "sobol" else qmc.LatinHypercube
        found: NDArray[np.float64] = make(len(self.sampled), seed=self.seed).random(self.samples)
        return found

    def point(self, index: int) -> list[object]:
        """The values of a point by its number, in the order of `keys`; the last key is fastest."""
        values: list[object] = []
        if self.sampled:
            index, row = divmod(index, self.samples)
            shares = self._sample[row]
            values = [one.at(float(u), 6) for (_, one), u in zip(self.sampled, shares, strict=True)]
        for _, rows in reversed(self.grid):
            index, place = divmod(index, len(rows))
            values = [*rows[place], *values]
        return values

    def points(self, first: int, last: int) -> Iterator[list[object]]:
        """Those from `first` up to `last`."""
        return (self.point(index) for index in range(first, min(last, len(self))))


def design(sweep: Mapping[str, Any], name: str) -> Design:
    """The points of a `[sweep]`. Raises `ScenarioError`; `name` is its file there."""
    grid: list[tuple[list[str], list[tuple[object, ...]]]] = []
    sampled = []
    for key, value in sweep.items():
        keys = [one.strip() for one in key.split(",")]
        if key == POINTS:
            continue
        if isinstance(value, str):
            one = _range(f"{name}: sweep.{key}", value)
            if one.count is None:
                sampled += [(key, one)]
            else:
                grid.append((keys, [(step,) for step in one.steps()]))
        elif isinstance(value, list) and value:
            rows = [tuple(row) if len(keys) > 1 else (row,) for row in value]
            grid.append((keys, rows))
        else:
            raise ScenarioError(f"{name}: sweep.{key}: found {value!r}, allowed: {SHAPE}")
    if POINTS not in sweep:
        if sampled:
            key, _ = sampled[0]
            raise ScenarioError(
                f'{name}: sweep.{key}: found "{sweep[key]}", allowed: a number of steps behind it, '
                f'such as "… log 7", or {POINTS} = "sobol 256" beside it'
            )
        return Design(grid)
    found = sweep[POINTS]
    match = SAMPLE.fullmatch(found) if isinstance(found, str) else None
    where = f'{name}: sweep.{POINTS}: found "{found}"'
    if match is None:
        raise ScenarioError(f'{where}, allowed: such as "sobol 256", "latin 100 seed 2"')
    method, count, seed = match[1], int(match[2]), int(match[3] or 1)
    if not 1 <= count <= MOST_SAMPLES or (method == "sobol" and count & (count - 1)):
        allowed = f"1 to {MOST_SAMPLES}, a power of 2 for sobol"
        raise ScenarioError(f"{where}, allowed: {allowed}")
    if not sampled:
        raise ScenarioError(f'{where}, allowed: beside a range such as "1..100Mbit/s log"')
    return Design(grid, sampled, method, count, seed)


def _range(where: str, text: str) -> Range:
    match = RANGE.fullmatch(text)
    if match is None:
        raise ScenarioError(f'{where}: found "{text}", allowed: {SHAPE}')
    low, low_unit, high, unit, form, count = match.groups()
    from forebay.run.axes import SCALES

    try:
        a, b = float(low), float(high)
    except ValueError:
        raise ScenarioError(f'{where}: found "{text}", allowed: {SHAPE}') from None
    if low_unit and low_unit != unit:
        base = SCALES.get(low_unit), SCALES.get(unit)
        if base[0] is None or base[1] is None or base[0][0] != base[1][0]:
            raise ScenarioError(f'{where}: found "{text}", allowed: two ends of one kind')
        a = float(f"{a * base[0][1] / base[1][1]:.12g}")
    if not a < b:
        raise ScenarioError(f'{where}: found "{text}", which is empty, allowed: from less to more')
    if form == "log" and a <= 0:
        raise ScenarioError(f'{where}: found "{text}", allowed: above zero for log')
    if count is not None and not 2 <= int(count) <= MOST_STEPS:
        raise ScenarioError(f'{where}: found "{text}", allowed: 2 to {MOST_STEPS} steps')
    whole = unit in WHOLE and not any("." in one or "e" in one for one in (low, high))
    return Range(a, b, unit, form == "log", int(count) if count else None, whole)


def expanded(text: str, name: str) -> str:
    """A scenario whose sweep has lists alone; the same text where it has nothing else."""
    sweep = sweep_of(text)
    if not any(isinstance(value, str) for value in sweep.values()):
        return text
    found = design(sweep, name)
    if len(found) > MOST_STEPS:
        raise ScenarioError(
            f"{name}: sweep: found {len(found):,} points, allowed: at most {MOST_STEPS:,}; "
            "forebay study has no such bound"
        )
    lists: dict[str, list[Any]] = {", ".join(keys): _values(rows) for keys, rows in found.grid}
    if found.sampled:
        keys = [key for key, _ in found.sampled]
        alone = Design([], found.sampled, found.method, found.samples, found.seed)
        rows = [tuple(values) for values in alone.points(0, len(alone))]
        lists[", ".join(keys)] = _values(rows)
    return with_sweep(text, lists)


def _values(rows: Sequence[tuple[object, ...]]) -> list[object]:
    return [row[0] if len(row) == 1 else list(row) for row in rows]


def with_sweep(text: str, sweep: Mapping[str, Sequence[object]]) -> str:
    """The scenario with another sweep; other lines stay where they are, since errors name them."""
    import tomlkit

    document = tomlkit.parse(text)
    table = document.get("sweep")
    if table is None:
        table = document["sweep"] = tomlkit.table()
    for key in list(table):
        if key not in sweep:
            table.remove(key)
    for key, values in sweep.items():
        table[key] = list(values)
    return tomlkit.dumps(document)


def with_points(text: str, points: str) -> str:
    """The scenario with another sample of the same ranges, such as "sobol 8"."""
    import tomlkit

    document = tomlkit.parse(text)
    if "sweep" not in document:
        document["sweep"] = tomlkit.table()
    document["sweep"][POINTS] = points
    return tomlkit.dumps(document)


def sweep_of(text: str) -> dict[str, Any]:
    """The `[sweep]` of a scenario; empty where there is none, or where the text is no TOML, which
    the reader says better."""
    try:
        found = tomllib.loads(text).get("sweep", {})
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
    return dict(_flat(found, "")) if isinstance(found, dict) else {}


def _flat(table: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """Keys without quotes, which TOML nests, as the paths that they were written as."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
