"""A link and its load, as designs and maps see it, and the scenario of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._native import LawModel, ScenarioError
from forebay.control.senders import SENDERS
from forebay.scenario.builder import Dumbbell, Group, Law

if TYPE_CHECKING:
    from forebay._native import Parameter

#: The set-point where none is given: this share of what is under way without a queue.
TARGET_SHARE = 0.25
#: The sender of the published plant.
PLAIN = "reno"
#: What a number of flows may be.
COUNT = "a finite number, more than zero"
#: A set-point is at least this, or there is no queue to control.
LEAST_TARGET_PKTS = 5.0


T = TypeVar("T")
#: One value, or one of each class of flows; as texts they stand between commas.
PerClass = str | float | Sequence[str] | Sequence[float]


@dataclass(frozen=True)
class LoadedLink:
    """A link and its load.

    rate, packet, rtt: texts with units; rtt is propagation both ways, without queueing.
    target_pkts: queue length to hold; buffer_pkts: packets that the buffer holds.
    l4s_flows: scalable flows with ECT(1) beside the classic ones; none by default.
    groups: the flows by sender and RTT; none where all are Reno's with one RTT. `flows` then has
        all of them, and `rtt` the mean.
    """

    rate: str
    packet: str
    flows: float
    rtt: str
    target_pkts: float
    buffer_pkts: int
    l4s_flows: float = 0.0
    groups: tuple[Group, ...] = ()

    @staticmethod
    def from_texts(
        rate: str,
        packet: str,
        flows: PerClass,
        rtt: PerClass,
        target: str | None = None,
        buffer: str | None = None,
        l4s_flows: float = 0.0,
        tcp: PerClass = PLAIN,
    ) -> LoadedLink:
        """Return a link from texts with units.

        The default set-point is a quarter of the bandwidth-delay product; the default buffer is one
        such product, of the longest RTT, or twice the set-point, whichever is more. A set-point
        that is a delay counts as the packets that this link sends in that time.

        Raises `ScenarioError`.
        """
        groups = flow_groups(flows, rtt, tcp)
        longest = max(groups, key=lambda group: group.rtt_s).rtt
        flows = sum(group.flows for group in groups)
        rtt = longest
        if len(groups) > 1:
            rtt = quantities.time(sum(group.flows * group.rtt_s for group in groups) / flows)
        rate_bps = _native.quantity("--rate", rate, "rate")
        packet_bytes = _native.quantity("--packet", packet, "size")
        rtt_s = _native.quantity("--rtt", rtt, "time")
        for key, value in [("--rate", rate_bps), ("--packet", packet_bytes), ("--rtt", rtt_s)]:
            if value <= 0:
                raise ScenarioError(f"{key}: found 0, allowed: more than zero")
        if not (math.isfinite(l4s_flows) and l4s_flows >= 0):
            raise ScenarioError(f"--l4s-flows: found {l4s_flows:g}, allowed: zero or more")
        product_pkts = rate_bps * rtt_s / (8 * packet_bytes)
        longest_pkts = rate_bps * _native.quantity("--rtt", longest, "time") / (8 * packet_bytes)
        products, size = (product_pkts, longest_pkts), (round(rate_bps), round(packet_bytes))
        target_pkts, buffer_pkts = _target_and_buffer(target, buffer, products, size)
        plain = len(groups) == 1 and groups[0].tcp == PLAIN
        return LoadedLink(
            rate,
            packet,
            flows,
            rtt,
            target_pkts,
            math.ceil(buffer_pkts),
            l4s_flows,
            () if plain else groups,
        )

    @property
    def rtt_s(self) -> float:
        return _native.quantity("--rtt", self.rtt, "time")

    @property
    def shortest_s(self) -> float:
        """The shortest RTT."""
        return min((group.rtt_s for group in self.groups), default=self.rtt_s)

    def with_load(self, flows: float, rtt_s: float) -> LoadedLink:
        """Return the link with this many flows of this mean RTT; the classes keep their shares."""
        by, longer = flows / self.flows, rtt_s / self.rtt_s
        groups = tuple(
            replace(group, flows=by * group.flows, rtt=f"{round(1e6 * longer * group.rtt_s)}us")
            for group in self.groups
        )
        return replace(self, flows=flows, rtt=f"{round(1e6 * rtt_s)}us", groups=groups)

    @property
    def senders(self) -> str:
        """The senders as `--tcp` names them."""
        names = [group.tcp for group in self.groups] or [PLAIN]
        return names[0] if len(set(names)) == 1 else ",".join(names)

    @property
    def rtts(self) -> str:
        """The RTTs as `--rtt` lists them."""
        return ",".join(dict.fromkeys(group.rtt for group in self.groups)) or self.rtt

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


def _target_and_buffer(
    target: str | None, buffer: str | None, products: tuple[float, float], size: tuple[int, int]
) -> tuple[float, float]:
    """Return set-point and buffer in packets. Raises `ScenarioError`.

    products: bandwidth-delay products of the mean RTT and the longest. size: rate and packet.
    """
    product_pkts, longest_pkts = products
    target_pkts = (
        max(float(round(TARGET_SHARE * product_pkts)), LEAST_TARGET_PKTS)
        if target is None
        else _native.set_point_pkts("--target", target, *size)
    )
    if not target_pkts > 0:
        raise ScenarioError(f'--target: found "{target}", allowed: more than zero')
    buffer_pkts = (
        max(longest_pkts, 2 * target_pkts)
        if buffer is None
        else _native.quantity("--buffer", buffer, "queue")
    )
    if buffer_pkts < target_pkts and target is None:
        raise ScenarioError(
            f'--buffer: found "{buffer}", allowed: at least "{target_pkts:g}p", the set-point '
            "where --target gives none"
        )
    if buffer_pkts < target_pkts:
        raise ScenarioError(
            f'--target: found "{target_pkts:g}p", allowed: at most the buffer, "{buffer_pkts:g}p"'
        )
    return target_pkts, buffer_pkts


def flow_groups(flows: PerClass, rtt: PerClass, tcp: PerClass) -> tuple[Group, ...]:
    """Return the classes of flows; one number of flows is divided equally among them.

    There are as many as in the longest of the three lists, where a list of one applies to all
    classes. Raises `ScenarioError`.
    """
    lists = {
        key: text.split(",") if isinstance(text, str) else list(_listed(text))
        for key, text in [("--flows", flows), ("--rtt", rtt), ("--tcp", tcp)]
    }
    size = class_count(lists)
    counts = []
    for count_text in lists["--flows"]:
        try:
            counts.append(float(count_text))
        except ValueError:
            raise ScenarioError(
                f'--flows: found "{count_text}", allowed: a number, or one of each class such as '
                "30,20"
            ) from None
        if not (math.isfinite(counts[-1]) and counts[-1] > 0):
            raise ScenarioError(f"--flows: found {counts[-1]:g}, allowed: {COUNT}")
    names = modelled_senders(lists["--tcp"])
    rtts = [str(count_text).strip() for count_text in lists["--rtt"]]
    for text in rtts:
        if _native.quantity("--rtt", text, "time") <= 0:
            raise ScenarioError("--rtt: found 0, allowed: more than zero")

    shared = size if len(counts) == 1 else 1
    names, rtts = per_class(names, size), per_class(rtts, size)
    columns = zip(names, per_class(counts, size), rtts, strict=True)
    return tuple(Group(name, count / shared, text) for name, count, text in columns)


def class_count(lists: Mapping[str, Sequence[object]]) -> int:
    """Return the number of classes of flows that these options name.

    It is that of the longest list; a list of one applies to all classes. Raises `ScenarioError`.
    """
    size = max(map(len, lists.values()))
    for key, values in lists.items():
        if len(values) not in (1, size):
            longest = next(name for name, listed in lists.items() if len(listed) == size)
            raise ScenarioError(
                f'{key}: found "{",".join(map(str, values))}", {len(values)} values beside {size} '
                f"of {longest}, allowed: 1 or {size}"
            )
    return size


def per_class(values: list[T], size: int) -> list[T]:
    """The value of each class."""
    return values * size if len(values) == 1 else values


def modelled_senders(names: Sequence[object]) -> list[str]:
    """Return the senders of linear theory that `--tcp` names.

    A sender of scenarios may represent the one with the same window law, such as linux-cubic for
    cubic. Raises `ScenarioError`.
    """
    return [_modelled_sender(str(name).strip()) for name in names]


def _modelled_sender(name: str) -> str:
    modelled = name if name in SENDERS else registries.window_law(name, marked=True)
    if modelled is None:
        raise ScenarioError(f'--tcp: found "{name}", allowed: {", ".join(SENDERS)}')
    return modelled


def _listed(value: float | Sequence[str] | Sequence[float]) -> Sequence[str | float]:
    return value if isinstance(value, Sequence) else [value]


def scenario_toml(
    link: LoadedLink,
    law: str,
    params: Sequence[tuple[str, str]],
    title: str,
    target_pkts: float,
    duration_s: float = 60.0,
) -> str:
    """A scenario of long-lived flows over the link, in TOML; the first third is not measured."""
    return Dumbbell(
        title=title,
        duration_s=duration_s,
        measure_from_s=duration_s / 3,
        rate=link.rate,
        fastest_bps=link.rate_bps,
        delay_s=link.shortest_s / 4,
        buffer_pkts=link.buffer_pkts,
        flows=max(1, round(link.flows)),
        packet=link.packet,
        rtt=link.rtt,
        laws=[Law(law, params)],
        target_pkts=target_pkts,
        l4s_flows=round(link.l4s_flows) and max(1, round(link.l4s_flows)),
        groups=[(group, SENDERS[group.tcp].kind, SENDERS[group.tcp].ecn) for group in link.groups],
    ).text()
