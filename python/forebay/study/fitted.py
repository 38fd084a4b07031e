"""Laws with `gains = "auto"` in a study: each point is a link of its own, and its laws get numbers
for that link. They stand beside what the point sets, as more columns of its row.

A design is kept in the store of the study by what it depends on: scenario, point, and the law with
what is set of it. Other laws are not in that, so that one that comes to a study is designed alone.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from forebay import _native
from forebay._native import ScenarioError
from forebay.run import auto, experiment, ranges
from forebay.run.scenario import typed
from forebay.store import designs

if TYPE_CHECKING:
    from forebay._native import ParamInfo
    from forebay.store.designs import Designs

#: How the key of a traffic's sender ends.
SENDER = ".tcp"

#: Parts of a scenario that no design sees.
UNSEEN = {"title", "source", "seeds", "measure", "sweep", "law"}

#: What a point sets, in the order of the keys of its sweep.
Row = list[object]


class Fits:
    """The designs of a study's points, made when they are asked for.

    text: the scenario, with the word. sets, laws: on top of it. read: gives the files that it
    names. keys: what a point sets. kept: designs that are in a store.
    """

    def __init__(
        self,
        text: str,
        name: str,
        sets: Sequence[tuple[str, str]],
        laws: Sequence[str],
        read: Callable[[str], bytes | None],
        keys: Sequence[str],
        kept: Designs | None,
    ) -> None:
        self._scenario = (text, name, sets, laws, read)
        self._keys = keys
        self._beside = experiment.beside(name)
        #: Senders that are compared meet the same law: a queue does not know who sends.
        self._compared = {key: it for key, it in _sweep(text).items() if _is_sender(key, it)}
        self.kept = kept
        self._contents: dict[str, str] = {}
        self._rows: dict[int, Row] = {}
        self._columns: list[tuple[int, str]] = []
        #: labels of the laws that are designed
        self.laws: list[str] = []
        self._tables = _laws(text)
        for i, table in enumerate(self._tables):
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
            numbers = self._numbers(values)
            self._rows[index] = [*values, *(numbers[i][key] for i, key in self._columns)]
        return self._rows[index]

    def ready(self, index: int, values: Row) -> bool:
        """Whether a point needs no more designs."""
        if not self._columns or index in self._rows:
            return True
        point = dict(zip(self._keys, values, strict=True))
        laws = {i for i, _ in self._columns}
        return self.kept is not None and all(
            self.kept.get(self._digest(i, point)) is not None for i in laws
        )

    def _numbers(self, values: Row) -> dict[int, dict[str, Any]]:
        """Of each law that is designed, by its number in the file, its numbers by their names."""
        point = dict(zip(self._keys, values, strict=True))
        wanted = dict.fromkeys(i for i, _ in self._columns)
        kept = {i: self._digest(i, point) for i in wanted} if self.kept else {}
        if self.kept:
            found = {i: self.kept.get(digest) for i, digest in kept.items()}
            there = {i: numbers for i, numbers in found.items() if numbers is not None}
            if len(there) == len(wanted):
                return there
        text, name, sets, laws, read = self._scenario
        if point:
            each = {key: [it] for key, it in point.items()}
            text = ranges.with_sweep(text, each | self._compared)
        whole, _, _ = auto.resolved(text.encode(), name, sets, laws, read)
        tables = tomllib.loads(whole.decode())["law"]
        made: dict[int, dict[str, Any]] = {i: {} for i in wanted}
        for i, key in self._columns:
            made[i][key] = _number(tables[i], key)
        for i, digest in kept.items():
            if self.kept:
                self.kept.put(digest, made[i])
        return made

    def _digest(self, i: int, point: Mapping[str, object]) -> str:
        """Of what the design of a law depends on at a point."""
        sets = self._scenario[2]
        own = auto.own_paths([*sets, *_paths([*point])], i, self._tables[i])

        def seen(path: str) -> bool:
            return not path.startswith("law.") or path in own

        inputs = {
            "scenario": self._plain,
            "law": self._tables[i],
            "compared": self._compared,
            "sets": {key: value for key, value in sets if seen(key)},
            "point": {key: it for key, it in point.items() if seen(key)},
        }
        files = {name: of for name in _texts(inputs) if (of := self._file(name))}
        return designs.digest(**inputs, files=files)

    @cached_property
    def _plain(self) -> dict[str, Any]:
        """The scenario without what no design sees."""
        whole = tomllib.loads(self._scenario[0])
        return {key: it for key, it in whole.items() if key not in UNSEEN}

    def _file(self, name: str) -> str:
        """The digest of the file that a text names; empty where it names none."""
        if name not in self._contents:
            contents = None
            with suppress(ScenarioError, OSError, ValueError):
                contents = self._beside(name)
            self._contents[name] = hashlib.blake2b(contents).hexdigest() if contents else ""
        return self._contents[name]


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


def _texts(value: object) -> Iterator[str]:
    """Every text in a value, as long as the name of a file may be; what is set is JSON or plain."""
    if isinstance(value, str):
        if value and len(value) < 256 and value.isprintable():
            yield value.strip("\"'")
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


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
