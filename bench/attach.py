"""Run laws in a kernel and simulate them: the tables of docs/evidence/kernel.md.

    python -m bench.attach bench/attach.toml --virtual --front qdisc     # in a virtual machine
    sudo python -m bench.attach bench/attach.toml --law pi --set traffic.0.rtt=100us   # real time

A scenario of one group of long flows is simulated, and run through three network namespaces with
the law of `forebay attach` on the router's device; `long_flows.c` starts each flow when the
scenario says. A run in real time is void if the law's clock was late by more than a millisecond on
average or 50 ms once: the machine was busy. One `[[at]]` may change the rate or the number of
flows, after which the settling time of the queue is measured. A C compiler is needed, and netem for
an RTT above the path's own, 0.1 ms. `bench.attach_table` runs the points of a sweep.
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

#: Largest lateness of a clock in seconds, on average and once.
LATE_MEAN_S, LATE_MAX_S = 1e-3, 50e-3
#: The Ethernet header, which counts for the queue but not for the MTU.
HEADER_BYTES = 14
#: The RTT of the path without netem, which is the smallest that is simulated.
PATH_S, PATH_RTT = 100e-6, "100us"
#: Time in seconds between two samples of the queue after a change.
LOOK_S = 0.5
PORT = 5201
INSIDE = "FOREBAY_BENCH_INSIDE"
#: Variable with a folder of compiled laws: compiling in a virtual machine takes very long.
BUILT = "FOREBAY_BENCH_BUILT"
#: Variable with the path of the compiled program that makes the flows.
FLOWS = "FOREBAY_BENCH_FLOWS"


@dataclass(frozen=True)
class Step:
    """A change during a run.

    Attributes
    ----------
    time_s : float
        Time of the change in seconds.
    rate : str | None
        The new rate; None if it does not change.
    flows : int | None
        The new number of flows; None if it does not change.
    """

    time_s: float
    rate: str | None
    flows: int | None


@dataclass(frozen=True)
class Case:
    """A scenario, as far as namespaces can run it.

    Attributes
    ----------
    rate : str
        Rate of the bottleneck.
    rate_bps : float
        The same in bit/s.
    buffer : str
        Buffer of the bottleneck.
    flows : int
        Number of flows.
    tcp : str
        Congestion control of the flows, by its name in Linux.
    rtt_s : float
        Round trip in seconds.
    packet_bytes : int
        Packet size with the Ethernet header.
    ecn : bool
        True if the flows use ECN.
    start_s : tuple[float, float]
        Times of the first and the last possible start of a flow.
    measure_s : tuple[float, float]
        Start and end of the measurement.
    step : Step | None
        The change during the run, if any.
    laws : list[dict[str, Any]]
        The tables of the laws.
    """

    rate: str
    rate_bps: float
    buffer: str
    flows: int
    tcp: str
    rtt_s: float
    packet_bytes: int
    ecn: bool
    start_s: tuple[float, float]
    measure_s: tuple[float, float]
    step: Step | None
    laws: list[dict[str, Any]]

    def starts_s(self, flows: int, at_s: float, drawn: random.Random) -> list[float]:
        """Return random starts of flows, the first of which may start at `at_s`."""
        first_s, last_s = self.start_s
        return [at_s + drawn.uniform(0, last_s - first_s) for _ in range(flows)]


@dataclass(frozen=True)
class Measured:
    """The results of a law; means of a run.

    Attributes
    ----------
    law : str
        Name of the law.
    delay_s : float
        Mean delay in seconds.
    deviation_s : float
        Standard deviation of the delay in seconds.
    signals : float
        Marks and drops per packet.
    drops : float
        Drops per packet.
    utilisation : float
        Share of the link's rate that is used.
    late_mean_s : float, default 0.0
        Mean lateness of the law's clock in seconds.
    late_max_s : float, default 0.0
        Largest lateness of the law's clock in seconds.
    settling_s : float, optional
        Time after a step at which the queue settles, in seconds.
    peak_pkts : float, optional
        Largest mean of a second after a step, in packets.
    """

    law: str
    delay_s: float
    deviation_s: float
    signals: float
    drops: float
    utilisation: float
    late_mean_s: float = 0.0
    late_max_s: float = 0.0
    settling_s: float | None = None
    peak_pkts: float | None = None

    @property
    def void(self) -> bool:
        """True if the law's clock was too late."""
        return self.late_mean_s > LATE_MEAN_S or self.late_max_s > LATE_MAX_S


def case(path: Path, overrides: list[str]) -> Case:
    """Return a scenario with overrides like those of `forebay run --set`."""
    text = tomllib.loads(path.read_text())
    (traffic,) = text["traffic"]
    for change in overrides:
        key, _, value = change.partition("=")
        table, *_, name = key.split(".")
        of = traffic if table == "traffic" else text[table]
        of[name] = {"true": True, "false": False}.get(value, value)
    link = text["bottleneck"]

    def seconds(value: Any) -> float:
        return _native.quantity("time", str(value), "time")

    begins = traffic.get("start", "0s")
    first, last = begins["uniform"] if isinstance(begins, dict) else (begins, begins)
    step = None
    for change in text.get("at", []):
        assert step is None, "one step a run"
        step = Step(
            seconds(change["time"]),
            change["set"].get("bottleneck.rate"),
            change["set"].get("traffic.0.flows"),
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


def simulated(options: argparse.Namespace) -> dict[str, list[Measured]]:
    """Return the simulated runs of each law."""
    import forebay  # not in a virtual machine, where it takes seconds

    runs_by_law: dict[str, list[Measured]] = {}
    link = case(options.scenario, options.set)
    # The RTT must be that of the namespaces: AVQ's queue is twice as long at 0.1 ms as at 1 ms.
    own = [f"traffic.0.rtt={PATH_RTT}"] if link.rtt_s <= PATH_S else []
    out = forebay.run(
        options.scenario, overrides=[*options.set, *own], seeds=options.seeds, threads=1
    )
    rate_bps = link.rate_bps
    if link.step is not None and link.step.rate is not None:
        rate_bps = _native.quantity("rate", link.step.rate, "rate")
    packet_s = 8 * link.packet_bytes / rate_bps
    for row in out.metrics.iter_rows(named=True):
        runs_by_law.setdefault(row["law"], []).append(
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
            runs_by_law[row["law"]][-1] = stepped(
                runs_by_law[row["law"]][-1], _simulated_looks(out, row, link)
            )
    return runs_by_law


def _simulated_looks(out: forebay.Result, row: dict[str, Any], link: Case) -> list[float]:
    """Return the means of a simulated queue over intervals of `LOOK_S`."""
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


def stepped(result: Measured, looks: Sequence[float]) -> Measured:
    """Return a result with its response to a step.

    docs/reference/metrics.md defines `settling_s`.

    Parameters
    ----------
    result : Measured
        The result.
    looks : Sequence[float]
        Means of the queue over intervals of `LOOK_S`, in packets.
    """
    seconds = [statistics.mean(pair) for pair in pairwise(looks)]
    rest = statistics.mean(seconds[len(seconds) // 2 :])
    near = max(rest / 4, 5.0)
    away = [number for number, mean in enumerate(seconds, 1) if abs(mean - rest) > near]
    return replace(result, settling_s=LOOK_S * max(away, default=0), peak_pkts=max(seconds))


@contextmanager
def namespaces(link: Case, tag: str, *, large: bool) -> Iterator[None]:
    """Enter a context with a sender, a router whose `eth0` is the bottleneck, and a receiver.

    The answers of the receiver are delayed by the RTT. Segments leave the sender one by one, unless
    they may be `large`.
    """
    mtu = link.packet_bytes - HEADER_BYTES
    segment_limit = "" if large else "gso_max_segs 1"
    netem = f"netem limit 1000000 delay {link.rtt_s * 1e6:.0f}us"
    with routed_path(tag) as (s, r, d):
        sh(f"""
            ip -n {s} link set eth0 mtu {mtu} {segment_limit}; ip -n {r} link set eth1 mtu {mtu}
            ip -n {r} link set eth0 mtu {mtu} {segment_limit}; ip -n {d} link set eth0 mtu {mtu}
            for n in {s} {d}; do
                nsenter --net=/run/netns/$n sh -c 'cd /proc/sys/net/ipv4
                    echo {int(link.ecn)} > tcp_ecn; echo 1 > tcp_no_metrics_save
                    echo 4096 131072 67108864 > tcp_rmem; echo 4096 16384 67108864 > tcp_wmem'
            done
            {f"tc -n {d} qdisc add dev eth0 root {netem}" if link.rtt_s > PATH_S else ":"}
        """)
        yield


def attached(link: Case, law: dict[str, Any], front: str, tag: str, seed: int) -> Measured:
    """Run a law in the router's namespace.

    Raises
    ------
    RuntimeError
        If `detach` leaves something behind.
    """
    before = traces([])
    params = {key: value for key, value in law.items() if key != "kind"}
    attachments.attach(
        *("eth0", law["kind"], params),
        rate=link.rate,
        buffer=link.buffer,
        ecn=link.ecn,
        front=front,
    )
    own_objects: list[str] = []
    try:
        own_objects = objects(devices.attached_to("eth0"))
        measured, looks = _watched(link, tag, random.Random(seed))
    finally:
        attachments.detach("eth0")
        time.sleep(link.rtt_s + 1)
    after = traces(own_objects)
    if not own_objects or after != before:
        raise RuntimeError(f"before attach:\n{before}\nafter detach:\n{after}")
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


def traces(own_objects: list[str]) -> str:
    """Return the traces of a law: qdiscs, filters, files, programs and maps.

    Only those of `own_objects` that still exist are included; objects of other devices do not
    matter.
    """
    existing = set(objects()) if own_objects else set()
    return "\n".join(
        [
            *(object_ for object_ in own_objects if object_ in existing),
            *(map(str, tcx.attached(socket.if_nametoindex("eth0"))) if tcx.offered() else ()),
            sh(f"""
            tc qdisc show dev eth0; tc filter show dev eth0 egress
            find /run/forebay -name "*@{cookie()}*" 2> /dev/null || true
        """),
        ]
    )


def _watched(link: Case, tag: str, drawn: random.Random) -> tuple[Measured, list[float]]:
    """Run the traffic, and return the result and the means of the queue after a step."""
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
        [interval.delay_s / packet_s for interval in looked],
    )


@contextmanager
def traffic(link: Case, tag: str, starts_s: Sequence[float], port: int = PORT) -> Iterator[None]:
    """Enter a context with a flow that starts at each of these times of the monotonic clock.

    Raises
    ------
    RuntimeError
        If the flows end by themselves.
    """
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
    """Enter a context with the program that makes the flows, compiled for this machine."""
    with tempfile.TemporaryDirectory(prefix="forebay-flows-") as folder:
        built = Path(folder, "long_flows")
        source = Path(__file__).with_name("long_flows.c")
        subprocess.run(["cc", "-O2", "-o", str(built), str(source)], check=True)
        yield built


def _sleep_until(then_s: float) -> None:
    """Sleep until a time of the monotonic clock."""
    time.sleep(max(0.0, then_s - time.monotonic()))


def between(first: LawCounts, last: LawCounts, span_s: float, packet_bytes: int) -> Measured:
    """Return the results of a window from the counts at its ends."""

    def sums(counts: LawCounts) -> tuple[float, float, float, float]:
        ticks, mean, std = counts.ticks, counts.queue_mean_pkts, counts.queue_std_pkts
        assert ticks is not None and mean is not None and std is not None
        assert counts.late_mean_s is not None
        return ticks, ticks * mean, ticks * (mean**2 + std**2), ticks * counts.late_mean_s

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


def inside(path: Path, options: argparse.Namespace) -> None:
    """Run each law in the router's namespace, and print a line of JSON for each run."""
    link, tag = case(path, options.set), os.environ[INSIDE]
    if BUILT in os.environ:
        built = Path(os.environ[BUILT])
        programs.compile_law = lambda law, *_: (built / f"{law}.o").read_bytes()
    # A first run loads the programs: otherwise they would begin late, and in a virtual machine the
    # clock would jump.
    with traffic(link, tag, [time.monotonic() + 0.2] * link.flows):
        time.sleep(1 + 2 * link.rtt_s)
    for law in link.laws:
        if options.law and law["kind"] not in options.law:
            continue
        for seed in range(options.first_seed, options.first_seed + options.repeats):
            run = attached(link, law, options.front, tag, seed)
            print("@@" + json.dumps(asdict(run)), flush=True)


def lines(printed: str) -> dict[str, list[Measured]]:
    """Return the runs in the output of `inside`, by law."""
    runs_by_law: dict[str, list[Measured]] = {}
    for line in re.findall(r"^@@(\{.*\})\r?$", printed, re.MULTILINE):
        run = Measured(**json.loads(line))
        runs_by_law.setdefault(run.law, []).append(run)
    return runs_by_law


def real(path: Path, options: argparse.Namespace) -> str:
    """Return the output of `inside` in this machine's kernel."""
    tag = f"fb{os.getpid()}"
    with namespaces(case(path, options.set), tag, large=options.large), ExitStack() as built:
        flows = os.environ.get(FLOWS) or built.enter_context(flows_program())
        done = subprocess.run(
            [
                *("nsenter", f"--net=/run/netns/r{tag}", sys.executable, "-m", "bench.attach"),
                *sys.argv[1:],
            ],
            # Output that is not captured survives a run that is cut off.
            stdout=None if options.raw else subprocess.PIPE,
            text=True,
            check=True,
            env=os.environ | {INSIDE: tag, FLOWS: str(flows)},
        )
    return done.stdout or ""


def virtual(options: argparse.Namespace) -> str:
    """Return the output of `inside` in a virtual machine.

    A file in `options.out` has each line as soon as it is printed.
    """
    words = [word for word in sys.argv[1:] if word != "--virtual"]
    command = shlex.join([sys.executable, "-m", "bench.attach", *words, "--raw"])
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / (re.sub(r"[^\w.=-]+", "_", "_".join(words)) + ".log")
    if options.front == programs.CLASSIFIER:
        (options.out / "built").mkdir(exist_ok=True)
        for law in case(options.scenario, options.set).laws:
            compiled = programs.compile_law(law["kind"], options.front, "")
            (options.out / "built" / f"{law['kind']}.o").write_bytes(compiled)
        command = f"{BUILT}=$OUT/built {command}"
    with flows_program() as built:
        shutil.copy(built, options.out)
    command = f"{FLOWS}=$OUT/{built.name} {command}"
    try:
        virtual_machine.run(f"{command} > $OUT/{log.name} 2>&1", options.limit, options.out)
    finally:
        printed = log.read_text() if log.exists() else ""
    if not lines(printed):
        raise virtual_machine.MachineError(printed[-2000:])
    return printed


def table(theirs: dict[str, list[Measured]], ours: dict[str, list[Measured]]) -> Iterator[str]:
    """Yield the lines of the table: each law simulated, and in the kernel."""
    # A virtual machine lacks the libraries of this import.
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
    if any(run.settling_s is not None for runs in theirs.values() for run in runs):
        heads += ["settling and largest second, simulated", "in the kernel"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for law, runs in theirs.items():
        sound = [run for run in runs if not run.void]
        if not sound:
            worst = max(run.late_max_s for run in runs)
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
        use = statistics.mean(run.utilisation for run in sound)
        cells += [f"{100 * use:.1f}", ", ".join(beyond)]
        if sound[0].settling_s is not None:
            cells += [
                "; ".join(
                    f"{run.settling_s:.1f} s, {run.peak_pkts:.0f} packets"
                    for run in sorted(of, key=lambda run: run.settling_s or 0.0)
                )
                for of in (ours[law], sound)
            ]
        yield f"| {' | '.join(cells)} |"


def main() -> int:
    """Run the command line and return its exit status."""
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
    options = parser.parse_args()
    if INSIDE in os.environ:
        inside(options.scenario, options)
        return 0
    printed = virtual(options) if options.virtual else real(options.scenario, options)
    if options.raw:
        print(printed, end="")
        return 0
    measured = lines(printed)
    for line in table(measured, simulated(options)):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
