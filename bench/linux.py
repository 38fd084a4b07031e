"""The reference's case of the real Linux kernel as a Forebay scenario.

`linux.json` of the reference lists its cases with what its harness was told: a rate, the text of
a qdisc under `tbf`, and groups of flows. What is said here in words of Forebay is that; where a
queue or a sender is not there yet, `MissingError` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

#: A full packet as `tc` counts it, with its Ethernet header, and what of it is not data.
PACKET_BYTES = 1500
HEADER_BYTES = 66
#: The harness's default for tbf and htb.
TOKENS_BYTES = 3000

SENDERS = {"reno": "linux-reno", "cubic": "linux-cubic", "dctcp": "dctcp", "bbr": "bbr"}


class MissingError(Exception):
    """A queue, a sender or an option of the harness that Forebay does not have."""


def scenario(case: Mapping[str, Any], window_s: tuple[float, float]) -> str:
    """The TOML for a case, measured over `window_s`.

    Raises:
        MissingError: the case needs what Forebay does not have.
    """
    other = {"gso", "mtu", "sysctl", "pre", "hook"} & set(case)
    if other:
        raise MissingError(f"option {', '.join(sorted(other))}")
    if shaper(case) not in ("tbf", "htb", "cake"):
        raise MissingError(f"shaper {shaper(case)}")
    kind, *words = case["qdisc"].split()
    if kind not in QDISCS:
        raise MissingError(f"queue {kind}")
    # tbf keeps the packet that it sends in its qdisc.
    held = Held(1, transmission_s(case)) if shaper(case) == "tbf" else Held(0, 0.0)
    given = options(words)
    if kind == "cake":
        # The harness gives it the rate.
        given["bandwidth"] = f"{case['rate_mbit'] * 1e6:.0f}bit/s"
    buffer, law = QDISCS[kind](given, held)
    blocks = [
        # The groups have addresses of their own.
        [*group_lines(case, group), f'host = "s{i}"']
        for i, group in enumerate(case["groups"])
    ]
    marks = "noecn" not in given and ("ecn" in given or kind in MARKING)
    ecn = marks and any(group.get("ecn") for group in case["groups"])
    return "\n".join(
        [
            f'title = "Linux: {case["id"]}"',
            f'duration = "{case.get("duration", 60)}s"',
            f'measure = ["{window_s[0]}s", "{window_s[1]}s"]',
            "[bottleneck]",
            f'rate = "{case["rate_mbit"] * 1e6:.0f}bit/s"',
            f'burst = "{burst_bytes(case)}B"',
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


def shaper(case: Mapping[str, Any]) -> str:
    """What holds the bottleneck to its rate."""
    return "cake" if case["qdisc"].startswith("cake") else case.get("shaper", "tbf")


def burst_bytes(case: Mapping[str, Any]) -> int:
    """Depth of the shaper's token bucket; cake has none."""
    return 0 if shaper(case) == "cake" else case.get("burst", TOKENS_BYTES)


def options(words: list[str]) -> dict[str, str]:
    """`limit 150 min 3 ecn` as a mapping; a flag has no value."""
    given = {}
    rest = iter(words)
    for word in rest:
        given[word] = "" if word in FLAGS else next(rest)
    return given


def round_trip_ms(case: Mapping[str, Any], group: Mapping[str, Any]) -> float:
    """A group's propagation time. `cake` and `htb` let a packet go where its transmission would
    begin, and no device there has a rate: what our link takes to send it comes off the rest."""
    spared_ms = 0.0 if shaper(case) == "tbf" else packet_s(case) * 1e3
    if group["rtt_ms"] <= spared_ms:
        raise MissingError(f"a round trip of {group['rtt_ms']} ms, less than a transmission")
    return float(group["rtt_ms"]) - spared_ms


def group_lines(case: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    """The `[[traffic]]` of a group: a sender's and a receiver's defaults are the kernel's."""
    if group["cc"] == "udp":
        return udp_lines(case, group)
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
        f'rtt = "{round_trip_ms(case, group):g}ms"',
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


def udp_lines(case: Mapping[str, Any], group: Mapping[str, Any]) -> list[str]:
    """A constant rate, which begins half a second after the start."""
    start = group.get("start", [0.5])[0]
    return [
        "[[traffic]]",
        'kind = "cbr"',
        "flows = 1",
        f'rate = "{group["mbit"] * 1e6:.0f}bit/s"',
        f'packet = "{group.get("size", PACKET_BYTES)}B"',
        f'rtt = "{round_trip_ms(case, group):g}ms"',
        'access = "1Tbit/s"',
        f'start = "{start}s"',
    ]


class Held(NamedTuple):
    """What a qdisc counts of the packet being sent, which our queues do not: how many packets, and
    how long it takes."""

    packets: int
    seconds: float


def pfifo(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    return f"{int(given['limit']) - held.packets}p", ['kind = "droptail"']


def bfifo(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    return f"{int(given['limit']) - held.packets * PACKET_BYTES}B", ['kind = "droptail"']


def red(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    """`sch_red` in bytes, all packets being of one size."""
    least, most, limit = (int(given[key]) / PACKET_BYTES for key in ("min", "max", "limit"))
    return f"{limit - held.packets:.0f}p", [
        'kind = "red"',
        f'min_th = "{least - held.packets:g}p"',
        f'max_th = "{most - held.packets:g}p"',
        f"max_p = {given['probability']}",
        f"w_q = {red_weight(least, float(given['burst']))}",
        # Above `max` everything goes; signals are spaced as count·p grows.
        "gentle = false",
        "wait = false",
        f"mark_above = {'false' if 'harddrop' in given else 'true'}",
    ]


def codel(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    """`sch_codel` takes the backlog without the packet that leaves, also under tbf."""
    keys = ("target", "interval", "ce_threshold")
    return limit(given, held), [
        'kind = "codel"',
        *(f'{key} = "{given[key]}"' for key in keys if key in given),
        f'least_backlog = "{PACKET_BYTES}B"',
    ]


def pie(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    """`sch_pie` judges an arrival by the backlog with the packet being sent."""
    target_s = seconds(given.get("target", "15ms"))
    lines = ['kind = "pie"', f'interval = "{given.get("tupdate", "15ms")}"']
    if "dq_rate_estimator" in given:
        # Its delay is that backlog over the rate: longer by a transmission.
        target_s -= held.seconds
        lines.append('estimator = "linux-departure-rate"')
    # tc counts gains in sixteenths.
    lines += [f"{key} = {int(given[key]) / 16}" for key in ("alpha", "beta") if key in given]
    lines += ["by_bytes = true"] if "bytemode" in given else []
    return limit(given, held), [
        *lines,
        f'target = "{target_s * 1e3:.6g}ms"',
        f'least_backlog = "{(2 - held.packets) * PACKET_BYTES}B"',
    ]


def fq_codel(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    """CoDel's backlog is that of all flows, without the packet that leaves."""
    _, law = codel(given, held)
    return limit(given, held, 10240), [*law, f"queue = {fq(given)}"]


def fq_pie(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    """A flow's backlog does not count the packet being sent."""
    _, law = pie(given, Held(0, held.seconds))
    return limit(given, held, 10240), [*law, f"queue = {fq(given)}"]


def fq(given: Mapping[str, str]) -> str:
    """The quantum is the device's MTU with its header."""
    keys = {
        "queues": given.get("flows", "1024"),
        "quantum": f'"{given.get("quantum", PACKET_BYTES)}B"',
        "drop_batch": given.get("drop_batch", "64"),
    }
    return table("fq", keys)


def dualpi2(given: Mapping[str, str], held: Held) -> tuple[str, list[str]]:
    """The default gains as the kernel has them, of 41 and 819 parts of 256
    (`dualpi2_scale_alpha_beta`)."""
    keys = {"step_least": given.get("min_qlen_step", "0")}
    if "any_ect" in given:
        keys["any_ect"] = "true"
    return limit(given, held, 10000), [
        'kind = "dualpi2"',
        f'target = "{given.get("target", "15ms")}"',
        f'interval = "{given.get("tupdate", "16ms")}"',
        "alpha = 0.160071",
        "beta = 3.197783",
        f'least_backlog = "{2 * PACKET_BYTES}B"',
        f"queue = {table('dualpi2', keys)}",
    ]


def cake(given: Mapping[str, str], _held: Held) -> tuple[str, list[str]]:
    """Its buffer is in bytes of memory: 4 MB at the rates of the reference."""
    keys = {"bandwidth": f'"{given["bandwidth"]}"'}
    for word in given:
        if word in CAKE_TINS:
            keys["tins"] = f'"{word}"'
        if word in CAKE_ISOLATION:
            keys["isolation"] = f'"{word}"'
    return f"{CAKE_BUFFER_BYTES // CAKE_PACKET_MEMORY * PACKET_BYTES}B", [
        'kind = "cake"',
        f"queue = {table('cake', keys)}",
    ]


def table(kind: str, keys: Mapping[str, str]) -> str:
    """A queue with its keys, as a scenario writes it."""
    fields = [f'kind = "{kind}"', *(f"{key} = {value}" for key, value in keys.items())]
    return f"{{ {', '.join(fields)} }}"


def limit(given: Mapping[str, str], held: Held, default: int = 1000) -> str:
    """The buffer in packets."""
    return f"{int(given.get('limit', default)) - held.packets}p"


def seconds(text: str) -> float:
    """tc's times: `15ms`."""
    for unit, scale in (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)):
        if text.endswith(unit):
            return float(text.removesuffix(unit)) * scale
    raise ValueError(f"not a time: {text}")


def red_weight(least_pkts: float, burst_pkts: float) -> float:
    """iproute2's weight, 2^-W with the least W for which a burst keeps the mean below `min`
    (`tc_red_eval_ewma`; Floyd and Jacobson 1993, section VI, eq. 3)."""
    for log in range(1, 32):
        weight = 2.0**-log
        if burst_pkts + 1 - least_pkts <= (1 - (1 - weight) ** burst_pkts) / weight:
            return weight
    raise ValueError(f"no weight for a burst of {burst_pkts} packets below {least_pkts}")


Qdisc = Callable[[Mapping[str, str], Held], tuple[str, list[str]]]

#: qdisc: the buffer and the lines of the law
QDISCS: dict[str, Qdisc] = {
    "pfifo": pfifo,
    "bfifo": bfifo,
    "red": red,
    "codel": codel,
    "pie": pie,
    "fq_codel": fq_codel,
    "fq_pie": fq_pie,
    "dualpi2": dualpi2,
    "cake": cake,
}

#: those that mark where nothing else is said
MARKING = {"fq_codel", "dualpi2", "cake"}

CAKE_TINS = {"besteffort", "precedence", "diffserv3", "diffserv4"}
CAKE_ISOLATION = {
    "flowblind",
    "flows",
    "hosts",
    "srchost",
    "dsthost",
    "dual-srchost",
    "dual-dsthost",
    "triple-isolate",
}
CAKE_BUFFER_BYTES = 4 << 20
#: what the kernel counts of memory for a packet of 1500 bytes
CAKE_PACKET_MEMORY = 2304

#: words of tc without a value
FLAGS = {
    "ecn",
    "noecn",
    "harddrop",
    "bytemode",
    "nobytemode",
    "dq_rate_estimator",
    "no_dq_rate_estimator",
    "any_ect",
    *CAKE_TINS,
    *CAKE_ISOLATION,
}


def transmission_s(case: Mapping[str, Any]) -> float:
    """How long the bottleneck sends a full packet; `delay_ms` of the reference contains it under
    tbf, not under htb or cake."""
    return packet_s(case) if shaper(case) == "tbf" else 0.0


def packet_s(case: Mapping[str, Any]) -> float:
    """How long a full packet takes at the case's rate."""
    return PACKET_BYTES * 8 / (float(case["rate_mbit"]) * 1e6)
