"""What a study tells at a glance: a row for each law, in a terminal and in a notebook."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl
from rich.text import Text

from forebay._base import quantities, terminal_table, words
from forebay._base.metrics import METRICS
from forebay._base.terminal_table import Column, RowGroup
from forebay.experiment.table import EMPTY
from forebay.report import tables
from forebay.report.tables import Table, mean_text

#: Points whose numbers a page shows.
MOST_ROWS = 24

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.campaign.study import Study


def laws_table(study: Study, metrics: Sequence[str] = ()) -> Table:
    """Means over the whole study: see `Study.means`."""
    means = study.means(metrics)
    shown = [METRICS[name] for name in dict.fromkeys(name for name, _ in means)]
    return Table(
        ["Law", *(metric.heading for metric in shown)],
        [
            [law, *(mean_text(means.get((metric.name, law), EMPTY), metric) for metric in shown)]
            for law in study.points.laws
        ],
    )


def size(study: Study) -> str:
    """How much there is of it: "16 points under 2 laws, 96 runs"."""
    runs = study.runs_made()
    laws = len(study.points.laws)
    return (
        f"{len(study.points):,} {'point' if len(study.points) == 1 else 'points'} under {laws} "
        f"{'law' if laws == 1 else 'laws'}, {runs:,} {'run' if runs == 1 else 'runs'}"
    )


def show(console: Console, study: Study, metrics: Sequence[str] = ()) -> None:
    """Prints the table."""
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
    """The numbers that laws have got at the first points; None where none asks for a design."""
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
