"""Figures of a link over time: queue, loss, packets in flight, and the goodput of each flow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from forebay._base import words
from forebay._base.registries import title_of
from forebay.experiment import descriptions
from forebay.experiment.steady_state import steers
from forebay.report import style
from forebay.report.sheet import TINY_S, Curve, Floats, Panel, Scale, Sheet, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay._native import GoodputSeries, LawInfo, LinkInfo, Observed, PointInfo, TrafficInfo
    from forebay.experiment.result import Result

#: Largest number of steps of a printed curve, and of all curves of a report.
MOST_STEPS = 900
ALL_STEPS = 80_000

#: Number of steps of a curve in the figure at the top of a report.
GLANCE_STEPS = 150
#: The column of samples that a scenario with `windows = true` records.
WINDOWS = "in_flight_pkts"
#: Smallest upper end of the axis of a loss rate, in %.
LEAST_LOSS = 0.1


def queue(result: Result, point: int, link: int) -> Sheet:
    """Return the queue over time, one panel per law.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    info = result.plan.points[point]
    targets = {i: target_pkts(info, law, info.links[link]) for i, law in result.laws(point)}
    return _packets(result, point, link, "queue_pkts", "Queue", targets)


def glance(result: Result, point: int, link: int) -> Sheet:
    """Return the queue of every law over time in one panel, for the first seed.

    The curves are means over equal steps. The set-point is drawn if all laws that have one have the
    same.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    info = result.plan.points[point]
    curves, targets = [], distinct_targets(info, link)
    for index, law in result.laws(point):
        samples = result.observed_at(point, index, link)[0].samples
        every = max(1, len(samples["time_s"]) // GLANCE_STEPS)
        rows = len(samples["time_s"]) // every * every
        mean = samples["queue_pkts"][:rows].reshape(-1, every).mean(axis=1)
        ends_s = samples["time_s"][every - 1 : rows : every]
        name = title_of(law.label)
        curves.append(Curve(name, {"law": name}, index, ends_s, mean, width=1.3))
    panels = [Panel("", curves, targets.pop() if len(targets) == 1 else None)]
    return Sheet(
        "time",
        Scale("Time", "s", range=(0.0, info.duration_s)),
        Scale("Queue", "packets", zero=True, range=(0.0, _top(panels, 1.0))),
        panels,
        _timeline(result, info),
        legend=tuple((title_of(law.label), index) for index, law in result.laws(point)),
    )


def distinct_targets(info: PointInfo, link: int) -> set[float]:
    """Return the distinct set-points of the laws in packets.

    Parameters
    ----------
    info : PointInfo
        The point.
    link : int
        Index of the link.
    """
    targets = (target_pkts(info, law, info.links[link]) for law in info.laws)
    return {target for target in targets if target is not None}


def windows(result: Result, point: int, link: int) -> Sheet:
    """Return the packets in flight of a mean flow over time, one panel per law.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.

    Raises
    ------
    ValueError
        If the scenario does not record windows.
    """
    if not shows_windows(result, point, link):
        raise ValueError('kind: "windows" needs windows = true in the scenario')
    return _packets(result, point, link, WINDOWS, "In flight", {})


def loss(result: Result, point: int, link: int) -> Sheet:
    """Return the loss rate per interval over time, one panel per law.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    info = result.plan.points[point]
    interval_s = loss_interval_s(info)
    panels = _panels(
        result, point, link, lambda observed: loss_rate(observed, info, interval_s), {}
    )
    top = _top(panels, LEAST_LOSS)
    return Sheet(
        "time",
        Scale("Time", "s", range=(0.0, info.duration_s)),
        Scale(f"Loss rate in {interval_s:g} s", "%", zero=True, range=(0.0, top)),
        panels,
        # Only intervals that lie within the measurement count.
        _timeline(result, info, interval_s),
        bins=40,
        counted="intervals",
        cut=True,
    )


def goodput(result: Result, point: int, link: int) -> Sheet:
    """Return the goodput of each flow over time for the first seed, one panel per law.

    Each traffic has its colour, with a curve for each flow, or bands over many flows.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    info = result.plan.points[point]
    flows_of_laws = shown_flows(result, point, link)
    by_traffic = {flows.traffic: flows for flows in flows_of_laws}
    panels = []
    for index, law in result.laws(point):
        series = [
            curve
            for flows in result.observed_at(point, index, link)[0].goodput
            if flows.traffic in by_traffic and flows.columns and len(flows.columns[0])
            for curve in _of_traffic(flows, info.traffic[flows.traffic].label)
        ]
        panels.append(
            Panel(f"{title_of(law.label)}, seed {result.runs_of(point, index)[0].seed}", series)
        )
    # A peak of slow start would flatten all other curves, so the axis ends below it.
    highest = max((_highest_mbps(flows, info.measure_s) for flows in flows_of_laws), default=0.0)
    return Sheet(
        "time",
        Scale("Time", "s", range=(0.0, info.duration_s)),
        Scale(
            "Goodput of a flow",
            "Mbit/s",
            zero=True,
            range=(0.0, 1.1 * highest or 1.0),
            short="Goodput",
        ),
        panels,
        _timeline(result, info),
        step=True,
        nearest=True,
        cut=True,
        legend=tuple(
            (f"{_sender(info.traffic[i])}{_note(flows)}", style.of_traffic(i))
            for i, flows in sorted(by_traffic.items())
        ),
    )


def shows_flows(result: Result, point: int, link: int) -> bool:
    """Return True if the goodput of flows over time was recorded.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    return any(
        flows.columns and len(flows.columns[0]) for flows in shown_flows(result, point, link)
    )


def shows_windows(result: Result, point: int, link: int) -> bool:
    """Return True if the scenario records windows; only the bottleneck does.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    return all(WINDOWS in observed.samples for observed in _observed(result, point, link))


def shown_flows(result: Result, point: int, link: int) -> list[GoodputSeries]:
    """Return the flows of each law's first seed; transfers only if there are no other flows.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    series = [
        flows
        for law, _ in result.laws(point)
        for observed in result.observed_at(point, law, link)[:1]
        for flows in observed.goodput
    ]
    transfers = with_transfers(result, point, link)
    return [flows for flows in series if flows.traffic not in transfers] or series


def with_transfers(result: Result, point: int, link: int) -> list[int]:
    """Return the indices of the traffic of which any run completed a transfer.

    Parameters
    ----------
    result : Result
        The result.
    point : int
        Index of the point.
    link : int
        Index of the link.
    """
    indices = [
        observed.transfer_traffic
        for law, _ in result.laws(point)
        for observed in result.observed_at(point, law, link)
    ]
    return [int(kind) for kind in np.unique(np.concatenate(indices))] if indices else []


def target_pkts(point: PointInfo, law: LawInfo, link: LinkInfo) -> float | None:
    """Return the set-point at a link in packets; None if there is none.

    Parameters
    ----------
    point : PointInfo
        The point.
    law : LawInfo
        The law under which the point is run.
    link : LinkInfo
        The link; its own law, if it has one, decides.
    """
    if link.law:
        return link.law.target_pkts
    return law.target_pkts if point.target_pkts is None else point.target_pkts


def loss_interval_s(point: PointInfo) -> float:
    """Return the interval of a loss rate in seconds: 1 s, or less if 20 of them do not fit."""
    start, end = point.measure_s
    interval_s = next((s for s in (1.0, 0.1, 0.01) if end - start >= 20 * s), 0.001)
    return max(1, round(interval_s / point.sample_s)) * point.sample_s


def loss_rate(observed: Observed, point: PointInfo, interval_s: float) -> tuple[Floats, Floats]:
    """Return the loss rate in intervals.

    Parameters
    ----------
    observed : Observed
        The observations of a run.
    point : PointInfo
        The point.
    interval_s : float
        Length of an interval in seconds.

    Returns
    -------
    tuple[Floats, Floats]
        Ends of the intervals, and drops per arrival in %; NaN if no packet arrived.
    """
    samples = observed.samples
    per_interval = max(1, round(interval_s / point.sample_s))
    rows = len(samples["time_s"]) // per_interval * per_interval

    def total(*columns: str) -> Floats:
        summed = sum((samples[name][:rows].astype(float) for name in columns), np.zeros(rows))
        return np.asarray(summed.reshape(-1, per_interval).sum(axis=1))

    drops = total("early_drops", "forced_drops", "overflow_drops")
    arrivals = total("arrivals")
    rate = np.full(len(drops), np.nan)
    np.divide(100 * drops, arrivals, out=rate, where=arrivals > 0)
    return samples["time_s"][per_interval - 1 : rows : per_interval], rate


def steps(result: Result) -> int:
    """Return the largest number of steps of a printed curve, so that a report stays small."""
    curves = len(result.plan.points) * len(result.plan.laws) * len(result.links)
    return max(120, min(MOST_STEPS, ALL_STEPS // curves))


def about_queue(result: Result, point: PointInfo, link: int) -> str:
    """Return further sentences below a figure of the queue.

    Parameters
    ----------
    result : Result
        The result.
    point : PointInfo
        The point.
    link : int
        Index of the link.
    """
    place = point.links[link]
    text = ""
    if any(target_pkts(point, law, place) is not None for law in point.laws):
        text += " The dashed line is the set-point; a law that tracks it has a narrow peak there."
        laws_of_the_queue = [law for law in point.laws if law.target_pkts and not law.per_flow]
        unsteered = [title_of(law.label) for law in laws_of_the_queue if not steers(law)]
        if unsteered and not place.law:
            has = "has its target" if len(unsteered) == 1 else "have their targets"
            does = "does" if len(unsteered) == 1 else "do"
            text += f" {words.listed(unsteered)} {has} there, but {does} not steer to it."
    rows, limit = round(point.duration_s / point.sample_s), steps(result)
    if rows > 2 * limit:
        text += (
            f" In print, each point averages {-(-rows // limit)} samples; the band spans their "
            "minimum and maximum."
        )
    return text + (f" This link is always under {title_of(place.law.label)}." if place.law else "")


def _packets(
    result: Result,
    point: int,
    link: int,
    column: str,
    label: str,
    targets: dict[int, float | None],
) -> Sheet:
    """Return a figure of a column of samples that counts packets."""
    info = result.plan.points[point]
    panels = _panels(
        result,
        point,
        link,
        lambda observed: (observed.samples["time_s"], observed.samples[column]),
        targets,
    )
    return Sheet(
        "time",
        Scale("Time", "s", range=(0.0, info.duration_s)),
        Scale(label, "packets", zero=True, range=(0.0, _top(panels, 1.0))),
        panels,
        _timeline(result, info),
        bins=50,
    )


def _top(panels: list[Panel], least: float) -> float:
    """Return the upper end of an axis that begins at zero."""
    values = [curve.y for panel in panels for curve in panel.series if curve.y is not None]
    highest = max((float(np.nanmax(y, initial=least)) for y in values), default=least)
    return 1.05 * max(highest, *(panel.target or 0.0 for panel in panels), least)


def part(sheet: Sheet, start_s: float, end_s: float) -> Sheet:
    """Return a part of a figure over time.

    Parameters
    ----------
    sheet : Sheet
        The figure.
    start_s : float
        Start of the part in seconds.
    end_s : float
        End of the part in seconds.
    """
    panels = [
        replace(panel, series=[_within(curve, start_s, end_s) for curve in panel.series])
        for panel in sheet.panels
    ]
    top = _top(panels, LEAST_LOSS if sheet.y.unit == "%" else 1.0)
    x, y = replace(sheet.x, range=(start_s, end_s)), replace(sheet.y, range=(0.0, top))
    return replace(sheet, panels=panels, x=x, y=y)


def _within(curve: Curve, start_s: float, end_s: float) -> Curve:
    """Return a part of a curve."""
    inside = (curve.x > start_s + TINY_S) & (curve.x < end_s + TINY_S)
    cut = {k: v[inside] for k in ("x", "y", "low", "high") if (v := getattr(curve, k)) is not None}
    return replace(curve, **cut)


def _panels(
    result: Result,
    point: int,
    link: int,
    values: Callable[[Observed], tuple[Floats, Floats]],
    targets: dict[int, float | None],
) -> list[Panel]:
    """Return one panel per law, with a curve for each of its seeds."""
    _observed(result, point, link)
    return [
        Panel(
            title_of(law.label),
            [
                Curve(
                    f"seed {run.seed}",
                    {"law": title_of(law.label), "seed": str(run.seed)},
                    index,
                    *values(observed),
                    width=0.8,
                )
                for run, observed in zip(
                    result.runs_of(point, index),
                    result.observed_at(point, index, link),
                    strict=True,
                )
            ],
            targets.get(index),
        )
        for index, law in result.laws(point)
    ]


def _timeline(result: Result, info: PointInfo, interval_s: float = 2 * TINY_S) -> Timeline:
    """Return the times that all figures of a point share."""
    start, end = info.measure_s
    return Timeline(
        info.duration_s,
        (start, end),
        (start + interval_s - TINY_S, end + TINY_S),
        [change.time_s for change in info.changes],
        descriptions.changes(info, 2) if info.changes else [],
        steps(result),
    )


def _observed(result: Result, point: int, link: int) -> list[Observed]:
    """Return the observations of all laws and seeds at a link."""
    observed = [
        run for index, _ in result.laws(point) for run in result.observed_at(point, index, link)
    ]
    if not observed:
        raise ValueError(f"point: there are no runs at point {point}")
    return observed


def _of_traffic(flows: GoodputSeries, label: str) -> list[Curve]:
    """Return a curve for each flow of a traffic; for many flows, a median in bands."""
    mbps = [1e-6 * column.astype(float) for column in flows.columns]
    times_s: Floats = flows.interval_s * np.arange(1.0, len(mbps[0]) + 1)
    tags, look = {"traffic": label}, style.of_traffic(flows.traffic)
    if not flows.quantiles:
        width = 1.2 if len(mbps) == 1 else 0.7
        return [
            Curve(f"{label} {i + 1}", tags, look, times_s, y, dashed=False, width=width)
            for i, y in enumerate(mbps)
        ]
    middle = len(mbps) // 2
    bands = [
        Curve(
            f"{label}, {round(100 * (1 - 2 * flows.quantiles[i]))} % of the flows",
            tags,
            look,
            times_s,
            low=mbps[i],
            high=mbps[-1 - i],
            dashed=False,
            alpha=0.15 * (i + 1),
        )
        for i in range(middle)
    ]
    median = Curve(f"{label}, median", tags, look, times_s, mbps[middle], dashed=False, width=1.0)
    return [*bands, median]


def _highest_mbps(flows: GoodputSeries, measured: tuple[float, float]) -> float:
    """Return the highest goodput in an interval that ends within the measurement, if any does."""
    if not flows.columns or not len(flows.columns[0]):
        return 0.0
    ends_s = flows.interval_s * np.arange(1, len(flows.columns[0]) + 1)
    inside = (ends_s > measured[0]) & (ends_s <= measured[1] + TINY_S)
    rows = inside if inside.any() else slice(None)
    return 1e-6 * max(float(np.max(column[rows])) for column in flows.columns)


def _sender(traffic: TrafficInfo) -> str:
    """Return the label of a traffic with its sender."""
    return f"{traffic.label}, {traffic.tcp}" if traffic.tcp else traffic.label


def _note(flows: GoodputSeries) -> str:
    """Return the words of a legend for the curves of a traffic."""
    if not flows.quantiles:
        return f" ({flows.flows} curves)" if flows.flows > 1 else ""
    outer, inner = (round(100 * (1 - 2 * share)) for share in flows.quantiles[:2])
    return f" (median of {flows.flows}; bands of {inner} % and {outer} %)"
