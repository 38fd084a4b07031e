"""The files of a tuning: the page, its pictures, and scenarios that run again."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.base import statistics
from forebay.base.metrics import with_interval
from forebay.base.publication import publication, publish
from forebay.base.publication import write as put
from forebay.pages.page_figures import PageFigure, render_all
from forebay.pages.templates import html as page_html
from forebay.tuning import check, values, words
from forebay.tuning.tuning import SCREENING_SEEDS

if TYPE_CHECKING:
    from forebay.tuning.tuning import Tuning

PAGE, LAW, CORNERS, JSON = "tune.html", "tuned.toml", "corners.toml", "tune.json"
PICTURES = ["trade", "places", "defaults"]
#: Every file that a tuning may write; it replaces or removes those of a former one.
NAMES = [
    PAGE,
    LAW,
    CORNERS,
    JSON,
    *(f"{one}.{ending}" for one in PICTURES for ending in ("png", "pdf")),
]


def numbers(tuning: Tuning, command: str) -> str:
    """The whole of tune.json."""
    return json.dumps({"command": command, **values.as_json(tuning)}, indent=1) + "\n"


def write(tuning: Tuning, out: Path, command: str) -> None:
    """Writes all files to a directory, made if need be: the numbers before anything is drawn."""
    publish(out, {JSON: numbers(tuning, command)}, replaces=NAMES)
    shown = figures(tuning)
    with publication(out) as unfinished:
        render_all(shown, unfinished)
        put(unfinished / PAGE, html(tuning, shown, out, command))
        for name, text in scenarios(tuning).items():
            put(unfinished / name, text)


def scenarios(tuning: Tuning) -> dict[str, str]:
    """Scenarios of the chosen law: in the middle of the ranges, and beside the defaults."""
    if tuning.chosen is None:
        return {}
    law, ranges = tuning.chosen.candidate.law, tuning.ranges
    chosen = replace(tuning.chosen.candidate, label=f"{law} (tuned)")
    finalists = [chosen, *(one.candidate for one in tuning.tested[1:])]
    title = f"{law}, tuned"
    return {
        LAW: f"# {LAW}\n" + check.scenario([chosen], ranges, title, ranges.middle),
        CORNERS: f"# {CORNERS}\n"
        + check.scenario(finalists, ranges, f"{title}, beside the papers' defaults"),
    }


def figures(tuning: Tuning) -> list[PageFigure]:
    """The figures that have data."""
    from forebay.tuning import picture

    shown = []
    if tuning.screened and len(tuning.best):
        shown.append(
            PageFigure(
                "trade",
                partial(picture.trade, tuning),
                "Delay against goodput",
                "Every candidate at its own worst place (a corner of the ranges, or their middle), "
                f"with the runs that chose ({SCREENING_SEEDS} seeds). Labels appear where there is "
                "room. Candidates above the grey area meet the goal.",
            )
        )
    if tuning.tested:
        shown += [
            PageFigure(
                "places",
                partial(picture.conditions, tuning),
                "Corner by corner",
                f"Standard deviation of the queuing delay over time, mean of {tuning.seeds} seeds; "
                "the line through the star is its 95 % confidence interval. The diamond is the "
                "prediction of the linear model from TCP's own losses at constant load.",
            ),
            PageFigure(
                "defaults",
                partial(picture.defaults, tuning),
                "The papers' defaults",
                "The largest deviation at any place, seed by seed: mean and 95 % confidence "
                "interval. Beside it the mean difference to the chosen law, p of the paired test, "
                "and the goodput at the worst place, as a share of the best candidate's there.",
            ),
        ]
    return shown


def html(tuning: Tuning, shown: list[PageFigure], out: Path, command: str) -> str:
    """The page, with every figure in it."""
    return page_html(
        "tune.html.j2",
        title=(
            f"{tuning.chosen.candidate.law} for {tuning.ranges}"
            if tuning.chosen
            else f"Tuning for {tuning.ranges}"
        ),
        partial=_partial(tuning),
        reasons=words.reasons(tuning),
        law=values.law_toml(tuning.chosen) if tuning.chosen else "",
        commands=commands(tuning, out),
        figures=shown,
        conditions=_conditions(tuning),
        against=_against(tuning),
        candidates=_candidates(tuning),
        left_out=tuning.left_out,
        command=command,
        seeds=tuning.seeds,
        duration_s=check.DURATION_S,
        measure_s=check.MEASURE_S,
    )


def commands(tuning: Tuning, out: Path) -> list[str]:
    """Command lines that run the chosen law: in the middle, and at all corners beside the rest."""
    if tuning.chosen is None:
        return []
    return [
        shlex.join(["forebay", "run", str(out / LAW)]),
        shlex.join(["forebay", "run", str(out / CORNERS), "--seeds", "3"]),
    ]


def _partial(tuning: Tuning) -> str:
    if tuning.faults:
        return f"Partial result: {tuning.faults[0]}"
    if not tuning.interrupted:
        return ""
    if not tuning.tested:
        return "Partial result: stopped before the chosen law could be tested."
    return f"Partial result: stopped while testing; {tuning.seeds} seeds were complete."


def _conditions(tuning: Tuning) -> list[list[str]]:
    rows = []
    for condition, row in zip(tuning.ranges.places, values.conditions(tuning), strict=False):
        model, seen = row["model"], row["simulated"]
        cells = ["–"] * 4
        if model is not None:
            rough = "*" if model["timeouts"] else ""
            cells = [
                f"{model['window_pkts']:.3g}{rough}",
                _number(model["phase_deg"], "{:.0f}°"),
                f"{model['sensitivity_peak']:.2f}",
                _three(1e3 * model["deviation_s"]),
            ]
        rows.append(
            [
                str(condition),
                *cells,
                with_interval(1e3 * seen["deviation_s"], 1e3 * seen["deviation_ci95_s"]),
                _three(1e3 * seen["delay_mean_s"]),
                _three(1e3 * seen["delay_p95_s"]),
                f"{100 * seen['goodput_of_best']:.1f}",
            ]
        )
    return rows


def _against(tuning: Tuning) -> list[list[str]]:
    return [
        [
            row.other.candidate.label,
            with_interval(*(1e3 * v for v in statistics.mean_and_interval(row.other.worst_s))),
            with_interval(1e3 * row.difference_s, 1e3 * row.ci95_s),
            "–" if row.p != row.p else f"{row.p:.2g}",
            "" if row.significant else "may be chance",
            f"{100 * row.other.relative(tuning.best).min():.1f}",
        ]
        for row in tuning.against()
    ]


def _candidates(tuning: Tuning) -> list[tuple[list[str], list[tuple[str, str]], bool]]:
    ordered = sorted(tuning.screened, key=lambda one: one.worst_of(one.deviation_s))
    return [
        (
            [
                one.candidate.label,
                "yes" if one.candidate.keeps else ("no" if one.candidate.local else "–"),
                _three(1e3 * one.worst_of(one.deviation_s)),
                _three(1e3 * one.worst_of(one.delay_p95_s)),
                f"{100 * one.relative(tuning.best).min():.1f}",
            ],
            list(one.candidate.params),
            one is tuning.chosen,
        )
        for one in ordered
    ]


def _number(value: float, form: str) -> str:
    return form.format(value) if value == value and abs(value) != float("inf") else "–"


def _three(value: float) -> str:
    """Three figures, or all of a larger number."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"
