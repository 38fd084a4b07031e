"""Quantities in the notation of scenarios, and types with a unit for laws written in Python.

Numbers are in base units (seconds, bit/s, packets, bytes); `time(0.015)` returns "15ms".
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from forebay._base.errors import ParameterError
from forebay._native import number_and_unit

if TYPE_CHECKING:
    from forebay._native import ParamInfo


@dataclass(frozen=True)
class Unit:
    """The base unit of a number.

    Attributes
    ----------
    name : str
        "s", "p" (packets), "bit/s" or "B" (bytes).
    """

    name: str


@dataclass(frozen=True)
class Range:
    """The range of a parameter, in its unit.

    Attributes
    ----------
    low : float
        The smallest value.
    high : float
        The largest value.
    """

    low: float
    high: float


#: Types of a law's parameters. Where a scenario has "10ms", "40p", "2Mbit/s" and "1500B", the law
#: gets 0.01, 40.0, 2000000 and 1500. `Annotated[Packets, Range(1, 500)]` adds a range.
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

#: Names of base units in words, where they differ from the symbol.
NAMES = {"p": "packets", "B": "bytes"}


def read(value: object) -> tuple[float, str] | None:
    """Return a number or a quantity such as "15Mbit/s" in its base unit, with that unit.

    Returns
    -------
    tuple[float, str] | None
        The number and "s", "bit/s", "packets", "bytes", "%", or "" for a plain number; None if
        `value` is not a quantity.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value), ""
    parsed = number_and_unit(value) if isinstance(value, str) else None
    return None if parsed is None else (parsed[0], NAMES.get(parsed[1], parsed[1]))


#: The separator between the ends of a range.
DOTS = ".."


def range_ends(key: str, text: str) -> tuple[str, str]:
    """Return the two ends of a range, such as "20ms" and "500ms" for "20..500ms".

    The first end may have its own unit. A single value is both ends.

    Parameters
    ----------
    key : str
        Name of the value in errors.
    text : str
        The range.

    Raises
    ------
    ScenarioError
        If an end is missing.
    """
    low, dots, high = text.partition(DOTS)
    if not dots:
        return text, text
    if not low or not high:
        raise ParameterError(key, text, "a value, or a range such as 10..400")
    unit = high.lstrip("0123456789.")
    return (low if low[-1].isalpha() else low + unit), high


def finite(value: Any) -> Any:
    """Return a value for JSON: None replaces NaN and infinity, also in lists and tables."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def unit_for(base: str, greatest: float) -> tuple[str, float]:
    """Return the largest unit in which a value is at least 1, and its size in the base unit.

    Parameters
    ----------
    base : str
        The base unit, "s" or "bit/s"; any other is returned with size 1.
    greatest : float
        The value in the base unit.
    """
    units = {"s": (TIMES, 1e-9), "bit/s": (RATES, 1.0)}
    names, scale = units.get(base, ([], 1.0))
    fits = ((name, size * scale) for name, size in names)
    return next((unit for unit in fits if greatest >= unit[1] * (1 - 1e-9)), (base, 1.0))


def time(seconds: float) -> str:
    """Return a time such as "15ms" for 0.015, to the nanosecond."""
    return _in_largest(round(1e9 * seconds), TIMES)


def rate(bps: float) -> str:
    """Return a rate such as "15Mbit/s" for 15e6, to the bit per second."""
    return _in_largest(round(bps), RATES)


def size(count: int) -> str:
    """Return a size such as "500B" for 500 bytes."""
    return f"{count}B"


def packets(count: float) -> str:
    """Return a number of packets such as "50p"."""
    return f"{plain(count)}p"


def buffer(pkts: int | None, count: int | None) -> str:
    """Return the size of a buffer as text, such as "100p" or "64kB".

    Parameters
    ----------
    pkts : int | None
        The most packets that it holds; None if its bound is in bytes.
    count : int | None
        The most bytes that it holds; None if its bound is in packets.
    """
    return size(count or 0) if pkts is None else packets(pkts)


def plain(value: object) -> str:
    """Return a boolean, a number or a text as `--set KEY=` takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def toml(value: object) -> str:
    """Return a value as `--set KEY=` takes it; lists and tables are TOML."""
    return _in_toml(value) if isinstance(value, Mapping | list | tuple) else plain(value)


def _in_toml(value: object) -> str:
    """Return a value of a list or a table as TOML."""
    if isinstance(value, Mapping):
        fields = (f"{json.dumps(key)} = {_in_toml(field)}" for key, field in value.items())
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_in_toml, value))}]"
    # Texts, numbers and booleans are the same in JSON and TOML.
    return json.dumps(value)


def listed(value: object) -> list[Any]:
    """Return a list for a parameter that takes one object or several.

    A text, a path, a table and a class count as one object. None is an empty list.
    """
    if value is None:
        return []
    if isinstance(value, str | os.PathLike | Mapping | type) or not isinstance(value, Iterable):
        return [value]
    return list(value)


def set_pairs(overrides: Overrides) -> list[tuple[str, str]]:
    """Return overrides as pairs of key and value, as the reader of scenarios takes them.

    Raises
    ------
    ParameterError
        If a text is not of the form KEY=VALUE.
    """
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
    """Return a count in the largest unit in which it is at least 1."""
    fits = (unit for unit in units if count >= unit[1])
    name, scale = next(fits, units[0] if count == 0 else units[-1])
    return f"{plain(count / scale)}{name}"


def parameter_range(param: ParamInfo) -> str:
    """Return the range of a parameter in words.

    A set-point is a queue in packets or a time; if its default is a time, the words say so.
    """
    unit = NAMES.get(param["unit"], param["unit"])
    text = interval(param["min"], param["max"], unit)
    default = str(param["default_text"] or "")
    is_time = param["unit"] == "p" and (parts := read(default)) is not None and parts[1] == "s"
    return f"a time, or {text}" if is_time and text else text


def interval(low: float | None, high: float | None, unit: str) -> str:
    """Return a range in words, such as "from 1 s", "up to 2" or "0 to 5 packets".

    Parameters
    ----------
    low : float | None
        The smallest value; None if there is none.
    high : float | None
        The largest value; None if there is none.
    unit : str
        Unit of both; empty for plain numbers.

    Returns
    -------
    str
        The words; empty if there is neither end.
    """
    if high is None:
        if low is None:
            return ""
        return f"from {_bound(low)} {unit}".rstrip()
    if low is None:
        return f"up to {_bound(high)} {unit}".rstrip()
    return f"{_bound(low)} to {_bound(high)} {unit}".rstrip()


def _bound(bound: float) -> str:
    """Return the end of a range, with a power of ten as "1e9" or "1e-6"."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{bound:g}")
