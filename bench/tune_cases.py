"""Tunes laws for real cases and compares the choices on new seeds: docs/evidence/tuning.md.

.venv/bin/python bench/tune_cases.py [CASE…] [--trace FILE] [--seeds N] [--tuned FOLDER] [--real S]

Each case is tuned as `forebay tune` does it; then its choice, the choice of the former version and
every law's defaults run at every place. The goal's number is the worst of any place, seed by seed.
With --real the cable case also passes real flows of the kernel's TCP, measured for S seconds each
after half as long (needs root or user namespaces, and iperf3). `--trace` is the recorded link of
the second case.
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
from forebay.experiment import store_choice as choice
from forebay.tuning import candidates, check
from forebay.tuning.candidates import GOALS, Candidate, Params
from forebay.tuning.check import SCREENING_SEEDS
from forebay.tuning.ranges import LinkRange

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Case:
    """options: of `forebay tune`. former: what the version of commit d10bf9e chose with the same
    options (of a trace, with the range of its rates)."""

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
        rate = ["--trace", str(trace)] if self.rate is None else ["--rate", self.rate]
        buffer = [] if self.buffer is None else ["--buffer", self.buffer]
        words = [*rate, "--rtt", self.rtt, "--flows", self.flows, "--packet", self.packet, *buffer]
        words += [] if self.tcp == "reno" else ["--tcp", self.tcp]
        laws = [word for law in self.laws for word in ("--law", law)]
        return ["tune", *words, "--goal", self.goal, *laws]


#: Places that real flows pass: two shared cores do not carry a hundred at 50 Mbit/s in time.
REAL = ((5_000_000, 10), (5_000_000, 100), (50_000_000, 10))
MODERN = ("pi", "pi2", "pie", "dualpi2", "cobalt", "codel")
CASES = {
    "cable": Case(
        "cable uplink, 5 to 50 Mbit/s, 20 to 100 ms, 10 to 100 flows",
        "delay", "5..50Mbit/s", "20..100ms", "10..100", "1000B", MODERN,
        ("dualpi2", (("target", "3.52ms"), ("alpha", "0.016957"), ("beta", "2.72192"))),
        # Of the kernel, as the real flows are: it hands segments over in bursts.
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
    """The choice of `forebay tune`, run unless `out` has it."""
    numbers = out / "tune.json"
    if not numbers.exists():
        words = [*case.command(trace), "--seeds", str(seeds), "--out", str(out)]
        subprocess.run([sys.executable, "-m", "forebay.cli", *words], check=True)
    found = json.loads(numbers.read_text())
    params = tuple((name, str(value)) for name, value in found["params"].items())
    return Candidate(found["law"], "this version's choice", params, "tuned")


def measured(
    case: Case, chosen: Candidate, trace: str | None, seeds: int
) -> tuple[list[check.Checked], list[str]]:
    """The choice first; and the laws whose defaults refuse this buffer."""
    ranges = case.ranges(trace)
    law, params = case.former
    runs = [chosen]
    if law:
        runs.append(Candidate(law, "former version's choice", params, "former"))
    defaults = [candidates.default(one["name"]) for one in _native.laws()]
    refused = [one.law for one in defaults if check.runnable(one, ranges)]
    runs += [one for one in defaults if one.law not in refused]
    done = check.check(runs, ranges, SCREENING_SEEDS + seeds, store=choice.store(None))
    for fault in done.faults:
        print(fault, file=sys.stderr)
    return [one.with_seeds(slice(SCREENING_SEEDS, None)) for one in done.checked], refused


def table(case: Case, done: list[check.Checked]) -> tuple[list[str], bool]:
    """Rows of Markdown, and whether the choice beats all that keep the goal's goodput."""
    goal = GOALS[case.goal]
    mean = np.array([np.nanmean(one.goodput, axis=1) for one in done])
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
    for one in done:
        values = getattr(one, goal.least).max(axis=0)
        value, half = statistics.mean_and_interval(values)
        more, more_half = statistics.mean_and_interval(values - mine)
        pair = statistics.compare({"a": dict(enumerate(values)), "b": dict(enumerate(mine))})
        p = pair[0].p if pair and one is not done[0] else math.nan
        goodput = float(one.relative(best).min())
        # A thousandth, as a goodput has digits enough to differ by chance.
        kept = goodput >= 1 - goal.give_up - 1e-3
        beaten = one is done[0] or not kept or (more > 0 and p < 1 - statistics.LEVEL)
        wins = wins and beaten and (one is not done[0] or kept)
        verdict = "" if kept else "misses the goal's goodput"
        if kept and one is not done[0] and not beaten:
            verdict = "not beaten"
        words = ", ".join(f"{name} = {value}" for name, value in one.candidate.params)
        cells = [one.candidate.label + (f": {one.candidate.law}" if words else ""), words]
        cells.append(f"{1e3 * value:.4g} ± {1e3 * half:.2g}")
        cells.append("" if one is done[0] else f"{1e3 * more:+.4g} ± {1e3 * more_half:.2g}")
        cells.append("" if p != p else f"{p:.1g}")
        scored.append((one is not done[0], not kept, value, [*cells, f"{goodput:.0%}", verdict]))
    rows += [f"| {' | '.join(cells)} |" for *_, cells in sorted(scored)]
    return rows, wins


def real(case: Case, laws: list[Candidate], seconds: int) -> list[str]:
    """Pings beside real flows over `forebay link`, at the ends of the case: their 95th percentile
    of the wait above the propagation, and the goodput, for each law."""
    ranges = case.ranges(None)
    rows = ["| place | law | ping above propagation, 95 % [ms] | goodput [Mbit/s] |"]
    rows.append("|---|---|---|---|")
    for place in ranges.corners:
        # Namespaces carry a hundred flows, but two shared cores not all corners in any time.
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
    queue = {"dualpi2": ["--queue", "dualpi2"]}.get(law.law, [])
    sets = [word for name, value in law.params for word in ("--set", f"{name}={value}")]
    # A third is not measured, as in the runs that choose: a PI takes its time to find a load.
    loads = (
        f"ping -n -i 0.05 -c {20 * s + 10 * s} 198.18.0.2 > $D/ping & "
        f"iperf3 -c 198.18.0.2 -P {place.flows} -t {s} -O {s // 2} -J -C reno > $D/iperf; wait"
    )
    folder = Path("results") / "tune-real"
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable, "-m", "forebay.cli", "link", "--rate", place.rate,
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], metavar="CASE")
    parser.add_argument("--trace", help="a recorded link, for 4g")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tuned", type=Path, default=Path("results") / "tune-cases")
    parser.add_argument("--real", type=int, default=0, metavar="S")
    given = parser.parse_args()
    for name in given.cases or CASES:
        case = CASES[name]
        if case.rate is None and given.trace is None:
            print(f"{name}: left out, as there is no --trace", file=sys.stderr)
            continue
        trace = given.trace if case.rate is None else None
        chosen = tuned(case, trace, given.tuned / name, given.seeds)
        print(f"\n{case.title}; goal {case.goal}\n", flush=True)
        if given.real and name == "cable":
            law, params = case.former
            laws = [chosen, Candidate(law, "former version's choice", params, "former")]
            laws += [
                candidates.default(law) for law in ("droptail", "codel", "pie", "cobalt", "pi2")
            ]
            print("\n".join(real(case, laws, given.real)))
            continue
        done, refused = measured(case, chosen, trace, given.seeds)
        rows, wins = table(case, done)
        print("\n".join(rows))
        if refused:
            print(f"\nRefuse this buffer: {', '.join(refused)}.")
        print(f"\nThe choice beats all that keep the goodput: {'yes' if wins else 'no'}.")


if __name__ == "__main__":
    main()
