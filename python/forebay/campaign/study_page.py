"""The page of a study: one file that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl

from forebay._base.metrics import METRICS, MORE_IS_BETTER, TRAFFIC_METRICS
from forebay._native import RESULTS_VERSION, __version__
from forebay.campaign import study_pictures as pictures
from forebay.campaign import study_tables as tables
from forebay.campaign.effects import Effect, effects
from forebay.experiment.table import EMPTY, RunTable
from forebay.report import answers
from forebay.report.tables import DIFFERENCES_NOTE, Differences, Table, mean_text
from forebay.report.templates import html as page_html

if TYPE_CHECKING:
    from forebay.campaign.study import Study

#: What the page compares laws by where nothing is chosen.
SHOWN = ("delay_p95_s", "goodput_bps", "utilisation")
#: Pairs of axes that have maps; the others are a call away.
MOST_PAIRS = 6


def traffic_table(study: Study) -> Table:
    """Who gets what of the bottleneck, over all points: a row for each law and traffic."""
    rows = study.traffic().filter(pl.col("link") == study.points.links[0])
    metrics = [metric for metric in TRAFFIC_METRICS.values() if rows[metric.name].is_finite().any()]
    cells = RunTable(rows).cell_of([metric.name for metric in metrics], "traffic")
    places = rows.select("law", "traffic").unique(maintain_order=True).sort("law", "traffic")
    return Table(
        ["Law", "Traffic", *(metric.heading for metric in metrics)],
        [
            [
                law,
                label,
                *(
                    mean_text(cells.get((metric.name, law, label), EMPTY), metric)
                    for metric in metrics
                ),
            ]
            for law, label in places.iter_rows()
        ],
        keys=2,
    )


def told(study: Study) -> list[str]:
    """What a report answers first, with the set-points of the points that are looked at one by
    one."""
    shared = study.traffic()
    bottleneck = pl.col("link").cast(pl.String) == study.points.links[0]
    greedy = answers.greedy(study.plan) if study.plan else pl.lit(False)
    return answers.sentences(
        study.frame().filter(bottleneck),
        shared.filter(bottleneck, greedy),
        study.measured,
        seeds=study.most_seeds,
    )


def html(study: Study, command: str, *, metrics: Sequence[str] = (), partial: bool = False) -> str:
    """The page, with every figure in it. metrics: what to draw; `SHOWN` if none is named."""
    axes = study.axes
    varied = [key for key in axes if study.points.settings[key].n_unique() > 1]
    pairs = list(combinations(varied, 2))
    figures = []
    several = len(study.points.laws) > 1
    for metric in metrics or SHOWN:
        largest = metric in MORE_IS_BETTER
        if study.cells(metric, *varied[:1]).is_empty():
            continue
        name = METRICS[metric].title
        shown = []
        if varied:
            shown.append((f"{name} over each axis", pictures.response(study, metric)))
        for x, y in pairs[:MOST_PAIRS]:
            shown.append((f"{name} over {x} and {y}", pictures.heat(study, metric, x, y)))
            if several:
                best = pictures.winners(study, metric, x, y, largest=largest)
                word = "most" if largest else "least"
                shown.append((f"The law with the {word} {name[0].lower()}{name[1:]}", best))
        if len(varied) > 2:
            shown.append((f"{name} along every axis", pictures.parallel(study, metric)))
        try:
            shares: list[Effect] | None = effects(study, metric)
        except ImportError:
            shares = None
        svgs = [(title, figure.svg(title)) for title, figure in shown]
        figures.append((name, svgs, shares))
    failures = study.failures()
    frame = study.frame()
    return page_html(
        "study.html.j2",
        title=study.points.title,
        partial="Partial result: the budget was spent before all runs were made."
        if partial
        else "",
        runs=f"{frame.select('point', 'law', 'seed').unique().height:,}",
        points=f"{len(study.points):,}",
        laws=study.points.laws,
        means=tables.laws_table(study, metrics),
        answers=told(study),
        warnings=study.warnings,
        differences=Differences.of(study.differences(metrics), {}),
        differences_note=DIFFERENCES_NOTE,
        gains=tables.gains_table(study),
        axes=[
            (pictures.title(study, key), f"{study.points.settings[key].n_unique():,}")
            for key in axes
        ],
        command=command,
        cite=f"forebay {__version__}, results version {RESULTS_VERSION}, study "
        f"{study.points.digest}",
        scenario=study.points.text,
        figures=figures,
        traffic=traffic_table(study),
        left_out=pairs[MOST_PAIRS:],
        failures=[
            (str(count), why.splitlines()[-1])
            for why, count in sorted(failures.group_by("fault").len().iter_rows())
        ],
    )
