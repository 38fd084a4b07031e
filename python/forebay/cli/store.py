"""`forebay store`: list, show, export and remove stored runs.

Its dependencies are loaded inside the commands, so that other commands stay quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.errors import ParameterError
from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.options import StoreAt, print_table

if TYPE_CHECKING:
    from forebay.experiment.store import Store


@with_options
def ls(*, store: StoreAt = None) -> None:
    """List the versions of the simulator in the store, with the number and size of their runs."""
    from forebay._base.terminal_table import Column
    from forebay.experiment.store import contents

    runs = _store(store)
    columns = [Column("version"), Column("runs"), Column("size"), Column("with samples", "size")]
    rows = [
        [
            of_version.version + (" (present)" if of_version.version == runs.version else ""),
            *(f"{of_version.runs:,}", _size(of_version.bytes)),
            f"{of_version.sampled:,}: {_size(of_version.sample_bytes)}",
        ]
        for of_version in contents(runs)
    ]
    print(f"{runs.address}: {_size(sum(runs.place.names('').values()))}")
    print_table(columns, rows, width=80)


@with_options
def show(run: str | None = None, /, *, store: StoreAt = None) -> None:
    """Show the laws and links of the stored runs, or every column of one run.

    Parameters
    ----------
    run : CONFIG
        First letters of a run's config.
    """
    import polars as pl

    from forebay._base.terminal_table import Column
    from forebay.experiment.run_rows import LISTS

    runs = _store(store)
    rows = pl.col("link") == 0
    if run is None:
        columns = [
            pl.len().alias("runs"),
            pl.col("config").n_unique().alias("configs"),
            pl.col("config").min().str.slice(0, 8).alias("one of them"),
            *(
                pl.format("{} to {}", pl.col(name).min(), pl.col(name).max()).alias(name)
                for name in ("rate_bps", "rtt_s", "flows")
            ),
            pl.col("fault").is_not_null().sum().alias("failed"),
        ]
        table = runs.read(
            lambda: runs.scan().filter(rows).group_by("law").agg(columns).sort("law").collect()
        )
        cells = [[str(value) for value in row] for row in table.iter_rows()]
        print_table([Column(name) for name in table.columns], cells)
        return
    rows &= pl.col("config").str.starts_with(run)
    table = runs.read(lambda: runs.scan().filter(rows).sort("config", "seed").collect())
    if table.is_empty():
        raise ParameterError("CONFIG", run, "the first letters of a config in the store")
    for row in table.drop(LISTS).iter_rows(named=True):
        cells = [[name, f"{value}"] for name, value in row.items() if value is not None]
        print_table([Column("column"), Column("value", sentence=True)], cells, width=80)


@with_options
def prune(*, store: StoreAt = None, samples: bool = False, failed: bool = False) -> None:
    """Remove runs of other versions of the simulator, which this version cannot use.

    Parameters
    ----------
    samples
        Remove the samples, too, and keep the metrics.
    failed
        Remove failed runs, so that they are repeated.
    """
    from forebay.experiment import store as contents

    freed = contents.prune(_store(store), samples=samples, failed=failed)
    print(f"{_size(max(freed, 0))} freed")


@with_options
def export(file: Path, /, *, store: StoreAt = None) -> None:
    """Write every run of the present version into one table.

    Parameters
    ----------
    file : FILE
        File to write; its name ends in .parquet or .csv.
    """
    import polars as pl

    from forebay._base import publication
    from forebay._base.publication import publish_file
    from forebay.experiment.run_rows import LISTS

    if file.suffix not in (".parquet", ".csv"):
        raise ParameterError("FILE", file, "a name that ends in .parquet or .csv")
    publication.check_file(file, "FILE")
    runs, counts = _store(store), []

    def write(unfinished: Path) -> None:
        table = runs.scan().sort("law", "config", "seed", "link")
        if file.suffix == ".csv":
            table.drop(LISTS).sink_csv(unfinished)
        else:
            table.sink_parquet(unfinished)
        counts.append(int(table.select(pl.len()).collect().item()))

    publish_file(file, lambda unfinished: runs.read(lambda: write(unfinished)))
    print(f"{counts[-1]:,} rows: {file}")


def _store(address: str | None) -> Store:
    """Return a store that exists. Raises `ParameterError` otherwise."""
    from forebay.experiment import store as stores

    store = stores.existing(address)
    if not store.place.names(""):
        raise ScenarioError(
            f"--store: there is no store at {store.address}; `forebay run` creates one"
        )
    return store


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} B"
