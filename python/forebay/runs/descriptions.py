"""A description of the runs, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._native import __version__, senders
from forebay.base import quantities, words

if TYPE_CHECKING:
    from forebay._native import ChangeInfo, LinkInfo, PointInfo, TrafficInfo
    from forebay.runs.experiment import Description
    from forebay.runs.experiment_runs import Runs
    from forebay.scenarios.axes import Axis

#: What packets and ACKs say of congestion.
ECN = {"off": [], "classic": ["ECN"], "l4s": ["ECN of L4S"]}
TCP = {sender["name"]: sender["title"] for sender in senders()}


@dataclass(frozen=True)
class Swept:
    """Something that differs from point to point."""

    name: str
    value: str
    #: both together
    text: str


def point(info: PointInfo) -> str:
    """A point of the sweep, such as "63 ftp + 126 mice, rate = 30 Mbit/s"."""
    return ", ".join(one.text for one in _swept(info)) or info.label


def place(info: PointInfo, link: int) -> str:
    """A point and, where there are several, the link with this number; empty for the only one."""
    name = info.links[link].name if len(info.links) > 1 else ""
    if name and link == 0 and name != "bottleneck":
        name += " (bottleneck)"
    return ", at ".join(filter(None, [point(info), name]))


def warnings(result: Runs) -> list[tuple[str, str]]:
    """What a reader must know of the means: a sentence each, and a command that helps or ""."""
    points = dict(result.points())
    said = []
    for found, count in result.warnings:
        at = f" at {point(points[found.point])}" if len(points) > 1 else ""
        others = f" ({count} of {len(points)} points)" if len(points) > 1 else ""
        said.append((f"{found.law}{at}: {found.text}{others}.", found.command))
    return said


def points_axis(points: Sequence[PointInfo]) -> tuple[list[str], str]:
    """Texts of the points along an axis, and the label of the axis."""
    swept = [_swept(one) for one in points]
    if len({tuple(one.name for one in some) for some in swept}) == 1 and len(swept[0]) == 1:
        return [some[0].value for some in swept], swept[0][0].name
    labels = [one.label for one in points]
    texts = ["\n".join(one.text for one in some) for some in swept]
    return [text or label for text, label in zip(texts, labels, strict=True)], ""


def axis(found: Axis, info: PointInfo) -> tuple[str, str]:
    """Name and unit of an axis of the sweep, at any of its points."""
    names = [_swept(info, {key: info.settings[key]})[0].name for key in found.keys]
    return " / ".join(dict.fromkeys(names)), found.unit if found.one else ""


def _swept(info: PointInfo, settings: Mapping[str, Any] | None = None) -> list[Swept]:
    """Flows of all traffic together, laws that get the same value together; of some `settings`, or
    of all."""
    flows: list[tuple[str, str]] = []
    others: dict[tuple[str, str], list[str]] = {}
    for path, found in (info.settings if settings is None else settings).items():
        section, _, rest = path.partition(".")
        table, _, key = rest.rpartition(".")
        value = " / ".join(
            words.quantity(one if isinstance(one, str) else json.dumps(one))
            for one in (found if isinstance(found, list) else [found])
        )
        if section == "traffic":
            labels = [one.label for one in info.traffic]
            kinds = [one.kind for one in info.traffic]
            label = _named(table, labels, kinds)
            if key == "flows":
                flows.append((value, label))
            else:
                others.setdefault((key, value), []).append(label)
        elif section == "link":
            names = [link.name for link in info.links[1:]]
            others.setdefault((key, value), []).append(_named(table, names))
        elif section == "law":
            labels = [law.label for law in info.laws]
            others.setdefault((key, value), []).append(_named(table, labels))
        else:
            others.setdefault((rest or path, value), [])
    swept = []
    if len(flows) == 1:
        ((count, label),) = flows
        swept.append(Swept(f"{label} flows", count, f"{count} {label} flows"))
    elif flows:
        together = " + ".join(f"{count} {label}" for count, label in flows)
        swept.append(Swept("flows", together, together))
    keys = [key for key, _ in others]
    for (key, value), owners in others.items():
        # The owners are named only where the key has several values.
        whose = f" of {' and '.join(owners)}" if owners and keys.count(key) > 1 else ""
        swept.append(Swept(f"{key}{whose}", value, f"{key}{whose} = {value}"))
    return swept


def _named(name: str, labels: list[str], kinds: list[str] | None = None) -> str:
    """The label of a table that a path names by its number, its label or its kind; the name itself
    where only some of the tables take part."""
    if name.isdigit() and int(name) < len(labels):
        return labels[int(name)]
    if kinds is not None and name not in labels and name in kinds:
        return labels[kinds.index(name)]
    return name


def describe(result: Runs) -> Description:
    from forebay.runs.experiment import Description  # which most of what needs words does not

    if result.experiment.description is not None:
        return result.experiment.description
    plan = result.plan
    first = plan.points[0]
    rest = [_changes(first)] if first.changes else []
    if first.settings:
        keys = " and ".join(first.settings)
        rest.append(
            f"This is the first of {len(plan.points)} points, {point(first)}; from point to "
            f"point {keys} {'differs' if len(first.settings) == 1 else 'differ'}."
        )
    rest += [_runs(result), _metrics(first), f"Made with Forebay {__version__}."]
    others = first.links[1:]
    return Description(
        link=_bottleneck(first.links[0], bool(others)),
        traffic=[_traffic(one, bool(others)) for one in first.traffic],
        rest=" ".join(rest),
        others=[_other_link(link) for link in others],
    )


def changes(point: PointInfo, most: int) -> list[str]:
    """The first `most` changes during the run."""
    texts = [
        f"{change.time_s:g} s: {' '.join(what_changes(point, change))}"
        for change in point.changes[:most]
    ]
    left = len(point.changes) - most
    return [*texts, f"{left} more"] if left > 0 else texts


def what_changes(point: PointInfo, change: ChangeInfo) -> tuple[str, str]:
    """What a change is of, and to what."""
    if change.flows is not None and change.traffic is not None:
        label = point.traffic[change.traffic].label
        return f"number of {label} flows", str(change.flows)
    of_link = f" of {point.links[change.link].name}" if change.link else ""
    if change.aqm is not None:
        params = ", ".join(f"{name}={quantities.plain(value)}" for name, value in change.params)
        return f"law{of_link}", f"{change.aqm} ({params})" if params else change.aqm
    if change.rate_bps is not None:
        return f"rate{of_link}", words.rate(change.rate_bps)
    if change.delay_s is not None:
        return f"one-way delay{of_link}", words.time(change.delay_s)
    return f"buffer{of_link}", words.buffer(change.buffer_pkts, change.buffer_bytes)


def at_link(point: PointInfo, link: int, word: str = "at") -> str:
    """ " at NAME", empty for the only link."""
    return f" {word} {point.links[link].name}" if len(point.links) > 1 else ""


def measured_over(result: Runs, point: PointInfo, one: str = "one seed") -> str:
    """The window and the seeds of metrics: "from 5 s to 20 s, over all 3 seeds"."""
    start, end = point.measure_s
    spread = f"all {result.seeds} seeds" if result.seeds > 1 else one
    return f"from {start:g} s to {end:g} s, over {spread}"


def _changes(point: PointInfo) -> str:
    return f"Changes during the run: {'; '.join(changes(point, 10))}."


def _bottleneck(link: LinkInfo, one_of_several: bool) -> str:
    if not one_of_several:
        return f"The bottleneck is {_link(link)}. It carries:"
    name = "" if link.name == "bottleneck" else f", {link.name},"
    ends = f"from {link.from_node} to {link.to_node}"
    return (
        f"The bottleneck{name} is {_link(link)}, {ends}. Metrics that name no link are taken "
        "there. Packets also wait at:"
    )


def _other_link(link: LinkInfo) -> str:
    law = f"always under {link.law.label}" if link.law else "under the law that is tested"
    ends = f"from {link.from_node} to {link.to_node}"
    return f"{link.name}: {_link(link)}, {ends}, {law}."


def _link(link: LinkInfo) -> str:
    capacity = f"of {words.rate(link.rate_bps)}"
    if link.trace:
        mean_bps, length_s = link.trace
        capacity = (
            f"that follows a recorded trace of {length_s:g} s again and again, "
            f"{words.rate(mean_bps)} on average (its law is told {words.rate(link.rate_bps)}),"
        )
    elif link.burst_bytes:
        capacity += f" that saves {quantities.size(link.burst_bytes)} in a pause,"
    ecn = ", marking ECN-capable packets" if link.ecn else ""
    return (
        f"a link {capacity} with a one-way delay of {words.delay(link.delay_s)} and a buffer of "
        f"{words.buffer(link.buffer_pkts, link.buffer_bytes)}{ecn}"
    )


def _arrivals(traffic: TrafficInfo, path: str) -> str:
    """Packets that came once."""
    params = {key: _number(key, number) for key, number in traffic.numbers.items()}
    flows = f"{traffic.flows} {'flow' if traffic.flows == 1 else 'flows'}"
    parts = [f"packets of at most {params['mtu_bytes']}", f"in {params['length_s']}"]
    if traffic.numbers["scale"] != 1:
        parts[-1] += f" (times {params['scale']})"
    if "period_s" in params:
        parts.append(f"anew every {params['period_s']}")
    parts.append(f"starting {_when(traffic.start_s)}")
    if traffic.stop_s:
        parts.append(f"stopping {_when(traffic.stop_s)}")
    name = "" if traffic.label == traffic.kind else f" ({traffic.label})"
    return (
        f"{params['packets']} packets of {flows} from {traffic.file}{name}{path}, as they came: "
        f"{', '.join(parts)}."
    )


def _traffic(traffic: TrafficInfo, with_path: bool) -> str:
    path = f", from {' over '.join(traffic.path[:-1])} to {traffic.path[-1]}" if with_path else ""
    if traffic.file is not None:
        return _arrivals(traffic, path)
    parts = [TCP.get(traffic.tcp or "", "no congestion control")]
    if traffic.pacing:
        parts.append("paced")
    parts += ECN[traffic.ecn]
    parts.append(f"packets of {words.quantity(quantities.size(traffic.packet_bytes))}")
    parts.append(_rtts(traffic.rtts_s))
    parts.append(f"access links of {words.rate(traffic.access_bps)}")
    parts += _particulars(traffic)
    parts.append(f"starting {_when(traffic.start_s)}")
    if traffic.stop_s:
        parts.append(f"stopping {_when(traffic.stop_s)}")
    most = "At most " if "arrivals" in traffic.numbers else ""
    flows = f"{traffic.kind} {'flow' if traffic.flows == 1 else 'flows'}"
    name = flows if traffic.label == traffic.kind else f"{flows} ({traffic.label})"
    return f"{most}{traffic.flows} {name}{path}: {', '.join(parts)}."


def _particulars(traffic: TrafficInfo) -> list[str]:
    """How flows of this kind behave; times without another word are means."""
    params = {key: _number(key, number) for key, number in traffic.numbers.items()}
    if traffic.kind == "cbr":
        return [f"each sending {params['rate_bps']}"]
    if traffic.kind == "mice":
        return [
            f"each silent and active in turn for exponential times of {params['off_s']} and "
            f"{params['on_s']} on average"
        ]
    if traffic.kind == "web":
        return [
            f"each a session of {params['requests']} requests a second on average, at Poisson "
            f"times, each answered over a new connection with {_size(params)}",
            f"at most {params['connections']} connections at one time",
        ]
    if traffic.kind == "pages":
        pages = f"{params['pages']} pages" if "pages" in params else "pages without end"
        objects = (
            "one object each"
            if params["objects"] == "1"
            else f"{params['objects']} objects each that start {params['object_gap_s']} apart on "
            "average (exponential)"
        )
        return [
            f"each a session of {pages}, {params['page_gap_s']} on average from the end of one to "
            "the next (exponential)",
            f"{objects}, every object over a new connection with {_size(params)}",
        ]
    if traffic.kind == "voice":
        return _calls(params)
    if traffic.kind == "frames":
        return [f"each sending {params['frame_pkts']} packets at once every {params['interval_s']}"]
    if traffic.kind == "video":
        return [
            f"each a viewer of segments of {params['segment_s']} at {params['ladder_bps']} or "
            f"more, with a buffer of {params['buffer_s']} (BBA-0)"
        ]
    if traffic.kind == "onoff":
        return _bursts(params, traffic.numbers["swing"])
    return []


def _number(key: str, number: float) -> str:
    """A number of a kind of traffic; its key ends with the unit."""
    if key.endswith("_s"):
        return words.time(number)
    if key.endswith("_bps"):
        return words.rate(number)
    if key.endswith("_bytes"):
        return words.quantity(quantities.size(round(number)))
    return words.value(number)


def _size(params: dict[str, str]) -> str:
    return (
        f"a size from the Pareto distribution of the second kind (shape {params['shape']}, scale "
        f"{params['scale_bytes']})"
    )


def _calls(params: dict[str, str]) -> list[str]:
    pauses = (
        f", talking for {params['talk_s']} and pausing for {params['pause_s']} on average "
        "(exponential)"
        if "talk_s" in params
        else ""
    )
    return [f"each a call of {params['rate_bps']}, a packet every {params['interval_s']}{pauses}"]


def _bursts(params: dict[str, str], swing: float) -> list[str]:
    lengths = f"Pareto, shape {params['on_shape']}" if "on_shape" in params else "exponential"
    parts = [
        f"each sending bursts at {params['rate_bps']} that last {params['on_s']} on average "
        f"({lengths}), {params['off_s']} apart on average (exponential)"
    ]
    if "bursts" in params:
        parts.append(f"ending after {params['bursts']} bursts on average (geometric)")
    if "arrivals" in params:
        about = (
            f", which swings by {100 * swing:g} % in {params['period_s']} and is greatest at "
            f"{params['peak_s']}"
            if swing
            else ""
        )
        parts.append(f"arriving at Poisson times, {params['arrivals']} a second{about}")
    return parts


def _rtts(rtts_s: list[float]) -> str:
    texts = [words.time(rtt_s) for rtt_s in rtts_s]
    if len(texts) == 1:
        return f"round-trip time {texts[0]} without queues"
    if len(texts) <= 3:
        return f"round-trip times {', '.join(texts)} without queues"
    return f"{len(texts)} round-trip times from {texts[0]} to {texts[-1]} without queues"


def _when(bounds_s: tuple[float, float]) -> str:
    earliest, latest = map(words.time, bounds_s)
    return f"at {earliest}" if earliest == latest else f"between {earliest} and {latest}"


def _runs(result: Runs) -> str:
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
