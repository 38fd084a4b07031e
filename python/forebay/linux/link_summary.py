"""What came of a run on a link, in lines; and where to get gains that would have suited it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.words import in_figures, short_time
from forebay.experiment import steady_state
from forebay.experiment.steady_state import design_command
from forebay.linux import congestion

if TYPE_CHECKING:
    from forebay.linux.link_outcome import Direction, Outcome


def lines(outcome: Outcome, out: Path | None) -> Iterator[str]:
    """What came of it: each direction's queue, what to mind, and how late packets left.

    out: the folder for its report, if one was asked for.
    """
    if not outcome.measured:
        yield (
            f"too short to measure: no sample within --measure {outcome.settings.measure} of a run "
            f"of {short_time(outcome.observed.duration_s)}"
            + ("; nothing is written" if out else "")
        )
        return
    if outcome.changed:
        yield f"changed by hand: {outcome.changed}; what follows is over all of it"
    start, end = outcome.observed.measure_s
    for direction in outcome.directions:
        name, observed, metrics = direction.name, direction.observed, direction.run.metrics
        if not metrics["forwarded_packets"]:
            continue
        yield f"{name}: {_in_words(metrics, end - start)}"
        ignored = congestion.ignored(
            observed.congestion_controls, observed.tcp_flows, outcome.congestion_control
        )
        if ignored:
            yield f"{name}: {ignored}"
        elif missed := _missed(outcome, direction):
            yield f"{name}: {missed}"
    if outcome.lateness.p99_s == outcome.lateness.p99_s:
        late = short_time(outcome.lateness.p99_s)
        yield f"99 % of packets left within {late} of their time"


def _in_words(metrics: dict[str, float], span_s: float) -> str:
    return (
        f"{metrics['goodput_bps'] / 1e6:.2f} Mbit/s goodput over {in_figures(span_s)} s, "
        f"{100 * metrics['utilisation']:.1f} % used, "
        f"queue {metrics['queue_mean_pkts']:.1f} ± {metrics['queue_std_pkts']:.1f} packets, "
        f"delay {1e3 * metrics['delay_mean_s']:.1f} ms, "
        f"{100 * metrics['drop_rate']:.2f} % dropped, {100 * metrics['mark_rate']:.2f} % marked"
    )


def _missed(outcome: Outcome, direction: Direction) -> str:
    """How to get gains for the link, where it was full of TCP and a law that has the gains of
    another missed its set-point; empty otherwise."""
    settings, flows = direction.settings, direction.observed.tcp_flows
    metrics = direction.run.metrics
    target_pkts = settings.law.target_pkts
    delays_s = [it.settings.link.delay_s for it in outcome.directions]
    # Gains are for one RTT.
    spread = any(least < most for least, most in delays_s)
    rtt_s = 0.0 if spread else sum(most for _, most in delays_s)
    if (
        outcome.changed
        or settings.law.per_flow
        or not (target_pkts and flows and rtt_s)
        or not (judged := steady_state.measured_set_point(settings.law, [metrics]))
        or not judged.missed
    ):
        return ""
    designed, chosen = design_command(
        settings.aqm,
        settings.params,
        rate_bps=settings.link.rate_bps,
        packet_bytes=outcome.settings.mtu,
        rtt_s=rtt_s,
        flows=flows,
        target_pkts=target_pkts,
        room_pkts=settings.buffer_mtu_pkts,
        buffer_pkts=settings.link.buffer_pkts,
    )
    own = {name for name, _ in settings.params} - {"target", "interval"}
    if own & chosen or not designed:
        return ""
    return (
        f"mean {judged.what} of {judged.measured_text} for a target of {judged.target_text}: the "
        f"default gains are for another link; for this one: `{designed}`"
    )
