"""Figures of a page: drawn one after another into its folder, and as SVG into the page."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.progress import Progress
from forebay.report.sheet import Sheet

if TYPE_CHECKING:
    from forebay.report.plot import Plot

#: Folder of the figures that stand beside a page.
FIGURES = "figures"


@dataclass
class PageFigure:
    """A figure that is drawn when its turn comes: many would fill the memory."""

    #: Name of its file, without the ending.
    name: str
    make: Callable[[], Sheet | Plot]
    title: str
    caption: str = ""
    #: The point that it shows, empty where there is one.
    where: str = ""
    #: Empty until it is drawn, and where the page has no room for it.
    svg: str = ""

    @cached_property
    def content(self) -> Sheet | Plot:
        return self.make()

    def plot(self) -> Plot:
        """It as a static figure."""
        from forebay.report import drawing

        return drawing.draw(self.content) if isinstance(self.content, Sheet) else self.content

    def render(self, room: float = math.inf) -> dict[str, bytes]:
        """Draws it: its files by their names. Its SVG is kept if it has at most so many letters."""
        label = ", ".join(filter(None, [self.title, self.where]))
        files, svg = self.plot().rendered(self.name, label)
        self.svg = svg if len(svg) <= room else ""
        del self.content
        return files


def render_all(
    figures: Sequence[PageFigure],
    folder: Path,
    watch: Callable[[Progress], None] | None = None,
    room: float = math.inf,
) -> None:
    """Draws figures into files of a folder, and into their `svg`.

    `watch` hears of the progress. room: letters that all SVGs together may have.
    """
    start = time.monotonic()
    with _collected() as collect:
        for done, figure in enumerate(figures):
            if watch:
                elapsed_s = time.monotonic() - start
                watch(Progress(done / len(figures), done, len(figures), elapsed_s))
            for name, data in figure.render(room).items():
                (folder / name).write_bytes(data)
            room -= len(figure.svg)
            collect()


@contextmanager
def _collected() -> Iterator[Callable[[], int]]:
    """Collects garbage only where it is told to. A figure is thousands of objects in cycles, among
    which Python looks for garbage again and again: a seventh of the drawing."""
    if not gc.isenabled():
        yield gc.collect
        return
    gc.disable()
    gc.freeze()
    try:
        yield gc.collect
    finally:
        gc.unfreeze()
        gc.enable()
