"""The counters of a law in the kernel."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from forebay._native import ScenarioError
from forebay.linux import attachments, devices, namespaces, records
from forebay.linux.programs import CLASSIFIER, FRONTS, answer
from forebay.linux.records import Attached

ONE = 2.0**60
#: Scales of the sums over ticks in `struct running` of front.h.
P_SUM_ONE, SQUARE_BYTES = 2.0**40, 64


@dataclass(frozen=True)
class LawCounts:
    """Counts of a law in the kernel, since it was attached.

    A counter that the kernel's own qdiscs do not have is None. Means and standard deviations are
    over the ticks of the law's clock; packets have the usual size.
    """

    device: str
    law: str
    engine: str
    present: bool
    rate_bps: int
    #: arrived packets and bytes, counting the segments of large packets
    packets: int | None
    bytes: int | None
    #: signals, and the packets that were signalled
    marks: int | None
    drops: int | None
    marked_packets: int | None
    dropped_packets: int | None
    #: drops at the full buffer
    overflows: int
    #: bytes and packets that the shaper has sent
    sent_bytes: int
    sent_packets: int
    queue_bytes: int
    queue_pkts: float
    #: present and mean probability of a signal
    p: float | None
    p_mean: float | None
    queue_mean_pkts: float | None
    queue_std_pkts: float | None
    delay_mean_s: float | None
    ticks: int | None
    #: lateness of the law's clock
    late_mean_s: float | None
    late_max_s: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them."""
        return asdict(self)


def counts_of(device: str) -> LawCounts:
    """Return the counts of a device. Raises `ScenarioError` without a law, and `KernelError`."""
    return _counts(devices.attached_to(device))


def all_counts() -> list[LawCounts]:
    """Return the counts of every device with a law in this network namespace."""
    attached = [record for record in records.read()[0] if record.namespace == namespaces.cookie()]
    if not attached:
        raise ScenarioError("no device here has a law; `forebay attach DEV LAW` installs one")
    return [_counts(record) for record in attached]


def _counts(attached: Attached) -> LawCounts:
    root: dict[str, Any] = {}
    counted: dict[str, Any] = {}
    name = devices.present_name(attached)
    if name is not None:
        qdiscs = answer("tc", "-s", "-j", "qdisc", "show", "dev", name)
        root = next((qdisc for qdisc in qdiscs if qdisc.get("root")), {})
        if attached.engine in FRONTS:
            counted = _counted(attached)
    present = name is not None
    common: dict[str, Any] = {
        "device": name or attached.device,
        "law": attached.law,
        "engine": attached.engine,
        "present": present,
        "rate_bps": attached.rate_bps,
        "overflows": int(root.get("drops", 0)),
        "sent_bytes": int(root.get("bytes", 0)),
        "sent_packets": int(root.get("packets", 0)),
        "queue_bytes": int(root.get("backlog", 0)),
        "queue_pkts": int(root.get("backlog", 0)) / attached.packet_bytes,
    }
    names = [name for name in LawCounts.__dataclass_fields__ if name not in common]
    rest: dict[str, Any] = {name: counted.get(name) for name in names}
    return LawCounts(**common, **rest)


def _counted(attached: Attached) -> dict[str, Any]:
    """Return the counts in the maps of front.h."""
    (running,) = answer("bpftool", "-j", "map", "dump", "id", str(attached.maps["running"]))
    (tally,) = answer("bpftool", "-j", "map", "dump", "id", str(attached.maps["tally"]))
    state = running["formatted"]["value"]
    processors = [entry["value"] for entry in tally["formatted"]["values"]]
    counted: dict[str, Any] = {
        name: sum(counts[name] for counts in processors)
        for name in ("packets", "bytes", "marks", "drops", "marked_packets", "dropped_packets")
    }
    ticks = state["ticks"]
    counted |= {"ticks": ticks, "p": state["law"]["p"] / ONE}
    if ticks:
        mean_bytes = state["backlog_sum"] / ticks
        square = state["backlog_square_sum"] / ticks * SQUARE_BYTES**2
        counted |= {
            "p_mean": state["p_sum"] / ticks / P_SUM_ONE,
            "queue_mean_pkts": mean_bytes / attached.packet_bytes,
            "queue_std_pkts": math.sqrt(max(0.0, square - mean_bytes**2)) / attached.packet_bytes,
            "delay_mean_s": 8 * mean_bytes / attachments.shaper_bps(attached),
            "late_mean_s": state["late_ns"] / ticks * 1e-9,
            "late_max_s": state["latest_ns"] * 1e-9,
        }
    return counted


def bypass_warning(counts: LawCounts) -> str | None:
    """Return a warning on packets that bypass the law; None if it sees every packet.

    A program at the device's egress that runs before the law and returns a verdict such as
    TC_ACT_OK lets packets pass without the law.
    """
    if counts.engine != CLASSIFIER or not counts.present or counts.packets is None:
        return None
    record = devices.attached_to(counts.device)
    ifindex = devices.index(counts.device)
    if ifindex is None:
        return None
    earlier_programs = devices.programs_before(record, counts.device, ifindex)
    if not earlier_programs:
        return None
    passed = ""
    if "shaper" in record.made and counts.sent_packets > counts.packets:
        passed = (
            f": the shaper has sent {counts.sent_packets} packets, but the law has seen "
            f"{counts.packets}"
        )
    return (
        f"{devices.shown(counts.device)}: {earlier_programs} other program"
        f"{'s' if earlier_programs > 1 else ''} at egress before the law may let packets pass "
        f"unseen{passed}; attach the law again to put it first"
    )


#: Name, kind and field of each metric for Prometheus.
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
    """Return counts in the text format of Prometheus, which its node exporter reads from a file."""
    lines = []
    for name, kind, field in METRICS:
        lines.append(f"# TYPE {PREFIX}{name} {kind}")
        for counts in all_of:
            value = getattr(counts, field)
            if value is not None:
                labels = f'device="{_label(counts.device)}",law="{counts.law}"'
                lines.append(f"{PREFIX}{name}{{{labels}}} {value!r}")
    return "\n".join(lines) + "\n"


def _label(text: str) -> str:
    """Return a label's value as the text format of Prometheus escapes it."""
    text = devices.shown(text) if not text.isprintable() else text
    return text.replace("\\", r"\\").replace('"', r"\"")
