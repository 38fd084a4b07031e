"""Axes whose ticks are drawn together.

Matplotlib keeps two marks, a grid line and two texts of each tick as objects of their own, which
took half of a figure's time. Here one tick of an axis is the pen for all of them: its grid lines
are one path, its marks one set of markers, and its text is moved from place to place. An axis whose
ticks are asked for, or have a text each, has them as matplotlib makes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.artist import allow_rasterization
from matplotlib.axes import Axes
from matplotlib.axis import Axis, XAxis, XTick, YAxis, YTick
from matplotlib.ticker import NullLocator


class _Pen:
    """A tick that draws itself at several places."""

    #: The coordinate of its places: of its axis.
    along: Literal["x", "y"]
    #: Where it stands, and what it says there; empty for an ordinary tick.
    places: Sequence[tuple[float, str]] = ()

    def begin(self: Any, places: Sequence[tuple[float, str]]) -> None:
        """It stands at all places together."""
        self.places = places
        at = np.array([place for place, _ in places])
        self._lay(
            self.gridline,
            np.column_stack([at, at, np.full(len(at), np.nan)]).ravel(),
            np.tile([0.0, 1.0, np.nan], len(at)),
        )
        self._lay(self.tick1line, at, np.zeros(len(at)))
        self._lay(self.tick2line, at, np.ones(len(at)))

    def end(self: Any) -> None:
        """It is an ordinary tick again."""
        self.places = ()
        self._lay(self.gridline, [0, 0], [0, 1])
        self._lay(self.tick1line, [0], [0])
        self._lay(self.tick2line, [0], [1])

    def _lay(self, line: Any, places: Any, across: Any) -> None:
        line.set_data(*(places, across) if self.along == "x" else (across, places))

    def labels(self: Any, side: int) -> Iterator[Any]:
        """Its label at each of its places in turn."""
        label = self.label1 if side == 1 else self.label2
        for place, text in self.places if label.get_visible() else ():
            if text:
                getattr(label, f"set_{self.along}")(place)
                label.set_text(text)
                yield label

    def draw(self: Any, renderer: Any) -> None:
        if not self.places:
            super().draw(renderer)  # type: ignore[misc]
            return
        renderer.open_group(self.__name__)
        for line in (self.gridline, self.tick1line, self.tick2line):
            line.draw(renderer)
        for side in (1, 2):
            for label in self.labels(side):
                label.draw(renderer)
        renderer.close_group(self.__name__)
        self.end()


class _XPen(_Pen, XTick):
    along = "x"


class _YPen(_Pen, YTick):
    along = "y"


class _QuickAxis(Axis):
    """An axis with one tick until more are asked for."""

    def reset_ticks(self: Any) -> None:
        self.majorTicks, self.minorTicks = [], []

    def get_major_ticks(self: Any, numticks: int | None = None) -> Any:
        self._end()
        return super().get_major_ticks(numticks)

    def get_minor_ticks(self: Any, numticks: int | None = None) -> Any:
        self._end()
        return super().get_minor_ticks(numticks)

    def _end(self: Any) -> None:
        for tick in [*self.majorTicks, *self.minorTicks]:
            tick.end()

    def _update_ticks(self: Any) -> list[Any]:
        """The ticks to draw, at their places."""
        if max(len(self.majorTicks), len(self.minorTicks)) > 1:
            return super()._update_ticks()  # type: ignore[misc,no-any-return]
        low, high = sorted(self.get_transform().transform(self.get_view_interval()))
        room = 1e-10 * (high - low)
        pens = []
        for group, ticks, major, settings in (
            (self.major, self.majorTicks, True, self._major_tick_kw),
            (self.minor, self.minorTicks, False, self._minor_tick_kw),
        ):
            parts = ("tick1On", "tick2On", "label1On", "label2On", "gridOn")
            if isinstance(group.locator, NullLocator) or not any(
                settings.get(part, True) for part in parts
            ):
                continue
            at = self.get_majorticklocs() if major else self.get_minorticklocs()
            texts = group.formatter.format_ticks(at)
            shown = self.get_transform().transform(np.asarray(at, float))
            inside = (shown >= low - room) & (shown <= high + room)
            if not ticks:
                ticks.append(self._get_tick(major=major))
            ticks[0].begin([(at[i], texts[i]) for i in np.flatnonzero(inside)])
            pens.append(ticks[0])
        return pens

    @allow_rasterization  # type: ignore[untyped-decorator]
    def draw(self: Any, renderer: Any) -> None:
        """Where neither a label nor an offset stands beside the ticks, nothing asks how much room
        the ticks' texts take, which takes longer than they do."""
        if not self.get_visible():
            return
        ticks = [] if self.label.get_text() else self._update_ticks()
        if self.label.get_text() or self.major.formatter.get_offset():
            super().draw(renderer)
            return
        renderer.open_group("matplotlib.axis", gid=self.get_gid())
        for tick in ticks:
            tick.draw(renderer)
        renderer.close_group("matplotlib.axis")
        self.stale = False

    def _get_ticklabel_bboxes(self: Any, ticks: list[Any], renderer: Any) -> Any:
        if not any(tick.places for tick in ticks):
            return super()._get_ticklabel_bboxes(ticks, renderer)  # type: ignore[misc]
        return tuple(
            [label.get_window_extent(renderer) for tick in ticks for label in tick.labels(side)]
            for side in (1, 2)
        )


class _XAxis(_QuickAxis, XAxis):
    _tick_class = _XPen


class _YAxis(_QuickAxis, YAxis):
    _tick_class = _YPen


class QuickAxes(Axes):
    """Axes of a `Plot`."""

    def _init_axis(self: Any) -> None:
        super()._init_axis()  # type: ignore[misc]
        self.xaxis.__class__, self.yaxis.__class__ = _XAxis, _YAxis
