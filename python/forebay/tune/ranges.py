"""Ranges of rate, RTT and load that a law has to hold over, with their corners and middle."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from scipy import optimize

from forebay import _native, units
from forebay._native import Conditions, ScenarioError
from forebay.control.link import PLAIN, Link
from forebay.control.senders import SENDERS
from forebay.control.spans import ends
from forebay.run.scenario import Group
from forebay.tune.recorded import Recorded

T = TypeVar("T")

#: Most flows of a range: runs with more packets take too long.
MOST_FLOWS = 100_000


@dataclass(frozen=True)
class Condition:
    """One link with one load; rtt_s is propagation both ways, without queueing.

    traced: whether the link is a recorded one, with `rate_bps` on average.
    """

    rate_bps: int
    rtt_s: float
    flows: int
    traced: bool = False

    @property
    def plain(self) -> tuple[int, float, int]:
        return self.rate_bps, self.rtt_s, self.flows

    @property
    def rate(self) -> str:
        """As a scenario has it."""
        return units.rate(self.rate_bps)

    @property
    def rtt(self) -> str:
        return f"{1e3 * self.rtt_s:.10g}ms"

    def __str__(self) -> str:
        rate = f"{1e-6 * self.rate_bps:.4g}\N{NO-BREAK SPACE}Mbit/s"
        rate = f"the trace of {rate}" if self.traced else rate
        rtt = f"{1e3 * self.rtt_s:.4g}\N{NO-BREAK SPACE}ms"
        return f"{rate}, {rtt}, {self.flows}\N{NO-BREAK SPACE}flow{'s' if self.flows != 1 else ''}"


@dataclass(frozen=True)
class Ranges:
    """The ranges, each as (least, most), and the settings that all places share.

    trace: a recorded link, whose rates the range has; packets then pass that link. tcp: sender of
    all flows, by its name in `--tcp`.
    """

    rates_bps: tuple[int, int]
    rtts_s: tuple[float, float]
    flows: tuple[int, int]
    packet: str
    packet_bytes: float
    buffer_pkts: int
    trace: Recorded | None = None
    tcp: str = PLAIN

    @staticmethod
    def of(
        rate: str | None,
        rtt: str,
        flows: str,
        packet: str = "1000B",
        buffer: str | None = None,
        trace: str | None = None,
        tcp: str = PLAIN,
    ) -> Ranges:
        """From texts such as "5..50Mbit/s", "20..200ms" and "10..400", or one value each.

        buffer: such as "1250p"; the largest bandwidth-delay product if None.
        trace: a file of a recorded link; the rates are its own where `rate` is None.

        Raises `ScenarioError`.
        """
        if tcp not in SENDERS:
            more = "; one sender for all flows of a range" if "," in tcp else ""
            raise ScenarioError(f'--tcp: found "{tcp}", allowed: {", ".join(SENDERS)}{more}')
        recorded = None if trace is None else Recorded.of(trace)
        if rate is not None:
            rates_bps = _bounds("--rate", rate, "rate")
        elif recorded is not None:
            rates_bps = float(recorded.low_bps), float(recorded.high_bps)
        else:
            raise ScenarioError("--rate: found none, allowed: a rate or a range, or --trace")
        rtts_s = _bounds("--rtt", rtt, "time")
        packet_bytes = _native.quantity("--packet", packet, "size")
        if not packet_bytes >= 1:
            raise ScenarioError(f'--packet: found "{packet}", allowed: more than zero')
        most_pkts = rates_bps[1] * rtts_s[1] / (8 * packet_bytes)
        buffer_pkts = most_pkts if buffer is None else _native.quantity("--buffer", buffer, "queue")
        if buffer is not None and buffer_pkts < 10:
            raise ScenarioError(f'--buffer: found "{buffer}", allowed: at least "10p"')
        return Ranges(
            (round(rates_bps[0]), round(rates_bps[1])),
            (round(rtts_s[0], 6), round(rtts_s[1], 6)),
            _flows(flows),
            packet,
            packet_bytes,
            max(10, math.ceil(buffer_pkts)),
            recorded,
            tcp,
        )

    @property
    def corners(self) -> list[Condition]:
        """Every pair of ends, eight of three ranges; in the order of a scenario's sweep."""
        axes = (_distinct(self.rates_bps), _distinct(self.rtts_s), _distinct(self.flows))
        return [Condition(*one) for one in itertools.product(*axes)]

    @property
    def middle(self) -> Condition:
        """The geometric means, to three figures."""
        rate = float(f"{math.sqrt(math.prod(self.rates_bps)):.3g}")
        rtt_s = float(f"{math.sqrt(math.prod(self.rtts_s)):.3g}")
        return Condition(round(rate), rtt_s, round(math.sqrt(math.prod(self.flows))))

    @property
    def conditions(self) -> list[Condition]:
        """The corners, and the middle where it is another condition."""
        if len(self.corners) == 1:
            return self.corners
        return [*self.corners, self.middle]

    @property
    def places(self) -> list[Condition]:
        """Where packets run: under every condition; on a recorded link, with every pair of ends of
        the others, and in their middle."""
        return [*self.swept, *([] if self.centre is None else [self.centre])]

    @property
    def swept(self) -> list[Condition]:
        """The places but the middle, in the order of a scenario's sweep."""
        if self.trace is None:
            return self.corners
        ends = itertools.product(_distinct(self.rtts_s), _distinct(self.flows))
        return [Condition(self.trace.mean_bps, *one, traced=True) for one in ends]

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
        return Conditions(
            [condition.plain for condition in self.conditions],
            self.middle.plain,
            round(self.packet_bytes),
            float(self.buffer_pkts),
        )

    @cached_property
    def alike(self) -> Conditions:
        """With as many flows of Reno as need the same probability: gains depend on that, and the
        axes of a search are made for Reno."""
        if self.tcp == PLAIN:
            return self.native

        def plain(one: Condition) -> tuple[int, float, int]:
            flows = self.reno_flows(one, self.native.active_flows(one.plain, 0.0), 0.0)
            return one.rate_bps, one.rtt_s, max(1, round(flows))

        return Conditions(
            [plain(one) for one in self.conditions],
            plain(self.middle),
            round(self.packet_bytes),
            float(self.buffer_pkts),
        )

    def reno_flows(self, at: Condition, flows: float, queue_pkts: float) -> float:
        """How many flows of Reno need the probability of these with this queue."""
        if self.tcp == PLAIN:
            return flows
        capacity = self.capacity_pkts_per_s(at)
        rtt_s = at.rtt_s + queue_pkts / capacity
        window_pkts = rtt_s * capacity / flows

        def off(log_p: float) -> float:
            p = np.asarray(math.exp(log_p))
            return float(np.log(SENDERS[self.tcp].window(p, np.asarray(rtt_s)) / window_pkts))

        p = math.exp(optimize.brentq(off, -60.0, 30.0))
        return rtt_s * capacity * math.sqrt(p / 2)

    def link(self, at: Condition, flows: float) -> Link:
        """The place as designs have it, with this many flows."""
        groups = () if self.tcp == PLAIN else (Group(self.tcp, flows, at.rtt),)
        return Link(at.rate, self.packet, flows, at.rtt, 1.0, self.buffer_pkts, groups=groups)

    def grid(self, points: int) -> list[Condition]:
        """`points` along each range, evenly in the logarithm."""

        def along(low: float, high: float) -> list[float]:
            steps = max(1, points - 1) if high > low else 1
            return [low * (high / low) ** (i / steps) for i in range(steps + (high > low))]

        rates, rtts = along(*self.rates_bps), along(*self.rtts_s)
        flows = dict.fromkeys(round(n) for n in along(*self.flows))
        return [
            Condition(round(c), round(t, 6), n) for c, t, n in itertools.product(rates, rtts, flows)
        ]

    def only(self, condition: Condition) -> Ranges:
        """That condition alone, with the same buffer."""
        rate_bps, rtt_s, flows = condition.rate_bps, condition.rtt_s, condition.flows
        return replace(self, rates_bps=(rate_bps,) * 2, rtts_s=(rtt_s,) * 2, flows=(flows,) * 2)

    def capacity_pkts_per_s(self, condition: Condition) -> float:
        return condition.rate_bps / (8 * self.packet_bytes)

    def __str__(self) -> str:
        def span(bounds: tuple[float, float], scale: float, unit: str) -> str:
            texts = [f"{scale * end:.4g}" for end in _distinct(bounds)]
            return " to ".join(texts) + unit

        return (
            f"{span(self.rates_bps, 1e-6, ' Mbit/s')}, {span(self.rtts_s, 1e3, ' ms')}, "
            f"{span(self.flows, 1, ' flows')}" + ("" if self.tcp == PLAIN else f" of {self.tcp}")
        )


def _bounds(key: str, text: str, kind: str) -> tuple[float, float]:
    low, high = ends(key, text)
    bounds = _native.quantity(key, low, kind), _native.quantity(key, high, kind)
    _check(key, text, bounds)
    return bounds


def _flows(text: str) -> tuple[int, int]:
    bounds = []
    for end in ends("--flows", text):
        if not end.isdigit() or int(end) > MOST_FLOWS:
            raise ScenarioError(
                f'--flows: found "{text}", allowed: whole numbers up to {MOST_FLOWS}, such as '
                "10..400"
            )
        bounds.append(int(end))
    _check("--flows", text, (bounds[0], bounds[1]))
    return bounds[0], bounds[1]


def _check(key: str, text: str, bounds: tuple[float, float]) -> None:
    if not 0 < bounds[0] <= bounds[1]:
        raise ScenarioError(f'{key}: found "{text}", allowed: from less to more, above zero')


def _distinct(bounds: tuple[T, T]) -> list[T]:
    return list(dict.fromkeys(bounds))
