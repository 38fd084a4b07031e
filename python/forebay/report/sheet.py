"""A figure as data: panels of curves and bands on labelled axes, or maps or dots of a sweep.

The contents of a figure are computed once, into a `Sheet`. `drawing` makes a static figure of it,
and `moving` the numbers from which a browser draws a figure that a reader can zoom. A sweep of two
axes has `Maps`, and one whose axis has no numbers has `Dots`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from forebay.report.plot import Plot

Floats = NDArray[np.float64]

#: Tolerance in seconds for comparisons of times.
TINY_S = 1e-9
#: Name of the folder of figures next to a page.
FIGURES = "figures"


@dataclass(frozen=True)
class Scale:
    """An axis.

    Attributes
    ----------
    label : str
        Name of the quantity.
    unit : str, default ''
        Its unit; empty for none.
    log : bool, default False
        True for a logarithmic axis.
    range : tuple[float, float], optional
        The ends of the axis; None for the range of all values.
    zero : bool, default False
        True if the axis begins at zero; in a figure that a reader can zoom, it then ends at the
        largest visible value.
    least : float, optional
        Lower end of a logarithmic axis.
    ticks : tuple[tuple[float, str], ...], optional
        Positions and texts of ticks; None for numbers.
    short : str, default ''
        A shorter name where there is little space.
    note : str, default ''
        Text after the unit.
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
        """The name with the unit and the note."""
        return (f"{self.label} [{self.unit}]" if self.unit else self.label) + self.note


@dataclass(frozen=True)
class Curve:
    """A curve over `x`, or a band from `low` to `high`.

    Attributes
    ----------
    label : str
        Name in a legend.
    tags : dict[str, str]
        Properties by which a reader switches curves off and on, such as the law and the seed.
    look : int
        Index of the colour among curves of the same kind. Traffic and classes have their own looks
        (`style.of_traffic`), so that none has the colour of a law.
    x : Floats
        Positions.
    y : Floats, optional
        Values of a curve; None for a band.
    low : Floats, optional
        Lower end of a band.
    high : Floats, optional
        Upper end of a band.
    dashed : bool, default True
        True if `look` also selects dashes.
    width : float, default 1.2
        Width of the line in points.
    alpha : float, default 0.2
        Opacity of a band.
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
    """A pair of axes with their curves.

    Attributes
    ----------
    title : str
        Title of the panel.
    series : list[Curve]
        The curves.
    target : float, optional
        A set-point to draw; None for none.
    y : Scale, optional
        The y axis, if it differs from that of the sheet.
    """

    title: str
    series: list[Curve]
    target: float | None = None
    y: Scale | None = None


@dataclass(frozen=True)
class Timeline:
    """The times that figures over time share, in seconds.

    Attributes
    ----------
    duration_s : float
        Duration of the run.
    measured : tuple[float, float]
        Start and end of the measurement.
    counted : tuple[float, float]
        Range of the values that are in the metrics; a value at the start of the range is not.
    changes : list[float]
        Times of changes of the scenario.
    says : list[str]
        The changes in words.
    steps : int
        Largest number of steps of a printed curve.
    """

    duration_s: float
    measured: tuple[float, float]
    counted: tuple[float, float]
    changes: list[float]
    says: list[str]
    steps: int

    @property
    def grey(self) -> list[tuple[float, float]]:
        """The times outside the measurement."""
        start, end = self.measured
        return [(a, b) for a, b in [(0.0, start), (end, self.duration_s)] if b > a]


@dataclass(frozen=True)
class Sheet:
    """A figure.

    Attributes
    ----------
    group : str
        Figures of the same group show the same part of their axis.
    x : Scale
        The x axis.
    y : Scale
        The y axis.
    panels : list[Panel]
        The panels.
    timeline : Timeline, optional
        The times of a figure over time; None for any other figure.
    bins : int, default 0
        Number of bins of the histogram next to each panel; 0 for none.
    counted : str, default 'samples'
        Noun for the values that a histogram counts.
    step : bool, default False
        True if a value applies until its time, or from its position on if there is no timeline.
    dots : bool, default False
        True if each value has a mark.
    nearest : bool, default False
        True if there are so many curves that only the one under the pointer is read out.
    cut : bool, default False
        True if peaks outside the measurement may be cut off.
    legend : tuple[tuple[str, int], ...], default ()
        Texts and looks, if the legend does not have the labels of the curves.
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


@dataclass(frozen=True)
class MapRow:
    """Maps of a metric, one per law, in which a colour has the same meaning.

    Attributes
    ----------
    label : str
        Name of the metric with its unit.
    maps : list[Floats]
        The values of each law, by row and column; NaN where there is none.
    """

    label: str
    maps: list[Floats]


@dataclass(frozen=True)
class Maps:
    """A figure of maps over the two axes of a sweep, with a row per metric and a column per law.

    Attributes
    ----------
    titles : list[str]
        The laws.
    rows : list[MapRow]
        The metrics.
    x, y : str
        Labels of the axes.
    columns, lines : list[str]
        The values along the axes.
    """

    titles: list[str]
    rows: list[MapRow]
    x: str
    y: str
    columns: list[str]
    lines: list[str]


@dataclass(frozen=True)
class DotSeries:
    """Dots with intervals of one law.

    Attributes
    ----------
    label : str
        The law.
    look : int
        Index of the colour and the marker.
    x : list[float]
        Positions.
    y : list[float]
        Means.
    bars : Floats
        Lengths of the interval below and above each mean, as two rows.
    """

    label: str
    look: int
    x: list[float]
    y: list[float]
    bars: Floats


@dataclass(frozen=True)
class Dots:
    """A figure of dots with a row per metric, over points or, with one point, over laws.

    Attributes
    ----------
    rows : list[tuple[str, list[DotSeries]]]
        The metrics with their units, and the dots of each law.
    places : int
        Number of points.
    ticks : list[tuple[float, str]]
        Positions and names along the axis.
    label : str
        Name of the axis; empty for none, and then there is no legend either.
    """

    rows: list[tuple[str, list[DotSeries]]]
    places: int
    ticks: list[tuple[float, str]]
    label: str


@dataclass(frozen=True)
class AxisResponse:
    """A metric of each law over one axis of a study.

    Attributes
    ----------
    title : str
        The axis with its unit.
    texts : list[str]
        The values along the axis.
    curves : list[tuple[Floats, Floats, Floats]]
        Positions, means and half-widths of intervals of each law.
    """

    title: str
    texts: list[str]
    curves: list[tuple[Floats, Floats, Floats]]


@dataclass(frozen=True)
class Drawing:
    """A figure that a function of another room draws.

    Attributes
    ----------
    function : str
        The function as "MODULE:NAME". It is loaded where the figure is drawn.
    arguments : tuple[Any, ...]
        Its arguments, which are data.
    """

    function: str
    arguments: tuple[Any, ...]

    def draw(self) -> Plot:
        """Return the drawn figure."""
        module, _, name = self.function.partition(":")
        plot: Plot = getattr(import_module(module), name)(*self.arguments)
        return plot


#: The contents of a figure as data, which another process can draw.
FigureData = Sheet | Maps | Dots | Drawing


def interval_within(mean: Any, half: Any, *, percent: bool) -> Floats:
    """Return how far an interval extends below and above each mean, as two rows.

    No quantity here is negative, and a share is at most 100 %: the part of Student's interval
    beyond these limits is cut off.

    Parameters
    ----------
    mean : Any
        The means.
    half : Any
        Half the widths of the intervals; NaN for none.
    percent : bool
        True if the values are shares in %.
    """
    mean, half = np.asarray(mean, float), np.nan_to_num(np.asarray(half, float))
    below = np.minimum(half, np.maximum(mean, 0.0))
    above = np.minimum(half, np.maximum(100.0 - mean, 0.0)) if percent else half
    return np.array([below, above])


def group_offset(rank: int, count: int, room: float = 0.8) -> float:
    """Return the offset of a mark from the middle of its position.

    Parameters
    ----------
    rank : int
        Index of the mark.
    count : int
        Number of marks at the position.
    room : float, default 0.8
        Width that the marks share.
    """
    return (rank - (count - 1) / 2) * room / max(1, count)
