"""The page of the atlas."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from forebay._base.publication import publish
from forebay._base.registries import title_of
from forebay._base.words import listed
from forebay.campaign.study import Study, effects
from forebay.campaign.study_points import Points
from forebay.experiment.steady_state import FULL, MISSED
from forebay.experiment.store import Store
from forebay.report.templates import markdown as page_markdown
from tools.atlas import maps, places
from tools.atlas.places import FLOWS, RATE, RTT, WINDOW, Axis
from tools.atlas.runs import AXES, KEEPS_UP, LEAST_S, METRICS, Runs

#: A law is near the best one if its delay is at most this many times as long.
NEAR = 2.0
#: Number of laws that a list names; the others are counted.
NAMED = 3
#: Window in packets below which fast retransmission fails and a signal hardly slows TCP down.
SMALL = 4.0
#: Share of the links below which a law is named as one that leaves links idle.
MOSTLY = 0.5
IMAGES = "images"


@dataclass(frozen=True)
class Part:
    """A line of the first table: a part of the range of windows under a sender."""

    window: str
    tcp: str
    links: int
    law: str
    alike: str
    delay: str
    drops: str
    behind: str
    single: str


def write(points: Points, store: Store, folder: Path, command: str) -> list[Path]:
    """Write atlas.md and its maps, and return the paths of the files.

    Parameters
    ----------
    points : Points
        The points of the study.
    store : Store
        The store with their runs.
    folder : Path
        The folder.
    command : str
        The command that writes the page, which it names.

    Raises
    ------
    ValueError
        If the store has no run of the study.
    """
    from tools.atlas.runs import read

    runs = read(points, store)
    axes = {name: maps.axes_of(runs, name) for name in maps.WINNERS}
    cells = {name: maps.cells(runs, *axes_of_map) for name, axes_of_map in axes.items()}
    colours = maps.colours(cells)
    figures = {
        name: maps.winners(cells[name], *axes_of_map, colours) for name, axes_of_map in axes.items()
    }
    figures |= {"atlas-goodput": maps.breaks(runs), "atlas-delay": maps.delays(runs)}
    drawn = {f"{name}.png": figure.png() for name, figure in figures.items()}
    text = markdown(runs, Study(points, store, 1), cells, command)
    return [*publish(folder, {"atlas.md": text}), *publish(folder / IMAGES, drawn)]


def markdown(runs: Runs, study: Study, cells: dict[str, maps.Cells], command: str) -> str:
    """Return the text of the page.

    Parameters
    ----------
    runs : Runs
        The runs.
    study : Study
        The study.
    cells : dict[str, maps.Cells]
        The best laws of the cells of each map.
    command : str
        The command that writes the page.
    """
    near = places.near(runs.table, NEAR).sort("near", "law", descending=[True, False])
    single = near.filter(~pl.col("law").is_in(runs.per_flow))
    every = [
        best
        for cells_of_map in cells.values()
        for panel in cells_of_map.values()
        for best in panel.values()
    ]
    decided = [best for best in every if best.law is not None]
    return page_markdown(
        "atlas.md.j2",
        runs=runs,
        wanted=study.points.configs,
        sobol=study.points.sweep.samples,
        partial=runs.points < len(study.points),
        command=command,
        points=len(study.points),
        keeps_up=_percent(KEEPS_UP),
        near_factor=f"{NEAR:g}",
        least_ms=f"{1e3 * LEAST_S:g}",
        full=_percent(FULL),
        missed=_percent(MISSED),
        all_round=_leaders(near),
        all_round_single=_leaders(single) if single["law"][0] != near["law"][0] else [],
        parts=_parts(runs),
        alone=_percent(sum(not best.alike for best in decided) / len(decided)) if decided else "",
        cells=len(decided),
        laws=_laws(runs, near),
        windows=[_window(WINDOW, i) for i in range(len(WINDOW.edges) - 1)],
        idle=_by_window(runs, pl.col("utilisation") < FULL, runs.laws),
        missing=_by_window(runs, pl.col("missed"), runs.integrating),
        matter=(matter := _matter(study)),
        most=_most(matter, study),
        delay_axes=[f"delay: {name}" for name in _axes(study)],
        use_axes=[f"use: {name}" for name in _axes(study)],
        shares=_shares(runs),
        per_cell=round(sum(best.points for best in decided) / len(decided)) if decided else 0,
        measured=f"{study.points.part([0]).plan.points[0].duration_s:g} s",
        late=_late(study),
        same=_same(runs),
        cpu_h=f"{runs.cpu_s / 3600:.2g}",
        two_cores=f"{runs.cpu_s / 120:.0f}",
        rate=_ends(RATE),
        rtt=_ends(RTT),
        flows=_ends(FLOWS),
    )


@dataclass(frozen=True)
class Wish:
    """A goal other than a short delay, and the laws that meet it.

    Attributes
    ----------
    goal
        The goal.
    text : str
        The laws.
    """

    goal: str
    text: str


def _shares(runs: Runs) -> list[Wish]:
    """Return the laws with equal shares, full use of the link, few drops, and idle links."""
    means = (
        runs.table.group_by("law", maintain_order=True)
        .agg("jain", (pl.col("kept") >= KEEPS_UP).mean().alias("up"))
        .with_columns(pl.col("jain").list.mean())
    )
    jain = means.sort("jain", "law", descending=[True, False]).select("law", "jain").rows()
    own = [(law, value) for law, value in jain if law not in runs.per_flow]
    up = means.sort("up", "law", descending=[True, False]).select("law", "up").rows()

    small = (
        runs.table.filter(pl.col("window_pkts") < SMALL)
        .group_by("law", maintain_order=True)
        .agg(pl.col("drop_rate").median(), pl.col("delay_p95_s").median())
        .sort("drop_rate", "law")
        .head(NAMED)
    )

    def few(values: list[tuple[str, float]], text: Callable[[float], str]) -> str:
        return listed([f"{title_of(law)} ({text(value)})" for law, value in values[:NAMED]])

    def index(value: float) -> str:
        return f"{value:.3f}"

    return [
        Wish(
            "Fairness",
            f"{few(jain, index)} have the highest mean of Jain's index; of the laws with one queue "
            f"for all flows, {few(own, index)}",
        ),
        Wish(
            "A full link",
            f"{few(up, _percent)} keep at least {_percent(KEEPS_UP)} of the best goodput at the "
            "most points, at any delay",
        ),
        Wish(
            f"Few drops with windows below {SMALL:g} packets",
            listed(
                [
                    f"{title_of(law)} ({100 * drops:.0f} % with a delay of {_ms(delay)} ms)"
                    for law, drops, delay in small.rows()
                ]
            )
            + " have the lowest medians of drops",
        ),
        *(
            [
                Wish(
                    "Links left idle",
                    f"{few(idle, _percent)} keep {_percent(KEEPS_UP)} of the best goodput at less "
                    "than half of the points",
                )
            ]
            if (idle := [(law, share) for law, share in reversed(up) if share < MOSTLY])
            else []
        ),
    ]


def _percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.0f} %"


def _ends(axis: Axis) -> str:
    """Return the range of an axis in words."""
    return f"{axis.number(axis.edges[0])} to {axis.number(axis.edges[-1])} {axis.unit}"


def _window(axis: Axis, index: int) -> str:
    """Return a part of the axis of windows in words."""
    low, high = axis.edges[index : index + 2]
    if low == 0:
        return f"below {high:g}"
    return f"above {low:g}" if high == float("inf") else f"{low:g} to {high:g}"


def _leaders(near: pl.DataFrame) -> list[tuple[str, str]]:
    """Return the laws that are near the best one most often, and how often."""
    return [
        (title_of(law), _percent(share)) for law, share in near.select("law", "near").head(3).rows()
    ]


def _parts(runs: Runs) -> list[Part]:
    """Return the rows of the first table."""
    single = [law for law in runs.laws if law not in runs.per_flow]
    parts = []
    for i, rows in places.parts(runs.table, WINDOW):
        for (tcp,), of_tcp in rows.group_by("tcp", maintain_order=True):
            best = places.best(of_tcp)
            own = places.best(of_tcp, single)
            if best.law is None or own.law is None:
                continue
            drops = float(of_tcp.filter(pl.col("law") == best.law)["drop_rate"].median() or 0.0)  # type: ignore[arg-type]
            parts.append(
                Part(
                    _window(WINDOW, i),
                    str(tcp),
                    best.points,
                    title_of(best.law),
                    _list(best.alike),
                    _ms(best.delay_s),
                    f"{100 * drops:.2g} %",
                    f"{title_of(best.behind)} ({_ms(best.behind_s)} ms)" if best.behind else "–",
                    f"{title_of(own.law)} ({_ms(own.delay_s)} ms)",
                )
            )
    return parts


def _list(laws: tuple[str, ...]) -> str:
    """Return names of laws, of which the first few are listed and the others counted."""
    return listed([title_of(law) for law in laws], NAMED) if laws else "–"


def _ms(seconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{1e3 * seconds:.3g}"


def _laws(runs: Runs, near: pl.DataFrame) -> list[list[str]]:
    """Return the rows of the table of laws, from the one that is near the best most often."""
    rows = []
    for law, kept_up, share, is_best in near.select("law", "kept_up", "near", "best").rows():
        of_law = runs.table.filter(pl.col("law") == law)
        median = {
            name: float(of_law[name].median() or 0.0)  # type: ignore[arg-type]
            for name in ("delay_p95_s", "goodput", "jain", "drop_rate")
        }
        rows.append(
            [
                title_of(law) + ("\\*" if law in runs.designed else ""),
                *(f"{100 * value:.0f}" for value in (share, is_best, kept_up)),
                _ms(median["delay_p95_s"]),
                f"{100 * median['goodput']:.1f}",
                f"{median['jain']:.3f}",
                f"{100 * median['drop_rate']:.2g}",
                str(runs.failed.get(str(law), 0)),
            ]
        )
    return rows


def _by_window(runs: Runs, condition: pl.Expr, laws: list[str]) -> list[list[str]]:
    """Return for each law the share of points at which a condition holds, overall and by window."""
    parts = dict(places.parts(runs.table, WINDOW))
    rows = []
    for law in laws:
        shares = [_share(runs.table, law, condition)]
        for i in range(len(WINDOW.edges) - 1):
            shares.append(_share(parts[i], law, condition) if i in parts else "–")
        rows.append([title_of(law), *shares])
    return rows


def _share(table: pl.DataFrame, law: str, condition: pl.Expr) -> str:
    """Return the share of a law's points at which a condition holds."""
    holds = table.filter(pl.col("law") == law).select(condition.alias("so"))["so"].drop_nulls()
    return f"{100 * holds.sum() / len(holds):.0f}" if len(holds) else "–"


def _axes(study: Study) -> list[str]:
    """Return the names of the axes."""
    return [AXES[key].split("_")[0] for key in study.axes]


def _matter(study: Study) -> list[list[str]]:
    """Return a row per law with the first-order index of each axis for delay and goodput."""
    metrics = ("delay_p95_s", "utilisation")
    indices = {
        metric: {(effect.law, effect.axis): effect.first for effect in effects(study, metric)}
        for metric in metrics
    }
    return [
        [
            title_of(law),
            *(
                f"{indices[metric][law, axis]:.2f}" if (law, axis) in indices[metric] else "–"
                for metric in metrics
                for axis in study.axes
            ),
        ]
        for law in study.points.laws
    ]


def _most(matter: list[list[str]], study: Study) -> str:
    """Return for how many laws each axis explains most of the delay."""
    names = _axes(study)
    count: dict[str, int] = {}
    for _, *values in matter:
        numbers = {n: float(v) for n, v in zip(names, values, strict=False) if v != "–"}
        if numbers:
            largest = max(numbers, key=lambda name: numbers[name])
            count[largest] = count.get(largest, 0) + 1
    order = sorted(count, key=lambda name: -count[name])
    return ", ".join(f"{name} for {count[name]} laws" for name in order)


def _same(runs: Runs) -> list[tuple[str, str]]:
    """Return the pairs of laws that gave identical results at every point."""
    results = {
        law: runs.table.filter(pl.col("law") == law).select("point", *METRICS) for law in runs.laws
    }
    return [
        (title_of(a), title_of(b))
        for a, b in itertools.combinations(runs.laws, 2)
        if results[a].equals(results[b])
    ]


def _late(study: Study) -> list[str]:
    """Return the laws that begin to tune themselves only after the run has ended."""
    plan = study.points.part([0]).plan
    duration_s = plan.points[0].duration_s
    return [
        title_of(law.label)
        for law in plan.points[0].laws
        if _seconds(dict(law.params).get("tune_after", 0.0)) >= duration_s
    ]


def _seconds(value: object) -> float:
    """Return a time in seconds."""
    from forebay import _native

    return _native.quantity("tune_after", value, "time") if isinstance(value, str) else float(value)  # type: ignore[arg-type]
