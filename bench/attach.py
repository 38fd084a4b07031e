"""Compares attached laws with the simulator: the tables of docs/evidence/kernel.md.

    python -m bench.attach bench/attach.toml --virtual --front qdisc     # in a virtual machine
    sudo python -m bench.attach bench/attach.toml --law pi --set traffic.0.rtt=100us   # real time

A scenario of one group of long flows is simulated, and run through three network namespaces, with
the law on the router's device; `long_flows.c` starts each flow when the scenario says. A run in
real time is void where the law's clock was late by more than a millisecond on average or 50 ms
once: the machine was busy. One `[[at]]` may change the rate or the number of flows, after which the
queue's settling is measured. Needs a C compiler, and netem for an RTT above the path's own, 0.1 ms.
`bench.attach_table` runs the points of a sweep.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay import _native
from forebay.linux import attachments, devices, programs, records, tcx
from forebay.linux.law_statistics import LawCounts, counts_of
from forebay.linux.namespaces import cookie
from forebay.linux.programs import answer
from tools import virtual_machine
from tools.routed_path import RECEIVER, routed_path, sh

if TYPE_CHECKING:
    import forebay

#: What a clock may be late by, on average and once.
LATE_MEAN_S, LATE_MAX_S = 1e-3, 50e-3
#: Ethernet's header, which counts for the queue, and not for the MTU.
HEADER_BYTES = 14
#: The path's own RTT, the least that is simulated: up to it nothing delays the answers.
PATH_S, PATH_RTT = 100e-6, "100us"
#: How often the queue is looked at after a change.
LOOK_S = 0.5
PORT = 5201
INSIDE = "FOREBAY_BENCH_INSIDE"
#: Laws that are compiled already: a compiler in a virtual machine takes longer than the traffic.
BUILT = "FOREBAY_BENCH_BUILT"
#: The program that makes the flows, compiled.
FLOWS = "FOREBAY_BENCH_FLOWS"


@dataclass(frozen=True)
class Step:
    """A change of rate or load during a run; None for what does not change."""

    time_s: float
    rate: str | None
    flows: int | None


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
    #: first and last
    start_s: tuple[float, float]
    measure_s: tuple[float, float]
    step: Step | None
    laws: list[dict[str, Any]]

    def starts_s(self, flows: int, at_s: float, drawn: random.Random) -> list[float]:
        """Draw the start times of flows, the earliest of which is possible at `at_s`."""
        first_s, last_s = self.start_s
        return [at_s + drawn.uniform(0, last_s - first_s) for _ in range(flows)]


@dataclass(frozen=True)
class Measured:
    """The results of a law; means over runs."""

    law: str
    delay_s: float
    deviation_s: float
    signals: float
    drops: float
    utilisation: float
    late_mean_s: float = 0.0
    late_max_s: float = 0.0
    #: After a step: when the queue settles, and the largest mean of a second.
    settling_s: float | None = None
    peak_pkts: float | None = None

    @property
    def void(self) -> bool:
        return self.late_mean_s > LATE_MEAN_S or self.late_max_s > LATE_MAX_S


def case(path: Path, overrides: list[str]) -> Case:
    """sets: as --set of `forebay run`, of the traffic and the bottleneck."""
    text = tomllib.loads(path.read_text())
    (traffic,) = text["traffic"]
    for one in overrides:
        key, _, value = one.partition("=")
        table, *_, name = key.split(".")
        of = traffic if table == "traffic" else text[table]
        of[name] = {"true": True, "false": False}.get(value, value)
    link = text["bottleneck"]

    def seconds(value: Any) -> float:
        return _native.quantity("time", str(value), "time")

    begins = traffic.get("start", "0s")
    first, last = begins["uniform"] if isinstance(begins, dict) else (begins, begins)
    step = None
    for one in text.get("at", []):
        assert step is None, "one step a run"
        step = Step(
            seconds(one["time"]),
            one["set"].get("bottleneck.rate"),
            one["set"].get("traffic.0.flows"),
        )
    return Case(
        rate=link["rate"],
        rate_bps=_native.quantity("rate", link["rate"], "rate"),
        buffer=link["buffer"],
        flows=int(traffic["flows"]),
        tcp=traffic["tcp"].removeprefix("linux-"),
        rtt_s=seconds(traffic["rtt"]),
        packet_bytes=round(_native.quantity("packet", traffic["packet"], "size")),
        ecn=bool(traffic.get("ecn", False)),
        start_s=(seconds(first), seconds(last)),
        measure_s=(seconds(text["measure"][0]), seconds(text["measure"][1])),
        step=step,
        laws=text["law"],
    )


def simulated(given: argparse.Namespace) -> dict[str, list[Measured]]:
    """Return the simulated results by law, one for each run."""
    import forebay  # not in a virtual machine, where it takes seconds

    made: dict[str, list[Measured]] = {}
    link = case(given.scenario, given.set)
    # As the namespaces are: AVQ's queue is twice as long at 0.1 ms as at 1 ms.
    own = [f"traffic.0.rtt={PATH_RTT}"] if link.rtt_s <= PATH_S else []
    out = forebay.run(given.scenario, overrides=[*given.set, *own], seeds=given.seeds, threads=1)
    rate_bps = link.rate_bps
    if link.step is not None and link.step.rate is not None:
        rate_bps = _native.quantity("rate", link.step.rate, "rate")
    packet_s = 8 * link.packet_bytes / rate_bps
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
        if link.step is not None:
            made[row["law"]][-1] = stepped(made[row["law"]][-1], _simulated_looks(out, row, link))
    return made


def _simulated_looks(out: forebay.Result, row: dict[str, Any], link: Case) -> list[float]:
    import polars as pl

    begin_s, end_s = link.measure_s
    looks = (
        out.samples.filter(
            (pl.col("law") == row["law"])
            & (pl.col("seed") == row["seed"])
            & pl.col("time_s").is_between(begin_s, end_s, closed="left")
        )
        .group_by(((pl.col("time_s") - begin_s) / LOOK_S).floor().alias("look"))
        .agg(pl.col("queue_pkts").mean())
        .sort("look")
    )
    return [float(mean) for mean in looks["queue_pkts"]]


def stepped(one: Measured, looks: Sequence[float]) -> Measured:
    """Return a result with its settling time and peak, from mean queues over each `LOOK_S`.

    docs/reference/metrics.md defines the settling time.
    """
    seconds = [statistics.mean(pair) for pair in pairwise(looks)]
    rest = statistics.mean(seconds[len(seconds) // 2 :])
    near = max(rest / 4, 5.0)
    away = [number for number, mean in enumerate(seconds, 1) if abs(mean - rest) > near]
    return replace(one, settling_s=LOOK_S * max(away, default=0), peak_pkts=max(seconds))


@contextmanager
def namespaces(link: Case, tag: str, *, large: bool) -> Iterator[None]:
    """A sender, a router whose `eth0` is the bottleneck, and a receiver, whose answers are late by
    the RTT. Segments leave the sender one by one, unless they may be `large`."""
    mtu = link.packet_bytes - HEADER_BYTES
    most = "" if large else "gso_max_segs 1"
    netem = f"netem limit 1000000 delay {link.rtt_s * 1e6:.0f}us"
    with routed_path(tag) as (s, r, d):
        sh(f"""
            ip -n {s} link set eth0 mtu {mtu} {most}; ip -n {r} link set eth1 mtu {mtu}
            ip -n {r} link set eth0 mtu {mtu} {most}; ip -n {d} link set eth0 mtu {mtu}
            for n in {s} {d}; do
                nsenter --net=/run/netns/$n sh -c 'cd /proc/sys/net/ipv4
                    echo {int(link.ecn)} > tcp_ecn; echo 1 > tcp_no_metrics_save
                    echo 4096 131072 67108864 > tcp_rmem; echo 4096 16384 67108864 > tcp_wmem'
            done
            {f"tc -n {d} qdisc add dev eth0 root {netem}" if link.rtt_s > PATH_S else ":"}
        """)
        yield


def attached(link: Case, law: dict[str, Any], front: str, tag: str, seed: int) -> Measured:
    """A run; in the router's namespace. Raises `RuntimeError` where `detach` leaves something."""
    before = traces([])
    params = {key: value for key, value in law.items() if key != "kind"}
    attachments.attach(
        *("eth0", law["kind"], params),
        rate=link.rate,
        buffer=link.buffer,
        ecn=link.ecn,
        front=front,
    )
    mine: list[str] = []
    try:
        mine = objects(devices.attached_to("eth0"))
        measured, looks = _watched(link, tag, random.Random(seed))
    finally:
        attachments.detach("eth0")
        time.sleep(link.rtt_s + 1)
    left = traces(mine)
    if not mine or left != before:
        raise RuntimeError(f"before attach:\n{before}\nafter detach:\n{left}")
    return measured if link.step is None else stepped(measured, looks)


def objects(attached: records.Attached | None = None) -> list[str]:
    """Return the kernel's BPF programs and maps, or those of a law."""
    if attached is not None:
        return [f"prog {attached.program}", *(f"map {map_id}" for map_id in attached.maps.values())]
    return [
        f"{kind} {entry['id']}"
        for kind in ("prog", "map")
        for entry in answer("bpftool", "-j", kind, "show") or []
    ]


def traces(mine: list[str]) -> str:
    """Return what a law has left on this device: qdiscs, filters, files, and those of its programs
    and maps that still exist."""
    there = set(objects()) if mine else set()
    return "\n".join(
        [
            *(one for one in mine if one in there),
            *(map(str, tcx.attached(socket.if_nametoindex("eth0"))) if tcx.offered() else ()),
            sh(f"""
            tc qdisc show dev eth0; tc filter show dev eth0 egress
            find /run/forebay -name "*@{cookie()}*" 2> /dev/null || true
        """),
        ]
    )


def _watched(link: Case, tag: str, drawn: random.Random) -> tuple[Measured, list[float]]:
    """The traffic of a run, and the queue's means after its step."""
    zero_s = time.monotonic()
    with ExitStack() as running:

        def begin(flows: int, at_s: float, port: int) -> None:
            starts_s = link.starts_s(flows, zero_s + at_s, drawn)
            running.enter_context(traffic(link, tag, starts_s, port))

        begin(link.flows, link.start_s[0], PORT)
        if link.step is not None:
            if link.step.flows is not None:
                begin(link.step.flows - link.flows, link.step.time_s, PORT + 1)
            _sleep_until(zero_s + link.step.time_s)
            if link.step.rate is not None:
                attachments.change("eth0", {"rate": link.step.rate})
        begin_s, end_s = (zero_s + time_s for time_s in link.measure_s)
        _sleep_until(begin_s)
        first_s, first = time.monotonic(), counts_of("eth0")
        looks = [first]
        while link.step is not None and time.monotonic() + LOOK_S < end_s:
            _sleep_until(first_s + LOOK_S * len(looks))
            looks.append(counts_of("eth0"))
        _sleep_until(end_s)
        last_s, last = time.monotonic(), counts_of("eth0")
    packet_s = 8 * link.packet_bytes / last.rate_bps
    looked = (between(a, b, LOOK_S, link.packet_bytes) for a, b in pairwise(looks))
    return (
        between(first, last, last_s - first_s, link.packet_bytes),
        [one.delay_s / packet_s for one in looked],
    )


@contextmanager
def traffic(link: Case, tag: str, starts_s: Sequence[float], port: int = PORT) -> Iterator[None]:
    """A flow from each of these times of the monotonic clock. Raises `RuntimeError` where they
    ended by themselves."""
    inside = [["nsenter", f"--net=/run/netns/{name}{tag}", os.environ[FLOWS]] for name in "ds"]
    server = subprocess.Popen([*inside[0], "serve", str(port), str(len(starts_s))])
    base_s = min(starts_s)
    client = subprocess.Popen(
        [*inside[1], "send", RECEIVER, str(port), link.tcp, str(round(1e9 * base_s))],
        stdin=subprocess.PIPE,
        text=True,
    )
    try:
        assert client.stdin is not None
        with client.stdin as offsets:
            offsets.writelines(f"{round(1e9 * (at_s - base_s))}\n" for at_s in sorted(starts_s))
        yield
        if client.poll() is not None:
            raise RuntimeError("the flows ended before the measurement did")
    finally:
        for process in (client, server):
            process.kill()
            process.wait()


@contextmanager
def flows_program() -> Iterator[Path]:
    """Compiled for this machine."""
    with tempfile.TemporaryDirectory(prefix="forebay-flows-") as folder:
        built = Path(folder, "long_flows")
        source = Path(__file__).with_name("long_flows.c")
        subprocess.run(["cc", "-O2", "-o", str(built), str(source)], check=True)
        yield built


def _sleep_until(then_s: float) -> None:
    time.sleep(max(0.0, then_s - time.monotonic()))


def between(first: LawCounts, last: LawCounts, span_s: float, packet_bytes: int) -> Measured:
    """Return the results over a window from the counters at its ends."""

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
    """Run each law in the router's namespace, and print a line of JSON for each."""
    link, tag = case(path, given.set), os.environ[INSIDE]
    if BUILT in os.environ:
        built = Path(os.environ[BUILT])
        programs.compile_law = lambda law, *_: (built / f"{law}.o").read_bytes()
    # Programs that are not in memory yet would begin late, and a virtual machine's clock jump.
    with traffic(link, tag, [time.monotonic() + 0.2] * link.flows):
        time.sleep(1 + 2 * link.rtt_s)
    for law in link.laws:
        if given.law and law["kind"] not in given.law:
            continue
        for seed in range(given.first_seed, given.first_seed + given.repeats):
            one = attached(link, law, given.front, tag, seed)
            print("@@" + json.dumps(asdict(one)), flush=True)


def lines(printed: str) -> dict[str, list[Measured]]:
    made: dict[str, list[Measured]] = {}
    for line in re.findall(r"^@@(\{.*\})\r?$", printed, re.MULTILINE):
        one = Measured(**json.loads(line))
        made.setdefault(one.law, []).append(one)
    return made


def real(path: Path, given: argparse.Namespace) -> str:
    """Return the output of `inside`, run in this machine's kernel."""
    tag = f"fb{os.getpid()}"
    with namespaces(case(path, given.set), tag, large=given.large), ExitStack() as built:
        flows = os.environ.get(FLOWS) or built.enter_context(flows_program())
        done = subprocess.run(
            [
                *("nsenter", f"--net=/run/netns/r{tag}", sys.executable, "-m", "bench.attach"),
                *sys.argv[1:],
            ],
            # A run that is cut off has given what it had.
            stdout=None if given.raw else subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {INSIDE: tag, FLOWS: str(flows)},
        )
    return done.stdout or ""


def virtual(given: argparse.Namespace) -> str:
    """The same in a virtual machine; `given.out` has each line as soon as it is there."""
    words = [word for word in sys.argv[1:] if word != "--virtual"]
    command = shlex.join([sys.executable, "-m", "bench.attach", *words, "--raw"])
    given.out.mkdir(parents=True, exist_ok=True)
    log = given.out / (re.sub(r"[^\w.=-]+", "_", "_".join(words)) + ".log")
    if given.front == programs.CLASSIFIER:
        (given.out / "built").mkdir(exist_ok=True)
        for law in case(given.scenario, given.set).laws:
            compiled = programs.compile_law(law["kind"], given.front, "")
            (given.out / "built" / f"{law['kind']}.o").write_bytes(compiled)
        command = f"{BUILT}=$OUT/built {command}"
    with flows_program() as built:
        shutil.copy(built, given.out)
    command = f"{FLOWS}=$OUT/{built.name} {command}"
    try:
        virtual_machine.run(f"{command} > $OUT/{log.name} 2>&1", given.limit, given.out)
    finally:
        printed = log.read_text() if log.exists() else ""
    if not lines(printed):
        raise virtual_machine.MachineError(printed[-2000:])
    return printed


def table(theirs: dict[str, list[Measured]], ours: dict[str, list[Measured]]) -> Iterator[str]:
    """Yield the lines of the table: each law simulated, and in the kernel."""
    # A virtual machine lacks what this needs.
    from forebay.comparison.compare import Agreement, Tolerance, prediction_half_width

    tolerances = (
        Tolerance("delay_s", "delay", share=0.05, least=0.5e-3, scale=1e3, digits=2),
        Tolerance("deviation_s", "deviation", share=0.1, scale=1e3, digits=2),
        Tolerance("signals", "signals", share=0.1, scale=100, digits=3),
    )
    heads = [
        *("law", "delay, simulated [ms]", "in the kernel", "deviation, simulated [ms]"),
        *("in the kernel", "signals, simulated [%]", "in the kernel", "utilisation [%]", "beyond"),
    ]
    if any(one.settling_s is not None for runs in theirs.values() for one in runs):
        heads += ["settling and largest second, simulated", "in the kernel"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for law, runs in theirs.items():
        sound = [one for one in runs if not one.void]
        if not sound:
            worst = max(one.late_max_s for one in runs)
            yield f"| {law} | void: a clock {1e3 * worst:.0f} ms late {'| ' * (len(heads) - 1)}"
            continue
        cells, beyond = [law], []
        for rule in tolerances:
            measured, simulated = (
                [getattr(run, rule.metric) for run in side] for side in (sound, ours[law])
            )
            figure = Agreement(rule, measured, simulated)
            if not figure.agrees:
                chance = prediction_half_width(figure.reference, len(sound))
                note = " (chance)" if abs(figure.difference) <= chance else ""
                beyond.append(f"{rule.title}{note}")
            cells += figure.text.split(" → ")
        use = statistics.mean(one.utilisation for one in sound)
        cells += [f"{100 * use:.1f}", ", ".join(beyond)]
        if sound[0].settling_s is not None:
            cells += [
                "; ".join(
                    f"{one.settling_s:.1f} s, {one.peak_pkts:.0f} packets"
                    for one in sorted(of, key=lambda one: one.settling_s or 0.0)
                )
                for of in (ours[law], sound)
            ]
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
    parser.add_argument("--first-seed", type=int, default=1, help="of the flows' starts")
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
