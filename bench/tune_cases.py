"""Print the table of docs/evidence/tuning.md: real cases, tuned, then tested on other seeds.

    .venv/bin/python bench/tune_cases.py [CASE…] [--trace FILE] [--seeds N] [--tuned FOLDER]
                                         [--real S]

Each case is tuned as `forebay tune` does it. Then its choice, the choice of the former version and
every law's defaults run at every operating point, on seeds that the tuning has not used. The goal's
number is the worst of any point, seed by seed. With --real, the laws of the cable case also run
with real flows of the kernel's TCP, measured for S seconds each after half as long (needs root or
user namespaces, and iperf3). `--trace` is the recorded link of the second case.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from forebay import _native
from forebay._base import statistics
from forebay.experiment import store as stores
from forebay.tuning import candidates, check
from forebay.tuning.candidates import GOALS, Candidate, Params
from forebay.tuning.check import SCREENING_SEEDS
from forebay.tuning.ranges import LinkRange

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """A case to tune.

    Attributes
    ----------
    title : str
        Title of the case.
    goal : str
        Goal of `forebay tune`.
    rate : str | None
        Range of rates; None for a recorded link.
    rtt : str
        Range of round trips.
    flows : str
        Range of flows.
    packet : str
        Packet size.
    laws : tuple[str, ...]
        Candidate laws; empty for all.
    former : tuple[str, Params]
        The choice of commit d10bf9e with the same options (for a trace, with the range of its
        rates).
    buffer : str, optional
        The buffer, if it is fixed.
    tcp : str, default 'reno'
        The sender.
    """

    title: str
    goal: str
    rate: str | None
    rtt: str
    flows: str
    packet: str
    laws: tuple[str, ...]
    former: tuple[str, Params]
    buffer: str | None = None
    tcp: str = "reno"

    def ranges(self, trace: str | None) -> LinkRange:
        """Return the ranges of the case."""
        return LinkRange(
            self.rate,
            self.rtt,
            flows=self.flows,
            packet=self.packet,
            buffer=self.buffer,
            trace=trace,
            senders=self.tcp,
        )

    def command(self, trace: str | None) -> list[str]:
        """Return the command that tunes the case."""
        rate = ["--trace", str(trace)] if self.rate is None else ["--rate", self.rate]
        buffer = [] if self.buffer is None else ["--buffer", self.buffer]
        words = [*rate, "--rtt", self.rtt, "--flows", self.flows, "--packet", self.packet, *buffer]
        words += [] if self.tcp == "reno" else ["--tcp", self.tcp]
        laws = [word for law in self.laws for word in ("--law", law)]
        return ["tune", *words, "--goal", self.goal, *laws]


#: Operating points of real flows: two shared cores cannot carry a hundred flows at 50 Mbit/s.
REAL = ((5_000_000, 10), (5_000_000, 100), (50_000_000, 10))
MODERN = ("pi", "pi2", "pie", "dualpi2", "cobalt", "codel")
CASES = {
    "cable": Case(
        "cable uplink, 5 to 50 Mbit/s, 20 to 100 ms, 10 to 100 flows",
        "delay", "5..50Mbit/s", "20..100ms", "10..100", "1000B", MODERN,
        ("dualpi2", (("target", "3.52ms"), ("alpha", "0.016957"), ("beta", "2.72192"))),
        # The sender is the kernel's, like that of the real flows, which sends segments in bursts.
        tcp="linux-reno",
    ),
    "4g": Case(
        "4G, recorded, 40 to 80 ms, 2 to 8 flows",
        "delay", None, "40..80ms", "2..8", "1500B", (),
        ("pi2", (("target", "9.451ms"), ("alpha", "0.0109401"), ("beta", "3.26484"))),
        "1000p",
    ),
    "campus": Case(
        "campus, 1 Gbit/s, 10 ms, 2 to 2000 flows",
        "throughput", "1Gbit/s", "10ms", "2..2000", "1500B",
        ("pi", "pie", "pi2", "stpi", "ared", "codel", "fq-codel"),
        ("ared", (("target_delay", "1.824ms"), ("w_q", "3.18395e-05"))),
    ),
}  # fmt: skip


def tuned(case: Case, trace: str | None, out: Path, seeds: int) -> Candidate:
    """Return the choice of `forebay tune`, which runs unless `out` has it."""
    numbers = out / "tune.json"
    if not numbers.exists():
        words = [*case.command(trace), "--seeds", str(seeds), "--out", str(out)]
        subprocess.run([sys.executable, "-m", "forebay", *words], check=True)
    result = json.loads(numbers.read_text())
    params = tuple((name, str(value)) for name, value in result["params"].items())
    return Candidate(result["law"], "this version's choice", params, "tuned")


def measured(
    case: Case, chosen: Candidate, trace: str | None, seeds: int
) -> tuple[list[check.Checked], list[str]]:
    """Return the results of the choice and of other laws, and the laws that refuse this buffer."""
    ranges = case.ranges(trace)
    law, params = case.former
    runs = [chosen]
    if law:
        runs.append(Candidate(law, "former version's choice", params, "former"))
    defaults = [candidates.default(entry["name"]) for entry in _native.laws()]
    refused = [candidate.law for candidate in defaults if check.runnable(candidate, ranges)]
    runs += [candidate for candidate in defaults if candidate.law not in refused]
    done = check.check(runs, ranges, SCREENING_SEEDS + seeds, store=stores.store(None))
    for fault in done.faults:
        print(fault, file=sys.stderr)
    return [result.with_seeds(slice(SCREENING_SEEDS, None)) for result in done.checked], refused


def table(case: Case, done: list[check.Checked]) -> tuple[list[str], bool]:
    """Return rows of Markdown, and True if the choice beats every law that keeps the goodput."""
    goal = GOALS[case.goal]
    mean = np.array([np.nanmean(result.goodput, axis=1) for result in done])
    best = np.minimum(1.0, mean.max(axis=0))
    mine = getattr(done[0], goal.least).max(axis=0)
    unit = "95 % wait [ms]" if goal.least == "delay_p95_s" else "deviation [ms]"
    rows = [
        f"| law | parameters | {unit}, worst place | more than the choice | p | goodput, worst "
        "place | |",
        "|---|---|---|---|---|---|---|",
    ]
    wins = True
    scored = []
    for result in done:
        values = getattr(result, goal.least).max(axis=0)
        value, half = statistics.mean_and_interval(values)
        more, more_half = statistics.mean_and_interval(values - mine)
        pair = statistics.compare({"a": dict(enumerate(values)), "b": dict(enumerate(mine))})
        p = pair[0].p if pair and result is not done[0] else math.nan
        goodput = float(result.relative(best).min())
        # A tolerance of a thousandth ignores differences of the goodput by chance.
        keeps_goodput = goodput >= 1 - goal.give_up - 1e-3
        beaten = result is done[0] or not keeps_goodput or (more > 0 and p < 1 - statistics.LEVEL)
        wins = wins and beaten and (result is not done[0] or keeps_goodput)
        verdict = "" if keeps_goodput else "misses the goal's goodput"
        if keeps_goodput and result is not done[0] and not beaten:
            verdict = "not beaten"
        words = ", ".join(f"{name} = {value}" for name, value in result.candidate.params)
        cells = [result.candidate.label + (f": {result.candidate.law}" if words else ""), words]
        cells.append(f"{1e3 * value:.4g} ± {1e3 * half:.2g}")
        cells.append("" if result is done[0] else f"{1e3 * more:+.4g} ± {1e3 * more_half:.2g}")
        cells.append("" if p != p else f"{p:.1g}")
        scored.append(
            (result is not done[0], not keeps_goodput, value, [*cells, f"{goodput:.0%}", verdict])
        )
    rows += [f"| {' | '.join(cells)} |" for *_, cells in sorted(scored)]
    return rows, wins


def real(case: Case, laws: list[Candidate], seconds: int) -> list[str]:
    """Measure pings next to real flows over `forebay link`, at the corners of the case.

    The rows have the 95th percentile of the delay above the propagation, and the goodput of each
    law.
    """
    ranges = case.ranges(None)
    rows = ["| place | law | ping above propagation, 95 % [ms] | goodput [Mbit/s] |"]
    rows.append("|---|---|---|---|")
    for place in ranges.corners:
        # Two shared cores cannot run all corners with a hundred flows in an acceptable time.
        if place.rtt_s != ranges.rtts_s[0] or (place.rate_bps, place.flows) not in REAL:
            continue
        for law in laws:
            waits, goodput = over_link(place, ranges, law, seconds)
            rows.append(f"| {place} | {law.label} | {waits:.1f} | {goodput:.2f} |")
            print(rows[-1], flush=True)
    return rows


def over_link(
    place: check.OperatingPoint, ranges: LinkRange, law: Candidate, s: int
) -> tuple[float, float]:
    """Return the delay of pings in ms and the goodput in Mbit/s of a law on a real link."""
    queue = {"dualpi2": ["--queue", "dualpi2"]}.get(law.law, [])
    sets = [word for name, value in law.params for word in ("--set", f"{name}={value}")]
    # The first third is not measured, as in the tuning's runs: a PI needs time to settle.
    loads = (
        f"ping -n -i 0.05 -c {20 * s + 10 * s} 198.18.0.2 > $D/ping & "
        f"iperf3 -c 198.18.0.2 -P {place.flows} -t {s} -O {s // 2} -J -C reno > $D/iperf; wait"
    )
    folder = Path("results") / "tune-real"
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "forebay", "link", "--rate", place.rate,
        "--delay", f"{1e3 * place.rtt_s / 2:g}ms", "--buffer", f"{ranges.buffer_pkts}p",
        "--aqm", law.law, *sets, *queue, "--server", "iperf3 -s -1", "--",
        "sh", "-c", f"D={shlex.quote(str(folder))}; {loads}",
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=6 * s + 60, capture_output=True)
    lines = (folder / "ping").read_text().splitlines()
    waits = [float(line.split("time=")[1].split()[0]) for line in lines if "time=" in line]
    late = np.array(waits[len(waits) // 3 :]) - 1e3 * place.rtt_s
    sent = json.loads((folder / "iperf").read_text())["end"]["sum_received"]
    return float(np.percentile(late, 95)), 1e-6 * float(sent["bits_per_second"])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    parser.add_argument("--trace", help="a recorded link, for 4g")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuned", type=Path, default=Path("results") / "tune-cases")
    parser.add_argument("--real", type=int, default=0, metavar="S")
    options = parser.parse_args()
    for name in options.cases or CASES:
        case = CASES[name]
        if case.rate is None and options.trace is None:
            print(f"{name}: left out, as there is no --trace", file=sys.stderr)
            continue
        trace = options.trace if case.rate is None else None
        chosen = tuned(case, trace, options.tuned / name, options.seeds)
        print(f"\n{case.title}; goal {case.goal}\n", flush=True)
        if options.real and name == "cable":
            law, params = case.former
            laws = [chosen, Candidate(law, "former version's choice", params, "former")]
            laws += [
                candidates.default(law) for law in ("droptail", "codel", "pie", "cobalt", "pi2")
            ]
            print("\n".join(real(case, laws, options.real)))
            continue
        done, refused = measured(case, chosen, trace, options.seeds)
        rows, wins = table(case, done)
        print("\n".join(rows))
        if refused:
            print(f"\nRefuse this buffer: {', '.join(refused)}.")
        print(f"\nThe choice beats all that keep the goodput: {'yes' if wins else 'no'}.")


if __name__ == "__main__":
    main()
