"""A scenario as links and real flows, or one line that says why it cannot be."""

from __future__ import annotations

import math
import random
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from forebay._native import ScenarioError
from forebay.base import quantities, registries
from forebay.links import Settings, settings
from forebay.validation import transfers
from forebay.validation.transfers import Mice, Source, Web

if TYPE_CHECKING:
    from forebay._native import LawInfo, Parameter, PointInfo, TrafficInfo
    from forebay.runs.experiment import Experiment

T = TypeVar("T")

#: Time from the start of the command to the scenario's time zero: the servers come up in it.
LEAD_S = 1.0
#: Access links this many times faster than the bottleneck do not hold a flow back; the link has
#: none.
ACCESS_RATIO = 5.0
#: The link of the acknowledgements: nothing waits there, and it is slow enough for releases on
#: the microsecond.
RETURN_RATE = "100Mbit/s"
RETURN_BUFFER = "10000p"
#: Port of the first long flow's server, and that of all short transfers.
PORT, TRANSFERS_PORT = 5201, 5200
#: Kinds of traffic that real flows can be.
KINDS = ["ftp", "mice", "web"]
#: Whether the kernel's senders ask for ECN; they do not speak L4S's.
ECN = {"off": False, "classic": True}
#: The kernel's names. Its Reno always recovers with SACK, RACK and PRR.
CONGESTION_CONTROL = {name: sender["kernel"] for name, sender in registries.senders().items()}


@dataclass(frozen=True)
class Flow:
    """One long transfer; times are the scenario's."""

    congestion_control: str
    #: Earliest and latest.
    start_s: tuple[float, float]


@dataclass(frozen=True)
class LinkPlan:
    """One law at one point, as a link and flows."""

    point: int
    law: int
    rate: str
    burst: str
    #: One way, after the queue.
    delay: str
    buffer: str
    ecn: bool
    aqm: str
    params: dict[str, Parameter]
    #: The discipline that holds the law, as a scenario writes it; None for the default.
    queue: str | None
    mtu: int
    duration_s: float
    measure_s: tuple[float, float]
    sample_s: float
    flows: list[Flow]
    #: Short transfers.
    sources: list[Source]
    #: Whether the senders ask for ECN.
    flows_ecn: bool

    def settings(self, seed: int, void_lateness: str, void_rate: str) -> Settings:
        """The link; `seed` is of the law's draws."""
        start, end = (LEAD_S + time_s for time_s in self.measure_s)
        return settings(
            rate=RETURN_RATE,
            delay=self.delay,
            buffer=RETURN_BUFFER,
            rate_up=self.rate,
            burst_up=self.burst,
            buffer_up=self.buffer,
            aqm_up=self.aqm,
            params_up=self.params,
            # The law is the same in both, to the digit.
            gains="paper",
            queue_up=self.queue,
            ecn=self.ecn,
            mtu=self.mtu,
            seed=seed,
            sample=quantities.time(self.sample_s),
            measure=f"{quantities.time(start)}..{quantities.time(end)}",
            void_lateness=void_lateness,
            void_rate=void_rate,
        )

    def server(self) -> str:
        """An iperf3 server for each long flow, and one for all short transfers, for the shell."""
        last = PORT + len(self.flows) - 1
        servers = (
            f"for port in $(seq {PORT} {last}); do iperf3 -s -1 -p $port >/dev/null & done; wait"
        )
        if not self.sources:
            return servers
        # The command is started when the first server listens: let it be the slowest.
        return f"{_transfers('serve', TRANSFERS_PORT)} | {{ read ready; {servers}; cat; }}"

    def command(self, seed: int) -> list[str]:
        """Starts each flow at its own time, and fails if one of them does.

        Start times are drawn from the scenario's intervals by `seed`, and so are the sizes and
        silences of short transfers; they are not the simulator's draws, which do not leave it.
        """
        draw = random.Random(seed)
        lines = [
            # A namespace begins with nothing learnt; a short transfer must not leave its
            # threshold and RTT to the next one.
            "echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save || exit 1",
            f"echo {int(self.flows_ecn)} > /proc/sys/net/ipv4/tcp_ecn || exit 1",
            "flows=",
        ]
        if self.sources:
            start, end = self.measure_s
            plan = transfers.Plan(
                port=TRANSFERS_PORT,
                seed=seed,
                end_s=LEAD_S + self.duration_s,
                measure_s=(LEAD_S + start, LEAD_S + end),
                sources=self.sources,
            )
            send = _transfers("send", plan.text())
            lines.append(f'{send} $(date +%s.%N) & flows="$flows $!"')
        for port, flow in enumerate(self.flows, start=PORT):
            start_s = LEAD_S + draw.uniform(*flow.start_s)
            # Whole seconds are all that iperf3 takes.
            seconds = math.ceil(LEAD_S + self.duration_s - start_s)
            lines.append(
                f"{{ sleep {start_s:.4f}; exec iperf3 -4 -c $FOREBAY_SERVER -p {port} "
                f"-C {flow.congestion_control} -t {seconds} >/dev/null; }} & "
                'flows="$flows $!"'
            )
        lines += ["status=0", "for flow in $flows; do wait $flow || status=1; done"]
        lines.append("exit $status")
        return ["sh", "-c", "\n".join(lines)]


def _transfers(*arguments: object) -> str:
    """The program of short transfers, for the shell."""
    return shlex.join([sys.executable, "-m", transfers.__name__, *map(str, arguments)])


def link_plans(experiment: Experiment) -> list[LinkPlan]:
    """A link for every law at every point.

    Raises `ScenarioError` where the scenario asks for what real flows over one link cannot do.
    """
    return [
        _plan(experiment.path, p, point, i, law)
        for p, point in enumerate(experiment.plan.points)
        for i, law in enumerate(point.laws)
    ]


def _plan(file: str, index: int, point: PointInfo, number: int, law: LawInfo) -> LinkPlan:
    def refuse(key: str, found: object, allowed: str) -> ScenarioError:
        return ScenarioError(f"{file}: {key}: found {found}, allowed for real flows: {allowed}")

    def one(key: str, found: list[T], text: Callable[[T], str]) -> T:
        if len(set(found)) > 1:
            texts = ", ".join(text(each) for each in dict.fromkeys(found))
            raise refuse(key, texts, "the same for all")
        return found[0]

    if len(point.links) > 1:
        raise refuse("link", f"{len(point.links) - 1} more", "the bottleneck alone")
    bottleneck = point.links[0]
    if bottleneck.trace is not None:
        mean = quantities.rate(bottleneck.trace[0])
        raise refuse("bottleneck.rate_trace", mean, "a constant rate")
    if point.changes:
        raise refuse("at", f"{len(point.changes)} changes", "none")
    if law.kind is None:
        raise refuse("law", law.label, "a law of `forebay laws`")
    for n, traffic in enumerate(point.traffic):
        key = f"traffic.{n}"
        if traffic.kind not in KINDS:
            raise refuse(f"{key}.kind", traffic.kind, ", ".join(KINDS))
        if traffic.tcp not in CONGESTION_CONTROL:
            raise refuse(f"{key}.tcp", traffic.tcp, ", ".join(CONGESTION_CONTROL))
        if traffic.stop_s is not None:
            stops = " to ".join(quantities.time(one) for one in dict.fromkeys(traffic.stop_s))
            raise refuse(f"{key}.stop", stops, "none")
        if traffic.access_bps < ACCESS_RATIO * bottleneck.rate_bps:
            raise refuse(
                f"{key}.access",
                quantities.rate(traffic.access_bps),
                f"at least {ACCESS_RATIO:g} times the bottleneck's rate, which does not limit",
            )
        if traffic.ecn not in ECN:
            raise refuse(f"{key}.ecn", f'"{traffic.ecn}"', "true or false")
    if not point.traffic:
        raise refuse("traffic", "none", ", ".join(KINDS))
    rtt_s = one("rtt", [rtt_s for it in point.traffic for rtt_s in it.rtts_s], quantities.time)
    mtu = one("packet", [traffic.packet_bytes for traffic in point.traffic], quantities.size)
    if mtu < 1280:
        raise refuse("packet", quantities.size(mtu), "at least 1280B, the least packet of IPv6")
    flows_ecn = one("ecn", [ECN[traffic.ecn] for traffic in point.traffic], quantities.plain)
    return LinkPlan(
        point=index,
        law=number,
        rate=quantities.rate(bottleneck.rate_bps),
        burst=quantities.size(bottleneck.burst_bytes),
        delay=quantities.time(rtt_s / 2),
        buffer=quantities.buffer(bottleneck.buffer_pkts, bottleneck.buffer_bytes),
        ecn=bottleneck.ecn,
        aqm=law.kind,
        params=dict(law.params),
        queue=law.queue,
        mtu=mtu,
        duration_s=point.duration_s,
        measure_s=point.measure_s,
        sample_s=point.sample_s,
        flows=[
            Flow(_congestion_control(traffic), traffic.start_s)
            for traffic in point.traffic
            if traffic.kind == "ftp"
            for _ in range(traffic.flows)
        ],
        # They count their starts from the command's, as the flows do.
        sources=[_source(traffic) for traffic in point.traffic if traffic.kind != "ftp"],
        flows_ecn=flows_ecn,
    )


def _source(traffic: TrafficInfo) -> Source:
    numbers = traffic.numbers
    first_s, last_s = traffic.start_s
    start_s = (LEAD_S + first_s, LEAD_S + last_s)
    name = _congestion_control(traffic)
    if traffic.kind == "mice":
        return Mice(traffic.flows, name, start_s, numbers["on_s"], numbers["off_s"])
    return Web(
        flows=traffic.flows,
        congestion_control=name,
        start_s=start_s,
        requests_per_s=numbers["requests"],
        connections=round(numbers["connections"]),
        shape=numbers["shape"],
        scale_bytes=numbers["scale_bytes"],
        payload_bytes=traffic.packet_bytes - traffic.header_bytes,
    )


def _congestion_control(traffic: TrafficInfo) -> str:
    # Only traffic without congestion control has none, and it is refused.
    assert traffic.tcp is not None
    return CONGESTION_CONTROL[traffic.tcp]
