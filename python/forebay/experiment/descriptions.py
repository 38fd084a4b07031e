"""Describe points, links, changes and warnings of runs in words for tables, figures and pages."""

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
    """A setting that differs from point to point of a sweep.

    Attributes
    ----------
    name : str
        Name of the setting, such as "rate".
    value : str
        Its value at the point, such as "30 Mbit/s".
    text : str
        Name and value together, such as "rate = 30 Mbit/s".
    """

    name: str
    value: str
    #: both together
    text: str


def point(info: PointInfo) -> str:
    """Return the name of a point of the sweep, such as "63 ftp + 126 mice, rate = 30 Mbit/s"."""
    return ", ".join(swept.text for swept in _swept(info)) or info.label


def place(info: PointInfo, link: int) -> str:
    """Return the name of a point, followed by the name of the link if the point has several.

    Parameters
    ----------
    info : PointInfo
        The point.
    link : int
        Index of the link at the point.

    Returns
    -------
    str
        The name; empty for the only link of the only point.
    """
    name = info.links[link].name if len(info.links) > 1 else ""
    if name and link == 0 and name != "bottleneck":
        name += " (bottleneck)"
    return ", at ".join(filter(None, [point(info), name]))


def warnings(result: Result) -> list[tuple[str, str]]:
    """Return the warnings about the means of a result, each with a command that helps or ""."""
    points = dict(result.points())
    return in_words(result.warnings, points, f"{len(points)} points")


def in_words(
    findings: Sequence[tuple[Finding, int]], points: Mapping[int, PointInfo], looked_at: str
) -> list[tuple[str, str]]:
    """Return findings as sentences, each with a command that helps or "".

    Parameters
    ----------
    findings : Sequence[tuple[Finding, int]]
        Findings, each with the number of points that have it.
    points : Mapping[int, PointInfo]
        The points that were examined, by index.
    looked_at : str
        The number of examined points in words, such as "12 points".

    Returns
    -------
    list[tuple[str, str]]
        Pairs of a sentence and a command; remarks on captures come before the findings.
    """
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
    """Yield sentences about frames of a point's captures that were omitted or adjusted."""
    for traffic in info.traffic:
        counts = traffic.frames
        if counts is None:
            continue
        left_out = f"of {counts.frames} frames"
        for count, fate in [
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
                yield f"{name}: {count} {left_out} {fate}"


def points_axis(points: Sequence[PointInfo]) -> tuple[list[str], str]:
    """Return the labels of the points along an axis, and the label of the axis.

    The axis has a label only if all points differ in the same single setting.
    """
    settings = [_swept(point) for point in points]
    names = {tuple(setting.name for setting in of_point) for of_point in settings}
    if len(names) == 1 and len(settings[0]) == 1:
        return [of_point[0].value for of_point in settings], settings[0][0].name
    texts = ["\n".join(setting.text for setting in of_point) for of_point in settings]
    labels = [point.label for point in points]
    return [text or label for text, label in zip(texts, labels, strict=True)], ""


def axis(swept: Axis, info: PointInfo) -> tuple[str, str]:
    """Return the name and the unit of an axis of the sweep.

    Parameters
    ----------
    swept : Axis
        The axis.
    info : PointInfo
        Any point of the sweep.

    Returns
    -------
    tuple[str, str]
        Name and unit; the unit is empty if the axis mixes units.
    """
    names = [_swept(info, {key: info.settings[key]})[0].name for key in swept.keys]
    return " / ".join(dict.fromkeys(names)), swept.unit if swept.one else ""


def _swept(info: PointInfo, settings: Mapping[str, Any] | None = None) -> list[Swept]:
    """Return the settings of a point as name, value and text.

    The flow counts of all traffic become one entry, and laws that share a value become one entry.

    Parameters
    ----------
    info : PointInfo
        The point.
    settings : Mapping[str, Any], optional
        The settings to describe, by key; by default all that the sweep sets.
    """
    flows: list[tuple[str, str]] = []
    rest_of_settings: dict[tuple[str, str], list[str]] = {}
    for path, setting in (info.settings if settings is None else settings).items():
        section, _, rest = path.partition(".")
        table, _, key = rest.rpartition(".")
        value = " / ".join(
            words.quantity(quantities.toml(value))
            for value in (setting if isinstance(setting, list) else [setting])
        )
        if section == "traffic":
            labels = [traffic.label for traffic in info.traffic]
            kinds = [traffic.kind for traffic in info.traffic]
            label = _named(table, labels, kinds)
            if key == "flows":
                flows.append((value, label))
            else:
                rest_of_settings.setdefault((key, value), []).append(label)
        elif section == "link":
            names = [link.name for link in info.links[1:]]
            rest_of_settings.setdefault((key, value), []).append(_named(table, names))
        elif section == "law":
            labels = [law.label for law in info.laws]
            rest_of_settings.setdefault((key, value), []).append(_named(table, labels))
        else:
            rest_of_settings.setdefault((rest or path, value), [])
    swept = []
    if len(flows) == 1:
        ((count, label),) = flows
        swept.append(Swept(f"{label} flows", count, f"{count} {label} flows"))
    elif flows:
        together = " + ".join(f"{count} {label}" for count, label in flows)
        swept.append(Swept("flows", together, together))
    keys = [key for key, _ in rest_of_settings]
    for (key, value), owners in rest_of_settings.items():
        # The owners are named only where the key has several values.
        whose = f" of {' and '.join(owners)}" if owners and keys.count(key) > 1 else ""
        swept.append(Swept(f"{key}{whose}", value, f"{key}{whose} = {value}"))
    return swept


def _named(name: str, labels: list[str], kinds: list[str] | None = None) -> str:
    """Return the label of the table that a key names by index, label or kind.

    The name itself is returned where only some of the tables take part.
    """
    if name.isdigit() and int(name) < len(labels):
        return labels[int(name)]
    if kinds is not None and name not in labels and name in kinds:
        return labels[kinds.index(name)]
    return name


def changes(point: PointInfo, limit: int) -> list[str]:
    """Return sentences about the first changes during the run.

    Parameters
    ----------
    point : PointInfo
        The point.
    limit : int
        The largest number of changes to describe; one more line counts the rest.
    """
    texts = [
        f"{change.time_s:g} s: {' '.join(what_changes(point, change))}"
        for change in point.changes[:limit]
    ]
    remaining = len(point.changes) - limit
    return [*texts, f"{remaining} more"] if remaining > 0 else texts


def what_changes(point: PointInfo, change: ChangeInfo) -> tuple[str, str]:
    """Return the quantity that a change sets, and its new value, in words.

    Parameters
    ----------
    point : PointInfo
        The point of the run.
    change : ChangeInfo
        One of its changes.

    Returns
    -------
    tuple[str, str]
        For example ("rate of uplink", "20 Mbit/s").
    """
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
    """Return " at NAME" for a link, or "" for the only link of a point.

    Parameters
    ----------
    point : PointInfo
        The point.
    link : int
        Index of the link.
    word : str, default 'at'
        Preposition before the name.
    """
    return f" {word} {point.links[link].name}" if len(point.links) > 1 else ""


def measured_over(result: Result, point: PointInfo, single_seed: str = "one seed") -> str:
    """Return the window and the seeds of metrics, such as "from 5 s to 20 s, over all 3 seeds".

    Parameters
    ----------
    result : Result
        The result that has the metrics.
    point : PointInfo
        The point.
    single_seed : str, default 'one seed'
        Words for a result that has one seed.
    """
    start, end = point.measure_s
    spread = f"all {result.seeds} seeds" if result.seeds > 1 else single_seed
    return f"from {start:.4g} s to {end:.4g} s, over {spread}"
