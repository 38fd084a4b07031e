"""Numbers of laws that were designed for the points of studies, or searched for a range of links:
each takes a second or more, and what is stopped and goes on must not make them twice."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

import forebay._native as _native
from forebay.store.keys import DIGEST_BYTES
from forebay.store.segments import Segments

if TYPE_CHECKING:
    from forebay.store.store import Store

DESIGNS = "designs"
#: The digest of what a design depends on, and its numbers by their names, as JSON.
SCHEMA = {"design": pl.String, "numbers": pl.String}
#: The folders whose code decides a design.
DESIGNING = ("base", "scenarios", "theory", "tuning")
#: New ones are written so often.
FLUSH_S = 1.0


def sources() -> list[Path]:
    """The code that designs."""
    package = Path(__file__).parents[1]
    files = sorted(file for room in DESIGNING for file in (package / room).rglob("*.py"))
    return [*files, package / "runs" / "automatic_gains.py", Path(_native.__file__)]


@cache
def version() -> str:
    """Of the code that designs: of another one, nothing is found."""
    hash_ = hashlib.blake2b(digest_size=6)
    for file in sources():
        hash_.update(hashlib.blake2b(file.read_bytes()).digest())
    return hash_.hexdigest()


def digest(**inputs: object) -> str:
    """Of what a design depends on."""
    text = json.dumps(inputs, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


class Designs:
    """The designs that a store has, and those that come to it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.segments = Segments(store.place, DESIGNS, version(), ["design"], SCHEMA)
        self._known: dict[str, str] | None = None
        self._new: dict[str, str] = {}
        self._written_s = time.monotonic()

    def get(self, design: str) -> dict[str, Any] | None:
        """The numbers of a design by its digest; None where it is not there."""
        if self._known is None:
            self._known = dict(self.segments.read(self._rows).iter_rows())
        found = self._known.get(design)
        return None if found is None else json.loads(found)

    def put(self, design: str, numbers: Mapping[str, Any]) -> None:
        """Keeps a new one; it is in the store after `flush`."""
        assert self._known is not None
        self._known[design] = self._new[design] = json.dumps(dict(numbers))

    def tick(self) -> None:
        """Writes what has waited long enough."""
        if time.monotonic() - self._written_s >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Writes what is new. Raises `OSError`."""
        if self._new:
            self.store.check_marked()
            self.segments.add(pl.DataFrame(list(self._new.items()), SCHEMA, orient="row"))
            self._new = {}
            self.segments.put_together()
        self._written_s = time.monotonic()

    def _rows(self) -> pl.DataFrame:
        names = sorted(self.segments.names())
        if not names:
            return pl.DataFrame(schema=SCHEMA)
        return self.segments.place.scan(names).unique(["design"], keep="any").collect()
