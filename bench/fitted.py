"""Print the numbers of docs/evidence/gains.md: every law with a design rule, on different links.

.venv/bin/python bench/fitted.py [LAW…]
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import forebay
from forebay import _native
from forebay._base import quantities
from forebay.control.fitted_gains import Fitted, OperatingRange, fit
from forebay.scenario.builder import Dumbbell, Law

#: Rate, packet in bytes, RTT in s, buffer in packets, flows.
Link = tuple[str, int, float, int, int]
#: The links, from a modem to a data centre.
LINKS = [
    ("64kbit/s", 576, 0.6, 100, 1),
    ("256kbit/s", 1500, 0.05, 64, 2),
    ("1Mbit/s", 1500, 0.1, 100, 3),
    ("10Mbit/s", 1500, 0.02, 100, 4),
    ("10Mbit/s", 1000, 0.6, 2000, 20),
    ("15Mbit/s", 500, 0.2, 800, 60),
    ("50Mbit/s", 1500, 0.005, 250, 8),
    ("100Mbit/s", 1500, 0.05, 1000, 100),
    ("100Mbit/s", 1500, 0.3, 5000, 40),
    ("1Gbit/s", 1500, 0.001, 1000, 20),
    ("1Gbit/s", 1500, 0.1, 20000, 2000),
    ("10Gbit/s", 1500, 0.02, 50000, 500),
]


@dataclass(frozen=True)
class Row:
    """The result of a law on a link.

    Attributes
    ----------
    fitted : Fitted
        The design.
    place : OperatingRange
        The link and its load.
    queue_pkts : float
        Mean queue over the last half of the run, in packets.
    deviation_pkts : float
        Its standard deviation.
    utilisation : float
        Share of the link's rate that is used.
    """

    fitted: Fitted
    place: OperatingRange
    queue_pkts: float
    deviation_pkts: float
    utilisation: float


def place(link: Link) -> OperatingRange:
    """Return a link as an operating range."""
    rate, packet, rtt_s, buffer_pkts, flows = link
    rate_bps = round(_native.quantity("rate", rate, "rate"))
    return OperatingRange(rate_bps, packet, (rtt_s, rtt_s), float(buffer_pkts), (float(flows),) * 2)


def scenario(
    law: Law, link: Link, duration_s: float, measure_from_s: float, fastest_bps: float
) -> str:
    """Return a scenario with long-lived Reno flows on a link under a law with its gains."""
    rate, packet, rtt_s, buffer_pkts, flows = link
    return Dumbbell(
        title=f"{law.kind}, fitted",
        duration_s=duration_s,
        measure_from_s=measure_from_s,
        rate=rate,
        fastest_bps=fastest_bps,
        delay_s=rtt_s / 4,
        buffer_pkts=buffer_pkts,
        flows=flows,
        packet=quantities.size(packet),
        rtt=quantities.time(rtt_s),
        laws=[law],
    ).text()


def row(law: str, link: Link) -> Row:
    """Run a law on a link."""
    operating_range = place(link)
    fitted = fit(law, operating_range)
    rtt_s = link[2]
    settling_s = fitted.settling_s or 0.0
    # A link with many packets per second settles soon and is expensive to simulate.
    longest_s = min(400.0, 4e6 / operating_range.capacity_pkts_per_s)
    span_s = min(max(60 * rtt_s, 4 * settling_s, 5.0), max(longest_s, 5.0))
    text = scenario(Law(law, fitted.params), link, 2 * span_s, span_s, operating_range.rate_bps)
    metrics = forebay.run(text).runs[0].metrics
    return Row(
        fitted,
        operating_range,
        metrics["queue_mean_pkts"],
        metrics["queue_std_pkts"],
        metrics["utilisation"],
    )


def main() -> None:
    """Print the tables."""
    laws = sys.argv[1:] or [entry["name"] for entry in _native.laws()]
    laws = [law for law in laws if fit(law, place(LINKS[0])).design is not None]
    for law in laws:
        print(f"\n| {law} | flows | set-point | queue | used | S |\n|---|---|---|---|---|---|")
        for link in LINKS:
            result = row(law, link)
            peak = result.fitted.sensitivity
            print(
                f"| {link[0]}, {1e3 * link[2]:g} ms | {link[4]} | {result.fitted.target_pkts:.4g} "
                f"| {result.queue_pkts:.4g} ± {result.deviation_pkts:.3g} "
                f"| {100 * result.utilisation:.1f} % | {'' if peak is None else f'{peak:.2f}'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
