"""What came of a run on a link, in lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.base.words import short_time
from forebay.links import congestion, gains_check

if TYPE_CHECKING:
    from forebay.links.outcome import Outcome


def lines(found: Outcome, out: Path | None) -> Iterator[str]:
    """What came of it: each direction's queue, what to mind, and how late packets left.

    out: the folder for its report, if one was asked for.
    """
    if not found.measured:
        yield (
            f"too short to measure: no sample within --measure {found.settings.measure} of a run "
            f"of {short_time(found.duration_s)}" + ("; nothing is written" if out else "")
        )
        return
    if found.changed:
        yield f"changed by hand: {found.changed}; what follows is over all of it"
    start, end = found.measure_s
    for index, name in enumerate(["up", "down"]):
        metrics = found.runs[index].metrics
        if not metrics["forwarded_packets"]:
            continue
        yield f"{name}: {_in_words(metrics, end - start)}"
        ignored = congestion.ignored(
            found.congestion_controls[index], found.tcp_flows[index], found.congestion_control
        )
        if ignored:
            yield f"{name}: {ignored}"
        elif missed := gains_check.missed(found, index):
            yield f"{name}: {missed}"
    if found.lateness.p99_s == found.lateness.p99_s:
        late = short_time(found.lateness.p99_s)
        yield f"99 % of packets left within {late} of their time"


def _in_words(metrics: dict[str, float], span_s: float) -> str:
    return (
        f"{metrics['goodput_bps'] / 1e6:.2f} Mbit/s goodput over {span_s:.3g} s, "
        f"{100 * metrics['utilisation']:.1f} % used, "
        f"queue {metrics['queue_mean_pkts']:.1f} ± {metrics['queue_std_pkts']:.1f} packets, "
        f"delay {1e3 * metrics['delay_mean_s']:.1f} ms, "
        f"{100 * metrics['drop_rate']:.2f} % dropped, {100 * metrics['mark_rate']:.2f} % marked"
    )
