"""The sentences with which a report begins.

They say which laws held their set-points, which has the lowest delay and what that costs, how flows
share the link, and which differences are not significant.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from forebay._base import quantities, words
from forebay._base.metrics import METRICS
from forebay._base.registries import senders, title_of
from forebay.experiment import descriptions, steady_state
from forebay.experiment.experiment import Description
from forebay.experiment.table import RunTable
from forebay.report.templates import paragraphs

if TYPE_CHECKING:
    from forebay._native import Plan
    from forebay.experiment.result import Result
    from forebay.experiment.steady_state import Measured, SetPoint

#: The metric of a traffic that is the goodput of one flow.
A_FLOW = "flow_goodput_bps"

#: Ratio of two flows' goodputs from which the report mentions the inequality.
UNEQUAL = 1.5


def answers(result: Result) -> list[str]:
    """Return the sentences about the bottleneck, over all points that carried traffic."""
    points = [p for p, _ in result.points() if p not in result.experiment.idle]
    labels = [result.plan.points[p].label for p in points]
    bottleneck = (pl.col("link") == result.links[0]) & pl.col("point").cast(pl.String).is_in(labels)
    measured = [
        (p, info, info.laws[i], runs)
        for p in points
        for i in range(len(result.plan.laws))
        if (info := result.plan.points[p]) and (runs := result.runs_of(p, i))
    ]
    # A study names traffic by its label, too.
    shared = result.traffic.drop("traffic").rename({"label": "traffic"})
    return sentences(
        result.metrics.filter(bottleneck),
        shared.filter(bottleneck, greedy(result.plan)),
        measured,
        seeds=result.seeds,
    )


def greedy(plan: Plan) -> pl.Expr:
    """Return the filter for traffic that takes as much as it can get: long-lived TCP flows."""
    long = {
        traffic.label for point in plan.points for traffic in point.traffic if traffic.kind == "ftp"
    }
    return pl.col("traffic").cast(pl.String).is_in(list(long))


def sentences(
    rows: pl.DataFrame, traffic: pl.DataFrame, measured: Sequence[Measured], *, seeds: int
) -> list[str]:
    """Return the sentences of a report.

    Parameters
    ----------
    rows : pl.DataFrame
        The metrics of each run, one row per run.
    traffic : pl.DataFrame
        The metrics of each traffic, one row per run and traffic.
    measured : Sequence[Measured]
        The runs of each law at each point.
    seeds : int
        The number of seeds.

    Returns
    -------
    list[str]
        Sentences on the set-points, on the law with the lowest delay and its cost, on flows that
        get much more than others, and on differences that are not significant.
    """
    table = RunTable(rows)
    delay = table.best_of("delay_p95_s", more=False)
    goodput = table.best_of("goodput_bps", more=True)
    given_up = (
        1 - goodput.means[delay.law] / goodput.means[goodput.law]
        if delay and goodput and goodput.means[goodput.law]
        else math.nan
    )
    return paragraphs(
        "answers.txt.j2",
        **_set_points(measured),
        tolerance=f"{100 * steady_state.MISSED:.0f}",
        same_run=_same_runs(measured),
        delay=delay,
        goodput=goodput,
        given_up=given_up,
        used=rows["utilisation"].mean(),
        lost=rows["drop_rate"].mean(),
        shared=_shared(traffic),
        unequal=UNEQUAL,
        seeds=seeds,
        in_unit=_in_unit,
        title=title_of,
    )


def _set_points(measured: Sequence[Measured]) -> dict[str, list[str]]:
    """Return the laws by their set-points, each with its measured values or its number of points.

    The keys are "held" and "missed" for laws that steer to their target, "unsteered" for laws whose
    mean differs from their target by design, "idle" for laws on links that are not full, and
    "without" for laws that have no target of a single queue.
    """
    by_law: dict[str, list[SetPoint]] = {}
    for _, point, law, runs in measured:
        set_points = by_law.setdefault(law.label, [])
        if set_point := steady_state.set_point(point, law, runs):
            set_points.append(set_point)
    named: dict[str, list[str]] = {
        "held": [],
        "missed": [],
        "unsteered": [],
        "idle": [],
        "without": [],
    }
    for law_name, set_points in by_law.items():
        text = title_of(law_name)
        if len(set_points) == 1:
            measured_text, target_text = set_points[0].measured_text, set_points[0].target_text
            text += f" (mean {measured_text}, target {target_text})"
        full = [measurement for measurement in set_points if measurement.full]
        held_count = sum(not measurement.missed for measurement in full)
        if not set_points:
            group = "without"
        elif not set_points[0].steers:
            group = "unsteered"
        elif not full:
            group = "idle"
        else:
            if 0 < held_count < len(full):
                text += f" (at {held_count} of {len(full)} points)"
            group = "held" if held_count else "missed"
        named[group].append(text)
    return named


def _same_runs(measured: Sequence[Measured]) -> list[str]:
    """Return the laws whose seeds all gave the same run at every point."""
    by_law: dict[str, list[bool]] = {}
    for _, _, law, runs in measured:
        by_law.setdefault(law.label, []).append(steady_state.seeds_change_nothing(runs))
    return [law for law, same in by_law.items() if all(same)]


@dataclass(frozen=True)
class Sharing:
    """The sharing of a link under a law.

    Attributes
    ----------
    law : str
        Label of the law.
    largest : str
        Label of the traffic whose flows get the largest goodput.
    smallest : str
        Label of the traffic whose flows get the smallest goodput.
    ratio : float
        Ratio of the two goodputs.
    """

    law: str
    largest: str
    smallest: str
    ratio: float


def _shared(traffic: pl.DataFrame) -> list[Sharing]:
    """Return the sharing under each law with several traffics, the most unequal first.

    Goodputs are means over points and seeds.
    """
    if traffic.is_empty():
        return []
    means = (
        traffic.filter(pl.col(A_FLOW).is_finite())
        .group_by("law", "traffic", maintain_order=True)
        .agg(pl.col(A_FLOW).mean())
    )
    sharings = []
    for (law,), of_law in means.group_by("law", maintain_order=True):
        ordered = of_law.sort(A_FLOW)
        smallest, largest = ordered.row(0, named=True), ordered.row(-1, named=True)
        if len(ordered) > 1 and smallest[A_FLOW] > 0:
            ratio = largest[A_FLOW] / smallest[A_FLOW]
            sharings.append(
                Sharing(str(law), str(largest["traffic"]), str(smallest["traffic"]), ratio)
            )
    return sorted(sharings, key=lambda sharing: -sharing.ratio)


def _in_unit(name: str, value: float) -> str:
    """Return a value of a metric with its unit, in three figures."""
    metric = METRICS[name]
    number = words.in_figures(metric.scale * value)
    return f"{number}\N{NO-BREAK SPACE}{metric.unit}"


#: The functions that write a number of a kind of traffic, by the end of its key.
WRITTEN = {
    "_s": words.time,
    "_bps": words.rate,
    "_bytes": lambda count: words.quantity(quantities.size(round(count))),
}


def describe(result: Result) -> Description:
    """Return the experiment's own description, or else one of the first point of its plan."""
    if result.experiment.description is not None:
        return result.experiment.description
    first = result.plan.points[0]
    link, *middle, rest = paragraphs(
        "description.txt.j2",
        plan=result.plan,
        runs=result.experiment.runs,
        in_words=result.experiment.engine.in_words,
        first=first,
        point=descriptions.point(first),
        changes=descriptions.changes(first, 10),
        traffic=[
            # What is absent is empty.
            (
                source,
                defaultdict(
                    str, {key: _number(key, number) for key, number in source.numbers.items()}
                ),
            )
            for source in first.traffic
        ],
        senders={name: sender["title"] for name, sender in senders().items()},
        words=words,
        size=quantities.size,
    )
    middle, traffic = middle[: len(first.links) - 1], middle[len(first.links) - 1 :]
    return Description(link, traffic, rest, middle)


def _number(key: str, number: float) -> str:
    """Return a number of a kind of traffic with the unit that ends its key."""
    write = next((write for end, write in WRITTEN.items() if key.endswith(end)), words.value)
    return write(number)
