"""The range of links that a law has to hold over, as operating points: `forebay.LinkRange`."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from forebay._base import input_file, quantities
from forebay._base.errors import ParameterError
from forebay._base.quantities import Overrides
from forebay._base.registries import scenario_pairs
from forebay._base.words import in_figures
from forebay._native import Conditions, FlowModel
from forebay.control.link import (
    PLAIN,
    Link,
    PerClass,
    Quantity,
    Span,
    class_count,
    modelled_senders,
    per_class,
    quantity,
    replaced,
    set_fields,
    text_of,
)
from forebay.control.senders import SENDERS
from forebay.experiment import experiment
from forebay.scenario.builder import Group

T = TypeVar("T")
#: A value or a range, or a list with one for each class of flows.
ClassSpans = Quantity | Span | list[Any]

#: Keys of a scenario that the range sets itself, and those of laws.
OWN_KEYS = (
    r"bottleneck\.(rate|rate_trace|buffer)|traffic\.\d+\.(rtt|flows|packet|tcp)|"
    r"(law|sweep|duration|measure|seeds)\b.*"
)
#: Largest number of flows of a range; runs with more packets take too long.
MOST_FLOWS = 100_000
#: Bytes that may leave a recorded link at each of its times.
TRACE_BYTES = 1500
#: Length in seconds of the windows over which rates of a recorded link are averaged; it is far
#: above an RTT.
WINDOW_S = 1.0
#: Percentiles of the windows' rates between which gains must hold; no law controls the queue of a
#: link that stands still.
PERCENTILES = (10.0, 90.0)
NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class RecordedLink:
    """A recorded link: a trace of the times at which 1500 bytes may leave."""

    #: Absolute path of the file.
    path: str
    #: Mean, low and high percentile, and maximum of the rates of windows of a second.
    mean_bps: int
    low_bps: int
    high_bps: int
    peak_bps: int
    #: Length of the recording, after which it starts again.
    round_s: float

    @staticmethod
    def from_file(name: str) -> RecordedLink:
        """Read a trace. Raises `ParameterError` if the file is not a list of times."""
        path = Path(name).resolve()
        data = experiment.FilesBeside(path)(path.name)
        if data is None:
            raise ParameterError("trace", name, "a file that can be read")
        try:
            times_ms = np.array([int(n) for n in input_file.data(path.name, data).split()], float)
        except (ValueError, OverflowError):
            times_ms = np.empty(0)
        if not len(times_ms) or times_ms[-1] <= 0 or (np.diff(times_ms) < 0).any():
            expected = "times in whole ms, one per line, in ascending order"
            raise ParameterError("trace", name, expected)
        round_s = 1e-3 * float(times_ms[-1])
        bits = 8.0 * TRACE_BYTES
        windows = max(1, int(round_s / WINDOW_S))
        counts, _ = np.histogram(1e-3 * times_ms, bins=windows, range=(0.0, round_s))
        rates = counts * bits / (round_s / windows)
        mean = bits * len(times_ms) / round_s
        low, high = np.percentile(rates, PERCENTILES)
        # A link that stands still in every tenth window would have a lowest rate of zero.
        low = max(low, 0.05 * mean)
        # Three figures, as a scenario writes rates.
        rates_bps = [round(float(f"{bps:.3g}")) for bps in (mean, low, max(high, low), rates.max())]
        mean_bps, low_bps, high_bps, peak_bps = rates_bps
        return RecordedLink(str(path), mean_bps, low_bps, high_bps, peak_bps, round_s)


@dataclass(frozen=True)
class OperatingPoint:
    """A link with its load.

    Attributes
    ----------
    rate_bps : int
        Rate of the link.
    rtt_s : float
        Propagation RTT; the mean over `classes`, if there are some.
    flows : int
        Number of flows.
    traced : bool
        True on a recorded link, whose mean rate is `rate_bps`.
    classes : tuple of Group
        The classes of flows, if their senders or RTTs differ.
    before : OperatingPoint or None
        The rate and the load before a step to this point; None in steady state.
    """

    rate_bps: int
    rtt_s: float
    flows: int
    traced: bool = False
    classes: tuple[Group, ...] = ()
    before: OperatingPoint | None = None

    @property
    def plain(self) -> tuple[int, float, int]:
        """Rate, RTT and number of flows, without classes."""
        return self.rate_bps, self.rtt_s, self.flows

    @property
    def rate(self) -> str:
        """The rate in the notation of a scenario."""
        return quantities.rate(self.rate_bps)

    @property
    def rtt(self) -> str:
        """The RTT in the notation of a scenario."""
        return f"{1e3 * self.rtt_s:.10g}ms"

    def __str__(self) -> str:
        """Return rate, RTT and number of flows in words."""
        ends = [self.before or self, self]
        rates = dict.fromkeys(in_figures(1e-6 * end.rate_bps, 4) for end in ends)
        rate = f"{' to '.join(rates)}{NO_BREAK}Mbit/s"
        rate = f"the trace of {rate}" if self.traced else rate
        rtts_s = dict.fromkeys(group.rtt_s for group in self.classes) or [self.rtt_s]
        rtt = "/".join(in_figures(1e3 * rtt_s, 4) for rtt_s in rtts_s) + f"{NO_BREAK}ms"
        counts = " to ".join(dict.fromkeys(str(end.flows) for end in ends))
        return f"{rate}, {rtt}, {counts}{NO_BREAK}flow{'s' if counts != '1' else ''}"


@dataclass(frozen=True)
class ClassRange:
    """The range of a class of flows: its sender, its RTTs and its numbers of flows."""

    tcp: str
    rtts_s: tuple[float, float]
    flows: tuple[int, int]

    def at(self, rtt: float, flows: float) -> Group:
        """Return the class at a point of its ranges: 0 at the low end, 1 at the high one."""
        rtt_s = _interpolated(self.rtts_s, rtt)
        rtt_s = float(f"{rtt_s:.3g}") if 0 < rtt < 1 else rtt_s
        return Group(self.tcp, round(_interpolated(self.flows, flows)), quantities.time(rtt_s))


@dataclass(frozen=True, init=False)
class LinkRange:
    """A range of links and of their flows, over which one law has to hold: `forebay.LinkRange`.

    Parameters
    ----------
    rate : str, float, pair or None
        Rate of the link, or its range such as ``"5..50Mbit/s"`` or ``("5Mbit/s", "50Mbit/s")``.
        None stands for the rates of `trace`.
    rtt : str, float, pair or list
        Propagation delay in both directions, without queueing, or its range.
    flows : int, str, pair or list
        Number of long-lived TCP flows, or its range such as ``(10, 400)``. One number is divided
        equally among the classes of flows.
    packet : str or float, optional
        Size of a packet; 1000 bytes by default.
    buffer : str or float, optional
        Size of the buffer in packets, at least 10; by default the largest bandwidth-delay product.
    senders : str or list, optional
        Congestion control of the flows, as for `forebay.Link`.
    trace : str, optional
        File of a recorded link: the times in ms at which 1500 bytes may leave.

    Raises
    ------
    ParameterError
        If a value is not a quantity or range of its kind, or out of bounds.

    Attributes
    ----------
    rates_bps : (int, int)
        Lowest and highest rate.
    spans : tuple of ClassRange
        The classes of flows.
    packet : str
        Size of a packet as a text.
    packet_bytes : float
        Size of a packet.
    buffer_pkts : int
        Number of packets that the buffer holds.
    trace : RecordedLink or None
        The recorded link over which packets run, and which has these rates.
    overrides : tuple of (key, value)
        Keys of the scenarios in which packets run.
    router : str
        One of `candidates.CHOICES` if the law is for a router, whose laws and values are limited;
        empty for any law.

    Notes
    -----
    `rtt`, `flows` and `senders` may each be a list with an entry for every class of flows, whose
    entries may be ranges, as in ``rtt=["20ms", ("80ms", "200ms")]`` or ``"20ms,80..200ms"``.

    Examples
    --------
    >>> forebay.LinkRange(rate="5..50Mbit/s", rtt="20..200ms", flows=(10, 400), senders="cubic")
    """

    rates_bps: tuple[int, int]
    spans: tuple[ClassRange, ...]
    packet: str
    packet_bytes: float
    buffer_pkts: int
    trace: RecordedLink | None
    overrides: tuple[tuple[str, str], ...]
    router: str

    def __init__(
        self,
        rate: Quantity | Span | None,
        rtt: ClassSpans,
        *,
        flows: ClassSpans,
        packet: Quantity = "1000B",
        buffer: Quantity | None = None,
        senders: PerClass = PLAIN,
        trace: str | None = None,
    ) -> None:
        spans = _class_ranges(rtt, flows, senders)
        recorded = None if trace is None else RecordedLink.from_file(trace)
        if rate is not None:
            low, high = _bounds("rate", _range_text(rate, "rate"), "rate")
        elif recorded is not None:
            low, high = recorded.low_bps, recorded.high_bps
        else:
            expected = "a rate or a range of rates, or a trace"
            raise ParameterError("rate", None, expected)
        packet_bytes = quantity("packet", packet, "size")
        if not packet_bytes >= 1:
            raise ParameterError("packet", text_of(packet, "size"), "more than zero")
        if buffer is None:
            buffer_pkts = high * max(span.rtts_s[1] for span in spans) / (8 * packet_bytes)
        else:
            buffer_pkts = quantity("buffer", buffer, "queue")
            if buffer_pkts < 10:
                raise ParameterError("buffer", text_of(buffer, "queue"), 'at least "10p"')
        set_fields(
            self,
            rates_bps=(round(low), round(high)),
            spans=spans,
            packet=text_of(packet, "size"),
            packet_bytes=packet_bytes,
            buffer_pkts=max(10, math.ceil(buffer_pkts)),
            trace=recorded,
            overrides=(),
            router="",
        )

    def with_settings(self, overrides: Overrides = (), router: str = "") -> LinkRange:
        """Return the range with settings of its packet runs and of the choice of laws.

        Parameters
        ----------
        overrides : dict, str or sequence, optional
            Keys of the scenarios in which packets run.
        router : str, optional
            One of `candidates.CHOICES`.

        Raises
        ------
        ParameterError
            If a key belongs to the range itself.
        """
        pairs = scenario_pairs(overrides)
        for key, _ in pairs:
            if re.fullmatch(OWN_KEYS, key):
                expected = "a key of the packet runs that the range does not set"
                raise ParameterError("overrides", key, expected)
        return replaced(self, overrides=tuple(pairs), router=router)

    @property
    def rtts_s(self) -> tuple[float, float]:
        """The shortest and the longest RTT of all classes."""
        return min(span.rtts_s[0] for span in self.spans), max(
            span.rtts_s[1] for span in self.spans
        )

    @property
    def flows(self) -> tuple[int, int]:
        """The fewest and the most flows of all classes together."""
        return sum(span.flows[0] for span in self.spans), sum(span.flows[1] for span in self.spans)

    @property
    def tcp(self) -> str:
        """The sender of all flows by its name in `--tcp`, or the sender of each class."""
        names = [span.tcp for span in self.spans]
        return names[0] if len(set(names)) == 1 else ",".join(names)

    @property
    def one_class(self) -> bool:
        """True if all flows are alike."""
        return len(self.spans) == 1

    @property
    def plain(self) -> bool:
        """True if all flows are those of the published plant."""
        return self.one_class and self.tcp == PLAIN

    @property
    def l4s(self) -> bool:
        """True if some flows are controlled by the marks of L4S."""
        return any(SENDERS[span.tcp].ecn == "l4s" for span in self.spans)

    def at(self, rate_bps: float, rtt: float, flows: float) -> OperatingPoint:
        """Return an operating point within the range.

        Parameters
        ----------
        rate_bps : float
            Rate in bit/s.
        rtt, flows : float
            Position within their ranges, from 0 (low end) to 1 (high end).
        """
        if self.one_class:
            rtt_s = _interpolated(self.rtts_s, rtt)
            return OperatingPoint(round(rate_bps), rtt_s, round(_interpolated(self.flows, flows)))
        groups = tuple(span.at(rtt, flows) for span in self.spans)
        number = round(sum(group.flows for group in groups))
        mean_s = sum(group.flows * group.rtt_s for group in groups) / number
        return OperatingPoint(round(rate_bps), round(mean_s, 6), number, classes=groups)

    @cached_property
    def corners(self) -> list[OperatingPoint]:
        """Every combination of ends, eight for three ranges, in the order of a scenario's sweep."""
        return [
            self.at(rate_bps, rtt, flows)
            for rate_bps in _distinct(self.rates_bps)
            for rtt, flows in self._ends()
        ]

    def _ends(self) -> list[tuple[float, float]]:
        """Return the ends of the RTTs and of the flows, as 0 and 1."""
        spread = any(span.rtts_s[0] < span.rtts_s[1] for span in self.spans)
        rtts = [0.0, 1.0] if spread else [0.0]
        flows = [0.0, 1.0] if self.flows[0] < self.flows[1] else [0.0]
        return list(itertools.product(rtts, flows))

    @property
    def middle(self) -> OperatingPoint:
        """The geometric means, to three figures."""
        rate = float(f"{math.sqrt(math.prod(self.rates_bps)):.3g}")
        point = self.at(rate, 0.5, 0.5)
        return replace(point, rtt_s=float(f"{point.rtt_s:.3g}")) if self.one_class else point

    @cached_property
    def conditions(self) -> list[OperatingPoint]:
        """The points of the linear model: the corners, and the middle if it is another point."""
        return self.corners if len(self.corners) == 1 else [*self.corners, self.middle]

    @property
    def places(self) -> list[OperatingPoint]:
        """The points at which packets run: `swept`, `centre`, and after every step."""
        return [*self.swept, *([] if self.centre is None else [self.centre]), *self.steps]

    @cached_property
    def steps(self) -> list[OperatingPoint]:
        """The points after a step of the load or of the rate, with the longest RTT.

        Flows leave the fastest link and arrive at the slowest. The rate falls with the most flows
        and rises with the fewest. A recorded link varies by itself, and has no steps.
        """
        if self.trace is not None:
            return []
        low, high = self.rates_bps
        few, many = self.flows
        ends = [((high, 1.0), (high, 0.0)), ((low, 0.0), (low, 1.0))] if few < many else []
        ends += [((high, 1.0), (low, 1.0)), ((low, 0.0), (high, 0.0))] if low < high else []
        return [
            replace(self.at(after[0], 1.0, after[1]), before=self.at(before[0], 1.0, before[1]))
            for before, after in ends
        ]

    @property
    def swept(self) -> list[OperatingPoint]:
        """The points of the packets' sweep, in its order: the corners, or those of the trace."""
        if self.trace is None:
            return self.corners
        points = (self.at(self.trace.mean_bps, *ends) for ends in self._ends())
        return [replace(point, traced=True) for point in points]

    @property
    def centre(self) -> OperatingPoint | None:
        """The middle for packets; None if it is the only point of the sweep."""
        if len(self.swept) == 1:
            return None
        if self.trace is None:
            return self.middle
        return replace(self.middle, rate_bps=self.trace.mean_bps, traced=True)

    @cached_property
    def native(self) -> Conditions:
        """The points for the registry of laws."""
        return self._native(lambda point: point.plain)

    @cached_property
    def alike(self) -> Conditions:
        """The points with the number of Reno flows that needs the same signal probability.

        Gains depend on that probability, and the axes of a search are declared for Reno.
        """
        if self.plain:
            return self.native

        def plain(point: OperatingPoint) -> tuple[int, float, int]:
            flows = self.reno_flows(point, self.native.active_flows(point.plain, 0.0), 0.0)
            return point.rate_bps, point.rtt_s, max(1, round(flows))

        return self._native(plain)

    def _native(self, plain: Callable[[OperatingPoint], tuple[int, float, int]]) -> Conditions:
        points = [plain(point) for point in self.conditions]
        size, buffer_pkts = round(self.packet_bytes), float(self.buffer_pkts)
        return Conditions(points, plain(self.middle), size, buffer_pkts)

    def reno_flows(self, at: OperatingPoint, flows: float, queue_pkts: float) -> float:
        """Return the number of Reno flows that need the same probability with this queue.

        Parameters
        ----------
        at : OperatingPoint
            The operating point.
        flows : float
            Number of flows.
        queue_pkts : float
            Queue in packets.
        """
        if self.plain:
            return flows
        groups = self.groups(at)
        total = sum(group.flows for group in groups)
        mix = FlowModel.mixed(
            [group.tcp for group in groups],
            [group.flows / total for group in groups],
            [group.rtt_s / at.rtt_s for group in groups],
        )
        capacity = self.capacity_pkts_per_s(at)
        return mix.operating_point(flows, at.rtt_s, queue_pkts, capacity).flows

    def groups(self, at: OperatingPoint) -> tuple[Group, ...]:
        """Return all flows of a point, in classes."""
        return at.classes or (Group(self.tcp, at.flows, at.rtt),)

    def link(self, at: OperatingPoint, flows: float) -> Link:
        """Return the link of an operating point for a design.

        Parameters
        ----------
        at : OperatingPoint
            The operating point.
        flows : float
            Number of flows; the classes keep their shares of it.
        """
        groups = () if self.plain else self.groups(at)
        scaled = tuple(replace(group, flows=group.flows * flows / at.flows) for group in groups)
        return Link.of_groups(
            at.rate,
            at.rtt,
            flows=flows,
            packet=self.packet,
            buffer_pkts=self.buffer_pkts,
            groups=scaled,
        )

    def grid(self, points: int) -> list[OperatingPoint]:
        """Return a grid with `points` values along each range, evenly in the logarithm."""

        def steps(spread: bool) -> list[float]:
            return [i / (points - 1) for i in range(points)] if spread and points > 1 else [0.0]

        ends = self._ends()
        low, high = self.rates_bps
        rates = [_interpolated((low, high), share) for share in steps(low < high)]
        rtts, flows = (steps(len({pair[i] for pair in ends}) > 1) for i in (0, 1))
        grid = [self.at(rate, rtt, n) for rate, rtt, n in itertools.product(rates, rtts, flows)]
        if self.one_class:
            grid = [replace(point, rtt_s=round(point.rtt_s, 6)) for point in grid]
        return list(dict.fromkeys(grid))

    def only(self, point: OperatingPoint) -> LinkRange:
        """Return the range of a single point, with the same buffer."""
        spans = tuple(
            ClassRange(group.tcp, (group.rtt_s,) * 2, (round(group.flows),) * 2)
            for group in point.classes
        )
        if self.one_class:
            spans = (replace(self.spans[0], rtts_s=(point.rtt_s,) * 2, flows=(point.flows,) * 2),)
        return replaced(self, rates_bps=(point.rate_bps,) * 2, spans=spans)

    def capacity_pkts_per_s(self, point: OperatingPoint) -> float:
        """Return the rate of a point in packets of usual size."""
        return point.rate_bps / (8 * self.packet_bytes)

    def __str__(self) -> str:
        """Return the ranges of rate, RTTs and flows in words."""

        def span(bounds: tuple[float, float], scale: float, unit: str) -> str:
            texts = [in_figures(scale * end, 4) for end in _distinct(bounds)]
            return " to ".join(texts) + unit

        rtts = ", ".join(dict.fromkeys(span(group.rtts_s, 1e3, "") for group in self.spans))
        senders = list(dict.fromkeys(group.tcp for group in self.spans))
        of_senders = "" if senders == [PLAIN] else f" of {' and '.join(senders)}"
        rates, flows = span(self.rates_bps, 1e-6, " Mbit/s"), span(self.flows, 1, " flows")
        return f"{rates}, {rtts} ms, {flows}{of_senders}"


def _range_text(value: Quantity | Span, kind: str | None) -> str:
    """Return a value or a range as a text; a pair has the ends of a range."""
    if isinstance(value, tuple):
        return quantities.DOTS.join(_range_text(end, kind) for end in value)
    return text_of(value, kind) if kind else str(value)


def _bounds(name: str, text: str, kind: str) -> tuple[float, float]:
    low, high = quantities.range_ends(name, text)
    return _checked(name, text, (quantity(name, low, kind), quantity(name, high, kind)))


def _texts(value: ClassSpans | PerClass, kind: str | None) -> list[str]:
    """Return the entries of the classes of flows as texts."""
    entries: list[Any] = value if isinstance(value, list) else [value]
    return [part for entry in entries for part in _range_text(entry, kind).split(",")]


def _class_ranges(rtt: ClassSpans, flows: ClassSpans, senders: PerClass) -> tuple[ClassRange, ...]:
    """Return the classes of flows: as many as the longest list has entries.

    A list with one entry applies to all classes.
    """
    lists = {
        "rtt": _texts(rtt, "time"),
        "flows": _texts(flows, None),
        "senders": _texts(senders, None),
    }
    size = class_count(lists)
    names = modelled_senders(lists["senders"])
    counts = [_flow_range(text) for text in lists["flows"]]
    if len(counts) < size:
        low, high = counts[0]
        if low < size:
            expected = "one flow for each class, or more"
            raise ParameterError(
                "flows", lists["flows"][0], expected, reason=f"there are {size} classes"
            )
        counts = list(zip(_divided(low, size), _divided(high, size), strict=True))
    bounds = [_bounds("rtt", text, "time") for text in lists["rtt"]]
    rtts_s = [(round(low, 6), round(high, 6)) for low, high in bounds]
    names, rtts_s = per_class(names, size), per_class(rtts_s, size)
    rows = zip(names, rtts_s, per_class(counts, size), strict=True)
    return tuple(ClassRange(*row) for row in rows)


def _divided(number: int, parts: int) -> list[int]:
    return [number // parts + (i < number % parts) for i in range(parts)]


def _flow_range(text: str) -> tuple[int, int]:
    ends = quantities.range_ends("flows", text)
    if not all(end.isdigit() and int(end) <= MOST_FLOWS for end in ends):
        expected = f"whole numbers up to {MOST_FLOWS}, such as 10..400"
        raise ParameterError("flows", text, expected)
    low, high = ends
    return _checked("flows", text, (int(low), int(high)))


Bounds = TypeVar("Bounds", tuple[int, int], tuple[float, float])


def _checked(name: str, text: str, bounds: Bounds) -> Bounds:
    """Return the bounds of a range. Raises `ParameterError` where they are not in order."""
    if not 0 < bounds[0] <= bounds[1]:
        raise ParameterError(name, text, "from less to more, above zero")
    return bounds


def _interpolated(bounds: tuple[float, float], share: float) -> float:
    """Return a value from 0 (low end) to 1 (high end) in the logarithm, with exact ends."""
    low, high = bounds
    return high if share == 1 else low * (high / low) ** share


def _distinct(bounds: tuple[T, T]) -> list[T]:
    return list(dict.fromkeys(bounds))
