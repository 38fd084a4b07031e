"""The tables and files of a study: what a terminal, a notebook and a folder have of it."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.text import Text

from forebay._base import quantities, terminal_table, words
from forebay._base.metrics import METRICS
from forebay._base.publication import publish
from forebay._base.terminal_table import Column, RowGroup
from forebay._native import RESULTS_VERSION, __version__
from forebay.experiment.table import EMPTY, Cell
from forebay.report import tables
from forebay.report.tables import (
    DIFFERENCES_NOTE,
    Table,
    cells_table,
    differences_frame,
    differences_table,
    latex,
)

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.publication import Content
    from forebay.campaign.study import Study

#: Points whose numbers a page shows.
MOST_ROWS = 24


def laws_table(study: Study, metrics: Sequence[str] = ()) -> Table:
    """Return the means over the whole study: see `Study.means`."""
    means = study.means(metrics)

    def cell(law: str, name: str) -> Cell:
        return means.get((name, law), EMPTY)

    valued = [METRICS[name] for name in dict.fromkeys(name for name, _ in means)]
    return cells_table(["Law"], valued, [([law], partial(cell, law)) for law in study.points.laws])


def size(study: Study) -> str:
    """Return the size of a study: "16 points under 2 laws, 96 runs"."""
    runs = study.runs_made()
    laws = len(study.points.laws)
    return (
        f"{len(study.points):,} {'point' if len(study.points) == 1 else 'points'} under {laws} "
        f"{'law' if laws == 1 else 'laws'}, {runs:,} {'run' if runs == 1 else 'runs'}"
    )


def show(console: Console, study: Study, metrics: Sequence[str] = ()) -> None:
    """Print the table."""
    console.print(Text(study.points.title, style="bold"))
    console.print(size(study))
    table = laws_table(study, metrics)
    law, *metrics_heads = table.heads
    columns = [Column(law, left=True), *map(Column.from_heading, metrics_heads)]
    terminal_table.show(console, columns, [RowGroup(table.rows)])
    interval = "± half the 95 % confidence interval over the seeds; no ±: all alike"
    alone = "one seed: no interval; --add-seeds 4 gives one"
    note = f"means over all points; {interval if study.most_seeds > 1 else alone}"
    console.print(Text(note, style="dim"))
    tables.warnings(console, study.warnings)


def gains_table(study: Study) -> Table | None:
    """Return the numbers that laws have got at the first points; None where none asks for a
    design."""
    designed = study.points.gains.laws
    if not designed:
        return None
    frame = study.frame().filter(pl.col("law").cast(pl.String).is_in(designed))
    first = frame.unique(["point", "law"], keep="first", maintain_order=True).head(MOST_ROWS)
    rows = []
    for point, law, params in first.select("point", "law", "parameters").iter_rows():
        settings = zip(study.axes, study.points.sweep.row(point), strict=True)
        at = ", ".join(f"{key} = {quantities.toml(value)}" for key, value in settings)
        rows.append([at, law, words.parameters(json.loads(params).items())])
    return Table(["Point", "Law", "Parameters"], rows, keys=3)


FRAME, CSV, PAGE, FACTS = "frame.parquet", "frame.csv", "study.html", "study.json"
#: In the facts: the hash of each file that `forebay compare` reads.
HASHES = "sha256"
#: Differences between laws, where two of them have two seeds in common.
DIFFERENCES_CSV, DIFFERENCES_TEX = "differences.csv", "differences.tex"
#: Who gets what; where several traffics cross a link.
TRAFFIC = "traffic.parquet"


def former_seeds(out: Path) -> int:
    """Return the number of seeds of a former result; 0 if there is none."""
    try:
        return int(json.loads((out / FACTS).read_bytes())["seeds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def write(
    study: Study,
    out: Path,
    command: str,
    *,
    metrics: Sequence[str] = (),
    partial: bool = False,
    report: bool = True,
) -> list[Path]:
    """Write the files into `out`, and return what a reader looks at. metrics: those of the page."""
    frame = study.frame()
    contents = io.BytesIO()
    frame.write_parquet(contents)
    facts = {
        "forebay": __version__,
        "results": RESULTS_VERSION,
        "title": study.points.title,
        "engine": study.points.made.engine,
        "command": command,
        "study": study.points.digest,
        "partial": partial,
        "seeds": study.most_seeds,
        "runs": frame.height,
        "failures": study.failures().to_dicts(),
        HASHES: {FRAME: hashlib.sha256(contents.getvalue()).hexdigest()},
    }
    traffic = study.traffic()
    shared: dict[str, Content] = {} if traffic.is_empty() else {TRAFFIC: traffic}
    if differences := study.differences(metrics):
        table = differences_table(differences, {})
        shared[DIFFERENCES_CSV] = differences_frame(differences, {})
        shared[DIFFERENCES_TEX] = latex(table, DIFFERENCES_NOTE)
    files = {FRAME: contents.getvalue(), CSV: frame, FACTS: facts, **shared}
    publish(out, files, replaces=[TRAFFIC, DIFFERENCES_CSV, DIFFERENCES_TEX])
    written = [out / name for name in (FRAME, CSV, *shared)]
    if report:
        from forebay.campaign import study_page as page  # draws, which takes a while to load

        text = page.html(study, command, metrics=metrics, partial=partial)
        written += publish(out, {PAGE: text})
    return written
