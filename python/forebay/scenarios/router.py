"""A law with its numbers as settings of a router: lines of tc(8), and OpenWrt's SQM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay import _native
from forebay._native import ScenarioError
from forebay.base import registries

if TYPE_CHECKING:
    from forebay._native import Parameter, TcWords

#: The header that Linux counts with an IP packet on an Ethernet device.
HEADER_BYTES = 14
#: Names of devices that carry IP packets without a header of their own: PPP and its kinds, tunnels,
#: and modems with raw IP. OpenWrt names an interface of such a protocol `PROTOCOL-NAME`.
HEADERLESS = re.compile(
    r"(ppp|pppo[ae]|pptp|l2tp|[34]g|wwan|rmnet|qmi|wg|tun|utun|tailscale|ipip|ip6tnl|tunl|sit|6in4|"
    r"6to4|6rd|gre4?|gre6|vti|xfrm|nebula|ds-?lite|map)(\d|-|@|$)"
)
#: The device in printed lines that were not read from lines of another device.
DEVICE = "eth0"
#: The parameter of a queue that holds itself to a rate.
OWN_RATE = "bandwidth"


@dataclass(frozen=True)
class Router:
    """Settings of one direction of a link.

    Attributes:
        tc: commands, which hold the device to the rate and put the qdisc there.
        sqm: the section of `/etc/config/sqm`.
        rounded: sentences on what the qdisc has otherwise than asked for.
    """

    tc: list[str]
    sqm: list[str]
    rounded: list[str]


def shaper_bps(rate_bps: float, packet_bytes: float, header_bytes: float = HEADER_BYTES) -> int:
    """Return the rate that tbf or htb needs to carry `rate_bps` of IP packets.

    A shaper of Linux counts each packet with the header of its device; a rate of Forebay counts
    the IP packets alone. For 1500-byte packets on Ethernet the shaper's rate is 1514/1500 of it.
    """
    return round(rate_bps * (packet_bytes + header_bytes) / packet_bytes)


def packets_bps(counted_bps: float, packet_bytes: float, header_bytes: float = HEADER_BYTES) -> int:
    """Return the rate of IP packets that a shaper of `counted_bps` carries.

    This is the inverse of `shaper_bps`.
    """
    return round(counted_bps * packet_bytes / (packet_bytes + header_bytes))


def device_header_bytes(device: str) -> int:
    """Return the header of a device with this name: 0 for PPP and tunnels, 14 for others.

    `attach` reads the real link type of its device instead.
    """
    return 0 if HEADERLESS.match(device) else HEADER_BYTES


def settings(
    law: str,
    params: Sequence[tuple[str, Parameter]],
    *,
    rate_bps: int,
    packet_bytes: int,
    buffer_pkts: int | None,
    buffer_bytes: int | None = None,
    queue: str | None = None,
    ecn: bool = True,
) -> Router | None:
    """What a router needs for a law on a link; None where Linux has no such qdisc.

    params: those given, by name. rate_bps: of IP packets, with no headers of a link. packet_bytes:
    the usual IP packet. One of the buffers is given. queue: as a scenario writes it, where the law
    does not come in one. ecn: whether packets that can be marked are.

    Raises:
        ScenarioError: a parameter that the qdisc does not have.
    """
    shapes = registries.parameter(law, OWN_RATE) is not None
    if shapes and all(name != OWN_RATE for name, _ in params):
        params = [*params, (OWN_RATE, f"{rate_bps}bit/s")]
    words = _native.tc_words(
        law,
        params,
        queue=queue,
        rate_bps=rate_bps,
        buffer_pkts=buffer_pkts,
        buffer_bytes=buffer_bytes,
        packet_bytes=packet_bytes,
        ecn=ecn,
        header_bytes=HEADER_BYTES,
        held=not shapes,
    )
    if words is None:
        return None
    counted_bps = shaper_bps(rate_bps, packet_bytes)
    if shapes:
        tc = [f"tc qdisc replace dev {DEVICE} root {words.text}"]
    else:
        burst_bytes = 2 * (packet_bytes + HEADER_BYTES)
        tc = [
            f"tc qdisc replace dev {DEVICE} root handle 1: tbf rate {counted_bps}bit "
            f"burst {burst_bytes} latency 1s",
            f"tc qdisc replace dev {DEVICE} parent 1:1 {words.text}",
        ]
    rounded = [
        f"{key} is {_short(taken)} there, for {_short(wanted)}"
        for key, wanted, taken in words.rounded
    ]
    return Router(tc, _sqm(words, rate_bps if shapes else counted_bps, shapes), rounded)


def _short(value: str) -> str:
    """A number in four digits; a quantity as it is."""
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def _sqm(words: TcWords, rate_bps: int, shapes: bool) -> list[str]:
    """The section for the way out; `sqm-scripts` names the rate itself, in kbit/s."""
    options = words.text.removeprefix(words.qdisc).split()
    if shapes:
        at = options.index(OWN_RATE)
        del options[at : at + 2]
    pairs = {
        "enabled": "1",
        "interface": DEVICE,
        "upload": f"{round(rate_bps / 1e3)}",
        "download": "0",
        "script": "piece_of_cake.qos" if shapes else "simplest_tbf.qos",
        "qdisc": words.qdisc,
        "linklayer": "none",
        "qdisc_advanced": "1",
        "qdisc_really_really_advanced": "1",
        "eqdisc_opts": " ".join(options),
    }
    return ["config queue", *(f"    option {key} '{value}'" for key, value in pairs.items())]


def lines(
    law: str,
    params: Sequence[tuple[str, Parameter]],
    *,
    rate_bps: int,
    packet_bytes: int,
    buffer_pkts: int | None,
    ecn: bool = True,
) -> Iterator[str]:
    """The commands for a terminal, then what they round; why there are none, for a law whose
    parameters the qdisc does not have; nothing for a law without one."""
    try:
        found = settings(
            law,
            params,
            rate_bps=rate_bps,
            packet_bytes=packet_bytes,
            buffer_pkts=buffer_pkts,
            ecn=ecn,
        )
    except ScenarioError as error:
        yield f"# none with these parameters: {error}"
        return
    if found is not None:
        yield from found.tc
        yield from (f"# {sentence}" for sentence in found.rounded)
