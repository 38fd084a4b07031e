"""The table of docs/identify.md: what `forebay identify` finds where the truth is known.

.venv/bin/python bench/identified.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import fitted

import forebay
from forebay.identification import estimate, queue_records
from forebay.pages import result_files
from forebay.scenarios.builder import Law
from forebay.theory.design.fitted_gains import fit

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


def record(link: tuple[str, int, float, int, int, str], out: Path, duration_s: float = 120) -> None:
    """A run of long-lived Reno flows under a fitted law, as `forebay run` writes it."""
    *network, law = link
    there = fitted.place(tuple(network))
    params = fit(law, there).params
    # Its access links are twice as fast as others, so that they are no part of the link.
    text = fitted.scenario(
        Law(law, params), tuple(network), duration_s, duration_s / 3, 2 * there.rate_bps
    )
    result_files.write_tables(forebay.run(text), out)


def main() -> None:
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
