"""What was run, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay._native import __version__

if TYPE_CHECKING:
    from forebay._native import PointInfo, TrafficInfo
    from forebay.result import Result

UNITS = {"p": "packets", "B": "bytes"}
TCP = {"reno": "TCP Reno", "newreno": "TCP NewReno", "sack": "TCP with SACK"}


def quantity(text: str) -> str:
    """ "30Mbit/s" as "30 Mbit/s", "800p" as "800 packets", "0.00002" as "2e-05"."""
    match = re.fullmatch(r"([\d.]+(?:e[+-]?\d+)?)\s*([A-Za-zµ/]*)", text)
    if not match:
        return text
    number, unit = match.groups()
    if "." in number:
        number = repr(float(number))
    # A space at which no line breaks.
    return f"{number}\N{NO-BREAK SPACE}{UNITS.get(unit, unit)}".rstrip()


@dataclass(frozen=True)
class Description:
    """What was run: a sentence on the link, one on each traffic, and the rest."""

    link: str
    traffic: list[str]
    rest: str


def describe(result: Result) -> Description:
    plan = result.plan
    first = plan.points[0]
    rest = [_changes(first)] if first.changes else []
    if first.settings:
        keys = " and ".join(first.settings)
        rest.append(
            f"This is the first of {len(plan.points)} points; from point to point {keys} "
            f"{'differs' if len(first.settings) == 1 else 'differ'}."
        )
    rest += [_runs(result), _metrics(first), f"Made with Forebay {__version__}."]
    return Description(_link(first), [_traffic(one) for one in first.traffic], " ".join(rest))


def changes(point: PointInfo, most: int) -> list[str]:
    """What changes while it runs, the first `most` of it."""
    texts = [
        f"{time_s:g} s: {what} {quantity(value)}" for time_s, what, value in point.changes[:most]
    ]
    left = len(point.changes) - most
    return [*texts, f"{left} more"] if left > 0 else texts


def _changes(point: PointInfo) -> str:
    return f"While it runs, something changes ({'; '.join(changes(point, 10))})."


def _link(point: PointInfo) -> str:
    ecn = ", with ECN" if point.ecn else ""
    return (
        f"The bottleneck is a link of {quantity(point.rate)} with a one-way delay of "
        f"{quantity(point.delay)} and a buffer of {quantity(point.buffer)}{ecn}. It carries:"
    )


def _traffic(traffic: TrafficInfo) -> str:
    flows = "flow" if traffic.flows == 1 else "flows"
    params = {key: quantity(value) for key, value in traffic.params}
    parts = [TCP.get(traffic.tcp or "", "no congestion control")]
    if traffic.ecn:
        parts.append("ECN")
    parts.append(f"packets of {quantity(traffic.packet)}")
    parts.append(_rtts(traffic.rtts))
    parts.append(f"access links of {quantity(traffic.access)}")
    if traffic.kind == "mice":
        parts.append(
            f"each silent and active in turn for exponential times of {params['off']} and "
            f"{params['on']} on average"
        )
    elif params:
        parts += [f"{key} {value}" for key, value in params.items()]
    parts.append(f"starting {_when(traffic.start)}")
    if traffic.stop:
        parts.append(f"stopping {_when(traffic.stop)}")
    name = traffic.label if traffic.label == traffic.kind else f"{traffic.label} ({traffic.kind})"
    return f"{traffic.flows} {name} {flows}: {', '.join(parts)}."


def _rtts(rtts: list[str]) -> str:
    texts = [quantity(rtt) for rtt in rtts]
    if len(texts) == 1:
        return f"round-trip time {texts[0]} without queues"
    if len(texts) <= 3:
        return f"round-trip times {', '.join(texts)} without queues"
    return f"{len(texts)} round-trip times from {texts[0]} to {texts[-1]} without queues"


def _when(bounds: tuple[str, str]) -> str:
    earliest, latest = map(quantity, bounds)
    return f"at {earliest}" if earliest == latest else f"between {earliest} and {latest}"


def _runs(result: Result) -> str:
    plan = result.plan
    count = result.experiment.runs
    seeds = (
        f"seeds {plan.seeds[0]} to {plan.seeds[-1]}"
        if len(plan.seeds) > 1
        else f"seed {plan.seeds[0]}"
    )
    laws = f"{len(plan.laws)} laws" if len(plan.laws) > 1 else f"The law {plan.laws[0]}"
    at = f" at {len(plan.points)} points" if len(plan.points) > 1 else ""
    return (
        f"{laws} ran{at} with {seeds}: {count} {'runs' if count > 1 else 'run'} of "
        f"{plan.points[0].duration_s:g} s of simulated time."
    )


def _metrics(point: PointInfo) -> str:
    start, end = point.measure_s
    text = (
        f"Metrics are taken from {start:g} s to {end:g} s, with the queue sampled every "
        f"{1e3 * point.sample_s:g} ms"
    )
    if point.target_pkts is not None:
        return f"{text}; the set-point for QACD is {point.target_pkts:g} packets."
    return f"{text}; QACD is taken against each law's own set-point, if it has one."
