"""Points, links, changes and warnings of runs, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forebay._base import input_file, quantities, registries, words
from forebay.experiment import steady_state

if TYPE_CHECKING:
    from forebay._native import ChangeInfo, PointInfo
    from forebay.experiment.result import Result
    from forebay.experiment.steady_state import Finding
    from forebay.scenario.axes import Axis


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


def warnings(result: Result) -> list[tuple[str, str]]:
    """Return warnings on the means: sentences, each with a command that helps or ""."""
    points = dict(result.points())
    return in_words(result.warnings, points, f"{len(points)} points")


def in_words(
    findings: Sequence[tuple[Finding, int]], points: Mapping[int, PointInfo], looked_at: str
) -> list[tuple[str, str]]:
    """As `warnings`; `points` has those that were looked at, and `looked_at` says how many."""
    first = next(iter(points.values()), None)
    sentences = [(f"{text}.", "") for text in (steady_state.unmarked(first) if first else ())]
    remarks = (text for info in points.values() for text in file_remarks(info))
    sentences += [(f"{text}.", "") for text in dict.fromkeys(remarks)]
    for finding, count in findings:
        at = f" at {point(points[finding.point])}" if len(points) > 1 else ""
        share = f" ({count} of {looked_at})" if len(points) > 1 else ""
        law = registries.title_of(finding.law)
        sentences.append((f"{law}{at}: {finding.text}{share}.", finding.command))
    return sentences


def file_remarks(info: PointInfo) -> Iterator[str]:
    """Yield what was left out of the captures of a point, and what was taken otherwise."""
    for traffic in info.traffic:
        counts = traffic.frames
        if counts is None:
            continue
        left_out = f"of {counts.frames} frames"
        for count, are in [
            (counts.not_ip, "are not IP packets and were left out"),
            (counts.too_short, "hold too little of their packets and were left out"),
            (counts.without_time, "have no time and were left out"),
            (
                counts.longer_than_recorded,
                "are shorter than their packets, by the IP header, whose length was taken",
            ),
        ]:
            if count:
                name = input_file.printable(traffic.file or "")
                yield f"{name}: {count} {left_out} {are}"


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
            words.quantity(quantities.toml(one))
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


def measured_over(result: Result, point: PointInfo, one: str = "one seed") -> str:
    """The window and the seeds of metrics: "from 5 s to 20 s, over all 3 seeds"."""
    start, end = point.measure_s
    spread = f"all {result.seeds} seeds" if result.seeds > 1 else one
    return f"from {start:g} s to {end:g} s, over {spread}"
