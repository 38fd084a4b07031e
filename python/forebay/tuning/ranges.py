"""Ranges of rate, RTT and load that a law has to hold over, with their corners and middle."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import forebay._native as _native
from forebay._base import quantities
from forebay._base.quantities import Overrides
from forebay._base.words import in_figures
from forebay._native import Conditions, FlowModel, ScenarioError
from forebay.control.loaded_link import (
    PLAIN,
    LoadedLink,
    class_count,
    modelled_senders,
    per_class,
)
from forebay.control.senders import SENDERS
from forebay.scenario.builder import Group
from forebay.tuning.recorded_link import RecordedLink

T = TypeVar("T")

#: Keys of a scenario that the ranges set themselves, and those of laws.
OWN_KEYS = (
    r"bottleneck\.(rate|rate_trace|buffer)|traffic\.\d+\.(rtt|flows|packet|tcp)|"
    r"(law|sweep|duration|measure|seeds)\b.*"
)
#: Most flows of a range: runs with more packets take too long.
MOST_FLOWS = 100_000


@dataclass(frozen=True)
class Condition:
    """One link with one load; rtt_s is propagation both ways, without queueing.

    traced: whether the link is a recorded one, with `rate_bps` on average. classes: of the flows,
    where they have senders or RTTs of their own; rtt_s is then the mean. before: the rate or the
    load that has just changed to this one; None at rest.
    """

    rate_bps: int
    rtt_s: float
    flows: int
    traced: bool = False
    classes: tuple[Group, ...] = ()
    before: Condition | None = None

    @property
    def plain(self) -> tuple[int, float, int]:
        return self.rate_bps, self.rtt_s, self.flows

    @property
    def rate(self) -> str:
        """As a scenario has it."""
        return quantities.rate(self.rate_bps)

    @property
    def rtt(self) -> str:
        return f"{1e3 * self.rtt_s:.10g}ms"

    def __str__(self) -> str:
        ends = [self.before or self, self]
        rates = dict.fromkeys(in_figures(1e-6 * end.rate_bps, 4) for end in ends)
        rate = f"{' to '.join(rates)}\N{NO-BREAK SPACE}Mbit/s"
        rate = f"the trace of {rate}" if self.traced else rate
        rtts_s = dict.fromkeys(flow_class.rtt_s for flow_class in self.classes) or [self.rtt_s]
        rtt = "/".join(in_figures(1e3 * rtt_s, 4) for rtt_s in rtts_s) + "\N{NO-BREAK SPACE}ms"
        counts = " to ".join(dict.fromkeys(str(end.flows) for end in ends))
        return f"{rate}, {rtt}, {counts}\N{NO-BREAK SPACE}flow{'s' if counts != '1' else ''}"


@dataclass(frozen=True)
class ClassRange:
    """A class of flows over the ranges: its sender, and the ends of its RTT and of its number."""

    tcp: str
    rtts_s: tuple[float, float]
    flows: tuple[int, int]

    def at(self, rtt: float, flows: float) -> Group:
        """From 0 at the low end to 1 at the high one, in the logarithm."""
        rtt_s = _along(self.rtts_s, rtt)
        rtt_s = float(f"{rtt_s:.3g}") if 0 < rtt < 1 else rtt_s
        return Group(self.tcp, round(_along(self.flows, flows)), quantities.time(rtt_s))


@dataclass(frozen=True)
class Ranges:
    """The ranges of rates, as (least, most), and of each class of flows; and the settings that all
    places share.

    trace: a recorded link, whose rates the range has; packets then pass that link. sets: keys of
    the scenarios that packets run in, and their values. router: one of `router_laws.CHOICES` where
    the law is for a router, which has not every law and not every value; empty for any law.
    """

    rates_bps: tuple[int, int]
    spans: tuple[ClassRange, ...]
    packet: str
    packet_bytes: float
    buffer_pkts: int
    trace: RecordedLink | None = None
    overrides: tuple[tuple[str, str], ...] = ()
    router: str = ""

    @staticmethod
    def from_texts(
        rate: str | None,
        rtt: str,
        flows: str,
        packet: str = "1000B",
        buffer: str | None = None,
        trace: str | None = None,
        tcp: str = PLAIN,
        overrides: Overrides = (),
    ) -> Ranges:
        """From texts such as "5..50Mbit/s", "20..200ms" and "10..400", or one value each.
        Classes of flows have commas between them, as in "20ms,80ms" and "cubic,reno"; one number of
        flows is divided equally.

        buffer: such as "1250p"; the largest bandwidth-delay product if None.
        trace: a file of a recorded link; the rates are its own where `rate` is None.

        Raises `ScenarioError`.
        """
        spans = _class_ranges(rtt, flows, tcp)
        recorded = None if trace is None else RecordedLink.from_file(trace)
        if rate is not None:
            low, high = _bounds("--rate", rate, "rate")
        elif recorded is not None:
            low, high = recorded.low_bps, recorded.high_bps
        else:
            raise ScenarioError("--rate: found none, allowed: a rate or a range, or --trace")
        packet_bytes = _native.quantity("--packet", packet, "size")
        if not packet_bytes >= 1:
            raise ScenarioError(f'--packet: found "{packet}", allowed: more than zero')
        if buffer is None:
            buffer_pkts = high * max(one.rtts_s[1] for one in spans) / (8 * packet_bytes)
        else:
            buffer_pkts = _native.quantity("--buffer", buffer, "queue")
            if buffer_pkts < 10:
                raise ScenarioError(f'--buffer: found "{buffer}", allowed: at least "10p"')
        rates_bps = round(low), round(high)
        room_pkts = max(10, math.ceil(buffer_pkts))
        pairs = quantities.set_pairs(overrides)
        for key, _ in pairs:
            if re.fullmatch(OWN_KEYS, key):
                raise ScenarioError(
                    f"--set: found {key}, allowed: keys of the runs that no other option has"
                )
        return Ranges(rates_bps, spans, packet, packet_bytes, room_pkts, recorded, tuple(pairs))

    @property
    def rtts_s(self) -> tuple[float, float]:
        """The shortest and the longest of all classes."""
        return min(one.rtts_s[0] for one in self.spans), max(one.rtts_s[1] for one in self.spans)

    @property
    def flows(self) -> tuple[int, int]:
        """Of all classes together."""
        return sum(one.flows[0] for one in self.spans), sum(one.flows[1] for one in self.spans)

    @property
    def tcp(self) -> str:
        """Sender of all flows, by its name in `--tcp`, or of each class."""
        names = [one.tcp for one in self.spans]
        return names[0] if len(set(names)) == 1 else ",".join(names)

    @property
    def one_class(self) -> bool:
        """Whether all flows are alike."""
        return len(self.spans) == 1

    @property
    def plain(self) -> bool:
        """Whether all flows are those of the published plant."""
        return self.one_class and self.tcp == PLAIN

    @property
    def l4s(self) -> bool:
        """Whether there are flows that live on marks of L4S."""
        return any(SENDERS[one.tcp].ecn == "l4s" for one in self.spans)

    def at(self, rate_bps: float, rtt: float, flows: float) -> Condition:
        """A condition; rtt and flows from 0 at the low end to 1 at the high one, in the
        logarithm."""
        if self.one_class:
            rtt_s = _along(self.rtts_s, rtt)
            return Condition(round(rate_bps), rtt_s, round(_along(self.flows, flows)))
        groups = tuple(one.at(rtt, flows) for one in self.spans)
        number = round(sum(one.flows for one in groups))
        mean_s = sum(one.flows * one.rtt_s for one in groups) / number
        return Condition(round(rate_bps), round(mean_s, 6), number, classes=groups)

    @cached_property
    def corners(self) -> list[Condition]:
        """Every pair of ends, eight of three ranges; in the order of a scenario's sweep."""
        return [
            self.at(rate_bps, rtt, flows)
            for rate_bps in _distinct(self.rates_bps)
            for rtt, flows in self._ends()
        ]

    def _ends(self) -> list[tuple[float, float]]:
        """Of the RTTs and of the flows, by their places."""
        rtts = [0.0, 1.0] if any(one.rtts_s[0] < one.rtts_s[1] for one in self.spans) else [0.0]
        flows = [0.0, 1.0] if self.flows[0] < self.flows[1] else [0.0]
        return list(itertools.product(rtts, flows))

    @property
    def middle(self) -> Condition:
        """The geometric means, to three figures."""
        rate = float(f"{math.sqrt(math.prod(self.rates_bps)):.3g}")
        found = self.at(rate, 0.5, 0.5)
        return replace(found, rtt_s=float(f"{found.rtt_s:.3g}")) if self.one_class else found

    @cached_property
    def conditions(self) -> list[Condition]:
        """The corners, and the middle where it is another condition."""
        if len(self.corners) == 1:
            return self.corners
        return [*self.corners, self.middle]

    @property
    def places(self) -> list[Condition]:
        """Where packets run: under every condition, and after every step; on a recorded link, with
        every pair of ends of the others, and in their middle."""
        return [*self.swept, *([] if self.centre is None else [self.centre]), *self.steps]

    @cached_property
    def steps(self) -> list[Condition]:
        """The load and the rate from one end of their ranges to the other, with the longest RTT:
        flows leave the fastest link and come to the slowest; the rate falls under most flows and
        rises under the fewest. A recording moves by itself."""
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
    def swept(self) -> list[Condition]:
        """The places but the middle, in the order of a scenario's sweep."""
        if self.trace is None:
            return self.corners
        there = (self.at(self.trace.mean_bps, *one) for one in self._ends())
        return [replace(one, traced=True) for one in there]

    @property
    def centre(self) -> Condition | None:
        """The middle, where it is another place."""
        if len(self.swept) == 1:
            return None
        if self.trace is None:
            return self.middle
        return replace(self.middle, rate_bps=self.trace.mean_bps, traced=True)

    @cached_property
    def native(self) -> Conditions:
        """As the registry of laws takes them."""
        return self._native(lambda one: one.plain)

    @cached_property
    def alike(self) -> Conditions:
        """With as many flows of Reno as need the same probability: gains depend on that, and the
        axes of a search are made for Reno."""
        if self.plain:
            return self.native

        def plain(one: Condition) -> tuple[int, float, int]:
            flows = self.reno_flows(one, self.native.active_flows(one.plain, 0.0), 0.0)
            return one.rate_bps, one.rtt_s, max(1, round(flows))

        return self._native(plain)

    def _native(self, plain: Callable[[Condition], tuple[int, float, int]]) -> Conditions:
        conditions = [plain(one) for one in self.conditions]
        size, room_pkts = round(self.packet_bytes), float(self.buffer_pkts)
        return Conditions(conditions, plain(self.middle), size, room_pkts)

    def reno_flows(self, at: Condition, flows: float, queue_pkts: float) -> float:
        """How many flows of Reno need the probability of these with this queue."""
        if self.plain:
            return flows
        groups = self.groups(at)
        total = sum(one.flows for one in groups)
        mix = FlowModel.mixed(
            [one.tcp for one in groups],
            [one.flows / total for one in groups],
            [one.rtt_s / at.rtt_s for one in groups],
        )
        settled = mix.operating_point(flows, at.rtt_s, queue_pkts, self.capacity_pkts_per_s(at))
        return settled.flows

    def groups(self, at: Condition) -> tuple[Group, ...]:
        """All flows of a place."""
        return at.classes or (Group(self.tcp, at.flows, at.rtt),)

    def link(self, at: Condition, flows: float) -> LoadedLink:
        """The place as designs have it, with this many flows."""
        groups = () if self.plain else self.groups(at)
        scaled = tuple(replace(one, flows=one.flows * flows / at.flows) for one in groups)
        return LoadedLink(at.rate, self.packet, flows, at.rtt, 1.0, self.buffer_pkts, groups=scaled)

    def grid(self, points: int) -> list[Condition]:
        """`points` along each range, evenly in the logarithm."""

        def steps(some: bool) -> list[float]:
            return [i / (points - 1) for i in range(points)] if some and points > 1 else [0.0]

        ends = self._ends()
        low, high = self.rates_bps
        rates = [_along((low, high), share) for share in steps(low < high)]
        rtts, flows = (steps(len({one[i] for one in ends}) > 1) for i in (0, 1))
        every = [self.at(rate, rtt, n) for rate, rtt, n in itertools.product(rates, rtts, flows)]
        if self.one_class:
            every = [replace(one, rtt_s=round(one.rtt_s, 6)) for one in every]
        return list(dict.fromkeys(every))

    def only(self, condition: Condition) -> Ranges:
        """That condition alone, with the same buffer."""
        spans = tuple(
            ClassRange(one.tcp, (one.rtt_s,) * 2, (round(one.flows),) * 2)
            for one in condition.classes
        )
        if self.one_class:
            rtt_s, flows = condition.rtt_s, condition.flows
            spans = (replace(self.spans[0], rtts_s=(rtt_s, rtt_s), flows=(flows, flows)),)
        return replace(self, rates_bps=(condition.rate_bps,) * 2, spans=spans)

    def capacity_pkts_per_s(self, condition: Condition) -> float:
        return condition.rate_bps / (8 * self.packet_bytes)

    def __str__(self) -> str:
        def span(bounds: tuple[float, float], scale: float, unit: str) -> str:
            texts = [in_figures(scale * end, 4) for end in _distinct(bounds)]
            return " to ".join(texts) + unit

        rtts = ", ".join(dict.fromkeys(span(one.rtts_s, 1e3, "") for one in self.spans))
        senders = list(dict.fromkeys(one.tcp for one in self.spans))
        of_senders = "" if senders == [PLAIN] else f" of {' and '.join(senders)}"
        rates, flows = span(self.rates_bps, 1e-6, " Mbit/s"), span(self.flows, 1, " flows")
        return f"{rates}, {rtts} ms, {flows}{of_senders}"


def _bounds(key: str, text: str, kind: str) -> tuple[float, float]:
    low, high = quantities.range_ends(key, text)
    bounds = _native.quantity(key, low, kind), _native.quantity(key, high, kind)
    _check(key, text, bounds)
    return bounds


def _class_ranges(rtt: str, flows: str, tcp: str) -> tuple[ClassRange, ...]:
    """As many as the longest of the lists has, where a list of one is of all."""
    lists = {
        key: text.split(",") for key, text in [("--rtt", rtt), ("--flows", flows), ("--tcp", tcp)]
    }
    size = class_count(lists)
    modelled = modelled_senders(lists["--tcp"])
    counts = [_flows(one) for one in lists["--flows"]]
    if len(counts) < size:
        low, high = counts[0]
        if low < size:
            raise ScenarioError(
                f'--flows: found "{flows}" for {size} classes, allowed: one for each, or more'
            )
        counts = list(zip(_divided(low, size), _divided(high, size), strict=True))
    bounds = [_bounds("--rtt", one, "time") for one in lists["--rtt"]]
    rtts_s = [(round(low, 6), round(high, 6)) for low, high in bounds]

    senders, rtts_s = per_class(modelled, size), per_class(rtts_s, size)
    return tuple(
        ClassRange(*one) for one in zip(senders, rtts_s, per_class(counts, size), strict=True)
    )


def _divided(number: int, parts: int) -> list[int]:
    return [number // parts + (i < number % parts) for i in range(parts)]


def _flows(text: str) -> tuple[int, int]:
    ends = quantities.range_ends("--flows", text)
    if not all(end.isdigit() and int(end) <= MOST_FLOWS for end in ends):
        raise ScenarioError(
            f'--flows: found "{text}", allowed: whole numbers up to {MOST_FLOWS}, such as 10..400'
        )
    low, high = map(int, ends)
    _check("--flows", text, (low, high))
    return low, high


def _along(bounds: tuple[float, float], share: float) -> float:
    """From 0 at the low end to 1 at the high one, in the logarithm; the ends as they are."""
    low, high = bounds
    return high if share == 1 else low * (high / low) ** share


def _check(key: str, text: str, bounds: tuple[float, float]) -> None:
    if not 0 < bounds[0] <= bounds[1]:
        raise ScenarioError(f'{key}: found "{text}", allowed: from less to more, above zero')


def _distinct(bounds: tuple[T, T]) -> list[T]:
    return list(dict.fromkeys(bounds))
