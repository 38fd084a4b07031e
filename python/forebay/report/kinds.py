"""The kinds of figures of a result, each declared once: its data, its words, and when it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay._base.errors import ParameterError
from forebay.experiment import descriptions
from forebay.report import distributions, drawing, over_time, sweeps
from forebay.report.sheet import Sheet

if TYPE_CHECKING:
    from forebay._native import PointInfo
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot


@dataclass(frozen=True)
class Kind:
    """A figure of a link at a point, by their indices.

    title, text: what stands above and below it, with the fields of `caption`. shows: whether there
    is anything to show. every_link: whether a page has it for each link, and not for the bottleneck
    alone. more: further sentences.
    """

    sheet: Callable[[Result, int, int], Sheet]
    title: str
    text: str
    shows: Callable[[Result, int, int], bool] = lambda _result, _point, _link: True
    every_link: bool = False
    more: Callable[[Result, PointInfo, int], str] = lambda _result, _point, _link: ""

    def caption(self, result: Result, point: PointInfo, link: int) -> tuple[str, str]:
        """Its title, and the text below it."""
        fields = {
            "at": descriptions.at_link(point, link),
            "across": descriptions.at_link(point, link, "across"),
            "sample": f"{1e3 * point.sample_s:g} ms",
            "interval": f"{over_time.loss_interval_s(point):g} s",
            "measured": descriptions.measured_over(result, point),
            # Beside a curve of one seed.
            "seen": descriptions.measured_over(result, point, one="the same seed"),
        }
        more = self.more(result, point, link)
        return self.title.format(**fields), self.text.format(**fields) + more


#: In the order of the report.
KINDS = {
    "queue": Kind(
        over_time.queue,
        "Queue length over time{at}",
        "Left: the backlog every {sample}, with the first seed. Right: how often each length was "
        "seen {seen}.",
        every_link=True,
        more=over_time.about_queue,
    ),
    "loss": Kind(
        over_time.loss,
        "Loss rate over time{at}",
        "Left: packets dropped of those that arrived, in every {interval}, with the first seed. "
        "Right: how often each rate was seen {seen}. A wide spread means bursts of loss.",
    ),
    "delay": Kind(
        distributions.delay,
        "Queuing delay{at}",
        "Share of packets that waited longer than the time on the axis, {seen}. A curve further "
        "left means less delay; it crosses 1 % at the 99th percentile.",
    ),
    "classes": Kind(
        distributions.classes,
        "Queuing delay by class{at}",
        "Share of the packets of each class that waited no longer than the time on the axis, "
        "{measured}. Laws under which all packets are of one class are left out.",
        distributions.shows_classes,
        every_link=True,
    ),
    "flows": Kind(
        over_time.goodput,
        "Goodput per flow over time{across}",
        "In-order data of each flow, by the time when it left the last queue, with the first seed. "
        "Traffic of up to 20 flows has a curve for each; of more, the median over its flows, in "
        "bands that hold the middle half and nine tenths of them. Peaks outside the measurement "
        "are cut off.",
        over_time.shows_flows,
    ),
    "windows": Kind(
        over_time.windows,
        "Packets in flight over time",
        "Left: what a flow of ftp has sent and not had acknowledged, every {sample}, the mean over "
        "all that have data, with the first seed. Right: how often each number was seen {seen}.",
        over_time.shows_windows,
    ),
    "completion": Kind(
        distributions.completions,
        "Completion of transfers{across}",
        "Share of the transfers that took no longer than the time on the axis, from the SYN to the "
        "last ACK; those that were done {measured}. A curve further left means faster transfers.",
        distributions.shows_completions,
    ),
}


def draw(result: Result, kind: str, point: int = 0, link: int = 0) -> Plot:
    """Draws one figure of `KINDS`, or of `sweeps.OVERVIEWS`.

    point, link: indices in the plan; figures over all points take none.
    """
    if kind not in KINDS and kind not in sweeps.OVERVIEWS:
        raise ParameterError("kind", kind, ", ".join([*KINDS, *sweeps.OVERVIEWS]))
    if kind in KINDS:
        return drawing.draw(KINDS[kind].sheet(result, point, link))
    over = sweeps.content(result, kind)
    return drawing.draw(over) if isinstance(over, Sheet) else over
