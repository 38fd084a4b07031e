"""What the moving figures of a report draw: curves as numbers, for `web/report.js`.

A figure has panels, and a panel has series. Each series has tags, such as the law and the seed that
it is of; a reader switches tags off and on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forebay.report import classes, flows, overviews, plots, words
from forebay.report.numbers import Numbers
from forebay.run.axes import sweep_axes
from forebay.run.metrics import METRICS

if TYPE_CHECKING:
    from forebay._native import Observed, PointInfo
    from forebay.report.plots import Floats
    from forebay.run.runs import Runs

#: Values of all curves over time in a page: about 1.5 bytes each as text.
MOST_VALUES = 700_000
#: A curve has at least so many steps, however many there are.
FEWEST_STEPS = 300
#: Seeds with a curve of their own; the band covers all of them.
MOST_SEEDS = 10
#: Points of a curve of shares.
MOST_SHARES = 2000
#: Tags: seeds that are shown at first, and the band over all.
ALL = "all seeds"

Figure = dict[str, Any]
Panel = dict[str, Any]


@dataclass(frozen=True)
class Moving:
    """Figures that a page draws by itself, by their names, and their numbers as text."""

    figures: list[Figure]
    columns: list[list[Any]]
    numbers: str

    @property
    def names(self) -> set[str]:
        return {figure["name"] for figure in self.figures}

    def json(self) -> str:
        """The figures, such that the text can stand inside a page."""
        whole = {"columns": self.columns, "figures": self.figures}
        return json.dumps(whole, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def of(result: Runs, wanted: Sequence[tuple[str, str, int, int]]) -> Moving:
    """The data of figures, each given as (name, kind, point, link).

    A kind that has none, such as a map over two axes, is left out.
    """
    numbers = Numbers()
    steps = _steps(result, sum(kind in OVER_TIME for _, kind, _, _ in wanted))
    found = []
    for name, kind, point, link in wanted:
        drawn: Figure | None = None
        if kind in OVER_TIME:
            drawn = OVER_TIME[kind](result, point, link, numbers, steps)
        elif kind in SHARES:
            drawn = SHARES[kind](result, point, link, numbers)
        elif kind in overviews.OVERVIEWS:
            drawn = _overview(result, kind, numbers)
        if drawn and drawn["panels"]:
            found.append({"name": name, **drawn})
    return Moving(found, numbers.columns, numbers.text())


def _steps(result: Runs, count: int) -> int:
    """Most steps of a curve over time, of which all `count` figures have some."""
    seeds = min(result.seeds, MOST_SEEDS)
    curves = max(1, count * len(result.plan.laws) * (seeds + 2 * (seeds > 1)))
    return max(FEWEST_STEPS, MOST_VALUES // curves)


def _time(info: PointInfo, what: str, unit: str) -> Figure:
    """What figures over time have in common."""
    start, end = info.measure_s
    grey = [(0.0, start), (end, info.duration_s)]
    return {
        "group": "time",
        "x": {"label": "Time [s]", "unit": "s", "range": [0, info.duration_s]},
        "y": {"label": f"{what} [{unit}]", "unit": unit, "zero": True},
        "grey": [[a, b] for a, b in grey if b > a],
        "measured": [start, end],
        "changes": [change.time_s for change in info.changes],
        "says": words.changes(info, 2) if info.changes else [],
    }


def _law(index: int, label: str) -> dict[str, Any]:
    return {"law": label, "colour": plots.colour(index), "dash": plots.round_of(index)}


def _queue(result: Runs, point: int, link: int, numbers: Numbers, steps: int) -> Figure:
    info = result.plan.points[point]

    def values(one: Observed) -> tuple[Floats, Floats]:
        return one.samples["time_s"], one.samples["queue_pkts"]

    panels = []
    for index, law in result.laws(point):
        panel = _over_seeds(result, point, index, link, values, numbers, steps)
        panel["target"] = plots.target_pkts(info, law, info.links[link])
        panels.append(panel)
    return {**_time(info, "Queue", "packets"), "panels": panels, "spread": True}


def _windows(result: Runs, point: int, link: int, numbers: Numbers, steps: int) -> Figure:
    def values(one: Observed) -> tuple[Floats, Floats]:
        return one.samples["time_s"], one.samples[plots.WINDOWS]

    panels = [
        _over_seeds(result, point, index, link, values, numbers, steps)
        for index, _ in result.laws(point)
    ]
    common = _time(result.plan.points[point], "In flight", "packets")
    return {**common, "panels": panels, "spread": True}


def _loss(result: Runs, point: int, link: int, numbers: Numbers, steps: int) -> Figure:
    info = result.plan.points[point]
    interval_s = plots.loss_interval_s(info)

    def values(one: Observed) -> tuple[Floats, Floats]:
        return plots.loss_rate(one, info, interval_s)

    panels = [
        _over_seeds(result, point, index, link, values, numbers, steps)
        for index, _ in result.laws(point)
    ]
    common = _time(info, f"Loss rate in {interval_s:g} s", "%")
    return {**common, "panels": panels, "spread": True, "cut": True}


def _over_seeds(
    result: Runs,
    point: int,
    index: int,
    link: int,
    values: Callable[[Observed], tuple[Floats, Floats]],
    numbers: Numbers,
    steps: int,
) -> Panel:
    """A panel of one law: a curve for each seed, and the band from the least to the greatest."""
    law = result.plan.points[point].laws[index]
    runs = result.of(point, index)
    series = [values(one) for one in result.at(point, index, link)]
    times = series[0][0]
    # Real traffic ends when it ends: what has other times than the first has no curve here.
    alike = [i for i, (t, _) in enumerate(series) if len(t) == len(times) and (t == times).all()]
    size = max(1, math.ceil(len(times) / steps)) if len(times) > 2 * steps else 1
    starts = np.arange(0, len(times), size)
    panel: Panel = {"title": law.label, "x": numbers.add_times(times[starts]), "series": []}
    panel["of"] = size
    if len(alike) > 1:
        low = np.fmin.reduce([series[i][1] for i in alike])
        high = np.fmax.reduce([series[i][1] for i in alike])
        panel["series"].append(
            {
                "label": f"{len(alike)} seeds",
                "tags": {"law": law.label, "seed": ALL},
                "band": True,
                **_law(index, law.label),
                "low": numbers.add(np.fmin.reduceat(low, starts)),
                "high": numbers.add(np.fmax.reduceat(high, starts)),
            }
        )
    for i in alike[:MOST_SEEDS]:
        one: dict[str, Any] = {
            "label": f"seed {runs[i].seed}",
            "tags": {"law": law.label, "seed": str(runs[i].seed)},
            **_law(index, law.label),
        }
        found = series[i][1]
        if size == 1:
            one["y"] = numbers.add(found)
        else:
            one["low"] = numbers.add(np.fmin.reduceat(found, starts))
            one["high"] = numbers.add(np.fmax.reduceat(found, starts))
        if i != alike[0]:
            one["off"] = True
        panel["series"].append(one)
    return panel


def _goodput(result: Runs, point: int, link: int, numbers: Numbers, steps: int) -> Figure:
    """Flows of the first seed, or bands over them, a panel for each law."""
    del steps
    info = result.plan.points[point]
    panels = []
    shown = {of.traffic for of in flows.of_flows(result, point, link)}
    for index, law in result.laws(point):
        series: list[dict[str, Any]] = []
        times: NDArray[Any] = np.zeros(0)
        for of in result.at(point, index, link)[0].goodput:
            if of.traffic not in shown or not of.columns or not len(of.columns[0]):
                continue
            times = of.interval_s * np.arange(1, len(of.columns[0]) + 1)
            label = info.traffic[of.traffic].label
            common = {"tags": {"traffic": label}, "colour": plots.colour(of.traffic), "dash": 0}
            columns = [1e-6 * column.astype(float) for column in of.columns]
            if not of.quantiles:
                series += [
                    {"label": f"{label} {i + 1}", **common, "y": numbers.add(column)}
                    for i, column in enumerate(columns)
                ]
                continue
            middle = len(columns) // 2
            for i in range(middle):
                share = round(100 * (1 - 2 * of.quantiles[i]))
                series.append(
                    {
                        "label": f"{label}, {share} % of the flows",
                        **common,
                        "band": True,
                        "low": numbers.add(columns[i]),
                        "high": numbers.add(columns[-1 - i]),
                    }
                )
            series.append(
                {"label": f"{label}, median", **common, "y": numbers.add(columns[middle])}
            )
        if series:
            seed = result.of(point, index)[0].seed
            panel = {"title": f"{law.label}, seed {seed}", "x": numbers.add_times(times)}
            panels.append({**panel, "of": 1, "series": series})
    common = _time(info, "Goodput", "Mbit/s")
    return {**common, "panels": panels, "step": True, "nearest": True, "cut": True}


def _delay(result: Runs, point: int, link: int, numbers: Numbers) -> Figure:
    """One panel, a curve for each law: shares that waited longer."""
    curves = []
    for index, law in result.laws(point):
        delay_ms, longer = plots.waited_longer(result.at(point, index, link), 1e-5)
        if len(delay_ms):
            # Before the shortest wait, every packet waited longer.
            x, y = np.concatenate([[0.0], delay_ms]), np.concatenate([[1.0], longer])
            curves.append((law.label, {"law": law.label}, _law(index, law.label), x, 100 * y))
    return {
        "group": f"delay-{link}",
        "x": {"label": "Queuing delay [ms]", "unit": "ms"},
        "y": {"label": "Packets that waited longer [%]", "unit": "%", "log": True, "least": 0.01},
        "panels": [_shares("", curves, numbers)],
        "step": True,
    }


def _classes(result: Runs, point: int, link: int, numbers: Numbers) -> Figure:
    panels = []
    for index, law in result.laws(point):
        curves = []
        for i, name in enumerate(result.class_names(point, index, link)):
            of = [
                one
                for seen in result.at(point, index, link)
                for one in seen.classes
                if one.name == name
            ]
            x, y = classes.waited_no_longer(of)
            look = {"colour": plots.colour(i), "dash": plots.round_of(i)}
            curves.append((name, {"class": name}, look, x, 100 * y))
        if curves:
            panels.append(_shares(law.label, curves, numbers))
    return {
        "group": f"classes-{link}",
        "x": {"label": "Queuing delay [ms], logarithmic", "unit": "ms", "log": True},
        "y": {"label": "Packets that waited no longer [%]", "unit": "%", "range": [0, 102]},
        "panels": panels,
        "step": True,
    }


def _completions(result: Runs, point: int, link: int, numbers: Numbers) -> Figure:
    info = result.plan.points[point]
    panels = []
    for kind in flows.with_transfers(result, point, link):
        curves = []
        for index, law in result.laws(point):
            took_s = flows.took_s(result, point, index, link, kind)
            if len(took_s):
                share = 100 * np.arange(len(took_s) + 1) / len(took_s)
                x = np.concatenate([took_s[:1], took_s])
                curves.append((law.label, {"law": law.label}, _law(index, law.label), x, share))
        panels.append(_shares(info.traffic[kind].label, curves, numbers))
    return {
        "group": f"completion-{link}",
        "x": {"label": "Completion time [s], logarithmic", "unit": "s", "log": True},
        "y": {"label": "Transfers that took no longer [%]", "unit": "%", "range": [0, 102]},
        "panels": panels,
        "step": True,
    }


Curve = tuple[str, dict[str, str], dict[str, Any], "Floats", "Floats"]


def _shares(title: str, curves: Sequence[Curve], numbers: Numbers) -> Panel:
    """Curves of shares over common places: each keeps its value up to its next step."""
    every = [x for _, _, _, x, _ in curves]
    places = np.unique(np.concatenate(every)) if every else np.zeros(0)
    if len(places) > MOST_SHARES:
        places = places[np.unique(np.linspace(0, len(places) - 1, MOST_SHARES).round().astype(int))]
    series = []
    for label, tags, look, x, y in curves:
        last = np.searchsorted(x, places, side="right") - 1
        # Beyond its last step a curve has nothing to show.
        known = (last >= 0) & (places <= x[-1])
        values = np.where(known, y[np.maximum(last, 0)], np.nan)
        series.append({"label": label, "tags": tags, **look, "y": numbers.add(values)})
    return {"title": title, "x": numbers.add_times(places), "of": 1, "series": series}


def _overview(result: Runs, kind: str, numbers: Numbers) -> Figure | None:
    """Curves over one axis of the sweep, a panel for each metric; None where it has no numbers."""
    swept = sweep_axes({i: point.settings for i, point in result.points()})
    if len(swept) != 1 or not swept[0].numbers:
        return None
    axis = swept[0]
    order = sorted(axis.places, key=axis.places.__getitem__)
    x = np.array([axis.numbers[axis.places[p]] for p in order])
    name, unit = words.axis(axis, next(point for _, point in result.points()))
    panels = []
    for metric in (METRICS[one] for one in overviews.OVERVIEWS[kind]):
        panel: Panel = {
            "title": metric.title,
            "x": numbers.add_times(x),
            "of": 1,
            "y": {"label": metric.heading, "unit": metric.unit},
            "series": list(_means(result, metric.name, metric.scale, order, numbers)),
        }
        panels.append(panel)
    return {
        "group": "sweep",
        "x": {
            "label": f"{name} [{unit}]" if unit else name,
            "unit": unit or name,
            "log": bool(min(x) > 0 and max(x) > overviews.DECADE * min(x)),
            "range": [float(min(x)), float(max(x))],
        },
        "y": {"label": "", "unit": ""},
        "panels": panels,
        "dots": True,
    }


def _means(
    result: Runs, metric: str, scale: float, order: Sequence[int], numbers: Numbers
) -> Iterator[dict[str, Any]]:
    for i, label in enumerate(result.plan.laws):
        cells = [result.cell(p, i, metric) for p in order]
        mean = np.array([scale * cell.mean for cell in cells])
        half = np.array([scale * cell.half_width for cell in cells])
        if np.isnan(mean).all():
            continue
        look = {"tags": {"law": label}, **_law(i, label)}
        if not np.isnan(half).all():
            low, high = numbers.add(mean - half), numbers.add(mean + half)
            yield {"label": f"{label}, 95 %", **look, "band": True, "low": low, "high": high}
        yield {"label": label, **look, "y": numbers.add(mean)}


#: Kinds of figures over time, and of shares.
OVER_TIME: dict[str, Callable[[Runs, int, int, Numbers, int], Figure]] = {
    "queue": _queue,
    "loss": _loss,
    "flows": _goodput,
    "windows": _windows,
}
SHARES: dict[str, Callable[[Runs, int, int, Numbers], Figure]] = {
    "delay": _delay,
    "classes": _classes,
    "completion": _completions,
}
