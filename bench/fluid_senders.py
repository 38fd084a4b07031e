"""The fluid's senders beside packets: the tables of docs/fluid.md for CUBIC, DCTCP and Prague.

    python bench/fluid_senders.py [--sender linux-cubic] [--link NAME …] [--seeds N] [--json FILE]

Each link has seven parts of flows, of which one leaves; before that the means are taken, after it
the response. Takes about ten minutes on two cores; a link by itself under a minute.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forebay.fluid.packets import compare

PACKET_BITS = 8 * 1500

#: Packets that are simulated for a link, and runs at least and at most.
PACKETS, LEAST, MOST = 8e7, 6, 120

#: How far the fluid may be from the packets: mean queue, mean window; period, damping.
NEAR, SIMILAR = 0.05, 0.2


@dataclass(frozen=True)
class Link:
    """One link and its law. Times in s; `settled_s` is when means begin."""

    mbit_per_s: float
    rtt_ms: float
    flows: int
    law: str
    settled_s: float = 40
    step_s: float = 80
    end_s: float = 130

    @property
    def pkts_per_s(self) -> float:
        return self.mbit_per_s * 1e6 / PACKET_BITS

    def text(self, sender: str) -> str:
        """The scenario."""
        buffer_pkts = int(max(4 * self.pkts_per_s * self.rtt_ms / 1e3, 400))
        leaving = max(round(self.flows / 7), 1)
        ecn = '"l4s"' if sender == "prague" else "true"
        traffic = "\n".join(
            f"""
[[traffic]]
label  = "{label}"
kind   = "ftp"
flows  = {flows}
tcp    = "{sender}"
ecn    = {ecn}
packet = "1500B"
rtt    = "{self.rtt_ms}ms"
access = "10Gbit/s"
start  = {{ uniform = ["0s", "1s"] }}
{stop}"""
            for label, flows, stop in [
                ("stay", self.flows - leaving, ""),
                ("leave", leaving, f'stop = "{self.step_s}s"'),
            ]
        )
        return f"""
duration = "{self.end_s}s"
measure  = ["{self.settled_s}s", "{self.step_s}s"]
sample   = "50ms"

[bottleneck]
rate   = "{self.mbit_per_s}Mbit/s"
delay  = "{self.rtt_ms / 4}ms"
buffer = "{buffer_pkts}p"
ecn    = true
{traffic}
[[law]]
{self.law}
"""


PI = 'kind = "pi"\ntarget = "{}p"\ngains = "auto"'
PI_PD = 'kind = "pi-pd"\ntarget = "{}p"\ngains = "auto"'


def red(least: int, most: int, max_p: float, w_q: float) -> str:
    return f'kind = "red"\nmin_th = "{least}p"\nmax_th = "{most}p"\nmax_p = {max_p}\nw_q = {w_q}'


#: For senders that answer the share of marks: PI, a step, a ramp on the queue itself, and a law
#: that couples.
SCALABLE = {
    "a": Link(100, 40, 30, PI.format(100), 20, 40, 60),
    "b": Link(100, 20, 10, red(40, 41, 1.0, 1.0), 20, 40, 60),
    "c": Link(100, 40, 30, red(20, 420, 0.6, 1.0), 20, 40, 60),
    "d": Link(100, 40, 20, 'kind = "pi2"', 20, 40, 60),
}

#: For CUBIC and Reno; gains of PI are those of `forebay design` for the link.
CLASSIC = {
    "A": Link(5, 40, 5, PI.format(30)),
    "B": Link(10, 20, 5, 'kind = "pie"'),
    "C": Link(30, 200, 30, red(50, 850, 0.015, 1e-3)),
    "D": Link(50, 200, 20, PI.format(200), 60, 110, 180),
    "E": Link(100, 100, 70, PI.format(300)),
    "F": Link(100, 50, 20, PI_PD.format(200)),
    "G": Link(200, 100, 100, 'kind = "pie"'),
    "H": Link(200, 200, 60, red(100, 3100, 0.0021, 1e-3), 60, 110, 180),
    "I": Link(300, 100, 100, PI.format(500)),
    "J": Link(500, 150, 120, PI.format(1000), 60, 110, 180),
    "K": Link(1000, 20, 50, 'kind = "pie"'),
    "L": Link(1000, 50, 500, red(200, 4000, 0.03, 1e-5)),
    "M": Link(1000, 200, 200, PI.format(2000), 60, 110, 180),
}


def rows(link: Link, sender: str, seeds: int | None) -> list[dict[str, Any]]:
    """Packets, published, sawtooth."""
    if seeds is None:
        seeds = int(np.clip(PACKETS / (link.pkts_per_s * link.end_s), LEAST, MOST))
    (found,) = compare(link.text(sender), seeds=seeds, step_s=link.step_s)
    made = []
    for row, line in zip(found.rows(), found.lines, strict=True):
        part = (line.time_s > link.settled_s) & (line.time_s <= link.step_s)
        queue = line.queue_pkts[part]
        # What is on the way, by Little's law; of a link that is busy.
        window = (queue.mean() + link.pkts_per_s * link.rtt_ms / 1e3) / link.flows
        deviation = float(queue.std())
        made.append({**row, "window_pkts": float(window), "queue_deviation_pkts": deviation})
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sender", default="linux-cubic")
    parser.add_argument("--link", nargs="*", choices=[*CLASSIC, *SCALABLE])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    everything = {}
    links = CLASSIC | SCALABLE
    usual = SCALABLE if given.sender in ("dctcp", "prague") else CLASSIC
    for name in given.link or usual:
        link = links[name]
        everything[name] = made = rows(link, given.sender, given.seeds)
        print(f"{name} {link.mbit_per_s:g} Mbit/s {link.rtt_ms:g} ms {link.flows} flows")
        for row in made:
            cells = [
                f"{row['by']:10}",
                f"queue {row['queue_mean_pkts']:8.1f}",
                f"p {row['probability']:.6f}",
                f"W {row['window_pkts']:6.2f}",
                f"half {row['half_s']:5.2f}",
                f"period {row['period_s'] or float('nan'):5.2f}",
                f"damping {row['damping']:.2f}",
                f"sd {row['queue_deviation_pkts']:.1f}",
            ]
            print("  ", "  ".join(cells), flush=True)
    if given.json:
        given.json.write_text(json.dumps(everything))


if __name__ == "__main__":
    main()
