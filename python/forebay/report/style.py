"""How figures look: on a screen, or in a paper's column. The one place that knows."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay._native import ScenarioError

#: Okabe and Ito's colours that keep apart for colour-blind readers, without the yellow that
#: does not show on white.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
#: Colours of traffic and of classes of packets, which are no laws: none is one of `COLOURS`. They
#: are of Paul Tol's muted scheme, for colour-blind readers.
TRAFFIC_COLOURS = ["#332288", "#999933", "#882255", "#44AA99", "#AA4499", "#661100", "#777777"]
#: The look of the first traffic; looks of laws are below it.
TRAFFIC = 1000
#: For laws beyond the seventh: they repeat the colours.
DASHES: list[Any] = ["-", (0, (5, 2)), (0, (1, 1.5))]
#: In print: each law has its own, since greys are hard to tell apart.
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
    """width: of every figure in inches, None where each has its own. png_dpi: of its picture."""

    settings: dict[str, Any]
    width: float | None
    png_dpi: float


#: By what `--style` takes; the widths are IEEE's and ACM's of one column and of two.
STYLES = {
    "screen": Style(SCREEN, None, 144),
    "paper": Style(SCREEN | PRINT, 3.5, 300),
    "paper-wide": Style(SCREEN | PRINT, 7.16, 300),
}
#: Figures of at least this width have several panels beside each other, and stay taller.
WIDE = 9.0

#: Settings of matplotlib for whatever is drawn; `use` changes them in place.
STYLE: Any = dict(SCREEN)  # matplotlib types its keys one by one
#: The one in use, alone in its list.
_now = [STYLES["screen"]]


def use(name: str) -> None:
    """Draws all further figures in this style: "screen", "paper" or "paper-wide"."""
    if name not in STYLES:
        raise ScenarioError(f'--style: "{name}" is not valid; expected {", ".join(STYLES)}')
    _now[0] = STYLES[name]
    STYLE.clear()
    STYLE.update(_now[0].settings)


def printed() -> bool:
    """Return True if figures are for a paper, and have a PDF each."""
    return _now[0].width is not None


def png_dpi() -> float:
    return _now[0].png_dpi


def size(width: float, height: float) -> tuple[float, float]:
    """The size in inches of a figure that has this one on a screen."""
    if _now[0].width is None:
        return width, height
    most = 0.7 if width >= WIDE else 0.58
    return _now[0].width, height * max(min(1.0, _now[0].width / width), most)


def of_traffic(index: int) -> int:
    """Return the look of a traffic or a class, which must not look like a law."""
    return TRAFFIC + index


def dash(index: int) -> Any:
    """Return the dashes of a curve that has this place among its likes."""
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
    """Shifted in every round, so that none looks like another of its colour."""
    return MARKERS[(index % TRAFFIC + round_of(index)) % len(MARKERS)]


def filling(index: int) -> str:
    """Return the filling of a marker: hollow in every other round."""
    return "white" if round_of(index) % 2 else colour(index)
