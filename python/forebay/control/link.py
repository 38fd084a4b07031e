"""A link and the TCP flows on it, as theory sees them: `forebay.Link`.

A quantity is a text with its unit ("50Mbit/s", "40ms", "1500B", "800p") or a number in the base
unit (bit/s, s, bytes, packets). It is checked when the link is made. The text is kept, so that a
scenario or a command of this link says what the user wrote.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.errors import ParameterError
from forebay._base.words import one_of
from forebay._native import LawModel, ScenarioError
from forebay.control.senders import SENDERS
from forebay.scenario.builder import Dumbbell, Group, Law

if TYPE_CHECKING:
    from forebay._native import Parameter

T = TypeVar("T")
#: A quantity as a text with its unit, or as a number in its base unit.
Quantity = str | float
#: One value for all flows, or a list with a value for each class of flows, which a text separates
#: by commas.
PerClass = str | float | Sequence[str] | Sequence[float]
#: The ends of a range: a pair, or a text such as "5..50Mbit/s".
Span = str | tuple[Quantity, Quantity]

#: The default set-point, as a fraction of the bandwidth-delay product.
TARGET_SHARE = 0.25
#: The sender of the published plant.
PLAIN = "reno"
#: The smallest default set-point, in packets: with less there is no queue to control.
LEAST_TARGET_PKTS = 5.0
#: What a number of flows may be, for messages.
COUNT = "a finite number, more than zero"
#: The function that writes a number of each kind of quantity with its unit.
WRITERS: Mapping[str, Any] = {
    "rate": quantities.rate,
    "time": quantities.time,
    "size": quantities.size,
    "queue": quantities.packets,
}


def text_of(value: Quantity, kind: str) -> str:
    """Return a quantity as a text with its unit.

    Parameters
    ----------
    value : str or float
        A text, which is returned unchanged, or a number in the base unit.
    kind : str
        The kind of quantity: "rate" (bit/s), "time" (s), "size" (bytes) or "queue" (packets).
    """
    return value if isinstance(value, str) else str(WRITERS[kind](value))


def quantity(name: str, value: Quantity, kind: str) -> float:
    """Return a quantity in its base unit.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : str or float
        A text with its unit, or a number in the base unit.
    kind : str
        The kind of quantity, as for `text_of`.

    Raises
    ------
    ParameterError
        If the text is not a quantity of this kind.
    """
    text = text_of(value, kind)
    try:
        return _native.quantity(name, text, kind)
    except ScenarioError as error:
        raise ParameterError(name, text, error.expected) from None


def whole(number: float) -> float:
    """Return a number without a fraction as an integer, for messages."""
    return int(number) if math.isfinite(number) and number == int(number) else number


def set_fields(instance: object, **values: object) -> None:
    """Set fields of a frozen dataclass, as its constructor does."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def replaced(instance: T, **values: object) -> T:
    """Return a copy of a frozen dataclass with other fields, without calling its `__init__`.

    Parameters
    ----------
    instance : dataclass instance
        An instance whose `__init__` takes other arguments than its fields.
    values : dict
        The fields that differ, by name.
    """
    copy: T = object.__new__(type(instance))
    present = {entry.name: getattr(instance, entry.name) for entry in fields(instance)}  # type: ignore[arg-type]
    assert present.keys() >= values.keys(), values
    set_fields(copy, **(present | values))
    return copy


@dataclass(frozen=True, init=False)
class Link:
    """A bottleneck link and the long-lived TCP flows that share it.

    Parameters
    ----------
    rate : str or float
        Rate of the link, such as ``"50Mbit/s"``.
    rtt : str, float or list
        Propagation delay in both directions, without queueing, such as ``"40ms"``.
    flows : float, str or list
        Number of long-lived TCP flows. One number is divided equally among the classes of flows.
    packet : str or float, optional
        Size of a packet; 1000 bytes by default.
    buffer : str or float, optional
        Size of the buffer in packets, or as the time that the link takes to send them. By default
        the bandwidth-delay product of the longest RTT, or twice a law's set-point if that is more.
    senders : str or list, optional
        Congestion control of the flows: ``"reno"`` as published, ``"linux-reno"``, ``"cubic"``,
        ``"dctcp"`` or ``"prague"``.
    l4s_flows : float, optional
        Number of scalable flows that send ECT(1), next to the classic flows, under a coupled law.

    Raises
    ------
    ParameterError
        If a value is not a quantity of its kind, or is out of range.

    Attributes
    ----------
    rate, rtt, packet : str
        The quantities as texts with their units; `rtt` is the mean over all flows.
    flows : float
        Number of flows in all classes.
    buffer : str or None
        The buffer that was asked for; None where it is the default.
    buffer_pkts : int
        Number of packets that the buffer holds.
    l4s_flows : float
        Number of scalable flows.
    groups : tuple of Group
        The classes of flows by sender and RTT; empty where all are Reno flows with one RTT.

    Notes
    -----
    `rtt`, `flows` and `senders` may each be a list with a value for every class of flows, as in
    ``rtt=["20ms", "80ms"]`` or ``"20ms,80ms"``.

    Examples
    --------
    >>> forebay.Link(rate="50Mbit/s", rtt="40ms", flows=30, buffer="100ms", senders="cubic")
    """

    rate: str
    rtt: str
    flows: float
    packet: str
    buffer: str | None
    l4s_flows: float
    buffer_pkts: int = field(repr=False)
    groups: tuple[Group, ...] = field(repr=False)

    def __init__(
        self,
        rate: Quantity,
        rtt: PerClass,
        *,
        flows: PerClass,
        packet: Quantity = "1000B",
        buffer: Quantity | None = None,
        senders: PerClass = PLAIN,
        l4s_flows: float = 0.0,
    ) -> None:
        groups = flow_groups(flows, rtt, senders)
        longest = max(groups, key=lambda group: group.rtt_s).rtt
        total = sum(group.flows for group in groups)
        mean = longest
        if len(groups) > 1:
            mean = quantities.time(sum(group.flows * group.rtt_s for group in groups) / total)
        rate_bps = quantity("rate", rate, "rate")
        packet_bytes = quantity("packet", packet, "size")
        for name, value in [
            ("rate", rate_bps),
            ("packet", packet_bytes),
            ("rtt", quantity("rtt", mean, "time")),
        ]:
            if value <= 0:
                raise ParameterError(name, 0, "more than zero")
        if not (math.isfinite(l4s_flows) and l4s_flows >= 0):
            raise ParameterError("l4s_flows", whole(l4s_flows), "zero or more")
        plain = len(groups) == 1 and groups[0].tcp == PLAIN
        set_fields(
            self,
            rate=text_of(rate, "rate"),
            rtt=mean,
            flows=total,
            packet=text_of(packet, "size"),
            buffer=None if buffer is None else text_of(buffer, "queue"),
            l4s_flows=l4s_flows,
            groups=() if plain else groups,
        )
        # The longest RTT needs the largest buffer.
        longest_pkts = rate_bps * quantity("rtt", longest, "time") / (8 * packet_bytes)
        buffer_pkts = longest_pkts if self.buffer is None else self._asked_buffer_pkts(self.buffer)
        set_fields(self, buffer_pkts=math.ceil(buffer_pkts))

    @staticmethod
    def of_groups(
        rate: str,
        rtt: str,
        *,
        flows: float,
        packet: str,
        buffer_pkts: int,
        groups: tuple[Group, ...] = (),
    ) -> Link:
        """Return a link whose values are already checked.

        Parameters
        ----------
        rate, rtt, packet : str
            Rate, mean RTT and packet size as texts with their units.
        flows : float
            Number of flows in all classes.
        buffer_pkts : int
            Number of packets that the buffer holds.
        groups : tuple of Group, optional
            The classes of flows; empty for Reno flows with one RTT.
        """
        link: Link = object.__new__(Link)
        set_fields(
            link,
            rate=rate,
            rtt=rtt,
            flows=flows,
            packet=packet,
            buffer=f"{buffer_pkts}p",
            l4s_flows=0.0,
            buffer_pkts=buffer_pkts,
            groups=groups,
        )
        return link

    @property
    def rate_bps(self) -> int:
        """Rate of the link in bit/s."""
        return round(_native.quantity("rate", self.rate, "rate"))

    @property
    def packet_bytes(self) -> int:
        """Size of a packet in bytes."""
        return round(_native.quantity("packet", self.packet, "size"))

    @property
    def rtt_s(self) -> float:
        """Mean propagation RTT of the flows, in seconds."""
        return _native.quantity("rtt", self.rtt, "time")

    @property
    def shortest_s(self) -> float:
        """Shortest propagation RTT of a class of flows, in seconds."""
        return min((group.rtt_s for group in self.groups), default=self.rtt_s)

    @property
    def senders(self) -> str:
        """Congestion control of the flows; one name for each class, separated by commas."""
        names = [group.tcp for group in self.groups] or [PLAIN]
        return names[0] if len(set(names)) == 1 else ",".join(names)

    @property
    def rtts(self) -> str:
        """RTTs of the classes of flows, separated by commas."""
        return ",".join(dict.fromkeys(group.rtt for group in self.groups)) or self.rtt

    def varied(
        self,
        *,
        rate: Quantity | None = None,
        rtt: Quantity | None = None,
        flows: float | None = None,
        senders: PerClass | None = None,
    ) -> Link:
        """Return the link with other arguments; a default buffer is computed again.

        Parameters
        ----------
        rate : str or float, optional
            Another rate.
        rtt : str or float, optional
            Another propagation RTT, for every class of flows.
        flows : float, optional
            Another number of flows; the classes keep their shares of it.
        senders : str or list, optional
            Other congestion control.

        Raises
        ------
        ParameterError
            As `Link` does.
        """
        groups = self.groups or (Group(PLAIN, self.flows, self.rtt),)
        counts: PerClass = [group.flows for group in groups]
        if flows is not None:
            equal = len({group.flows for group in groups}) == 1
            factor = flows / self.flows
            counts = flows if equal else [factor * group.flows for group in groups]
        return Link(
            self.rate if rate is None else rate,
            [group.rtt for group in groups] if rtt is None else rtt,
            flows=counts,
            packet=self.packet,
            buffer=self.buffer,
            senders=[group.tcp for group in groups] if senders is None else senders,
            l4s_flows=self.l4s_flows,
        )

    def at_rate(self, rate_bps: float) -> Link:
        """Return the link with another rate in bit/s and the same buffer."""
        return replaced(self, rate=f"{round(rate_bps)}bit/s")

    def with_load(self, flows: float, rtt_s: float) -> Link:
        """Return the link with another load and the same buffer.

        Parameters
        ----------
        flows : float
            Number of flows; the classes keep their shares of it.
        rtt_s : float
            Mean propagation RTT in seconds; the RTTs of the classes keep their ratios.
        """
        more, longer = flows / self.flows, rtt_s / self.rtt_s
        groups = tuple(
            replace(group, flows=more * group.flows, rtt=f"{round(1e6 * longer * group.rtt_s)}us")
            for group in self.groups
        )
        return replaced(self, flows=flows, rtt=f"{round(1e6 * rtt_s)}us", groups=groups)

    def set_point_pkts(self, target: Quantity | None = None) -> float:
        """Return the queue length in packets that a set-point means on this link.

        Parameters
        ----------
        target : str or float, optional
            A queue length such as ``"175p"``, or a queuing delay such as ``"20ms"``. By default a
            quarter of the bandwidth-delay product, and at least 5 packets.

        Raises
        ------
        ParameterError
            If the target is neither a queue length nor a delay, or is not above zero.
        """
        if target is None:
            product_pkts = self._product_pkts(self.rtt_s)
            return max(float(round(TARGET_SHARE * product_pkts)), LEAST_TARGET_PKTS)
        text = text_of(target, "queue")
        target_pkts = self._queue_pkts("target", text)
        if not target_pkts > 0:
            raise ParameterError("target", text, "more than zero")
        return target_pkts

    def with_buffer_for(self, target_pkts: float, *, default: bool = False) -> Link:
        """Return the link with a buffer in which a law can hold a queue.

        A buffer that was asked for stays; the default one holds at least twice the set-point.

        Parameters
        ----------
        target_pkts : float
            The set-point in packets.
        default : bool, optional
            True if the set-point is the default one, so an error is about the buffer.

        Raises
        ------
        ParameterError
            If the buffer holds less than the set-point.
        """
        if self.buffer is None:
            return replaced(self, buffer_pkts=max(self.buffer_pkts, math.ceil(2 * target_pkts)))
        buffer_pkts = self._asked_buffer_pkts(self.buffer)
        if buffer_pkts < target_pkts and default:
            expected = f'at least "{target_pkts:g}p", the default set-point'
            raise ParameterError("buffer", self.buffer, expected)
        if buffer_pkts < target_pkts:
            expected = f'at most the buffer, "{buffer_pkts:g}p"'
            raise ParameterError("target", f"{target_pkts:g}p", expected)
        return self

    def model(self, law: str, params: Sequence[tuple[str, Parameter]]) -> LawModel:
        """Return a law on this link.

        Parameters
        ----------
        law : str
            Name of the law in `forebay laws`.
        params : sequence of (name, value)
            Parameters that differ from the defaults.

        Raises
        ------
        ScenarioError
            If the law is unknown or a parameter is wrong.
        """
        buffer_pkts = float(self.buffer_pkts)
        return LawModel(law, params, self.rate_bps, self.packet_bytes, buffer_pkts)

    def _product_pkts(self, rtt_s: float) -> float:
        """Return the bandwidth-delay product in packets."""
        rate_bps = _native.quantity("rate", self.rate, "rate")
        return rate_bps * rtt_s / (8 * _native.quantity("packet", self.packet, "size"))

    def _asked_buffer_pkts(self, buffer: str) -> float:
        parts = _native.number_and_unit(buffer)
        if parts is not None and parts[1] == "s":
            return self._queue_pkts("buffer", buffer)
        return quantity("buffer", buffer, "queue")

    def _queue_pkts(self, name: str, text: str) -> float:
        """Return a queue length or queuing delay in packets."""
        try:
            return _native.set_point_pkts(name, text, self.rate_bps, self.packet_bytes)
        except ScenarioError as error:
            raise ParameterError(name, text, error.expected) from None


# --- classes of flows ---------------------------------------------------------------------------


def flow_groups(flows: PerClass, rtt: PerClass, senders: PerClass) -> tuple[Group, ...]:
    """Return the classes of flows.

    There are as many classes as the longest of the three lists has entries; a list with one entry
    applies to all classes.

    Parameters
    ----------
    flows : float, str or list
        Number of flows; one number is divided equally among the classes.
    rtt : str, float or list
        Propagation RTT.
    senders : str or list
        Congestion control.

    Raises
    ------
    ParameterError
        If a value is wrong, or the lists do not agree.
    """
    lists = {
        name: _entries(name, value)
        for name, value in [("flows", flows), ("rtt", rtt), ("senders", senders)]
    }
    size = class_count(lists)
    counts = []
    for entry in lists["flows"]:
        try:
            counts.append(float(entry))
        except (TypeError, ValueError):
            expected = "a number, or one for each class such as 30,20"
            raise ParameterError("flows", entry, expected) from None
        if not (math.isfinite(counts[-1]) and counts[-1] > 0):
            raise ParameterError("flows", whole(counts[-1]), COUNT)
    names = modelled_senders(lists["senders"])
    rtts = [text_of(value, "time").strip() for value in lists["rtt"]]
    for text in rtts:
        if quantity("rtt", text, "time") <= 0:
            raise ParameterError("rtt", 0, "more than zero")

    shared = size if len(counts) == 1 else 1
    names, rtts = per_class(names, size), per_class(rtts, size)
    columns = zip(names, per_class(counts, size), rtts, strict=True)
    return tuple(Group(name, count / shared, text) for name, count, text in columns)


def class_count(lists: Mapping[str, Sequence[object]]) -> int:
    """Return the number of classes of flows: that of the longest list.

    Parameters
    ----------
    lists : dict of str to sequence
        The values of each argument; a list with one entry applies to all classes.

    Raises
    ------
    ParameterError
        If two lists have several entries each, and not the same number.
    """
    size = max(map(len, lists.values()))
    for name, values in lists.items():
        if len(values) not in (1, size):
            longest = next(key for key, entries in lists.items() if len(entries) == size)
            raise ParameterError(
                name,
                ",".join(map(str, values)),
                f"1 or {size}",
                reason=f"{len(values)} values, but {longest} has {size}",
            )
    return size


def per_class(values: list[T], size: int) -> list[T]:
    """Return a value for each of `size` classes.

    Parameters
    ----------
    values : list
        One value, which applies to all classes, or one for each class.
    size : int
        Number of classes.
    """
    return values * size if len(values) == 1 else values


def modelled_senders(names: Sequence[object]) -> list[str]:
    """Return the congestion controls of linear theory that represent these senders.

    A sender of scenarios is represented by the one with the same window law, such as linux-cubic by
    cubic.

    Raises
    ------
    ParameterError
        If theory has no model of a sender.
    """
    return [_modelled_sender(str(name).strip()) for name in names]


def _modelled_sender(name: str) -> str:
    modelled = name if name in SENDERS else registries.window_law(name, marked=True)
    if modelled is None:
        raise ParameterError("senders", name, one_of(SENDERS, name))
    return modelled


def span_ends(name: str, span: Span, kind: str | None) -> tuple[str, str]:
    """Return the ends of a range as texts with their units.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    span : str or pair
        A text such as ``"20..500ms"``, or both ends.
    kind : str or None
        The kind of quantity, as for `text_of`; None for numbers without a unit.

    Raises
    ------
    ParameterError
        If `span` is not a range.
    """
    if isinstance(span, tuple) and len(span) == 2:
        low, high = (text_of(end, kind) if kind else f"{end}" for end in span)
        return low, high
    if not isinstance(span, str) or quantities.DOTS not in span:
        raise ParameterError(name, span, "a range such as 10..400")
    return quantities.range_ends(name, span)


def _entries(name: str, value: object) -> list[Any]:
    """Return the values of the classes; a pair is a range, which a single link does not have."""
    if isinstance(value, tuple):
        expected = "one value, or a list with a value for each class of flows"
        raise ParameterError(name, value, expected)
    if isinstance(value, str):
        return value.split(",")
    return list(value) if isinstance(value, Sequence) else [value]


def scenario_toml(
    link: Link,
    law: str,
    params: Sequence[tuple[str, str]],
    title: str,
    target_pkts: float,
    duration_s: float = 60.0,
) -> str:
    """Return a scenario of the link's flows under a law, in TOML.

    The first third of its duration is not measured.

    Parameters
    ----------
    link : Link
        The bottleneck and its flows.
    law : str
        The law as a scenario names it.
    params : sequence of (name, value)
        Parameters of the law.
    title : str
        Title of the scenario.
    target_pkts : float
        Set-point in packets, from which deviations are measured.
    duration_s : float, optional
        Duration in seconds.
    """
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
