"""The command that designs a law for a link, where its gains are for another one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay import units
from forebay._native import LawModel, OperatingPoint, ScenarioError

if TYPE_CHECKING:
    from forebay._native import LawInfo, Parameter

#: Long-lived senders of scenarios whose growth the plant has, as `--tcp` of designs names it.
GROWTH = {
    "reno": "reno",
    "newreno": "reno",
    "sack": "reno",
    "linux-reno": "reno",
    "cubic": "cubic",
    "linux-cubic": "cubic",
    "dctcp": "dctcp",
    "prague": "prague",
}
#: Those that live on marks, and halve their windows for a drop.
MARKED = {"dctcp", "prague"}

#: Queues that give each flow a loop of its own.
OF_FLOWS = re.compile(r"\b(fq|cake)\b")


def is_of_flows(law: LawInfo, queue: str | None = None) -> bool:
    """Whether the law runs once for each flow: its set-point is then of a flow's queue, and the
    link as a whole has none to miss. queue: what holds it, where that is not the law's own."""
    held_by = queue or law.queue
    return held_by is not None and OF_FLOWS.search(held_by) is not None


def growth(tcp: str | None, ecn: bool) -> str | None:
    """A sender of scenarios as `--tcp` names it; None where the plant has none. ecn: whether its
    flows are marked."""
    found = GROWTH.get(tcp or "")
    return "reno" if found in MARKED and not ecn else found


def command(
    kind: str,
    params: Sequence[tuple[str, Parameter]],
    *,
    rate_bps: int,
    packet_bytes: int,
    rtt_s: float,
    flows: float,
    target_pkts: float,
    room_pkts: float,
    buffer_pkts: int | None,
    tcp: str = "reno",
) -> tuple[str, set[str]]:
    """`forebay design …`, and the parameters that it would choose.

    rtt_s: propagation both ways. room_pkts: the buffer, in packets. buffer_pkts: the same where it
    is bounded in packets. tcp: the flows' sender, as `--tcp` names it. Both are empty for a law
    without a design rule, and where the rule has no gains for the link.
    """
    try:
        model = LawModel(kind, params, rate_bps, packet_bytes, room_pkts)
        per_s = model.capacity_pkts_per_s
        point = OperatingPoint(flows, rtt_s + target_pkts / per_s, per_s)
        designed = model.design(point, target_pkts, [])
    except ScenarioError:
        return "", set()
    if designed is None:
        return "", set()
    buffer = f" --buffer {buffer_pkts}p" if buffer_pkts is not None else ""
    sender = f" --tcp {tcp}" if tcp != "reno" else ""
    return (
        f"forebay design {kind} --rate {units.rate(rate_bps)} --packet {units.size(packet_bytes)} "
        f"--rtt {1e3 * rtt_s:.4g}ms --flows {flows:g} --target {target_pkts:g}p{buffer}{sender}",
        {name for name, _ in designed["params"]},
    )
