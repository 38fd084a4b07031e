"""A figure as data: panels of curves and bands.

What a figure shows is computed once, into a `Sheet`. `drawing` makes a static figure of it, and
`moving` the numbers from which a browser draws one that a reader moves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Times are compared with this much slack.
TINY_S = 1e-9


@dataclass(frozen=True)
class Scale:
    """An axis.

    range: what it shows; all values where None. zero: it begins at zero, and in a figure that moves
    ends where the values in view do. least: the lower end of a logarithmic axis. ticks: places and
    texts; where there are numbers if None. short: its name where there is little room. note: what
    stands behind its unit.
    """

    label: str
    unit: str = ""
    log: bool = False
    range: tuple[float, float] | None = None
    zero: bool = False
    least: float | None = None
    ticks: tuple[tuple[float, str], ...] | None = None
    short: str = ""
    note: str = ""

    @property
    def heading(self) -> str:
        return (f"{self.label} [{self.unit}]" if self.unit else self.label) + self.note


@dataclass(frozen=True)
class Curve:
    """A curve over `x`, or a band from `low` to `high`.

    tags: what a reader switches off and on, such as the law and the seed that it is of. look: its
    place among its likes, each of which has a colour; `dashed` says whether dashes, too. Traffic
    and classes have looks of their own (`style.of_traffic`): none has the colour of a law.
    """

    label: str
    tags: dict[str, str]
    look: int
    x: Floats
    y: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    dashed: bool = True
    width: float = 1.2
    alpha: float = 0.2


@dataclass(frozen=True)
class Panel:
    """Axes with their curves. target: a set-point. y: an axis of its own, where it has another
    than the sheet."""

    title: str
    series: list[Curve]
    target: float | None = None
    y: Scale | None = None


@dataclass(frozen=True)
class Timeline:
    """The times that figures over time have in common, in s.

    counted: from and to where values are in the metrics; a value at its beginning is not. says: the
    changes in words. steps: most of a printed curve.
    """

    duration_s: float
    measured: tuple[float, float]
    counted: tuple[float, float]
    changes: list[float]
    says: list[str]
    steps: int

    @property
    def grey(self) -> list[tuple[float, float]]:
        """Times outside the metrics."""
        start, end = self.measured
        return [(a, b) for a, b in [(0.0, start), (end, self.duration_s)] if b > a]


@dataclass(frozen=True)
class Sheet:
    """A figure.

    group: figures of one group show the same part of their axis. timeline: of figures over time.
    bins: beside each panel it has a histogram of all its curves with so many bins, 0 for none, of
    what is counted there.
    step: a value holds, over time until its own time and else from its place on. dots: each value
    has a mark. nearest: there are so many curves that only the one under the pointer is read.
    cut: peaks outside the metrics may be cut off. legend: texts and looks, where the curves' own
    labels are none.
    """

    group: str
    x: Scale
    y: Scale
    panels: list[Panel]
    timeline: Timeline | None = None
    bins: int = 0
    counted: str = "samples"
    step: bool = False
    dots: bool = False
    nearest: bool = False
    cut: bool = False
    legend: tuple[tuple[str, int], ...] = ()
