"""What a browser draws figures from that a reader moves: their sheets as numbers, for
`web/report.js`."""

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

#: Values of all curves over time in a page: about 1.5 bytes each as text.
MOST_VALUES = 700_000
#: A curve has at least so many steps, however many there are.
FEWEST_STEPS = 300
#: Seeds with a curve of their own; the band covers all of them.
MOST_SEEDS = 10
#: Points of a curve of shares.
MOST_SHARES = 2000
#: Tag of the band over all seeds.
ALL = "all seeds"


#: Differences of whole numbers below this fit into 32 bits.
MOST_WHOLE = 2**29
#: How far times may be from equal steps, in parts of a step.
TINY = 1e-6


class PackedColumns:
    """Columns of numbers that a page names by their index, packed as one text.

    Each column is a row of bytes: whole numbers as differences, since neighbours are alike, and
    others as 32-bit floats; bytes of the same weight stand together. The whole is deflated as gzip,
    which browsers read by themselves (`DecompressionStream`), and written as base64.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0
        #: of each column its kind and length; then its first byte, or its first value and step
        self.columns: list[list[Any]] = []

    def add(self, values: NDArray[Any]) -> int:
        """Takes a column; its number. NaN means that there is no value."""
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
        """Takes places along an axis; its number. Equal steps take no room."""
        if len(times) > 1:
            step = float(times[-1] - times[0]) / (len(times) - 1)
            even = times[0] + step * np.arange(len(times))
            if step > 0 and np.abs(times - even).max() < TINY * step:
                # Without what rounding left at the end of 0.01.
                first, step = (float(f"{value:.12g}") for value in (times[0], step))
                self.columns.append(["r", len(times), first, step])
                return len(self.columns) - 1
        return self._pack("d", np.asarray(times, "<f8"))

    def _pack(self, kind: str, words: NDArray[Any]) -> int:
        planes = np.frombuffer(words.tobytes(), np.uint8).reshape(-1, words.itemsize).T
        self.columns.append([kind, len(words), self._at])
        self._parts.append(planes.tobytes())
        self._at += planes.size
        return len(self.columns) - 1

    def text(self) -> str:
        """All columns. The same numbers give the same text."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 6, mtime=0)).decode()


@dataclass(frozen=True)
class MovingFigures:
    """Figures that a page draws by itself, and their numbers as text."""

    figures: list[dict[str, Any]]
    columns: list[list[Any]]
    numbers: str

    @property
    def names(self) -> set[str]:
        return {figure["name"] for figure in self.figures}

    def json(self) -> str:
        """The figures, such that the text can stand inside a page."""
        whole = {"columns": self.columns, "figures": self.figures}
        return json.dumps(whole, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def moving_figures(sheets: Mapping[str, Sheet]) -> MovingFigures:
    """Figures by their names; one without any curve is left out."""
    numbers = PackedColumns()
    steps = _steps([sheet for sheet in sheets.values() if sheet.timeline])
    found = []
    for name, sheet in sheets.items():
        panels = [_panel(sheet, one, numbers, steps) for one in sheet.panels if one.series]
        if panels:
            found.append({"name": name, **_common(sheet), "panels": panels})
    return MovingFigures(found, numbers.columns, numbers.text())


def _steps(sheets: Sequence[Sheet]) -> int:
    """Most steps of a curve over time, of which all figures have some."""
    laws = max((len(sheet.panels) for sheet in sheets), default=1)
    seeds = [len(panel.series) for sheet in sheets if sheet.bins for panel in sheet.panels]
    most = min(max(seeds, default=1), MOST_SEEDS)
    curves = max(1, len(sheets) * laws * (most + 2 * (most > 1)))
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
    found = {
        "group": sheet.group,
        "x": {**_scale(sheet.x), "unit": sheet.x.unit or sheet.x.label},
        "y": _scale(sheet.y),
        **{name: True for name, on in switches.items() if on},
    }
    if sheet.timeline:
        found |= {
            "grey": sheet.timeline.grey,
            "measured": sheet.timeline.measured,
            "changes": sheet.timeline.changes,
            "says": sheet.timeline.says,
        }
    return found


def _scale(scale: Scale) -> dict[str, Any]:
    label = f"{scale.short} [{scale.unit}]" if scale.short else scale.heading
    found: dict[str, Any] = {"label": label, "unit": scale.unit}
    if scale.log:
        found["log"] = True
    if scale.zero:
        found["zero"] = True
    elif scale.range:
        found["range"] = scale.range
    if scale.least is not None:
        found["least"] = scale.least
    return found


def _panel(sheet: Sheet, panel: Panel, numbers: PackedColumns, steps: int) -> dict[str, Any]:
    if sheet.bins:
        found = _over_seeds(panel.series, numbers, steps)
    elif sheet.timeline or sheet.dots:
        x = panel.series[-1].x
        found = _columns(x, [(one, one.y, one.low, one.high) for one in panel.series], numbers)
    else:
        found = _shares(panel.series, numbers)
    if panel.target is not None:
        found["target"] = panel.target
    if panel.y:
        found["y"] = _scale(panel.y)
    return {"title": panel.title, **found}


def _columns(
    x: Floats,
    curves: Sequence[tuple[Curve, Floats | None, Floats | None, Floats | None]],
    numbers: PackedColumns,
    size: int = 1,
) -> dict[str, Any]:
    """Curves and bands over common places; `size` samples are in each of them."""
    return {
        "x": numbers.add_times(x),
        "of": size,
        "series": [_curve(*one, numbers) for one in curves],
    }


def _curve(
    one: Curve,
    y: Floats | None,
    low: Floats | None,
    high: Floats | None,
    numbers: PackedColumns,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "label": one.label,
        "tags": one.tags,
        "colour": style.colour(one.look),
        "dash": style.round_of(one.look) if one.dashed else 0,
    }
    if one.y is None:
        found["band"] = True
    for name, values in (("y", y), ("low", low), ("high", high)):
        if values is not None:
            found[name] = numbers.add(values)
    return found


def _over_seeds(series: Sequence[Curve], numbers: PackedColumns, steps: int) -> dict[str, Any]:
    """A curve for each seed, and the band from the least to the greatest; the first is shown."""
    first = series[0]
    # Real traffic ends when it ends: what has other times than the first has no curve here.
    alike = [one for one in series if len(one.x) == len(first.x) and (one.x == first.x).all()]
    size = max(1, math.ceil(len(first.x) / steps)) if len(first.x) > 2 * steps else 1
    starts = np.arange(0, len(first.x), size)
    curves: list[tuple[Curve, Floats | None, Floats | None, Floats | None]] = []
    if len(alike) > 1:
        tags = {**first.tags, "seed": ALL}
        band = Curve(f"{len(alike)} seeds", tags, first.look, first.x)
        every = [one.y for one in alike if one.y is not None]
        curves.append(
            (
                band,
                None,
                np.fmin.reduceat(np.fmin.reduce(every), starts),
                np.fmax.reduceat(np.fmax.reduce(every), starts),
            )
        )
    for one in alike[:MOST_SEEDS]:
        assert one.y is not None
        if size == 1:
            curves.append((one, one.y, None, None))
        else:
            low, high = np.fmin.reduceat(one.y, starts), np.fmax.reduceat(one.y, starts)
            curves.append((one, None, low, high))
    found = _columns(first.x[starts], curves, numbers, size)
    for other in found["series"][2:]:
        other["off"] = True
    return found


def _shares(series: Sequence[Curve], numbers: PackedColumns) -> dict[str, Any]:
    """Curves of shares over common places: each keeps its value up to its next step."""
    places = np.unique(np.concatenate([one.x for one in series]))
    if len(places) > MOST_SHARES:
        places = places[np.unique(np.linspace(0, len(places) - 1, MOST_SHARES).round().astype(int))]
    curves = []
    for one in series:
        assert one.y is not None
        last = np.searchsorted(one.x, places, side="right") - 1
        # Beyond its last step a curve has nothing to show.
        known = (last >= 0) & (places <= one.x[-1])
        curves.append((one, np.where(known, one.y[np.maximum(last, 0)], np.nan), None, None))
    return _columns(places, curves, numbers)
