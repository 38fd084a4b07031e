"""The page of a study with its figures: one file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial as bind
from itertools import combinations
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.collections import LineCollection
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from forebay._base.metrics import METRICS, MORE_IS_BETTER, TRAFFIC_METRICS
from forebay._base.registries import title_of
from forebay._base.words import in_figures
from forebay._native import RESULTS_VERSION, __version__
from forebay.campaign import study_files as tables
from forebay.campaign.study import effects
from forebay.experiment.table import EMPTY, Cell, RunTable
from forebay.report import answers, parts
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS, DASHES, MARKERS
from forebay.report.tables import DIFFERENCES_NOTE, Differences, Table, cells_table
from forebay.report.templates import html as page_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from forebay.campaign.study import Study

#: Number of maps side by side, and largest number of lines of parallel axes.
IN_A_ROW, MOST_LINES = 4, 400
SCALES = {"s": ("ms", 1e3), "bit/s": ("Mbit/s", 1e-6)}
#: Metrics that the page shows if none is chosen.
SHOWN = ("delay_p95_s", "goodput_bps", "utilisation")
#: Number of pairs of axes that have maps; `Study.plot` draws the remaining ones.
MOST_PAIRS = 6


class _Grid:
    """Two axes of a study as the columns and lines of maps.

    Parameters
    ----------
    study : Study
        The runs.
    cells : DataFrame
        A row per place, with both axes.
    x, y : str
        The axes.
    """

    def __init__(self, study: Study, cells: pl.DataFrame, x: str, y: str) -> None:
        self.study, self.axes = study, (x, y)
        self.columns, self.lines = cells[x].unique().sort(), cells[y].unique().sort()

    def matrix(self, cells: pl.DataFrame, value: str) -> NDArray[np.float64]:
        """Return a column of cells as a map; NaN at places without a cell."""
        table = np.full((len(self.lines), len(self.columns)), np.nan)
        columns = {at: i for i, at in enumerate(self.columns)}
        lines = {at: i for i, at in enumerate(self.lines)}
        for at_x, at_y, number in cells.select(*self.axes, value).iter_rows():
            table[lines[at_y], columns[at_x]] = number
        return table

    def ticks(self, axes: Axes) -> None:
        """Name the columns and lines of a panel."""
        x, y = self.axes
        columns, lines = _texts(self.study, x, self.columns), _texts(self.study, y, self.lines)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=45)
        axes.set_yticks(np.arange(len(lines)) + 0.5, lines)
        axes.grid(visible=False)


def _title(study: Study, key: str) -> str:
    """Return an axis with its unit."""
    unit = study.points.unit(key)
    unit = SCALES.get(unit, (unit, 1.0))[0]
    return f"{key} [{unit}]" if unit else key


def _texts(study: Study, key: str, values: pl.Series) -> list[str]:
    scale = SCALES.get(study.points.unit(key), ("", 1.0))[1]
    return [value if isinstance(value, str) else in_figures(value * scale) for value in values]


@styled
def heat(study: Study, metric: str, x: str, y: str) -> Plot:
    """Draw a map of a metric over two axes for each law.

    Parameters
    ----------
    study : Study
        The runs.
    metric : str
        Name of the metric; it is averaged over the remaining axes.
    x, y : str
        The axes.
    """
    cells = study.cells(metric, x, y, binned=True)
    grid, laws, scale = _Grid(study, cells, x, y), study.points.laws, METRICS[metric].scale
    figure, panels = parts.small_multiples(
        len(laws), IN_A_ROW, 10, 2.3, more=0.5, sharex=True, sharey=True
    )
    parts.heat_maps(
        figure,
        panels,
        [scale * grid.matrix(cells.filter(pl.col("law") == law), "mean") for law in laws],
        list(map(title_of, laws)),
        norm=parts.wide_norm(scale * cells["mean"].to_numpy()),
        label=METRICS[metric].heading,
        places=grid.ticks,
    )
    parts.label_all(figure, _title(study, x), _title(study, y))
    return figure


@styled
def _winners(study: Study, metric: str, x: str, y: str, *, largest: bool) -> Plot:
    """Draw the law with the best mean at each place, hatched if another law may be as good."""
    laws = study.points.laws
    number = pl.col("law").cast(pl.String).replace_strict({law: i for i, law in enumerate(laws)})
    best = study.best(metric, x, y, more=largest).with_columns(number.alias("number"))
    grid = _Grid(study, best, x, y)
    winners = grid.matrix(best, "number")
    ties = grid.matrix(best.filter(pl.col("ties").list.len() > 0), "number")
    figure, axes = one_panel(10, 4)
    colours = ListedColormap([COLOURS[i % len(COLOURS)] for i in range(len(laws))])
    norm = BoundaryNorm(np.arange(len(laws) + 1) - 0.5, len(laws))
    axes.pcolormesh(winners, cmap=colours, norm=norm, alpha=0.75)
    for (j, i), law in np.ndenumerate(winners):
        if not np.isnan(ties[j, i]):
            box = Rectangle((i, j), 1, 1, fill=False, hatch="////", edgecolor="#555555")
            box.set_linewidth(0)
            # What is inside the panel needs no place in the layout, which would measure it.
            box.set_in_layout(False)
            axes.add_patch(box)
        if not np.isnan(law):
            text = axes.text(i + 0.5, j + 0.5, title_of(laws[int(law)]), ha="center", va="center")
            text.set(fontsize=6.5, bbox={"color": "white", "alpha": 0.7, "pad": 1}, in_layout=False)
    grid.ticks(axes)
    axes.set_xlabel(_title(study, x))
    axes.set_ylabel(_title(study, y))
    used = sorted(set(best["number"]))
    handles = [
        Patch(color=COLOURS[i % len(COLOURS)], alpha=0.75, label=title_of(laws[i])) for i in used
    ]
    hatched: dict[str, Any] = {"facecolor": "white", "edgecolor": "#444444", "hatch": "////"}
    handles.append(Patch(label="may be chance", **hatched))
    figure.legend(handles=handles, loc="outside right upper")
    return figure


@styled
def response(study: Study, metric: str, keys: Sequence[str]) -> Plot:
    """Draw a metric over axes, a panel each, with its 95 % interval over the seeds.

    Parameters
    ----------
    study : Study
        The runs.
    metric : str
        Name of the metric; in each panel it is averaged over the axes that the panel lacks.
    keys : sequence of str
        The axes.
    """
    columns = min(3, len(keys))
    figure, panels = parts.small_multiples(len(keys), 3, 3.4 * columns + 1.2, 2.7, more=0)
    for place, (axes, key) in enumerate(zip(panels, keys, strict=True)):
        _curves(study, axes, metric, key)
        axes.set_xlabel(_title(study, key))
        if place % columns == 0:
            axes.set_ylabel(METRICS[metric].heading)
    handles = [
        Line2D([], [], markersize=4, label=title_of(law), **_look(i))
        for i, law in enumerate(study.points.laws)
    ]
    figure.legend(handles=handles, loc="outside right upper")
    return figure


def _look(law: int) -> dict[str, Any]:
    return {
        "color": COLOURS[law % 7],
        "marker": MARKERS[law % 7],
        "linestyle": DASHES[law // 7 % 3],
    }


def _curves(study: Study, axes: Axes, metric: str, key: str) -> None:
    """Draw the mean of each law over one axis, with a band for its interval."""
    cells, scale = study.cells(metric, key, binned=True), METRICS[metric].scale
    xs = cells[key].unique().sort()
    texts = _texts(study, key, xs)
    place = {value: i for i, value in enumerate(xs)}
    for i, law in enumerate(study.points.laws):
        of_law = cells.filter(pl.col("law") == law)
        at = np.array([place[value] for value in of_law[key]])
        mean, half = scale * of_law["mean"].to_numpy(), scale * of_law["ci95"].to_numpy()
        look = _look(i)
        axes.plot(at, mean, markersize=3.5, linewidth=1.2, **look)
        band: dict[str, Any] = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
        axes.fill_between(at, mean - half, mean + half, **band)
    values = scale * cells["mean"].to_numpy()
    if values.min() > 0 and values.max() > parts.WIDE * values.min():
        axes.set_yscale("log")
    axes.set_xticks(range(len(texts)), texts, rotation=45 if len(texts) > 6 else 0)


@styled
def _parallel(study: Study, metric: str) -> Plot:
    """Draw a line for each point, averaged over laws and seeds, across its axes to the metric."""
    keys = study.axes
    cells = study.cells(metric, *keys).group_by(keys, maintain_order=True)
    table = cells.agg(pl.col("mean").mean())
    if table.height > MOST_LINES:
        table = table.sample(MOST_LINES, seed=1)
    values = METRICS[metric].scale * table["mean"].to_numpy()
    figure, axes = one_panel(10, 3.6)
    columns = [table[key].rank("dense").to_numpy().astype(float) for key in keys]
    columns = [(column - column.min()) / max(np.ptp(column), 1) for column in columns]
    columns.append((values - values.min()) / max(np.ptp(values), 1e-300))
    colours = mpl.colormaps["cividis"](columns[-1])
    lines = [list(enumerate(places)) for places in zip(*columns, strict=True)]
    axes.add_collection(LineCollection(lines, colors=colours, alpha=0.5, linewidths=0.8))
    axes.autoscale_view()
    names = [_title(study, key) for key in keys] + [METRICS[metric].heading]
    ends = [_texts(study, key, table[key].sort())[:: max(1, table.height - 1)] for key in keys]
    ends.append([in_figures(values.min()), in_figures(values.max())])
    labels = [f"{ends[i][-1]}\n…\n{ends[i][0]}\n\n{name}" for i, name in enumerate(names)]
    axes.set_xticks(range(len(names)), labels)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("least to greatest")
    return figure


def _traffic_table(study: Study) -> Table:
    """Return per-traffic results of the bottleneck over all points: a row per law and traffic."""
    rows = study.traffic().filter(pl.col("link") == study.points.links[0])
    metrics = [metric for metric in TRAFFIC_METRICS.values() if rows[metric.name].is_finite().any()]
    cells = RunTable(rows).cell_of([metric.name for metric in metrics], "traffic")
    places = rows.select("law", "traffic").unique(maintain_order=True).sort("law", "traffic")

    def cell(place: tuple[str, str], name: str) -> Cell:
        return cells.get((name, *place), EMPTY)

    named = [(place, bind(cell, place)) for place in places.iter_rows()]
    return cells_table(["Law", "Traffic"], metrics, named)


def _answers(study: Study) -> list[str]:
    """Return what the page answers first; set-points are of the points that are examined."""
    bottleneck = pl.col("link").cast(pl.String) == study.points.links[0]
    greedy = answers.greedy(study.plan) if study.plan else pl.lit(False)
    return answers.sentences(
        study.frame().filter(bottleneck),
        study.traffic().filter(bottleneck, greedy),
        study.measured,
        seeds=study.most_seeds,
    )


def html(study: Study, command: str, *, metrics: Sequence[str] = (), partial: bool = False) -> str:
    """Return the page, with every figure in it.

    Parameters
    ----------
    study : Study
        The runs.
    command : str
        The command line that repeats the study.
    metrics : sequence of str, optional
        Metrics of its tables and figures.
    partial : bool, optional
        True if the time budget was spent before all runs were made.
    """
    varied = study.varied
    pairs = list(combinations(varied, 2))
    failures = study.failures().group_by("fault").len()
    spent = "Partial result: the budget was spent before all runs were made."
    return page_html(
        "study.html.j2",
        title=study.points.title,
        partial=spent if partial else "",
        runs=f"{study.frame().select('point', 'law', 'seed').unique().height:,}",
        points=f"{len(study.points):,}",
        laws=study.points.laws,
        means=tables.laws_table(study, metrics),
        answers=_answers(study),
        warnings=study.warnings,
        differences=Differences.of(study.differences(metrics), {}),
        differences_note=DIFFERENCES_NOTE,
        gains=tables.gains_table(study),
        axes=Table(
            ["Axis", "Values"],
            [
                [_title(study, key), f"{study.points.settings[key].n_unique():,}"]
                for key in study.axes
            ],
        ),
        command=command,
        cite=f"forebay {__version__}, results version {RESULTS_VERSION}, study "
        f"{study.points.digest}",
        scenario=study.points.text,
        figures=[
            (METRICS[metric].title, _figures(study, metric, varied, pairs), _effects(study, metric))
            for metric in metrics or SHOWN
            if not study.cells(metric, *varied[:1]).is_empty()
        ],
        traffic=_traffic_table(study),
        left_out=pairs[MOST_PAIRS:],
        failures=[
            (str(count), why.splitlines()[-1]) for why, count in sorted(failures.iter_rows())
        ],
    )


def _figures(
    study: Study, metric: str, varied: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return the figures of a metric, each with its title, as SVG."""
    name, largest = METRICS[metric].title, metric in MORE_IS_BETTER
    plots = []
    if varied:
        plots.append((f"{name} over each axis", response(study, metric, study.axes)))
    for x, y in pairs[:MOST_PAIRS]:
        plots.append((f"{name} over {x} and {y}", heat(study, metric, x, y)))
        if len(study.points.laws) > 1:
            word = "highest" if largest else "lowest"
            best = _winners(study, metric, x, y, largest=largest)
            plots.append((f"The law with the {word} {name[0].lower()}{name[1:]}", best))
    if len(varied) > 2:
        plots.append((f"{name} along every axis", _parallel(study, metric)))
    return [(title, plot.svg(title)) for title, plot in plots]


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
