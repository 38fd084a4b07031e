"""What laws, queues and senders cost: instructions per bottleneck packet, by callgrind.

    cargo build --release -p forebay-sim --example simulate
    python bench/costs.py

Instructions do not depend on how busy the machine is. A start that has nothing to do with packets
is taken out: the difference between a run and one of half its length counts.

With `--before`, the example as another version builds it, each case is measured under both, and
none may be slower than it was.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SIMULATE = Path("target/release/examples/simulate")
#: What two builds of the same source may differ by.
NOISE = 0.005


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
    """The highest cost that a case may have, as a multiple of another case."""

    case: Case
    beside: Case
    ratio: float


RED_KEYS = 'min_th = "15p"\nmax_th = "785p"\nmax_p = 0.01\nw_q = 0.002'
RED = Case("red", "red", law_keys=RED_KEYS)
CODEL_1000 = Case("codel, 1000 flows", "codel", flows=1000)
# Ten flows and room for all that BBR keeps in flight: where it loses every tenth packet or more, as
# with a hundred, repair costs as much as the rest.
ROOM = 4 * 1125
CUBIC = Case("cubic, 10 flows", "droptail", flows=10, tcp="linux-cubic", buffer_pkts=ROOM)
BOUNDS = [
    Bound(Case("red, 2000 flows", "red", flows=2000, law_keys=RED_KEYS), RED, 1.5),
    Bound(Case("red, linux-cubic", "red", tcp="linux-cubic", law_keys=RED_KEYS), RED, 1.7),
    Bound(Case("codel", "codel"), RED, 1.2),
    Bound(Case("pie", "pie"), RED, 1.2),
    Bound(Case("pi2", "pi2"), RED, 1.2),
    Bound(Case("dualpi2", "dualpi2"), RED, 1.5),
    Bound(Case("fq-codel, 1000 flows", "fq-codel", flows=1000), CODEL_1000, 1.6),
    Bound(Case("cake, 1000 flows", "cake", flows=1000), CODEL_1000, float("inf")),
    Bound(Case("bbr, 10 flows", "droptail", flows=10, tcp="bbr", buffer_pkts=ROOM), CUBIC, 1.65),
]


def counted(simulate: Path, case: Case, duration_s: float) -> tuple[int, int]:
    """Instructions and packets that left the bottleneck."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(case.scenario(duration_s))
        done = subprocess.run(
            ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", simulate, file],
            capture_output=True,
            text=True,
            check=True,
        )
    instructions = re.search(r"Collected\s*:\s*(\d+)", done.stderr)
    packets = re.search(r"forwarded_packets\s+(\d+)", done.stdout)
    assert instructions and packets, done.stdout + done.stderr
    return int(instructions[1]), int(packets[1])


def per_packet(simulate: Path, case: Case, duration_s: float) -> float:
    """Instructions per packet, without the start's."""
    (half, half_pkts), (whole, pkts) = (
        counted(simulate, case, t) for t in (duration_s / 2, duration_s)
    )
    return (whole - half) / (pkts - half_pkts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated time")
    parser.add_argument("--before", type=Path, help="the example of another version")
    parser.add_argument("--only", help="cases whose names begin so")
    args = parser.parse_args()
    cases = list(dict.fromkeys(case for it in BOUNDS for case in (it.beside, it.case)))
    if args.only:
        cases = [case for case in cases if case.name.startswith(args.only)]
    cost, before = {}, {}
    print(f"{'':22} {'instructions':>12} {'before':>8} {'ratio':>6}")
    for case in cases:
        cost[case] = per_packet(SIMULATE, case, args.seconds)
        told = ""
        if args.before:
            before[case] = per_packet(args.before, case, args.seconds)
            told = f"{before[case]:8.0f} {cost[case] / before[case]:6.2f}"
        print(f"{case.name:22} {cost[case]:12.0f} {told}", flush=True)
    print(f"\n{'':22} {'beside':20} {'ratio':>6} {'bound':>6}")
    holds = all(cost[case] <= (1 + NOISE) * before[case] for case in before)
    for it in (it for it in BOUNDS if it.case in cost and it.beside in cost):
        ratio = cost[it.case] / cost[it.beside]
        holds &= ratio <= it.ratio
        print(f"{it.case.name:22} {it.beside.name:20} {ratio:6.2f} {it.ratio:6g}")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
