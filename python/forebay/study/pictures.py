"""Figures of a study: heat maps, curves with intervals, who is best where, and parallel axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm, Normalize
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from forebay.report.plots import COLOURS, STYLE, Plot
from forebay.report.style import DASHES, MARKERS
from forebay.run.metrics import METRICS
from forebay.study.best import best

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.study.study import Study

#: Laws beside each other in a row of maps, and lines of parallel axes.
IN_A_ROW, MOST_LINES = 4, 400
#: How many times the least a metric must reach for a logarithmic scale.
WIDE = 30.0
SCALES = {"s": ("ms", 1e3), "bit/s": ("Mbit/s", 1e-6)}


def title(study: Study, key: str) -> str:
    """An axis with its unit."""
    unit = study.points.unit(key)
    shown = SCALES.get(unit, (unit, 1.0))[0]
    return f"{key} [{shown}]" if shown else key


def _texts(study: Study, key: str, values: pl.Series) -> list[str]:
    scale = SCALES.get(study.points.unit(key), ("", 1.0))[1]
    return [one if isinstance(one, str) else f"{one * scale:.3g}" for one in values]


def heat(study: Study, metric: str, x: str, y: str) -> Plot:
    """A map for each law; over the other axes it shows the mean."""
    cells = study.cells(metric, x, y, binned=True)
    xs, ys = cells[x].unique().sort(), cells[y].unique().sort()
    laws, scale = study.points.laws, METRICS[metric].scale
    columns = min(IN_A_ROW, len(laws))
    lines = -(-len(laws) // columns)
    values = scale * cells["mean"].to_numpy()
    norm: Any = Normalize(values.min(), values.max())
    if values.min() > 0 and values.max() / values.min() > WIDE:
        norm = LogNorm(values.min(), values.max())
    with mpl.rc_context(STYLE):
        size = (10, 2.3 * lines + 0.5)
        figure = Plot(figsize=size, layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
        mesh = None
        for index, axes in enumerate(grid.ravel()):
            if index >= len(laws):
                axes.set_axis_off()
                continue
            table = _matrix(cells.filter(pl.col("law") == laws[index]), x, y, xs, ys, "mean")
            mesh = axes.pcolormesh(scale * table, cmap="cividis", norm=norm)
            axes.set_title(laws[index])
            _places(study, axes, x, y, xs, ys)
        if mesh is not None:
            figure.colorbar(mesh, ax=grid, label=METRICS[metric].heading, shrink=0.9)
        figure.supxlabel(title(study, x), fontsize=9)
        figure.supylabel(title(study, y), fontsize=9)
        return figure


def winners(study: Study, metric: str, x: str, y: str, *, largest: bool) -> Plot:
    """The law with the best mean at each place; hatched where that may be chance."""
    found = best(study, metric, x, y, largest=largest)
    xs, ys = found[x].unique().sort(), found[y].unique().sort()
    laws = study.points.laws
    number = found.with_columns(
        pl.col("law")
        .cast(pl.String)
        .replace_strict({law: i for i, law in enumerate(laws)})
        .alias("n")
    )
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(10, 4), layout="constrained")
        axes = figure.subplots()
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(laws))]
        norm = BoundaryNorm(np.arange(len(laws) + 1) - 0.5, len(laws))
        axes.pcolormesh(
            _matrix(number, x, y, xs, ys, "n"), cmap=ListedColormap(colours), norm=norm, alpha=0.75
        )
        chance = _matrix(number.filter("ties"), x, y, xs, ys, "n")
        for (j, i), value in np.ndenumerate(chance):
            if value == value:
                box = Rectangle((i, j), 1, 1, fill=False, hatch="////", edgecolor="#555555")
                box.set_linewidth(0)
                axes.add_patch(box)
        for (j, i), value in np.ndenumerate(_matrix(number, x, y, xs, ys, "n")):
            if value == value:
                text = axes.text(i + 0.5, j + 0.5, laws[int(value)], ha="center", va="center")
                text.set(fontsize=6.5, bbox={"color": "white", "alpha": 0.7, "pad": 1})
        _places(study, axes, x, y, xs, ys)
        axes.set_xlabel(title(study, x))
        axes.set_ylabel(title(study, y))
        used = sorted(set(number["n"]))
        handles = [Patch(color=colours[i], alpha=0.75, label=laws[i]) for i in used]
        handles.append(
            Patch(facecolor="white", edgecolor="#444444", hatch="////", label="may be chance")
        )
        figure.legend(handles=handles, loc="outside right upper")
        return figure


def response(study: Study, metric: str, keys: list[str] | None = None) -> Plot:
    """A panel for each axis: the mean over all others, with its 95 % interval over the seeds."""
    scale = METRICS[metric].scale
    keys = keys or study.axes
    columns = min(3, len(keys))
    lines = -(-len(keys) // columns)
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(3.4 * columns + 1.2, 2.7 * lines), layout="constrained")
        grid = figure.subplots(lines, columns, squeeze=False, sharey=True)
        for place, axes in enumerate(grid.ravel()):
            if place >= len(keys):
                axes.set_axis_off()
                continue
            _curves(study, axes, metric, keys[place], scale)
            axes.set_xlabel(title(study, keys[place]))
            if place % columns == 0:
                axes.set_ylabel(METRICS[metric].heading)
        handles = [
            Line2D(
                [], [], color=COLOURS[i % 7], marker=MARKERS[i % 7],
                linestyle=DASHES[i // 7 % 3], markersize=4, label=law,
            )
            for i, law in enumerate(study.points.laws)
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside right upper")
        return figure


def _curves(study: Study, axes: Axes, metric: str, key: str, scale: float) -> None:
    cells = study.cells(metric, key, binned=True)
    xs = cells[key].unique().sort()
    texts = _texts(study, key, xs)
    place = {value: i for i, value in enumerate(xs)}
    for i, law in enumerate(study.points.laws):
        of_law = cells.filter(pl.col("law") == law)
        at = np.array([place[value] for value in of_law[key]])
        mean, half = scale * of_law["mean"].to_numpy(), scale * of_law["ci95"].to_numpy()
        style = {"color": COLOURS[i % 7], "linestyle": DASHES[i // 7 % 3]}
        axes.plot(at, mean, marker=MARKERS[i % 7], markersize=3.5, linewidth=1.2, **style)
        axes.fill_between(
            at, mean - half, mean + half, color=style["color"], alpha=0.15, linewidth=0
        )
    values = scale * cells["mean"].to_numpy()
    if values.min() > 0 and values.max() / values.min() > WIDE:
        axes.set_yscale("log")
    axes.set_xticks(range(len(texts)), texts, rotation=45 if len(texts) > 6 else 0)


def parallel(study: Study, metric: str) -> Plot:
    """A line for each point, averaged over laws and seeds, across its axes to the metric."""
    keys = study.axes
    table = (
        study.cells(metric, *keys).group_by(keys, maintain_order=True).agg(pl.col("mean").mean())
    )
    if table.height > MOST_LINES:
        table = table.sample(MOST_LINES, seed=1)
    values = METRICS[metric].scale * table["mean"].to_numpy()
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(10, 3.6), layout="constrained")
        axes = figure.subplots()
        columns = [table[key].rank("dense").to_numpy().astype(float) for key in keys]
        columns = [(c - c.min()) / max(np.ptp(c), 1) for c in columns]
        columns.append((values - values.min()) / max(np.ptp(values), 1e-300))
        colours = mpl.colormaps["cividis"](columns[-1])
        for i in range(table.height):
            axes.plot([c[i] for c in columns], color=colours[i], alpha=0.5, linewidth=0.8)
        names = [title(study, key) for key in keys] + [METRICS[metric].heading]
        ends = [_texts(study, key, table[key].sort())[:: max(1, table.height - 1)] for key in keys]
        ends.append([f"{values.min():.3g}", f"{values.max():.3g}"])
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
