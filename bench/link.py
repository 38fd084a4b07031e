"""Measure how exact the link is, and what a packet costs compared with a C prototype.

    python bench/link.py --reference ../shared/reference --traces ../shared/traces

Exactness: rates and recorded links under a UDP flow that offers more, the RTT of an idle link, and
lateness. A row that a busy machine made void says so.

Cost: one iperf3 flow without a limiting rate or a delay, under DropTail. The prototype
(`prototypes/emu.c`) is one file without laws, traces or measurement of the queue; mahimahi's
`mm-link`, which would be the peer, is in no package registry. The processor time is that of the
emulating thread, without the kernel's work for the TUN device. The best of a few runs counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from functools import partial
from pathlib import Path

from forebay.linux import Outcome, settings
from forebay.linux import run as run_link

#: Duration in seconds: long enough that the transmission of a packet does not affect a rate.
EXACT_S = 12
#: The window of measurement.
MEASURE = f"1s..{EXACT_S - 1}s"
DELAY_MS = 30
#: Twice the rate that the machine can reach, in bit/s.
RATE_BPS = 100e9
BUFFER_PKTS = 4000
MTU_BYTES = 1500


def ours(seconds: int, super_packets: bool) -> tuple[float, float]:
    """Return the goodput in bit/s, and the user CPU in seconds per packet of 1500 bytes."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "iperf3.json"
        outcome = run_link(
            settings(f"{RATE_BPS:g}bit/s", "0ms", f"{BUFFER_PKTS}p", super_packets=super_packets),
            ["sh", "-c", f"iperf3 -J -c $FOREBAY_SERVER -C reno -t {seconds} > {output}"],
            server="iperf3 -s -1 >/dev/null",
        )
        goodput_bps = _goodput_bps(output.read_text())
    packets = outcome.up["forwarded_packets"] + outcome.down["forwarded_packets"]
    return goodput_bps, outcome.up["user_cpu_s"] / packets


def prototype(binary: Path, seconds: int, super_packets: bool) -> tuple[float, float]:
    """Return the same numbers of the prototype, which prints its packets."""
    output = binary.with_name("iperf3.json")
    process = subprocess.Popen(
        [
            str(binary),
            *("-v",) * super_packets,
            *("-r", f"{RATE_BPS:g}", "-b", str(BUFFER_PKTS * MTU_BYTES)),
            *("-t", str(seconds + 2), "-s", "iperf3 -s -1 >/dev/null"),
            *("-c", f"iperf3 -J -c 10.7.0.2 -C reno -t {seconds} > {output}"),
        ],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    text = process.stderr.read()
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    # Segments go up; acknowledgements go down and are never joined.
    packets = sum(int(number) for number in re.findall(r"(?:segs|REV pk)=(\d+)", text))
    return _goodput_bps(output.read_text()), usage.ru_utime / packets


def _goodput_bps(text: str) -> float:
    """Return the goodput in the output of iperf3."""
    return float(json.loads(text)["end"]["sum_received"]["bits_per_second"])


def rates() -> None:
    """Print the accuracy of rates."""
    print(f"{'rate [Mbit/s]':>14} {'achieved':>12} {'off [%]':>9} {'p99 late [us]':>14}")
    for rate_mbps in (1, 15, 100, 1000):
        payload_bytes = MTU_BYTES - 28
        offered = f"{1.1 * rate_mbps:g}M"
        outcome = run_link(
            settings(f"{rate_mbps}Mbit/s", "5ms", "100p", measure=MEASURE),
            ["sh", "-c", _udp(offered, payload_bytes)],
            server="iperf3 -s -1 >/dev/null",
        )
        up = outcome.observed.directions[0]
        achieved, requested = up.achieved_bps, up.asked_bps
        print(
            f"{rate_mbps:14} {achieved / 1e6:12.5f} {100 * (achieved / requested - 1):+9.4f} "
            f"{1e6 * outcome.lateness.p99_s:14.1f}{_void(outcome)}"
        )


def idle_rtt() -> None:
    """Print the RTT of an idle link."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "ping"
        outcome = run_link(
            settings("100Mbit/s", f"{DELAY_MS}ms", "100p"),
            ["sh", "-c", f"ping -i 0.1 -c 100 $FOREBAY_SERVER > {output}"],
        )
        times_ms = [float(ms) for ms in re.findall(r"time=([\d.]+)", output.read_text())]
    print(
        f"ping over an idle link of {2 * DELAY_MS} ms: {statistics.median(times_ms):.2f} ms at the "
        f"median of {len(times_ms)}{_void(outcome)}"
    )


def traces(folder: Path) -> None:
    """Print the delivered share of each recorded link's capacity under UDP above its peak."""
    print(f"{'recorded link':>28} {'mean [Mbit/s]':>14} {'delivered [%]':>14}")
    for trace in sorted(folder.glob("*.[du][op]*")):
        outcome = run_link(
            settings(trace=str(trace), delay="5ms", buffer="200p", measure="1s..31s"),
            ["sh", "-c", _udp("60M", MTU_BYTES - 28, 33)],
            server="iperf3 -s -1 >/dev/null",
        )
        up = outcome.observed.directions[0]
        delivered = up.achieved_bps / up.asked_bps
        print(
            f"{trace.name:>28} {up.asked_bps / 1e6:14.3f} {100 * delivered:14.3f}{_void(outcome)}"
        )


def _udp(offered: str, payload_bytes: int, seconds: int = EXACT_S) -> str:
    """Return the command of a UDP flow."""
    flow = f"-u -b {offered} -l {payload_bytes} -t {seconds}"
    return f"iperf3 -c $FOREBAY_SERVER {flow} >/dev/null 2>&1"


def _void(outcome: Outcome) -> str:
    """Return a note for a void run."""
    return f"  VOID: {outcome.void[0]}" if outcome.void else ""


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, default=Path("../shared/reference"))
    parser.add_argument("--traces", type=Path, default=Path("../shared/traces"))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    arguments = parser.parse_args()
    rates()
    idle_rtt()
    if arguments.traces.is_dir():
        traces(arguments.traces)
    else:
        print(f"no recorded links: {arguments.traces} is not here")
    source = arguments.reference / "prototypes" / "emu.c"
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "emu"
        peer = source.exists()
        if peer:
            subprocess.run(["cc", "-O2", "-w", "-o", binary, source, "-lm"], check=True)
        else:
            print(f"no comparison with the prototype: {source} is not here")
        for super_packets in (False, True):
            print(f"\nup to 64 KiB at a time: {'yes' if super_packets else 'no'}")
            print(f"{'':>10} {'goodput [Gbit/s]':>17} {'user CPU [ns/packet]':>21}")
            sides = [("Forebay", partial(ours, arguments.seconds, super_packets))]
            if peer:
                peer_run = partial(prototype, binary, arguments.seconds, super_packets)
                sides.append(("prototype", peer_run))
            # The sides take turns, so that a busy moment affects both.
            runs = [[run() for _, run in sides] for _ in range(arguments.repeats)]
            for (name, _), results in zip(sides, zip(*runs, strict=True), strict=True):
                goodput_bps = max(goodput for goodput, _ in results)
                cpu_s = min(cpu for _, cpu in results)
                print(f"{name:>10} {goodput_bps / 1e9:17.2f} {1e9 * cpu_s:21.0f}")


if __name__ == "__main__":
    main()
