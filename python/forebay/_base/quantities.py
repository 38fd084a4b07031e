"""Quantities as a scenario writes them, from numbers in base units; and types that carry a unit,
for the parameters of laws written in Python."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from forebay._base.errors import ParameterError, ScenarioError
from forebay._native import number_and_unit

if TYPE_CHECKING:
    from forebay._native import ParamInfo


@dataclass(frozen=True)
class Unit:
    """The unit in which a number is held: "s", "p" (packets), "bit/s" or "B" (bytes)."""

    name: str


@dataclass(frozen=True)
class Range:
    """Least and most that a parameter may be, in its unit."""

    low: float
    high: float


#: Types of parameters. A scenario writes "10ms", "40p", "2Mbit/s" and "1500B" for them; the law
#: gets 0.01, 40.0, 2000000 and 1500. `Annotated[Packets, Range(1, 500)]` bounds one.
Seconds = Annotated[float, Unit("s")]
Packets = Annotated[float, Unit("p")]
BitsPerSecond = Annotated[int, Unit("bit/s")]
Bytes = Annotated[int, Unit("B")]
Probability = Annotated[float, Range(0, 1)]

TIMES = [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)]
RATES = [
    ("Tbit/s", 10**12),
    ("Gbit/s", 10**9),
    ("Mbit/s", 10**6),
    ("kbit/s", 10**3),
    ("bit/s", 1),
]


#: Keys to set on top of a scenario, with their values: a table, "KEY=VALUE" texts, or pairs.
Overrides = Mapping[str, Any] | str | Sequence[str] | Sequence[tuple[str, Any]]

#: Base units that have another name in words.
NAMES = {"p": "packets", "B": "bytes"}


def read(value: object) -> tuple[float, str] | None:
    """A number or a quantity such as "15Mbit/s" in its base unit ("s", "bit/s", "packets", "bytes",
    "%", or empty for a plain number), and that unit; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value), ""
    found = number_and_unit(value) if isinstance(value, str) else None
    return None if found is None else (found[0], NAMES.get(found[1], found[1]))


#: Between the ends of a range.
DOTS = ".."


def range_ends(key: str, text: str) -> tuple[str, str]:
    """ "20..500ms" as "20ms" and "500ms"; the first end may have its own unit. One value is both.

    Raises `ScenarioError` that names `key`.
    """
    low, dots, high = text.partition(DOTS)
    if not dots:
        return text, text
    if not low or not high:
        raise ScenarioError(
            f'{key}: "{text}" is not valid; expected a value, or a range such as 10..400'
        )
    unit = high.lstrip("0123456789.")
    return (low if low[-1].isalpha() else low + unit), high


def finite(value: Any) -> Any:
    """A value for JSON, which knows no NaN and no infinity: None in their place, also in lists and
    tables."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return value


def unit_for(base: str, greatest: float) -> tuple[str, float]:
    """The unit in which the greatest value is at least 1, and its size in the base unit."""
    units = {"s": (TIMES, 1e-9), "bit/s": (RATES, 1.0)}
    names, scale = units.get(base, ([], 1.0))
    fits = ((name, size * scale) for name, size in names)
    return next((one for one in fits if greatest >= one[1] * (1 - 1e-9)), (base, 1.0))


def time(seconds: float) -> str:
    """ "15ms" for 0.015, to the nanosecond."""
    return _in_largest(round(1e9 * seconds), TIMES)


def rate(bps: float) -> str:
    """ "15Mbit/s" for 15e6, to the bit per second."""
    return _in_largest(round(bps), RATES)


def size(count: int) -> str:
    """ "500B" for 500 bytes."""
    return f"{count}B"


def packets(count: float) -> str:
    """ "50p" for 50 packets."""
    return f"{plain(count)}p"


def buffer(pkts: int | None, count: int | None) -> str:
    """A buffer that is bounded in packets, or else in bytes."""
    return size(count or 0) if pkts is None else packets(pkts)


def plain(value: object) -> str:
    """A flag, a number or a text as `--set KEY=` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def toml(value: object) -> str:
    """A value as `--set KEY=` takes it; lists and tables as in TOML."""
    return _in_toml(value) if isinstance(value, Mapping | list | tuple) else plain(value)


def _in_toml(value: object) -> str:
    if isinstance(value, Mapping):
        fields = (f"{json.dumps(key)} = {_in_toml(field)}" for key, field in value.items())
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_toml, value))}]"
    # What JSON writes of the others is TOML.
    return json.dumps(value)


def listed(value: object) -> list[Any]:
    """Return a list of what is one thing or several.

    A text, a path, a table and a class are one thing, so that a parameter that takes several names
    or scenarios also takes one. None is an empty list.
    """
    if value is None:
        return []
    if isinstance(value, str | os.PathLike | Mapping | type) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def set_pairs(overrides: Overrides) -> list[tuple[str, str]]:
    """Return keys and values as the reader of scenarios takes them; one text is one pair. Raises
    `ParameterError`."""
    if isinstance(overrides, str):
        return set_pairs([overrides])
    if isinstance(overrides, Mapping):
        return [(key, toml(value)) for key, value in overrides.items()]
    pairs = []
    for item in overrides:
        key, separator, value = (
            item.partition("=") if isinstance(item, str) else (item[0], "=", toml(item[1]))
        )
        if not separator or not key.strip():
            raise ParameterError("overrides", item, "KEY=VALUE")
        pairs.append((key.strip(), value.strip()))
    return pairs


def _in_largest(count: int, units: Sequence[tuple[str, int]]) -> str:
    """In the largest unit that leaves it at least 1."""
    fits = (unit for unit in units if count >= unit[1])
    name, scale = next(fits, units[0] if count == 0 else units[-1])
    return f"{plain(count / scale)}{name}"


def parameter_range(param: ParamInfo) -> str:
    """Return what a parameter's range allows, in words.

    A set-point is a queue in packets or a time: one whose default is a time says so.
    """
    unit = NAMES.get(param["unit"], param["unit"])
    text = interval(param["min"], param["max"], unit)
    default = str(param["default_text"] or "")
    is_time = param["unit"] == "p" and (parts := read(default)) is not None and parts[1] == "s"
    return f"a time, or {text}" if is_time and text else text


def interval(low: float | None, high: float | None, unit: str) -> str:
    """What a range allows, in words: "from 1 s", "up to 2", "0 to 5 packets"; empty without an
    end."""
    if low is None and high is None:
        return ""
    if high is None:
        return f"from {low:g} {unit}".rstrip()
    if low is None:
        return f"up to {high:g} {unit}".rstrip()
    return f"{low:g} to {high:g} {unit}".rstrip()
