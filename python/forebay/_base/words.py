"""Quantities, laws and proposals in words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from forebay._base import quantities


def quantity(text: str) -> str:
    """ "30Mbit/s" as "30 Mbit/s", "800p" as "800 packets", "0.00002" as "2e-05"."""
    match = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([A-Za-zµ/]*)", text)
    if not match:
        return text
    number, unit = match.groups()
    if "." in number:
        number = repr(float(number))
    # A space at which no line breaks.
    return f"{number}\N{NO-BREAK SPACE}{quantities.NAMES.get(unit, unit)}".rstrip()


def value(found: object) -> str:
    """A parameter, as `quantity` writes texts."""
    return quantity(quantities.plain(found))


def parameters(params: Iterable[tuple[str, object]]) -> str:
    """A law's parameters with their values: "a = 1.8e-05, target = 75 packets"."""
    return ", ".join(f"{name} = {value(found)}" for name, found in params) or "none"


def time(seconds: float) -> str:
    """ "15 ms" for 0.015."""
    return quantity(quantities.time(seconds))


def rate(bps: float) -> str:
    """ "15 Mbit/s" for 15e6."""
    return quantity(quantities.rate(bps))


def buffer(pkts: int | None, size: int | None) -> str:
    """A buffer that is bounded in packets or in bytes."""
    return quantity(quantities.buffer(pkts, size))


def delay(bounds_s: tuple[float, float]) -> str:
    """Least and most, which may be the same: "20 ms to 200 ms"."""
    return " to ".join(time(one) for one in dict.fromkeys(bounds_s))


def in_figures(value: float, count: int = 3) -> str:
    """Return a number in so many significant figures, or in all of a larger whole part.

    Never with a positive power of ten: "2153" for 2153.4, and not "2.15e+03".
    """
    text = f"{value:.{count}g}"
    return f"{value:.0f}" if "e+" in text else text


def short_time(seconds: float) -> str:
    """A time of up to some seconds in the unit that reads best: "0.319 us", "4.85 ms", "1.2 s"."""
    for unit, scale in [("s", 1.0), ("ms", 1e3)]:
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a row, "a, b and c"; the last of many are counted."""
    if len(names) > most:
        names = [*names[:most], f"{len(names) - most} more"]
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def hint(name: str, known: Iterable[str], most: int = 1) -> str:
    """The end of a message, with a space before it: the names nearest to this one, if any is."""
    near = get_close_matches(name, list(known), most)
    named = " or ".join(f'"{one}"' for one in near)
    return f" (did you mean {named}?)" if near else ""


#: A word of a command line, with its quotes.
WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")


def broken_command(line: str, width: int) -> list[str]:
    """Return a command in lines of at most a width, which a shell reads as one command.

    Parameters
    ----------
    line : str
        A command line, or a comment that begins with "#".
    width : int
        Largest length of a line. A longer word is not broken.

    Returns
    -------
    list of str
        The lines; all but the last of a command end with a backslash.
    """
    if line.startswith("#"):
        return textwrap.wrap(line, width, subsequent_indent="#   ", break_long_words=False)
    units: list[str] = []
    is_option = False
    for word in WORD.findall(line):
        # An option and its value stay together.
        if is_option and not word.startswith("-"):
            units[-1] += f" {word}"
        else:
            units.append(word)
        is_option = word.startswith("--")
    lines, current = [], units[0]
    for unit in units[1:]:
        if len(current) + 1 + len(unit) > width - 2:
            lines.append(f"{current} \\")
            current = f"    {unit}"
        else:
            current += f" {unit}"
    return [*lines, current]
