"""Quantities as a scenario writes them, from numbers in base units; and types that carry a unit,
for the parameters of laws written in Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated


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
    return json.dumps(value) if isinstance(value, list | dict) else plain(value)


def _in_largest(count: int, units: Sequence[tuple[str, int]]) -> str:
    """In the largest unit that leaves it at least 1."""
    fits = (unit for unit in units if count >= unit[1])
    name, scale = next(fits, units[0] if count == 0 else units[-1])
    return f"{plain(count / scale)}{name}"


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
