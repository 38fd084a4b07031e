"""Figures that a reader can zoom and filter: their sheets as numbers for `web/report.js`."""

from __future__ import annotations

import base64
import gzip
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forebay.report import style
from forebay.report.sheet import Curve, Floats, Panel, Scale, Sheet

#: Largest number of values of all curves over time in a page; each takes about 1.5 bytes as text.
MOST_VALUES = 700_000
#: Smallest number of steps of a curve, however many curves there are.
FEWEST_STEPS = 300
#: Largest number of seeds with a curve of their own; the band covers all seeds.
MOST_SEEDS = 10
#: Largest number of points of a curve of shares.
MOST_SHARES = 2000
#: The tag of the band over all seeds.
ALL = "all seeds"


#: Whole numbers below this have differences that fit into 32 bits.
MOST_WHOLE = 2**29
#: Largest deviation of times from equal steps, relative to a step.
TINY = 1e-6


class PackedColumns:
    """Columns of numbers that a page names by their index, packed into one text.

    Whole numbers are stored as differences, since neighbours are similar, and others as 32-bit
    floats; bytes of the same significance are adjacent. The text is gzip, which browsers read by
    themselves (`DecompressionStream`), in base64.

    Attributes
    ----------
    columns : list
        The kind and the length of each column, followed by its first byte, or by its first value
        and its step.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0
        #: of each column its kind and length; then its first byte, or its first value and step
        self.columns: list[list[Any]] = []

    def add(self, values: NDArray[Any]) -> int:
        """Append a column and return its index. NaN means that there is no value."""
        values = np.asarray(values)
        whole = values.dtype.kind in "ui" or bool(
            np.isfinite(values).all() and (values == np.rint(values)).all()
        )
        if whole and len(values) and np.abs(values.astype(float)).max() < MOST_WHOLE:
            steps = np.diff(values.astype(np.int64), prepend=0).astype(np.int32)
            # Small numbers of either sign become small numbers (zigzag).
            words: NDArray[Any] = ((steps << 1) ^ (steps >> 31)).astype("<u4")
            kind = "i"
        else:
            words, kind = values.astype("<f4"), "f"
        return self._pack(kind, words)

    def add_times(self, times: NDArray[Any]) -> int:
        """Append positions along an axis and return the index of the column.

        Equal steps take no space.
        """
        if len(times) > 1:
            step = float(times[-1] - times[0]) / (len(times) - 1)
            even = times[0] + step * np.arange(len(times))
            if step > 0 and np.abs(times - even).max() < TINY * step:
                # Twelve digits remove the rounding error at the end of a step such as 0.01.
                first, step = (float(f"{value:.12g}") for value in (times[0], step))
                self.columns.append(["r", len(times), first, step])
                return len(self.columns) - 1
        return self._pack("d", np.asarray(times, "<f8"))

    def _pack(self, kind: str, words: NDArray[Any]) -> int:
        """Append words of a kind as planes of bytes."""
        planes = np.frombuffer(words.tobytes(), np.uint8).reshape(-1, words.itemsize).T
        self.columns.append([kind, len(words), self._at])
        self._parts.append(planes.tobytes())
        self._at += planes.size
        return len(self.columns) - 1

    def text(self) -> str:
        """Return all columns as one text. The same numbers give the same text."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 6, mtime=0)).decode()


@dataclass(frozen=True)
class MovingFigures:
    """Figures that a page draws by itself.

    Attributes
    ----------
    figures : list[dict[str, Any]]
        The figures as values for JSON.
    columns : list[list[Any]]
        The columns of `numbers`.
    numbers : str
        The numbers as text.
    """

    figures: list[dict[str, Any]]
    columns: list[list[Any]]
    numbers: str

    @property
    def names(self) -> set[str]:
        """The names of the figures."""
        return {figure["name"] for figure in self.figures}

    def json(self) -> str:
        """Return the figures as JSON that can be embedded in a page."""
        whole = {"columns": self.columns, "figures": self.figures}
        return json.dumps(whole, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def moving_figures(sheets: Mapping[str, Sheet]) -> MovingFigures:
    """Return the figures of sheets by their names; a figure without a curve is omitted."""
    numbers = PackedColumns()
    steps = _steps([sheet for sheet in sheets.values() if sheet.timeline])
    figures = []
    for name, sheet in sheets.items():
        panels = [_panel(sheet, panel, numbers, steps) for panel in sheet.panels if panel.series]
        if panels:
            figures.append({"name": name, **_common(sheet), "panels": panels})
    return MovingFigures(figures, numbers.columns, numbers.text())


def _steps(sheets: Sequence[Sheet]) -> int:
    """Return the largest number of steps with which all curves over time fit into a page."""
    laws = max((len(sheet.panels) for sheet in sheets), default=1)
    seeds = [len(panel.series) for sheet in sheets if sheet.bins for panel in sheet.panels]
    seeds_with_curves = min(max(seeds, default=1), MOST_SEEDS)
    curves = max(1, len(sheets) * laws * (seeds_with_curves + 2 * (seeds_with_curves > 1)))
    return max(FEWEST_STEPS, MOST_VALUES // curves)


def _common(sheet: Sheet) -> dict[str, Any]:
    """Return the keys that the panels of a figure have in common."""
    switches = {
        "spread": bool(sheet.bins),
        "cut": sheet.cut,
        "step": sheet.step,
        "nearest": sheet.nearest,
        "dots": sheet.dots,
    }
    keys = {
        "group": sheet.group,
        "x": {**_scale(sheet.x), "unit": sheet.x.unit or sheet.x.label},
        "y": _scale(sheet.y),
        **{name: True for name, on in switches.items() if on},
    }
    if sheet.timeline:
        keys |= {
            "grey": sheet.timeline.grey,
            "measured": sheet.timeline.measured,
            "changes": sheet.timeline.changes,
            "says": sheet.timeline.says,
        }
    return keys


def _scale(scale: Scale) -> dict[str, Any]:
    """Return an axis as values for JSON."""
    label = f"{scale.short} [{scale.unit}]" if scale.short else scale.heading
    keys: dict[str, Any] = {"label": label, "unit": scale.unit}
    if scale.log:
        keys["log"] = True
    if scale.zero:
        keys["zero"] = True
    elif scale.range:
        keys["range"] = scale.range
    if scale.least is not None:
        keys["least"] = scale.least
    return keys


def _panel(sheet: Sheet, panel: Panel, numbers: PackedColumns, steps: int) -> dict[str, Any]:
    """Return a panel as values for JSON."""
    if sheet.bins:
        keys = _over_seeds(panel.series, numbers, steps)
    elif sheet.timeline or sheet.dots:
        x = panel.series[-1].x
        keys = _columns(
            x, [(curve, curve.y, curve.low, curve.high) for curve in panel.series], numbers
        )
    else:
        keys = _shares(panel.series, numbers)
    if panel.target is not None:
        keys["target"] = panel.target
    if panel.y:
        keys["y"] = _scale(panel.y)
    return {"title": panel.title, **keys}


def _columns(
    x: Floats,
    curves: Sequence[tuple[Curve, Floats | None, Floats | None, Floats | None]],
    numbers: PackedColumns,
    size: int = 1,
) -> dict[str, Any]:
    """Return curves and bands over common positions, each of which stands for `size` samples."""
    return {
        "x": numbers.add_times(x),
        "of": size,
        "series": [_curve(*arguments, numbers) for arguments in curves],
    }


def _curve(
    curve: Curve,
    y: Floats | None,
    low: Floats | None,
    high: Floats | None,
    numbers: PackedColumns,
) -> dict[str, Any]:
    """Return a curve or a band as values for JSON."""
    keys: dict[str, Any] = {
        "label": curve.label,
        "tags": curve.tags,
        "colour": style.colour(curve.look),
        "dash": style.round_of(curve.look) if curve.dashed else 0,
    }
    if curve.y is None:
        keys["band"] = True
    for name, values in (("y", y), ("low", low), ("high", high)):
        if values is not None:
            keys[name] = numbers.add(values)
    return keys


def _over_seeds(series: Sequence[Curve], numbers: PackedColumns, steps: int) -> dict[str, Any]:
    """Return a curve per seed, and the band over all seeds; the first seed is visible."""
    first = series[0]
    # Runs of real traffic differ in length: a run whose times differ from the first has no curve.
    alike = [
        curve for curve in series if len(curve.x) == len(first.x) and (curve.x == first.x).all()
    ]
    size = max(1, math.ceil(len(first.x) / steps)) if len(first.x) > 2 * steps else 1
    starts = np.arange(0, len(first.x), size)
    curves: list[tuple[Curve, Floats | None, Floats | None, Floats | None]] = []
    if len(alike) > 1:
        tags = {**first.tags, "seed": ALL}
        band = Curve(f"{len(alike)} seeds", tags, first.look, first.x)
        every = [curve.y for curve in alike if curve.y is not None]
        curves.append(
            (
                band,
                None,
                np.fmin.reduceat(np.fmin.reduce(every), starts),
                np.fmax.reduceat(np.fmax.reduce(every), starts),
            )
        )
    for curve in alike[:MOST_SEEDS]:
        assert curve.y is not None
        if size == 1:
            curves.append((curve, curve.y, None, None))
        else:
            low, high = np.fmin.reduceat(curve.y, starts), np.fmax.reduceat(curve.y, starts)
            curves.append((curve, None, low, high))
    columns = _columns(first.x[starts], curves, numbers, size)
    for later_seed in columns["series"][2:]:
        later_seed["off"] = True
    return columns


def _shares(series: Sequence[Curve], numbers: PackedColumns) -> dict[str, Any]:
    """Return curves of shares over common positions; each keeps its value up to its next step."""
    positions = np.unique(np.concatenate([curve.x for curve in series]))
    if len(positions) > MOST_SHARES:
        positions = positions[
            np.unique(np.linspace(0, len(positions) - 1, MOST_SHARES).round().astype(int))
        ]
    curves = []
    for curve in series:
        assert curve.y is not None
        last = np.searchsorted(curve.x, positions, side="right") - 1
        # A curve has no value beyond its last step.
        in_range = (last >= 0) & (positions <= curve.x[-1])
        curves.append((curve, np.where(in_range, curve.y[np.maximum(last, 0)], np.nan), None, None))
    return _columns(positions, curves, numbers)
