"""Run a law in this machine's kernel for as long as a scenario lasts, in real time.

    sudo python -m bench.attach_soak bench/attach_soak.toml
    sudo python -m bench.attach_soak --faults --seconds 600

The output has the queue in intervals of ten seconds, whether the clock lost a tick, the memory of
the kernel, and what `detach` leaves. The clock runs with the packets: a tick that is due runs when
the next packet arrives. No tick is lost if the next tick is a whole number of intervals after the
start. The memory of the kernel is the machine's, with whatever else runs there. The program fails
if `detach` leaves something behind.

With `--faults` there is no scenario: laws come and go on devices of their own namespaces, while
commands are killed, devices and namespaces renamed, moved and deleted, disks filled and records
damaged (`attach_faults.py`).
"""

from __future__ import annotations

import argparse
import os
import random
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench import attach, attach_faults
from bench.attach import INSIDE, Case
from forebay.linux import attachments, devices, records
from forebay.linux.law_statistics import LawCounts, counts_of
from forebay.linux.programs import answer

LOOK_S = 10.0
#: Keys of /proc/meminfo for the memory of maps, programs, packets and timers.
MEMORY = ("SUnreclaim", "Percpu", "VmallocUsed")


@dataclass(frozen=True)
class Look:
    """The state of a law at one time.

    Attributes
    ----------
    time_s : float
        Time on the monotonic clock.
    counts : LawCounts
        Counters of the law.
    next_ns : int
        Distance of the clock's next tick from its start.
    ticks : int
        Number of ticks.
    memory_kb : dict[str, int]
        Memory of the kernel by kind.
    own_bytes : int
        Memory of the law's maps and program.
    """

    time_s: float
    counts: LawCounts
    next_ns: int
    ticks: int
    memory_kb: dict[str, int]
    own_bytes: int


def look() -> Look:
    """Return the present state of the law."""
    attached = devices.attached_to("eth0")
    running_map = str(attached.maps["running"])
    (running,) = answer("bpftool", "-j", "map", "dump", "id", running_map)
    state = running["formatted"]["value"]
    maps = attached.maps.values()
    own = [answer("bpftool", "-j", "map", "show", "id", str(map_id)) for map_id in maps]
    own.append(answer("bpftool", "-j", "prog", "show", "id", str(attached.program)))
    memory = dict(re.findall(r"^(\w+): +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE))
    return Look(
        time.monotonic(),
        counts_of("eth0"),
        state["next_ns"] - state["start_ns"],
        state["ticks"],
        {name: int(memory[name]) for name in MEMORY},
        sum(entry["bytes_memlock"] for entry in own),
    )


def inside(link: Case, tag: str) -> list[Look]:
    """Run the law in the router's namespace, and return its states.

    Raises
    ------
    RuntimeError
        If `detach` leaves something behind.
    """
    (law,) = link.laws
    before = attach.traces([])
    params = {key: value for key, value in law.items() if key != "kind"}
    attachments.attach("eth0", law["kind"], params, rate=link.rate, buffer=link.buffer)
    own_objects: list[str] = []
    try:
        own_objects = attach.objects(devices.attached_to("eth0"))
        begin_s = time.monotonic() + link.start_s[0]
        starts_s = link.starts_s(link.flows, begin_s, random.Random(1))
        with attach.traffic(link, tag, starts_s):
            # The flows have not settled during the first interval.
            time.sleep(link.start_s[0] + LOOK_S)
            looks = [look()]
            while looks[-1].time_s + LOOK_S <= begin_s + link.measure_s[1] - link.start_s[0]:
                time.sleep(looks[0].time_s + len(looks) * LOOK_S - time.monotonic())
                looks.append(look())
    finally:
        attachments.detach("eth0")
        time.sleep(1)
    after = attach.traces(own_objects)
    if not own_objects or after != before or records.RUN.exists():
        raise RuntimeError(f"before attach:\n{before}\nafter detach:\n{after}")
    return looks


def report_lines(link: Case, looks: list[Look]) -> list[str]:
    """Return the lines of the output."""
    first, last = looks[0], looks[-1]
    windows = [
        attach.between(a.counts, b.counts, b.time_s - a.time_s, link.packet_bytes)
        for a, b in pairwise(looks)
    ]
    whole = attach.between(first.counts, last.counts, last.time_s - first.time_s, link.packet_bytes)
    packet_s = 8 * link.packet_bytes / link.rate_bps
    means = [window.delay_s / packet_s for window in windows]
    interval_ns = round(
        attach._native.quantity("interval", str(link.laws[0]["interval"]), "time") * 1e9
    )
    ticks, off = divmod(last.next_ns, interval_ns)
    return [
        f"seconds measured: {last.time_s - first.time_s:.0f}",
        f"backlog: {whole.delay_s / packet_s:.1f} ± {whole.deviation_s / packet_s:.1f} packets",
        f"means of {LOOK_S:g} s: {min(means):.1f} to {max(means):.1f}, "
        f"median {statistics.median(means):.1f}",
        f"utilisation: {100 * whole.utilisation:.2f} %, signals: {100 * whole.signals:.3f} %",
        f"clock: late {whole.late_mean_s * 1e6:.0f} us on average, {whole.late_max_s * 1e3:.1f} ms "
        f"at most; {ticks} ticks, "
        + ("none lost" if off == 0 and ticks == last.ticks + 1 else "some lost"),
        f"the law's memory: {first.own_bytes} to {last.own_bytes} bytes",
        *(f"{name}: {first.memory_kb[name]} to {last.memory_kb[name]} kB" for name in MEMORY),
        "nothing left after detach",
    ]


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario", type=Path, nargs="?")
    parser.add_argument("--faults", action="store_true", help="inject faults; needs no scenario")
    parser.add_argument(
        "--seconds", type=float, default=600, help="duration of the soak test with --faults"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the faults")
    arguments = parser.parse_args()
    if arguments.faults == (arguments.scenario is not None):
        parser.error("give a scenario, or --faults without one")
    if arguments.faults:
        return attach_faults.soak(arguments.seconds, arguments.seed)
    link = attach.case(arguments.scenario, [])
    if INSIDE in os.environ:
        for line in report_lines(link, inside(link, os.environ[INSIDE])):
            print(line, flush=True)
        return 0
    tag = f"fs{os.getpid()}"
    words = ["nsenter", f"--net=/run/netns/r{tag}", sys.executable, "-m", "bench.attach_soak"]
    with attach.flows_program() as flows, attach.namespaces(link, tag, large=False):
        mine = {INSIDE: tag, attach.FLOWS: str(flows)}
        done = subprocess.run([*words, *sys.argv[1:]], check=False, env=os.environ | mine)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
