"""The pictures of a tuning; each returns a `Plot`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import NullFormatter

from forebay._base import statistics
from forebay._base.registries import baseline
from forebay.report.parts import PLAIN, at_corner, legend_below, plain_log_x
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS
from forebay.tuning.check import SCREENING_SEEDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from forebay.tuning.check import Checked, Floats
    from forebay.tuning.state import TuningState

#: Marker, colour, filled and label by the origin of a candidate.
MARKS: dict[str, tuple[str, str, bool, str]] = {
    "tuned": ("o", COLOURS[0], True, "tuned, keeps its margins"),
    "broken": ("o", COLOURS[0], False, "tuned, no gains keep the margins"),
    "listed": ("^", COLOURS[2], True, "without a model, a few settings"),
    "default": ("s", COLOURS[1], False, "papers' or designed"),
}
CHOSEN: dict[str, Any] = {
    "marker": "*",
    "markersize": 15,
    "markerfacecolor": COLOURS[4],
    "markeredgecolor": "#000000",
    "linestyle": "none",
}
#: Least share of goodput given up that the axis shows; smaller ones are drawn there.
LEAST_LOST = 0.005
#: Size of letters beside marks.
SMALL = 7.5


def _mark(one: Checked) -> str:
    """Which of `MARKS`."""
    candidate = one.candidate
    return "broken" if candidate.origin == "tuned" and not candidate.keeps else candidate.origin


@styled
def trade(tuning: TuningState) -> Plot:
    """Queuing delay and its deviation against goodput, each at its worst place, as screened."""
    screened = tuning.screened
    panels = [
        ("95 % of the packets wait less than [ms]", [o.worst_of(o.delay_p95_s) for o in screened]),
        ("standard deviation of the delay [ms]", [o.worst_of(o.deviation_s) for o in screened]),
    ]
    lost = [100 * max(LEAST_LOST, 1 - float(o.relative(tuning.best).min())) for o in screened]
    figure = Plot(figsize=(10.0, 5.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (label, values_s) in zip(axes, panels, strict=True):
        _scatter(axis, tuning, [1e3 * value for value in values_s], lost)
        axis.set_yscale("log")
        plain_log_x(axis)
        axis.set_xlabel(f"At the worst place, {label}")
        axis.axhspan(100 * tuning.goal.give_up, 200, color="#f1f1f1", zorder=0)
    axes[0].set_ylim(115, 0.85 * min(lost))
    axes[0].set_yticks([t for t in (1, 2, 5, 10, 20, 50, 100) if t >= 0.85 * min(lost)])
    axes[0].yaxis.set_major_formatter(PLAIN)
    axes[0].yaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("Goodput given up at the worst place\n[% of the best candidate's there]")
    axes[0].set_title("Queuing delay against goodput: up and left is better")
    axes[1].set_title("Its deviation against goodput")
    grey = f'grey: gives up more than "{tuning.goal.name}" allows'
    at_corner(axes[0], grey, (0.01, 0.01), fontsize=SMALL)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.draw_without_rendering()
    for axis, (_, values_s) in zip(axes, panels, strict=True):
        _name(axis, tuning, [1e3 * value for value in values_s], lost)
    return figure


@styled
def places(tuning: TuningState) -> Plot:
    """Deviation of the delay under each condition: chosen, predicted, defaults, as tested."""
    mine, *others = tuning.tested
    where = tuning.ranges.places
    reference = baseline()
    rows = np.arange(len(where))[::-1]
    figure, axes = one_panel(9.0, 1.2 + 0.42 * len(where))
    for other in others:
        plain = other.candidate.law == reference["name"]
        axes.plot(
            1e3 * np.nanmean(other.deviation_s, axis=1),
            rows,
            "s" if plain else "|",
            color=COLOURS[1] if plain else "#999999",
            markersize=5 if plain else 9,
            label=reference["short_title"] if plain else tuning.reference,
        )
    for row, values, local in zip(rows, mine.deviation_s, mine.locals(where), strict=True):
        _interval(axes, row, values, "#000000", label=f"{mine.candidate.law}, tuned", **CHOSEN)
        if local is not None:
            axes.plot(
                [1e3 * local.noise_delay_s],
                [row],
                "D",
                color=COLOURS[0],
                markerfacecolor="none" if local.timeouts else COLOURS[0],
                markersize=5,
                label="predicted, though timeouts count" if local.timeouts else "predicted",
            )
    plain_log_x(axes)
    axes.set_yticks(rows, [str(condition) for condition in where])
    axes.set_ylim(-0.6, len(where) - 0.4)
    axes.set_xlabel("Standard deviation of the queuing delay [ms]")
    axes.set_title("Deviation at every corner and in the middle")
    legend_below(figure, axes)
    return figure


@styled
def defaults(tuning: TuningState) -> Plot:
    """Worst deviation of the chosen law and of the papers' defaults, and what they lose."""
    mine, *_ = tuning.tested
    against = sorted(tuning.against(), key=lambda row: float(np.nanmean(row.other.worst_s)))
    figure, axes = one_panel(9.0, 1.3 + 0.3 * (len(against) + 1))
    own_ms = _interval(axes, 0, mine.worst_s, "#000000", **CHOSEN)
    axes.axvline(own_ms, color="#bbbbbb", linewidth=1.0, zorder=0)
    names = [f"{mine.candidate.law}, tuned"]
    notes = [f"goodput {_goodput(mine, tuning)}"]
    for row, one in enumerate(against, 1):
        colour = COLOURS[0] if one.difference_s > 0 else COLOURS[1]
        filling = colour if one.significant else "white"
        look: dict[str, Any] = {
            "marker": "o",
            "color": colour,
            "markerfacecolor": filling,
            "markersize": 5,
        }
        _interval(axes, row, one.other.worst_s, colour, **look)
        names.append(one.other.candidate.label)
        notes.append(
            f"{1e3 * one.difference_s:+.1f} ms, {_p(one.p)}; goodput {_goodput(one.other, tuning)}"
        )
    plain_log_x(axes)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    beside = axes.twinx()
    beside.set_ylim(axes.get_ylim())
    beside.set_yticks(range(len(notes)), notes, fontsize=SMALL)
    beside.tick_params(right=False)
    beside.grid(visible=False)
    # The layout underestimates the width of the names beside the axis.
    figure.set_layout_engine("constrained", w_pad=0.15)
    axes.set_xlabel("Standard deviation of the queuing delay at the worst place [ms]")
    reference = tuning.reference
    axes.set_title(f"Chosen law beside {reference} (hollow: may be chance)")
    return figure


def _interval(axes: Axes, row: float, values_s: Floats, colour: str, **mark: Any) -> float:
    """A mean in ms with its interval, as a mark on a line; the mean."""
    mean, half = (1e3 * value for value in statistics.mean_and_interval(values_s))
    axes.plot([mean - half, mean + half], [row, row], color=colour, linewidth=1.2)
    axes.plot([mean], [row], **mark)
    return mean


def _scatter(axes: Axes, tuning: TuningState, x: Sequence[float], y: Sequence[float]) -> None:
    for name, (marker, colour, filled, words) in MARKS.items():
        at = [i for i, one in enumerate(tuning.screened) if _mark(one) == name]
        if at:
            axes.plot(
                [x[i] for i in at],
                [y[i] for i in at],
                marker,
                color=colour,
                markerfacecolor=colour if filled else "none",
                markersize=5,
                alpha=0.85,
                label=words,
            )
    if tuning.chosen is not None:
        i = tuning.screened.index(tuning.chosen)
        axes.plot([x[i]], [y[i]], label="chosen", zorder=5, **CHOSEN)


def _name(axes: Axes, tuning: TuningState, x: Sequence[float], y: Sequence[float]) -> None:
    """Names beside the points, the most telling first, as long as they do not overlap."""
    front, least = [], math.inf
    for i in sorted(range(len(x)), key=lambda i: (x[i], y[i])):
        if y[i] < least:
            front.append(i)
            least = y[i]
    chosen = [i for i, one in enumerate(tuning.screened) if one is tuning.chosen]
    papers = [i for i, one in enumerate(tuning.screened) if _mark(one) == "default"]
    order = dict.fromkeys([*chosen, *front, *papers, *range(len(x))])
    placed: list[Any] = [axes.transData.transform((a, b)) for a, b in zip(x, y, strict=True)]
    boxes: list[Any] = []
    named: set[tuple[str, str]] = set()
    for i in order:
        one = tuning.screened[i]
        if (one.candidate.law, _mark(one)) in named:
            continue
        look: dict[str, Any] = {"fontsize": 7, "color": MARKS[_mark(one)][1]}
        look |= {"fontweight": "bold"} if one is tuning.chosen else {}
        for by in [(6, 3), (-6, 3), (6, -9), (-6, -9)]:
            look["ha"] = "left" if by[0] > 0 else "right"
            text: Text = axes.annotate(
                one.candidate.law, (x[i], y[i]), by, textcoords="offset points", **look
            )
            box = text.get_window_extent()
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1 and box.y0 >= axes.bbox.y0
            covers = any(box.overlaps(other) for other in boxes)
            if inside and not covers and not any(box.contains(*point) for point in placed):
                boxes.append(box)
                named.add((one.candidate.law, _mark(one)))
                break
            text.remove()


def _goodput(one: Checked, tuning: TuningState) -> str:
    return f"{100 * one.relative(tuning.best).min():.0f} %"


def _p(p: float) -> str:
    if p != p:
        return "one seed"
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


@dataclass(frozen=True)
class TuningPicture:
    """A picture of a tuning. of_test: whether it shows the test of the chosen law, and not what was
    screened."""

    draw: Callable[[TuningState], Plot]
    title: str
    #: with {seeds} for those of the test
    caption: str
    of_test: bool = True


KINDS = {
    "trade": TuningPicture(
        trade,
        "Delay against goodput",
        "Every candidate at its own worst place (a corner of the ranges, or their middle), with "
        f"the runs that chose ({SCREENING_SEEDS} seeds). Labels appear where there is room. "
        "Candidates above the grey area meet the goal.",
        of_test=False,
    ),
    "places": TuningPicture(
        places,
        "Corner by corner",
        "Standard deviation of the queuing delay over time, mean of {seeds} seeds; the line "
        "through the star is its 95 % confidence interval. The diamond is the prediction of the "
        "linear model from TCP's own losses at constant load.",
    ),
    "defaults": TuningPicture(
        defaults,
        "Other laws",
        "The largest deviation at any place, seed by seed: mean and 95 % confidence interval. "
        "Beside it the mean difference to the chosen law, p of the paired test, and the goodput "
        "at the worst place, as a share of the best candidate's there.",
    ),
}
