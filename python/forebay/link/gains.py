"""Whether a law's gains suited the link, and where to get others."""

from __future__ import annotations

from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.link.outcome import Outcome

#: A link is full, and a set-point missed, beyond these shares.
FULL, MISSED = 0.9, 0.25


def missed(found: Outcome, index: int) -> str:
    """How to get gains for the link, where it was full of TCP and a law that has the gains of
    another missed its set-point; empty otherwise."""
    way = [found.settings.up, found.settings.down][index]
    queue_pkts, target_pkts = found.runs[index].metrics["queue_mean_pkts"], way.law.target_pkts
    flows = found.tcp_flows[index]
    delays_s = [found.settings.up.delay_s, found.settings.down.delay_s]
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
    rate, packet = way.rate or f"{way.rate_bps}bit/s", f"{found.settings.mtu}B"
    buffer = way.buffer if way.buffer.endswith("p") else ""
    try:
        model = LawModel(way.aqm, way.set, rate, packet, way.buffer_pkts)
        per_s = model.capacity_pkts_per_s
        point = OperatingPoint(flows, rtt_s + target_pkts / per_s, per_s)
        designed = model.design(point, target_pkts, [])
    except ScenarioError:
        return ""
    own = {name for name, _ in way.set} - {"target", "interval"}
    if designed is None or own & {name for name, _ in designed["params"]}:
        return ""
    return (
        f"mean queue {queue_pkts:.0f} packets, set-point {target_pkts:g}: the default gains are "
        f"for another link; for this one: `forebay design {way.aqm} --rate {rate} "
        f"--packet {packet} --rtt {1e3 * rtt_s:g}ms --flows {flows} --target {target_pkts:g}p"
        f"{buffer and ' --buffer ' + buffer}`"
    )
