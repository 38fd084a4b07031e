"""The figures of a tuning; each function returns a `Plot`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import NullFormatter

from forebay._base import statistics
from forebay._base.registries import baseline, title_of
from forebay.report.parts import PLAIN, legend_below, plain_log_x, write_at
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import COLOURS
from forebay.tuning.check import SCREENING_SEEDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.tuning.candidates import Goal, TuningPicture
    from forebay.tuning.check import Against, Checked, Floats
    from forebay.tuning.ranges import OperatingPoint

#: Marker, colour, filled and label by the origin of a candidate.
MARKS: dict[str, tuple[str, str, bool, str]] = {
    "tuned": ("o", COLOURS[0], True, "tuned, keeps its margins"),
    "broken": ("o", COLOURS[0], False, "tuned, no gains keep the margins"),
    "listed": ("^", COLOURS[2], True, "no linear model, a few settings"),
    "default": ("s", COLOURS[1], False, "parameters of papers or designs"),
}
CHOSEN: dict[str, Any] = {
    "marker": "*",
    "markersize": 15,
    "markerfacecolor": COLOURS[4],
    "markeredgecolor": "#000000",
    "linestyle": "none",
}
#: Smallest loss of goodput on the axis; smaller losses are drawn there.
LEAST_LOST = 0.005
#: Font size of labels of marks.
SMALL = 7.5


def _mark(runs: Checked) -> str:
    """Return the key of a candidate in `MARKS`."""
    candidate = runs.candidate
    return "broken" if candidate.origin == "tuned" and not candidate.keeps else candidate.origin


@styled
def trade(screened: Sequence[Checked], chosen: Checked | None, goal: Goal, best: Floats) -> Plot:
    """Draw the queuing delay and its deviation against the goodput, each at its worst point.

    Parameters
    ----------
    screened : sequence of Checked
        Runs of all candidates.
    chosen : Checked or None
        The choice.
    goal : Goal
        The goal.
    best : array of shape (n,)
        Best goodput at each point.
    """
    panels = [
        (
            "95th percentile of the queuing delay [ms]",
            [o.worst_of(o.delay_p95_s) for o in screened],
        ),
        (
            "Standard deviation of the queuing delay [ms]",
            [o.worst_of(o.deviation_s) for o in screened],
        ),
    ]
    lost = [100 * max(LEAST_LOST, 1 - float(runs.relative(best).min())) for runs in screened]
    figure = Plot(figsize=(10.0, 5.4), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    marks = []
    for axis, (label, values_s) in zip(axes, panels, strict=True):
        marks.append(_Marks(axis, screened, chosen, [1e3 * value for value in values_s], lost))
        marks[-1].scatter()
        axis.set_yscale("log")
        plain_log_x(axis)
        axis.set_xlabel(label)
        axis.axhspan(100 * goal.give_up, 200, color="#f1f1f1", zorder=0)
    axes[0].set_ylim(115, 0.85 * min(lost))
    axes[0].set_yticks([t for t in (1, 2, 5, 10, 20, 50, 100) if t >= 0.85 * min(lost)])
    axes[0].yaxis.set_major_formatter(PLAIN)
    axes[0].yaxis.set_minor_formatter(NullFormatter())
    axes[0].set_ylabel("Loss of goodput\n[% of the best candidate's goodput]")
    axes[0].set_title("Delay and loss of goodput")
    axes[1].set_title("Deviation and loss of goodput")
    grey = f'grey: more than the goal "{goal.name}" allows'
    write_at(axes[0], grey, (0.01, 0.01), fontsize=SMALL)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.draw_without_rendering()
    for panel in marks:
        panel.write_names()
    return figure


@styled
def points(tested: Sequence[Checked], where: Sequence[OperatingPoint], reference: str) -> Plot:
    """Draw by how much the delay misses its target at each point, measured and predicted.

    The chosen law has its measurement and its prediction, and every other law its measurement.

    Parameters
    ----------
    tested : sequence of Checked
        Runs of the test, the choice first.
    where : sequence of OperatingPoint
        The points.
    reference : str
        Description of the other laws' parameters.
    """
    chosen, *rivals = tested
    rows = np.arange(len(where))[::-1]
    figure, axes = one_panel(9.0, 1.2 + 0.42 * len(where))
    for rival in rivals:
        plain = rival.candidate.law == baseline()["name"]
        axes.plot(
            1e3 * np.nanmean(rival.deviation_s, axis=1),
            rows,
            "s" if plain else "|",
            color=COLOURS[1] if plain else "#999999",
            markersize=5 if plain else 9,
            label=baseline()["short_title"] if plain else reference,
        )
    for row, values, local in zip(rows, chosen.deviation_s, chosen.locals(where), strict=True):
        _interval(
            axes, row, values, "#000000", label=f"{title_of(chosen.candidate.law)}, tuned", **CHOSEN
        )
        if local is not None:
            axes.plot(
                [1e3 * local.noise_delay_s],
                [row],
                "D",
                color=COLOURS[0],
                markerfacecolor="none" if local.timeouts else COLOURS[0],
                markersize=5,
                label="predicted, inaccurate (timeouts)" if local.timeouts else "predicted",
            )
    plain_log_x(axes)
    axes.set_yticks(rows, [str(point) for point in where])
    axes.set_ylim(-0.6, len(where) - 0.4)
    axes.set_xlabel("Standard deviation of the queuing delay [ms]")
    axes.set_title("Deviation at every operating point")
    legend_below(figure, axes)
    return figure


@styled
def defaults(
    tested: Sequence[Checked],
    against: Sequence[Against],
    goodput_of: Callable[[Checked], float],
    reference: str,
) -> Plot:
    """Draw the worst deviation of the choice and of laws with usual parameters.

    Parameters
    ----------
    tested : sequence of Checked
        Runs of the test, the choice first.
    against : sequence of Against
        The choice compared with each other law.
    goodput_of : callable
        Goodput of runs at the worst point, relative to the best.
    reference : str
        Description of the other laws' parameters.
    """
    chosen = tested[0]
    comparisons = sorted(against, key=lambda row: float(np.nanmean(row.rival.worst_s)))
    figure, axes = one_panel(9.0, 1.3 + 0.3 * (len(comparisons) + 1))
    own_ms = _interval(axes, 0, chosen.worst_s, "#000000", **CHOSEN)
    axes.axvline(own_ms, color="#bbbbbb", linewidth=1.0, zorder=0)
    names = [f"{title_of(chosen.candidate.law)}, tuned"]
    notes = [f"goodput {100 * goodput_of(chosen):.0f} %"]
    for row, comparison in enumerate(comparisons, 1):
        colour = COLOURS[0] if comparison.difference_s > 0 else COLOURS[1]
        filling = colour if comparison.significant else "white"
        look: dict[str, Any] = {"color": colour, "markerfacecolor": filling, "markersize": 5}
        _interval(axes, row, comparison.rival.worst_s, colour, marker="o", **look)
        names.append(comparison.rival.candidate.label)
        notes.append(
            f"{1e3 * comparison.difference_s:+.1f} ms, {_p(comparison.p)}; "
            f"goodput {100 * goodput_of(comparison.rival):.0f} %"
        )
    plain_log_x(axes)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    right = axes.twinx()
    right.set_ylim(axes.get_ylim())
    right.set_yticks(range(len(notes)), notes, fontsize=SMALL)
    right.tick_params(right=False)
    right.grid(visible=False)
    # The layout underestimates the width of the names along the axis.
    figure.set_layout_engine("constrained", w_pad=0.15)
    axes.set_xlabel("Standard deviation of the queuing delay at the worst operating point [ms]")
    axes.set_title(f"Chosen law compared with {reference} (hollow: may be chance)")
    return figure


def _interval(axes: Axes, row: float, values_s: Floats, colour: str, **mark: Any) -> float:
    """Draw a mean in ms with its interval, as a mark on a line; return the mean."""
    mean, half = (1e3 * value for value in statistics.mean_and_interval(values_s))
    axes.plot([mean - half, mean + half], [row, row], color=colour, linewidth=1.2)
    axes.plot([mean], [row], **mark)
    return mean


@dataclass(frozen=True)
class _Marks:
    """The candidates in a panel, and their names."""

    axes: Axes
    screened: Sequence[Checked]
    chosen: Checked | None
    x: Sequence[float]
    y: Sequence[float]

    def scatter(self) -> None:
        """Draw a mark for each candidate."""
        for name, (marker, colour, filled, label) in MARKS.items():
            at = [i for i, runs in enumerate(self.screened) if _mark(runs) == name]
            if at:
                self.axes.plot(
                    [self.x[i] for i in at],
                    [self.y[i] for i in at],
                    marker,
                    color=colour,
                    markerfacecolor=colour if filled else "none",
                    markersize=5,
                    alpha=0.85,
                    label=label,
                )
        if self.chosen is not None:
            i = self.screened.index(self.chosen)
            self.axes.plot([self.x[i]], [self.y[i]], label="chosen", zorder=5, **CHOSEN)

    def write_names(self) -> None:
        """Write names next to the marks in the order of importance, unless they overlap."""
        axes, x, y = self.axes, self.x, self.y
        placed = [axes.transData.transform((a, b)) for a, b in zip(x, y, strict=True)]
        boxes: list[Any] = []
        named: set[tuple[str, str]] = set()
        for i in self._order():
            runs = self.screened[i]
            mark = _mark(runs)
            if (runs.candidate.law, mark) in named:
                continue
            look: dict[str, Any] = {"fontsize": 7, "color": MARKS[mark][1]}
            look |= {"fontweight": "bold"} if runs is self.chosen else {}
            for by in [(6, 3), (-6, 3), (6, -9), (-6, -9)]:
                look["ha"] = "left" if by[0] > 0 else "right"
                text = axes.annotate(
                    runs.candidate.law, (x[i], y[i]), by, textcoords="offset points", **look
                )
                box, panel = text.get_window_extent(), axes.bbox
                inside = panel.x0 <= box.x0 and box.x1 <= panel.x1 and box.y0 >= panel.y0
                covers = any(box.overlaps(placed) for placed in boxes)
                if inside and not covers and not any(box.contains(*point) for point in placed):
                    boxes.append(box)
                    named.add((runs.candidate.law, mark))
                    break
                text.remove()

    def _order(self) -> list[int]:
        """Return the order of names: chosen, then the front, then defaults, then the rest."""
        front, least = [], math.inf
        for i in sorted(range(len(self.x)), key=lambda i: (self.x[i], self.y[i])):
            if self.y[i] < least:
                front.append(i)
                least = self.y[i]
        chosen = [i for i, runs in enumerate(self.screened) if runs is self.chosen]
        papers = [i for i, runs in enumerate(self.screened) if _mark(runs) == "default"]
        return list(dict.fromkeys([*chosen, *front, *papers, *range(len(self.x))]))


def _p(p: float) -> str:
    if p != p:
        return "one seed"
    return f"p = {p:.2g}" if p >= 1e-4 else "p < 0.0001"


#: The title and the caption of each figure, with {seeds} for those of the test.
KINDS: dict[TuningPicture, tuple[str, str]] = {
    "trade": (
        "Delay against goodput",
        "Each candidate at its worst operating point (a corner of the ranges, or their middle), "
        f"from the runs of the choice ({SCREENING_SEEDS} seeds). Up and left is better; candidates "
        "above the grey area meet the goal. Labels that would overlap are left out.",
    ),
    "places": (
        "Deviation by operating point",
        "Standard deviation of the queuing delay over time, mean of {seeds} seeds; the line "
        "through the star is its 95 % confidence interval. The diamond is the prediction of the "
        "linear model from TCP's own losses at constant load.",
    ),
    "defaults": (
        "Other laws",
        "Largest deviation at any operating point: mean and 95 % confidence interval over the "
        "seeds. On the right: the mean difference from the chosen law, p of the paired test, and "
        "the goodput at the worst operating point, as a share of the best candidate's there.",
    ),
}
