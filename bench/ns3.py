"""Compare the speed with ns-3 under the same queue: bottleneck packets per second of user CPU.

    apt-get install libns3-dev g++
    python bench/ns3.py

CUBIC flows share 45 Mbit/s at 100 ms with packets of 500 bytes. A run of no length measures the
set-up of ns-3, which is excluded. Debian's ns-3 is built with logging; a build without it is about
twice as fast.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from forebay._base.metrics import COST

SOURCE = Path(__file__).with_name("ns3-dumbbell.cc")
MODULES = ["core", "network", "internet", "point-to-point", "applications", "traffic-control"]
#: The laws, with their queues in ns-3.
QUEUES = {
    "droptail": "ns3::FifoQueueDisc",
    "red": "ns3::RedQueueDisc",
    "codel": "ns3::CoDelQueueDisc",
    "pie": "ns3::PieQueueDisc",
    "fq-codel": "ns3::FqCoDelQueueDisc",
}
BUFFER_PKTS = 1125
NO_LENGTH_S = 0.001


def user_cpu(command: list[str]) -> tuple[float, str]:
    """Return the user CPU of a command in seconds, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before, printed


def theirs(program: Path, queue: str, flows: int, duration_s: float) -> float:
    """Return the packets per second of user CPU of ns-3."""

    def run(seconds: float) -> tuple[float, int]:
        cpu_s, printed = user_cpu(
            [
                str(program),
                f"--queue={queue}",
                "--tcp=ns3::TcpCubic",
                f"--limit={BUFFER_PKTS}p",
                f"--flows={flows}",
                f"--seconds={seconds}",
            ]
        )
        return cpu_s, json.loads(printed)["packets"]

    (setup_s, _), (cpu_s, packets) = run(NO_LENGTH_S), run(duration_s)
    return packets / (cpu_s - setup_s)


def ours(law: str, flows: int, duration_s: float) -> tuple[float, float]:
    """Return the packets per second of user CPU, of the whole process and of the engine."""
    text = f"""
        title = "beside ns-3"
        duration = "{duration_s}s"
        measure = ["0s", "{duration_s}s"]
        seeds = 1
        [bottleneck]
        rate = "45Mbit/s"
        delay = "1ms"
        buffer = "{BUFFER_PKTS}p"
        [[traffic]]
        kind = "ftp"
        flows = {flows}
        packet = "500B"
        header = "52B"
        rtt = "100ms"
        access = "1Gbit/s"
        tcp = "linux-cubic"
        delayed_ack = true
        start = {{ uniform = ["0s", "1s"] }}
        [[law]]
        kind = "{law}"
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.toml"
        file.write_text(text)
        forebay = str(Path(sys.executable).parent / "forebay")
        cpu_s, printed = user_cpu([forebay, "run", str(file), "--threads", "1", "--json"])
    run = json.loads(printed)
    packets = run["metrics"]["forwarded_packets"]
    return packets / cpu_s, packets / run["costs"][COST]


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flows", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=100.0, help="simulated here")
    parser.add_argument("--ns3-seconds", type=float, default=5.0, help="simulated by ns-3")
    parser.add_argument("--pairs", type=int, default=3, help="runs of each")
    args = parser.parse_args()
    if shutil.which("g++") is None or not Path("/usr/include/ns3").exists():
        print("not compared: ns-3 is not here (apt-get install libns3-dev g++)")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "dumbbell"
        libraries = [f"-lns3-{module}" for module in MODULES]
        subprocess.run(["g++", "-O2", "-o", program, SOURCE, *libraries], check=True)
        print(f"thousand packets per second of user CPU, {args.flows} flows of CUBIC")
        print(f"{'queue':10} {'Forebay':>9} {'engine':>9} {'ns-3':>7}  engine/ns-3 (range)")
        for law, queue in QUEUES.items():
            # They take turns, so that both meet the same load of the machine.
            pairs = [
                (
                    *ours(law, args.flows, args.seconds),
                    theirs(program, queue, args.flows, args.ns3_seconds),
                )
                for _ in range(args.pairs)
            ]
            whole, engine, ns3 = (statistics.median(column) for column in zip(*pairs, strict=True))
            ratios = [engine_rate / ns3_rate for _, engine_rate, ns3_rate in pairs]
            print(
                f"{law:10} {whole / 1e3:9.0f} {engine / 1e3:9.0f} {ns3 / 1e3:7.1f}  "
                f"{statistics.median(ratios):.0f} ({min(ratios):.0f} to {max(ratios):.0f})",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
