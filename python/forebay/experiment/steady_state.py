"""Check that a window of measurement shows a settled loop, whose means are meaningful.

`warnings` examines each law at each point: a queue that drifts within the window, a missed
set-point, a set-point that the buffer cannot hold, seeds that change nothing, and a linear model
that settles more slowly than the scenario waits.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from forebay._base import quantities, registries, statistics, words
from forebay._base.metrics import COST
from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.scenario.builder import Group

if TYPE_CHECKING:
    from forebay._native import LawInfo, Parameter, PointInfo, Run, TrafficInfo
    from forebay.control.link import Link

#: Utilisation from which a link is full, and relative deviation beyond which a set-point is missed.
FULL, MISSED = 0.9, 0.25
#: The queue drifts if its trend over the window is this share of its mean and this many standard
#: errors; the window is cut into this many parts.
MOVED, ERRORS, PARTS = 0.2, 3.0, 8
#: The start and the window must each last this many time constants of the slowest root: e⁻³ is 5 %.
CONSTANTS = 3.0
#: The class of flows whose queue has no set-point.
L4S = "l4s"
#: The warning about a law whose runs do not depend on the seed.
SAME_RUN = (
    "all {} seeds gave the same run, so there is no interval and no test; leave out `start`, "
    "so that the seed draws the start times of flows"
)
#: The most pairs of point and law that are compared with the linear model.
MOST_MODELS = 200


@dataclass(frozen=True)
class Finding:
    """A problem with the numbers of a law at a point.

    Attributes
    ----------
    law : str
        Label of the law.
    point : int
        Index of the point.
    kind : str
        Key of the problem, the same for every finding of its kind.
    text : str
        The problem as a clause.
    command : str, default ''
        A command that helps; empty if there is none.
    """

    law: str
    point: int
    kind: str
    text: str
    command: str = ""


#: The index of a point, the point, a law, and the runs of the law at the point.
Measured = tuple[int, "PointInfo", "LawInfo", Sequence["Run"]]


def warnings(groups: Iterable[Measured]) -> list[tuple[Finding, int]]:
    """Return the laws that were measured before they had settled, or that missed their set-point.

    Returns
    -------
    list[tuple[Finding, int]]
        For each law and kind of problem, the first finding and the number of points that have it.
    """
    by_kind: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in _findings(groups):
        by_kind[finding.kind, finding.law].append(finding)
    return [(findings[0], len(findings)) for findings in by_kind.values()]


def _findings(groups: Iterable[Measured]) -> Iterator[Finding]:
    """Yield every finding; only `MOST_MODELS` laws are compared with their linear model."""
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
        f"its target is {law.target_pkts:.0f} packets at this rate, but the buffer holds "
        f"{room_pkts:.0f}, so the queue never reaches the target; use a longer buffer or a "
        "smaller target"
    )


def seeds_change_nothing(runs: Sequence[Run]) -> bool:
    """Return True if several seeds all gave the same run, by every metric of every link."""
    return statistics.are_one_run([_numbers(run) for run in runs])


def _numbers(run: Run) -> dict[str, float]:
    """Return the metrics of a run at all links, without what it cost."""
    return {
        f"{link.link} {name}": value
        for link in run.links
        for name, value in link.metrics.items()
        if name != COST
    }


def _trend(point: PointInfo, runs: Sequence[Run]) -> str:
    """Return a sentence about a drift of the queue within the window, over all seeds.

    It is empty without a drift, and if the scenario itself changes within the window.
    """
    start, end = point.measure_s
    if any(start <= change.time_s < end for change in point.changes):
        return ""
    parts = [
        means_of_parts for run in runs if (means_of_parts := _parts(run, start, end)) is not None
    ]
    if not parts:
        return ""
    values = np.array(parts)
    mean = float(values.mean())
    times = np.arange(PARTS) - (PARTS - 1) / 2
    slope = float((values.mean(axis=0) * times).sum() / (times**2).sum())
    spread = values - values.mean() - slope * times
    freedom = max(1, values.size - 2)
    error = math.sqrt((spread**2).sum() / freedom / (len(parts) * (times**2).sum()))
    # A queue of a few packets always moves by a large share of its mean.
    moved = abs(slope) * (PARTS - 1)
    if moved < max(MOVED * mean, 2.0) or abs(slope) < ERRORS * error:
        return ""
    first, last = values[:, 0].mean(), values[:, -1].mean()
    return (
        f"not in steady state: the mean queue drifts from {first:.0f} to {last:.0f} packets "
        "within the measurement window; start measuring later or run longer"
    )


def _parts(run: Run, start_s: float, end_s: float) -> NDArray[np.float64] | None:
    """Return the means of the queue over the parts of the window.

    The result is None if the window has too few samples, for example in a run that keeps only its
    metrics.
    """
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
    """Return True if packets left a queue to which the set-point does not apply.

    Each of several classes has its own queue, and the queue of L4S is kept shorter than any
    set-point (RFC 9332).
    """
    used = [class_.name for class_ in run.classes if not math.isnan(class_.metrics["delay_mean_s"])]
    return len(used) > 1 or used == [L4S]


def unmarked(point: PointInfo) -> Iterator[str]:
    """Yield sentences about senders that distinguish marks from drops, but get no marks."""
    for traffic in point.traffic:
        sender = registries.senders().get(traffic.tcp or "")
        if sender is None or sender["window_law"] == sender["window_law_on_drops"]:
            continue
        if traffic.ecn == "off":
            yield (
                f"{traffic.label}: its packets are not ECN-capable, so {traffic.tcp} responds "
                f"only to drops, like {sender['window_law_on_drops']}; set ecn = true or "
                'ecn = "l4s" in its [[traffic]]'
            )
        elif not any(link.ecn for link in point.links):
            yield (
                f"{traffic.label}: no link marks packets, so {traffic.tcp} responds only to "
                f"drops, like {sender['window_law_on_drops']}; set bottleneck.ecn = true"
            )


@dataclass(frozen=True)
class SetPoint:
    """The set-point of a law at a point, and what was measured of it.

    Attributes
    ----------
    measured, target : float
        Mean queuing delay and its target in s where the target is a delay; otherwise the mean
        queue and its target in packets. Packets of several sizes make a delay no fixed number of
        them, so a delay is compared with a delay.
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
    """Return the set-point of a law with its measured values.

    Parameters
    ----------
    point : PointInfo
        The point.
    law : LawInfo
        The law at the point.
    runs : Sequence[Run]
        The runs of the law at the point.

    Returns
    -------
    SetPoint | None
        The set-point; None if the law has none, was changed during the run, or has a queue per
        class or flow.
    """
    if not law.target_pkts or any(change.aqm for change in point.changes):
        return None
    if law.per_flow or any(_waits_elsewhere(run) for run in runs):
        return None
    return measured_set_point(law, [run.metrics for run in runs])


def steers(law: LawInfo) -> bool:
    """Return True if a law steers the mean queue to its target.

    Such a law integrates the deviation from the target. A law in Python that has a target is
    assumed to do so.
    """
    return law.integrates or law.kind is None


def measured_set_point(law: LawInfo, metrics: Sequence[Mapping[str, float]]) -> SetPoint | None:
    """Return the set-point of a law with its measured values; None if the law has no set-point.

    Parameters
    ----------
    law : LawInfo
        The law.
    metrics : Sequence[Mapping[str, float]]
        The metrics of each of its runs.
    """
    if not law.target_pkts:
        return None

    def mean(name: str) -> float:
        return float(np.mean([run[name] for run in metrics]))

    is_delay = law.target_s is not None
    measured = mean("delay_mean_s" if is_delay else "queue_mean_pkts")
    target = law.target_s if law.target_s is not None else law.target_pkts
    return SetPoint(measured, target, is_delay, mean("utilisation"), steers(law))


def _missed(point: PointInfo, law: LawInfo, runs: Sequence[Run]) -> tuple[str, str] | None:
    """Return a sentence about a missed set-point, and the command that designs the law."""
    judged = set_point(point, law, runs)
    if judged is None or not judged.steers or not judged.missed:
        return None
    assert law.target_pkts is not None
    target_pkts, command = law.target_pkts, ""
    load = _load(point)
    # A design for several senders needs more than a one-line command.
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
        f"missed its target by more than {100 * MISSED:.0f} %: mean {judged.what} "
        f"{judged.measured_text}, target {judged.target_text}; its gains do not suit this link",
        command,
    )


def _short(point: PointInfo, law: LawInfo) -> str:
    """Return a warning if the loop needs longer to settle than the run gives it; else "".

    By the linear model, the loop must settle before the measurement window begins, counted from
    the last disturbance before it, and within the length of the window.
    """
    load = _load(point)
    start, end = point.measure_s
    # The settling time counts from the last disturbance of the loop.
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
    needed = words.time(float(f"{needed_s:.2g}"))
    if start - began < needed_s:
        return (
            f"the loop settles in {needed} by the linear model, but the measurement begins after "
            f"{words.time(start - began)}; start measuring later"
        )
    if end - start < needed_s:
        return (
            f"the loop settles in {needed} by the linear model, longer than the measurement "
            f"window of {words.time(end - start)}; run longer"
        )
    return ""


@dataclass(frozen=True)
class _Load:
    """The long-lived flows of a point.

    Attributes
    ----------
    flows : float
        Number of flows.
    rtt_s : float
        Mean round trip in seconds.
    packet_bytes : int
        Mean packet size in bytes.
    senders : tuple[Group, ...]
        A group of flows for each sender.
    """

    flows: float
    rtt_s: float
    packet_bytes: int
    senders: tuple[Group, ...]


def _load(point: PointInfo) -> _Load | None:
    """Return the load of a point for a design or a linear model.

    The result is None if there are no long-lived flows, if the scenario has several links or a link
    with a trace, or if a sender has no linear model.
    """
    long = [
        traffic for traffic in point.traffic if traffic.kind == "ftp" and traffic.tcp is not None
    ]
    flows = sum(traffic.flows for traffic in long)
    link = point.links[0]
    if flows == 0 or len(point.links) > 1 or link.trace is not None:
        return None
    of_sender: dict[str, list[TrafficInfo]] = defaultdict(list)
    for traffic in long:
        name = registries.window_law(traffic.tcp, traffic.ecn != "off" and link.ecn)
        if name is None:
            return None
        if traffic.flows:
            of_sender[name].append(traffic)
    groups = [
        Group(
            name, sum(traffic.flows for traffic in traffics), quantities.time(_mean_rtt_s(traffics))
        )
        for name, traffics in of_sender.items()
    ]
    packet_bytes = sum(traffic.flows * traffic.packet_bytes for traffic in long) / flows
    return _Load(float(flows), _mean_rtt_s(long), round(packet_bytes), tuple(groups))


def _mean_rtt_s(traffics: Sequence[TrafficInfo]) -> float:
    """Return the mean round trip of the flows of some traffic."""
    total_s = sum(traffic.flows * sum(traffic.rtts_s) / len(traffic.rtts_s) for traffic in traffics)
    return total_s / sum(traffic.flows for traffic in traffics)


def _link(point: PointInfo, load: _Load) -> Link:
    """Return the bottleneck with its load, as the linear model takes it."""
    from forebay.control.link import PLAIN, Link

    plain = [sender.tcp for sender in load.senders] == [PLAIN]
    return Link.of_groups(
        quantities.rate(point.links[0].rate_bps),
        quantities.time(load.rtt_s),
        flows=load.flows,
        packet=quantities.size(load.packet_bytes),
        buffer_pkts=math.ceil(_room_pkts(point, load.packet_bytes)),
        groups=() if plain else load.senders,
    )


def _room_pkts(point: PointInfo, packet_bytes: int) -> float:
    """Return the length of the buffer in packets."""
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
    """Return the `forebay design` command for a link, and the parameters that it would choose.

    Parameters
    ----------
    kind : str
        The law.
    params : Sequence[tuple[str, Parameter]]
        Parameters of the law that are fixed.
    rate_bps, packet_bytes : int
        Rate of the link in bit/s, and packet size in bytes.
    rtt_s : float
        Propagation round trip in seconds.
    flows : float
        Number of flows.
    target_pkts : float
        Target of the mean queue in packets.
    room_pkts : float
        Length of the buffer in packets.
    buffer_pkts : int | None
        The same if the buffer is bounded in packets; None if it is bounded in bytes.
    tcp : str, default 'reno'
        The sender of the flows, as `--tcp` names it.

    Returns
    -------
    tuple[str, set[str]]
        The command and the names of parameters; both are empty if the law has no design rule, or
        the rule has no gains for the link.
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
