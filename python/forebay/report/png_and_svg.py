"""One drawing of a figure that gives pixels and an SVG.

Most of a figure's time goes into matplotlib's artists, which find out what stands where. They are
asked once here, and each line and text that they draw goes to both renderers.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.backends.backend_svg import RendererSVG
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Points of an inch: what line widths and fonts are counted in, and an SVG is drawn in.
POINTS = 72


def pixels_and_svg(figure: Figure) -> tuple[NDArray[np.uint8], str]:
    """RGBA at the figure's own resolution; and the SVG, whose user units are those pixels."""
    width, height = figure.get_size_inches()
    dpi = figure.dpi
    text = io.StringIO()
    renderer = _Both(width * dpi, height * dpi, dpi, text)
    figure.draw(renderer)
    renderer.vectors.finalize()
    sizes = [_number(size * dpi) for size in (width, height)]
    points = [_number(size * POINTS) for size in (width, height)]
    svg = text.getvalue()
    for key, old, new in zip(("width", "height"), sizes, points, strict=True):
        svg = svg.replace(f'{key}="{old}pt"', f'{key}="{new}pt"', 1)
    return np.asarray(renderer.buffer_rgba()), svg  # type: ignore[no-untyped-call]


def _number(x: float) -> str:
    """As matplotlib writes it into an SVG."""
    return f"{x:f}".rstrip("0").rstrip(".")


def _on_both(name: str) -> Any:
    """A method that draws on both as it is told."""

    def draw(self: Any, gc: Any, *rest: Any, **options: Any) -> None:
        getattr(self._renderer, name)(gc, *rest, **options)
        getattr(self.vectors, name)(self._grown(gc), *rest, **options)

    return draw


class _Both(RendererAgg):
    """Draws pixels, and hands everything on to an SVG in the same coordinates. Widths of lines and
    sizes of fonts, which are in points, grow with the resolution there."""

    def __init__(self, width: float, height: float, dpi: float, text: io.StringIO) -> None:
        # Without a date the same result gives the same file.
        self.vectors: Any = RendererSVG(  # type: ignore[no-untyped-call]
            width, height, text, image_dpi=POINTS, metadata={"Date": None}
        )
        self._times = dpi / POINTS
        super().__init__(width, height, dpi)  # type: ignore[no-untyped-call]

    def _update_methods(self) -> None:
        """The base class takes these from its extension in C."""

    def open_group(self, s: str, gid: str | None = None) -> None:
        self.vectors.open_group(s, gid)

    def close_group(self, s: str) -> None:
        self.vectors.close_group(s)

    def draw_path(self, gc: Any, path: Any, transform: Any, rgbFace: Any = None) -> None:  # noqa: N803
        super().draw_path(gc, path, transform, rgbFace)  # type: ignore[no-untyped-call]
        self.vectors.draw_path(self._grown(gc), path, transform, rgbFace)

    draw_markers = _on_both("draw_markers")
    draw_quad_mesh = _on_both("draw_quad_mesh")
    draw_gouraud_triangles = _on_both("draw_gouraud_triangles")

    def draw_path_collection(self, gc: Any, *rest: Any, **options: Any) -> None:
        self._renderer.draw_path_collection(gc, *rest, **options)
        # Widths and dashes come after transform, paths, transforms, offsets and two colours.
        before, (widths, dashes), after = rest[:7], rest[7:9], rest[9:]
        widths = [self._times * width for width in widths]
        dashes = [_dashes(one, self._times) for one in dashes]
        self.vectors.draw_path_collection(
            self._grown(gc), *before, widths, dashes, *after, **options
        )

    def draw_image(self, gc: Any, x: float, y: float, im: Any, transform: Any = None) -> None:  # noqa: ARG002
        self._renderer.draw_image(gc, x, y, im)
        self.vectors.draw_image(gc, x, y, im)

    def draw_text(
        self,
        gc: Any,
        x: float,
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,
        mtext: Any = None,
    ) -> None:
        super().draw_text(gc, x, y, s, prop, angle, ismath, mtext)  # type: ignore[no-untyped-call]
        grown = prop.copy()
        grown.set_size(self._times * prop.get_size_in_points())
        self.vectors.draw_text(gc, x, y, s, grown, angle, ismath, mtext)

    def _grown(self, gc: Any) -> Any:
        found: Any = GraphicsContextBase()
        found.copy_properties(gc)
        found.set_linewidth(self._times * gc.get_linewidth())
        found.set_dashes(*_dashes(gc.get_dashes(), self._times))
        found.set_hatch_linewidth(self._times * gc.get_hatch_linewidth())
        return found


def _dashes(pattern: tuple[float, Any], times: float) -> tuple[float, Any]:
    offset, lengths = pattern
    return times * (offset or 0), None if lengths is None else [times * one for one in lengths]
