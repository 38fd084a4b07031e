"""Quantities, parameters and corrections of names in words."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches

from forebay._base import quantities
from forebay._base.errors import ParameterError


def quantity(text: str) -> str:
    """Return a quantity in words: "30 Mbit/s" for "30Mbit/s", "800 packets" for "800p".

    Other texts are returned unchanged. The space before the unit is one at which no line breaks.
    """
    match = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([A-Za-zµ/]*)", text)
    if not match:
        return text
    number, unit = match.groups()
    if "." in number:
        number = repr(float(number))
    return f"{number}\N{NO-BREAK SPACE}{quantities.NAMES.get(unit, unit)}".rstrip()


def value(setting: object) -> str:
    """Return the value of a parameter in words."""
    return quantity(quantities.plain(setting))


def parameters(params: Iterable[tuple[str, object]]) -> str:
    """Return a law's parameters with their values, such as "a = 1.8e-05, target = 75 packets"."""
    return ", ".join(f"{name} = {value(setting)}" for name, setting in params) or "none"


def time(seconds: float) -> str:
    """Return a time in words, such as "15 ms" for 0.015."""
    return quantity(quantities.time(seconds))


def rate(bps: float) -> str:
    """Return a rate in words, such as "15 Mbit/s" for 15e6."""
    return quantity(quantities.rate(bps))


def buffer(pkts: int | None, size: int | None) -> str:
    """Return the size of a buffer in words, such as "100 packets".

    Parameters
    ----------
    pkts : int | None
        The most packets that it holds; None if its bound is in bytes.
    size : int | None
        The most bytes that it holds; None if its bound is in packets.
    """
    return quantity(quantities.buffer(pkts, size))


def delay(bounds_s: tuple[float, float]) -> str:
    """Return a range of delays in words, such as "20 ms to 200 ms"; equal ends are one delay."""
    return " to ".join(time(delay_s) for delay_s in dict.fromkeys(bounds_s))


def in_figures(value: float, count: int = 3) -> str:
    """Return a number with so many significant figures, or with its whole integer part.

    A positive power of ten is never used: "2153" for 2153.4, and not "2.15e+03".

    Parameters
    ----------
    value : float
        The number.
    count : int, default 3
        Number of significant figures.
    """
    text = f"{value:.{count}g}"
    return f"{value:.0f}" if "e+" in text else text


def short_time(seconds: float) -> str:
    """Return a time of up to some seconds in its most readable unit, such as "4.85 ms"."""
    for unit, scale in [("s", 1.0), ("ms", 1e3)]:
        if abs(seconds) * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Return names in a row, such as "a, b and c".

    Parameters
    ----------
    names : Sequence[str]
        The names.
    limit : int, default 4
        The largest number of names to list; the rest are counted ("3 more").
    """
    if len(names) > limit:
        names = [*names[:limit], f"{len(names) - limit} more"]
    *first_names, last = names
    return f"{', '.join(first_names)} and {last}" if first_names else last


def hint(name: str, candidates: Iterable[str], limit: int = 1) -> str:
    """Return a proposal of similar names to append to a message; empty if none is similar.

    Parameters
    ----------
    name : str
        The unknown name.
    candidates : Iterable[str]
        The names to choose from.
    limit : int, default 1
        The largest number of proposals.

    Returns
    -------
    str
        For example " (did you mean "pie"?)", with a leading space.
    """
    near = get_close_matches(name, list(candidates), limit)
    named = " or ".join(f'"{candidate}"' for candidate in near)
    return f" (did you mean {named}?)" if near else ""


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raise `ParameterError` unless a value is one of some names.

    Parameters
    ----------
    name : str
        Name of the parameter.
    value : object
        Its value.
    choices : Collection[str]
        The names to choose from.
    """
    if value not in choices:
        raise ParameterError(name, value, one_of(choices, value))


def one_of(names: Iterable[str], name: object = "") -> str:
    """Return the description of a value that is one of some names, for an error message.

    Parameters
    ----------
    names : Iterable[str]
        The names to choose from.
    name : object, optional
        The unknown name; a similar one of `names` is proposed in its place.

    Returns
    -------
    str
        For example "one of codel, pie (did you mean "pie"?)"; a single name alone.
    """
    choices = list(names)
    if len(choices) == 1:
        return choices[0]
    return f"one of {', '.join(choices)}{hint(str(name), choices)}"


#: A number and the unit after it, between which no line breaks.
NUMBER_AND_UNIT = re.compile(r"(?<=\d) (?=(%|m?s|Mbit/s|packets)\b|%)")


def wrapped(text: str, width: int, indent: str = "") -> str:
    """Return a paragraph in lines of at most a width; a number and its unit stay together.

    Parameters
    ----------
    text : str
        The paragraph.
    width : int
        Largest length of a line. A longer word is not broken.
    indent : str, default ''
        Begin of every line after the first.
    """
    lines = textwrap.wrap(
        NUMBER_AND_UNIT.sub("\N{NO-BREAK SPACE}", text),
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


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
