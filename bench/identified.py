"""Print the table of docs/evidence/identify.md: `forebay identify` on links that are known.

    .venv/bin/python bench/identified.py [--drawn N]

With `--drawn`, N random links, laws, windows and senders are used, and the program counts the
intervals of N that hold the truth.
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


#: Senders of random links, with the names of their window laws in `--tcp`.
SENDERS = {
    "reno": "reno",
    "newreno": "reno",
    "sack": "reno",
    "linux-reno": "linux-reno",
    "linux-cubic": "cubic",
}
Link = tuple[str, int, float, int, int, str]


def record(link: Link, out: Path, duration_s: float = 120, **overrides: str) -> None:
    """Run long-lived flows under a designed law, and write the tables as `forebay run` does."""
    *network, law = link
    operating_range = fitted.place(tuple(network))
    params = fit(law, operating_range).params
    # Access links twice as fast as usual do not limit the flows.
    text = fitted.scenario(
        Law(law, params), tuple(network), duration_s, duration_s / 3, 2 * operating_range.rate_bps
    )
    result_files.write_tables(forebay.run(text, overrides=overrides), out)


def drawn(draw: np.random.Generator) -> tuple[Link, str]:
    """Return a random link with 5 to 100 Mbit/s, 20 to 300 ms and windows of 5 to 35 packets."""

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
    """Count the intervals of N that hold the truth on random links, with `--rtt` and without."""
    draw = np.random.default_rng(21)
    identified, correct = {"--rtt": 0, "": 0}, {"--rtt": 0, "": 0}
    for _ in range(number):
        link, tcp = drawn(draw)
        with tempfile.TemporaryDirectory() as folder:
            record(link, Path(folder) / "run", 75, **{"traffic.0.tcp": tcp, "sample": "5ms"})
            (records,) = queue_records.read_records(Path(folder) / "run")
        for key, rtt_s in {"--rtt": link[2], "": None}.items():
            flows_estimate = estimate.identify(
                records.window(None, None), rtt_s, SENDERS[tcp]
            ).flows
            identified[key] += flows_estimate.known
            correct[key] += flows_estimate.low <= link[4] <= flows_estimate.high
        print(f"{correct} of {identified}", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drawn", type=int, metavar="N")
    number = parser.parse_args().drawn
    if number is not None:
        count(number)
        return

    def cell(interval: estimate.IntervalEstimate, scale: float) -> str:
        if not interval.known:
            return "not identified"
        ends = f"{scale * interval.low:.4g} to {scale * interval.high:.4g}"
        return f"{scale * interval.value:.4g} ({ends})"

    print("| link, law | R | found | N | found | found with `--rtt` |\n|---|---|---|---|---|---|")
    for link in LINKS:
        with tempfile.TemporaryDirectory() as folder:
            record(link, Path(folder) / "run")
            (records,) = queue_records.read_records(Path(folder) / "run")
        part = records.window(None, None)
        estimated, estimated_with_rtt = estimate.identify(part), estimate.identify(part, link[2])
        print(
            f"| {link[0]}, {link[5]} | {1e3 * estimated_with_rtt.rtt_s.value:.4g} ms "
            f"| {cell(estimated.rtt_s, 1e3)} "
            f"| {link[4]} | {cell(estimated.flows, 1)} | {cell(estimated_with_rtt.flows, 1)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
