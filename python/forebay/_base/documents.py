"""JSON that may have been changed by anybody: parsed within a bound, and its values checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from forebay._base.input_file import plain

#: Most lists and tables of a document: in memory each takes at least 60 bytes.
MOST_CONTAINERS = 2_000_000
#: Numbers beyond this are of no quantity that is measured here, and their squares overflow.
LARGEST = 1e30
#: Lists and tables within each other in a setting.
DEEPEST = 8


class FormatError(Exception):
    """A document that is not what it should be, with the reason.

    The reason may quote the document; what a terminal does not show is replaced in it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(plain(reason))


def parse(text: str) -> Mapping[str, Any]:
    """Return the table that a text in JSON holds.

    Raises
    ------
    FormatError
        If the text is no JSON, is no table, or would take too much memory.
    """
    if text.count("[") + text.count("{") > MOST_CONTAINERS:
        raise FormatError(f"it has more than {MOST_CONTAINERS:,} lists and tables")
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise FormatError("its lists are nested too deeply") from error
    except ValueError as error:
        raise FormatError(f"it is no JSON ({error})") from error
    return table(document, "the document")


def kind(value: Any) -> str:
    """Return what a value is, for a message."""
    kinds = {dict: "a table", list: "a list", str: "a text", bool: "a truth value"}
    return "missing" if value is None else kinds.get(type(value), "a number")


def table(value: Any, label: str) -> Mapping[str, Any]:
    """Return a value that is a table. Raises `FormatError` for any other."""
    if not isinstance(value, dict):
        raise FormatError(f"{label} is {kind(value)}; expected a table")
    return value


def optional_table(value: Any, label: str) -> Mapping[str, Any]:
    """Return a table, empty where it is missing. Raises `FormatError` for anything else."""
    return {} if value is None else table(value, label)


def rows(value: Any, label: str) -> Sequence[Any]:
    """Return a value that is a list. Raises `FormatError` for any other."""
    if not isinstance(value, list):
        raise FormatError(f"{label} is {kind(value)}; expected a list")
    return value


def number(value: Any, label: str, largest: float = LARGEST) -> float:
    """Return a finite number. Raises `FormatError` for anything else, also a number too large."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{label} is {kind(value)}; expected a number")
    # An integer may be too large for a float, and NaN compares with nothing.
    if not abs(value) <= largest:
        raise FormatError(f"{label} is {str(value)[:20]}, which is out of range")
    return float(value)


def optional_number(value: Any, label: str) -> float | None:
    """Return a number, or None where it is missing or not a number (NaN)."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    return number(value, label)


def text(value: Any, label: str) -> str:
    """Return a text that a terminal can show. Raises `FormatError` for anything else."""
    if not isinstance(value, str):
        raise FormatError(f"{label} is {kind(value)}; expected a text")
    return plain(value)


def optional_text(value: Any, label: str) -> str:
    """Return a text, empty where it is missing. Raises `FormatError` for anything else."""
    return "" if value is None else text(value, label)


def seed(value: Any) -> int:
    """Return a seed. Raises `FormatError` for what is no whole number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise FormatError(f"the seed is {kind(value)}; expected a whole number")
    if not 0 <= value < 2**64:
        raise FormatError(f"the seed is {str(value)[:20]}; expected 0 to 2^64 - 1")
    return value


def flag(value: Any, label: str) -> bool:
    """Return a truth value. Raises `FormatError` for anything else."""
    if not isinstance(value, bool):
        raise FormatError(f"{label} is {kind(value)}; expected true or false")
    return value


def settings(value: Any) -> dict[str, Any]:
    """Return what a point sets, by key, with texts that a terminal can show."""
    entries = table(value, "settings")
    return {plain(key): _setting(item, DEEPEST) for key, item in entries.items()}


def _setting(value: Any, deeper: int) -> Any:
    if deeper == 0:
        raise FormatError("a setting is nested too deeply")
    if isinstance(value, dict):
        return {plain(key): _setting(item, deeper - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_setting(item, deeper - 1) for item in value]
    if isinstance(value, str | bool):
        return plain(value) if isinstance(value, str) else value
    number(value, "a setting")
    return value
