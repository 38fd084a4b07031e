"""The list of what a study runs: point, law and digest. To make it every point is read, which takes
longer than to look into the store; so it is kept there."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from forebay.studies.points import LISTED

if TYPE_CHECKING:
    from forebay.store.store import Store
    from forebay.studies.points import Points


def _name(points: Points, store: Store) -> str:
    return f"studies/{store.version}/{points.digest}.parquet"


def load(points: Points, store: Store) -> pl.DataFrame | None:
    """Point, law and config, a row for each law at each point; None where it is not there."""
    try:
        return pl.read_parquet(io.BytesIO(store.place.read(_name(points, store))))
    except FileNotFoundError:
        return None


def save(points: Points, store: Store, table: pl.DataFrame) -> None:
    """Keeps the list."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    store.place.write(_name(points, store), buffer.getvalue())


def list_runs(points: Points, store: Store, *, partial: bool = False) -> pl.DataFrame:
    """The list, made where it is not there. partial: without points that are not designed yet."""
    found = load(points, store)
    if found is None:
        parts = [which for which in points.parts() if not partial or points.gains.ready(which)]
        tables = [points.part(which).configs for which in parts]
        found = pl.concat([pl.DataFrame(schema=LISTED), *tables])
    return found
