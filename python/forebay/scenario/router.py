"""Write a law as settings of a router: lines of tc(8), and the configuration of OpenWrt's SQM."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay import _native
from forebay._base import quantities, registries
from forebay._native import ScenarioError
from forebay.scenario.tc_text import ATM, NONE, Framing, SizeTable

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
#: The parameter of a queue that shapes itself to a rate.
OWN_RATE = "bandwidth"


@dataclass(frozen=True)
class Router:
    """Settings of one direction of a link.

    Attributes
    ----------
    tc : list of str
        Commands that shape the device to the rate and install the qdisc.
    sqm : list of str
        The section of `/etc/config/sqm`.
    rounded : list of str
        Sentences on parameters that the qdisc rounds.
    basis : str
        The sentence that relates the shaper's rate to that of IP packets.
    """

    tc: list[str]
    sqm: list[str]
    rounded: list[str]
    basis: str = ""


def shaper_bps(rate_bps: float, packet_bytes: float, header_bytes: float = HEADER_BYTES) -> int:
    """Return the rate that tbf or htb needs to carry `rate_bps` of IP packets.

    A shaper of Linux counts each packet with the header of its device; a rate of Forebay counts
    only the IP packets. For 1500-byte packets on Ethernet the shaper needs 1514/1500 of the rate.

    Parameters
    ----------
    rate_bps : float
        Rate of IP packets in bit/s.
    packet_bytes : float
        Size of an IP packet.
    header_bytes : float, default HEADER_BYTES
        Bytes that the shaper counts in addition.
    """
    return round(rate_bps * (packet_bytes + header_bytes) / packet_bytes)


def packets_bps(counted_bps: float, packet_bytes: float, header_bytes: float = HEADER_BYTES) -> int:
    """Return the rate of IP packets that a shaper carries; the inverse of `shaper_bps`.

    Parameters
    ----------
    counted_bps : float
        Rate of the shaper in bit/s.
    packet_bytes : float
        Size of an IP packet.
    header_bytes : float, default HEADER_BYTES
        Bytes that the shaper counts in addition.
    """
    return round(counted_bps * packet_bytes / (packet_bytes + header_bytes))


def device_header_bytes(device: str) -> int:
    """Return the header of a device with this name: 0 for PPP and tunnels, 14 for others.

    `attach` reads the real link type of its device instead.
    """
    # `ifb4ppp0` carries the packets that ppp0 receives.
    return 0 if HEADERLESS.match(device.removeprefix("ifb4")) else HEADER_BYTES


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
    device: str = DEVICE,
    line: Framing | None = None,
    words: str = "",
) -> Router | None:
    """Return the settings of a router for a law on a link; None if Linux has no such qdisc.

    Parameters
    ----------
    law, params : str, sequence of pairs
        The law, and its parameters that are not default.
    rate_bps : int
        Rate of IP packets of the usual size, without headers of a link.
    packet_bytes : int
        The usual IP packet.
    buffer_pkts, buffer_bytes : int or None
        The buffer in packets or in bytes; one of them is not None.
    queue : str, optional
        The queue as a scenario writes it, unless the law has one of its own.
    ecn : bool
        True if packets that can be marked are marked.
    device : str
        The device in the commands.
    line : Framing, optional
        Bytes that the line adds to a packet. By default the shaper counts only the device's header.
    words : str
        Words of a qdisc that shapes by itself, added at the end, which do not change a
        simulation, such as "nat".

    Raises
    ------
    ScenarioError
        If the qdisc does not have a parameter, or not in its range.
    """
    shapes = registries.parameter(law, OWN_RATE) is not None
    quoted = shlex.quote(device)
    if shapes:
        params = _with_own_rate(params, rate_bps, packet_bytes, line)
    header_bytes = device_header_bytes(device)
    counted_bytes, table = _counted(packet_bytes, header_bytes, None if shapes else line)
    tc_words = _native.tc_words(
        law, params, queue=queue, rate_bps=rate_bps, buffer_pkts=buffer_pkts,
        buffer_bytes=buffer_bytes, packet_bytes=packet_bytes, ecn=ecn,
        header_bytes=counted_bytes - packet_bytes, held=not shapes,
    )  # fmt: skip
    if tc_words is None:
        return None
    if shapes:
        tc = [f"tc qdisc replace dev {quoted} root {tc_words.text}{words and ' '}{words}"]
        return Router(tc, _sqm(tc_words, rate_bps, device, shapes=True), _rounded(tc_words))
    return _under_tbf(tc_words, rate_bps, packet_bytes, device, (counted_bytes, table))


def _rounded(tc_words: TcWords) -> list[str]:
    """Return a sentence on each parameter that the qdisc rounds."""
    return [
        f"{key} is {_short(nearest)} there, for {_short(exact)}"
        for key, exact, nearest in tc_words.rounded
    ]


def _with_own_rate(
    params: Sequence[tuple[str, Parameter]], rate_bps: int, packet_bytes: int, line: Framing | None
) -> Sequence[tuple[str, Parameter]]:
    """Return the parameters of a queue that shapes itself, with its framing and its rate."""
    names = {name for name, _ in params}
    if line is not None and "overhead" not in names:
        params = [*params, *_of_line(line)]
    if OWN_RATE not in names:
        own_bps = rate_bps if line is None else _line_bps(rate_bps, packet_bytes, line)
        params = [*params, (OWN_RATE, f"{own_bps}bit/s")]
    return params


def _under_tbf(
    tc_words: TcWords, rate_bps: int, packet_bytes: int, device: str, counted: tuple[int, str]
) -> Router:
    """Return the settings of a qdisc that does not shape: tbf above it holds it to the rate."""
    (counted_bytes, table), quoted = counted, shlex.quote(device)
    counted_bps = shaper_bps(rate_bps, packet_bytes, counted_bytes - packet_bytes)
    tc = [
        f"tc qdisc replace dev {quoted} root handle 1: {table and table + ' '}tbf "
        f"rate {counted_bps}bit burst {2 * counted_bytes} latency 1s",
        f"tc qdisc replace dev {quoted} parent 1:1 {tc_words.text}",
    ]
    basis = (
        f"tbf counts {counted_bytes} bytes for each packet of {packet_bytes}: {counted_bps}bit "
        f"carry {quantities.rate(rate_bps)} of IP packets"
    )
    sqm = _sqm(tc_words, counted_bps, device, shapes=False, table=table)
    return Router(tc, sqm, _rounded(tc_words), basis if counted_bytes != packet_bytes else "")


def _of_line(line: Framing) -> list[tuple[str, Parameter]]:
    """Return the parameters of a queue that counts by itself the bytes that the line adds."""
    return [
        ("overhead", quantities.size(line.overhead_bytes)),
        ("framing", line.cells),
        ("mpu", quantities.size(line.mpu_bytes)),
    ]


def _line_bps(rate_bps: int, packet_bytes: int, line: Framing) -> int:
    """Return the rate of the line that carries `rate_bps` of IP packets."""
    return round(rate_bps * line.wire_bytes(packet_bytes) / packet_bytes)


def _counted(packet_bytes: int, header_bytes: int, line: Framing | None) -> tuple[int, str]:
    """Return the bytes that tbf counts for a packet, and the words of the size table for it.

    A size table has no cells of PTM, which the rate includes instead.
    """
    plain = packet_bytes + header_bytes
    if line is None or line == Framing(header_bytes):
        return plain, ""
    overhead = line.overhead_bytes - header_bytes
    cells = ATM if line.cells == ATM else NONE
    table = SizeTable(overhead, cells, line.mpu_bytes)
    words = f"stab overhead {overhead} linklayer {'atm' if cells == ATM else 'ethernet'}"
    mpu = f" mpu {line.mpu_bytes}" if line.mpu_bytes else ""
    return table.counted_bytes(plain), words + mpu


def ingress(device: str, into: str) -> list[str]:
    """Return the commands that queue the packets that a device receives.

    They redirect these packets through a device of type ifb, whose qdisc then queues them.

    Parameters
    ----------
    device : str
        The device that receives packets.
    into : str
        Name of the ifb device.
    """
    device, into = shlex.quote(device), shlex.quote(into)
    return [
        f"ip link add name {into} type ifb",
        f"ip link set dev {into} up",
        f"tc qdisc replace dev {device} handle ffff: ingress",
        f"tc filter replace dev {device} parent ffff: protocol all prio 10 handle 800::800 u32 "
        f"match u32 0 0 action mirred egress redirect dev {into}",
    ]


def ifb_of(device: str) -> str:
    """Return a name for the device ifb of a device, within Linux's 15 characters."""
    return f"ifb4{device}"[:15]


def reason(
    law: str,
    params: Sequence[tuple[str, Parameter]] = (),
    *,
    rate_bps: int,
    packet_bytes: int,
    buffer_pkts: int,
) -> str:
    """Return why no lines of tc(8) make a law with these parameters.

    Parameters
    ----------
    law : str
        The law.
    params : Sequence[tuple[str, Parameter]], default ()
        Its parameters that are not default.
    rate_bps : int
        Rate of IP packets in bit/s.
    packet_bytes : int
        Size of an IP packet.
    buffer_pkts : int
        The buffer in packets.

    Returns
    -------
    str
        The limit of the kernel's qdisc, the qdisc inside which Linux has the law, or that Linux
        does not have it; empty if lines exist.
    """
    site: dict[str, Any] = {
        "rate_bps": rate_bps,
        "packet_bytes": packet_bytes,
        "buffer_pkts": buffer_pkts,
        "buffer_bytes": None,
        "ecn": True,
        "header_bytes": HEADER_BYTES,
        "held": True,
    }
    try:
        if _native.tc_words(law, params, queue=None, **site) is not None:
            return ""
    except ScenarioError as error:
        return str(error)
    for queue in registries.queues():
        with suppress(ScenarioError):
            words = _native.tc_words(law, [], queue=queue, **site)
            if words is not None:
                return (
                    f"Linux has {law} inside its qdisc {words.qdisc} alone; the law's key "
                    f'queue = "{queue}" puts it there'
                )
    return f"Linux has no qdisc of {law}"


def is_attachable(law: str, *, rate_bps: int, packet_bytes: int, buffer_pkts: int) -> bool:
    """Return True if `forebay attach` can install a law as a BPF program, with some parameters.

    Parameters
    ----------
    law : str
        The law.
    rate_bps : int
        Rate of IP packets in bit/s.
    packet_bytes : int
        Size of an IP packet.
    buffer_pkts : int
        The buffer in packets.
    """
    try:
        twin = _native.law_twin(
            law, [], rate_bps=rate_bps, buffer_pkts=buffer_pkts, packet_bytes=packet_bytes
        )
    except ScenarioError:
        # The default parameters do not fit, but other values may.
        return True
    return twin is not None


def _short(value: str) -> str:
    """Return a number with four digits; a quantity is returned unchanged."""
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def _sqm(words: TcWords, rate_bps: int, device: str, *, shapes: bool, table: str = "") -> list[str]:
    """Return the section of OpenWrt's SQM for the upload direction.

    `sqm-scripts` names the rate itself, in kbit/s, and counts the bytes that the line adds by a
    size table.
    """
    options = words.text.removeprefix(words.qdisc).split()
    if shapes and OWN_RATE in options:
        at = options.index(OWN_RATE)
        rate_bps = round(float(options[at + 1].removesuffix("bit")))
        del options[at : at + 2]
    stab = dict(zip(table.split()[1::2], table.split()[2::2], strict=True))
    pairs = {
        "enabled": "1",
        "interface": device,
        "upload": f"{round(rate_bps / 1e3)}",
        "download": "0",
        "script": "piece_of_cake.qos" if shapes else "simplest_tbf.qos",
        "qdisc": words.qdisc,
        "linklayer": stab.get("linklayer", "none"),
        **({"overhead": stab["overhead"]} if stab else {}),
        **({"linklayer_advanced": "1", "tcMPU": stab["mpu"]} if "mpu" in stab else {}),
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
    device: str = DEVICE,
) -> Iterator[str]:
    """Yield the commands for a terminal, then comments on rounded values and on the shaper's rate.

    If the qdisc does not have the parameters, the only line is a comment with the reason; for a law
    without a qdisc there is no line.

    Parameters
    ----------
    law : str
        The law.
    params : Sequence[tuple[str, Parameter]]
        Its parameters.
    rate_bps : int
        Rate of IP packets in bit/s.
    packet_bytes : int
        Size of an IP packet.
    buffer_pkts : int | None
        The buffer in packets.
    ecn : bool, default True
        True if packets that can be marked are marked.
    device : str, default DEVICE
        The device in the commands.
    """
    try:
        router = settings(
            law,
            params,
            rate_bps=rate_bps,
            packet_bytes=packet_bytes,
            buffer_pkts=buffer_pkts,
            ecn=ecn,
            device=device,
        )
    except ScenarioError as error:
        yield f"# Linux's qdisc does not take these parameters: {error}"
        return
    if router is not None:
        yield from router.tc
        yield from (f"# {sentence}" for sentence in router.rounded)
        if router.basis:
            yield f"# {router.basis}"
