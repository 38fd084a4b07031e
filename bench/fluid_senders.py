"""Compares the senders of the fluid model with packets: the tables of docs/evidence/fluid.md.

    python bench/fluid_senders.py [--sender linux-cubic] [--link NAME …] [--seeds N] [--json FILE]
    python bench/fluid_senders.py --drawn 12 --draw 1      # links at random
    python bench/fluid_senders.py --link F --times 10      # ten times the flows and the rate

`--again FILE` takes the packets of a link from a file of `--json` and runs the fluids alone.

Each link has seven parts of flows, of which one leaves; before that the means are taken, after it
the response. Intervals are of 95 %, from the packets' seeds drawn again. Takes about ten minutes on
two cores; a link by itself under a minute.
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
from forebay.fluid.packets import NAMES, FluidAndPackets, compare, fluid_line
from forebay.fluid.response import SWINGS, response, spread

#: Packets that are simulated for a link, and runs at least and at most.
PACKETS, LEAST, MOST = 8e7, 6, 120

#: How far the fluid may be from the packets: mean queue, packets in flight; period, damping.
NEAR, SIMILAR = 0.05, 0.2

#: A damping ratio from which one exponential is left.
ANY = 10

Row = dict[str, Any]


def compared(link: Link, sender: str, seeds: int | None) -> FluidAndPackets:
    if seeds is None:
        seeds = int(np.clip(PACKETS / (link.pkts_per_s * link.end_s), LEAST, MOST))
    (found,) = compare(link.text(sender), seeds=seeds, step_s=link.step_s)
    return found


def again(link: Link, sender: str) -> FluidAndPackets:
    """The fluids alone."""
    text = tomllib.loads(link.text(sender))
    lines = [
        fluid_line(name, fluid.scenario(text, sawtooth=name == "sawtooth")[0]) for name in NAMES[1:]
    ]
    measure_s = (link.settled_s, link.step_s)
    return FluidAndPackets("", "", lines, measure_s, link.end_s, link.step_s, "", None)


def rows(found: FluidAndPackets) -> list[Row]:
    """Packets, published, sawtooth; of packets with the intervals of the response."""
    made: list[Row] = []
    start_s, end_s = found.measure_s
    step_s = found.step_s or end_s
    for row, line in zip(found.rows(), found.lines, strict=True):
        part = (line.time_s > start_s) & (line.time_s <= end_s)
        after = response(line.time_s, line.queue_pkts, step_s, found.duration_s)
        row_of: Row = {**row, "turn_s": after.turn_s}
        row_of["queue_deviation_pkts"] = float(line.queue_pkts[part].std())
        if line.runs_pkts is not None:
            chance = spread(line.time_s, line.runs_pkts, step_s, found.duration_s, draws=100)
            row_of |= {"seeds": len(line.runs_pkts), "spread": vars(chance)}
        made.append(row_of)
    return made


def verdict(packets: Row, fluid: Row) -> dict[str, str]:
    """Each quantity: "yes" within the share that is asked, "chance" within the interval of the
    packets, or "no". There is no period to compare where neither swings."""
    words = {}
    for key in ("queue_mean_pkts", "in_flight_pkts"):
        words[key] = "yes" if abs(fluid[key] / packets[key] - 1) <= NEAR else "no"
    chance = packets["spread"]
    for key, interval in [("turn_s", "period_s"), ("damping", "damping"), ("half_s", "half_s")]:
        one, other = fluid[key], packets[key]
        low, high = chance[interval]
        still = key == "turn_s" and min(fluid["damping"], packets["damping"]) >= SWINGS
        if still or one == other or (math.isfinite(one) and abs(one / other - 1) <= SIMILAR):
            words[key] = "yes"
        else:
            words[key] = "chance" if low <= one <= high else "no"
    return words


def _show(name: str, link: Link, made: list[Row]) -> None:
    print(f"{name} {link.mbit_per_s:g} Mbit/s {link.rtt_ms:g} ms {link.flows} flows")
    print("   " + ", ".join(link.law.splitlines()))
    for row in made:
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
    packets = made[0]
    texts = [f"{key} {low:.3g} to {high:.3g}" for key, (low, high) in packets["spread"].items()]
    print(f"   {packets['seeds']} seeds: {', '.join(texts)}")
    print("   sawtooth:", verdict(packets, made[2]), flush=True)


def _table(everything: dict[str, dict[str, Any]]) -> None:
    """The rows of the page."""
    for name, found in everything.items():
        link, (packets, published, sawtooth) = found["link"], found["rows"]
        each = packets, published, sawtooth
        kind = link["law"].splitlines()[0].split('"')[1]
        low, high = packets["spread"]["period_s"]
        periods = [_period(row) for row in each]
        if packets["period_s"] is not None:
            periods[0] += f" ({low:.2g}–{'∞' if math.isinf(high) else f'{high:.2g}'})"
        low, high = packets["spread"]["damping"]
        damping = [f"{row['damping']:.2f}" for row in each]
        damping[0] += f" ({low:.2f}–{'∞' if high > ANY else f'{high:.2f}'})"
        judged = verdict(packets, sawtooth)
        cells = [
            f"{name}: {link['mbit_per_s']:g} Mbit/s, {link['rtt_ms']:g} ms, {link['flows']}",
            kind,
            " \\| ".join(f"{row['in_flight_pkts']:.1f}" for row in each),
            " \\| ".join(f"{row['queue_mean_pkts']:.4g}" for row in each),
            " \\| ".join(f"{100 * row['probability']:.3g}" for row in each),
            " \\| ".join(f"{row['half_s']:.2f}" for row in each),
            " \\| ".join(periods),
            " \\| ".join(damping),
            ", ".join(judged[key] for key in ("turn_s", "damping")),
        ]
        print("| " + " | ".join(cells) + " |")


def _period(row: Row) -> str:
    return "–" if row["period_s"] is None else f"{row['period_s']:.2g}"


def main() -> None:
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
    given = parser.parse_args()
    if given.drawn:
        links = drawn(given.drawn, given.draw, given.sender)
    elif given.sender in ("dctcp", "prague"):
        links = SCALABLE
    else:
        links = CLASSIC
    known = json.loads(given.again.read_text()) if given.again else {}
    everything = {}
    for name in given.link or links:
        link, _ = links[name].designed(given.sender)
        if given.times > 1:
            link = link.times(given.times)
        if known.get(name, {}).get("link") == vars(link):
            made = [known[name]["rows"][0], *rows(again(link, given.sender))]
        else:
            made = rows(compared(link, given.sender, given.seeds))
        everything[name] = {"link": vars(link), "rows": made}
        _show(name, link, made)
        if given.json:
            given.json.write_text(json.dumps(everything))
    if given.table:
        _table(everything)


if __name__ == "__main__":
    main()
