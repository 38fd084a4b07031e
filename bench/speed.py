"""Measure speed in forwarded packets per second of user CPU time.

    python bench/speed.py --reference ../shared/reference
    python bench/speed.py --before PATH/simulate

With ``--reference`` the table compares Forebay with real ns-2 in case A of the reference: 45
Mbit/s, 100 ms, packets of 500 bytes, RED, an access link for each flow, 100 s. Forebay's time is
that of the whole process (``forebay run --json`` with Python's start) and that of the engine
alone. The time that ns-2 needs to set up its nodes grows with the square of their number; a run of
no length measures it, and it does not count. The table shows the best of a few runs, because
machines are shared and noisy: only the ratio is a result.

With ``--before`` the example ``simulate`` and the same example of another version take turns with
each case of ``costs.py``, so that both meet the same load of the machine.
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

CASE_A = {"aqm": "RED", "gentle": 1, "min": 15, "max": 785, "maxp": 0.01, "wq": 0.002}
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
        metrics = json.loads(process.stdout.read())["metrics"]
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "packets": metrics["forwarded_packets"],
        "drop_rate": metrics["drop_rate"],
        "whole_s": usage.ru_utime,
        "engine_s": metrics["user_cpu_s"],
        "peak_kb": usage.ru_maxrss,
    }


def beside_ns2(script: Path, repeats: int) -> None:
    """Print the comparison with ns-2."""
    print("million packets per second of user CPU")
    print(f"{'flows':>6} {'Forebay':>10} {'engine':>10} {'ns-2':>10} {'ratio':>7}")
    for flows in (100, 2000):
        params = {**CASE_A, "nftp": flows}
        ours = [forebay_run(params, 100) for _ in range(repeats)]
        whole = max(r["packets"] / r["whole_s"] for r in ours) / 1e6
        engine = max(r["packets"] / r["engine_s"] for r in ours) / 1e6
        theirs = float("nan")
        if shutil.which("ns"):
            setup_s, run_s = (
                min(ns2.run(script, {**params, "T": t}, seed=1).user_cpu_s for _ in range(repeats))
                for t in (0.01, 100)
            )
            theirs = ours[0]["packets"] / (run_s - setup_s) / 1e6
        print(f"{flows:6} {whole:10.2f} {engine:10.2f} {theirs:10.2f} {whole / theirs:7.1f}")


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


def user_cpu_s(simulate: Path, file: Path) -> float:
    """Return the user CPU time of one run of a scenario, in seconds."""
    process = subprocess.Popen([simulate, file], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime


def compare_in_turns(before: Path, repeats: int) -> None:
    """Print the ratio of user CPU times of another version and this one for each case."""
    cases = dict.fromkeys(case for bound in costs.BOUNDS for case in (bound.base, bound.case))
    print(f"{'':22} before/after: median and range of {repeats} pairs")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        for case in cases:
            file.write_text(case.scenario(40.0 * costs.RATE_MBPS / case.rate_mbps))
            ratios = sorted(
                user_cpu_s(before, file) / user_cpu_s(costs.SIMULATE, file) for _ in range(repeats)
            )
            median = statistics.median(ratios)
            print(f"{case.name:22} {median:6.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    compared = parser.add_mutually_exclusive_group(required=True)
    compared.add_argument("--reference", type=Path, help="folder of the Tcl script")
    compared.add_argument("--before", type=Path, help="the example as another version built it")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    if args.before:
        compare_in_turns(args.before, args.repeats)
        return
    beside_ns2(args.reference / "ns2-dumbbell.tcl", args.repeats)
    for rate_bps in (1e9, 10e9):
        over_flows(rate_bps, args.repeats)


if __name__ == "__main__":
    main()
