"""Compare the store's segments with a table of SQLite, as decision 019 reports.

    python bench/store_index.py [RUNS ...]

For each number of runs it prints the time to add them in batches of 500, to look up the runs of 100
laws at a point, to count all runs, and to read all rows as a table. It then lets one, two and four
processes add batches of 20 rows at once. Times are the least of three.
"""

from __future__ import annotations

import json
import multiprocessing
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from forebay.experiment import execution, experiment
from forebay.experiment import store as stores
from forebay.experiment.run_rows import KEY

SCENARIO = {
    "duration": "2s",
    "bottleneck": {"rate": "10Mbit/s", "buffer": "100p"},
    "traffic": [{"kind": "ftp", "flows": 4, "tcp": "reno", "rtt": "40ms"}],
    "law": [{"kind": "pi", "target": "20p"}],
}
SEEDS, BATCH, SMALL_BATCH, SOUGHT = 5, 500, 20, 100


def batch(row: pl.DataFrame, first: int, count: int) -> pl.DataFrame:
    """Return rows of different runs, which are like one run."""
    numbers = pl.int_range(first, first + count, eager=True)
    return pl.concat([row] * count).with_columns(
        config=pl.format("{}", numbers // SEEDS).str.zfill(40),
        seed=(numbers % SEEDS + 1).cast(pl.UInt64),
        delay_mean_s=numbers * 1e-6,
    )


class Segments:
    """The store as it is."""

    def __init__(self, folder: Path, _row: pl.DataFrame) -> None:
        self.store = stores.at(folder)

    def add(self, table: pl.DataFrame) -> None:
        """Add rows."""
        self.store.add(table)
        self.store.put_together()

    def rows_of(self, configs: list[str]) -> pl.DataFrame:
        """Return the rows of some laws."""
        return self.store.rows_of(configs)

    def count(self) -> int:
        """Return the number of runs."""
        return stores.contents(self.store)[0].runs

    def table(self) -> pl.DataFrame:
        """Return all rows."""
        return self.store.read(lambda: self.store.scan().collect())


class Sqlite:
    """The same rows in a table of SQLite, with nested values as JSON."""

    journal = "wal"

    def __init__(self, folder: Path, row: pl.DataFrame) -> None:
        self.path, self.columns = folder / "runs.db", row.columns
        nested = [name for name, kind in row.schema.items() if kind.is_nested()]
        self.schema = row.schema | dict.fromkeys(nested, pl.String())
        names = ", ".join(f'"{name}"' for name in self.columns)
        with closing(self._open()) as database:
            database.execute(
                f"create table if not exists runs ({names}, unique ({', '.join(KEY)}))"
            )

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=60)
        database.execute(f"pragma journal_mode = {self.journal}")
        database.execute("pragma synchronous = full")
        return database

    def add(self, table: pl.DataFrame) -> None:
        """Add rows."""
        rows = [
            [json.dumps(value) if isinstance(value, list) else value for value in row]
            for row in table.iter_rows()
        ]
        marks = ", ".join("?" * len(self.columns))
        with closing(self._open()) as database, database:
            database.executemany(f"insert or ignore into runs values ({marks})", rows)

    def _select(self, query: str, values: list[str]) -> list[Any]:
        with closing(self._open()) as database:
            return database.execute(query, values).fetchall()

    def rows_of(self, configs: list[str]) -> pl.DataFrame:
        """Return the rows of some laws."""
        marks = ", ".join("?" * len(configs))
        rows = self._select(f"select * from runs where config in ({marks})", configs)
        return pl.DataFrame(rows, self.schema, orient="row", strict=False)

    def count(self) -> int:
        """Return the number of runs."""
        return int(self._select("select count(*) from runs where link = 0", [])[0][0])

    def table(self) -> pl.DataFrame:
        """Return all rows."""
        rows = self._select("select * from runs", [])
        return pl.DataFrame(rows, self.schema, orient="row", strict=False)


class SqliteWithoutWal(Sqlite):
    """SQLite with a rollback journal: the write-ahead log is not for network file systems."""

    journal = "delete"


Kind = type[Segments] | type[Sqlite]


def write(kind: Kind, folder: Path, row: pl.DataFrame, runs: range, size: int) -> None:
    """Add runs in batches."""
    table = kind(folder, row)
    for first in runs[::size]:
        table.add(batch(row, first, min(size, runs.stop - first)))


def least_s(work: Callable[[], object], times: int = 3) -> float:
    """Return the shortest time of some calls."""
    durations_s = []
    for _ in range(times):
        start_s = time.perf_counter()
        work()
        durations_s.append(time.perf_counter() - start_s)
    return min(durations_s)


def sizes(kind: Kind, row: pl.DataFrame, runs: int) -> None:
    """Print what a number of runs costs."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        add_s = least_s(lambda: write(kind, folder, row, range(runs), BATCH), 1)
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        step = runs // SEEDS // SOUGHT
        sought = [f"{number * step:040}" for number in range(SOUGHT)]
        look_s = least_s(lambda: kind(folder, row).rows_of(sought))
        count_s = least_s(lambda: kind(folder, row).count())
        table_s = least_s(lambda: kind(folder, row).table())
        assert kind(folder, row).rows_of(sought).height == SOUGHT * SEEDS
        assert kind(folder, row).table().height == runs
    print(
        f"{kind.__name__}: {runs:,} runs, {size / 1e6:.1f} MB: add {add_s:.2f} s, "
        f"look up {1e3 * look_s:.0f} ms, count {1e3 * count_s:.0f} ms, "
        f"table {1e3 * table_s:.0f} ms",
        flush=True,
    )


def writers(kind: Kind, row: pl.DataFrame, runs: int, processes: int) -> None:
    """Print how long processes take to add runs at the same time."""
    share = runs // processes
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        kind(folder, row)
        # Polars has threads, which a forked process would lack.
        spawn = multiprocessing.get_context("spawn")
        workers = [
            spawn.Process(
                target=write,
                args=(kind, folder, row, range(i * share, (i + 1) * share), SMALL_BATCH),
            )
            for i in range(processes)
        ]
        start_s = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        duration_s = time.perf_counter() - start_s
        failed = sum(worker.exitcode != 0 for worker in workers)
        stored = kind(folder, row).count()
    print(
        f"{kind.__name__}: {processes} processes add {share * processes:,} runs in "
        f"{duration_s:.2f} s; {stored:,} are stored, {failed} processes failed",
        flush=True,
    )


def main() -> None:
    """Measure both for each number of runs."""
    planned = experiment.read(SCENARIO)
    with tempfile.TemporaryDirectory() as folder:
        store = stores.at(folder)
        execution.execute(planned, store=store)
        row = store.scan().collect().head(1)
    for runs in map(int, sys.argv[1:] or ["10000", "100000"]):
        for kind in (Segments, Sqlite):
            sizes(kind, row, runs)
    for kind in (Segments, Sqlite, SqliteWithoutWal):
        for processes in (1, 2, 4):
            writers(kind, row, 2000, processes)


if __name__ == "__main__":
    main()
