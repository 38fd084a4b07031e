"""The registries of laws, queues and senders by name, with their facts from Rust."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import forebay._native as _native
from forebay._base.errors import ParameterError

if TYPE_CHECKING:
    from forebay._native import LawEntry, ParamInfo, RegistryEntry, SenderEntry


@cache
def laws() -> dict[str, LawEntry]:
    """Every law, in the order of the registry."""
    return {entry["name"]: entry for entry in _native.laws()}


@cache
def queues() -> dict[str, RegistryEntry]:
    """Every queue discipline, in the order of the registry."""
    return {entry["name"]: entry for entry in _native.queues()}


@cache
def senders() -> dict[str, SenderEntry]:
    """Every sender of TCP, in the order of the registry."""
    return {entry["name"]: entry for entry in _native.senders()}


def law(name: str) -> LawEntry:
    """The law of this name. Raises `ParameterError`."""
    if name not in laws():
        raise ParameterError("law", name, ", ".join(laws()))
    return laws()[name]


def title_of(name: str) -> str:
    """Return a law's name in prose, such as "PI-PD" for "pi-pd"; any other name as it is."""
    return laws()[name]["short_title"] if name in laws() else name


@cache
def baseline() -> LawEntry:
    """The queue without any law, beside which others are judged."""
    return next(entry for entry in laws().values() if entry["baseline"])


def parameter(law_name: str, name: str) -> ParamInfo | None:
    """A parameter of a law; None for one that the law does not have. Raises `ParameterError`."""
    return next((one for one in law(law_name)["params"] if one["name"] == name), None)


def window_law(sender: str | None, marked: bool) -> str | None:
    """How a sender's window answers signals in linear theory, as `--tcp` of designs names it; None
    where that has nothing of it. marked: whether its flows are marked, and not dropped."""
    found = senders().get(sender or "")
    return found and found["window_law" if marked else "window_law_on_drops"]
