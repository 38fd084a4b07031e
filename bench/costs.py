"""Count what a packet costs: instructions, branch misses and cache misses, by callgrind.

    cargo build --release -p forebay-sim --example simulate
    python bench/costs.py

Callgrind counts instructions exactly, however busy the machine is. Each case runs for two
durations, and the difference is divided by the packets that the bottleneck forwarded between
them, so the work at the start of a run cancels.

With ``--before PATH`` every case is also measured under the example that another version built.
The command fails if a case costs more instructions than before, or exceeds its bound.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

SIMULATE = Path("target/release/examples/simulate")
#: Relative difference that two builds of the same source may have.
NOISE = 0.005
#: The rate of case A of the reference, in Mbit/s.
RATE_MBPS = 45
RED_KEYS = 'min_th = "15p"\nmax_th = "785p"\nmax_p = 0.01\nw_q = 0.002'
#: Round trips of a scenario with many of them, in ms.
ROUND_TRIPS_MS = tuple(range(90, 111))


@dataclass(frozen=True)
class Case:
    """A dumbbell or a network of several links, with packets of 500 bytes.

    The defaults are those of case A of the reference: RED, 45 Mbit/s, 100 flows of Reno and one
    round trip of 100 ms.

    Attributes
    ----------
    name : str
        Name in the table.
    law : str
        Kind of the law.
    law_keys : str
        Further TOML lines of the law.
    flows : int
        Number of flows of each traffic.
    tcp : str
        Sender of the flows.
    rtts_ms : tuple of int
        Round trips that the flows take in turn.
    rate_mbps : float
        Rate of every link.
    buffer_pkts : int
        Buffer of every queue.
    paths : tuple of str
        Path of each traffic, as the names of its nodes, one letter each. The default is one
        traffic over one bottleneck; otherwise there is a link between any two successive nodes.
    durations_s : tuple of two floats
        The two durations in simulated seconds.
    """

    name: str
    law: str = "red"
    law_keys: str = ""
    flows: int = 100
    tcp: str = "reno"
    rtts_ms: tuple[int, ...] = (100,)
    rate_mbps: float = RATE_MBPS
    buffer_pkts: int = 1125
    paths: tuple[str, ...] = ()
    durations_s: tuple[float, float] = (3.0, 6.0)

    def scenario(self, duration_s: float) -> str:
        """Return the scenario of this case as TOML."""
        links = list(dict.fromkeys(hop for path in self.paths for hop in pairwise(path)))
        bottleneck, *more_links = [
            f'name = "{a}{b}"\nfrom = "{a}"\nto = "{b}"\n' for a, b in links
        ] or [""]
        delay_ms = 40 // max(1, max(map(len, self.paths), default=2) - 1)
        link = (
            f'rate = "{self.rate_mbps}Mbit/s"\ndelay = "{delay_ms}ms"\n'
            f'buffer = "{self.buffer_pkts}p"\n'
        )
        rtts = ", ".join(f'"{rtt}ms"' for rtt in self.rtts_ms)
        flows = (
            f'kind = "ftp"\nflows = {self.flows}\npacket = "500B"\nrtt = [{rtts}]\n'
            f'tcp = "{self.tcp}"\nstart = {{ uniform = ["0s", "1s"] }}\n'
        )
        labels = [f'label = "{path}"\npath = {list(path)}\n' for path in self.paths] or [""]
        return (
            f'title = "{self.name}"\nduration = "{duration_s}s"\nseeds = 1\ntarget = "100p"\n'
            f"[bottleneck]\n{bottleneck}{link}"
            + "".join(f"[[link]]\n{ends}{link}" for ends in more_links)
            + "".join(f"[[traffic]]\n{label}{flows}" for label in labels)
            + f'[[law]]\nkind = "{self.law}"\n{self.law_keys}\n'
        )


def crowd(flows: int) -> Case:
    """Return the case of many flows behind RED, each with the share that 2,000 have in case A."""
    scale = flows // 2000
    keys = RED_KEYS.replace("15p", f"{15 * scale}p").replace("785p", f"{785 * scale}p")
    return Case(
        f"red, {flows} flows",
        law_keys=keys,
        flows=flows,
        rate_mbps=RATE_MBPS * scale,
        buffer_pkts=1125 * scale,
        durations_s=(3.0, 5.0),
    )


@dataclass(frozen=True)
class Bound:
    """The most that a case may cost, as a multiple of the instructions of another one."""

    case: Case
    base: Case
    ratio: float


RED = Case("red", law_keys=RED_KEYS)
CODEL_1000 = Case("codel, 1000 flows", "codel", flows=1000)
# The buffer has space for all that ten flows of BBR keep in flight. With a hundred flows BBR loses
# more than every tenth packet, and repairing the losses costs as much as everything else.
LARGE_BUFFER_PKTS = 4 * 1125
CUBIC = Case("cubic, 10 flows", "droptail", flows=10, tcp="linux-cubic",
             buffer_pkts=LARGE_BUFFER_PKTS)  # fmt: skip
BOUNDS = [
    Bound(Case("red, 21 round trips", law_keys=RED_KEYS, rtts_ms=ROUND_TRIPS_MS), RED, 1.45),
    Bound(Case("red, 500 flows", law_keys=RED_KEYS, flows=500), RED, 1.2),
    Bound(Case("red, 2000 flows", law_keys=RED_KEYS, flows=2000), RED, 1.5),
    Bound(crowd(10_000), RED, 1.85),
    Bound(crowd(20_000), RED, 1.85),
    Bound(Case("red, linux-cubic", law_keys=RED_KEYS, tcp="linux-cubic"), RED, 1.7),
    Bound(Case("codel", "codel"), RED, 1.2),
    Bound(Case("pie", "pie"), RED, 1.2),
    Bound(Case("pi2", "pi2"), RED, 1.2),
    Bound(Case("dualpi2", "dualpi2"), RED, 1.5),
    Bound(Case("fq-codel, 1000 flows", "fq-codel", flows=1000), CODEL_1000, 1.6),
    Bound(Case("cake, 1000 flows", "cake", flows=1000), CODEL_1000, 2.45),
    Bound(Case("bbr, 10 flows", "droptail", flows=10, tcp="bbr", buffer_pkts=LARGE_BUFFER_PKTS),
          CUBIC, 1.7),
    Bound(Case("prague, 10 flows", "dualpi2", flows=10, tcp="prague"), CUBIC, 2.05),
    Bound(Case("chain of three links", law_keys=RED_KEYS, paths=("ABCD",)), RED, 4.75),
    Bound(Case("mesh, both ways", law_keys=RED_KEYS, flows=33, rtts_ms=ROUND_TRIPS_MS,
               paths=("ABC", "CBA", "BC")), RED, 5.9),
]  # fmt: skip


@dataclass(frozen=True)
class Counts:
    """Counted events of a run, or per forwarded packet.

    Attributes
    ----------
    instructions, branch_misses, l1_misses : float
        Executed instructions, mispredicted branches, and misses of the first-level data cache,
        by callgrind's models.
    packets : float
        Packets that the bottleneck forwarded.
    """

    instructions: float
    branch_misses: float
    l1_misses: float
    packets: float

    def per_packet_since(self, start: Counts) -> Counts:
        """Return the events per forwarded packet that a shorter run did not have."""
        packets = self.packets - start.packets
        return Counts(
            (self.instructions - start.instructions) / packets,
            (self.branch_misses - start.branch_misses) / packets,
            (self.l1_misses - start.l1_misses) / packets,
            packets,
        )


def forwarded_packets(printed: str) -> int:
    """Return the packets that the bottleneck forwarded, from the output of ``simulate``."""
    packets = re.search(r"forwarded_packets\s+(\d+)", printed)
    if packets is None:
        raise SystemExit(f"simulate printed no number of packets:\n{printed}")
    return int(packets[1])


def counts_of_run(simulate: Path, case: Case, duration_s: float) -> Counts:
    """Run a case under callgrind and return its counts."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "case.toml", Path(folder) / "callgrind.out"
        file.write_text(case.scenario(duration_s))
        command = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes"]
        result = subprocess.run(
            [*command, f"--callgrind-out-file={out}", simulate, file],
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise SystemExit(f"{case.name}:\n{result.stdout}{result.stderr}")
        text = out.read_text()
    events, totals = (re.search(rf"^{key}: (.*)$", text, re.M) for key in ("events", "totals"))
    assert events and totals, text
    count = dict(zip(events[1].split(), map(int, totals[1].split()), strict=False))
    return Counts(
        count["Ir"],
        count["Bcm"] + count["Bim"],
        count["D1mr"] + count["D1mw"],
        forwarded_packets(result.stdout),
    )


def measure(simulate: Path, case: Case) -> Counts:
    """Return a case's events per forwarded packet."""
    start, whole = (counts_of_run(simulate, case, t) for t in case.durations_s)
    return whole.per_packet_since(start)


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="the example as another version built it")
    parser.add_argument("--only", help="regular expression for the names of the cases to run")
    args = parser.parse_args()
    cases = list(dict.fromkeys(case for bound in BOUNDS for case in (bound.base, bound.case)))
    cases = [case for case in cases if re.search(args.only or "", case.name)]
    cost: dict[Case, Counts] = {}
    holds = True
    heading = f"{'instructions':>12} {'branch misses':>13} {'L1 misses':>9}"
    print(f"{'':22} {heading}" + (f" {'before':>8} {'ratio':>6}" if args.before else ""))
    for case in cases:
        counts = cost[case] = measure(SIMULATE, case)
        row = f"{counts.instructions:12.0f} {counts.branch_misses:13.1f} {counts.l1_misses:9.1f}"
        if args.before:
            before = measure(args.before, case).instructions
            holds &= counts.instructions <= (1 + NOISE) * before
            row += f" {before:8.0f} {counts.instructions / before:6.3f}"
        print(f"{case.name:22} {row}", flush=True)
    print(f"\n{'':22} {'compared with':20} {'ratio':>6} {'bound':>6}")
    for bound in BOUNDS:
        if bound.case in cost and bound.base in cost:
            ratio = cost[bound.case].instructions / cost[bound.base].instructions
            holds &= ratio <= bound.ratio
            print(f"{bound.case.name:22} {bound.base.name:20} {ratio:6.2f} {bound.ratio:6g}")
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
