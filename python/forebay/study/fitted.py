"""Laws with `gains = "auto"` in a study: each point is a link of its own, and its laws get numbers
for that link. They stand beside what the point sets, as more columns of its row."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay import _native
from forebay.run import auto, ranges
from forebay.run.scenario import typed

if TYPE_CHECKING:
    from forebay._native import ParamInfo

#: How the key of a traffic's sender ends.
SENDER = ".tcp"

#: What a point sets, in the order of the keys of its sweep.
Row = list[object]


class Fits:
    """The designs of a study's points, made when they are asked for.

    text: the scenario, with the word. sets, laws: on top of it. read: gives the files that it
    names. keys: what a point sets.
    """

    def __init__(
        self,
        text: str,
        name: str,
        sets: Sequence[tuple[str, str]],
        laws: Sequence[str],
        read: Callable[[str], bytes | None],
        keys: Sequence[str],
    ) -> None:
        self._scenario = (text, name, sets, laws, read)
        self._keys = keys
        #: Senders that are compared meet the same law: a queue does not know who sends.
        self._compared = {key: it for key, it in _sweep(text).items() if _is_sender(key, it)}
        self._rows: dict[int, Row] = {}
        self._columns: list[tuple[int, str]] = []
        #: labels of the laws that are designed
        self.laws: list[str] = []
        for i, table in enumerate(_laws(text)):
            given = {*table, *auto.set_keys(sets, i, table), *auto.set_keys(_paths(keys), i, table)}
            # One that does not run must fit the buffer of its link, too.
            if auto.asks(sets, i, table):
                names = [param["name"] for param in _parameters(table["kind"])]
                self._columns += [(i, key) for key in names if key not in given]
                self.laws.append(str(table.get("label", table["kind"])))

    @property
    def keys(self) -> list[str]:
        """The keys of a row with its numbers."""
        return [*self._keys, *(f"law.{i}.{key}" for i, key in self._columns)]

    @property
    def designs(self) -> bool:
        """Whether there is anything to design."""
        return bool(self._columns)

    def row(self, index: int, values: Row) -> Row:
        """The row of a point with the numbers for its link. Raises `ScenarioError`."""
        if not self._columns:
            return values
        if index not in self._rows:
            text, name, sets, laws, read = self._scenario
            if self._keys:
                point = {key: [it] for key, it in zip(self._keys, values, strict=True)}
                text = ranges.with_sweep(text, point | self._compared)
            whole, _, _ = auto.resolved(text.encode(), name, sets, laws, read)
            tables = tomllib.loads(whole.decode())["law"]
            self._rows[index] = [*values, *(_number(tables[i], key) for i, key in self._columns)]
        return self._rows[index]


def _laws(text: str) -> list[dict[str, Any]]:
    """The laws of a scenario; none where something is wrong, which its reader says better."""
    found = _part(text, "law")
    is_table = isinstance(found, list) and all(
        isinstance(it, dict) and "kind" in it for it in found
    )
    return found if is_table else []


def _sweep(text: str) -> dict[str, Any]:
    found = _part(text, "sweep")
    return found if isinstance(found, dict) else {}


def _part(text: str, key: str) -> Any:
    """Of a scenario; None where that cannot be read."""
    try:
        return tomllib.loads(text).get(key)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _is_sender(key: str, values: object) -> bool:
    return key.endswith(SENDER) and isinstance(values, list)


def _paths(keys: Sequence[str]) -> list[tuple[str, str]]:
    return [(key, "") for key in keys]


def _parameters(kind: str) -> list[ParamInfo]:
    """The declared parameters of a law; none of one that the registry does not have."""
    found = (law["params"] for law in _native.laws() if law["name"] == kind)
    return next(found, [])


def _number(table: Mapping[str, Any], key: str) -> object:
    """What was designed; the default where the rule leaves it."""
    if key in table:
        return table[key]
    params = _parameters(table["kind"])
    return typed(next(param["default_text"] for param in params if param["name"] == key))
