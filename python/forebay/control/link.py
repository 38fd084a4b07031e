"""A link and its load, as designs and maps see it, and the scenario of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay import _native
from forebay._native import LawModel, ScenarioError
from forebay.run.scenario import Dumbbell, Law, Value

if TYPE_CHECKING:
    from forebay._native import Parameter

#: The set-point where none is given: this share of what is under way without a queue.
TARGET_SHARE = 0.25
#: A set-point is at least this, or there is no queue to control.
LEAST_TARGET_PKTS = 5.0


@dataclass(frozen=True)
class Link:
    """A link and its load.

    rate, packet, rtt: texts with units; rtt is propagation both ways, without queueing.
    target_pkts: queue length to hold; buffer_pkts: packets that the buffer holds.
    l4s_flows: scalable flows with ECT(1) beside the classic ones; none by default.
    """

    rate: str
    packet: str
    flows: float
    rtt: str
    target_pkts: float
    buffer_pkts: int
    l4s_flows: float = 0.0

    @staticmethod
    def of(
        rate: str,
        packet: str,
        flows: float,
        rtt: str,
        target: str | None = None,
        buffer: str | None = None,
        l4s_flows: float = 0.0,
    ) -> Link:
        """With a set-point of a quarter of the bandwidth-delay product where none is given, and
        a buffer of one such product or twice the set-point, whichever is more. A set-point that
        is a delay counts as what this link sends in that time.

        Raises `ScenarioError`.
        """
        rate_bps = _native.quantity("--rate", rate, "rate")
        packet_bytes = _native.quantity("--packet", packet, "size")
        rtt_s = _native.quantity("--rtt", rtt, "time")
        for key, value in [("--rate", rate_bps), ("--packet", packet_bytes), ("--rtt", rtt_s)]:
            if value <= 0:
                raise ScenarioError(f"{key}: found 0, allowed: more than zero")
        if not (math.isfinite(flows) and flows > 0):
            raise ScenarioError(f"--flows: found {flows:g}, allowed: more than zero")
        if not (math.isfinite(l4s_flows) and l4s_flows >= 0):
            raise ScenarioError(f"--l4s-flows: found {l4s_flows:g}, allowed: zero or more")
        product_pkts = rate_bps * rtt_s / (8 * packet_bytes)
        target_pkts = (
            max(float(round(TARGET_SHARE * product_pkts)), LEAST_TARGET_PKTS)
            if target is None
            else _native.set_point_pkts("--target", target, round(rate_bps), round(packet_bytes))
        )
        if not target_pkts > 0:
            raise ScenarioError("--target: found 0, allowed: more than zero")
        buffer_pkts = (
            max(product_pkts, 2 * target_pkts)
            if buffer is None
            else _native.quantity("--buffer", buffer, "queue")
        )
        if buffer_pkts < target_pkts:
            raise ScenarioError(
                f'--target: found "{target_pkts:g}p", allowed: at most the buffer, '
                f'"{buffer_pkts:g}p"'
            )
        return Link(rate, packet, flows, rtt, target_pkts, math.ceil(buffer_pkts), l4s_flows)

    @property
    def rtt_s(self) -> float:
        return _native.quantity("--rtt", self.rtt, "time")

    @property
    def rate_bps(self) -> int:
        return round(_native.quantity("--rate", self.rate, "rate"))

    @property
    def packet_bytes(self) -> int:
        return round(_native.quantity("--packet", self.packet, "size"))

    def model(self, law: str, params: Sequence[tuple[str, Parameter]]) -> LawModel:
        """A law on the link. Raises `ScenarioError` for a parameter that is wrong."""
        buffer_pkts = float(self.buffer_pkts)
        return LawModel(law, params, self.rate_bps, self.packet_bytes, buffer_pkts)


def scenario(
    link: Link,
    law: str,
    params: Sequence[tuple[str, str]],
    title: str,
    target_pkts: float,
    duration_s: float = 60.0,
    sweep: Mapping[str, Sequence[Value]] | None = None,
) -> str:
    """A scenario of long-lived flows over the link, in TOML; the first third is not measured."""
    return Dumbbell(
        title=title,
        duration_s=duration_s,
        measure_from_s=duration_s / 3,
        rate=link.rate,
        fastest_bps=link.rate_bps,
        delay_s=link.rtt_s / 4,
        buffer_pkts=link.buffer_pkts,
        flows=max(1, round(link.flows)),
        packet=link.packet,
        rtt=link.rtt,
        laws=[Law(law, params)],
        target_pkts=target_pkts,
        sweep=sweep or {},
        l4s_flows=round(link.l4s_flows) and max(1, round(link.l4s_flows)),
    ).text()
