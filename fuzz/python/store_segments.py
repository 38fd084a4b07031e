"""Segments of a store: a damaged one is set aside, and never read as other numbers.

Usage: python store_segments.py SECONDS SEED
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import driver
import polars as pl

from forebay.experiment import run_rows as rows
from forebay.experiment import store as stores

FOLDER = tempfile.TemporaryDirectory()
AT = Path(FOLDER.name) / "store"


def rows_of_runs() -> pl.DataFrame:
    """Return the rows of 40 runs with a number in each metric."""
    numbers = {name: 0.5 for name, kind in rows.SCHEMA.items() if kind == pl.Float64}
    return rows.table(
        {"config": f"{seed % 4:032x}", "seed": seed, "link": 0, "law": "pi", **numbers}
        for seed in range(40)
    )


WHOLE = rows_of_runs()
stores.at(AT).add(WHOLE)
(SEGMENT,) = stores.at(AT).segments()
SOUND = (AT / SEGMENT).read_bytes()


def read_segment(data: bytes) -> None:
    """Read a store whose one segment has these bytes."""
    shutil.rmtree(AT / "damaged", ignore_errors=True)
    (AT / SEGMENT).write_bytes(data)
    os.utime(AT / SEGMENT)
    with contextlib.redirect_stderr(io.StringIO()) as warnings:
        read = stores.at(AT).scan().collect()
    if data == SOUND:
        assert read.equals(WHOLE) and not warnings.getvalue()
    else:
        assert read.is_empty() and warnings.getvalue().count("\n") == 1


if __name__ == "__main__":
    driver.main(read_segment, [SOUND])
