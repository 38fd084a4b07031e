"""The look of figures, on a screen or in a column of a paper; no other module knows it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay._base.errors import ParameterError
from forebay._base.words import one_of

#: Okabe and Ito's colours that keep apart for colour-blind readers, without the yellow that
#: does not show on white.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
#: Colours of traffic and of classes of packets, which must not look like laws: none is one of
#: `COLOURS`. They are Paul Tol's muted scheme for colour-blind readers.
TRAFFIC_COLOURS = ["#332288", "#999933", "#882255", "#44AA99", "#AA4499", "#661100", "#777777"]
#: The look of the first traffic; the looks of laws are smaller.
TRAFFIC = 1000
#: The dashes of laws beyond the seventh, which repeat the colours.
DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5))]
#: The dashes of laws in print, where greys are hard to distinguish.
PRINTED: list[Any] = [
    "-",
    (0, (5, 1.5)),
    (0, (1, 1)),
    (0, (5, 1.5, 1, 1.5)),
    (0, (9, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (2, 2)),
]

#: Settings of matplotlib: on a screen, where a page shows a figure as SVG; and in print.
SCREEN, PRINT = tomllib.loads(Path(__file__).with_name("style.toml").read_text("utf-8")).values()


@dataclass(frozen=True)
class Style:
    """A look of figures.

    Attributes
    ----------
    settings : dict[str, Any]
        Settings of matplotlib.
    width : float | None
        Width of every figure in inches; None if each has its own.
    png_dpi : float
        Resolution of a PNG in dots per inch.
    """

    settings: dict[str, Any]
    width: float | None
    png_dpi: float


#: The styles by the values of `--style`; the widths are those of one and two columns of IEEE, ACM.
STYLES = {
    "screen": Style(SCREEN, None, 144),
    "paper": Style(SCREEN | PRINT, 3.5, 300),
    "paper-wide": Style(SCREEN | PRINT, 7.16, 300),
}
#: Width in inches from which a figure has several panels in a row, so that it stays taller.
WIDE = 9.0

#: Settings of matplotlib for whatever is drawn; `use` changes them in place.
STYLE: Any = dict(SCREEN)  # matplotlib types its keys one by one
#: The name of the style in use, as the only element.
_now = ["screen"]


def use(name: str) -> None:
    """Draw all further figures in this style: "screen", "paper" or "paper-wide".

    Raises
    ------
    ScenarioError
        If there is no such style.
    """
    if name not in STYLES:
        raise ParameterError("style", name, one_of(STYLES, name))
    _now[0] = name
    STYLE.clear()
    STYLE.update(STYLES[name].settings)


def in_use() -> str:
    """Return the name of the style in use."""
    return _now[0]


def printed() -> bool:
    """Return True if figures are for a paper, and have a PDF each."""
    return STYLES[_now[0]].width is not None


def png_dpi() -> float:
    """Return the resolution of a PNG in dots per inch."""
    return STYLES[_now[0]].png_dpi


def size(width: float, height: float) -> tuple[float, float]:
    """Return the size in inches of a figure in the style in use.

    Parameters
    ----------
    width : float
        Width on a screen in inches.
    height : float
        Height on a screen in inches.
    """
    column_width = STYLES[_now[0]].width
    if column_width is None:
        return width, height
    smallest_ratio = 0.7 if width >= WIDE else 0.58
    return column_width, height * max(min(1.0, column_width / width), smallest_ratio)


def of_traffic(index: int) -> int:
    """Return the look of a traffic or a class, which must not look like a law."""
    return TRAFFIC + index


def dash(index: int) -> Any:
    """Return the dashes of a curve with this look."""
    if printed():
        return PRINTED[index % TRAFFIC % len(PRINTED)]
    return DASHES[round_of(index) % len(DASHES)]


def colour(index: int) -> str:
    """Return the colour of the law, or of the traffic or class, with this index."""
    colours = COLOURS if index < TRAFFIC else TRAFFIC_COLOURS
    return colours[index % TRAFFIC % len(colours)]


def round_of(index: int) -> int:
    """Return how often the colours have been used up before this index."""
    return index % TRAFFIC // len(COLOURS)


def marker(index: int) -> str:
    """Return the marker of this look.

    Markers are shifted in every round of colours, so that each pair of colour and marker differs.
    """
    return MARKERS[(index % TRAFFIC + round_of(index)) % len(MARKERS)]


def filling(index: int) -> str:
    """Return the filling of a marker: hollow in every other round."""
    return "white" if round_of(index) % 2 else colour(index)
