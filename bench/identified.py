"""The table of docs/evidence/identify.md: what `forebay identify` finds where the truth is known.

.venv/bin/python bench/identified.py [--drawn N]

With `--drawn` N links, laws, windows and senders are drawn, and it counts the intervals of N that
hold the truth.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import fitted
import numpy as np

import forebay
from forebay._base import quantities
from forebay.control import queue_estimate as estimate
from forebay.control import queue_records
from forebay.control.fitted_gains import fit
from forebay.report import result_files
from forebay.scenario.builder import Law

#: Rate, packet, RTT in s, buffer in packets, flows, law.
LINKS = [
    ("1Mbit/s", 1500, 0.1, 100, 3, "pi"),
    ("10Mbit/s", 1500, 0.02, 100, 8, "pi"),
    ("10Mbit/s", 1000, 0.3, 1000, 20, "pi"),
    ("15Mbit/s", 500, 0.2, 800, 60, "pi"),
    ("20Mbit/s", 1500, 0.05, 400, 30, "red"),
    ("50Mbit/s", 1500, 0.04, 800, 40, "rem"),
    ("100Mbit/s", 1500, 0.1, 2000, 50, "pi"),
    ("100Mbit/s", 1500, 0.03, 1000, 100, "pi2"),
    ("200Mbit/s", 1500, 0.06, 3000, 200, "pie"),
    ("45Mbit/s", 500, 0.15, 3000, 120, "pi"),
]


#: Senders of drawn links, and what `--tcp` calls their windows.
SENDERS = {
    "reno": "reno",
    "newreno": "reno",
    "sack": "reno",
    "linux-reno": "linux-reno",
    "linux-cubic": "cubic",
}
Link = tuple[str, int, float, int, int, str]


def record(link: Link, out: Path, duration_s: float = 120, **overrides: str) -> None:
    """A run of long-lived flows under a fitted law, as `forebay run` writes it."""
    *network, law = link
    there = fitted.place(tuple(network))
    params = fit(law, there).params
    # Its access links are twice as fast as others, so that they are no part of the link.
    text = fitted.scenario(
        Law(law, params), tuple(network), duration_s, duration_s / 3, 2 * there.rate_bps
    )
    result_files.write_tables(forebay.run(text, overrides=overrides), out)


def drawn(draw: np.random.Generator) -> tuple[Link, str]:
    """Draw a link of 5 to 100 Mbit/s and 20 to 300 ms, with windows of 5 to 35 packets."""

    def between(low: float, high: float) -> float:
        return float(f"{np.exp(draw.uniform(np.log(low), np.log(high))):.3g}")

    rate_bps, rtt_s, packet = between(5e6, 1e8), between(0.02, 0.3), draw.choice([500, 1000, 1500])
    product_pkts = rate_bps * rtt_s / 8 / packet
    flows = min(400, max(2, round(1.25 * product_pkts / between(5, 35))))
    law = str(draw.choice(["pi", "rem", "pi2", "pie", "red"]))
    buffer_pkts = max(50, round(3 * product_pkts))
    tcp = str(draw.choice(list(SENDERS)))
    return (quantities.rate(rate_bps), int(packet), rtt_s, buffer_pkts, flows, law), tcp


def count(number: int) -> None:
    """Print how many intervals of N contain the true number, with `--rtt` and without."""
    draw = np.random.default_rng(21)
    given, held = {"--rtt": 0, "": 0}, {"--rtt": 0, "": 0}
    for _ in range(number):
        link, tcp = drawn(draw)
        with tempfile.TemporaryDirectory() as folder:
            record(link, Path(folder) / "run", 75, **{"traffic.0.tcp": tcp, "sample": "5ms"})
            (one,) = queue_records.read_records(Path(folder) / "run")
        for key, rtt_s in {"--rtt": link[2], "": None}.items():
            found = estimate.identify(one.window(None, None), rtt_s, SENDERS[tcp]).flows
            given[key] += found.known
            held[key] += found.low <= link[4] <= found.high
        print(f"{held} of {given}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawn", type=int, metavar="N")
    number = parser.parse_args().drawn
    if number is not None:
        count(number)
        return

    def cell(one: estimate.IntervalEstimate, scale: float) -> str:
        if not one.known:
            return "not identified"
        return f"{scale * one.value:.4g} ({scale * one.low:.4g} to {scale * one.high:.4g})"

    print("| link, law | R | found | N | found | found with `--rtt` |\n|---|---|---|---|---|---|")
    for link in LINKS:
        with tempfile.TemporaryDirectory() as folder:
            record(link, Path(folder) / "run")
            (one,) = queue_records.read_records(Path(folder) / "run")
        part = one.window(None, None)
        found, told = estimate.identify(part), estimate.identify(part, link[2])
        print(
            f"| {link[0]}, {link[5]} | {1e3 * told.rtt_s.value:.4g} ms | {cell(found.rtt_s, 1e3)} "
            f"| {link[4]} | {cell(found.flows, 1)} | {cell(told.flows, 1)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
