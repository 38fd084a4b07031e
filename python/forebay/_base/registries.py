"""The registries of laws, queues and senders, by name, as the native module declares them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base.errors import ParameterError
from forebay._base.words import one_of

if TYPE_CHECKING:
    from forebay._native import LawEntry, ParamInfo, RegistryEntry, SenderEntry


@cache
def laws() -> dict[str, LawEntry]:
    """Return every law, in the order of the registry."""
    return {entry["name"]: entry for entry in _native.laws()}


@cache
def queues() -> dict[str, RegistryEntry]:
    """Return every queue discipline, in the order of the registry."""
    return {entry["name"]: entry for entry in _native.queues()}


@cache
def senders() -> dict[str, SenderEntry]:
    """Return every TCP sender, in the order of the registry."""
    return {entry["name"]: entry for entry in _native.senders()}


def law(name: str) -> LawEntry:
    """Return the law with this name.

    Raises
    ------
    ParameterError
        If there is no such law.
    """
    if name not in laws():
        raise ParameterError("law", name, one_of(laws(), name))
    return laws()[name]


def title_of(name: str) -> str:
    """Return a law's name in prose, such as "PI-PD" for "pi-pd"; any other name as it is."""
    return laws()[name]["short_title"] if name in laws() else name


def titles_in(text: str) -> str:
    """Return the cell of a table with laws' names in prose, such as "PI − RED" for "pi − red"."""
    return " − ".join(map(title_of, text.split(" − ")))


@cache
def baseline() -> LawEntry:
    """Return the entry of the queue without a law, with which laws are compared."""
    return next(entry for entry in laws().values() if entry["baseline"])


def parameter(law_name: str, name: str) -> ParamInfo | None:
    """Return the declaration of a law's parameter; None if the law has no such parameter.

    Parameters
    ----------
    law_name : str
        Name of the law.
    name : str
        Name of the parameter.

    Raises
    ------
    ParameterError
        If there is no such law.
    """
    return next((param for param in law(law_name)["params"] if param["name"] == name), None)


def window_law(sender: str | None, marked: bool) -> str | None:
    """Return the window law of a sender in linear theory, as `--tcp` of designs names it.

    Parameters
    ----------
    sender : str | None
        Name of the sender.
    marked : bool
        True if its packets are marked, False if they are dropped.

    Returns
    -------
    str | None
        The name; None if linear theory has no model of the sender.
    """
    entry = senders().get(sender or "")
    return entry and entry["window_law" if marked else "window_law_on_drops"]
