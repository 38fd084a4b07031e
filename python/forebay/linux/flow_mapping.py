"""The links and real flows of a scenario, or an error for one that has none."""

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
from forebay.linux import Settings, transfers
from forebay.linux.link_settings import settings
from forebay.linux.transfers import Mice, Source, Web
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._native import LawInfo, PointInfo, TrafficInfo
    from forebay.experiment.engines import Planned

#: Time from the start of the command to the scenario's time zero: the servers come up in it.
LEAD_S = 1.0
#: Access links this many times faster than the bottleneck do not limit a flow; real links have no
#: access links.
ACCESS_RATIO = 5.0
#: The link of the acknowledgements, fast enough that no packet waits, and slow enough to release
#: packets to the microsecond.
RETURN_RATE = "100Mbit/s"
RETURN_BUFFER = "10000p"
#: Least MTU that IPv6 allows (RFC 8200, section 5).
LEAST_PACKET_BYTES = 1280
#: Ports of the first long flow's server, and of the first server of short transfers, from which
#: further ports count down.
PORT, TRANSFERS_PORT = 5201, 5200
#: Kinds of traffic that real flows support.
KINDS = ["ftp", "mice", "web", "program"]
#: Largest number of programs, each with hosts of its own.
MOST_PROGRAMS = 250
#: Largest number of traffics that a link distinguishes.
MOST_APART = 250
#: Kinds of traffic that are short transfers.
SHORT = ["mice", "web"]
#: Settings by which a host remembers nothing from one connection to the next.
HOST_SYSCTLS = [("net.ipv4.tcp_no_metrics_save", "1")]
#: Time that programs have to end after the scenario's end.
STOP_S = 0.3
#: True if the kernel's senders ask for ECN, by the scenario's value; they do not support L4S.
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
    #: Files that the programs find in their folder; without any, it is the folder of the scenario.
    files: Sequence[str]
    #: Settings of the hosts on which the programs run.
    sysctls: Sequence[tuple[str, str]]
    start_s: float
    #: The earliest and the latest stop.
    stop_s: tuple[float, float]


@dataclass(frozen=True)
class LinkPlan:
    """A link and flows for one law at one point.

    Attributes
    ----------
    index, number : int
        Indices of the point and of the law in the experiment.
    starts_s : callable
        Start times of the flows of a traffic, by its index, in a run with a seed: those of the
        simulator.
    folder : Path
        Folder of the scenario, where programs run.
    keeps_packets : bool
        True if the packets of the bottleneck are kept.
    """

    index: int
    number: int
    point: PointInfo
    law: LawInfo
    starts_s: Callable[[int, int], Sequence[float]]
    folder: Path = Path()
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
        """Return the short transfers; like flows, they start at times after the command's start."""
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
        """Return how the link distinguishes traffic; None where it does not.

        Returns
        -------
        (int, list of int, list of (int, int)) or None
            The number of traffics, the traffic of each of `programs`, and ports with the traffic
            of the flows to them.
        """
        traffic = self.point.traffic
        if len(traffic) > MOST_APART:
            return None

        def each(kind: str) -> list[int]:
            return [n for n, t in enumerate(traffic) if t.kind == kind for _ in range(t.flows)]

        ports = [
            *((PORT + flow, n) for flow, n in enumerate(each("ftp"))),
            *((TRANSFERS_PORT - source, n) for source, n in enumerate(self.short_traffic)),
        ]
        return len(traffic), each("program"), ports

    def settings(self, seed: int, void_lateness: str, void_rate: str) -> Settings:
        """Return the settings of the link; `seed` is that of the law's random numbers."""
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
        """Return a line for the shell that starts the servers; None where there are only programs.

        They are an iperf3 server for each long flow, and one for all short transfers.
        """
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
        """Return True if the senders of the link itself ask for ECN."""
        return any(ECN[traffic.ecn] for traffic in self.point.traffic if traffic.kind != "program")


def _transfers(*arguments: object) -> str:
    """Return the command of the program of short transfers, for the shell."""
    return shlex.join([sys.executable, "-m", transfers.__name__, *map(str, arguments)])


def link_plans(experiment: Planned) -> list[LinkPlan]:
    """Return a link for every law at every point.

    Raises `ScenarioError` where the scenario asks for what real flows over one link cannot do.
    """
    plans = []
    folder = names.path(experiment.path).parent.absolute()
    keeps_packets = experiment.plan.keeps_packets
    for p, point in enumerate(experiment.plan.points):
        for i, law in enumerate(point.laws):
            refused = _refused(point, law)
            if refused is not None:
                key, value, expected = refused
                raise ScenarioError(
                    f"{experiment.path}: {key}: {value} is not possible with real flows; expected "
                    f"{expected}"
                )
            starts_s = partial(experiment.plan.starts_s, p)
            plans.append(LinkPlan(p, i, point, law, starts_s, folder, keeps_packets))
    return plans


#: A key and its value that real flows over one link cannot have, and what would be right.
Refusal = tuple[str, object, str]


def _refused(point: PointInfo, law: LawInfo) -> Refusal | None:
    bottleneck, traffic = point.links[0], point.traffic
    if len(point.links) > 1:
        return "link", f"{len(point.links) - 1} more", "the bottleneck alone"
    if bottleneck.trace is not None:
        mean = quantities.rate(bottleneck.trace[0])
        return "bottleneck.rate_trace", mean, "a constant rate"
    if point.changes:
        return "at", f"{len(point.changes)} changes", "none"
    if law.kind is None:
        return "law", law.label, "a law of `forebay laws`"
    if not traffic:
        return "traffic", "none", ", ".join(KINDS)
    for n, entry in enumerate(traffic):
        refused = _refused_traffic(entry, bottleneck.rate_bps)
        if refused is not None:
            key, value, expected = refused
            return f"traffic.{n}.{key}", value, expected
    programs = sum(entry.flows for entry in traffic if entry.kind == "program")
    if programs > MOST_PROGRAMS:
        return "traffic.flows", f"{programs} programs", f"at most {MOST_PROGRAMS} in all"
    own = [entry for entry in traffic if entry.kind != "program"]
    for key, values in [
        ("rtt", [quantities.time(rtt_s) for entry in traffic for rtt_s in entry.rtts_s]),
        ("packet", [quantities.size(entry.packet_bytes) for entry in traffic]),
        ("ecn", [quantities.plain(ECN[entry.ecn]) for entry in own]),
    ]:
        if len(set(values)) > 1:
            return key, ", ".join(dict.fromkeys(values)), "the same for all"
    if traffic[0].packet_bytes < LEAST_PACKET_BYTES:
        size = quantities.size(traffic[0].packet_bytes)
        return "packet", size, f"at least {LEAST_PACKET_BYTES}B, the least packet of IPv6"
    return None


def _refused_traffic(traffic: TrafficInfo, rate_bps: int) -> Refusal | None:
    if traffic.kind not in KINDS:
        return "kind", traffic.kind, ", ".join(KINDS)
    program = traffic.kind == "program"
    if not program and traffic.tcp not in CONGESTION_CONTROL:
        return "tcp", traffic.tcp, ", ".join(CONGESTION_CONTROL)
    if not program and traffic.stop_s is not None:
        stops = " to ".join(map(quantities.time, dict.fromkeys(traffic.stop_s)))
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
