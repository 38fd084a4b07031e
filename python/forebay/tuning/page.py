"""The files of a tuning: the page, its pictures, and scenarios that run again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._base import quantities
from forebay._base.publication import publication, publish, write
from forebay.report.pages import PageFigure, render_all
from forebay.report.templates import html
from forebay.tuning import check, findings

if TYPE_CHECKING:
    from forebay.tuning.state import TuningState

PAGE, LAW, CORNERS, JSON = "tune.html", "tuned.toml", "corners.toml", "tune.json"
#: Every file that a tuning may write; it replaces or removes those of a former one.
NAMES = [PAGE, LAW, CORNERS, JSON, "trade.p*", "places.p*", "defaults.p*"]


def write_numbers(told: Mapping[str, Any], out: Path, command: str) -> None:
    """Writes what `findings` has of a tuning to a directory, made if need be; its page goes."""
    publish(out, {JSON: {"command": command, **quantities.finite(told)}}, replaces=NAMES)


def write_files(tuning: TuningState, told: Mapping[str, Any], out: Path, command: str) -> None:
    """Writes all other files: the page, its pictures, and scenarios."""
    shown = figures(tuning)
    with publication(out) as unfinished:
        render_all(shown, unfinished)
        page = html(
            "tune.html.j2",
            **told,
            **findings.FORMS,
            choices=findings.choices(told["candidates"]),
            choices_are=findings.choices_are(told),
            names_say=findings.NAMES_SAY,
            title=f"{told['law'] or 'Tuning'} for {tuning.ranges}",
            interrupted=_partial(tuning),
            commands=commands(tuning, out),
            figures=shown,
            command=command,
            duration_s=check.DURATION_S,
            measure_s=check.MEASURE_S,
            step_s=check.STEP_S,
        )
        write(unfinished / PAGE, page)
        for name, text in scenarios(tuning).items():
            write(unfinished / name, text)


def scenarios(tuning: TuningState) -> dict[str, str]:
    """Scenarios of the chosen law: in the middle of the ranges, and beside the defaults."""
    if tuning.chosen is None:
        return {}
    law, ranges = tuning.chosen.candidate.law, tuning.ranges
    chosen = replace(tuning.chosen.candidate, label=f"{law} (tuned)")
    finalists = [chosen, *(finalist.candidate for finalist in tuning.tested[1:])]
    title = f"{law}, tuned"
    beside = f"{title}, beside {tuning.reference}"
    return {
        LAW: f"# {LAW}\n" + check.scenario([chosen], ranges, title, ranges.middle),
        CORNERS: f"# {CORNERS}\n" + check.scenario(finalists, ranges, beside),
    }


def figures(tuning: TuningState) -> list[PageFigure]:
    """The figures that have data."""
    from forebay.tuning import picture  # which takes a while to load

    return [
        PageFigure(
            name, partial(kind.draw, tuning), kind.title, kind.caption.format(seeds=tuning.seeds)
        )
        for name, kind in picture.KINDS.items()
        if (tuning.tested if kind.of_test else len(tuning.best))
    ]


def commands(tuning: TuningState, out: Path) -> list[str]:
    """Command lines that run the chosen law: in the middle, and at all corners beside the rest."""
    if tuning.chosen is None:
        return []
    overrides = [
        word for key, value in tuning.ranges.overrides for word in ("--set", f"{key}={value}")
    ]
    return [
        shlex.join(["forebay", "run", str(out / LAW), *overrides]),
        shlex.join(["forebay", "run", str(out / CORNERS), "--seeds", "3", *overrides]),
    ]


def _partial(tuning: TuningState) -> str:
    if tuning.faults:
        return f"Partial result: {tuning.faults[0]}"
    if not tuning.interrupted:
        return ""
    if not tuning.tested:
        return "Partial result: stopped before the chosen law could be tested."
    return f"Partial result: stopped while testing; {tuning.seeds} seeds were complete."
