"""Measure what laws, queues and senders cost: instructions per bottleneck packet, by callgrind.

    cargo build --release -p forebay-sim --example simulate
    python bench/costs.py

Instructions do not depend on how busy the machine is. The start, which has nothing to do with
packets, is excluded: only the difference between a run and one of half its length counts.

With `--before`, the example as another version builds it, each case is measured under both
versions, and none may have become slower.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

SIMULATE = Path("target/release/examples/simulate")
#: Largest relative difference between two builds of the same source.
NOISE = 0.005


@dataclass(frozen=True)
class Case:
    """A run at 45 Mbit/s and 100 ms with packets of 500 bytes, like case A of the reference.

    Attributes
    ----------
    name : str
        Name of the case.
    law : str
        The law.
    flows : int, default 100
        Number of flows.
    tcp : str, default 'reno'
        The sender.
    buffer_pkts : int, default 1125
        Buffer in packets.
    law_keys : str, default ''
        Parameters of the law in TOML.
    """

    name: str
    law: str
    flows: int = 100
    tcp: str = "reno"
    buffer_pkts: int = 1125
    law_keys: str = ""

    def scenario(self, duration_s: float) -> str:
        """Return the scenario in TOML."""
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
    """The largest cost of a case, relative to another case.

    Attributes
    ----------
    case : Case
        The case.
    baseline
        The case with which it is compared.
    ratio : float
        The largest ratio of the costs.
    """

    case: Case
    baseline: Case
    ratio: float


RED_KEYS = 'min_th = "15p"\nmax_th = "785p"\nmax_p = 0.01\nw_q = 0.002'
RED = Case("red", "red", law_keys=RED_KEYS)
CODEL_1000 = Case("codel, 1000 flows", "codel", flows=1000)
# Ten flows, and a buffer for everything that BBR keeps in flight: if it loses every tenth packet or
# more, as with a hundred flows, repair costs as much as everything else.
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
    """Return the number of instructions, and of packets that left the bottleneck."""
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
    """Return the instructions per packet, without those of the start."""
    (half, half_pkts), (whole, pkts) = (
        counted(simulate, case, t) for t in (duration_s / 2, duration_s)
    )
    return (whole - half) / (pkts - half_pkts)


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="simulated time")
    parser.add_argument("--before", type=Path, help="the example of another version")
    parser.add_argument("--only", help="cases whose names begin so")
    args = parser.parse_args()
    cases = list(dict.fromkeys(case for bound in BOUNDS for case in (bound.baseline, bound.case)))
    if args.only:
        cases = [case for case in cases if case.name.startswith(args.only)]
    cost, before = {}, {}
    print(f"{'':22} {'instructions':>12} {'before':>8} {'ratio':>6}")
    for case in cases:
        cost[case] = per_packet(SIMULATE, case, args.seconds)
        comparison = ""
        if args.before:
            before[case] = per_packet(args.before, case, args.seconds)
            comparison = f"{before[case]:8.0f} {cost[case] / before[case]:6.2f}"
        print(f"{case.name:22} {cost[case]:12.0f} {comparison}", flush=True)
    print(f"\n{'':22} {'beside':20} {'ratio':>6} {'bound':>6}")
    holds = all(cost[case] <= (1 + NOISE) * before[case] for case in before)
    for bound in (bound for bound in BOUNDS if bound.case in cost and bound.baseline in cost):
        ratio = cost[bound.case] / cost[bound.baseline]
        holds &= ratio <= bound.ratio
        print(f"{bound.case.name:22} {bound.baseline.name:20} {ratio:6.2f} {bound.ratio:6g}")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
