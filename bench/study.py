"""Kills a study again and again, and looks whether every run is there once, and the same.

python bench/study.py kill FILE [KILLS]      kill -9 at random moments, then once to the end
python bench/study.py store [ROWS]           a store of a million rows: opens, filters, cells
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from forebay.run.metrics import METRICS
from forebay.store import choice, rows

FOREBAY = str(Path(sys.executable).parent / "forebay")


def kill(file: str, kills: int) -> None:
    """A study that is killed, beside one that is not."""
    with tempfile.TemporaryDirectory() as folder:
        killed, whole = Path(folder) / "killed", Path(folder) / "whole"

        def words(at: Path) -> list[str]:
            return [FOREBAY, "study", file, "--no-report", f"--store={at}", f"--out={at}-out"]

        start = time.monotonic()
        subprocess.run(words(whole), check=True, stderr=subprocess.DEVNULL)
        whole_s = time.monotonic() - start
        chance = random.Random(7)
        for i in range(kills):
            process = subprocess.Popen(words(killed), stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.3, 1.5) * whole_s / kills)
            process.kill()
            process.wait()
            print(f"kill {i + 1}: {_runs(killed):,} runs are there")
        subprocess.run(words(killed), check=True, stderr=subprocess.DEVNULL)
        frames = [pl.read_parquet(f"{at}-out/frame.parquet") for at in (killed, whole)]
        table = choice.at(killed).scan().collect()
        print(f"{frames[0].height:,} rows; undisturbed in {whole_s:.1f} s")
        print("every run once:", table.height == table.unique(rows.KEY).height)
        print("equal bit for bit:", frames[0].equals(frames[1], null_equal=True))
        assert frames[0].equals(frames[1], null_equal=True)


def _runs(at: Path) -> int:
    count = choice.at(at).scan().select(pl.len()).collect().item() if at.exists() else 0
    assert isinstance(count, int)
    return count


def store(count: int) -> None:
    """Times of a large store."""
    with tempfile.TemporaryDirectory() as folder:
        at = choice.at(folder)
        made = 0
        while made < count:
            some = min(100_000, count - made)
            index = pl.int_range(made, made + some, eager=True)
            columns = {
                name: index.cast(pl.Float64).hash(i) / 2**64 for i, name in enumerate(METRICS)
            }
            table = pl.DataFrame(
                {
                    "config": (index // 5)
                    .cast(pl.UInt64)
                    .hash(1)
                    .cast(pl.String)
                    .str.pad_start(32, "0"),
                    "seed": (index % 5 + 1).cast(pl.UInt64),
                    "link": pl.Series([0] * some, dtype=pl.UInt16),
                    "law": (index % 7).cast(pl.String),
                    "rate_bps": ((index // 7) % 9 * 10**6).cast(pl.UInt64),
                    "flows": ((index // 63) % 11).cast(pl.UInt32),
                    **columns,
                }
            )
            empty = pl.DataFrame(schema=rows.SCHEMA)
            at.add(pl.concat([empty, table], how="diagonal_relaxed").select(rows.SCHEMA.keys()))
            made += some
        sizes = sum(at.segments().values())
        print(f"{made:,} rows, {sizes / 1e6:.0f} MB, {len(at.segments())} segments")
        _timed(
            "opens and filters",
            lambda: (
                choice.at(folder)
                .scan()
                .filter((pl.col("law") == "3") & (pl.col("rate_bps") > 4 * 10**6))
                .select("config", "seed", "goodput_bps")
                .collect()
            ),
        )
        _timed(
            "cells of a map",
            lambda: (
                choice.at(folder)
                .scan()
                .group_by("law", "rate_bps", "flows")
                .agg(pl.col("goodput_bps").mean())
                .collect()
            ),
        )
        _timed("put together", lambda: at.put_together(most=1))
        _timed(
            "opens and filters",
            lambda: (
                choice.at(folder)
                .scan()
                .filter((pl.col("law") == "3") & (pl.col("rate_bps") > 4 * 10**6))
                .select("config", "seed", "goodput_bps")
                .collect()
            ),
        )
        _timed(
            "cells of a map",
            lambda: (
                choice.at(folder)
                .scan()
                .group_by("law", "rate_bps", "flows")
                .agg(pl.col("goodput_bps").mean())
                .collect()
            ),
        )


def _timed(what: str, call: object) -> None:
    assert callable(call)
    start = time.monotonic()
    call()
    print(f"{what}: {time.monotonic() - start:.2f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["kill"]:
        kill(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10)
    else:
        store(int(sys.argv[2]) if len(sys.argv) > 2 else 10**6)
