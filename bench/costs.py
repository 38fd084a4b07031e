"""What laws, queues and senders cost: instructions per bottleneck packet, by callgrind.

    cargo build --release -p forebay-sim --example simulate
    python bench/costs.py

Instructions do not depend on how busy the machine is. A start that has nothing to do with packets
is taken out: the difference between a run and one of half its length counts.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SIMULATE = Path("target/release/examples/simulate")


@dataclass(frozen=True)
class Case:
    """A run at 45 Mbit/s and 100 ms with packets of 500 bytes, as case A of the reference."""

    name: str
    law: str
    flows: int = 100
    tcp: str = "reno"
    buffer_pkts: int = 1125
    law_keys: str = ""

    def scenario(self, duration_s: float) -> str:
        return f"""
            title = "{self.name}"
            duration = "{duration_s}s"
            seeds = 1
            target = "100p"
            [bottleneck]
            rate = "45Mbit/s"
            delay = "40ms"
            buffer = "{self.buffer_pkts}p"
            [[traffic]]
            kind = "ftp"
            flows = {self.flows}
            packet = "500B"
            rtt = "100ms"
            tcp = "{self.tcp}"
            start = {{ uniform = ["0s", "1s"] }}
            [[law]]
            kind = "{self.law}"
            {self.law_keys}
        """


@dataclass(frozen=True)
class Bound:
    """What a case may cost, as a multiple of another."""

    case: Case
    beside: Case
    ratio: float


RED = Case("red", "red", law_keys='min_th = "15p"\nmax_th = "785p"\nmax_p = 0.01\nw_q = 0.002')
# Ten flows and room for all that BBR keeps in flight: where it loses every tenth packet or more, as
# with a hundred, repair costs as much as the rest.
ROOM = 4 * 1125
CUBIC = Case("cubic", "droptail", flows=10, tcp="linux-cubic", buffer_pkts=ROOM)
BOUNDS = [
    Bound(Case("codel", "codel"), RED, 1.2),
    Bound(Case("pie", "pie"), RED, 1.2),
    Bound(Case("pi2", "pi2"), RED, 1.2),
    Bound(
        Case("fq-codel, 1000 flows", "fq-codel", flows=1000),
        Case("codel, 1000 flows", "codel", flows=1000),
        1.6,
    ),
    Bound(
        Case("cake, 1000 flows", "cake", flows=1000),
        Case("codel, 1000 flows", "codel", flows=1000),
        float("inf"),
    ),
    Bound(Case("bbr", "droptail", flows=10, tcp="bbr", buffer_pkts=ROOM), CUBIC, 1.5),
]


def counted(case: Case, duration_s: float) -> tuple[int, int]:
    """Instructions and packets that left the bottleneck."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(case.scenario(duration_s))
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", SIMULATE, file],
            capture_output=True,
            text=True,
            check=True,
        )
    instructions = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    packets = re.search(r"forwarded_packets\s+(\d+)", done.stdout)
    assert instructions and packets, done.stdout + done.stderr
    return int(instructions[1]), int(packets[1])


def per_packet(case: Case, duration_s: float) -> float:
    """Instructions per packet, without the start's."""
    (half, half_pkts), (whole, pkts) = (counted(case, t) for t in (duration_s / 2, duration_s))
    return (whole - half) / (pkts - half_pkts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated time")
    args = parser.parse_args()
    cost = {
        case: per_packet(case, args.seconds)
        for case in dict.fromkeys(case for it in BOUNDS for case in (it.beside, it.case))
    }
    print(f"{'':22} {'instructions':>12}  {'beside':20} {'ratio':>6} {'bound':>6}")
    for it in BOUNDS:
        ours, theirs = cost[it.case], cost[it.beside]
        print(
            f"{it.case.name:22} {ours:12.0f}  {it.beside.name:20} {ours / theirs:6.2f} "
            f"{it.ratio:6g}"
        )
    return 0 if all(cost[it.case] <= it.ratio * cost[it.beside] for it in BOUNDS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
