"""Figures that a link has where there is something to show: classes, flows, windows, transfers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import matplotlib as mpl

from forebay.report import classes, flows, overviews, plots

if TYPE_CHECKING:
    from forebay._native import PointInfo
    from forebay.report.plots import Plot
    from forebay.run.runs import Runs


@dataclass(frozen=True)
class Detail:
    """A figure of a link at a point, by their indices."""

    draw: Callable[[Runs, int, int], Plot]
    #: Whether there is anything to show.
    shows: Callable[[Runs, int, int], bool]
    #: Its title and caption.
    caption: Callable[[Runs, PointInfo, int], tuple[str, str]]


#: In the order of the report.
DETAILS = {
    "classes": Detail(classes.draw, classes.shows, classes.caption),
    "flows": Detail(flows.goodput, flows.shows_goodput, flows.goodput_caption),
    "windows": Detail(plots.windows, plots.shows_windows, plots.windows_caption),
    "completion": Detail(flows.completions, flows.shows_completions, flows.completions_caption),
}


def draw(result: Runs, kind: str, point: int = 0, link: int = 0) -> Plot:
    """Draws one figure of `DETAILS`, or one that every result has.

    point, link: indices in the plan; figures over all points take none.
    """
    if kind in DETAILS:
        with mpl.rc_context(plots.STYLE):
            return DETAILS[kind].draw(result, point, link)
    if kind not in plots.KINDS and kind not in overviews.OVERVIEWS:
        known = ", ".join([*plots.KINDS, *DETAILS, *overviews.OVERVIEWS])
        raise ValueError(f'kind: found "{kind}", allowed: {known}')
    return overviews.draw(result, kind, point, link)
