"""Speed beside real ns-2, in one run: bottleneck packets per second of user CPU.

    python bench/speed.py --reference ../shared/reference

Case A of the reference: 45 Mbit/s, 100 ms, 500-byte packets, RED, an access link and a round
trip for each flow. Ours is the whole process (`forebay run --json`, Python's start included)
and the engine alone; ns-2's set-up, which grows with the square of its nodes, is measured by a
run of no length and taken out. Machines are shared and noisy, so the ratio counts.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import ns2

CASE_A = {"aqm": "RED", "gentle": 1, "min": 15, "max": 785, "maxp": 0.01, "wq": 0.002}
FORWARDED_PER_S = 11250


def children_user_s() -> float:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def forebay_run(params: dict[str, object], duration_s: float) -> dict[str, float]:
    """Runs a case with the command line; packets, and user CPU of process and engine."""
    text = ns2.scenario({**params, "T": duration_s}, (duration_s / 2, duration_s))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.toml"
        path.write_text(text)
        command = [str(Path(sys.executable).parent / "forebay"), "run", str(path)]
        before = children_user_s()
        done = subprocess.run(
            [*command, "--seeds", "1", "--threads", "1", "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        whole_s = children_user_s() - before
        # Most memory that a child has taken so far: runs go from small to large.
        peak_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    metrics = json.loads(done.stdout)["metrics"]
    return {
        "packets": metrics["forwarded_packets"],
        "whole_s": whole_s,
        "engine_s": metrics["user_cpu_s"],
        "peak_kb": peak_kb,
    }


def beside_ns2(script: Path, repeats: int) -> None:
    print(
        f"{'flows':>6} {'Forebay':>10} {'engine':>10} {'ns-2':>10} {'ratio':>7}   Mpackets/s of user CPU"
    )
    for flows in (100, 2000):
        params = {**CASE_A, "nftp": flows}
        # Long enough that Python's start counts little; ns-2 is given the reference's 100 s.
        ours = [forebay_run(params, 400) for _ in range(repeats)]
        whole = max(r["packets"] / r["whole_s"] for r in ours) / 1e6
        engine = max(r["packets"] / r["engine_s"] for r in ours) / 1e6
        theirs = float("nan")
        if shutil.which("ns"):
            setup_s = min(
                ns2.run(script, {**params, "T": 0.01}, seed=1).user_cpu_s for _ in range(repeats)
            )
            run_s = min(
                ns2.run(script, {**params, "T": 100}, seed=1).user_cpu_s for _ in range(repeats)
            )
            theirs = FORWARDED_PER_S * 100 / (run_s - setup_s) / 1e6
        print(f"{flows:6} {whole:10.2f} {engine:10.2f} {theirs:10.2f} {whole / theirs:7.1f}")


def over_flows(rate_bps: float) -> None:
    """Cost per packet, and memory per flow, at one total rate."""
    print(
        f"\n{'flows':>6} {'ns per packet':>14} {'ns per arrival':>15} {'bytes per flow':>15}"
        f"   at {rate_bps / 1e9:g} Gbit/s"
    )
    base_kb = 0.0
    for flows in (100, 1000, 10_000, 100_000):
        params = {**CASE_A, "nftp": flows, "bw": rate_bps, "accbw": 1e9}
        duration_s = 4e7 / (rate_bps / 4000)
        run = forebay_run(params, round(duration_s, 3))
        base_kb = base_kb or run["peak_kb"]
        per_flow = (run["peak_kb"] - base_kb) * 1024 / flows
        print(f"{flows:6} {run['engine_s'] / run['packets'] * 1e9:14.0f} {'':15} {per_flow:15.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, required=True, help="folder of the Tcl script")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    beside_ns2(args.reference / "ns2-dumbbell.tcl", args.repeats)
    over_flows(1e9)
    over_flows(10e9)


if __name__ == "__main__":
    main()
