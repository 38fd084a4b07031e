"""Checks that a window of measurement holds a settled loop; if not, its means are of nothing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forebay._base import quantities, registries, statistics
from forebay._base.metrics import COST
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.scenario.builder import Group

if TYPE_CHECKING:
    from forebay._native import LawInfo, Parameter, PointInfo, Run, TrafficInfo
    from forebay.control.link import Link

#: A link is full, and a set-point missed, beyond these shares.
FULL, MISSED = 0.9, 0.25
#: A trend counts where the queue moves by this share of its mean, and by this many standard
#: errors, over the window, which is cut into so many parts.
MOVED, ERRORS, PARTS = 0.2, 3.0, 8
#: Time constants of the slowest root that a start and a window must have: e⁻³ is 5 %.
CONSTANTS = 3.0
#: The class of flows whose queue has no set-point.
L4S = "l4s"
#: What is said of a law whose seeds change nothing.
SAME_RUN = (
    "all {} seeds gave the same run, so there is neither an interval nor a test; the seed draws "
    "the starts of flows unless a scenario fixes them"
)
#: Pairs of point and law that the linear model is asked about.
MOST_MODELS = 200


@dataclass(frozen=True)
class Finding:
    """What is wrong with a law at a point."""

    law: str
    #: its index
    point: int
    #: the same for every finding of its kind
    kind: str
    text: str
    #: a command that helps; empty where there is none
    command: str = ""


#: A law at a point, by its index, and its runs.
Measured = tuple[int, "PointInfo", "LawInfo", Sequence["Run"]]


def warnings(groups: Iterable[Measured]) -> list[tuple[Finding, int]]:
    """Laws that were measured before they had settled, or that missed their set-point: for each
    law and fault the first point, and at how many points it is so."""
    by_kind: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for found in _findings(groups):
        by_kind[found.kind, found.law].append(found)
    return [(some[0], len(some)) for some in by_kind.values()]


def _findings(groups: Iterable[Measured]) -> Iterator[Finding]:
    models = 0
    for p, point, law, runs in groups:
        if beyond := _beyond_buffer(point, law):
            yield Finding(law.label, p, "beyond", beyond)
        if trend := _trend(point, runs):
            yield Finding(law.label, p, "trend", trend)
        if seeds_change_nothing(runs):
            yield Finding(law.label, p, "seeds", SAME_RUN.format(len(runs)))
        if missed := _missed(point, law, runs):
            yield Finding(law.label, p, "missed", *missed)
        if models < MOST_MODELS and law.kind is not None:
            models += 1
            if short := _short(point, law):
                yield Finding(law.label, p, "short", short)


def _beyond_buffer(point: PointInfo, law: LawInfo) -> str:
    """Return the sentence about a set-point that the buffer cannot hold; empty if it can.

    Linux accepts such a qdisc, and so does a scenario.
    """
    link = point.links[0]
    if not law.target_pkts or law.per_flow or any(change.aqm for change in point.changes):
        return ""
    packet_bytes = max((traffic.packet_bytes for traffic in point.traffic), default=0)
    if link.buffer_pkts is None and not packet_bytes:
        return ""
    room_pkts = _room_pkts(point, packet_bytes)
    if law.target_pkts <= room_pkts:
        return ""
    return (
        f"its target is {law.target_pkts:.0f} packets at this rate, and the buffer holds "
        f"{room_pkts:.0f}: the queue never reaches the target, and the buffer alone limits it; "
        "take a longer buffer or a smaller target"
    )


def seeds_change_nothing(runs: Sequence[Run]) -> bool:
    """Return True if several seeds all gave the same run, by every metric of every link."""
    return statistics.are_one_run([_numbers(run) for run in runs])


def _numbers(run: Run) -> dict[str, float]:
    """Return the metrics of a run at all links, without what it cost."""
    return {
        f"{link.link} {name}": value
        for link in [run, *run.others]
        for name, value in link.metrics.items()
        if name != COST
    }


def _trend(point: PointInfo, runs: Sequence[Run]) -> str:
    """A trend inside the window, over all seeds; empty without one, and where the scenario itself
    changes within the window."""
    start, end = point.measure_s
    if any(start <= change.time_s < end for change in point.changes):
        return ""
    parts = [found for run in runs if (found := _parts(run, start, end)) is not None]
    if not parts:
        return ""
    values = np.array(parts)
    mean = float(values.mean())
    times = np.arange(PARTS) - (PARTS - 1) / 2
    slope = float((values.mean(axis=0) * times).sum() / (times**2).sum())
    spread = values - values.mean() - slope * times
    freedom = max(1, values.size - 2)
    error = math.sqrt((spread**2).sum() / freedom / (len(parts) * (times**2).sum()))
    # Short queues of a few packets always move by a large share.
    moved = abs(slope) * (PARTS - 1)
    if moved < max(MOVED * mean, 2.0) or abs(slope) < ERRORS * error:
        return ""
    first, last = values[:, 0].mean(), values[:, -1].mean()
    return (
        f"the queue still moves while it is measured, from {first:.0f} packets at first to "
        f"{last:.0f} at last; measure later, or longer"
    )


def _parts(run: Run, start_s: float, end_s: float) -> NDArray[np.float64] | None:
    """Means of the queue over the parts of the window; None where it has too few samples, as of a
    run that keeps its metrics alone."""
    if "time_s" not in run.samples:
        return None
    time_s = run.samples["time_s"]
    inside = (time_s > start_s) & (time_s <= end_s)
    queue = np.asarray(run.samples["queue_pkts"][inside], dtype=float)
    rows = len(queue) // PARTS
    if rows < 4:
        return None
    means: NDArray[np.float64] = queue[: rows * PARTS].reshape(PARTS, rows).mean(axis=1)
    return means


def _waits_elsewhere(run: Run) -> bool:
    """Whether packets left a queue that is not the set-point's: of several classes each waits in
    one of its own, and that of L4S is kept shorter than any set-point (RFC 9332)."""
    used = [one.name for one in run.classes if not math.isnan(one.metrics["delay_mean_s"])]
    return len(used) > 1 or used == [L4S]


def unmarked(point: PointInfo) -> Iterator[str]:
    """Traffic whose sender answers marks in another way than drops, and gets no marks."""
    for traffic in point.traffic:
        sender = registries.senders().get(traffic.tcp or "")
        if sender is None or sender["window_law"] == sender["window_law_on_drops"]:
            continue
        if traffic.ecn == "off":
            yield (
                f"{traffic.label}: its packets cannot be marked, and {traffic.tcp} then answers "
                f'drops alone, as {sender["window_law_on_drops"]} does; ecn = true or ecn = "l4s" '
                "in its [[traffic]] lets them be"
            )
        elif not any(link.ecn for link in point.links):
            yield (
                f"{traffic.label}: no link marks (bottleneck.ecn = false), and {traffic.tcp} then "
                f"answers drops alone, as {sender['window_law_on_drops']} does"
            )


@dataclass(frozen=True)
class SetPoint:
    """The set-point of a law at a point, and what was measured of it.

    Attributes
    ----------
    measured, target : float
        Mean queuing delay and its target in s where the target is a delay; otherwise the mean
        queue and its target in packets. Packets of several sizes make a delay no fixed number of
        them, so that a delay is compared with a delay.
    utilisation : float
        Share of the link that is used; a link that is not full needs no queue.
    steers : bool
        True if the law steers the mean to its target. Others, such as CoDel and P, have a target
        that their mean differs from by design.
    """

    measured: float
    target: float
    is_delay: bool
    utilisation: float
    steers: bool = True

    @property
    def missed(self) -> bool:
        """True if the link is full and its queue more than a quarter away from the target."""
        return self.full and abs(self.measured / self.target - 1) > MISSED

    @property
    def full(self) -> bool:
        """True if the link is full."""
        return self.utilisation >= FULL

    @property
    def what(self) -> str:
        """The measured quantity: the delay or the queue."""
        return "delay" if self.is_delay else "queue"

    @property
    def measured_text(self) -> str:
        """The measured delay or queue with its unit, such as "15.1 ms" or "23 packets"."""
        if self.is_delay:
            return f"{1e3 * self.measured:.3g} ms"
        return f"{self.measured:.0f} packets"

    @property
    def target_text(self) -> str:
        """The target with its unit."""
        return f"{1e3 * self.target:g} ms" if self.is_delay else f"{self.target:g} packets"


def set_point(point: PointInfo, law: LawInfo, runs: Sequence[Run]) -> SetPoint | None:
    """Return the set-point of a law with what was measured of it; None where it has none, where
    the law was changed during the run, and where classes or flows have queues of their own."""
    if not law.target_pkts or any(change.aqm for change in point.changes):
        return None
    if law.per_flow or any(_waits_elsewhere(run) for run in runs):
        return None
    return measured_set_point(law, [run.metrics for run in runs])


def steers(law: LawInfo) -> bool:
    """Return True if a law steers the mean queue to its target: it integrates the distance to it,
    or it is written in Python, of which nothing is known but that it has a target."""
    return law.integrates or law.kind is None


def measured_set_point(law: LawInfo, metrics: Sequence[Mapping[str, float]]) -> SetPoint | None:
    """Return the set-point of a law with what its runs measured; None where it has none."""
    if not law.target_pkts:
        return None

    def mean(name: str) -> float:
        return float(np.mean([run[name] for run in metrics]))

    is_delay = law.target_s is not None
    measured = mean("delay_mean_s" if is_delay else "queue_mean_pkts")
    target = law.target_s if law.target_s is not None else law.target_pkts
    return SetPoint(measured, target, is_delay, mean("utilisation"), steers(law))


def _missed(point: PointInfo, law: LawInfo, runs: Sequence[Run]) -> tuple[str, str] | None:
    """A set-point that was missed, and the command that designs the law for the link."""
    judged = set_point(point, law, runs)
    if judged is None or not judged.steers or not judged.missed:
        return None
    assert law.target_pkts is not None
    target_pkts, command = law.target_pkts, ""
    load = _load(point)
    # A design for several senders is more than a line.
    if law.kind is not None and load is not None and len(load.senders) == 1:
        link = point.links[0]
        command, _ = design_command(
            law.kind,
            law.params,
            rate_bps=link.rate_bps,
            packet_bytes=load.packet_bytes,
            rtt_s=load.rtt_s,
            flows=load.flows,
            target_pkts=target_pkts,
            room_pkts=_room_pkts(point, load.packet_bytes),
            buffer_pkts=link.buffer_pkts,
            tcp=load.senders[0].tcp,
        )
    return (
        f"the mean {judged.what} of {judged.measured_text} is more than {100 * MISSED:.0f} % away "
        f"from the target of {judged.target_text}",
        command,
    )


def _short(point: PointInfo, law: LawInfo) -> str:
    """Whether the linear model needs longer to settle than the scenario waits or measures."""
    load = _load(point)
    start, end = point.measure_s
    # Counted from the last time that the loop was disturbed.
    began = max([change.time_s for change in point.changes if change.time_s < start], default=0.0)
    if load is None or law.kind is None or any(change.aqm for change in point.changes):
        return ""
    if law.per_flow:
        return ""
    from forebay.control.plants import plant_on  # scipy takes a while to load

    try:
        loop = plant_on(_link(point, load), law.kind, law.params).loop_at(load.flows, load.rtt_s)
    except ScenarioError:
        return ""
    if loop is None or not math.isfinite(loop.settling_s):
        return ""
    # `settling_s` is four time constants.
    needed_s = loop.settling_s * CONSTANTS / 4
    needed = quantities.time(float(f"{needed_s:.2g}"))
    if start - began < needed_s:
        return (
            f"by the linear model its loop takes {needed} to settle, and measuring begins after "
            f"{quantities.time(start - began)}"
        )
    if end - start < needed_s:
        return (
            f"by the linear model its loop takes {needed} to settle, longer than the "
            f"{quantities.time(end - start)} that are measured"
        )
    return ""


@dataclass(frozen=True)
class _Load:
    """Long-lived flows: how many, their mean RTT and packet, and a class for each sender."""

    flows: float
    rtt_s: float
    packet_bytes: int
    senders: tuple[Group, ...]


def _load(point: PointInfo) -> _Load | None:
    """As design and model take it; None where there is none, where data also waits elsewhere, or
    where the plant does not have a sender."""
    long = [one for one in point.traffic if one.kind == "ftp" and one.tcp is not None]
    flows = sum(one.flows for one in long)
    link = point.links[0]
    if flows == 0 or len(point.links) > 1 or link.trace is not None:
        return None
    of_sender: dict[str, list[TrafficInfo]] = defaultdict(list)
    for one in long:
        name = registries.window_law(one.tcp, one.ecn != "off" and link.ecn)
        if name is None:
            return None
        if one.flows:
            of_sender[name].append(one)
    groups = [
        Group(name, sum(one.flows for one in some), quantities.time(_mean_rtt_s(some)))
        for name, some in of_sender.items()
    ]
    packet_bytes = sum(one.flows * one.packet_bytes for one in long) / flows
    return _Load(float(flows), _mean_rtt_s(long), round(packet_bytes), tuple(groups))


def _mean_rtt_s(some: Sequence[TrafficInfo]) -> float:
    total_s = sum(one.flows * sum(one.rtts_s) / len(one.rtts_s) for one in some)
    return total_s / sum(one.flows for one in some)


def _link(point: PointInfo, load: _Load) -> Link:
    from forebay.control.link import PLAIN, Link

    plain = [one.tcp for one in load.senders] == [PLAIN]
    return Link.of_groups(
        quantities.rate(point.links[0].rate_bps),
        quantities.time(load.rtt_s),
        flows=load.flows,
        packet=quantities.size(load.packet_bytes),
        buffer_pkts=math.ceil(_room_pkts(point, load.packet_bytes)),
        groups=() if plain else load.senders,
    )


def _room_pkts(point: PointInfo, packet_bytes: int) -> float:
    link = point.links[0]
    if link.buffer_pkts is not None:
        return float(link.buffer_pkts)
    return (link.buffer_bytes or 0) / packet_bytes


def design_command(
    kind: str,
    params: Sequence[tuple[str, Parameter]],
    *,
    rate_bps: int,
    packet_bytes: int,
    rtt_s: float,
    flows: float,
    target_pkts: float,
    room_pkts: float,
    buffer_pkts: int | None,
    tcp: str = "reno",
) -> tuple[str, set[str]]:
    """`forebay design …`, and the parameters that it would choose.

    rtt_s: propagation both ways. room_pkts: the buffer, in packets. buffer_pkts: the same where it
    is bounded in packets. tcp: the flows' sender, as `--tcp` names it. Both are empty for a law
    without a design rule, and where the rule has no gains for the link.
    """
    try:
        model = LawModel(kind, params, rate_bps, packet_bytes, room_pkts)
        per_s = model.capacity_pkts_per_s
        point = OperatingPoint(flows, rtt_s + target_pkts / per_s, per_s)
        designed = model.design(point, target_pkts, [])
    except ScenarioError:
        return "", set()
    if designed is None:
        return "", set()
    buffer = f" --buffer {buffer_pkts}p" if buffer_pkts is not None else ""
    sender = f" --tcp {tcp}" if tcp != "reno" else ""
    return (
        f"forebay design {kind} --rate {quantities.rate(rate_bps)} "
        f"--packet {quantities.size(packet_bytes)} "
        f"--rtt {1e3 * rtt_s:.4g}ms --flows {flows:g} --target {target_pkts:g}p{buffer}{sender}",
        {name for name, _ in designed["params"]},
    )
