"""The page of a study with the data of its figures: one file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay._base.metrics import METRICS, MORE_IS_BETTER, TRAFFIC_METRICS
from forebay._base.registries import title_of
from forebay._base.words import in_figures
from forebay._native import RESULTS_VERSION, __version__
from forebay.campaign import study_files as tables
from forebay.campaign.study import effects
from forebay.experiment.table import EMPTY, Cell, RunTable
from forebay.report.drawing_pool import DrawingPool
from forebay.report.pages import PageFigure
from forebay.report.result_files import MANY_FIGURES
from forebay.report.sheet import AxisResponse, Drawing, MapRow, Maps
from forebay.report.tables import DIFFERENCES_NOTE, Differences, Table, cells_table
from forebay.report.templates import html as page_html

if TYPE_CHECKING:
    from forebay.campaign.study import Study

#: Largest number of lines of parallel axes.
MOST_LINES = 400
SCALES = {"s": ("ms", 1e3), "bit/s": ("Mbit/s", 1e-6)}
#: Metrics that the page shows if none is chosen.
SHOWN = ("delay_p95_s", "goodput_bps", "utilisation")
#: Number of pairs of axes that have maps; `Study.plot` draws the remaining ones.
MOST_PAIRS = 6


def loaded(study: Study, metrics: Sequence[str], *, binned: bool = False) -> RunTable:
    """Return metrics of the bottleneck in every run, read from the store once for several figures.

    Parameters
    ----------
    study : Study
        The study.
    metrics : sequence of str
        Names of metrics.
    binned : bool, optional
        True to cut an axis with many values into parts: see `Study.table`.
    """
    return RunTable(study.store.read(study.table(*metrics, binned=binned).rows.collect))


def _drawing(function: str, *arguments: Any) -> Drawing:
    """Return a figure that a function of `study_drawing` draws."""
    return Drawing(f"forebay.campaign.study_drawing:{function}", arguments)


def _maps(
    study: Study, label: str, cells: Sequence[tuple[pl.DataFrame, str]], axes: tuple[str, str]
) -> Maps:
    """Return columns of cells as maps over two axes; NaN at places without a cell.

    Parameters
    ----------
    study : Study
        The study.
    label : str
        Label of the values.
    cells : sequence of (DataFrame, str)
        Cells, and the column that has their values.
    axes : (str, str)
        The horizontal and the vertical axis.
    """
    x, y = axes
    places = [pl.concat([frame[axis] for frame, _ in cells]).unique().sort() for axis in axes]
    columns, lines = ({at: i for i, at in enumerate(values)} for values in places)
    tables = []
    for frame, value in cells:
        table = np.full((len(lines), len(columns)), np.nan)
        for at_x, at_y, number in frame.select(x, y, value).iter_rows():
            table[lines[at_y], columns[at_x]] = number
        tables.append(table)
    return Maps(
        list(map(title_of, study.points.laws)),
        [MapRow(label, tables)],
        _title(study, x),
        _title(study, y),
        _texts(study, x, places[0]),
        _texts(study, y, places[1]),
    )


def _title(study: Study, key: str) -> str:
    """Return an axis with its unit."""
    unit = study.points.unit(key)
    unit = SCALES.get(unit, (unit, 1.0))[0]
    return f"{key} [{unit}]" if unit else key


def _texts(study: Study, key: str, values: pl.Series) -> list[str]:
    scale = SCALES.get(study.points.unit(key), ("", 1.0))[1]
    return [value if isinstance(value, str) else in_figures(value * scale) for value in values]


def heat(study: Study, runs: RunTable, metric: str, x: str, y: str) -> Drawing:
    """Return a map of a metric over two axes for each law.

    Parameters
    ----------
    study : Study
        The study.
    runs : RunTable
        Its runs, as `loaded` returns them.
    metric : str
        Name of the metric; it is averaged over the remaining axes.
    x, y : str
        The axes.
    """
    scaled = pl.col("mean") * METRICS[metric].scale
    cells = runs.cells(metric, x, y).with_columns(scaled)
    by_law = [(cells.filter(pl.col("law") == law), "mean") for law in study.points.laws]
    return _drawing("heat", _maps(study, METRICS[metric].heading, by_law, (x, y)))


def _winners(study: Study, runs: RunTable, metric: str, x: str, y: str) -> Drawing:
    """Return the law with the best mean at each place, hatched if another law may be as good."""
    laws = study.points.laws
    number = pl.col("law").cast(pl.String).replace_strict({law: i for i, law in enumerate(laws)})
    best = runs.best(metric, x, y, more=metric in MORE_IS_BETTER)
    best = best.with_columns(number.alias("number"))
    tied = best.filter(pl.col("ties").list.len() > 0)
    return _drawing("winners", _maps(study, "", [(best, "number"), (tied, "number")], (x, y)))


def response(study: Study, runs: RunTable, metric: str, keys: Sequence[str]) -> Drawing:
    """Return a metric over axes, a panel each, with its 95 % interval over the seeds.

    Parameters
    ----------
    study : Study
        The study.
    runs : RunTable
        Its runs, as `loaded` returns them.
    metric : str
        Name of the metric; in each panel it is averaged over the axes that the panel lacks.
    keys : sequence of str
        The axes.
    """
    scale, panels = METRICS[metric].scale, []
    for key in keys:
        cells = runs.cells(metric, key)
        values = cells[key].unique().sort()
        place = {value: i for i, value in enumerate(values)}
        of_laws = [cells.filter(pl.col("law") == law) for law in study.points.laws]
        curves = [
            (
                np.array([place[value] for value in of_law[key]], float),
                scale * of_law["mean"].to_numpy(),
                scale * of_law["ci95"].to_numpy(),
            )
            for of_law in of_laws
        ]
        panels.append(AxisResponse(_title(study, key), _texts(study, key, values), curves))
    titles = list(map(title_of, study.points.laws))
    return _drawing("response", METRICS[metric].heading, titles, panels)


def _parallel(study: Study, runs: RunTable, metric: str) -> Drawing:
    """Return a line for each point, averaged over laws and seeds, across its axes to the metric."""
    keys = study.axes
    cells = runs.cells(metric, *keys).group_by(keys, maintain_order=True)
    table = cells.agg(pl.col("mean").mean())
    if table.height > MOST_LINES:
        table = table.sample(MOST_LINES, seed=1)
    values = METRICS[metric].scale * table["mean"].to_numpy()
    columns = [table[key].rank("dense").to_numpy().astype(float) for key in keys]
    columns = [(column - column.min()) / max(np.ptp(column), 1) for column in columns]
    columns.append((values - values.min()) / max(np.ptp(values), 1e-300))
    names = [_title(study, key) for key in keys] + [METRICS[metric].heading]
    ends = [_texts(study, key, table[key].sort())[:: max(1, table.height - 1)] for key in keys]
    ends.append([in_figures(values.min()), in_figures(values.max())])
    labels = [f"{ends[i][-1]}\n…\n{ends[i][0]}\n\n{name}" for i, name in enumerate(names)]
    return _drawing("parallel", labels, columns)


def _traffic_table(study: Study) -> Table:
    """Return per-traffic results of the bottleneck over all points: a row per law and traffic."""
    rows = study.traffic().filter(pl.col("link") == study.points.links[0])
    metrics = [metric for metric in TRAFFIC_METRICS.values() if rows[metric.name].is_finite().any()]
    cells = RunTable(rows).cell_of([metric.name for metric in metrics], "traffic")
    places = rows.select("law", "traffic").unique(maintain_order=True).sort("law", "traffic")

    def cell(place: tuple[str, str], name: str) -> Cell:
        return cells.get((name, *place), EMPTY)

    named = [(place, partial(cell, place)) for place in places.iter_rows()]
    return cells_table(["Law", "Traffic"], metrics, named)


def html(study: Study, command: str, *, metrics: Sequence[str] = (), spent: bool = False) -> str:
    """Return the page, with every figure in it.

    Parameters
    ----------
    study : Study
        The runs.
    command : str
        The command line that repeats the study.
    metrics : sequence of str, optional
        Metrics of its tables and figures.
    spent : bool, optional
        True if the time budget was spent before all runs were made.
    """
    with DrawingPool() as pool:
        figures = _figures(study, metrics or SHOWN)
        count = sum(map(len, figures.values()))
        if count >= MANY_FIGURES and pool.start(count):
            for figure in chain(*figures.values()):
                figure.begin(pool)
        values = _page_values(study, metrics)
        effects_of = {metric: _effects(study, metric) for metric in figures}
        for figure in chain(*figures.values()):
            figure.render()
    partly = "Partial result: the budget was spent before all runs were made."
    return page_html(
        "study.html.j2",
        partial=partly if spent else "",
        command=command,
        figures=[
            (METRICS[metric].title, of_metric, effects_of[metric])
            for metric, of_metric in figures.items()
        ],
        **values,
    )


def _page_values(study: Study, metrics: Sequence[str]) -> dict[str, Any]:
    """Return the values of the page's template, without figures."""
    failures = study.failures().group_by("fault").len()
    return {
        "title": study.points.title,
        "runs": f"{study.frame().select('point', 'law', 'seed').unique().height:,}",
        "points": f"{len(study.points):,}",
        "laws": study.points.laws,
        "means": tables.laws_table(study, metrics),
        "answers": tables.answers(study),
        "warnings": study.warnings,
        "differences": Differences.of(study.differences(metrics), {}),
        "differences_note": DIFFERENCES_NOTE,
        "gains": tables.gains_table(study),
        "axes": Table(
            ["Axis", "Values"],
            [
                [_title(study, key), f"{study.points.settings[key].n_unique():,}"]
                for key in study.axes
            ],
        ),
        "cite": f"forebay {__version__}, results version {RESULTS_VERSION}, study "
        f"{study.points.digest}",
        "scenario": study.points.text,
        "traffic": _traffic_table(study),
        "left_out": list(combinations(study.varied, 2))[MOST_PAIRS:],
        "failures": [
            (str(count), why.splitlines()[-1]) for why, count in sorted(failures.iter_rows())
        ],
    }


def _figures(study: Study, metrics: Sequence[str]) -> dict[str, list[PageFigure]]:
    """Return the figures of each metric that has values, without files of their own."""
    runs, binned = loaded(study, metrics), loaded(study, metrics, binned=True)
    figures: dict[str, list[PageFigure]] = {}
    for metric in metrics:
        if runs.cells(metric, *study.varied[:1]).is_empty():
            continue
        name = METRICS[metric].title
        word = "highest" if metric in MORE_IS_BETTER else "lowest"
        of_metric = figures[metric] = []
        if study.varied:
            make = partial(response, study, binned, metric, study.axes)
            of_metric.append(PageFigure("", make, f"{name} over each axis"))
        for x, y in list(combinations(study.varied, 2))[:MOST_PAIRS]:
            make = partial(heat, study, binned, metric, x, y)
            of_metric.append(PageFigure("", make, f"{name} over {x} and {y}"))
            if len(study.points.laws) > 1:
                title = f"The law with the {word} {name[0].lower()}{name[1:]}"
                make = partial(_winners, study, binned, metric, x, y)
                of_metric.append(PageFigure("", make, title))
        if len(study.varied) > 2:
            make = partial(_parallel, study, runs, metric)
            of_metric.append(PageFigure("", make, f"{name} along every axis"))
    return figures


def _effects(study: Study, metric: str) -> Table | None:
    """Return the effects of the axes; None without SALib, for a sample."""
    try:
        indices = effects(study, metric)
    except ImportError:
        return None
    rows = [
        [
            effect.law,
            effect.axis,
            f"{effect.first:.2f}",
            f"{effect.total:.2f}" if effect.total == effect.total else "–",
        ]
        for effect in indices
    ]
    return Table(["Law", "Axis", "First-order", "Total"], rows, keys=2)
