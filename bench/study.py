"""Test studies under stress: killed repeatedly, measured, and with a store of a million runs.

python bench/study.py kill FILE [KILLS]      kill -9 at random moments, a full disk (as root),
                                             then once to the end
python bench/study.py workers FILE [KILLS]   the same with workers of Dask
python bench/study.py cost FILE              processor time of a study beyond that of its runs
python bench/study.py store [ROWS]           a store of a million rows: opens, filters, cells
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl

import forebay
from forebay._base.metrics import COST, METRICS
from forebay.experiment import run_rows as rows
from forebay.experiment import store as stores

FOREBAY = str(Path(sys.executable).parent / "forebay")


@contextmanager
def disk(at: Path) -> Iterator[Path]:
    """Enter a context with a folder; for root, the folder is on a small disk of its own."""
    at.mkdir()
    if os.geteuid():
        yield at
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)


def fill(at: Path) -> Path:
    """Fill a disk, and return the file that takes all its space."""
    filler = at / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    return filler


def kill(file: str, kills: int) -> None:
    """Compare a study that is killed repeatedly, and once has no space, with one that is not."""
    with tempfile.TemporaryDirectory() as folder, disk(Path(folder) / "disk") as own:
        killed, whole = own / "killed", Path(folder) / "whole"

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
            if i == kills // 2 and own.is_mount():
                process = subprocess.Popen(words(killed), stderr=subprocess.PIPE, text=True)
                time.sleep(chance.uniform(0.3, 1.0) * whole_s / kills)
                filler = fill(own)
                _, errors = process.communicate()
                filler.unlink()
                print(f"full disk: status {process.returncode}, {errors.strip().splitlines()[-1]}")
        subprocess.run(words(killed), check=True, stderr=subprocess.DEVNULL)
        frames = [pl.read_parquet(f"{at}-out/frame.parquet") for at in (killed, whole)]
        table = stores.at(killed).scan().collect()
        print(f"{frames[0].height:,} rows; undisturbed in {whole_s:.1f} s")
        print("every run once:", table.height == table.unique(rows.KEY).height)
        print("equal bit for bit:", frames[0].equals(frames[1], null_equal=True))
        assert frames[0].equals(frames[1], null_equal=True)


def workers(file: str, kills: int) -> None:
    """Compare a study on two workers that are killed in turn with one on threads."""
    from distributed import Client, LocalCluster

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
    ):
        whole, lost = Path(folder) / "whole", Path(folder) / "lost"
        start = time.monotonic()
        study = forebay.study(file, store=whole, threads=2)
        threads_s = time.monotonic() - start
        chance = random.Random(3)

        def kill_some() -> None:
            for i in range(kills):
                time.sleep(chance.uniform(0.5, 1.0) * threads_s / kills)
                pids = list(client.run(os.getpid).values())
                os.kill(chance.choice(pids), signal.SIGKILL)
                print(f"worker {i + 1} killed")

        killer = threading.Thread(target=kill_some)
        killer.start()
        start = time.monotonic()
        again = forebay.study(file, store=lost, on=local.scheduler_address)
        killer.join()
        print(f"threads {threads_s:.1f} s, cluster {time.monotonic() - start:.1f} s with kills")
        print("equal bit for bit:", again.frame().equals(study.frame(), null_equal=True))
        table = again.store.scan().collect()
        print("every run once:", table.height == table.unique(rows.KEY).height)
        start = time.monotonic()
        forebay.study(file, store=Path(folder) / "quiet", on=local.scheduler_address)
        print(f"cluster without kills {time.monotonic() - start:.1f} s")


def cost(file: str) -> None:
    """Print the processor time of this process for a study, beyond that of its runs."""
    with tempfile.TemporaryDirectory() as folder:
        start_s, start = time.process_time(), time.monotonic()
        study = forebay.study(file, store=folder, threads=2)
        all_s, elapsed_s = time.process_time() - start_s, time.monotonic() - start
        table = study.store.scan().collect()
        of_runs = table[COST].sum()
        print(
            f"{table.height:,} runs of {1e3 * of_runs / table.height:.1f} ms: {all_s:.2f} s of "
            f"processor time, {100 * (all_s / of_runs - 1):.1f} % beyond theirs; {elapsed_s:.1f} s"
        )


def _runs(at: Path) -> int:
    """Return the number of runs in a store."""
    count = stores.at(at).scan().select(pl.len()).collect().item() if at.exists() else 0
    assert isinstance(count, int)
    return count


def store(count: int) -> None:
    """Print times of a large store."""
    with tempfile.TemporaryDirectory() as folder:
        at = stores.at(folder)
        row_count = 0
        while row_count < count:
            batch_size = min(100_000, count - row_count)
            index = pl.int_range(row_count, row_count + batch_size, eager=True)
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
                    "link": pl.Series([0] * batch_size, dtype=pl.UInt16),
                    "law": (index % 7).cast(pl.String),
                    "rate_bps": ((index // 7) % 9 * 10**6).cast(pl.UInt64),
                    "flows": ((index // 63) % 11).cast(pl.UInt32),
                    **columns,
                }
            )
            empty = pl.DataFrame(schema=rows.SCHEMA)
            at.add(pl.concat([empty, table], how="diagonal_relaxed").select(rows.SCHEMA.keys()))
            row_count += batch_size
        sizes = sum(at.segments().values())
        print(f"{row_count:,} rows, {sizes / 1e6:.0f} MB, {len(at.segments())} segments")
        _looks(folder)
        _timed("put together", lambda: at.put_together(limit=1))
        _looks(folder)


def _looks(folder: str) -> None:
    """Print times of the queries that a page makes."""
    _timed(
        "opens and filters",
        lambda: (
            stores.at(folder)
            .scan()
            .filter((pl.col("law") == "3") & (pl.col("rate_bps") > 4 * 10**6))
            .select("config", "seed", "goodput_bps")
            .collect()
        ),
    )
    _timed(
        "cells of a map",
        lambda: (
            stores.at(folder)
            .scan()
            .group_by("law", "rate_bps", "flows")
            .agg(pl.col("goodput_bps").mean())
            .collect()
        ),
    )


def _timed(action: str, call: object) -> None:
    """Print the time of a call."""
    assert callable(call)
    start = time.monotonic()
    call()
    print(f"{action}: {time.monotonic() - start:.2f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["kill"]:
        kill(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 10)
    elif sys.argv[1:2] == ["workers"]:
        workers(sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 5)
    elif sys.argv[1:2] == ["cost"]:
        cost(sys.argv[2])
    else:
        store(int(sys.argv[2]) if len(sys.argv) > 2 else 10**6)
