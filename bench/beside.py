"""Run scenarios next to a reference, and print tables of the differences."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import polars

import forebay
from forebay import Result
from forebay.comparison.compare import Agreement, Tolerance
from forebay.report.tables import markdown_table

#: Name of a case and window, and its figures.
Row = tuple[str, list[Agreement]]


def run(scenario: str, seeds: int, engine: str = "packets") -> Result:
    """Run a scenario."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(scenario)
        return forebay.run(path, seeds=seeds, engine=engine)


def metrics(scenario: str, seeds: int) -> polars.DataFrame:
    """Run a scenario, and return one row of metrics per seed."""
    return run(scenario, seeds).metrics


def cell(figure: Agreement) -> str:
    """Return `reference → ours`; bold where they are too far apart."""
    return figure.text if figure.agrees else f"**{figure.text}**"


def agree(figures: Sequence[Agreement]) -> bool:
    """Return True if every figure is within its tolerance."""
    return all(figure.agrees for figure in figures)


def table(rows: Sequence[Row], tolerances: Sequence[Tolerance]) -> str:
    """Return the comparison as a Markdown table."""
    heads = ["case", *(tolerance.title for tolerance in tolerances)]
    return markdown_table(heads, [[name, *map(cell, row)] for name, row in rows]).rstrip()


def progress(name: str, row: Sequence[Agreement]) -> str:
    """Return one line for the terminal."""
    return f"{name:40} {' | '.join(map(cell, row))}{'' if agree(row) else '  <-- outside'}"


def count_within(rows: Sequence[Row]) -> str:
    """Return `N of M figures are inside.`"""
    figures = [figure for _, row in rows for figure in row]
    return f"{sum(figure.agrees for figure in figures)} of {len(figures)} figures are inside."
