"""Compare the speed with real ns-2 in one run: bottleneck packets per second of user CPU.

    python bench/speed.py --reference ../shared/reference

The case is A of the reference: 45 Mbit/s, 100 ms, 500-byte packets, RED, an access link and a round
trip for each flow, 100 s. Forebay is measured as a whole process (`forebay run --json`, with the
start of Python) and as the engine alone. The set-up of ns-2, which grows with the square of its
nodes, is measured by a run of no length and excluded. Machines are shared and noisy: the best of a
few runs is shown, and the ratio counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ns2

CASE_A = {"aqm": "RED", "gentle": 1, "min": 15, "max": 785, "maxp": 0.01, "wq": 0.002}
#: Length of the runs of `over_flows`, in packets at the link's rate.
PACKETS = 5e6


def forebay_run(params: dict[str, object], duration_s: float) -> dict[str, float]:
    """Run a case with the command line.

    Returns
    -------
    dict[str, float]
        Packets, drop rate, user CPU of the process and of the engine, and memory.
    """
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
    """Print the cost per packet and the memory per flow at one total rate."""
    print(f"\n{rate_bps / 1e9:g} Gbit/s in all, ns of user CPU, bytes of memory")
    print(f"{'flows':>6} {'per forwarded':>14} {'per arrival':>12} {'bytes per flow':>15}")
    base_kb = 0.0
    for flows in (100, 1000, 10_000, 100_000):
        params = {**CASE_A, "nftp": flows, "bw": rate_bps, "accbw": 1e9}
        duration_s = round(PACKETS * 4000 / rate_bps, 3)
        runs = [forebay_run(params, duration_s) for _ in range(repeats)]
        run = min(runs, key=lambda r: r["engine_s"])
        # The memory of the smallest run is that of the program itself.
        base_kb = base_kb or run["peak_kb"]
        per_flow = (run["peak_kb"] - base_kb) * 1024 / flows
        per_packet_ns = run["engine_s"] / run["packets"] * 1e9
        per_arrival_ns = per_packet_ns * (1 - run["drop_rate"])
        print(f"{flows:6} {per_packet_ns:14.0f} {per_arrival_ns:12.0f} {per_flow:15.0f}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, required=True, help="folder of the Tcl script")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    beside_ns2(args.reference / "ns2-dumbbell.tcl", args.repeats)
    for rate_bps in (1e9, 10e9):
        over_flows(rate_bps, args.repeats)


if __name__ == "__main__":
    main()
