"""The kinds of figures of a result: the data of each, its caption, and when it is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from forebay._base.errors import ParameterError
from forebay._base.registries import title_of
from forebay._base.words import one_of
from forebay.experiment import descriptions
from forebay.report import over_time, style, sweeps
from forebay.report.sheet import Curve, Floats, Panel, Scale, Sheet

if TYPE_CHECKING:
    from forebay._native import ClassObserved, Observed, PointInfo
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot

#: Lower end of a logarithmic axis of delays in ms; shorter delays do not matter to a reader.
LEAST_MS = 0.01
#: Share of packets, in %, below which a curve is not shown.
LEAST_PERCENT = 0.01


def delay(result: Result, point: int, link: int) -> Sheet:
    """Return the share of packets that waited longer than a given time, one curve per law.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    curves = []
    for index, law in result.laws(point):
        delay_ms, longer = waited_longer(result.observed_at(point, index, link), 1e-5)
        if len(delay_ms):
            # Before the shortest wait, every packet waited longer.
            x, y = np.concatenate([[0.0], delay_ms]), np.concatenate([[1.0], longer])
            name = title_of(law.label)
            curves.append(Curve(name, {"law": name}, index, x, 100 * y, width=1.5))
    return Sheet(
        f"delay-{link}",
        Scale("Queuing delay", "ms", zero=True),
        Scale("Packets that waited longer", "%", log=True, least=LEAST_PERCENT),
        [Panel("", curves)],
        step=True,
    )


def classes(result: Result, point: int, link: int) -> Sheet:
    """Return the share of a class's packets that waited no longer, one panel per law with classes.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    panels = []
    for index, law in result.laws(point):
        series = []
        for i, name in enumerate(result.class_names(point, index, link)):
            observed = result.observed_at(point, index, link)
            mine = [
                packet_class
                for observation in observed
                for packet_class in observation.classes
                if packet_class.name == name
            ]
            delay_ms, shorter = waited_no_longer(mine)
            look = style.of_traffic(i)
            series.append(Curve(name, {"class": name}, look, delay_ms, 100 * shorter, width=1.5))
        if series:
            panels.append(Panel(title_of(law.label), series))
    return Sheet(
        f"classes-{link}",
        Scale("Queuing delay", "ms", log=True, least=LEAST_MS, note=", logarithmic"),
        Scale("Packets that waited no longer", "%", range=(0.0, 102.0)),
        panels,
        step=True,
    )


def completions(result: Result, point: int, link: int) -> Sheet:
    """Return the share of transfers that took no longer, one panel per traffic, one curve per law.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    info = result.plan.points[point]
    panels = []
    for kind in over_time.with_transfers(result, point, link):
        series = []
        for index, law in result.laws(point):
            took = completion_times_s(result, point, index, link, kind)
            if len(took):
                share = 100 * np.arange(len(took) + 1) / len(took)
                x, name = np.concatenate([took[:1], took]), title_of(law.label)
                series.append(Curve(name, {"law": name}, index, x, share))
        panels.append(Panel(info.traffic[kind].label, series))
    return Sheet(
        f"completion-{link}",
        Scale("Completion time", "s", log=True, note=", logarithmic"),
        Scale("Transfers that took no longer", "%", range=(0.0, 102.0)),
        panels,
        step=True,
    )


def shows_classes(result: Result, point: int, link: int) -> bool:
    """Return True if the queue of any law has classes of packets.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    return any(result.class_names(point, law, link) for law, _ in result.laws(point))


def shows_completions(result: Result, point: int, link: int) -> bool:
    """Return True if any transfer was completed.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    return bool(over_time.with_transfers(result, point, link))


def waited_longer(observed: Sequence[Observed], least: float) -> tuple[Floats, Floats]:
    """Return delays, and the share of packets that waited longer than each.

    Parameters
    ----------
    observed : Sequence[Observed]
        The observations of each run.
    least : float
        The smallest share to return.

    Returns
    -------
    tuple[Floats, Floats]
        Delays in ms, and shares from 0 to 1; empty without packets.
    """
    delay_ms, share = _cumulated(observed)
    if not len(share) or share[-1] == 0:
        return delay_ms[:0], share[:0]
    # The last bin's share is zero; a logarithmic axis cannot show it.
    longer = 1 - share / share[-1]
    return delay_ms[longer > least], longer[longer > least]


def waited_no_longer(observed: Sequence[ClassObserved]) -> tuple[Floats, Floats]:
    """Return delays in ms, at least `LEAST_MS`, and the share of packets that waited no longer."""
    delay_ms, count = _cumulated(observed)
    # The curve begins on the axis, at the smallest delay of the class.
    delay_ms = np.maximum(delay_ms, LEAST_MS)
    share = count / max(1.0, count[-1]) if len(count) else count
    return np.concatenate([delay_ms[:1], delay_ms]), np.concatenate([[0.0], share])


def completion_times_s(result: Result, point: int, law: int, link: int, traffic: int) -> Floats:
    """Return the completion times of one traffic's transfers under a law in seconds, sorted.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    law : int
        Index of the law.
    link : int
        Index of the link.
    traffic : int
        Index of the traffic.
    """
    observations = result.observed_at(point, law, link)
    return np.sort(
        np.concatenate(
            [observed.transfer_s[observed.transfer_traffic == traffic] for observed in observations]
        )
    )


def _cumulated(observed: Sequence[Observed] | Sequence[ClassObserved]) -> tuple[Floats, Floats]:
    """Return delays in ms, sorted, and the number of packets that waited no longer."""
    delay_ms = 1e3 * np.concatenate([observation.delay_s for observation in observed])
    packets = np.concatenate([observation.delay_packets for observation in observed]).astype(float)
    order = np.argsort(delay_ms, kind="stable")
    return delay_ms[order], np.cumsum(packets[order])


@dataclass(frozen=True)
class Kind:
    """A kind of figure of a link at a point.

    Attributes
    ----------
    sheet : Callable[[Result, int, int], Sheet]
        A function of result, point and link that returns the figure.
    title : str
        Title above the figure, with the fields of `caption`.
    text : str
        Text below the figure, with the fields of `caption`.
    shows : Callable[[Result, int, int], bool], default lambda _result, _point, _link: True
        A function of result, point and link that returns True if there is anything to show.
    every_link : bool, default False
        True if a page has the figure for each link, False for only the bottleneck.
    more : Callable[[Result, PointInfo, int], str], default lambda _result, _point, _link: ''
        A function of result, point and link that returns further sentences.
    """

    sheet: Callable[[Result, int, int], Sheet]
    title: str
    text: str
    shows: Callable[[Result, int, int], bool] = lambda _result, _point, _link: True
    every_link: bool = False
    more: Callable[[Result, PointInfo, int], str] = lambda _result, _point, _link: ""

    def caption(self, result: Result, point: PointInfo, link: int) -> tuple[str, str]:
        """Return the title and the text of a figure.

        Parameters
        ----------
        result : Result
            The result.
        point : PointInfo
            The point.
        link : int
            Index of the link.
        """
        fields = {
            "at": descriptions.at_link(point, link),
            "across": descriptions.at_link(point, link, "across"),
            "sample": f"{1e3 * point.sample_s:g} ms",
            "interval": f"{over_time.loss_interval_s(point):g} s",
            "measured": descriptions.measured_over(result, point),
            # The text describes a histogram next to a curve of one seed.
            "seen": descriptions.measured_over(result, point, single_seed="the same seed"),
        }
        more = self.more(result, point, link)
        return self.title.format(**fields), self.text.format(**fields) + more


#: The kinds of figures in the order of the report.
KINDS = {
    "queue": Kind(
        over_time.queue,
        "Queue length over time{at}",
        "Left: the backlog every {sample}, with the first seed. Right, on a wide page: how often "
        "each length occurred {seen}.",
        every_link=True,
        more=over_time.about_queue,
    ),
    "loss": Kind(
        over_time.loss,
        "Loss rate over time{at}",
        "Left: packets dropped of those that arrived, in every {interval}, with the first seed. "
        "Right, on a wide page: how often each rate occurred {seen}. A wide spread means bursts "
        "of loss.",
    ),
    "delay": Kind(
        delay,
        "Queuing delay{at}",
        "Share of packets that waited longer than the time on the axis, {seen}. A curve further "
        "left means less delay; it crosses 1 % at the 99th percentile.",
    ),
    "classes": Kind(
        classes,
        "Queuing delay by class{at}",
        "Share of the packets of each class that waited no longer than the time on the axis, "
        "{measured}. Laws under which all packets are of one class are left out.",
        shows_classes,
        every_link=True,
    ),
    "flows": Kind(
        over_time.goodput,
        "Goodput per flow over time{across}",
        "In-order data of each flow, by the time when it left the last queue, with the first seed. "
        "Traffic of up to 20 flows has a curve for each flow; other traffic has the median over "
        "its flows, with bands for the middle 50 % and 90 % of them. Peaks outside the measurement "
        "window are cut off.",
        over_time.shows_flows,
    ),
    "windows": Kind(
        over_time.windows,
        "Packets in flight over time",
        "Left: unacknowledged packets of an ftp flow every {sample}, the mean over all flows with "
        "data to send, with the first seed. Right, on a wide page: how often each number "
        "occurred {seen}.",
        over_time.shows_windows,
    ),
    "completion": Kind(
        completions,
        "Completion of transfers{across}",
        "Share of the transfers completed {measured} that took no longer than the time on the "
        "axis, from the SYN to the last ACK. A curve further left means faster transfers.",
        shows_completions,
    ),
}


def draw(result: Result, kind: str, point: int = 0, link: int = 0) -> Plot:
    """Return one figure of `KINDS` or of `sweeps.OVERVIEWS`.

    Parameters
    ----------
    result : Result
        The result.
    kind : str
        Name of the figure.
    point : int, default 0
        Index of the point; figures over all points ignore it.
    link : int, default 0
        Index of the link; figures over all points ignore it.

    Raises
    ------
    ParameterError
        If there is no such kind.
    """
    if kind not in KINDS and kind not in sweeps.OVERVIEWS:
        raise ParameterError("kind", kind, one_of([*KINDS, *sweeps.OVERVIEWS], kind))
    from forebay.report import drawing

    if kind in KINDS:
        return drawing.draw(KINDS[kind].sheet(result, point, link))
    return drawing.draw(sweeps.content(result, kind))
