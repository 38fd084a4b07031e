"""The page of a study with its figures: one file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from forebay._base.metrics import METRICS, MORE_IS_BETTER, TRAFFIC_METRICS
from forebay._base.words import in_figures
from forebay._native import RESULTS_VERSION, __version__
from forebay.campaign import study_files as tables
from forebay.campaign.study import Effect, effects
from forebay.experiment.table import EMPTY, Cell, RunTable
from forebay.report import answers, parts
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS, DASHES, MARKERS
from forebay.report.tables import DIFFERENCES_NOTE, Differences, Table, cells_table
from forebay.report.templates import html as page_html

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.campaign.study import Study

#: Laws beside each other in a row of maps, and lines of parallel axes.
IN_A_ROW, MOST_LINES = 4, 400
SCALES = {"s": ("ms", 1e3), "bit/s": ("Mbit/s", 1e-6)}


def axis_title(study: Study, key: str) -> str:
    """Return an axis with its unit."""
    unit = study.points.unit(key)
    shown = SCALES.get(unit, (unit, 1.0))[0]
    return f"{key} [{shown}]" if shown else key


def _texts(study: Study, key: str, values: pl.Series) -> list[str]:
    scale = SCALES.get(study.points.unit(key), ("", 1.0))[1]
    return [value if isinstance(value, str) else in_figures(value * scale) for value in values]


@styled
def heat(study: Study, metric: str, x: str, y: str) -> Plot:
    """Draw a map for each law; over the other axes it shows the mean."""
    cells = study.cells(metric, x, y, binned=True)
    xs, ys = cells[x].unique().sort(), cells[y].unique().sort()
    laws, scale = study.points.laws, METRICS[metric].scale
    figure, panels = parts.small_multiples(
        len(laws), IN_A_ROW, 10, 2.3, more=0.5, sharex=True, sharey=True
    )
    tables = [
        scale * _matrix(cells.filter(pl.col("law") == law), x, y, xs, ys, "mean") for law in laws
    ]
    parts.heat_maps(
        figure,
        panels,
        tables,
        laws,
        norm=parts.wide_norm(scale * cells["mean"].to_numpy()),
        label=METRICS[metric].heading,
        places=lambda axes: _places(study, axes, x, y, xs, ys),
    )
    parts.label_all(figure, axis_title(study, x), axis_title(study, y))
    return figure


@styled
def winners(study: Study, metric: str, x: str, y: str, *, largest: bool) -> Plot:
    """Draw the law with the best mean at each place; hatched where that may be chance."""
    found = study.best(metric, x, y, more=largest)
    xs, ys = found[x].unique().sort(), found[y].unique().sort()
    laws = study.points.laws
    rank = pl.col("law").cast(pl.String).replace_strict({law: i for i, law in enumerate(laws)})
    number = found.with_columns(rank.alias("n"))
    shown = _matrix(number, x, y, xs, ys, "n")
    chance = _matrix(number.filter(pl.col("ties").list.len() > 0), x, y, xs, ys, "n")
    figure, axes = one_panel(10, 4)
    colours = ListedColormap([COLOURS[i % len(COLOURS)] for i in range(len(laws))])
    norm = BoundaryNorm(np.arange(len(laws) + 1) - 0.5, len(laws))
    axes.pcolormesh(shown, cmap=colours, norm=norm, alpha=0.75)
    for (j, i), value in np.ndenumerate(shown):
        if not np.isnan(chance[j, i]):
            box = Rectangle((i, j), 1, 1, fill=False, hatch="////", edgecolor="#555555")
            box.set_linewidth(0)
            axes.add_patch(box)
        if not np.isnan(value):
            text = axes.text(i + 0.5, j + 0.5, laws[int(value)], ha="center", va="center")
            text.set(fontsize=6.5, bbox={"color": "white", "alpha": 0.7, "pad": 1})
    _places(study, axes, x, y, xs, ys)
    axes.set_xlabel(axis_title(study, x))
    axes.set_ylabel(axis_title(study, y))
    used = sorted(set(number["n"]))
    handles = [Patch(color=COLOURS[i % len(COLOURS)], alpha=0.75, label=laws[i]) for i in used]
    hatched: dict[str, Any] = {"facecolor": "white", "edgecolor": "#444444", "hatch": "////"}
    handles.append(Patch(label="may be chance", **hatched))
    figure.legend(handles=handles, loc="outside right upper")
    return figure


@styled
def response(study: Study, metric: str, keys: list[str] | None = None) -> Plot:
    """Draw a panel for each axis: the mean over all others, with its 95 % interval over the
    seeds."""
    keys = keys or study.axes
    columns = min(3, len(keys))
    figure, panels = parts.small_multiples(len(keys), 3, 3.4 * columns + 1.2, 2.7, more=0)
    for place, (axes, key) in enumerate(zip(panels, keys, strict=True)):
        _curves(study, axes, metric, key)
        axes.set_xlabel(axis_title(study, key))
        if place % columns == 0:
            axes.set_ylabel(METRICS[metric].heading)
    handles = [
        Line2D([], [], markersize=4, label=law, **_look(i))
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
def parallel(study: Study, metric: str) -> Plot:
    """Draw a line for each point, averaged over laws and seeds, across its axes to the metric."""
    keys = study.axes
    table = (
        study.cells(metric, *keys).group_by(keys, maintain_order=True).agg(pl.col("mean").mean())
    )
    if table.height > MOST_LINES:
        table = table.sample(MOST_LINES, seed=1)
    values = METRICS[metric].scale * table["mean"].to_numpy()
    figure, axes = one_panel(10, 3.6)
    columns = [table[key].rank("dense").to_numpy().astype(float) for key in keys]
    columns = [(c - c.min()) / max(np.ptp(c), 1) for c in columns]
    columns.append((values - values.min()) / max(np.ptp(values), 1e-300))
    colours = mpl.colormaps["cividis"](columns[-1])
    for i in range(table.height):
        axes.plot([c[i] for c in columns], color=colours[i], alpha=0.5, linewidth=0.8)
    names = [axis_title(study, key) for key in keys] + [METRICS[metric].heading]
    ends = [_texts(study, key, table[key].sort())[:: max(1, table.height - 1)] for key in keys]
    ends.append([in_figures(values.min()), in_figures(values.max())])
    labels = [f"{ends[i][-1]}\n…\n{ends[i][0]}\n\n{name}" for i, name in enumerate(names)]
    axes.set_xticks(range(len(names)), labels)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.set_ylabel("least to greatest")
    return figure


def _matrix(
    cells: pl.DataFrame, x: str, y: str, xs: pl.Series, ys: pl.Series, value: str
) -> np.ndarray[Any, Any]:
    table = np.full((len(ys), len(xs)), np.nan)
    columns = {one: i for i, one in enumerate(xs)}
    lines = {one: i for i, one in enumerate(ys)}
    for a, b, number in cells.select(x, y, value).iter_rows():
        table[lines[b], columns[a]] = number
    return table


def _places(study: Study, axes: Axes, x: str, y: str, xs: pl.Series, ys: pl.Series) -> None:
    axes.set_xticks(np.arange(len(xs)) + 0.5, _texts(study, x, xs), rotation=45)
    axes.set_yticks(np.arange(len(ys)) + 0.5, _texts(study, y, ys))
    axes.grid(visible=False)


#: What the page compares laws by where nothing is chosen.
SHOWN = ("delay_p95_s", "goodput_bps", "utilisation")
#: Pairs of axes that have maps; the others are a call away.
MOST_PAIRS = 6


def traffic_table(study: Study) -> Table:
    """Return per-traffic results of the bottleneck, over all points: a row for each law and
    traffic."""
    shares = study.traffic().filter(pl.col("link") == study.points.links[0])
    metrics = [
        metric for metric in TRAFFIC_METRICS.values() if shares[metric.name].is_finite().any()
    ]
    cells = RunTable(shares).cell_of([metric.name for metric in metrics], "traffic")
    places = shares.select("law", "traffic").unique(maintain_order=True).sort("law", "traffic")

    def cell(place: tuple[str, str], name: str) -> Cell:
        return cells.get((name, *place), EMPTY)

    rows = [(place, partial(cell, place)) for place in places.iter_rows()]
    return cells_table(["Law", "Traffic"], metrics, rows)


def told(study: Study) -> list[str]:
    """Return what a report answers first, with the set-points of the points that are looked at one
    by one."""
    shared = study.traffic()
    bottleneck = pl.col("link").cast(pl.String) == study.points.links[0]
    greedy = answers.greedy(study.plan) if study.plan else pl.lit(False)
    return answers.sentences(
        study.frame().filter(bottleneck),
        shared.filter(bottleneck, greedy),
        study.measured,
        seeds=study.most_seeds,
    )


def html(study: Study, command: str, *, metrics: Sequence[str] = (), partial: bool = False) -> str:
    """Return the page, with every figure in it. metrics: what to draw; `SHOWN` if none is named."""
    varied = [key for key in study.axes if study.points.settings[key].n_unique() > 1]
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
        answers=told(study),
        warnings=study.warnings,
        differences=Differences.of(study.differences(metrics), {}),
        differences_note=DIFFERENCES_NOTE,
        gains=tables.gains_table(study),
        axes=[
            (axis_title(study, key), f"{study.points.settings[key].n_unique():,}")
            for key in study.axes
        ],
        command=command,
        cite=f"forebay {__version__}, results version {RESULTS_VERSION}, study "
        f"{study.points.digest}",
        scenario=study.points.text,
        figures=[
            (METRICS[metric].title, _figures(study, metric, varied, pairs), _shares(study, metric))
            for metric in metrics or SHOWN
            if not study.cells(metric, *varied[:1]).is_empty()
        ],
        traffic=traffic_table(study),
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
        plots.append((f"{name} over each axis", response(study, metric)))
    for x, y in pairs[:MOST_PAIRS]:
        plots.append((f"{name} over {x} and {y}", heat(study, metric, x, y)))
        if len(study.points.laws) > 1:
            word = "most" if largest else "least"
            best = winners(study, metric, x, y, largest=largest)
            plots.append((f"The law with the {word} {name[0].lower()}{name[1:]}", best))
    if len(varied) > 2:
        plots.append((f"{name} along every axis", parallel(study, metric)))
    return [(title, plot.svg(title)) for title, plot in plots]


def _shares(study: Study, metric: str) -> list[Effect] | None:
    """Return which axis matters; None without SALib, for a sample."""
    try:
        return effects(study, metric)
    except ImportError:
        return None
