"""A scenario as links and real flows, or one line that says why it cannot be."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import quantities, registries
from forebay._native import ScenarioError
from forebay.linux import Settings, settings, transfers
from forebay.linux.transfers import Mice, Source, Web
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._native import LawInfo, PointInfo, TrafficInfo
    from forebay.experiment.engines import Planned

#: Time from the start of the command to the scenario's time zero: the servers come up in it.
LEAD_S = 1.0
#: Access links this many times faster than the bottleneck do not hold a flow back; the link has
#: none.
ACCESS_RATIO = 5.0
#: The link of the acknowledgements: nothing waits there, and it is slow enough for releases on
#: the microsecond.
RETURN_RATE = "100Mbit/s"
RETURN_BUFFER = "10000p"
#: Least MTU that IPv6 allows (RFC 8200, section 5).
LEAST_PACKET_BYTES = 1280
#: Port of the first long flow's server, and that of the first short transfers'; others count down.
PORT, TRANSFERS_PORT = 5201, 5200
#: Kinds of traffic that real flows can be.
KINDS = ["ftp", "mice", "web", "program"]
#: Most programs, each on a host of its own, with a server on another.
MOST_PROGRAMS = 250
#: Most traffics that a link tells apart.
MOST_APART = 250
#: Those of them that are short transfers.
SHORT = ["mice", "web"]
#: Of one connection to the next a host keeps nothing.
HOST_SYSCTLS = [("net.ipv4.tcp_no_metrics_save", "1")]
#: Time that a program has to end after the scenario's end, when it is told to.
STOP_S = 0.3
#: Whether the kernel's senders ask for ECN; they do not speak L4S's.
ECN = {"off": False, "classic": True}
#: The kernel's names. Its Reno always recovers with SACK, RACK and PRR.
CONGESTION_CONTROL = {name: sender["kernel"] for name, sender in registries.senders().items()}


@dataclass(frozen=True)
class Flow:
    """One long transfer; times are the scenario's."""

    congestion_control: str
    start_s: float


@dataclass(frozen=True)
class Program:
    """A client, and a server if there is one; times are the scenario's."""

    #: Index into the point's traffic.
    traffic: int
    client: str
    server: str | None
    #: What their folder has; the scenario's own where there is nothing.
    files: Sequence[str]
    #: Settings of their hosts.
    sysctls: Sequence[tuple[str, str]]
    start_s: float
    #: Earliest and latest.
    stop_s: tuple[float, float]


@dataclass(frozen=True)
class LinkPlan:
    """One law at one point, as a link and flows; index and number are those of the point and the
    law in the experiment."""

    index: int
    number: int
    point: PointInfo
    law: LawInfo
    #: The times at which the flows of a traffic, by its index, start in a run with a seed: those
    #: of the simulator.
    starts_s: Callable[[int, int], Sequence[float]]
    #: Of the scenario, where programs run.
    folder: Path = Path()
    #: The packets of the bottleneck are to be kept.
    keeps_packets: bool = False

    def flows(self, seed: int) -> list[Flow]:
        """Return the long transfers of a run with this seed."""
        return [
            Flow(_congestion_control(traffic), start_s)
            for number, traffic in enumerate(self.point.traffic)
            if traffic.kind == "ftp"
            for start_s in self.starts_s(number, seed)
        ]

    @property
    def long_flows(self) -> int:
        """The number of long transfers."""
        return sum(traffic.flows for traffic in self.point.traffic if traffic.kind == "ftp")

    @property
    def has_programs(self) -> bool:
        """True if some of the traffic is programs."""
        return any(traffic.kind == "program" for traffic in self.point.traffic)

    @property
    def short_traffic(self) -> list[int]:
        """The indices of the traffic that is short transfers."""
        return [n for n, traffic in enumerate(self.point.traffic) if traffic.kind in SHORT]

    def sources(self, seed: int) -> list[Source]:
        """Return the short transfers, whose starts count from the command's as the flows' do."""
        return [
            _source(
                self.point.traffic[number],
                [LEAD_S + start_s for start_s in self.starts_s(number, seed)],
                TRANSFERS_PORT - n,
            )
            for n, number in enumerate(self.short_traffic)
        ]

    def programs(self, seed: int) -> list[Program]:
        """Return the programs, each with hosts of its own."""
        end_s = self.point.duration_s
        return [
            Program(
                number,
                traffic.client or "",
                traffic.server,
                traffic.program_files,
                [*HOST_SYSCTLS, ("net.ipv4.tcp_ecn", str(int(ECN[traffic.ecn])))],
                start_s,
                traffic.stop_s or (end_s, end_s),
            )
            for number, traffic in enumerate(self.point.traffic)
            if traffic.kind == "program"
            for start_s in self.starts_s(number, seed)
        ]

    def apart(self) -> tuple[int, list[int], list[tuple[int, int]]] | None:
        """How the link tells traffic apart: how many there are, that of each of `programs`, and
        that of flows to a port. None where it does not."""
        traffic = self.point.traffic
        if len(traffic) > MOST_APART:
            return None
        long = [
            n for n, entry in enumerate(traffic) if entry.kind == "ftp" for _ in range(entry.flows)
        ]
        ports = [
            *((PORT + flow, n) for flow, n in enumerate(long)),
            *((TRANSFERS_PORT - source, n) for source, n in enumerate(self.short_traffic)),
        ]
        programs = [
            n
            for n, entry in enumerate(traffic)
            if entry.kind == "program"
            for _ in range(entry.flows)
        ]
        return len(traffic), programs, ports

    def settings(self, seed: int, void_lateness: str, void_rate: str) -> Settings:
        """The link; `seed` is of the law's draws."""
        start, end = (LEAD_S + time_s for time_s in self.point.measure_s)
        bottleneck, traffic, law = self.point.links[0], self.point.traffic[0], self.law
        assert law.kind is not None
        return settings(
            rate=RETURN_RATE,
            # One way, after the queue.
            delay=quantities.time(traffic.rtts_s[0] / 2),
            buffer=RETURN_BUFFER,
            rate_up=quantities.rate(bottleneck.rate_bps),
            burst_up=quantities.size(bottleneck.burst_bytes),
            buffer_up=quantities.buffer(bottleneck.buffer_pkts, bottleneck.buffer_bytes),
            aqm_up=law.kind,
            params_up=dict(law.params),
            # The law is the same in both, to the digit.
            gains="paper",
            queue_up=law.queue,
            ecn=bottleneck.ecn,
            mtu=traffic.packet_bytes,
            seed=seed,
            sample=quantities.time(self.point.sample_s),
            measure=f"{quantities.time(start)}..{quantities.time(end)}",
            void_lateness=void_lateness,
            void_rate=void_rate,
        )

    def server(self) -> str | None:
        """An iperf3 server for each long flow, and one for all short transfers, for the shell;
        None where there are programs alone."""
        if not self.long_flows and not self.short_traffic:
            return None
        last = PORT + self.long_flows - 1
        servers = (
            f"for port in $(seq {PORT} {last}); do iperf3 -s -1 -p $port >/dev/null & done; wait"
        )
        if not self.short_traffic:
            return servers
        # The command is started when the first server listens: let it be the slowest.
        ports = [TRANSFERS_PORT - n for n in range(len(self.short_traffic))]
        return f"{_transfers('serve', *ports)} | {{ read ready; {servers}; cat; }}"

    def command(self, seed: int) -> list[str]:
        """Return the command that starts each flow at its own time, and fails if one of them does.

        The start times are those of the simulator for `seed`. The sizes and silences of short
        transfers are drawn by `seed`, too, but are not the simulator's draws.
        """
        lines = [
            # A namespace begins with nothing learnt; a short transfer must not leave its
            # threshold and RTT to the next one.
            "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save || exit 1",
            f"echo {int(self._ecn())} > /proc/sys/net/ipv4/tcp_ecn || exit 1",
            "flows=",
        ]
        if self.has_programs:
            # The link stays until the last of them has been stopped.
            lines.append(f'sleep {LEAD_S + self.point.duration_s + STOP_S:.4f} & flows="$flows $!"')
        if self.short_traffic:
            start, end = self.point.measure_s
            plan = transfers.ClientTask(
                seed=seed,
                end_s=LEAD_S + self.point.duration_s,
                measure_s=(LEAD_S + start, LEAD_S + end),
                sources=self.sources(seed),
            )
            send = _transfers("send", plan.text())
            lines.append(f'{send} $(date +%s.%N) & flows="$flows $!"')
        for port, flow in enumerate(self.flows(seed), start=PORT):
            start_s = LEAD_S + flow.start_s
            # Whole seconds are all that iperf3 takes.
            seconds = math.ceil(LEAD_S + self.point.duration_s - start_s)
            lines.append(
                f"{{ sleep {start_s:.4f}; exec iperf3 -4 -c $FOREBAY_SERVER -p {port} "
                f"-C {flow.congestion_control} -t {seconds} >/dev/null; }} & "
                'flows="$flows $!"'
            )
        lines += ["status=0", "for flow in $flows; do wait $flow || status=1; done"]
        lines.append("exit $status")
        return ["sh", "-c", "\n".join(lines)]

    def _ecn(self) -> bool:
        """Whether the senders of its own ask for ECN."""
        return any(ECN[one.ecn] for one in self.point.traffic if one.kind != "program")


def _transfers(*arguments: object) -> str:
    """The program of short transfers, for the shell."""
    return shlex.join([sys.executable, "-m", transfers.__name__, *map(str, arguments)])


def link_plans(experiment: Planned) -> list[LinkPlan]:
    """A link for every law at every point.

    Raises `ScenarioError` where the scenario asks for what real flows over one link cannot do.
    """
    plans = []
    folder = names.path(experiment.path).parent.absolute()
    keeps_packets = experiment.plan.keeps_packets
    for p, point in enumerate(experiment.plan.points):
        for i, law in enumerate(point.laws):
            refused = _refused(point, law)
            if refused is not None:
                key, found, allowed = refused
                raise ScenarioError(
                    f"{experiment.path}: {key}: found {found}, allowed for real flows: {allowed}"
                )
            starts_s = partial(experiment.plan.starts_s, p)
            plans.append(LinkPlan(p, i, point, law, starts_s, folder, keeps_packets))
    return plans


def _refused(point: PointInfo, law: LawInfo) -> tuple[str, object, str] | None:
    """What real flows over one link cannot do: key, what was found, what is allowed."""
    bottleneck, *others = point.links
    if others:
        return "link", f"{len(others)} more", "the bottleneck alone"
    if bottleneck.trace is not None:
        mean = quantities.rate(bottleneck.trace[0])
        return "bottleneck.rate_trace", mean, "a constant rate"
    if point.changes:
        return "at", f"{len(point.changes)} changes", "none"
    if law.kind is None:
        return "law", law.label, "a law of `forebay laws`"
    if not point.traffic:
        return "traffic", "none", ", ".join(KINDS)
    for n, traffic in enumerate(point.traffic):
        refused = _refused_traffic(traffic, bottleneck.rate_bps)
        if refused is not None:
            key, found, allowed = refused
            return f"traffic.{n}.{key}", found, allowed
    programs = sum(one.flows for one in point.traffic if one.kind == "program")
    if programs > MOST_PROGRAMS:
        return "traffic.flows", f"{programs} programs", f"at most {MOST_PROGRAMS} in all"
    own = [one for one in point.traffic if one.kind != "program"]
    for key, found in [
        ("rtt", [quantities.time(rtt_s) for one in point.traffic for rtt_s in one.rtts_s]),
        ("packet", [quantities.size(one.packet_bytes) for one in point.traffic]),
        ("ecn", [quantities.plain(ECN[one.ecn]) for one in own]),
    ]:
        if len(set(found)) > 1:
            return key, ", ".join(dict.fromkeys(found)), "the same for all"
    if point.traffic[0].packet_bytes < LEAST_PACKET_BYTES:
        size = quantities.size(point.traffic[0].packet_bytes)
        return "packet", size, f"at least {LEAST_PACKET_BYTES}B, the least packet of IPv6"
    return None


def _refused_traffic(traffic: TrafficInfo, rate_bps: int) -> tuple[str, object, str] | None:
    if traffic.kind not in KINDS:
        return "kind", traffic.kind, ", ".join(KINDS)
    program = traffic.kind == "program"
    if not program and traffic.tcp not in CONGESTION_CONTROL:
        return "tcp", traffic.tcp, ", ".join(CONGESTION_CONTROL)
    if not program and traffic.stop_s is not None:
        stops = " to ".join(quantities.time(one) for one in dict.fromkeys(traffic.stop_s))
        return "stop", stops, "none"
    if traffic.access_bps < ACCESS_RATIO * rate_bps:
        limits = f"at least {ACCESS_RATIO:g} times the bottleneck's rate, which does not limit"
        return "access", quantities.rate(traffic.access_bps), limits
    if traffic.ecn not in ECN:
        return "ecn", f'"{traffic.ecn}"', "true or false"
    return None


def _source(traffic: TrafficInfo, starts_s: Sequence[float], port: int) -> Source:
    numbers = traffic.numbers
    name = _congestion_control(traffic)
    if traffic.kind == "mice":
        return Mice(name, tuple(starts_s), numbers["on_s"], numbers["off_s"], port)
    return Web(
        congestion_control=name,
        starts_s=tuple(starts_s),
        requests_per_s=numbers["requests"],
        connections=round(numbers["connections"]),
        shape=numbers["shape"],
        scale_bytes=numbers["scale_bytes"],
        payload_bytes=traffic.packet_bytes - traffic.header_bytes,
        port=port,
    )


def _congestion_control(traffic: TrafficInfo) -> str:
    # Only traffic without congestion control has none, and it is refused.
    assert traffic.tcp is not None
    return CONGESTION_CONTROL[traffic.tcp]
