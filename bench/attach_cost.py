"""Measure what a law of `forebay attach` costs per packet: processor time over the shaper alone.

    sudo python -m bench.attach_cost bench/attach.toml --law pi --law pid

A namespace has two pairs of veth, both with the same shaper at 10 Gbit/s, and one of them with the
law. One process, on one processor, sends UDP frames of 64 bytes to both in turns of some
milliseconds, and reads its own processor time: that of the law, of the shaper, and of the receiver,
which drops the frames as another host's. The output has the median of the differences of
neighbouring turns with its standard error, the difference of the tenth quickest turns of both,
which other jobs have disturbed least, and the time of the program alone, by `bpftool prog run`.
`empty` is a classifier that does nothing, and `none` a second shaper alone, which shows how far
from zero differences may be.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.attach import Case, case, sh
from forebay.linux import attachments, devices, records, tcx
from forebay.linux.programs import call

#: Ethernet, IPv4 and UDP take 42 of the 64.
PAYLOAD_BYTES = 22
RATE = "10Gbit/s"
TURN_PKTS, RUN_PKTS = 1000, 300_000
INSIDE = "FOREBAY_BENCH_INSIDE"
Rounds = list[tuple[float, float]]
HEAD = """
| law | shaper alone [ns] | over it [ns] | over it, quick turns [ns] | by prog run [ns] |
|---|---|---|---|---|
""".strip()
EMPTY = '__attribute__((section("tc"))) int empty(void *packet) { return -1; }'
SENDER = """
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

static long long spent_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* turns, packets of a turn, payload, addresses: a line for each round of turns. */
int main(int argc, char **argv)
{
	int turns = atoi(argv[1]), packets = atoi(argv[2]), bytes = atoi(argv[3]);
	static char data[1500];

	for (int turn = 0; turn < turns; turn++, puts(""))
		for (int at = 4; at < argc; at++) {
			struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
			int out = socket(AF_INET, SOCK_DGRAM, 0);
			inet_aton(argv[at], &to.sin_addr);
			if (connect(out, (void *)&to, sizeof(to)))
				return 1;
			long long before = spent_ns();
			for (int i = 0; i < packets; i++)
				if (send(out, data, bytes, 0) < 0)
					return 1;
			printf("%.1f ", (double)(spent_ns() - before) / packets);
		}
	return 0;
}
"""


def inside(link: Case, law: dict[str, Any], turns: int, folder: Path) -> tuple[Rounds, float]:
    """Return the turns of a law in the namespace, and the time of its program, in ns per packet."""
    params = {key: value for key, value in law.items() if key != "kind"}
    attachments.attach("law", law["kind"], params, rate=RATE, buffer=link.buffer)
    try:
        attached = devices.attached_to("law")
        program_ns = _program_ns(attached.program, folder / "frame")
        _shape("bare", attached)
        return turns_ns(turns, folder), program_ns
    finally:
        attachments.detach("law")


def without(
    link: Case, law: dict[str, Any], turns: int, folder: Path, *, empty: bool = False
) -> Rounds:
    """Return the turns of a law's shaper next to the same shaper.

    With `empty`, the law's device also has a classifier that does nothing.
    """
    params = {key: value for key, value in law.items() if key != "kind"}
    attached = attachments.plan(
        *("law", law["kind"], params), rate=RATE, buffer=link.buffer
    ).attached
    _shape("bare", attached)
    _shape("law", attached)
    with ExitStack() as undo:
        undo.callback(sh, "tc qdisc del dev law root")
        if empty:
            file_system = undo.enter_context(tcx.file_system())
            pin = Path(f"/proc/self/fd/{file_system}/empty")
            call(
                *("bpftool", "prog", "load", f"{folder}/empty.o", str(pin), "type", "tc"),
                files=[file_system],
            )
            if tcx.offered():
                with tcx.opened(pin) as program:
                    tcx.attach(attached.ifindex, program)
                (identifier,) = tcx.attached(attached.ifindex)
                undo.callback(tcx.detach, attached.ifindex, identifier)
            else:
                sh("tc qdisc add dev law clsact")
                undo.callback(sh, "tc qdisc del dev law clsact")
                words = ["tc", "filter", "add", "dev", "law", "egress", "bpf", "direct-action"]
                call(*words, "pinned", str(pin), files=[file_system])
        return turns_ns(turns, folder)


def _shape(device: str, attached: records.Attached) -> None:
    """Install the shaper of a law on a device."""
    subprocess.run(attachments.shaper(attached, devices.device(device)), check=True)


def turns_ns(turns: int, folder: Path) -> Rounds:
    """Return the time of a packet to `bare` and of one to `law` in each turn, in nanoseconds."""
    printed = subprocess.run(
        [
            *("taskset", "-c", "0", str(folder / "sender"), str(turns), str(TURN_PKTS)),
            *(str(PAYLOAD_BYTES), "10.8.0.2", "10.8.1.2"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    rounds = ([float(word) for word in line.split()] for line in printed.splitlines())
    return [(bare, law) for bare, law in rounds]


def _row(name: str, rounds: Rounds, program: str) -> str:
    """Return a row of the table."""
    more = [law - bare for bare, law in rounds]
    # 1.2533 turns the standard error of a mean of normal values into that of a median.
    error = 1.2533 * _spread(more) / math.sqrt(len(more))
    bare, law = (statistics.quantiles(turns, n=10)[0] for turns in zip(*rounds, strict=True))
    return (
        f"| {name} | {statistics.median(bare for bare, _ in rounds):.0f} "
        f"| {statistics.median(more):.0f} ± {error:.1f} | {law - bare:.0f} | {program} |"
    )


def _spread(values: list[float]) -> float:
    """Return the standard deviation from the quartiles, which interrupted turns do not affect."""
    first, _, third = statistics.quantiles(values, n=4)
    return (third - first) / 1.349


def _program_ns(program: int, frame: Path) -> float:
    """Return the time of a program for one packet, in nanoseconds."""
    words = ["bpftool", "-j", "prog", "run", "id", str(program), "data_in", str(frame)]
    runs = [
        json.loads(sh(" ".join([*words, "repeat", str(RUN_PKTS)])))["duration"] for _ in range(12)
    ]
    return float(min(runs))


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--law", action="append", default=[])
    parser.add_argument("--turns", type=int, default=1000)
    options = parser.parse_args()
    link = case(options.scenario, [])
    laws = [law for law in link.laws if not options.law or law["kind"] in options.law]
    if INSIDE in os.environ:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "frame").write_bytes(bytes(12) + b"\x08\x00" + bytes(50))
            (folder / "sender.c").write_text(SENDER)
            sh(f"clang -O2 -o {folder}/sender {folder}/sender.c")
            print(HEAD)
            for law in laws:
                rounds, program_ns = inside(link, law, options.turns, folder)
                print(_row(law["kind"], rounds, f"{program_ns:.0f}"), flush=True)
            (folder / "empty.c").write_text(EMPTY)
            sh(f"clang -O2 -g -target bpf -c -o {folder}/empty.o {folder}/empty.c")
            print(_row("empty", without(link, laws[0], options.turns, folder, empty=True), ""))
            print(_row("none", without(link, laws[0], options.turns, folder), ""))
        return 0
    tag = f"fc{os.getpid()}"
    try:
        sh(f"ip netns add {tag}; ip netns add p{tag}")
        for number, device in enumerate(("bare", "law")):
            sh(f"""
                ip link add {device} netns {tag} type veth peer name {device} netns p{tag}
                ip -n {tag} addr add 10.8.{number}.1/24 dev {device}
                ip -n {tag} link set {device} up; ip -n p{tag} link set {device} up
                ip -n {tag} neigh add 10.8.{number}.2 lladdr 02:00:00:00:00:09 dev {device}
            """)
        words = ["nsenter", f"--net=/run/netns/{tag}", sys.executable, "-m", "bench.attach_cost"]
        done = subprocess.run([*words, *sys.argv[1:]], check=False, env=os.environ | {INSIDE: tag})
        return done.returncode
    finally:
        for name in (tag, f"p{tag}"):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
