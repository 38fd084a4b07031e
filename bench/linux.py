"""The reference's case of the real Linux kernel as a Forebay scenario.

`linux.json` of the reference lists its cases with what its harness was told: a rate, the text of
a qdisc under `tbf`, and groups of flows. What is said here in words of Forebay is that; where a
queue or a sender is not there yet, `MissingError` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: A full packet as `tc` counts it, with its Ethernet header, and what of it is not data.
PACKET_BYTES = 1500
HEADER_BYTES = 66

SENDERS = {"reno": "linux-reno", "cubic": "linux-cubic", "dctcp": "dctcp", "bbr": "bbr"}


class MissingError(Exception):
    """A queue, a sender or an option of the harness that Forebay does not have."""


def scenario(case: Mapping[str, Any], window_s: tuple[float, float]) -> str:
    """The TOML for a case, measured over `window_s`.

    Raises:
        MissingError: the case needs what Forebay does not have.
    """
    other = {"gso", "shaper", "mtu", "burst", "sysctl", "pre", "hook"} & set(case)
    if other:
        raise MissingError(f"option {', '.join(sorted(other))}")
    kind, *words = case["qdisc"].split()
    if kind not in QDISCS:
        raise MissingError(f"queue {kind}")
    buffer, law = QDISCS[kind](options(words))
    blocks = [group_lines(group) for group in case["groups"]]
    ecn = any(group.get("ecn") for group in case["groups"])
    return "\n".join(
        [
            f'title = "Linux: {case["id"]}"',
            f'duration = "{case.get("duration", 60)}s"',
            f'measure = ["{window_s[0]}s", "{window_s[1]}s"]',
            "[bottleneck]",
            f'rate = "{case["rate_mbit"] * 1e6:.0f}bit/s"',
            # Both halves of a round trip are in the access links there.
            'delay = "0ns"',
            f'buffer = "{buffer}"',
            f"ecn = {'true' if ecn else 'false'}",
            *(line for block in blocks for line in block),
            "[[law]]",
            *law,
            "",
        ]
    )


def options(words: list[str]) -> dict[str, str]:
    """`limit 150 min 3 …` as a mapping; words in pairs."""
    return dict(zip(words[::2], words[1::2], strict=True))


def group_lines(group: Mapping[str, Any]) -> list[str]:
    """The `[[traffic]]` of a group: a sender's and a receiver's defaults are the kernel's."""
    if group["cc"] not in SENDERS:
        raise MissingError(f"sender {group['cc']}")
    start, until = group.get("start", [0, 1])
    lines = [
        "[[traffic]]",
        'kind = "ftp"',
        f"flows = {group['n']}",
        f'tcp = "{SENDERS[group["cc"]]}"',
        f'packet = "{PACKET_BYTES}B"',
        f'header = "{HEADER_BYTES}B"',
        f'rtt = "{group["rtt_ms"]}ms"',
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
        f"ecn = {'true' if group.get('ecn') else 'false'}",
        f'start = {{ uniform = ["{start}s", "{until}s"] }}',
    ]
    if "stop" in group:
        lines.append(f'stop = "{group["stop"]}s"')
    return lines


# A qdisc under tbf counts the packet being sent as its own; our queues do not.


def pfifo(given: Mapping[str, str]) -> tuple[str, list[str]]:
    return f"{int(given['limit']) - 1}p", ['kind = "droptail"']


def bfifo(given: Mapping[str, str]) -> tuple[str, list[str]]:
    return f"{int(given['limit']) - PACKET_BYTES}B", ['kind = "droptail"']


def red(given: Mapping[str, str]) -> tuple[str, list[str]]:
    """`sch_red` in bytes, all packets being of one size."""
    least, most, limit = (int(given[key]) / PACKET_BYTES for key in ("min", "max", "limit"))
    return f"{limit - 1:.0f}p", [
        'kind = "red"',
        f'min_th = "{least - 1:g}p"',
        f'max_th = "{most - 1:g}p"',
        f"max_p = {given['probability']}",
        f"w_q = {red_weight(least, float(given['burst']))}",
        # Above `max` everything goes; signals are spaced as count·p grows.
        "gentle = false",
        "wait = false",
    ]


def red_weight(least_pkts: float, burst_pkts: float) -> float:
    """iproute2's weight, 2^-W with the least W for which a burst keeps the mean below `min`
    (`tc_red_eval_ewma`; Floyd and Jacobson 1993, section VI, eq. 3)."""
    for log in range(1, 32):
        weight = 2.0**-log
        if burst_pkts + 1 - least_pkts <= (1 - (1 - weight) ** burst_pkts) / weight:
            return weight
    raise ValueError(f"no weight for a burst of {burst_pkts} packets below {least_pkts}")


Qdisc = Callable[[Mapping[str, str]], tuple[str, list[str]]]

#: qdisc: the buffer and the lines of the law
QDISCS: dict[str, Qdisc] = {"pfifo": pfifo, "bfifo": bfifo, "red": red}


def transmission_s(case: Mapping[str, Any]) -> float:
    """How long the bottleneck sends a full packet; `delay_ms` of the reference contains it."""
    return PACKET_BYTES * 8 / (float(case["rate_mbit"]) * 1e6)
