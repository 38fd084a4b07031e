"""Our figures beside those of a reference: what may differ, and a table of what does."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars

import forebay
from forebay import Result


@dataclass(frozen=True)
class Figure:
    """One compared number: its key there and here, and what it may differ by."""

    title: str
    #: key in the reference
    reference_key: str
    #: key of ours
    key: str
    #: the widest of these is allowed: a share of the reference's value plus an absolute
    #: difference, `least`, and `spreads` times the spread over seeds, theirs or ours
    share: float = 0.0
    absolute: float = 0.0
    least: float = 0.0
    spreads: float = 0.0
    digits: int = 1
    #: from the unit of the key to that of the title
    scale: float = 1.0


@dataclass(frozen=True)
class Comparison:
    """A figure of one case and window."""

    figure: Figure
    theirs: Sequence[float]
    ours: Sequence[float]

    @property
    def difference(self) -> float:
        return statistics.mean(self.ours) - statistics.mean(self.theirs)

    @property
    def allowed(self) -> float:
        figure = self.figure
        stated = figure.share * abs(statistics.mean(self.theirs)) + figure.absolute
        spread = max(statistics.stdev(self.theirs), statistics.stdev(self.ours))
        return max(stated, figure.least, figure.spreads * spread)

    @property
    def within(self) -> bool:
        return abs(self.difference) <= self.allowed

    def cell(self) -> str:
        """`theirs → ours`; bold where they are too far apart."""
        shown = [
            f"{self.figure.scale * statistics.mean(values):.{self.figure.digits}f}"
            for values in (self.theirs, self.ours)
        ]
        text = " → ".join(shown)
        return text if self.within else f"**{text}**"


#: name of a case and window, and its figures
Row = tuple[str, list[Comparison]]


def run(scenario: str, seeds: int, engine: str = "packets") -> Result:
    """Runs a scenario's text."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(scenario)
        return forebay.run(path, seeds=seeds, engine=engine)


def metrics(scenario: str, seeds: int) -> polars.DataFrame:
    """Runs a scenario's text; one row of metrics a seed."""
    return run(scenario, seeds).metrics


def table(rows: Sequence[Row], figures: Sequence[Figure]) -> str:
    """The comparison as a Markdown table."""
    head = ["case", *(figure.title for figure in figures)]
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join([name, *(c.cell() for c in row)]) for name, row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def progress(name: str, row: list[Comparison]) -> str:
    """One line for the terminal."""
    flag = "" if all(c.within for c in row) else "  <-- outside"
    return f"{name:40} {' | '.join(c.cell() for c in row)}{flag}"


def count_within(rows: Sequence[Row]) -> str:
    """`N of M figures are inside.`"""
    cells = [c for _, row in rows for c in row]
    return f"{sum(c.within for c in cells)} of {len(cells)} figures are inside."
