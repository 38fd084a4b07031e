"""What a report answers first: who held the set-point, who gained and lost what, and what may be
chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from forebay.base.metrics import METRICS, with_interval
from forebay.pages import templates
from forebay.runs import steady_state
from forebay.runs.table import RunTable

if TYPE_CHECKING:
    from forebay.runs.experiment_runs import Runs


def answers(result: Runs) -> list[str]:
    """Three sentences on the bottleneck, over all points that carried something."""
    points = [p for p, _ in result.points() if p not in result.experiment.idle]
    labels = [result.plan.points[p].label for p in points]
    rows = result.metrics.filter(
        pl.col("link") == result.links[0], pl.col("point").cast(pl.String).is_in(labels)
    )
    table = RunTable(rows)
    delay = table.best_of("delay_p95_s", more=False)
    goodput = table.best_of("goodput_bps", more=True)
    given_up = (
        1 - goodput.means[delay.law] / goodput.means[goodput.law]
        if delay and goodput and goodput.means[goodput.law]
        else math.nan
    )
    return templates.paragraphs(
        "answers.txt.j2",
        **_set_points(result, points),
        delay=delay,
        goodput=goodput,
        given_up=given_up,
        used=rows["utilisation"].mean(),
        lost=rows["drop_rate"].mean(),
        seeds=result.seeds,
        in_unit=_in_unit,
    )


def _set_points(result: Runs, points: list[int]) -> dict[str, list[str]]:
    """Laws that held their set-point, those that missed it, and those that have none to hold; each
    with where the queue was, or at how many points."""
    named: dict[str, list[str]] = {"held": [], "missed": [], "without": []}
    for i, law in enumerate(result.plan.laws):
        found = [
            set_point
            for p in points
            if (runs := result.runs_of(p, i))
            and (info := result.plan.points[p])
            and (set_point := steady_state.set_point(info, info.laws[i], runs))
        ]
        if not found:
            named["without"].append(law)
            continue
        kept = sum(not each.missed for each in found)
        text = law
        if len(found) == 1:
            text += f" ({found[0].queue_pkts:.0f} packets for {found[0].target_pkts:g})"
        elif 0 < kept < len(found):
            text += f" (at {kept} of {len(found)} points)"
        named["held" if kept else "missed"].append(text)
    return named


def _in_unit(name: str, value: float) -> str:
    metric = METRICS[name]
    number = with_interval(metric.scale * value, math.nan)
    return f"{number}\N{NO-BREAK SPACE}{metric.unit}"
