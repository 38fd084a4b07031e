"""Whether a law's gains suited the link, and where to get others."""

from __future__ import annotations

from forebay.links.outcome import Outcome
from forebay.runs.steady_state import FULL, MISSED
from forebay.scenarios.design_command import command


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
        or one.law.per_flow
        or not (target_pkts and flows and rtt_s)
        or found.runs[index].metrics["utilisation"] < FULL
        or abs(queue_pkts / target_pkts - 1) < MISSED
    ):
        return ""
    designed, chosen = command(
        one.aqm,
        one.params,
        rate_bps=link.rate_bps,
        packet_bytes=found.settings.mtu,
        rtt_s=rtt_s,
        flows=flows,
        target_pkts=target_pkts,
        room_pkts=one.buffer_mtu_pkts,
        buffer_pkts=link.buffer_pkts,
    )
    own = {name for name, _ in one.params} - {"target", "interval"}
    if own & chosen or not designed:
        return ""
    return (
        f"mean queue {queue_pkts:.0f} packets, set-point {target_pkts:g}: the default gains are "
        f"for another link; for this one: `{designed}`"
    )
