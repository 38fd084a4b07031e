"""Whether a law's gains suited the link, and where to get others."""

from __future__ import annotations

from forebay import units
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.link.outcome import Outcome

#: A link is full, and a set-point missed, beyond these shares.
FULL, MISSED = 0.9, 0.25


def missed(found: Outcome, index: int) -> str:
    """How to get gains for the link, where it was full of TCP and a law that has the gains of
    another missed its set-point; empty otherwise."""
    one = [found.settings.up, found.settings.down][index]
    link = one.link
    queue_pkts, target_pkts = found.runs[index].metrics["queue_mean_pkts"], one.law.target_pkts
    flows = found.tcp_flows[index]
    delays_s = [found.settings.up.link.delay_s, found.settings.down.link.delay_s]
    # Gains are for one RTT.
    spread = any(least < most for least, most in delays_s)
    rtt_s = 0.0 if spread else sum(most for _, most in delays_s)
    if (
        found.changed
        or not (target_pkts and flows and rtt_s)
        or found.runs[index].metrics["utilisation"] < FULL
        or abs(queue_pkts / target_pkts - 1) < MISSED
    ):
        return ""
    packet_bytes = found.settings.mtu
    try:
        model = LawModel(one.aqm, one.params, link.rate_bps, packet_bytes, one.buffer_mtu_pkts)
        per_s = model.capacity_pkts_per_s
        point = OperatingPoint(flows, rtt_s + target_pkts / per_s, per_s)
        designed = model.design(point, target_pkts, [])
    except ScenarioError:
        return ""
    own = {name for name, _ in one.params} - {"target", "interval"}
    if designed is None or own & {name for name, _ in designed["params"]}:
        return ""
    buffer = f" --buffer {link.buffer_pkts}p" if link.buffer_pkts is not None else ""
    return (
        f"mean queue {queue_pkts:.0f} packets, set-point {target_pkts:g}: the default gains are "
        f"for another link; for this one: `forebay design {one.aqm} --rate "
        f"{units.rate(link.rate_bps)} --packet {units.size(packet_bytes)} --rtt {1e3 * rtt_s:g}ms "
        f"--flows {flows} --target {target_pkts:g}p{buffer}`"
    )
