"""The files of a tuning: the page, its pictures, and scenarios that run again."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._native import __version__
from forebay.report import page as report
from forebay.report.page import Picture
from forebay.report.words import quantity
from forebay.run import stats
from forebay.run.metrics import with_interval
from forebay.tune import check, values, words
from forebay.tune.tuning import SCREENING_SEEDS

if TYPE_CHECKING:
    from forebay.tune.tuning import Tuning

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


def contents(tuning: Tuning, out: Path, command: str) -> dict[str, str | bytes]:
    """Every file by its name; `out` is where they go."""
    found: dict[str, str | bytes] = {JSON: numbers(tuning, command)}
    shown = pictures(tuning)
    found[PAGE] = html(tuning, shown, out, command)
    for picture in shown:
        found |= picture.files
    if tuning.chosen is not None:
        law = tuning.chosen.candidate.law
        chosen = replace(tuning.chosen.candidate, label=f"{law} (tuned)")
        found[LAW] = f"# {LAW}\n" + check.scenario(
            [chosen], tuning.ranges, f"{law}, tuned", tuning.ranges.middle
        )
        finalists = [chosen, *(one.candidate for one in tuning.tested[1:])]
        found[CORNERS] = f"# {CORNERS}\n" + check.scenario(
            finalists, tuning.ranges, f"{law}, tuned, beside the papers' defaults"
        )
    return found


def numbers(tuning: Tuning, command: str) -> str:
    """The whole of tune.json."""
    return json.dumps({"command": command, **values.as_json(tuning)}, indent=1) + "\n"


def write(tuning: Tuning, out: Path, command: str) -> None:
    """Writes all files to a directory, made if need be: the numbers before anything is drawn."""
    out.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (out / name).unlink(missing_ok=True)
    (out / JSON).write_text(numbers(tuning, command))
    found = contents(tuning, out, command)
    for name in NAMES:
        content = found.get(name)
        if content is None:
            (out / name).unlink(missing_ok=True)
        else:
            data = content.encode() if isinstance(content, str) else content
            (out / name).write_bytes(data)


def pictures(tuning: Tuning) -> list[Picture]:
    """The pictures that have data."""
    from forebay.tune import picture

    shown = []
    if tuning.screened and len(tuning.best):
        shown.append(
            Picture(
                "trade",
                picture.trade(tuning),
                "Delay against goodput",
                "Every candidate at its own worst place (a corner of the ranges, or their middle), "
                f"with the runs that chose ({SCREENING_SEEDS} seeds). Labels appear where there is "
                "room. Candidates above the grey area meet the goal.",
            )
        )
    if tuning.tested:
        shown += [
            Picture(
                "places",
                picture.conditions(tuning),
                "Corner by corner",
                f"Standard deviation of the queuing delay over time, mean of {tuning.seeds} seeds; "
                "the line through the star is its 95 % confidence interval. The diamond is the "
                "prediction of the linear model from TCP's own losses at constant load.",
            ),
            Picture(
                "defaults",
                picture.defaults(tuning),
                "The papers' defaults",
                "The largest deviation at any place, seed by seed: mean and 95 % confidence "
                "interval. Beside it the mean difference to the chosen law, p of the paired test, "
                "and the goodput at the worst place, as a share of the best candidate's there.",
            ),
        ]
    for one in shown:
        one.render()
    return shown


def html(tuning: Tuning, shown: list[Picture], out: Path, command: str) -> str:
    """The page, with every figure in it."""
    return report.template("tune.html.j2").render(
        title=(
            f"{tuning.chosen.candidate.law} for {tuning.ranges}"
            if tuning.chosen
            else f"Tuning for {tuning.ranges}"
        ),
        partial=_partial(tuning),
        reasons=words.reasons(tuning),
        law=values.law_toml(tuning.chosen) if tuning.chosen else "",
        commands=commands(tuning, out),
        pictures=shown,
        conditions=_conditions(tuning),
        against=_against(tuning),
        candidates=_candidates(tuning),
        left_out=tuning.left_out,
        command=command,
        seeds=tuning.seeds,
        version=__version__,
        duration_s=check.DURATION_S,
        measure_s=check.MEASURE_S,
        level=f"{100 * stats.LEVEL:.0f} %",
        quantity=quantity,
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
            with_interval(*(1e3 * v for v in stats.mean_and_interval(row.other.worst_s))),
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
