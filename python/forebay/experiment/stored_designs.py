"""Numbers of laws that were designed for the points of studies, or searched for a range of links:
each takes a second or more, and what is stopped and goes on must not make them twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import forebay._native as _native
from forebay.experiment.run_rows import DIGEST_BYTES
from forebay.experiment.store_segments import Pending, Segments

if TYPE_CHECKING:
    from forebay.experiment.store import Store

DESIGNS = "designs"
#: The digest of what a design depends on, and its numbers by their names, as JSON.
SCHEMA = {"design": pl.String, "numbers": pl.String}
#: The folders whose code decides a design.
DESIGNING = ("_base", "scenario", "control", "tuning")


def sources() -> list[Path]:
    """The code that designs."""
    package = Path(__file__).parents[1]
    files = sorted(file for room in DESIGNING for file in (package / room).rglob("*.py"))
    return [*files, package / "experiment" / "automatic_gains.py", Path(_native.__file__)]


@cache
def version() -> str:
    """Of the code that designs: of another one, nothing is found."""
    hash_ = hashlib.blake2b(digest_size=6)
    for file in sources():
        hash_.update(hashlib.blake2b(file.read_bytes()).digest())
    return hash_.hexdigest()


def digest(inputs: Mapping[str, object]) -> str:
    """Of what a design depends on."""
    text = json.dumps(dict(inputs), sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


class Designs(Pending):
    """The designs that a store has, and those that come to it."""

    def __init__(self, store: Store) -> None:
        super().__init__(self._add)
        self.store = store
        self.table = Segments(store.place, DESIGNS, version(), ["design"], SCHEMA)
        self._known: dict[str, str] | None = None

    def get(self, design: str) -> dict[str, Any] | None:
        """The numbers of a design by its digest; None where it is not there."""
        if self._known is None:
            table = self.table.read(lambda: self.table.scan().collect())
            self._known = dict(table.iter_rows())
        found = self._known.get(design)
        return None if found is None else json.loads(found)

    def put(self, design: str, numbers: Mapping[str, Any]) -> None:
        """Keeps a new one; it is in the store after `flush`."""
        assert self._known is not None
        self._known[design] = json.dumps(dict(numbers))
        self.rows.append({"design": design, "numbers": self._known[design]})

    def _add(self, rows: list[dict[str, Any]]) -> None:
        self.store.check_marked()
        self.table.add(pl.DataFrame(rows, SCHEMA))
        self.table.put_together()
