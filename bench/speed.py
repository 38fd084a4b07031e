"""Measure speed in user CPU time per packet that the bottleneck forwards.

    python bench/speed.py --reference ../shared/reference
    python bench/speed.py --before PATH/simulate

With ``--reference`` the example ``simulate`` and real ns-2 take turns with cases of the reference:
45 Mbit/s, packets of 500 bytes, RED, and an access link for each flow. The time that ns-2 needs to
set up its nodes grows with the square of their number; a run of no length measures it, and it does
not count. A further table has the time and the memory of ``forebay run`` over the number of flows.

With ``--before`` the example ``simulate`` and the same example of another version take turns with
each case of ``costs.py``.

Programs that take turns meet the same load of the machine, so the median of their ratios is a
result even where a time is not.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import costs
import ns2

from forebay._base.metrics import COST

CASE_A = {"aqm": "RED", "gentle": 1, "min": 15, "max": 785, "maxp": 0.01, "wq": 0.002}
#: Cases that ns-2 runs, by their differences from case A, and their simulated time in seconds.
NS2_CASES: dict[str, dict[str, object]] = {
    "100 flows": {"nftp": 100},
    "21 round trips": {"nftp": 100, "rtts": " ".join(map(str, costs.ROUND_TRIPS_MS))},
    "2000 flows": {"nftp": 2000},
}
NS2_S = 10
#: Length of the runs of `over_flows`, in packets at the link's rate.
PACKETS = 5e6


def forebay_run(params: dict[str, object], duration_s: float) -> dict[str, float]:
    """Run a case with the command line; return packets, CPU times and peak memory."""
    text = ns2.scenario({**params, "T": duration_s}, (duration_s / 2, duration_s))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(text)
        command = [str(Path(sys.executable).parent / "forebay"), "run", str(path)]
        process = subprocess.Popen(
            [*command, "--seeds", "1", "--threads", "1", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        run = json.loads(process.stdout.read())
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "packets": run["metrics"]["forwarded_packets"],
        "drop_rate": run["metrics"]["drop_rate"],
        "engine_s": run["costs"][COST],
        "peak_kb": usage.ru_maxrss,
    }


def over_flows(rate_bps: float, repeats: int) -> None:
    """Print the time per packet and the memory per flow at one total rate."""
    print(f"\n{rate_bps / 1e9:g} Gbit/s in all, ns of user CPU, bytes of memory")
    print(f"{'flows':>6} {'per forwarded':>14} {'per arrival':>12} {'bytes per flow':>15}")
    base_kb = 0.0
    for flows in (100, 1000, 10_000, 100_000):
        params = {**CASE_A, "nftp": flows, "bw": rate_bps, "accbw": 1e9}
        duration_s = round(PACKETS * 4000 / rate_bps, 3)
        runs = [forebay_run(params, duration_s) for _ in range(repeats)]
        run = min(runs, key=lambda r: r["engine_s"])
        # The smallest run needs little more memory than the program itself.
        base_kb = base_kb or run["peak_kb"]
        per_flow = (run["peak_kb"] - base_kb) * 1024 / flows
        per_packet_ns = run["engine_s"] / run["packets"] * 1e9
        per_arrival_ns = per_packet_ns * (1 - run["drop_rate"])
        print(f"{flows:6} {per_packet_ns:14.0f} {per_arrival_ns:12.0f} {per_flow:15.0f}")


def simulated(simulate: Path, scenario: str) -> tuple[float, int]:
    """Run a scenario; return the user CPU time in seconds, and the forwarded packets."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(scenario)
        process = subprocess.Popen([simulate, file], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime, costs.forwarded_packets(printed)


def print_ratios(name: str, ratios: list[float]) -> None:
    """Print the median and the range of ratios."""
    ratio = statistics.median(ratios)
    print(f"{name:22} {ratio:6.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def compare_with_ns2(script: Path, repeats: int) -> None:
    """Print the ratio of user CPU times per packet of ns-2 and Forebay for each case."""
    print(f"{'':22} ns-2/Forebay: median and range of {repeats} pairs")
    for name, more in NS2_CASES.items():
        params = {**CASE_A, **more}
        whole = ns2.scenario({**params, "T": NS2_S}, (NS2_S / 2, NS2_S))
        setup_s = min(ns2.run(script, {**params, "T": 0.01}, seed=1).user_cpu_s for _ in range(3))
        ratios = []
        for _ in range(repeats):
            cpu_s, packets = simulated(costs.SIMULATE, whole)
            theirs = ns2.run(script, {**params, "T": NS2_S}, seed=1)
            departed = theirs.counters[-1][2]
            ratios.append((theirs.user_cpu_s - setup_s) / departed / (cpu_s / packets))
        print_ratios(name, ratios)


def compare_versions(before: Path, repeats: int) -> None:
    """Print the ratio of user CPU times of another version and this one for each case."""
    cases = dict.fromkeys(case for bound in costs.BOUNDS for case in (bound.base, bound.case))
    print(f"{'':22} before/after: median and range of {repeats} pairs")
    for case in cases:
        # As many packets in each case.
        scenario = case.scenario(40.0 * costs.RATE_MBPS / case.rate_mbps)
        ratios = [
            simulated(before, scenario)[0] / simulated(costs.SIMULATE, scenario)[0]
            for _ in range(repeats)
        ]
        print_ratios(case.name, ratios)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    compared = parser.add_mutually_exclusive_group(required=True)
    compared.add_argument("--reference", type=Path, help="folder of the Tcl script")
    compared.add_argument("--before", type=Path, help="the example as another version built it")
    parser.add_argument("--repeats", type=int, default=7, help="pairs, or runs of which one counts")
    args = parser.parse_args()
    if args.before:
        compare_versions(args.before, args.repeats)
        return
    if shutil.which("ns"):
        compare_with_ns2(args.reference / "ns2-dumbbell.tcl", args.repeats)
    else:
        print("not compared with ns-2: it is not here (apt-get install ns2)")
    for rate_bps in (1e9, 10e9):
        over_flows(rate_bps, args.repeats)


if __name__ == "__main__":
    main()
