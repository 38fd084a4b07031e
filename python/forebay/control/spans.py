"""Ranges as they are written on the command line."""

from __future__ import annotations

from forebay._native import ScenarioError

DOTS = ".."


def ends(key: str, text: str) -> tuple[str, str]:
    """ "20..500ms" as "20ms" and "500ms"; the first end may have its own unit. One value is both.

    Raises `ScenarioError` that names `key`.
    """
    low, dots, high = text.partition(DOTS)
    if not dots:
        return text, text
    if not low or not high:
        raise ScenarioError(f'{key}: found "{text}", allowed: a value, or a range such as 10..400')
    unit = high.lstrip("0123456789.")
    return (low if low[-1].isalpha() else low + unit), high
