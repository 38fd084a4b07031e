"""The registries of laws, queues and senders by name, and `overrides` with their units.

The native module declares both. The readers of scenarios and laws take a quantity as a text with
its unit; a number in `overrides`, such as `{"bottleneck.rate": 40e6}`, is in the base unit and gets
the unit that its key or parameter is declared with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import quantities
from forebay._base.quantities import Overrides
from forebay._base.words import check_choice

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
    check_choice("law", name, laws())
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


#: The function that writes a number with each base unit.
WRITERS: Mapping[str, Callable[[Any], str]] = {
    "bit/s": quantities.rate,
    "s": quantities.time,
    "B": quantities.size,
    "p": quantities.packets,
}


def scenario_pairs(overrides: Overrides) -> list[tuple[str, str]]:
    """Return keys of a scenario and their values as the reader takes them.

    Raises
    ------
    ParameterError
        If a text is not of the form KEY=VALUE.
    """
    return quantities.set_pairs(_with_units(overrides, _unit_of_key))


def law_pairs(law: object, overrides: Overrides) -> list[tuple[str, str]]:
    """Return parameters of a law and their values as the reader takes them.

    Parameters
    ----------
    law : str or class
        Name of the law; the parameters of a law in Python keep their numbers.
    overrides : dict, str or sequence
        The parameters.

    Raises
    ------
    ParameterError
        If a text is not of the form KEY=VALUE.
    """
    return quantities.set_pairs(_with_units(overrides, lambda name: _unit_of_param(law, name)))


def _with_units(overrides: Overrides, unit_of: Callable[[str], str]) -> Overrides:
    """Return the overrides with units at the numbers that are quantities."""
    if isinstance(overrides, str):
        return overrides
    # None is what optional arguments pass on.
    overrides = overrides or ()
    items = overrides.items() if isinstance(overrides, Mapping) else overrides
    return [item if isinstance(item, str) else _pair(item, unit_of) for item in items]  # type: ignore[return-value]


def _pair(item: tuple[str, Any], unit_of: Callable[[str], str]) -> tuple[str, Any]:
    """Return a key with its value, which has its unit if it is a number with one."""
    key, value = item
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    write = WRITERS.get(unit_of(key)) if is_number else None
    return key, value if write is None else write(value)


@cache
def _units() -> Mapping[str, str]:
    """Return the unit of every key of a scenario; empty where keys of one name differ in it."""
    units: defaultdict[str, set[str]] = defaultdict(set)
    for key in _native.keys():  # noqa: SIM118 (a function of the module)
        units[key["name"]].add(key["unit"])
    return {name: next(iter(group)) if len(group) == 1 else "" for name, group in units.items()}


def _unit_of_key(key: str) -> str:
    """Return the unit of a key such as "bottleneck.rate".

    Parameters of laws have none here: a set-point, say, may be a queue or a time.
    """
    table, _, rest = key.partition(".")
    name = rest.rpartition(".")[2] or table
    if table == "law":
        return ""
    # A buffer in packets is the usual one; only one kind of traffic has a buffer in seconds.
    return "p" if key.endswith("bottleneck.buffer") else _units().get(name, "")


def _unit_of_param(law: object, name: str) -> str:
    """Return the unit of a law's parameter; empty if it has none."""
    if not isinstance(law, str) or law not in laws():
        return ""
    spec = parameter(law, name)
    return "" if spec is None else spec["unit"]
