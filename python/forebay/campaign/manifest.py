"""The list of what a study runs: point, law and digest. To make it every point is read, which takes
longer than to look into the store; so it is kept there."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import polars as pl

from forebay.campaign.study_points import LISTED
from forebay.experiment.store_files import sealed_name

if TYPE_CHECKING:
    from forebay.campaign.study_points import Points
    from forebay.experiment.store import Store


def _stem(points: Points, store: Store) -> str:
    return f"studies/{store.version}/{points.digest}"


def load(points: Points, store: Store) -> pl.DataFrame | None:
    """Return point, law and config, a row for each law at each point.

    Returns
    -------
    DataFrame or None
        None if the store does not have the list, or has a damaged one.
    """
    contents = store.read_sealed(_stem(points, store))
    return None if contents is None else pl.read_parquet(io.BytesIO(contents))


def save(points: Points, store: Store, table: pl.DataFrame) -> None:
    """Keep the list in the store."""
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    store.place.write(sealed_name(_stem(points, store), buffer.getvalue()), buffer.getvalue())


def list_runs(points: Points, store: Store, *, partial: bool = False) -> pl.DataFrame:
    """The list, made where it is not there. partial: without points that are not designed yet."""
    found = load(points, store)
    if found is None:
        parts = [which for which in points.parts() if not partial or points.gains.ready(which)]
        tables = [points.part(which).configs for which in parts]
        found = pl.concat([pl.DataFrame(schema=LISTED), *tables])
    return found
