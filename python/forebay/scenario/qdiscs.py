"""Read qdiscs of Linux, as tc(8) writes them, as a law, its queue and its link.

`tc_text` reads the lines and computes the bytes that they count per packet, `shapers` reads the
shapers above the queue, and `router` writes such lines. `qdiscs.toml` has the words of each qdisc.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

from forebay._base import quantities
from forebay.scenario import shapers, tc_text
from forebay.scenario.builder import Law, Value
from forebay.scenario.router import HEADER_BYTES, device_header_bytes, packets_bps
from forebay.scenario.shapers import Place, Shaper
from forebay.scenario.tc_text import NONE, Framing, SizeTable, Statement, error

#: Qdiscs that hold no packets: hooks for received packets and for classifiers.
HOOKS = {"ingress", "clsact"}
#: Devices without a queue.
NO_QUEUE = {"noqueue", "noop"}

#: Smallest memory of a cake with a bandwidth, which otherwise is four times the bytes of its `rtt`.
CAKE_MEMORY_BYTES = 4 << 20
#: Memory of a cake without a bandwidth: 10240 packets of full size.
UNLIMITED_MEMORY_BYTES = 10240 * 1514
#: Range of cake's overhead.
OVERHEAD_BYTES = (-64, 256)
#: Largest buffer of a scenario in packets.
MOST_PKTS = 1_000_000_000
#: RED's largest probability if a command omits it (tc-red(8)).
RED_PROBABILITY = "0.02"
#: DualPI2's rule for `max_rtt` and `typical_rtt` (`q_dualpi2.c`).
MAX_OVER_TYPICAL_RTT = 6


@dataclass(frozen=True)
class Site:
    """The place of a qdisc: its packets, their headers and the shaper above it.

    Attributes
    ----------
    packet_bytes : int
        The usual packet in a scenario.
    header_bytes : int
        Bytes that tc counts for a packet in addition.
    holds_packet : bool
        True if a shaper leaves the packet that it sends in the qdisc, as tbf does; a queue of the
        simulation does not hold it.
    rate_bps : float or None
        Rate of the shaper, as tc counts it; None without one.
    device_header_bytes : int
        The device's own header. A scenario's packet has what exceeds `header_bytes`.
    counted_bytes : int
        Bytes that the shaper counts for a usual packet; 0 for the packet and its header.
    size_table : SizeTable or None
        The size table (`stab`), from which the qdisc counts packets.
    from_show : bool
        True for the words of `show`, which omits options that are off.
    """

    packet_bytes: int
    header_bytes: int = HEADER_BYTES
    holds_packet: bool = False
    rate_bps: float | None = None
    device_header_bytes: int = HEADER_BYTES
    counted_bytes: int = 0
    size_table: SizeTable | None = None
    from_show: bool = False

    @property
    def plain_bytes(self) -> int:
        """The size of a usual packet with its header."""
        return self.packet_bytes + self.header_bytes

    @property
    def unit_bytes(self) -> int:
        """The bytes that the qdisc counts for a usual packet."""
        if self.size_table is None:
            return self.plain_bytes
        return self.size_table.counted_bytes(self.plain_bytes)

    @property
    def held_pkts(self) -> int:
        """The number of packets in the qdisc that are not in a simulated queue."""
        return int(self.holds_packet)

    @property
    def memory_bytes(self) -> int:
        """The memory that the kernel counts for a packet, as `memory_bytes` of tc.rs computes it.

        It is a power of two with room for the packet and its headers, and 256 bytes for the
        bookkeeping.
        """
        return (1 << (self.plain_bytes + 255).bit_length()) + 256

    @property
    def service_s(self) -> float:
        """The time in seconds that the shaper needs for a usual packet; 0 without a shaper."""
        if not self.rate_bps:
            return 0.0
        return 8 * (self.counted_bytes or self.unit_bytes) / self.rate_bps

    def packets(self, counted: float) -> float:
        """Convert bytes, as the qdisc counts them, into packets of the usual size."""
        return counted / self.unit_bytes


@dataclass(frozen=True)
class Qdisc:
    """A qdisc as a scenario has it.

    Attributes
    ----------
    kind : str
        Its name in tc.
    law : Law
        The law with its parameters.
    buffer : str
        A size with its unit.
    ecn : bool
        True if packets that can be marked are marked.
    rate_bps : int or None
        Rate of IP packets of the usual size; None where no line gives a rate.
    burst_bytes : int
        Bytes of IP packets that the shaper releases at once after a pause.
    device : str
        The device in the lines; empty where they have none.
    framing : Framing or None
        Bytes that a shaper other than cake adds to an IP packet; None without one.
    notes : list of str
        Sentences that a reader of the result must know.
    without_effect : list of str
        Words of the lines that do not change the simulation.
    """

    kind: str
    law: Law
    buffer: str
    ecn: bool
    rate_bps: int | None
    burst_bytes: int
    device: str = ""
    framing: Framing | None = None
    notes: list[str] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)


def read(text: str, packet_bytes: int, header_bytes: int | None = None) -> Qdisc:
    """Return the queue that lines of tc(8) set up or show, with the shapers above it.

    Parameters
    ----------
    text : str
        Lines of `tc qdisc` and `tc class`, of commands or of `show`; the comments in which Forebay
        prints them; or the words of a qdisc alone.
    packet_bytes : int
        Size of the usual IP packet.
    header_bytes : int, optional
        The device's own header. By default its name decides (`router.device_header_bytes`).

    Raises
    ------
    ScenarioError
        If the lines have no queue or several, a qdisc that is not simulated, or a word that tc
        refuses.
    """
    words_by_kind = {kind: list(words["words"]) for kind, words in _qdiscs().items()}
    lines = tc_text.read(text, words_by_kind | dict(shapers.WORDS))
    statements, notes = _of_one_device(lines.statements)
    device = next((statement.device for statement in statements if statement.device), "")
    if header_bytes is None:
        header_bytes = device_header_bytes(device)
    place = shapers.place(statements, packet_bytes, header_bytes)
    shaper = place.limiting(packet_bytes)
    innermost = place.shapers[-1] if place.shapers else None
    site = Site(
        packet_bytes,
        header_bytes,
        holds_packet=innermost is not None and innermost.holds_packet,
        rate_bps=innermost.counted_bps if innermost else None,
        device_header_bytes=header_bytes,
        counted_bytes=innermost.cost_bytes if innermost else 0,
        size_table=place.table,
        from_show=place.leaf.from_show,
    )
    burst_bytes = round(shaper.burst_bytes * packet_bytes / shaper.cost_bytes) if shaper else 0
    result = queue(_kind(place.leaf), place.leaf.words, site, burst_bytes)
    if shaper is not None:
        result = _shaped(result, place, shaper, site)
    if lines.passed_over:
        notes.append(_passed_over(lines.passed_over))
    return replace(
        result,
        device=device,
        notes=[*notes, *place.notes, *result.notes],
        without_effect=[*place.without_effect, *result.without_effect],
    )


def _of_one_device(statements: Sequence[Statement]) -> tuple[list[Statement], list[str]]:
    """Return the statements about one device's queue, and notes on those left out."""
    hooks = [statement for statement in statements if statement.kind in HOOKS]
    queues = [statement for statement in statements if statement.kind not in HOOKS]
    real = [statement for statement in queues if statement.kind not in NO_QUEUE]
    devices = list(dict.fromkeys(statement.device for statement in real if statement.device))
    if len(devices) > 1:
        names = ", ".join(devices)
        raise error("", f"the lines are of several devices, {names}; paste those of one")
    if not real and queues:
        about = f"{queues[0].device}: " if queues[0].device else ""
        raise error("", f"{about}{queues[0].kind} has no queue to simulate")
    if not real:
        text = f"{hooks[0].kind} alone" if hooks else "no qdisc"
        raise error(
            "",
            f"the lines have {text}; paste those of `tc -d qdisc show dev DEVICE`, a command such "
            'as "tc qdisc add dev eth0 root cake bandwidth 20mbit", or the words of one of '
            f"{', '.join(_qdiscs())}",
        )
    notes = []
    queueless_devices = sorted({statement.device for statement in queues if statement not in real})
    if queueless_devices:
        notes.append(f"Left out: {', '.join(queueless_devices)}, which has no queue.")
    if hooks:
        kinds = ", ".join(dict.fromkeys(statement.kind for statement in hooks))
        notes.append(f"Left out: {kinds}, which holds no packets that leave.")
    return real, notes


def _kind(leaf: Statement) -> str:
    """Return the name of a qdisc; that of one instance, where each queue of a device has one."""
    names = {words["instances"]: kind for kind, words in _qdiscs().items() if "instances" in words}
    return names.get(leaf.kind, leaf.kind)


def _passed_over(lines: Sequence[str]) -> str:
    """Return the sentence about lines that are about something else."""
    quoted = ", ".join(f'"{_short(line)}"' for line in lines[:3])
    more = f" and {len(lines) - 3} more" if len(lines) > 3 else ""
    count = "1 line" if len(lines) == 1 else f"{len(lines)} lines"
    return f"Passed over {count} that set no qdisc or class: {quoted}{more}."


def _short(line: str) -> str:
    """Return a line in at most 40 characters."""
    return line if len(line) <= 40 else f"{line[:39]}…"


def _shaped(result: Qdisc, place: Place, shaper: Shaper, site: Site) -> Qdisc:
    """Return a qdisc with the rate of the shaper above it."""
    rate_bps = round(shaper.packets_bps(site.packet_bytes))
    if result.rate_bps is not None:
        rate_bps = min(rate_bps, result.rate_bps)
    notes = list(result.notes)
    if shaper.cost_bytes != site.packet_bytes:
        notes.append(
            f"{shaper.name}: {_mbit(shaper.counted_bps)} carry {_mbit(rate_bps)} of IP packets: it "
            f"counts {shaper.cost_bytes} bytes for each packet of {site.packet_bytes}."
        )
    if place.framing is not None and place.framing.cells != NONE:
        notes.append(
            f"The cells of {place.framing.cells.upper()} are in the rate of packets of "
            f"{site.packet_bytes} bytes; smaller packets take a larger share of the line than in "
            "the simulation."
        )
    return replace(result, rate_bps=rate_bps, framing=place.framing, notes=notes)


def _mbit(rate_bps: float) -> str:
    """Return a rate in the unit in which it has few digits."""
    for scale, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")):
        if rate_bps >= scale:
            return f"{rate_bps / scale:.6g} {unit}"
    return f"{rate_bps:.6g} bit/s"


def queue(kind: str, words: Sequence[str], site: Site, burst_bytes: int = 0) -> Qdisc:
    """Return a qdisc from its words.

    Parameters
    ----------
    kind : str
        Name of the qdisc in tc.
    words : Sequence[str]
        The words after the kind.
    site : Site
        The place of the qdisc.
    burst_bytes : int, default 0
        Burst of the shaper above it, in bytes of IP packets.

    Raises
    ------
    ScenarioError
        If the qdisc is not simulated, or a word is unknown to it.
    """
    if kind not in _qdiscs():
        kinds = ", ".join(_qdiscs())
        reason = _NOT_SIMULATED.get(kind, "this qdisc is not simulated")
        raise error(kind, f"{reason}; Forebay has {kinds}, under tbf, htb or neither")
    if "counts_line" in _qdiscs()[kind] and site.size_table is not None:
        raise error(
            f"{kind}: stab",
            "cake counts what the line adds itself; use its words, such as overhead",
        )
    return _Reader(kind, site).read(words, burst_bytes)


#: Reasons why common qdiscs are not simulated.
_NOT_SIMULATED = {
    "": "the kind of the qdisc is missing",
    "netem": "netem is a path and not a queue: its delay is the round-trip time of the flows",
    "fq": "fq paces the flows of a host and has no active queue management",
    "prio": "its bands are several queues; give the lines of one of them",
    "hfsc": "its classes have service curves, which are not simulated",
}


class _Reader:
    """A reader of the words of one qdisc."""

    def __init__(self, kind: str, site: Site) -> None:
        self.kind = kind
        self.qdisc = _qdiscs()[kind]
        self.site = site
        self.law = str(self.qdisc["law"])
        self.params: dict[str, Value] = dict(self.qdisc.get("params", {}))
        marks = self.qdisc.get("marks", "")
        self.ecn = marks == "always" or (marks == "added" and not site.from_show)
        self.buffer = ""
        self.most_pkts = math.inf
        self.own_bps: int | None = None
        self.given: dict[str, str] = {}
        self.line = _CakeLine()
        self.notes: list[str] = []
        self.without_effect: list[str] = []

    def read(self, words: Sequence[str], burst_bytes: int) -> Qdisc:
        """Return the qdisc."""
        self._words(words)
        self._defaults()
        entries = self.qdisc["words"]
        # Values come after the flags, on which some of them depend.
        for word, text in self.given.items():
            value = self._value(entries[word]["as"], word, text)
            if "key" in entries[word]:
                self.params[entries[word]["key"]] = value
        if "counts_line" in self.qdisc:
            self._count_line()
        self._coupled_rtt()
        self._backlog()
        params = [(key, quantities.plain(value)) for key, value in self.params.items()]
        return Qdisc(
            self.kind,
            Law(self.law, params),
            self._whole_buffer(),
            self.ecn,
            self._rate_bps(),
            burst_bytes,
            notes=self.notes,
            without_effect=self.without_effect,
        )

    def _words(self, words: Sequence[str]) -> None:
        """Take flags, and the values of the other words."""
        entries = self.qdisc["words"]
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word not in entries:
                raise tc_text.unknown(self.kind, word, entries)
            entry = entries[word]
            if "refused" in entry:
                raise error(f"{self.kind}: {word}", entry["refused"])
            if "as" not in entry:
                self._flag(word, entry)
                continue
            count = _values(entry["as"], rest)
            if len(rest) < count or count == 0:
                raise error(f"{self.kind}: {word}", "the value is missing")
            text = " ".join(rest[:count])
            del rest[:count]
            if "idle" in entry:
                self._idle(f"{word} {text}", entry["idle"])
            elif entry["as"] in ("overhead", "least_size"):
                self._of_line(word, text)
            else:
                self.given[word] = text

    def _idle(self, words: str, reason: str) -> None:
        """Note words that have no effect on the simulation."""
        self.without_effect.append(f"{words} ({reason})" if reason else words)

    def _flag(self, word: str, entry: Mapping[str, Any]) -> None:
        """Take a word without a value."""
        values = dict(entry.get("set", {}))
        self.ecn = values.pop("ecn", self.ecn)
        self.params.update(values)
        self.law = entry.get("law", self.law)
        if "idle" in entry:
            self._idle(word, entry["idle"])
        self.line.take(entry)

    def _of_line(self, word: str, text: str) -> None:
        """Take cake's overhead or least size, in the order of the line's words."""
        count = tc_text.signed(f"cake: {word}", text)
        least, largest = OVERHEAD_BYTES if word == "overhead" else (0, OVERHEAD_BYTES[1])
        if not least <= count <= largest:
            raise error(f"cake: {word}", f'"{text}" is out of range; tc takes {least} to {largest}')
        self.line.take({"is": count} if word == "overhead" else {"mpu": count})

    def _defaults(self) -> None:
        """Add the values that Linux takes for words that the line leaves out."""
        for word, text in self.qdisc.get("defaults", {}).items():
            self.given.setdefault(word, text)
        if "quantum" in self.qdisc["words"]:
            # The device's MTU with its header.
            self.given.setdefault("quantum", str(self.site.plain_bytes))
        if self.kind == "bfifo" and "limit" not in self.given:
            self.given["limit"] = str(shapers.DEVICE_QUEUE_PKTS * self.site.plain_bytes)
        for words in self.qdisc.get("shown_with", []) if self.site.from_show else []:
            if not any(word in self.given for word in words):
                raise error(self.kind, f"{words[0]} is missing; `tc -d qdisc show` prints it")
        for word in self.qdisc.get("needs", []) if not self.site.from_show else []:
            if word not in self.given:
                raise error(self.kind, f"{word} is missing, which tc requires")
        if "avpkt" in self.given:
            self._thresholds()

    def _thresholds(self) -> None:
        """Add RED's thresholds where the tc command omits them, as tc does (`red_parse_opt`)."""
        words = self.given
        size = {word: self._size(word, words.get(word, "0")) for word in ("limit", "min", "max")}
        largest = size["max"] or (size["min"] * 3 or size["limit"] // 4)
        least = size["min"] or largest // 3
        words |= {"min": str(least), "max": str(largest)}
        if "ewma" not in words:
            packet = self._size("avpkt", words["avpkt"])
            if packet == 0:
                raise error(
                    f"{self.kind}: avpkt",
                    '"0" is not the size of a packet; tc takes for example 1000',
                )
            words.setdefault("burst", str((2 * least + largest) // (3 * packet)))
        if "Plog" not in words:
            words.setdefault("probability", RED_PROBABILITY)

    def _size(self, word: str, text: str) -> int:
        """Return a size in bytes."""
        return tc_text.size_bytes(f"{self.kind}: {word}", text)

    def _value(self, how: str, word: str, text: str) -> Value:
        """Return the value of a parameter; the reader keeps values that are not parameters."""
        site, about = self.site, f"{self.kind}: {word}"
        match how:
            case "time":
                return quantities.time(tc_text.seconds(about, text))
            case "step":
                return quantities.time(_step_s(about, text))
            case "target":
                return quantities.time(tc_text.seconds(about, text) - self._counted_s())
            case "whole":
                return tc_text.whole(about, text)
            case "number":
                return tc_text.number(about, text)
            case "percent":
                return round(tc_text.number(about, text.removesuffix("%")) / 100, 9)
            case "sixteenths":
                return tc_text.number(about, text) / 16
            case "parts_of_256":
                return _kernel_gain(
                    _parts_of_256(tc_text.number(about, text), from_show=site.from_show)
                )
            case "size":
                return quantities.size(self._size(word, text))
            case "threshold":
                pkts = site.packets(self._size(word, text)) - site.held_pkts
                return quantities.packets(float(f"{max(0.0, pkts):.12g}"))
            case "burst":
                return self._weight(tc_text.number(about, text))
            case "log":
                return 0.5 ** tc_text.whole(about, text)
            case "slope":
                range_bytes = self._size("max", self.given["max"]) - self._size(
                    "min", self.given["min"]
                )
                return float(min(1.0, range_bytes * 0.5 ** tc_text.whole(about, text)))
            case "round_trip":
                return self._round_trip(tc_text.seconds(about, text))
            case "own_rate":
                self.own_bps = round(tc_text.rate_bps(about, text)) if text != "unlimited" else None
                return f"{self.own_bps or 0}bit/s"
            case "selector":
                self._select(about, text)
            case _:
                self._room(how, word, text)
        return text

    def _room(self, how: str, word: str, text: str) -> None:
        """Take the size of the buffer."""
        site, about = self.site, f"{self.kind}: {word}"
        match how:
            case "packets":
                self._limit(about, tc_text.whole(about, text))
            case "bytes":
                pkts = site.packets(self._size(word, text)) - site.held_pkts
                self.buffer = quantities.size(max(1, round(pkts * site.packet_bytes)))
            case "packets_of_bytes":
                pkts = self._size(word, text) // site.unit_bytes - site.held_pkts
                self.buffer = quantities.packets(max(1, pkts))
            case "memory":
                pkts = max(1, self._size(word, text) // site.memory_bytes)
                self.buffer = quantities.size(pkts * site.packet_bytes)
            case "most_memory":
                pkts = self._size(word, text) // site.memory_bytes - site.held_pkts
                self.most_pkts = max(1, pkts)

    def _limit(self, about: str, pkts: int) -> None:
        """Take a limit in packets; a limit above the largest buffer of a scenario is no limit."""
        if pkts > MOST_PKTS:
            self.notes.append(
                f"{about} {pkts} is as good as none; the simulation has {MOST_PKTS} packets."
            )
        pkts = min(pkts, MOST_PKTS) - self.site.held_pkts
        self.buffer = quantities.packets(max(1, pkts))

    def _whole_buffer(self) -> str:
        """Return the size of the buffer with its unit."""
        buffer = self.buffer or quantities.size(self._memory_pkts() * self.site.packet_bytes)
        if self.most_pkts < math.inf:
            buffer = quantities.packets(min(int(buffer.removesuffix("p")), int(self.most_pkts)))
        return buffer

    def _rate_bps(self) -> int | None:
        """Return the rate of IP packets; cake's own counts its overhead by itself."""
        if self.own_bps or self.site.rate_bps is None:
            return self.own_bps
        counted = self.site.counted_bytes or self.site.unit_bytes
        return packets_bps(
            self.site.rate_bps, self.site.packet_bytes, counted - self.site.packet_bytes
        )

    def _round_trip(self, interval_s: float) -> str:
        """Return cake's interval, and set its target: a twentieth of it, in whole microseconds."""
        target_us = max(1, int(interval_s * 1e6 / 20 + 1e-6))
        self.params["target"] = quantities.time(target_us / 1e6)
        return quantities.time(interval_s)

    def _select(self, about: str, text: str) -> None:
        """Omit a threshold that applies only to packets of L4S: the simulated flows have none."""
        # C reads an integer with a leading zero as octal.
        integer = "(0x[0-9a-f]+|0[0-7]*|[1-9][0-9]*)"
        parts = re.fullmatch(f"{integer}/{integer}", text.lower())
        if parts is None:
            raise error(about, f'"{text}" is not VALUE/MASK; tc takes for example 0x1/0x3')
        value, mask = (
            int(part, 8 if part.isdigit() and part.startswith("0") else 0)
            for part in parts.groups()
        )
        # The two bits of ECN are 2 for ECT(0), and 0 for packets without ECN.
        if any(bits & mask == value for bits in (0, 2)):
            self._idle(f"ce_threshold_selector {text}", "the simulated packets match it")
            return
        threshold = self.params.pop("ce_threshold", None)
        self.notes.append(
            f"fq_codel: ce_threshold {threshold or ''} is for packets that match {text} alone, as "
            "those of L4S do; the simulated flows do not, and the scenario leaves it out."
        )

    def _counted_s(self) -> float:
        """Return the excess of the qdisc's estimate over the delay of a simulated queue.

        An estimate from the backlog includes the packet that is being sent.
        """
        estimated = self.params.get("estimator") == self.qdisc.get("estimator_of_backlog", "")
        return self.site.service_s if estimated and self.site.holds_packet else 0.0

    def _backlog(self) -> None:
        """Set the backlog below which the law is silent, less the packet that is being sent."""
        pkts = self.qdisc.get("least_backlog_pkts")
        if pkts is not None and self.site.holds_packet:
            bytes_ = (pkts - self.site.held_pkts) * self.site.packet_bytes
            self.params["least_backlog"] = quantities.size(bytes_)

    def _count_line(self) -> None:
        """Set the bytes that cake counts for a packet on the line."""
        site = self.site
        overhead = self.line.overhead_bytes(site.header_bytes, site.device_header_bytes)
        if overhead < 0:
            raise error(
                "cake: overhead",
                f"{self.line.overhead} makes a packet smaller than its IP packet, which the "
                "simulation's cake cannot count",
            )
        if overhead:
            self.params["overhead"] = quantities.size(overhead)
        if self.line.mpu:
            self.params["mpu"] = quantities.size(self.line.mpu)
        if self.line.cells is not None:
            self.params["framing"] = self.line.cells
        counted = Framing(overhead, self.line.cells or NONE, self.line.mpu)
        wire = counted.wire_bytes(site.packet_bytes)
        if self.own_bps and wire != site.packet_bytes:
            carried = self.own_bps * site.packet_bytes / wire
            self.notes.append(
                f"cake: {_mbit(self.own_bps)} carry {_mbit(carried)} of IP packets: it counts "
                f"{wire} bytes for each packet of {site.packet_bytes}."
            )

    def _coupled_rtt(self) -> None:
        """Set the parameters that tc computes from the longest and the typical round-trip time."""
        times = {
            word: tc_text.seconds(f"dualpi2: {word}", self.given[word])
            for word in ("max_rtt", "typical_rtt")
            if word in self.given
        }
        if not times:
            return
        longest_s = times.get("max_rtt", MAX_OVER_TYPICAL_RTT * times.get("typical_rtt", 0.0))
        typical_s = times.get("typical_rtt", longest_s / MAX_OVER_TYPICAL_RTT)
        if not 0 < typical_s <= longest_s:
            raise error("dualpi2: typical_rtt", "it is above max_rtt, or zero, which tc refuses")
        tupdate_s = min(typical_s, longest_s / 3)
        gains = {"alpha": 0.1 * tupdate_s / longest_s**2, "beta": 0.3 / longest_s}
        self.params |= {
            "target": quantities.time(typical_s),
            "interval": quantities.time(tupdate_s),
            **{key: _kernel_gain(_parts_of_256(gain)) for key, gain in gains.items()},
        }

    def _memory_pkts(self) -> int:
        """Return the number of packets for which cake has memory by default."""
        return default_memory_pkts(self.own_bps or 0, self.site, self.given.get("rtt", "100ms"))

    def _weight(self, burst_pkts: float) -> float:
        """Return the weight of RED's average that iproute2 computes from a burst.

        It is 2^-W with the smallest W for which a burst keeps the mean below `min`
        (`tc_red_eval_ewma`; Floyd and Jacobson 1993, section VI, eq. 3).
        """
        least_pkts = self._size("min", self.given["min"]) / self._size("avpkt", self.given["avpkt"])
        weights = (2.0**-log for log in range(1, 32))
        rest = burst_pkts + 1 - least_pkts
        fits = (weight for weight in weights if rest <= (1 - (1 - weight) ** burst_pkts) / weight)
        weight = next(fits, None)
        if rest < 1.0 or weight is None:
            raise error(
                f"{self.kind}: burst",
                f'"{burst_pkts:g}" is too small; tc takes {1 + int(least_pkts)} or more',
            )
        return weight


@dataclass
class _CakeLine:
    """The bytes that the line adds to a packet, by cake's words.

    The words are those of `cake_parse_opt`, the sum that of `cake_calc_overhead`. Keywords of
    links add to each other; `overhead` and `conservative` replace what is before them. Without any
    of them, and with `raw`, cake counts a packet as the device has it.
    """

    overhead: int = 0
    is_set: bool = False
    is_raw: bool = False
    cells: str | None = None
    mpu: int = 0

    def take(self, entry: Mapping[str, Any]) -> None:
        """Take the next word."""
        if "is" in entry or "adds" in entry:
            self.overhead = entry["is"] if "is" in entry else self.overhead + entry["adds"]
            self.is_set = True
        self.is_raw = self.is_raw or "raw" in entry
        self.cells = entry.get("cells", self.cells)
        self.mpu = entry.get("mpu", self.mpu)

    def overhead_bytes(self, header_bytes: int, device_header_bytes: int) -> int:
        """Return the overhead on a scenario's packet.

        `header_bytes` are those of the device's header that a scenario's packet does not have.
        """
        if self.is_set and not self.is_raw:
            return self.overhead - (device_header_bytes - header_bytes)
        return self.overhead + header_bytes


def words_of_keys(kind: str) -> dict[str, str]:
    """Return the word of tc for each key of a scenario that a line sets."""
    words = _qdiscs()[kind]["words"].items()
    law = {f"law.0.{entry['key']}": word for word, entry in words if "key" in entry}
    of_link = {"rate": "rate", "burst": "burst", "buffer": "limit", "ecn": "ecn"}
    return law | {f"bottleneck.{key}": word for key, word in of_link.items()}


def default_memory_pkts(own_bps: float, site: Site, interval: str = "100ms") -> int:
    """Return the number of packets for which cake has memory by default (`cake_reconfigure`).

    Parameters
    ----------
    own_bps : float
        Bandwidth of cake in bit/s; 0 for unlimited.
    site : Site
        The place of the qdisc.
    interval : str, default '100ms'
        The option `rtt` of cake.
    """
    memory_bytes = UNLIMITED_MEMORY_BYTES
    if own_bps:
        interval_s = tc_text.seconds("rtt", interval)
        memory_bytes = max(CAKE_MEMORY_BYTES, round(own_bps / 8 * interval_s * 4))
    return memory_bytes // site.memory_bytes


def _values(how: str, rest: Sequence[str]) -> int:
    """Return the number of a word's values among the words after it."""
    if how == "priomap":
        return next((i for i, word in enumerate(rest) if not word.isdigit()), len(rest))
    if how == "qevent":
        return min(3, len(rest))
    return 1


def _step_s(about: str, text: str) -> float:
    """Return dualpi2's threshold for the queue of L4S."""
    if re.fullmatch(r"\d+(p|pkts?|packets?)", text):
        raise error(about, f'"{text}" counts packets; the simulation has this threshold as a time')
    return tc_text.seconds(about, text)


def _parts_of_256(gain: float, *, from_show: bool = False) -> int:
    """Return a gain of dualpi2 in parts of 256.

    tc truncates the value of a command, and `show` rounds it to six digits.
    """
    return round(256 * gain) if from_show else math.floor(256 * gain)


def _kernel_gain(parts: int) -> float:
    """Return a gain per second from tc's parts of 256.

    `dualpi2_scale_alpha_beta` turns them into whole parts of 64·2³²/10⁹; `linux_gain` of pi2.rs is
    the inverse.
    """
    return math.floor(parts * (2**32 - 1) / 4e9) * 1e9 / 64 / 2**32


@cache
def _qdiscs() -> dict[str, dict[str, Any]]:
    """Return the words of each qdisc, from `qdiscs.toml`."""
    text = resources.files("forebay.scenario").joinpath("qdiscs.toml").read_text("utf-8")
    return tomllib.loads(text)
