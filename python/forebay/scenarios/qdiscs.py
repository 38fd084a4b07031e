"""Qdiscs of Linux as tc(8) writes them, read as a law, its queue and its link; `router.py` writes
them. `qdiscs.toml` has the words."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NoReturn

from forebay._native import ScenarioError
from forebay.base import quantities
from forebay.scenarios.builder import Law, Value
from forebay.scenarios.router import HEADER_BYTES

#: Qdiscs and classes that hold a link to a rate and have another qdisc below.
SHAPERS = {"tbf", "htb"}
#: Those that hand packets on to others.
CONTAINERS = {"mq", "ingress", "clsact"}
#: Where a qdisc stands: words with a value, and without.
PLACE = {"dev", "parent", "handle", "classid", "refcnt", "leaf"}
FLAGS_OF_PLACE = {"root", "offloaded"}
VERBS = {"add", "replace", "change", "show", "ls", "list"}

#: Under cake's bandwidth its memory is at least this, and four times the bytes of its `rtt`.
CAKE_MEMORY_BYTES = 4 << 20
#: Without a bandwidth it holds 10240 packets of full size.
UNLIMITED_MEMORY_BYTES = 10240 * 1514
#: tbf's bucket holds two packets where a line leaves it out.
BURST_PKTS = 2

RATE_UNITS = {
    prefix + unit: scale * bits
    for unit, bits in (("bit", 1), ("bps", 8))
    for prefix, scale in (
        *(("", 1), ("k", 1e3), ("m", 1e6), ("g", 1e9), ("t", 1e12)),
        *(("ki", 2**10), ("mi", 2**20), ("gi", 2**30), ("ti", 2**40)),
    )
} | {"": 1}
SIZE_UNITS = {"": 1, "b": 1, "k": 2**10, "kb": 2**10, "m": 2**20, "mb": 2**20, "g": 2**30}
#: A number without a unit is in microseconds.
TIME_UNITS = {"": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0}


@dataclass(frozen=True)
class Site:
    """Where a qdisc stands.

    packet_bytes: the usual packet in a scenario. header_bytes: what tc counts of it besides. held:
    whether a shaper leaves the packet that it sends in the qdisc, as tbf does; our queues do not
    hold it. rate_bps: of the shaper, as tc counts it; None where there is none.
    """

    packet_bytes: int
    header_bytes: int = HEADER_BYTES
    held: bool = False
    rate_bps: float | None = None

    @property
    def unit_bytes(self) -> int:
        """A usual packet, as tc counts it."""
        return self.packet_bytes + self.header_bytes

    @property
    def held_pkts(self) -> int:
        return int(self.held)

    @property
    def memory_bytes(self) -> int:
        """What the kernel counts of memory for a packet, as `memory_bytes` of tc.rs: a power of
        two with the packet and room for headers, and 256 bytes of its own."""
        return (1 << (self.unit_bytes + 255).bit_length()) + 256

    def scaled(self, counted: float) -> int:
        """Bits or bytes as tc counts them, without headers."""
        return round(counted * self.packet_bytes / self.unit_bytes)


@dataclass(frozen=True)
class Qdisc:
    """A qdisc as a scenario has it.

    kind: as tc names it. law: with its parameters. buffer: a text with its unit. ecn: whether
    packets that can be marked are. rate_bps, burst_bytes: of its shaper, in packets without headers
    of a link; the rate is None where no line says it.
    """

    kind: str
    law: Law
    buffer: str
    ecn: bool
    rate_bps: int | None
    burst_bytes: int


def read(text: str, packet_bytes: int, header_bytes: int = HEADER_BYTES) -> Qdisc:
    """One queue, and the shaper above it, from lines of `tc qdisc add` or `replace` or `show`, from
    the comments in which Forebay prints them, or from the words of a qdisc alone.

    Raises:
        ScenarioError: no such qdisc or word, or several queues.
    """
    statements = [_statement(line) for line in _lines(text)]
    devices = sorted({device for device, _, _ in statements if device})
    if len(devices) > 1:
        raise ScenarioError(f"--tc: found devices {', '.join(devices)}, allowed: lines of one")
    site = Site(packet_bytes, header_bytes)
    burst_bytes, shaper = 0, None
    queues = []
    for _, kind, words in statements:
        if kind not in SHAPERS:
            queues += [(kind, words)] if kind not in CONTAINERS else []
        elif "rate" in (given := dict(itertools.pairwise(words))):
            site = Site(packet_bytes, header_bytes, kind == "tbf", _rate("rate", given["rate"]))
            burst = next((given[it] for it in ("burst", "buffer", "maxburst") if it in given), "")
            default = BURST_PKTS * site.unit_bytes
            burst_bytes = _size("burst", burst.split("/")[0]) if burst else default
            shaper = given
    if not queues and shaper is not None and site.held:
        queues = [("bfifo", ["limit", str(_bucket_limit(shaper, site, burst_bytes))])]
    if not queues or any(queue != queues[0] for queue in queues):
        found = " and ".join(dict.fromkeys(kind for kind, _ in queues)) or "no queue"
        raise ScenarioError(f"--tc: found {found}, allowed: one of {', '.join(_qdiscs())}")
    return queue(*queues[0], site, site.scaled(burst_bytes))


def _bucket_limit(given: Mapping[str, str], site: Site, burst_bytes: int) -> int:
    """The bytes that tbf holds itself, where no qdisc is below it."""
    if "limit" in given:
        return _size("limit", given["limit"])
    latency = next((given[key] for key in ("latency", "lat") if key in given), None)
    if latency is None or site.rate_bps is None:
        _wrong("tbf", "neither limit nor latency", ["limit BYTES", "latency TIME"])
    return round(_seconds("latency", latency) * site.rate_bps / 8) + burst_bytes


def _lines(text: str) -> list[str]:
    """The statements of a text; all of it where it is the words of a qdisc alone."""
    lines = [line.lstrip("#$ \t").removeprefix("sudo ") for line in re.split(r"\n|;|&&", text)]
    found = [line for line in lines if re.match(r"(tc|qdisc|class)\b", line)]
    return found or [text.strip()]


def _statement(line: str) -> tuple[str, str, list[str]]:
    """Device, kind and words of a line."""
    device = ""
    words: list[str] = []
    rest = iter(line.split())
    for word in rest:
        if word in PLACE:
            value = next(rest, "")
            device = value if word == "dev" else device
        elif not (
            word in FLAGS_OF_PLACE
            or re.fullmatch(r"-\w+|[0-9a-f]*:[0-9a-f]*", word)
            or (not words and word in {"tc", "qdisc", "class", *VERBS})
        ):
            words.append(word)
    return (device, words[0], words[1:]) if words else (device, "", [])


def queue(kind: str, words: Sequence[str], site: Site, burst_bytes: int = 0) -> Qdisc:
    """A qdisc from its words. Raises `ScenarioError` for one, or a word, that is not there."""
    if kind not in _qdiscs():
        found = f'"{kind}"' if kind else "nothing"
        raise ScenarioError(f"--tc: found {found}, allowed: {', '.join(_qdiscs())}")
    return _Reader(kind, site).read(words, burst_bytes)


class _Reader:
    """The words of one qdisc."""

    def __init__(self, kind: str, site: Site) -> None:
        self.kind = kind
        self.qdisc = _qdiscs()[kind]
        self.site = site
        self.params: dict[str, Value] = dict(self.qdisc.get("params", {}))
        self.ecn: bool = self.qdisc.get("marks", False)
        self.buffer = ""
        self.most_pkts = math.inf
        self.own_bps: int | None = None
        self.given: dict[str, str] = dict(self.qdisc.get("defaults", {}))

    def read(self, words: Sequence[str], burst_bytes: int) -> Qdisc:
        known = self.qdisc["words"]
        rest = iter(words)
        for word in rest:
            if word not in known:
                _wrong(self.kind, f'"{word}"', known)
            if "as" in known[word]:
                value = next(rest, None)
                if value is None:
                    _wrong(self.kind, f"{word} without a value", [f"{word} VALUE"])
                self.given[word] = value
            else:
                self._flag(known[word])
        for needed in self.qdisc.get("needs", []):
            if not any(word in self.given for word in needed):
                _wrong(self.kind, f"no {' or '.join(needed)}", ["what `tc -d qdisc show` prints"])
        if "quantum" in known:
            # The device's MTU with its header.
            self.given.setdefault("quantum", str(self.site.unit_bytes))
        # After the flags, on which some depend.
        for word, text in self.given.items():
            found = self._value(known[word]["as"], word, text)
            if "key" in known[word]:
                self.params[known[word]["key"]] = found
        self._backlog()
        buffer = self.buffer or quantities.size(self._memory_pkts() * self.site.packet_bytes)
        if self.most_pkts < math.inf:
            buffer = quantities.packets(min(int(buffer.removesuffix("p")), int(self.most_pkts)))
        rate_bps = self.own_bps
        if rate_bps is None and self.site.rate_bps is not None:
            rate_bps = self.site.scaled(self.site.rate_bps)
        params = [(key, quantities.plain(value)) for key, value in self.params.items()]
        law = Law(self.qdisc["law"], params)
        return Qdisc(self.kind, law, buffer, self.ecn, rate_bps, burst_bytes)

    def _flag(self, flag: Mapping[str, Any]) -> None:
        given = dict(flag.get("set", {}))
        self.ecn = given.pop("ecn", self.ecn)
        self.params.update(given)
        if "overhead" in flag:
            self.params["overhead"] = self._overhead(flag["overhead"])

    def _value(self, how: str, word: str, text: str) -> Value:
        """The value of a parameter; what is no parameter is kept beside them."""
        site = self.site
        match how:
            case "time":
                return quantities.time(_seconds(word, text))
            case "target":
                return quantities.time(_seconds(word, text) - self._counted_s())
            case "whole":
                return int(_number(word, text.removesuffix("p")))
            case "number":
                return _number(word, text)
            case "percent":
                return round(_number(word, text.removesuffix("%")) / 100, 9)
            case "sixteenths":
                return _number(word, text) / 16
            case "parts_of_256":
                return _kernel_gain(_number(word, text))
            case "size":
                return quantities.size(_size(word, text))
            case "threshold":
                pkts = _size(word, text) / site.unit_bytes - site.held_pkts
                return quantities.packets(float(f"{max(0.0, pkts):.12g}"))
            case "burst":
                return self._weight(_number(word, text))
            case "log":
                return 0.5 ** int(_number(word, text))
            case "round_trip":
                interval_s = _seconds(word, text)
                # A twentieth of it, in whole microseconds.
                target_us = max(1, int(interval_s * 1e6 / 20 + 1e-6))
                self.params["target"] = quantities.time(target_us / 1e6)
                return quantities.time(interval_s)
            case "overhead":
                return self._overhead(int(_number(word, text)))
            case "own_rate":
                self.own_bps = round(_rate(word, text))
                return f"{self.own_bps}bit/s"
            case "packets":
                pkts = _number(word, text.removesuffix("p")) - site.held_pkts
                self.buffer = quantities.packets(max(1, int(pkts)))
            case "bytes":
                unheld = _size(word, text) - site.held_pkts * site.unit_bytes
                self.buffer = quantities.size(max(site.packet_bytes, unheld))
            case "packets_of_bytes":
                pkts = _size(word, text) // site.unit_bytes - site.held_pkts
                self.buffer = quantities.packets(max(1, pkts))
            case "memory":
                pkts = max(1, _size(word, text) // site.memory_bytes)
                self.buffer = quantities.size(pkts * site.packet_bytes)
            case "most_memory":
                self.most_pkts = max(1, _size(word, text) // site.memory_bytes - site.held_pkts)
        return text

    def _counted_s(self) -> float:
        """How much longer the delay is that it estimates from its backlog: by the packet that is
        being sent."""
        estimated = self.params.get("estimator") == self.qdisc.get("estimator_of_backlog", "")
        if not (estimated and self.site.held and self.site.rate_bps):
            return 0.0
        return 8 * self.site.unit_bytes / self.site.rate_bps

    def _backlog(self) -> None:
        """The backlog below which it is silent, where that holds the packet being sent."""
        pkts = self.qdisc.get("least_backlog_pkts")
        if pkts is not None and self.site.held:
            bytes_ = (pkts - self.site.held_pkts) * self.site.packet_bytes
            self.params["least_backlog"] = quantities.size(bytes_)

    def _overhead(self, count: int) -> str:
        """That on an IP packet, as that on one of ours, which may have Ethernet's header."""
        ours = count - (HEADER_BYTES - self.site.header_bytes)
        if ours < 0:
            _wrong(self.kind, f"overhead {count}", [f"{HEADER_BYTES} or more"])
        return quantities.size(ours)

    def _memory_pkts(self) -> int:
        """What cake has room for where nothing is said (`cake_reconfigure`)."""
        memory_bytes = UNLIMITED_MEMORY_BYTES
        if self.own_bps:
            interval_s = _seconds("rtt", self.given.get("rtt", "100ms"))
            memory_bytes = max(CAKE_MEMORY_BYTES, round(self.own_bps / 8 * interval_s * 4))
        return memory_bytes // self.site.memory_bytes

    def _weight(self, burst_pkts: float) -> float:
        """iproute2's, 2^-W with the least W for which a burst keeps the mean below `min`
        (`tc_red_eval_ewma`; Floyd and Jacobson 1993, section VI, eq. 3)."""
        least_pkts = _size("min", self.given["min"]) / _size("avpkt", self.given["avpkt"])
        weights = (2.0**-log for log in range(1, 32))
        rest = burst_pkts + 1 - least_pkts
        fits = (weight for weight in weights if rest <= (1 - (1 - weight) ** burst_pkts) / weight)
        found = next(fits, None)
        if found is None:
            _wrong(self.kind, f"burst {burst_pkts:g}", [f"{math.ceil(least_pkts)} or more"])
        return found


def _kernel_gain(word: float) -> float:
    """A gain per second, of tc's: it counts in parts of 256, and `dualpi2_scale_alpha_beta` turns
    those into whole parts of 64·2³²/10⁹ (`linux_gain` of pi2.rs is the inverse)."""
    parts = math.floor(256 * word)
    return math.floor(parts * (2**32 - 1) / 4e9) * 1e9 / 64 / 2**32


def _seconds(word: str, text: str) -> float:
    return _quantity(word, text, TIME_UNITS, "a time such as 5ms")


def _rate(word: str, text: str) -> float:
    return _quantity(word, text, RATE_UNITS, "a rate such as 15Mbit")


def _size(word: str, text: str) -> int:
    return round(_quantity(word, text, SIZE_UNITS, "bytes such as 3000 or 4Mb"))


def _number(word: str, text: str) -> float:
    return _quantity(word, text, {"": 1}, "a number")


def _quantity(word: str, text: str, units: Mapping[str, float], allowed: str) -> float:
    found = re.fullmatch(r"(\d+\.?\d*|\.\d+)([a-z]*)", text.lower())
    if found is None or found[2] not in units:
        raise ScenarioError(f'--tc: {word}: found "{text}", allowed: {allowed}')
    return float(found[1]) * units[found[2]]


def _wrong(kind: str, found: str, allowed: Iterable[str]) -> NoReturn:
    raise ScenarioError(f"--tc: {kind}: found {found}, allowed: {', '.join(allowed)}")


@cache
def _qdiscs() -> dict[str, dict[str, Any]]:
    text = resources.files("forebay.scenarios").joinpath("qdiscs.toml").read_text("utf-8")
    return tomllib.loads(text)
