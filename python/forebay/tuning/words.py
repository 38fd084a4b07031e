"""Why a tuning recommends its law. The sentences stand in `tune_reasons.txt.j2`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from forebay.base.metrics import with_interval
from forebay.pages.templates import paragraphs
from forebay.tuning import facts

if TYPE_CHECKING:
    from forebay.tuning.tuning import Tuning


def reasons(tuning: Tuning) -> list[str]:
    """Paragraphs: the choice, its margins, the rivals, and the test."""
    return paragraphs(
        "tune_reasons.txt.j2",
        **vars(facts.of(tuning)),
        decibels=lambda value: _or_unlimited(value, "{:.1f} dB"),
        degrees=lambda value: _or_unlimited(value, "{:.0f}°"),
        duration=duration,
        listed=listed,
        ms=lambda value_s: f"{1e3 * value_s:.3g} ms",
        ms_with_interval=lambda mean_s, half_s: f"{with_interval(1e3 * mean_s, 1e3 * half_s)} ms",
        percent=lambda share: f"{100 * share:.0f} %",
    )


def listed(names: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def duration(value_s: float) -> str:
    """Two figures in the unit that reads best."""
    if not math.isfinite(value_s):
        return "an unlimited time"
    if value_s < 120:
        return f"{value_s:.2g} s" if value_s < 10 else f"{value_s:.0f} s"
    return f"{value_s / 60:.2g} min" if value_s < 7200 else f"{value_s / 3600:.2g} h"


def _or_unlimited(value: float, form: str) -> str:
    return form.format(value) if math.isfinite(value) else "unlimited"
