"""The figure class: matplotlib's figure, saved as PNG, SVG or PDF in the style in use."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

import matplotlib as mpl
from markupsafe import escape
from matplotlib.figure import Figure

from forebay.report import style
from forebay.report.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Smallest scale of a figure in a narrow page: its text of 9 points is then 8.5 px high.
LEAST_PX_PER_INCH = 68
#: Largest scale: at a page's full width, a narrow figure would have letters as large as headings.
MOST_PX_PER_INCH = 115
#: Largest width of a figure in pixels: the text of a page is 1032 px wide.
MOST_PX = 1000


P = ParamSpec("P")
#: Settings of matplotlib by which a figure without a layout engine gets none.
NO_LAYOUT = {"figure.autolayout": False, "figure.constrained_layout.use": False}
#: The files of a figure by name, and its <svg> element.
Rendered = tuple[dict[str, bytes], str]


class Plot(Figure):
    """A figure that a notebook displays, and that saves itself as PNG, SVG or PDF.

    It inherits everything from matplotlib's figure: `figure.axes`, `figure.savefig` and so on.
    """

    def __init__(self, *, figsize: tuple[float, float], **options: Any) -> None:
        super().__init__(figsize=style.size(*figsize), **options)

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save the figure as matplotlib does, with fonts and colours of the style in use."""
        with mpl.rc_context(STYLE):
            super().savefig(fname, **options)

    def files(self, name: str) -> dict[str, bytes]:
        """Return the files of the figure by name: a PNG, and for a paper also a PDF."""
        files = {f"{name}.png": self.png()}
        if style.printed():
            files[f"{name}.pdf"] = self.pdf()
        return files

    def pdf(self) -> bytes:
        """Return a PDF with embedded fonts. The same figure gives the same file."""
        return self._saved("pdf", metadata={"CreationDate": None})

    def png(self) -> bytes:
        """Return a picture at the resolution of the style in use."""
        # Harder compression takes as long as the drawing, and saves little.
        return self._saved("png", dpi=style.png_dpi(), pil_kwargs={"compress_level": 1})

    def svg(self, name: str = "") -> str:
        """Return an <svg> element to put into a page; `name` is what a screen reader calls it."""
        # Without a date the same result gives the same file.
        return self._element(self._saved("svg", metadata={"Date": None}).decode(), name)

    def rendered(self, file: str, name: str = "") -> Rendered:
        """Return `files`, none without a name, and `svg`, which has the same layout to a pixel."""
        files = self.files(file) if file else {}
        return files, self.svg(name)

    def _saved(self, kind: str, **options: Any) -> bytes:
        """Return the figure as a file of a kind."""
        self._lay_out()
        out = io.BytesIO()
        self.savefig(out, format=kind, facecolor="white", **options)
        return out.getvalue()

    def _lay_out(self) -> None:
        """Lay the figure out once: `savefig` would do it each time, and draw the figure for it."""
        engine = self.get_layout_engine()
        if engine is not None:
            with mpl.rc_context(STYLE | NO_LAYOUT):
                engine.execute(self)
                # Unlike "none", which leaves an engine that does nothing, and for whose sake
                # `savefig` would draw twice.
                self.set_layout_engine(None)

    def _element(self, svg: str, name: str) -> str:
        """Return the element of a page from the text of a file."""
        smallest_px, largest_px = (
            self._least_width_px(),
            round(MOST_PX_PER_INCH * self.get_figwidth()),
        )
        attributes = f'style="min-width: {smallest_px}px; max-width: {largest_px}px"'
        if name:
            attributes += f' role="img" aria-label="{escape(name)}"'
        return _compact(svg[svg.index("<svg") :]).replace("<svg ", f"<svg {attributes} ", 1)

    def _least_width_px(self) -> int:
        """Return the least width in a page, below which the text would be too small."""
        return round(min(MOST_PX, LEAST_PX_PER_INCH * self.get_figwidth()))

    def _repr_png_(self) -> bytes:
        return self.png()


def one_panel(width: float, height: float) -> tuple[Plot, Axes]:
    """Return a figure with one panel, and the panel.

    Parameters
    ----------
    width : float
        Width on a screen in inches.
    height : float
        Height on a screen in inches.
    """
    figure = Plot(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def styled(draw: Callable[P, Plot]) -> Callable[P, Plot]:
    """Decorate a function that draws, so that it uses the fonts and colours of the style in use."""

    @wraps(draw)
    def drawing(*args: P.args, **options: P.kwargs) -> Plot:
        with mpl.rc_context(STYLE):
            return draw(*args, **options)

    return drawing


#: Matches the decimals after the second.
FINER = re.compile(r"(?<=\.\d\d)\d+")


def _compact(svg: str) -> str:
    """Return the same picture in fewer bytes: hundredths of a point are finer than any screen."""
    # Only tags are rounded: the labels of an axis keep their digits.
    svg = re.sub(r"<[^>]*>", lambda tag: FINER.sub("", tag[0]), svg)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    # Ids without a reference are removed, since other figures of the page would repeat them.
    return re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
