"""How figures look: on a screen, or in a paper's column. The one place that knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from forebay._native import ScenarioError

#: Okabe and Ito's colours that keep apart for colour-blind readers, without the yellow that
#: does not show on white.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
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

#: On a screen; a page shows it as SVG.
SCREEN: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial", "sans-serif"],
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    # At the axes' upper edge; to look for ticks above it takes a fifth of the drawing.
    "axes.titley": 1.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.edgecolor": "#666666",
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "figure.dpi": 100,
    # Text stays text: small files, and a reader can search in them.
    "svg.fonttype": "none",
    "svg.hashsalt": "forebay",
}
#: In print: 8 points of a font like Times, and fonts inside the file as TrueType (42), since
#: publishers refuse the outlines of type 3.
PAPER: dict[str, Any] = SCREEN | {
    "font.family": "serif",
    # matplotlib brings STIX, so that every machine draws the same.
    "font.serif": ["STIXGeneral", "Times New Roman", "DejaVu Serif"],
    "mathtext.fontset": "stix",
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "axes.titleweight": "normal",
    "axes.linewidth": 0.6,
    "grid.linewidth": 0.4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.color": "#000000",
    "ytick.color": "#000000",
    "axes.edgecolor": "#000000",
    "legend.handlelength": 2.6,
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
}


@dataclass(frozen=True)
class Style:
    """width: of every figure in inches, None where each has its own. png_dpi: of its picture."""

    settings: dict[str, Any]
    width: float | None
    png_dpi: float


#: By what `--style` takes; the widths are IEEE's and ACM's of one column and of two.
STYLES = {
    "screen": Style(SCREEN, None, 144),
    "paper": Style(PAPER, 3.5, 300),
    "paper-wide": Style(PAPER, 7.16, 300),
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
        raise ScenarioError(f'--style: found "{name}", allowed: {", ".join(STYLES)}')
    _now[0] = STYLES[name]
    STYLE.clear()
    STYLE.update(_now[0].settings)


def printed() -> bool:
    """Whether figures are for a paper, and have a PDF each."""
    return _now[0].width is not None


def png_dpi() -> float:
    return _now[0].png_dpi


def size(width: float, height: float) -> tuple[float, float]:
    """The size in inches of a figure that has this one on a screen."""
    if _now[0].width is None:
        return width, height
    most = 0.7 if width >= WIDE else 0.58
    return _now[0].width, height * max(min(1.0, _now[0].width / width), most)


def dash(index: int) -> Any:
    """How a curve is dashed that has this place among its likes."""
    if printed():
        return PRINTED[index % len(PRINTED)]
    return DASHES[index // len(COLOURS) % len(DASHES)]


def colour(index: int) -> str:
    """Of what has this place among its likes."""
    return COLOURS[index % len(COLOURS)]


def round_of(index: int) -> int:
    """How often the colours have been used up there."""
    return index // len(COLOURS)


def marker(index: int) -> str:
    """Shifted in every round, so that none looks like another of its colour."""
    return MARKERS[(index + round_of(index)) % len(MARKERS)]


def filling(index: int) -> str:
    """Of its marker: hollow in every other round."""
    return "white" if round_of(index) % 2 else colour(index)
