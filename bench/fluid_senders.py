"""Compare the fluid's senders with packets: the tables of docs/evidence/fluid.md.

    python bench/fluid_senders.py [--sender linux-cubic] [--link NAME …] [--seeds N] [--json FILE]
    python bench/fluid_senders.py --drawn 12 --draw 1      # links at random
    python bench/fluid_senders.py --link F --times 10      # ten times the flows and the rate

`--again FILE` takes the packet runs of a link from a file of `--json` and runs only the fluids.

Each link has seven parts of flows, of which one leaves; means are taken before that, and the
response after it. Intervals are 95 % bootstrap intervals over the seeds of the packet runs. The
program takes about ten minutes on two cores; a single link takes less than a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from fluid_links import CLASSIC, SCALABLE, Link, drawn

from forebay import fluid
from forebay.fluid.packets import (
    NAMES,
    SWINGS,
    FluidAndPackets,
    compare,
    fluid_line,
    response,
    spread,
)

#: Number of packets to simulate for a link, and limits of the number of runs.
PACKETS, LEAST, MOST = 8e7, 6, 120

#: Tolerated relative differences: of mean queue and packets in flight, and of period and damping.
NEAR, SIMILAR = 0.05, 0.2

#: Damping ratio from which the response is a single exponential.
ANY = 10

Row = dict[str, Any]


def compared(link: Link, sender: str, seeds: int | None) -> FluidAndPackets:
    """Return the comparison of packets and fluids on a link."""
    if seeds is None:
        seeds = int(np.clip(PACKETS / (link.pkts_per_s * link.end_s), LEAST, MOST))
    (comparison,) = compare(link.text(sender), seeds=seeds, step_s=link.step_s)
    return comparison


def again(link: Link, sender: str) -> FluidAndPackets:
    """Return the fluids on a link, without packets."""
    text = tomllib.loads(link.text(sender))
    lines = [
        fluid_line(name, fluid.scenario(text, sawtooth=name == "sawtooth")[0]) for name in NAMES[1:]
    ]
    measure_s = (link.settled_s, link.step_s)
    return FluidAndPackets("", "", lines, measure_s, link.end_s, link.step_s, "", None)


def rows(comparison: FluidAndPackets) -> list[Row]:
    """Return rows for packets, published fluid and sawtooth fluid.

    The row of packets has bootstrap intervals.
    """
    result_rows: list[Row] = []
    start_s, end_s = comparison.measure_s
    step_s = comparison.step_s or end_s
    for row, line in zip(comparison.rows(), comparison.lines, strict=True):
        part = (line.time_s > start_s) & (line.time_s <= end_s)
        after = response(line.time_s, line.queue_pkts, step_s, comparison.duration_s)
        row_of: Row = {**row, "turn_s": after.turn_s}
        row_of["queue_deviation_pkts"] = float(line.queue_pkts[part].std())
        if line.runs_pkts is not None:
            chance = spread(line.time_s, line.runs_pkts, step_s, comparison.duration_s, draws=100)
            row_of |= {"seeds": len(line.runs_pkts), "spread": vars(chance)}
        result_rows.append(row_of)
    return result_rows


def verdict(packets: Row, fluid: Row) -> dict[str, str]:
    """Return for each quantity "yes", "chance" or "no".

    "yes" means within the required share, and "chance" within the interval of the packets. There is
    no period to compare if neither oscillates.
    """
    words = {}
    for key in ("queue_mean_pkts", "in_flight_pkts"):
        words[key] = "yes" if abs(fluid[key] / packets[key] - 1) <= NEAR else "no"
    chance = packets["spread"]
    for key, interval in [("turn_s", "period_s"), ("damping", "damping"), ("half_s", "half_s")]:
        fluid_value, packets_value = fluid[key], packets[key]
        low, high = chance[interval]
        still = key == "turn_s" and min(fluid["damping"], packets["damping"]) >= SWINGS
        if (
            still
            or fluid_value == packets_value
            or (math.isfinite(fluid_value) and abs(fluid_value / packets_value - 1) <= SIMILAR)
        ):
            words[key] = "yes"
        else:
            words[key] = "chance" if low <= fluid_value <= high else "no"
    return words


def _show(name: str, link: Link, result_rows: list[Row]) -> None:
    """Print the results of a link."""
    print(f"{name} {link.mbit_per_s:g} Mbit/s {link.rtt_ms:g} ms {link.flows} flows")
    print("   " + ", ".join(link.law.splitlines()))
    for row in result_rows:
        cells = [
            f"{row['by']:10}",
            f"queue {row['queue_mean_pkts']:8.1f}",
            f"p {row['probability']:.6f}",
            f"in flight {row['in_flight_pkts']:6.2f}",
            f"half {row['half_s']:5.2f}",
            f"period {row['turn_s']:5.2f}",
            f"damping {row['damping']:.2f}",
            f"sd {row['queue_deviation_pkts']:.1f}",
        ]
        print("  ", "  ".join(cells))
    packets = result_rows[0]
    texts = [f"{key} {low:.3g} to {high:.3g}" for key, (low, high) in packets["spread"].items()]
    print(f"   {packets['seeds']} seeds: {', '.join(texts)}")
    print("   sawtooth:", verdict(packets, result_rows[2]), flush=True)


def _table(everything: dict[str, dict[str, Any]]) -> None:
    """Print the rows of the page."""
    for name, entry in everything.items():
        link, (packets, published, sawtooth) = entry["link"], entry["rows"]
        result_rows = packets, published, sawtooth
        kind = link["law"].splitlines()[0].split('"')[1]
        low, high = packets["spread"]["period_s"]
        periods = [_period(row) for row in result_rows]
        if packets["period_s"] is not None:
            periods[0] += f" ({low:.2g}–{'∞' if math.isinf(high) else f'{high:.2g}'})"
        low, high = packets["spread"]["damping"]
        damping = [f"{row['damping']:.2f}" for row in result_rows]
        damping[0] += f" ({low:.2f}–{'∞' if high > ANY else f'{high:.2f}'})"
        judged = verdict(packets, sawtooth)
        cells = [
            f"{name}: {link['mbit_per_s']:g} Mbit/s, {link['rtt_ms']:g} ms, {link['flows']}",
            kind,
            " \\| ".join(f"{row['in_flight_pkts']:.1f}" for row in result_rows),
            " \\| ".join(f"{row['queue_mean_pkts']:.4g}" for row in result_rows),
            " \\| ".join(f"{100 * row['probability']:.3g}" for row in result_rows),
            " \\| ".join(f"{row['half_s']:.2f}" for row in result_rows),
            " \\| ".join(periods),
            " \\| ".join(damping),
            ", ".join(judged[key] for key in ("turn_s", "damping")),
        ]
        print("| " + " | ".join(cells) + " |")


def _period(row: Row) -> str:
    """Return the period of a row."""
    return "–" if row["period_s"] is None else f"{row['period_s']:.2g}"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sender", default="linux-cubic")
    parser.add_argument("--link", nargs="*", help="some of the links, by name")
    parser.add_argument("--drawn", type=int, metavar="N", help="N links at random")
    parser.add_argument("--draw", type=int, default=1, help="the seed of the draw")
    parser.add_argument("--times", type=int, default=1, help="as many times the flows and the rate")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--again", type=Path, metavar="FILE", help="take the packets from it")
    parser.add_argument(
        "--table", action="store_true", help="print the rows of docs/evidence/fluid.md, too"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.drawn:
        links = drawn(options.drawn, options.draw, options.sender)
    elif options.sender in ("dctcp", "prague"):
        links = SCALABLE
    else:
        links = CLASSIC
    stored = json.loads(options.again.read_text()) if options.again else {}
    everything = {}
    for name in options.link or links:
        link, _ = links[name].designed(options.sender)
        if options.times > 1:
            link = link.times(options.times)
        if stored.get(name, {}).get("link") == vars(link):
            result_rows = [stored[name]["rows"][0], *rows(again(link, options.sender))]
        else:
            result_rows = rows(compared(link, options.sender, options.seeds))
        everything[name] = {"link": vars(link), "rows": result_rows}
        _show(name, link, result_rows)
        if options.json:
            options.json.write_text(json.dumps(everything))
    if options.table:
        _table(everything)


if __name__ == "__main__":
    main()
