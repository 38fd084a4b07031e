"""A scenario to start from, also of a line to a home, with a comment on every key.

The comments are the sentences of the declarations.
"""

from __future__ import annotations

import json
import re
import shlex
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

import forebay._native as _native
from forebay._base import quantities, registries
from forebay._base.words import check_choice
from forebay._native import ScenarioError
from forebay.report.templates import template
from forebay.scenario import qdiscs, router, tc_text
from forebay.scenario.builder import Law
from forebay.scenario.qdiscs import Qdisc
from forebay.scenario.tc_text import ATM, NONE, Framing

#: The directions of a line: towards the home, and from it.
DOWN, UP = "down", "up"
#: cake's isolation by hosts of the home, by direction.
ISOLATION = {DOWN: "dual-dsthost", UP: "dual-srchost"}
#: Words of cake for a router with NAT, which do not change the simulation.
WORDS = {DOWN: "nat ingress", UP: "nat"}
#: A number of packets.
PACKETS = re.compile(r"[\d.]+p")
#: The largest IP packet of Ethernet, as the downloads send it.
PACKET_BYTES = 1500
#: Columns of the file.
WIDTH = 100
#: Round-trip times that a range is cut into, for flows to take in turn.
TIMES_OF_RANGE = 5
#: Links from this rate on get hosts whose own links are so many times faster; and at most this.
FAST_BPS, FASTER, FASTEST_BPS = 50_000_000, 10, 10**12
#: Linux's own limit of queues by flow (`fq_codel_init`, `fq_pie_init`).
FLOW_QUEUES_LIMIT = "10240p"
#: The parameter of such queues that holds it.
LIMIT = "limit"


@dataclass(frozen=True)
class Starter:
    """A scenario, and what a reader must know about its origin."""

    text: str
    notes: list[str] = field(default_factory=list)
    #: What an error calls a key of the scenario that a word of tc has set.
    names: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HomeLine:
    """A line to a home.

    Attributes
    ----------
    kind, about : str
        Its name in `lines.toml`, and what it is.
    framing : Framing
        What it adds to an IP packet.
    down_bps, up_bps : int
        Its rates, framing included.
    packet_bytes : int
        The largest IP packet.
    device : str
        The router's device towards the line.
    """

    kind: str
    about: str
    framing: Framing
    down_bps: int
    up_bps: int
    packet_bytes: int
    device: str

    def rate(self, direction: str) -> str:
        """Return the rate of a direction, framing included."""
        return quantities.rate(self.down_bps if direction == DOWN else self.up_bps)

    def packets_bps(self, direction: str) -> int:
        """Return the rate of IP packets of full size in a direction."""
        rate_bps = self.down_bps if direction == DOWN else self.up_bps
        return round(rate_bps * self.packet_bytes / self.framing.wire_bytes(self.packet_bytes))

    def notes(self) -> list[str]:
        """Return what a reader must know of the line's rates."""
        wire = self.framing.wire_bytes(self.packet_bytes)
        cells = f" in cells of {self.framing.cells.upper()}" if self.framing.cells != NONE else ""
        notes = [
            f"{self.kind} is {self.about}: an IP packet of {self.packet_bytes} bytes takes {wire} "
            f"bytes of the line{cells}.",
            "The shapers are set to the rates that were given. For the queues to be in the router, "
            "these must be below what the line gives: about 95 % of the modem's rate up and 90 % "
            "down.",
        ]
        if self.framing.cells == ATM:
            notes.append(
                "cake counts the cells of each packet. Under the other laws smaller packets take a "
                "larger share of the line than in the simulation."
            )
        return notes


def home_line(
    kind: str, down: str | None, up: str | None, direction: str, device: str | None
) -> HomeLine:
    """Return a kind of home line with the user's rates.

    Parameters
    ----------
    kind : str
        Name of the line, such as "vdsl2-pppoe".
    down, up : str or None
        Rates as texts.
    direction : str
        "down" or "up".
    device : str or None
        Network device of the router; that of the line by default.

    Raises
    ------
    ScenarioError
        If the name, a rate or the direction is missing or unknown.
    """
    lines = _table("lines.toml")
    check_choice("line", kind, lines)
    if direction not in ISOLATION:
        raise ScenarioError(f'--direction: "{direction}" is neither down nor up')
    for option, rate in (("--down", down), ("--up", up)):
        if rate is None:
            raise ScenarioError(
                f"{option}: the rate is missing, which --line needs; write for example "
                f"{option} 20Mbit/s"
            )
    entry = lines[kind]
    framing = Framing(
        entry.get("overhead_bytes", 0), entry.get("cells", NONE), entry.get("mpu_bytes", 0)
    )
    return HomeLine(
        kind,
        entry["about"],
        framing,
        round(_native.quantity("--down", down or "", "rate")),
        round(_native.quantity("--up", up or "", "rate")),
        entry.get("mtu_bytes", PACKET_BYTES),
        device or entry.get("device", router.DEVICE),
    )


def with_line(law: Law, line: HomeLine, direction: str) -> Law:
    """Return a law that accounts for a line's framing by itself; other laws are unchanged.

    Parameters
    ----------
    law : Law
        The law.
    line : HomeLine
        The line.
    direction : str
        "down" or "up".
    """
    if registries.parameter(law.kind, router.OWN_RATE) is None:
        return law
    own = {
        router.OWN_RATE: line.rate(direction),
        "isolation": ISOLATION[direction],
        "overhead": quantities.size(line.framing.overhead_bytes),
        "framing": line.framing.cells,
        "mpu": quantities.size(line.framing.mpu_bytes),
    }
    return replace(law, params=list((dict(law.params) | own).items()))


@dataclass(frozen=True)
class _Link:
    """The link under test, as the file has it."""

    rate: str
    buffer: str
    packet_bytes: int = PACKET_BYTES
    ecn: bool | None = None
    burst: str | None = None
    device: str = router.DEVICE
    #: What the line adds to a packet; None for the device's header alone.
    line: Framing | None = None
    #: True if the user, or a line of tc, gives the buffer.
    is_buffer_given: bool = False

    @property
    def rate_bps(self) -> int:
        return round(_native.quantity("--rate", self.rate, "rate"))

    @property
    def buffer_pkts(self) -> int | None:
        """The buffer in packets; None for one in bytes."""
        count, unit = _native.number_and_unit(self.buffer) or (0.0, "")
        return round(count) if unit == "p" else None

    @property
    def buffer_bytes(self) -> int | None:
        """The buffer in bytes; None for one in packets."""
        count, unit = _native.number_and_unit(self.buffer) or (0.0, "")
        return round(count) if unit == "B" else None


def scenario(
    name: str,
    rate: str | None = None,
    rtts: Sequence[str] | None = None,
    flows: int | None = None,
    buffer: str | None = None,
    laws: Sequence[str] | None = None,
    tc: str | None = None,
) -> Starter:
    """Return a scenario; what is not given is that of `starter.toml`.

    Parameters
    ----------
    name : str
        Name of the file, for its first line.
    rate, buffer : str, optional
        Texts with units, as a scenario has them. Without `buffer` it is a bandwidth-delay product
        of the longest round trip.
    rtts : list of str, optional
        Propagation both ways, which the flows take in turn: values, ranges such as "10ms..100ms",
        or several of these with commas between them.
    laws : list of str, optional
        Kinds of `forebay laws`.
    tc : str, optional
        Lines of tc(8), which give the law, its buffer and, where they have a shaper, the rate.

    Raises
    ------
    ScenarioError
        If a quantity is none, or if an option says what the lines of tc say.
    """
    usual = _table("starter.toml")
    rate, times = _tc_rate("--rate", rate), round_trips(rtts) or usual["rtt"]
    qdisc = _qdisc(tc, rate, buffer, laws) if tc is not None else None
    notes = [*qdisc.notes, *_idle_words(qdisc)] if qdisc else []
    if qdisc is not None and qdisc.rate_bps:
        rate = quantities.rate(qdisc.rate_bps)
    elif qdisc is not None and rate is None:
        notes.append(f"The lines give no rate; the scenario has {usual['rate']} (--rate sets it).")
    rate = rate or usual["rate"]
    link = _Link(
        rate=rate,
        buffer=qdisc.buffer if qdisc else buffer or _product(rate, times),
        ecn=qdisc.ecn if qdisc else None,
        burst=quantities.size(qdisc.burst_bytes) if qdisc and qdisc.burst_bytes else None,
        device=(qdisc.device if qdisc else "") or router.DEVICE,
        line=qdisc.framing if qdisc else None,
        is_buffer_given=qdisc is not None or buffer is not None,
    )
    load = f"flows={flows or usual['flows']},rtt={_spread(times)}"
    chosen = [qdisc.law] if qdisc else [_law(kind, link) for kind in laws or usual["laws"]]
    entries = [{"law": law, "router": _under_law(on_router(law, link, load))} for law in chosen]
    text = _rendered(name, link, times, flows or usual["flows"], entries, notes)
    return Starter(text, notes, qdiscs.words_of_keys(qdisc.kind) if qdisc else {})


def for_line(
    name: str,
    kind: str,
    down: str | None,
    up: str | None,
    *,
    direction: str = DOWN,
    device: str | None = None,
    rtts: Sequence[str] | None = None,
    flows: int | None = None,
    buffer: str | None = None,
    laws: Sequence[str] | None = None,
) -> Starter:
    """Return a scenario of a home line with both directions, one of them under test.

    Parameters
    ----------
    kind : str
        A line of `lines.toml`, such as "vdsl2-pppoe".
    down, up : str
        Rates of the line towards the home and from it, its framing included.
    direction : str
        The direction under test, "down" or "up".
    device : str, optional
        The router's device towards the line.

    Raises
    ------
    ScenarioError
        If the line is not known, or if a rate is missing or none.
    """
    usual = _table("starter.toml")
    times = round_trips(rtts) or usual["rtt"]
    line = home_line(kind, _tc_rate("--down", down), _tc_rate("--up", up), direction, device)
    link = _direction_link(line, direction, times, buffer)
    laws = laws or usual["line_laws"]
    chosen = [with_line(_law(entry, link), line, direction) for entry in laws]
    entries = [{"law": law, "router": _both_ways(law, line, times, buffer)} for law in chosen]
    opposite = UP if direction == DOWN else DOWN
    opposite_link = _direction_link(line, opposite, times, buffer)
    reverse = {
        "name": opposite,
        "rate": opposite_link.rate,
        "buffer": opposite_link.buffer,
        "law": _inline(with_line(_law(laws[0], opposite_link), line, opposite)),
        "flows": usual["line_uploads"],
    }
    notes = line.notes()
    text = _rendered(name, link, times, flows or usual["flows"], entries, notes, direction, reverse)
    return Starter(text, notes)


def _inline(law: Law) -> str:
    """Return a law as a table on one line."""
    # What JSON writes of texts, numbers and flags is TOML.
    pairs = [f"{key} = {json.dumps(value)}" for key, value in law.table().items()]
    return f"{{ {', '.join(pairs)} }}" if law.params else json.dumps(law.kind)


@cache
def _table(name: str) -> dict[str, Any]:
    """Return a file of this folder in TOML."""
    return tomllib.loads(resources.files("forebay.guide").joinpath(name).read_text())


def _qdisc(tc: str, rate: str | None, buffer: str | None, laws: Sequence[str] | None) -> Qdisc:
    """Return what lines of tc have; options that say the same are refused."""
    try:
        qdisc = qdiscs.read(tc, PACKET_BYTES)
    except ScenarioError as error:
        raise ScenarioError(f"--tc: {error}") from None
    options = {
        "--rate": (qdisc.rate_bps and rate, f"rate, {quantities.rate(qdisc.rate_bps or 0)}"),
        "--buffer": (buffer, f"buffer, {qdisc.buffer}"),
        "--law": (laws, f"law, {qdisc.law.kind}"),
    }
    for option, (value, content) in options.items():
        if value:
            raise ScenarioError(
                f"{option}: the lines of --tc already give the {content}; leave it out"
            )
    return qdisc


def _idle_words(qdisc: Qdisc) -> list[str]:
    """Return the sentence about words that do not change the simulation."""
    words = dict.fromkeys(qdisc.without_effect)
    return [f"These words do not change the simulation: {', '.join(words)}."] if words else []


def _tc_rate(option: str, text: str | None) -> str | None:
    """Return a rate with the unit of a scenario, also one that tc writes, such as 20mbit."""
    if text is None or not re.fullmatch(r"[\d.]+([kmgt]i?)?bit", text.lower()):
        return text
    return quantities.rate(round(tc_text.rate_bps(option, text)))


def round_trips(texts: Sequence[str] | None) -> list[str]:
    """Return the round-trip times that flows take in turn, from values and ranges of them.

    A range is cut into five times that are evenly apart.
    """
    times: list[str] = []
    for text in (part.strip() for entry in texts or () for part in entry.split(",")):
        low, high = quantities.range_ends("--rtt", text)
        ends = [_native.quantity("--rtt", end, "time") for end in (low, high)]
        if low == high:
            times.append(text)
            continue
        if ends[0] > ends[1]:
            raise ScenarioError(f'--rtt: "{text}" begins with its longer end; write {high}..{low}')
        step_s = (ends[1] - ends[0]) / (TIMES_OF_RANGE - 1)
        times += [quantities.time(ends[0] + i * step_s) for i in range(TIMES_OF_RANGE)]
    return times


def _product(rate: str, rtts: Sequence[str]) -> str:
    """Return the bandwidth-delay product of the longest round trip, in packets of 1500 bytes."""
    rate_bps = _native.quantity("--rate", rate, "rate")
    rtt_s = max(_native.quantity("--rtt", rtt, "time") for rtt in rtts)
    return f"{max(20, round(rate_bps * rtt_s / (8 * PACKET_BYTES)))}p"


def _law(kind: str, link: _Link) -> Law:
    """Return a law.

    A law with a queue for each flow has Linux's own limit if the user gives no buffer.
    """
    if link.is_buffer_given or kind not in registries.laws():
        return Law(kind)  # Whoever reads the scenario refuses a law that does not exist.
    if registries.parameter(kind, LIMIT) is None:
        return Law(kind)
    own = registries.parameter(kind, router.OWN_RATE) is not None
    return Law(kind, [(LIMIT, _memory(link) if own else FLOW_QUEUES_LIMIT)])


def _memory(link: _Link) -> str:
    """Return the packets that cake holds by default at a link's rate."""
    line = link.line or Framing()
    gross_bps = link.rate_bps * line.wire_bytes(link.packet_bytes) / link.packet_bytes
    return quantities.packets(qdiscs.default_memory_pkts(gross_bps, qdiscs.Site(link.packet_bytes)))


def _spread(rtts: Sequence[str]) -> str:
    """Return the range of round-trip times, as a design takes it."""
    ends = sorted(rtts, key=lambda text: _native.quantity("--rtt", text, "time"))
    return ends[0] if ends[0] == ends[-1] else f"{ends[0]}..{ends[-1]}"


def on_router(law: Law, link: _Link, load: str = "", words: str = "") -> list[str]:
    """Return the commands that install a law on a router, or the reason why there are none.

    Parameters
    ----------
    law : Law
        The law.
    link : _Link
        The link under test.
    load : str, optional
        Flows and RTTs for which `attach` designs the law.
    words : str, optional
        Further arguments of the commands.
    """
    if law.kind not in registries.laws():
        return []
    params = [(name, value) for name, value in law.table().items() if name != "kind"]
    site = {
        "rate_bps": link.rate_bps,
        "packet_bytes": link.packet_bytes,
        "buffer_pkts": link.buffer_pkts or 1000,
    }
    if not (needs_gains(law.kind) and not law.params):
        try:
            settings = router.settings(
                law.kind,
                params,
                rate_bps=link.rate_bps,
                packet_bytes=link.packet_bytes,
                buffer_pkts=link.buffer_pkts,
                buffer_bytes=link.buffer_bytes,
                ecn=link.ecn is not False,
                device=link.device,
                line=link.line,
                words=words,
            )
        except ScenarioError as error:
            return [f"# None: {error}."]
        if settings is not None:
            basis = [f"# {settings.basis}."] if settings.basis else []
            return [*settings.tc, *basis]
    why = router.reason(law.kind, params, **site)
    if not why:
        why = f"its numbers are designed when it runs; `forebay design {law.kind}` prints the lines"
    if not (load and router.is_attachable(law.kind, **site)):
        return [f"# None: {why}."]
    design = f" --design {load}" if needs_gains(law.kind) and not law.params else ""
    return [
        f"# No qdisc: {why}. BPF installs it:",
        f"sudo forebay attach {shlex.quote(link.device)} {law.kind} --rate {link.rate}{design}",
    ]


def _under_law(lines: Sequence[str]) -> list[str]:
    """Return the comment below a law: commands as they are, sentences wrapped."""
    return ["# On a router with Linux:", *_commented(lines)] if lines else []


def _commented(lines: Sequence[str]) -> list[str]:
    """Return lines as comments: commands whole, sentences (which begin with #) wrapped."""
    comments: list[str] = []
    for line in lines:
        if line.startswith("# "):
            comments += [f"#   # {part}" for part in textwrap.wrap(line[2:], WIDTH - 8)]
        else:
            comments.append(f"#   {line}")
    return comments


def _direction_link(
    line: HomeLine, direction: str, rtts: Sequence[str], buffer: str | None, device: str = ""
) -> _Link:
    """Return the link of one direction of a line."""
    rate = quantities.rate(line.packets_bps(direction))
    return _Link(
        rate=rate,
        buffer=buffer or _product(rate, rtts),
        packet_bytes=line.packet_bytes,
        device=device or line.device,
        line=line.framing,
        is_buffer_given=buffer is not None,
    )


def _both_ways(law: Law, line: HomeLine, rtts: Sequence[str], buffer: str | None) -> list[str]:
    """Return the comment with the commands for both directions of a line."""
    comments = []
    into = router.ifb_of(line.device)
    for direction in (UP, DOWN):
        down = direction == DOWN
        link = _direction_link(line, direction, rtts, buffer, into if down else "")
        own = with_line(_law(law.kind, link), line, direction)
        lines = on_router(own, link, words=WORDS[direction])
        traffic = f"What comes in, through {into}" if down else "What leaves"
        rates = f"{line.rate(direction)} of the line, {link.rate} of IP packets"
        comments.append(f"# {traffic} ({rates}):")
        has_commands = any(not command.startswith("#") for command in lines)
        before = router.ingress(line.device, into) if down and has_commands else []
        comments += _commented([*before, *lines])
    return comments


def _rendered(
    name: str,
    link: _Link,
    rtts: Sequence[str],
    flows: int,
    entries: Sequence[Mapping[str, Any]],
    notes: Sequence[str],
    direction: str = "",
    reverse: Mapping[str, Any] | None = None,
) -> str:
    text = template("starter.toml.j2").render(
        name=name,
        link=link,
        packet=quantities.size(link.packet_bytes),
        access=_access(link),
        rtts=rtts,
        flows=flows,
        entries=entries,
        notes=[part for note in notes for part in textwrap.wrap(note, WIDTH - 4)],
        direction=direction,
        reverse=reverse,
        key=_key,
        needs_gains=lambda law: needs_gains(law.kind) and not law.params,
        toml=quantities.toml,
    )
    return text + "\n"


def _access(link: _Link) -> str | None:
    """Return the rate of the hosts' own links; None where the default is fast enough."""
    if link.rate_bps < FAST_BPS:
        return None
    return json.dumps(quantities.rate(min(FASTER * link.rate_bps, FASTEST_BPS)))


def needs_gains(name: str) -> bool:
    """Return True if a law's own numbers are packets, which fit the link of a paper alone."""
    laws = registries.laws()
    params = laws[name]["params"] if name in laws else []
    return any(
        PACKETS.fullmatch(param["default_text"]) for param in params if param["name"] != LIMIT
    )


def _key(section: str, name: str, value: object = None) -> str:
    """Return the line of a key under its meaning.

    A key without a value follows a #, with its default.
    """
    key = _keys()[section, name]
    line = f"{name} = {value}" if value is not None else f"# {name} = {key['default']}"
    return "\n".join([*(f"# {part}" for part in textwrap.wrap(key["doc"], WIDTH - 2)), line])


@cache
def _keys() -> dict[tuple[str, str], _native.KeyInfo]:
    declared = _native.keys()
    return {(key["section"], key["name"]): key for key in declared}
