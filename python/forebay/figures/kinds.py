"""The kinds of figures of a result, each declared once: its data, its words, and when it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay.figures import distributions, drawing, over_time, sweeps
from forebay.figures.sheet import Sheet

if TYPE_CHECKING:
    from forebay._native import PointInfo
    from forebay.figures.plot import Plot
    from forebay.runs.experiment_runs import Runs


@dataclass(frozen=True)
class Kind:
    """A figure of a link at a point, by their indices.

    caption: its title, and the text below it. shows: whether there is anything to show. every_link:
    whether a page has it for each link, and not for the bottleneck alone.
    """

    sheet: Callable[[Runs, int, int], Sheet]
    caption: Callable[[Runs, PointInfo, int], tuple[str, str]]
    shows: Callable[[Runs, int, int], bool] = lambda _result, _point, _link: True
    every_link: bool = False


#: In the order of the report.
KINDS = {
    "queue": Kind(over_time.queue, over_time.queue_caption, every_link=True),
    "loss": Kind(over_time.loss, over_time.loss_caption),
    "delay": Kind(distributions.delay, distributions.delay_caption),
    "classes": Kind(
        distributions.classes,
        distributions.classes_caption,
        distributions.shows_classes,
        every_link=True,
    ),
    "flows": Kind(over_time.goodput, over_time.goodput_caption, over_time.shows_flows),
    "windows": Kind(over_time.windows, over_time.windows_caption, over_time.shows_windows),
    "completion": Kind(
        distributions.completions,
        distributions.completions_caption,
        distributions.shows_completions,
    ),
}


def draw(result: Runs, kind: str, point: int = 0, link: int = 0) -> Plot:
    """Draws one figure of `KINDS`, or of `sweeps.OVERVIEWS`.

    point, link: indices in the plan; figures over all points take none.
    """
    if kind not in KINDS and kind not in sweeps.OVERVIEWS:
        known = ", ".join([*KINDS, *sweeps.OVERVIEWS])
        raise ValueError(f'kind: found "{kind}", allowed: {known}')
    if kind in KINDS:
        return drawing.draw(KINDS[kind].sheet(result, point, link))
    over = sweeps.content(result, kind)
    return drawing.draw(over) if isinstance(over, Sheet) else over
