"""Convert a case of the real Linux kernel, as the reference lists it, to a Forebay scenario.

`linux.json` of the reference lists the arguments of its harness: a rate, the text of a qdisc under
`tbf`, and groups of flows. This module expresses them in a scenario; `MissingError` names a queue
or a sender that Forebay does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forebay import ScenarioError
from forebay.scenario import qdiscs

#: Size of a full packet as `tc` counts it, with its Ethernet header, and the part that is no data.
PACKET_BYTES = 1500
HEADER_BYTES = 66
#: The harness's default for tbf and htb.
TOKENS_BYTES = 3000
#: Time in seconds for packets to leave after a run: the default of the harness and of a guest.
DRAIN_S = 3

SENDERS = {"reno": "linux-reno", "cubic": "linux-cubic", "dctcp": "dctcp", "bbr": "bbr"}


class MissingError(Exception):
    """A queue, a sender or an option of the harness that Forebay does not have."""


def scenario(
    case: Mapping[str, Any], window_s: tuple[float, float], engine: str = "packets"
) -> str:
    """Return the TOML of a case for an engine, measured over `window_s`.

    Raises
    ------
    MissingError
        If the case needs something that Forebay does not have.
    """
    in_guest = engine == "kernel"
    unsupported = {"gso", "mtu", "sysctl", "pre", "hook"} & set(case)
    if in_guest:
        unsupported -= {"gso", "sysctl"}
    if unsupported:
        raise MissingError(f"option {', '.join(sorted(unsupported))}")
    if shaper(case) not in ("tbf", "htb", "cake"):
        raise MissingError(f"shaper {shaper(case)}")
    kind, *words = case["qdisc"].split()
    if shaper(case) == "cake":
        # The harness gives cake the rate.
        words += ["bandwidth", f"{case['rate_mbit'] * 1e6:.0f}bit"]
    try:
        # Packet sizes include the Ethernet header in both programs.
        site = qdiscs.Site(PACKET_BYTES, 0, shaper(case) == "tbf", case["rate_mbit"] * 1e6)
        qdisc = qdiscs.queue(kind, words, site)
    except ScenarioError as error:
        raise MissingError(f"queue {kind}: {error}") from None
    # In a guest cake and htb are Linux's own, and no simulated link adds a transmission.
    spared_ms = 0.0 if in_guest else link_ms(case)
    blocks = [
        # The groups have addresses of their own.
        [*group_lines(group, spared_ms), f'host = "s{i}"']
        for i, group in enumerate(case["groups"])
    ]
    # In a guest, a queue that marks by default may always do so.
    ecn = qdisc.ecn and (in_guest or any(group.get("ecn") for group in case["groups"]))
    duration_s = case.get("duration", 60)
    if in_guest:
        # In both programs, packets still in the queue this long after the end count as lost.
        duration_s = max(duration_s, window_s[1] + case.get("drain", DRAIN_S) - DRAIN_S)
    return "\n".join(
        [
            f'title = "Linux: {case["id"]}"',
            f'duration = "{duration_s}s"',
            f'measure = ["{window_s[0]}s", "{window_s[1]}s"]',
            "[bottleneck]",
            f'rate = "{case["rate_mbit"] * 1e6:.0f}bit/s"',
            f'burst = "{burst_bytes(case)}B"',
            # ACKs are not limited.
            'rate_back = "1Tbit/s"',
            # Both halves of a round trip are in the access links of the harness.
            'delay = "0ns"',
            f'buffer = "{qdisc.buffer}"',
            f"ecn = {'true' if ecn else 'false'}",
            *(line for block in blocks for line in block),
            *(kernel_lines(case) if in_guest else ()),
            qdisc.law.text(),
            "",
        ]
    )


def kernel_lines(case: Mapping[str, Any]) -> list[str]:
    """Return the settings of hosts and shaper, which only a guest can follow."""
    lines = ["[kernel]"]
    if case.get("gso"):
        lines.append('offloads = "all"')
    if shaper(case) == "htb":
        lines.append('shaper = "htb"')
    settings = [f'"net.ipv4.{name}" = "{value}"' for name, value in case.get("sysctl", {}).items()]
    if case["qdisc"].split()[0] in ("fq_codel", "fq_pie"):
        # The harness has Linux's default, with which a flow changes its queue after a timeout.
        settings.append('"net.core.txrehash" = "1"')
    if settings:
        lines.append(f"sysctls = {{ {', '.join(settings)} }}")
    return lines if lines[1:] else []


def shaper(case: Mapping[str, Any]) -> str:
    """Return the name of the qdisc that limits the bottleneck to its rate."""
    return "cake" if case["qdisc"].startswith("cake") else case.get("shaper", "tbf")


def burst_bytes(case: Mapping[str, Any]) -> int:
    """Return the depth of the shaper's token bucket; cake has none."""
    return 0 if shaper(case) == "cake" else case.get("burst", TOKENS_BYTES)


def link_ms(case: Mapping[str, Any]) -> float:
    """Return the time that the simulated link adds to a round trip, in ms.

    `cake` and `htb` let a packet go when its transmission would begin, and no device there has a
    rate.
    """
    return 0.0 if shaper(case) == "tbf" else packet_s(case) * 1e3


def round_trip_ms(group: Mapping[str, Any], spared_ms: float) -> float:
    """Return the propagation time of a group in ms, less the time that the link adds."""
    if group["rtt_ms"] <= spared_ms:
        raise MissingError(f"a round trip of {group['rtt_ms']} ms, less than a transmission")
    return float(group["rtt_ms"]) - spared_ms


def group_lines(group: Mapping[str, Any], spared_ms: float) -> list[str]:
    """Return the `[[traffic]]` of a group, with the kernel's defaults for sender and receiver."""
    if group["cc"] == "udp":
        return udp_lines(group, spared_ms)
    if group["cc"] not in SENDERS:
        raise MissingError(f"sender {group['cc']}")
    ecn = '"l4s"' if group.get("ect1") else "true" if group.get("ecn") else "false"
    start, until = group.get("start", [0, 1])
    lines = [
        "[[traffic]]",
        'kind = "ftp"',
        f"flows = {group['n']}",
        f'tcp = "{SENDERS[group["cc"]]}"',
        f'packet = "{PACKET_BYTES}B"',
        f'header = "{HEADER_BYTES}B"',
        f'rtt = "{round_trip_ms(group, spared_ms):g}ms"',
        # veth has no rate.
        'access = "1Tbit/s"',
        'initial_window = "10p"',
        # tcp_rmem of 64 MB never holds a sender back.
        'window = "40000p"',
        "delayed_ack = true",
        'ack_delay = "40ms"',
        "quick_acks = 16",
        # The harness has it off.
        "gso = false",
        f"ecn = {ecn}",
        f'start = {{ uniform = ["{start}s", "{until}s"] }}',
    ]
    if "stop" in group:
        lines.append(f'stop = "{group["stop"]}s"')
    return lines


def udp_lines(group: Mapping[str, Any], spared_ms: float) -> list[str]:
    """Return the `[[traffic]]` of a constant rate, which begins half a second after the start."""
    start = group.get("start", [0.5])[0]
    return [
        "[[traffic]]",
        'kind = "cbr"',
        "flows = 1",
        f'rate = "{group["mbit"] * 1e6:.0f}bit/s"',
        f'packet = "{group.get("size", PACKET_BYTES)}B"',
        f'rtt = "{round_trip_ms(group, spared_ms):g}ms"',
        'access = "1Tbit/s"',
        f'start = "{start}s"',
    ]


def transmission_s(case: Mapping[str, Any]) -> float:
    """Return the transmission time that `delay_ms` of the reference contains, in seconds.

    Under tbf it is that of a full packet, or with `gso` of the usual segment of two; under htb and
    cake it is zero.
    """
    packets = 2 if case.get("gso") else 1
    return packets * packet_s(case) if shaper(case) == "tbf" else 0.0


def packet_s(case: Mapping[str, Any]) -> float:
    """Return the transmission time of a full packet at the case's rate, in seconds."""
    return PACKET_BYTES * 8 / (float(case["rate_mbit"]) * 1e6)
