"""The picture of a stability map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import ListedColormap, TwoSlopeNorm
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from forebay._base import words
from forebay._base.registries import title_of
from forebay.control.plant import REASONS
from forebay.report import style
from forebay.report.parts import NOTE, PLAIN
from forebay.report.plot import Plot, one_panel, styled
from forebay.report.style import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay.control.stability_map import StabilityMap

#: Colours of cells that have no equilibrium, by reason.
NOWHERE = {
    "saturated": "#8c8c8c",
    "full": "#d9c8a0",
    "jump": "#b79ac8",
    "empty": "#a9cfa4",
    "unmodelled": "#eeeeee",
    "small": "#9db7d5",
}


@styled
def draw_map(drawn: StabilityMap) -> Plot:
    """Draw a stability map, with the simulated points on it."""
    scale = 1e-6 if drawn.axis == "rate" else 1e3
    values = drawn.values * scale
    figure, axes = one_panel(7.2, 5.0)
    axes.set_facecolor("#eeeeee")
    shades: Any = axes.pcolormesh(
        drawn.flows,
        values,
        np.clip(drawn.gain_margin_db, -20, 20),
        # Red and blue would be equal in greys.
        cmap="cividis" if style.printed() else "RdBu",
        norm=TwoSlopeNorm(0, -20, 20),
        rasterized=True,
        alpha=0.75,
    )
    reasons = [how for how in NOWHERE if (drawn.rest == how).any()]
    for how in reasons:
        axes.pcolormesh(
            drawn.flows,
            values,
            np.ma.masked_where(drawn.rest != how, np.zeros(drawn.rest.shape)),
            cmap=ListedColormap([NOWHERE[how]]),
            rasterized=True,
        )
    bar = figure.colorbar(shades, ax=axes, pad=0.02)
    bar.set_label("Gain margin (theory) [dB]; unstable below 0")
    bar.outline.set_visible(False)
    if drawn.stable.any() and not drawn.stable.all():
        margin = np.ma.masked_invalid(drawn.gain_margin_db)
        axes.contour(drawn.flows, values, margin, [0.0], colors="#000000", linewidths=1.6)
    axes.set(xscale="log", yscale="log", xlim=drawn.flows[[0, -1]], ylim=values[[0, -1]])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PLAIN)
        axis.set_minor_formatter(FuncFormatter(_minor))
    axes.grid(False)
    axes.set_xlabel("Classic flows" if drawn.link.l4s_flows else "Flows")
    axes.set_ylabel("Rate [Mbit/s]" if drawn.axis == "rate" else "Propagation RTT [ms]")
    _oscillation(axes, drawn, scale)
    if reasons:
        figure.legend(
            handles=[
                Patch(
                    color=NOWHERE[how],
                    label=f"no equilibrium, {100 * (drawn.rest == how).mean():.2g} %: "
                    f"{REASONS[how]}",
                )
                for how in reasons
            ],
            loc="outside lower left",
            fontsize=STYLE["font.size"] - 1,
        )
    _words(axes, drawn)
    return figure


def _words(axes: Axes, drawn: StabilityMap) -> None:
    """Write the title, and captions for the line and the circles."""
    captions = []
    if drawn.stable.any() and not drawn.stable.all():
        captions.append("Line: limit of stability (theory).")
    if drawn.oscillation:
        captions.append(
            "Circles: standard deviation of the queue over its mean (packet simulation)."
        )
    if style.printed():
        axes.set_xlabel("\n".join([axes.get_xlabel(), *captions]))
    else:
        axes.text(0, -0.1, "\n".join(captions), transform=axes.transAxes, va="top", **NOTE)
    # The quantity that no axis shows is in the title.
    fixed = drawn.link.rtts if drawn.axis == "rate" else drawn.link.rate
    senders = f", {drawn.link.l4s_flows:g} L4S flows" if drawn.link.l4s_flows else ""
    senders += f", {drawn.link.senders}" if drawn.link.groups else ""
    windows = "" if drawn.windows == "published" else f", {drawn.windows} windows"
    axes.set_title(
        f"Stability of {title_of(drawn.law)} ({words.quantity(fixed)}{senders}{windows})"
    )


def _minor(value: float, _position: int) -> str:
    """Return the label of a minor tick at 2 or 5 of a decade, which an axis of one decade needs."""
    lead = value / 10 ** math.floor(math.log10(value) + 1e-9)
    return f"{value:g}" if round(lead) in (2, 5) else ""


def _oscillation(axes: Axes, drawn: StabilityMap, scale: float) -> None:
    """Draw the simulated points as circles with the relative deviation of the queue."""
    if not drawn.oscillation:
        return
    flows, values, deviation = (np.array(column) for column in zip(*drawn.oscillation, strict=True))
    axes.scatter(
        flows,
        values * scale,
        s=150 if style.printed() else 420,
        c=np.clip(deviation, 0, 1),
        cmap="Oranges",
        vmin=0,
        vmax=1.2,
        edgecolor="#222222",
        linewidth=0.9,
        zorder=3,
    )
    for x, y, value in zip(flows, values * scale, deviation, strict=True):
        axes.annotate(
            f"{value:.2f}",
            (x, y),
            ha="center",
            va="center_baseline",
            fontsize=4.5 if style.printed() else 7,
            zorder=4,
        )
