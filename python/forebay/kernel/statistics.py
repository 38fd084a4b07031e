"""What a law in the kernel has seen and done."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from forebay._native import ScenarioError
from forebay.kernel import records
from forebay.kernel.programs import FRONTS, answer
from forebay.kernel.records import Attached

ONE = 2.0**60
#: Of the sums over ticks: `struct running` of front.h.
P_SUM_ONE, SQUARE_BYTES = 2.0**40, 64


@dataclass(frozen=True)
class LawCounts:
    """Counts of a law in the kernel, since it was attached.

    What the kernel's own qdiscs do not count is None. Means and deviations are over the ticks of
    the law's clock; packets are of usual size.
    """

    device: str
    law: str
    engine: str
    present: bool
    rate_bps: int
    #: packets and bytes that came, with the segments of large ones counted
    packets: int | None
    bytes: int | None
    #: signals, and the packets that they were on
    marks: int | None
    drops: int | None
    marked_packets: int | None
    dropped_packets: int | None
    #: at the full buffer
    overflows: int
    #: what the shaper has sent
    sent_bytes: int
    sent_packets: int
    queue_bytes: int
    queue_pkts: float
    #: probability of a signal, now and on average
    p: float | None
    p_mean: float | None
    queue_mean_pkts: float | None
    queue_std_pkts: float | None
    delay_mean_s: float | None
    ticks: int | None
    #: of the clock
    late_mean_s: float | None
    late_max_s: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def seen(device: str) -> LawCounts:
    """Raises `ScenarioError` where no law is attached, and `KernelError`."""
    return _seen(records.attached_to(device))


def all_seen() -> list[LawCounts]:
    """Of every device with a law in this network namespace."""
    here = [one for one in records.everything() if one.namespace == records.namespace()]
    if not here:
        raise ScenarioError("stats: found no law, allowed: after `forebay attach DEV … LAW`")
    return [_seen(one) for one in here]


def _seen(one: Attached) -> LawCounts:
    root: dict[str, Any] = {}
    present = records.exists(one)
    if present:
        qdiscs = answer("tc", "-s", "-j", "qdisc", "show", "dev", one.device)
        root = next((it for it in qdiscs if it.get("root")), {})
    counted: dict[str, Any] = {}
    if one.engine in FRONTS:
        counted = _counted(one)
    common: dict[str, Any] = {
        "device": one.device,
        "law": one.law,
        "engine": one.engine,
        "present": present,
        "rate_bps": one.rate_bps,
        "overflows": int(root.get("drops", 0)),
        "sent_bytes": int(root.get("bytes", 0)),
        "sent_packets": int(root.get("packets", 0)),
        "queue_bytes": int(root.get("backlog", 0)),
        "queue_pkts": int(root.get("backlog", 0)) / one.packet_bytes,
    }
    names = [name for name in LawCounts.__dataclass_fields__ if name not in common]
    rest: dict[str, Any] = {name: counted.get(name) for name in names}
    return LawCounts(**common, **rest)


def _counted(one: Attached) -> dict[str, Any]:
    """Of the maps of front.h."""
    maps = one.pinned / "maps"
    (running,) = answer("bpftool", "-j", "map", "dump", "pinned", str(maps / "running"))
    (tally,) = answer("bpftool", "-j", "map", "dump", "pinned", str(maps / "tally"))
    state = running["formatted"]["value"]
    processors = [it["value"] for it in tally["formatted"]["values"]]
    counted: dict[str, Any] = {
        name: sum(it[name] for it in processors)
        for name in ("packets", "bytes", "marks", "drops", "marked_packets", "dropped_packets")
    }
    ticks = state["ticks"]
    counted |= {"ticks": ticks, "p": state["law"]["p"] / ONE}
    if ticks:
        mean_bytes = state["backlog_sum"] / ticks
        square = state["backlog_square_sum"] / ticks * SQUARE_BYTES**2
        counted |= {
            "p_mean": state["p_sum"] / ticks / P_SUM_ONE,
            "queue_mean_pkts": mean_bytes / one.packet_bytes,
            "queue_std_pkts": math.sqrt(max(0.0, square - mean_bytes**2)) / one.packet_bytes,
            "delay_mean_s": 8 * mean_bytes / one.rate_bps,
            "late_mean_s": state["late_ns"] / ticks * 1e-9,
            "late_max_s": state["latest_ns"] * 1e-9,
        }
    return counted


#: Name, kind, unit of what is served, and the field it is.
METRICS = [
    ("packets_total", "counter", "packets"),
    ("bytes_total", "counter", "bytes"),
    ("marks_total", "counter", "marks"),
    ("drops_total", "counter", "drops"),
    ("overflows_total", "counter", "overflows"),
    ("sent_bytes_total", "counter", "sent_bytes"),
    ("queue_bytes", "gauge", "queue_bytes"),
    ("signal_probability", "gauge", "p"),
]
PREFIX = "forebay_kernel_"


def prometheus(all_of: list[LawCounts]) -> str:
    """In the text format of Prometheus, such as its node exporter reads from a file."""
    lines = []
    for name, kind, field in METRICS:
        lines.append(f"# TYPE {PREFIX}{name} {kind}")
        for one in all_of:
            value = getattr(one, field)
            if value is not None:
                lines.append(f'{PREFIX}{name}{{device="{one.device}",law="{one.law}"}} {value!r}')
    return "\n".join(lines) + "\n"
