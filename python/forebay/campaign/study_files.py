"""The tables and files of a study: what a terminal, a notebook and a folder show of it."""

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
from forebay.report.result_files import DIFFERENCES_CSV, DIFFERENCES_TEX, difference_files
from forebay.report.tables import Table, cells_table

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.publication import Content
    from forebay.campaign.study import Study

#: Number of points whose designed parameters a page shows.
MOST_ROWS = 24


def laws_table(study: Study, metrics: Sequence[str] = ()) -> Table:
    """Return the means over the whole study: a row per law.

    Parameters
    ----------
    study : Study
        The runs.
    metrics : sequence of str, optional
        Metrics of the columns; see `Study.means`.
    """
    means = study.means(metrics)

    def cell(law: str, name: str) -> Cell:
        return means.get((name, law), EMPTY)

    columns = [METRICS[name] for name in dict.fromkeys(name for name, _ in means)]
    rows = [([law], partial(cell, law)) for law in study.points.laws]
    return cells_table(["Law"], columns, rows)


def size(study: Study) -> str:
    """Return the size of a study: "16 points under 2 laws, 96 runs"."""

    def counted(count: int, noun: str) -> str:
        return f"{count:,} {noun}{'' if count == 1 else 's'}"

    points, laws = counted(len(study.points), "point"), counted(len(study.points.laws), "law")
    return f"{points} under {laws}, {counted(study.runs_made(), 'run')}"


def answers(study: Study) -> list[str]:
    """Return the first sentences about a study, as `report.answers.sentences` has them.

    Those on set-points are about the points that are examined.
    """
    from forebay.report.answers import greedy, sentences  # loads jinja2

    bottleneck = pl.col("link").cast(pl.String) == study.points.links[0]
    long_flows = greedy(study.plan) if study.plan else pl.lit(False)
    return sentences(
        study.frame().filter(bottleneck),
        study.traffic().filter(bottleneck, long_flows),
        study.measured,
        seeds=study.most_seeds,
    )


def show(console: Console, study: Study, metrics: Sequence[str] = ()) -> None:
    """Print the answers, the means over the whole study, and its warnings.

    Parameters
    ----------
    console : Console
        The terminal.
    study : Study
        The runs.
    metrics : sequence of str, optional
        Metrics of the columns; see `Study.means`.
    """
    for sentence in answers(study):
        console.print(Text(words.wrapped(sentence, console.width)), soft_wrap=True)
    console.print()
    console.print(Text(study.points.title, style="bold"))
    console.print(f"{size(study)}; means over all points")
    table = laws_table(study, metrics)
    law, *headings = table.heads
    columns = [Column(law, align_left=True), *map(Column.from_heading, headings)]
    terminal_table.show(console, columns, [RowGroup(table.rows)])
    console.print(Text(tables.interval_note(study.most_seeds, "--add-seeds 4"), style="dim"))
    if study.warnings:
        console.print()
    tables.warnings(console, study.warnings)


def gains_table(study: Study) -> Table | None:
    """Return the designed parameters of laws at the first points; None if no law is designed."""
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
#: Key of the facts: the hash of each file that `forebay compare` reads.
HASHES = "sha256"
#: Per-traffic results, if several traffics cross a link.
TRAFFIC = "traffic.parquet"


def former_seeds(out: Path) -> int:
    """Return the number of seeds of the result that a folder has; 0 if it has none."""
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
    """Write the files of a study.

    Parameters
    ----------
    study : Study
        The runs.
    out : Path
        Folder of the files.
    command : str
        The command line that repeats the study.
    metrics : sequence of str, optional
        Metrics of the page and of differences.
    partial : bool, optional
        True if the time budget was spent before all runs were made.
    report : bool, optional
        False to write no page.

    Returns
    -------
    list of Path
        The files that a reader looks at.
    """
    frame = study.frame()
    contents = io.BytesIO()
    frame.write_parquet(contents)
    facts = {
        "forebay": __version__,
        "results": RESULTS_VERSION,
        "title": study.points.title,
        "engine": study.points.made_by.engine,
        "command": command,
        "study": study.points.digest,
        "partial": partial,
        "seeds": study.most_seeds,
        "runs": frame.height,
        "failures": study.failures().to_dicts(),
        HASHES: {FRAME: hashlib.sha256(contents.getvalue()).hexdigest()},
    }
    traffic = study.traffic()
    more: dict[str, Content] = {} if traffic.is_empty() else {TRAFFIC: traffic}
    more |= difference_files(study.differences(metrics))
    files = {FRAME: contents.getvalue(), CSV: frame, FACTS: facts, **more}
    publish(out, files, replaces=[TRAFFIC, DIFFERENCES_CSV, DIFFERENCES_TEX])
    written = [out / name for name in (FRAME, CSV, *more)]
    if report:
        from forebay.campaign import study_page as page

        text = page.html(study, command, metrics=metrics, spent=partial)
        written += publish(out, {PAGE: text})
    return written
