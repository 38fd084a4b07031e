"""Laws that `forebay attach` puts into a kernel, beside the simulator: the table of docs/kernel.md.

    python -m bench.attach bench/attach.toml --virtual --front qdisc     # in a virtual machine
    sudo python -m bench.attach bench/attach.toml --law pi --set traffic.0.rtt=1ms   # real time

A scenario of one group of long flows is simulated, and run by iperf3 through three network
namespaces, with the law on the router's device. A run in real time is void where the law's clock
was late by more than a millisecond on average or 50 ms once: the machine was busy. Needs iperf3,
and netem for an RTT above a millisecond; up to that, both have the path's own, 0.1 ms.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import forebay
from forebay import _native
from forebay.kernel import attachments
from forebay.kernel.statistics import LawCounts, seen
from tools import virtual_machine

#: Of the issue: the mean delay within a share or a time, the others within a share.
DELAY_SHARE, DELAY_S, OTHER_SHARE = 0.05, 0.5e-3, 0.1
#: What a clock may be late by, on average and once.
LATE_MEAN_S, LATE_MAX_S = 1e-3, 50e-3
#: Ethernet's header, which counts for the queue, and not for the MTU.
HEADER_BYTES = 14
#: Before and after the measurement.
LEAD_S = 3.0
#: Up to this RTT nothing delays the answers, and the path has its own.
UNDELAYED_S, PATH_RTT = 1.5e-3, "100us"
INSIDE = "FOREBAY_BENCH_INSIDE"


@dataclass(frozen=True)
class Case:
    """A scenario, as far as namespaces can run it."""

    rate: str
    rate_bps: float
    buffer: str
    flows: int
    tcp: str
    rtt_s: float
    packet_bytes: int
    ecn: bool
    start_s: float
    measure_s: tuple[float, float]
    laws: list[dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """What a law did; means of runs."""

    law: str
    delay_s: float
    deviation_s: float
    signals: float
    drops: float
    utilisation: float
    late_mean_s: float = 0.0
    late_max_s: float = 0.0

    @property
    def void(self) -> bool:
        return self.late_mean_s > LATE_MEAN_S or self.late_max_s > LATE_MAX_S


def case(path: Path, sets: list[str]) -> Case:
    """sets: as --set of `forebay run`, of the traffic and the bottleneck."""
    text = tomllib.loads(path.read_text())
    (traffic,) = text["traffic"]
    for one in sets:
        key, _, value = one.partition("=")
        table, *_, name = key.split(".")
        of = traffic if table == "traffic" else text[table]
        of[name] = {"true": True, "false": False}.get(value, value)
    link = text["bottleneck"]

    def seconds(value: Any) -> float:
        return _native.quantity("time", str(value), "time")

    begins = traffic.get("start", "0s")
    start = begins["uniform"][0] if isinstance(begins, dict) else begins
    return Case(
        rate=link["rate"],
        rate_bps=_native.quantity("rate", link["rate"], "rate"),
        buffer=link["buffer"],
        flows=int(traffic["flows"]),
        tcp=traffic["tcp"].removeprefix("linux-"),
        rtt_s=seconds(traffic["rtt"]),
        packet_bytes=round(_native.quantity("packet", traffic["packet"], "size")),
        ecn=bool(traffic.get("ecn", False)),
        start_s=seconds(start),
        measure_s=(seconds(text["measure"][0]), seconds(text["measure"][1])),
        laws=text["law"],
    )


def simulated(given: argparse.Namespace) -> dict[str, list[Measured]]:
    """By law, a run each."""
    made: dict[str, list[Measured]] = {}
    link = case(given.scenario, given.set)
    # As the namespaces are: AVQ's queue is twice as long at 0.1 ms as at 1 ms.
    own = [f"traffic.0.rtt={PATH_RTT}"] if link.rtt_s <= UNDELAYED_S else []
    out = forebay.run(given.scenario, sets=[*given.set, *own], seeds=given.seeds, threads=1)
    packet_s = 8 * link.packet_bytes / link.rate_bps
    for row in out.metrics.iter_rows(named=True):
        made.setdefault(row["law"], []).append(
            Measured(
                law=row["law"],
                delay_s=row["queue_mean_pkts"] * packet_s,
                deviation_s=row["queue_std_pkts"] * packet_s,
                signals=row["mark_rate"] + row["drop_rate"],
                drops=row["drop_rate"],
                utilisation=row["utilisation"],
            )
        )
    return made


def sh(line: str) -> str:
    # Without a timeout: a virtual machine that waits for a file may jump to its end.
    return subprocess.run(["sh", "-euc", line], capture_output=True, text=True, check=True).stdout


@contextmanager
def namespaces(link: Case, tag: str, *, large: bool) -> Iterator[None]:
    """A sender, a router whose `eth0` is the bottleneck, and a receiver, whose answers are late by
    the RTT. Segments leave the sender one by one, unless they may be `large`."""
    s, r, d = (f"{name}{tag}" for name in "srd")
    mtu = link.packet_bytes - HEADER_BYTES
    most = "" if large else "gso_max_segs 1"
    late = f"tc -n {d} qdisc add dev eth0 root netem limit 1000000 delay {link.rtt_s * 1e6:.0f}us"
    try:
        sh(f"""
            for n in {s} {r} {d}; do ip netns add $n; ip -n $n link set lo up; done
            ip link add eth0 netns {s} type veth peer name eth1 netns {r}
            ip link add eth0 netns {r} type veth peer name eth0 netns {d}
            ip -n {s} addr add 10.9.1.2/24 dev eth0; ip -n {r} addr add 10.9.1.1/24 dev eth1
            ip -n {r} addr add 10.9.2.1/24 dev eth0; ip -n {d} addr add 10.9.2.2/24 dev eth0
            ip -n {s} link set eth0 mtu {mtu} {most}; ip -n {r} link set eth1 mtu {mtu}
            ip -n {r} link set eth0 mtu {mtu} {most}; ip -n {d} link set eth0 mtu {mtu}
            ip -n {s} link set eth0 up; ip -n {r} link set eth1 up
            ip -n {r} link set eth0 up; ip -n {d} link set eth0 up
            ip -n {s} route add default via 10.9.1.1; ip -n {d} route add default via 10.9.2.1
            nsenter --net=/run/netns/{r} sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
            for n in {s} {d}; do
                nsenter --net=/run/netns/$n sh -c 'cd /proc/sys/net/ipv4
                    echo {int(link.ecn)} > tcp_ecn; echo 1 > tcp_no_metrics_save
                    echo 4096 131072 67108864 > tcp_rmem; echo 4096 16384 67108864 > tcp_wmem'
            done
            {late if link.rtt_s > UNDELAYED_S else ":"}
        """)
        yield
    finally:
        for name in (s, r, d):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def attached(link: Case, law: dict[str, Any], front: str, tag: str) -> Measured:
    """A run; in the router's namespace."""
    params = {key: value for key, value in law.items() if key != "kind"}
    length_s = link.measure_s[1] - link.start_s
    attachments.attach(
        *("eth0", law["kind"], params),
        rate=link.rate,
        buffer=link.buffer,
        ecn=link.ecn,
        front=front,
    )
    try:
        with traffic(link, tag, length_s + LEAD_S) as began_s:
            _sleep_until(began_s + link.measure_s[0] - link.start_s)
            first, first_s = seen("eth0"), time.monotonic()
            _sleep_until(began_s + length_s)
            last, last_s = seen("eth0"), time.monotonic()
        return between(first, last, last_s - first_s, link.packet_bytes)
    finally:
        attachments.detach("eth0")
        time.sleep(link.rtt_s + 1)


@contextmanager
def traffic(link: Case, tag: str, length_s: float) -> Iterator[float]:
    """The flows, for so long at most; gives when they began. Raises `RuntimeError` where they ended
    by themselves."""
    ends = [["nsenter", f"--net=/run/netns/{name}{tag}", "iperf3"] for name in "ds"]
    server = subprocess.Popen([*ends[0], "-s", "-1"], stdout=subprocess.DEVNULL)
    time.sleep(link.start_s)
    began_s = time.monotonic()
    client = subprocess.Popen(
        [
            *(*ends[1], "-c", "10.9.2.2", "-P", str(link.flows), "-C", link.tcp),
            *("-t", str(math.ceil(length_s)), "-J"),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield began_s
        if client.poll() is not None:
            raise RuntimeError("iperf3 ended before the measurement did")
    finally:
        for process in (client, server):
            process.kill()
            process.wait()


def _sleep_until(then_s: float) -> None:
    time.sleep(max(0.0, then_s - time.monotonic()))


def between(first: LawCounts, last: LawCounts, span_s: float, packet_bytes: int) -> Measured:
    """Of a window, from what was seen at its ends."""

    def sums(one: LawCounts) -> tuple[float, float, float, float]:
        ticks, mean, std = one.ticks, one.queue_mean_pkts, one.queue_std_pkts
        assert ticks is not None and mean is not None and std is not None
        assert one.late_mean_s is not None
        return ticks, ticks * mean, ticks * (mean**2 + std**2), ticks * one.late_mean_s

    def more(name: str) -> float:
        return float(getattr(last, name)) - float(getattr(first, name))

    ticks, total, squares, late = (b - a for a, b in zip(sums(first), sums(last), strict=True))
    packet_s = 8 * packet_bytes / last.rate_bps
    mean = total / ticks
    drops = more("dropped_packets") + more("overflows")
    return Measured(
        law=last.law,
        delay_s=mean * packet_s,
        deviation_s=math.sqrt(max(0.0, squares / ticks - mean**2)) * packet_s,
        signals=(drops + more("marked_packets")) / more("packets"),
        drops=drops / more("packets"),
        utilisation=8 * more("sent_bytes") / span_s / last.rate_bps,
        late_mean_s=late / ticks,
        late_max_s=last.late_max_s or 0.0,
    )


def inside(path: Path, given: argparse.Namespace) -> None:
    """In the router's namespace: each law in turn, a line of JSON each."""
    link, tag = case(path, given.set), os.environ[INSIDE]
    # Programs that are not in memory yet would begin late, and a virtual machine's clock jump.
    with traffic(link, tag, 10.0):
        time.sleep(2)
    for law in link.laws:
        if given.law and law["kind"] not in given.law:
            continue
        for _ in range(given.repeats):
            print("@@" + json.dumps(asdict(attached(link, law, given.front, tag))), flush=True)


def lines(printed: str) -> dict[str, list[Measured]]:
    made: dict[str, list[Measured]] = {}
    for line in re.findall(r"^@@(\{.*\})\r?$", printed, re.MULTILINE):
        one = Measured(**json.loads(line))
        made.setdefault(one.law, []).append(one)
    return made


def real(path: Path, given: argparse.Namespace) -> str:
    """What `inside` printed, in this machine's kernel."""
    tag = f"fb{os.getpid()}"
    with namespaces(case(path, given.set), tag, large=given.large):
        done = subprocess.run(
            [
                *("nsenter", f"--net=/run/netns/r{tag}", sys.executable, "-m", "bench.attach"),
                *sys.argv[1:],
            ],
            # A run that is cut off has given what it had.
            stdout=None if given.raw else subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {INSIDE: tag},
        )
    return done.stdout or ""


def virtual(given: argparse.Namespace) -> str:
    """The same in a virtual machine; `given.out` has each line as soon as it is there."""
    words = [word for word in sys.argv[1:] if word != "--virtual"]
    command = shlex.join([sys.executable, "-m", "bench.attach", *words, "--raw"])
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / (re.sub(r"[^\w.=-]+", "_", "_".join(words)) + ".log")
    try:
        virtual_machine.run(f"{command} > $OUT/{log.name} 2>&1", given.limit, given.out)
    finally:
        printed = log.read_text() if log.exists() else ""
    if not lines(printed):
        raise virtual_machine.MachineError(printed[-2000:])
    return printed


def table(theirs: dict[str, list[Measured]], ours: dict[str, list[Measured]]) -> Iterator[str]:
    yield (
        "| law | delay, simulated [ms] | in the kernel | deviation, simulated [ms] | in the kernel "
        "| signals, simulated [%] | in the kernel | utilisation [%] | beyond |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for law, runs in theirs.items():
        sound = [one for one in runs if not one.void]
        if not sound:
            worst = max(one.late_max_s for one in runs)
            yield f"| {law} | void: a clock {1e3 * worst:.0f} ms late | | | | | | | |"
            continue

        def mean(of: list[Measured], name: str) -> float:
            return float(statistics.mean(getattr(one, name) for one in of))

        cells, beyond = [law], []
        for name, scale, digits in (
            ("delay_s", 1e3, 2),
            ("deviation_s", 1e3, 2),
            ("signals", 100, 3),
        ):
            told, here = mean(ours[law], name), mean(sound, name)
            allowed = OTHER_SHARE * told
            if name == "delay_s":
                allowed = max(DELAY_SHARE * told, DELAY_S)
            if abs(here - told) > allowed:
                beyond.append(name.partition("_")[0])
            cells += [f"{scale * told:.{digits}f}", f"{scale * here:.{digits}f}"]
        cells += [f"{100 * mean(sound, 'utilisation'):.1f}", ", ".join(beyond)]
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--raw", action="store_true", help="only the kernel's runs, as JSON")
    parser.add_argument("--front", default="classifier")
    parser.add_argument("--law", action="append", default=[])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--large", action="store_true", help="leave large segments whole")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--limit", type=float, default=1800)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir(), "forebay-attach"))
    given = parser.parse_args()
    if INSIDE in os.environ:
        inside(given.scenario, given)
        return 0
    printed = virtual(given) if given.virtual else real(given.scenario, given)
    if given.raw:
        print(printed, end="")
        return 0
    measured = lines(printed)
    for line in table(measured, simulated(given)):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
