"""The page of a validation: verdicts, differences, figures and their causes."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from forebay._base import registries
from forebay._base import statistics as intervals
from forebay._base.publication import publication, publish, write
from forebay._native import __version__
from forebay.comparison.validate import (
    CHANCE,
    DELAY,
    METRICS,
    SHORT,
    SIDES,
    SIGNALS,
    UNSURE,
    Row,
    Side,
    ValidatedScenario,
    reversed_difference,
    signed,
)
from forebay.experiment import engines
from forebay.report import parts, templates
from forebay.report.drawing import percent_scale
from forebay.report.kinds import LEAST_PERCENT, waited_longer
from forebay.report.pages import PageFigure, render_all
from forebay.report.plot import Plot, styled
from forebay.report.result_files import finite
from forebay.report.style import COLOURS
from forebay.report.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay._base.publication import Content
    from forebay.comparison.compare import Agreement

#: Every file of `write_files`; it replaces those of a former call.
REPORT, JSON, RUNS, DELAYS = "report.html", "metrics.json", "metrics.parquet", "delays.parquet"

TSO = (
    "TSO is no cause: below 1 Gbit/s the link takes segments apart before the queue, so that a law "
    "sees packets of the link's size."
)
#: Engines on which the kernel's own senders send.
KERNELS = ("kernel", "link")

#: How the names of senders begin that are modelled on the kernel's.
KERNEL_LIKE = "linux-"
STD = "queue_std_pkts"
#: A link above this utilisation is full: its goodput shows the headers.
FULL = 0.98
#: A goodput that is off by less is not worth a line.
LEAST_SHARE = 0.01
#: How each side is drawn.
LOOKS: list[dict[str, Any]] = [
    {"color": COLOURS[0], "marker": "o"},
    {"color": COLOURS[1], "marker": "s"},
]
BAND: dict[str, Any] = {"color": "#dddddd", "linewidth": 0, "zorder": 0}
#: Room of a law along the axis, and where its two sides stand in it.
ROOM, ASIDE = 0.8, 0.16
#: An axis that spans more is logarithmic.
MOST_LINEAR = 4.0
#: Curves in one row of the figure.
COLUMNS = 5
#: A narrower figure would be blown up to the width of the page.
LEAST_WIDTH_IN = 8.0


def markdown(
    found: Sequence[ValidatedScenario], command: str, void_lateness: str, void_rate: str
) -> str:
    """Return the page; every number in it is from the runs, which `command` makes."""
    told = _told(found, command, void_lateness, void_rate)
    return templates.markdown("validate.md.j2", **told)


def _title(engines: Sequence[str]) -> str:
    usual = list(engines) == list(SIDES)
    return "Real flows in real time" if usual else "Engines compared"


def _told(
    found: Sequence[ValidatedScenario], command: str, void_lateness: str, void_rate: str
) -> dict[str, Any]:
    """Return the values of both templates."""
    tested = dict.fromkeys(one.engines[0] for one in found)
    names = list(dict.fromkeys([*tested, *(one.engines[1] for one in found)]))
    return {
        "engines": names,
        "title": _title(names),
        "partial": [one.partial for one in found if one.partial],
        "command": command,
        "method": templates.paragraphs(
            "validate_method.txt.j2",
            engines=names,
            in_words=[(name, engines.named(name).in_words) for name in names],
            reference=SIDES.get(names[-1], names[-1]),
            void_lateness=void_lateness,
            void_rate=void_rate,
            delay_share=DELAY.share,
            delay_s=DELAY.least,
            signal_share=SIGNALS.share,
            unsure=UNSURE,
            chance=CHANCE,
        ),
        "sections": [
            {
                "title": one.heading,
                "path": one.path,
                "summary": _summary(one),
                "verdicts": _verdicts(one) if one.rows else None,
                "table": _table(one),
                "text": one.text,
            }
            for one in found
        ],
        "causes": causes(found),
        "tso": TSO if "link" in names else "",
    }


def _summary(found: ValidatedScenario) -> str:
    def values(name: str) -> list[float]:
        sides = [side for row in found.rows for side in row.sides]
        every = [value for side in sides for value in side.values(name)]
        return [value for value in every if value == value]

    (text,) = templates.paragraphs(
        "validate_summary.txt.j2",
        found=found,
        late_s=values("lateness_p99_s"),
        transfers=values("transfers"),
        median=statistics.median,
    )
    return text


def _verdicts(found: ValidatedScenario) -> Table:
    less = f"{found.sides[1]} − {found.sides[0]}"
    head = ["law", f"delay, {less} [ms]", "allowed", f"loss, {less} [%]"]
    cells = []
    for row in found.rows:
        verdict = row.verdict + (", void" if row.counts_void else "")
        numbers = [text for one in row.agreements for text in _difference_and_limit(one)]
        cells.append([row.name, *numbers, verdict])
    head += ["allowed", "verdict"]
    return Table(head, cells, keys=len(head))


def _difference_and_limit(one: Agreement) -> tuple[str, str]:
    scale = one.tolerance.scale
    difference = signed(scale * reversed_difference(one), scale * one.half_width)
    return difference, f"± {scale * one.limit:.2g}"


def _table(found: ValidatedScenario) -> Table:
    names = found.metrics
    head = ["law", "side", *(METRICS[name].heading for name in names)]
    return Table(head, found.table_rows(names), keys=len(head))


def as_json(found: Sequence[ValidatedScenario], command: str, digest: str = "") -> dict[str, Any]:
    """Return the whole of metrics.json: verdicts, and every run's metrics."""
    return {
        "forebay": __version__,
        "command": command,
        "digest": digest,
        "scenarios": [
            {
                "scenario": one.path,
                "title": one.title,
                "engines": list(one.engines),
                "partial": bool(one.partial),
                "laws": [row.as_json() for row in one.rows],
                "runs": [run | {"metrics": finite(run["metrics"])} for run in one.runs],
            }
            for one in found
        ],
    }


def write_files(
    found: Sequence[ValidatedScenario],
    out: Path,
    command: str,
    void_lateness: str,
    void_rate: str,
    *,
    digest: str = "",
) -> None:
    """Write all files to a directory, made if need be: the numbers before anything is drawn."""
    numbers: dict[str, Content] = {
        JSON: as_json(found, command, digest),
        RUNS: runs_table(found),
        DELAYS: delays_table(found),
    }
    publish(out, numbers, replaces=["agreement-*.p*", "delays-*.p*", REPORT])
    told = _told(found, command, void_lateness, void_rate)
    for number, (one, section) in enumerate(zip(found, told["sections"], strict=True), start=1):
        section["figures"] = figures(one, number)
    if len(found) == 1:
        told["title"] = found[0].heading
    with publication(out) as unfinished:
        drawn = [figure for section in told["sections"] for figure in section["figures"]]
        render_all(drawn, unfinished)
        write(unfinished / REPORT, templates.html("validate.html.j2", **told))


def runs_table(found: Sequence[ValidatedScenario]) -> pl.DataFrame:
    """Return a row per run: scenario, side, law, point, seed, whether it is void, and every
    metric."""
    rows = [
        {
            "scenario": one.path,
            **{key: run[key] for key in ("side", "law", "point", "seed")},
            "void": bool(run["void"]),
            **{name: run["metrics"].get(name) for name in METRICS},
        }
        for one in found
        for run in one.runs
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def delays_table(found: Sequence[ValidatedScenario]) -> pl.DataFrame:
    """Return a row per run and bin of the queuing delay: its upper end delay_s, and packets in
    it."""
    frames = [
        pl.DataFrame(
            {
                **{"scenario": one.path, "side": side, "law": row.law, "point": row.point},
                "run": number,
                **{"delay_s": observed.delay_s, "packets": observed.delay_packets},
            },
            schema_overrides={"run": pl.Int32},
        )
        for one in found
        for row in one.rows
        for side, of_side in zip(row.names, row.sides, strict=True)
        for number, observed in enumerate(of_side.observed, start=1)
    ]
    return pl.concat(frames) if frames else pl.DataFrame()


def figures(found: ValidatedScenario, number: int) -> list[PageFigure]:
    """Return the figures of one scenario; `number` tells their names from those of others."""
    if not found.rows:
        return []
    shown = [
        PageFigure(
            f"agreement-{number}",
            partial(agreement, found),
            "Mean delay, and packets dropped or marked",
            "Mean over the runs with its 95 % confidence interval. The grey band shows where "
            f"the {found.sides[0]} mean agrees with the {found.sides[1]} one: within "
            f"{100 * DELAY.share:g} % or {1e3 * DELAY.least:g} ms for the delay, "
            f"{100 * SIGNALS.share:g} % for the loss. A law "
            "agrees if both blue marks lie in their bands.",
        )
    ]
    if all(side.observed for row in found.rows for side in row.sides):
        shown.append(
            PageFigure(
                f"delays-{number}",
                partial(delays, found),
                "Queuing delay",
                "Share of packets that waited longer than the time on the axis, over all runs. "
                "A curve crosses 1 % at the 99th percentile.",
            )
        )
    return shown


@styled
def agreement(found: ValidatedScenario) -> Plot:
    """Draw mean delay and loss of each law, on both sides, in the band where they agree."""
    rows = found.rows
    figure = Plot(figsize=(max(10.0, 2.0 + 0.8 * len(rows)), 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    for number, (axes, label) in enumerate(
        [(upper, METRICS[DELAY.metric].heading), (lower, "Drops and marks [%]")]
    ):
        _panel(axes, rows, [row.agreements[number] for row in rows])
        axes.set_ylabel(label)
    parts.named_places(lower, [row.name for row in rows])
    upper.grid(axis="x", visible=False)
    if len(rows) > 6:
        lower.tick_params(axis="x", labelrotation=30)
    handles = [*upper.get_legend_handles_labels()[0], Patch(label="agrees", **BAND)]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


@styled
def delays(found: ValidatedScenario) -> Plot:
    """Draw the share of packets that waited longer than a given time: a panel per law, a curve per
    side."""
    rows = found.rows
    width = max(LEAST_WIDTH_IN, 2.3 * min(COLUMNS, len(rows)) + 0.6)
    figure, panels = parts.small_multiples(len(rows), COLUMNS, width, 2.1, more=0.6)
    for axes, row in zip(panels, rows, strict=True):
        for name, look, side in zip(row.names, LOOKS, row.sides, strict=True):
            delay_ms, longer = waited_longer(side.observed, LEAST_PERCENT / 1000)
            axes.plot(delay_ms, 100 * longer, color=look["color"], linewidth=1.2, label=name)
        axes.set_title(row.name)
        percent_scale(axes, LEAST_PERCENT)
        axes.xaxis.set_major_locator(MaxNLocator(4))
    parts.label_all(figure, "Queuing delay [ms]", "Packets that waited longer")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def _panel(axes: Axes, rows: list[Row], agreements: Sequence[Agreement]) -> None:
    # Otherwise the axis could end at the edge of a band and cut a mark in half.
    axes.use_sticky_edges = False
    seen: list[float] = []
    rule = agreements[0].tolerance
    for place, one in enumerate(agreements):
        low, high = (rule.scale * (one.reference_mean + limit) for limit in (-one.limit, one.limit))
        axes.bar(place, high - low, ROOM, bottom=low, **BAND)
        seen += [low, high]
    for look, (name, how) in enumerate(zip(rows[0].names, LOOKS, strict=True)):
        sides = [row.sides[look] for row in rows]
        cells = [
            intervals.mean_and_interval([rule.scale * v for v in side.values(rule.metric)])
            for side in sides
        ]
        at = [place + (-ASIDE, ASIDE)[look] for place in range(len(rows))]
        mean, half = zip(*cells, strict=True)
        parts.dots(axes, at, mean, look, name, yerr=half, fmt=how["marker"])
        seen += mean
    if min(seen) > 0 and max(seen) > MOST_LINEAR * min(seen):
        axes.set_yscale("log")
        parts.plain_log(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)


def causes(found: Sequence[ValidatedScenario]) -> list[tuple[str, list[str]]]:
    """Return paragraphs by what they are about, each with its title in bold."""
    facts = _facts(found)
    groups = [
        ("Between the simulated sender and the kernel's:", "senders"),
        ("Differences that no setting covers:", "the rest"),
    ]
    told = [
        (title, templates.paragraphs("validate_causes.txt.j2", part=of, **facts))
        for title, of in groups
    ]
    return [(title, some) for title, some in told if some]


def _facts(found: Sequence[ValidatedScenario]) -> dict[str, Any]:
    """Return what the causes depend on; lists are empty where there is nothing to say.

    tails: deviations of the queue under the baseline, where real flows make it swing less.
    low: laws whose queue settles below the set-point on both sides. laws: their own reasons.
    short: whether there are short transfers. less_goodput: how much less the real goodput of full
    links is, in %; None where it is not. fluid, real: whether an engine is the fluid model, or in
    real time.
    """
    # Our packets beside the kernel's; of other engines only what no sender is the cause of.
    whole, found = found, [one for one in found if _is_ours_beside_a_kernels(one)]
    senders = sorted(_senders(found))
    reference = registries.baseline()
    rows = [(one, row) for one in found for row in one.rows]
    return {
        "kernel_like": [name for name in senders if name.startswith(KERNEL_LIKE)],
        "others": [name for name in senders if not name.startswith(KERNEL_LIKE)],
        "short": any(SHORT.name in one.metrics for one in found),
        "baseline": reference["short_title"],
        "tails": [
            f"{row.tested.mean(STD):.1f} packets simulated, {row.reference.mean(STD):.1f} real"
            for one, row in rows
            if row.info and row.info.kind == reference["name"] and _swings_less(one, row)
        ],
        "low": [text for one, row in rows if (text := _below_set_point(one, row))],
        "laws": _of_laws([row for _, row in rows]),
        "less_goodput": _less_goodput([row for _, row in rows]),
        "fluid": any("fluid" in one.engines for one in whole),
        "real": any(one.in_real_time for one in whole),
        "void": sum(row.void for one in whole for row in one.rows),
    }


def _is_ours_beside_a_kernels(one: ValidatedScenario) -> bool:
    return one.engines[0] == "packets" and one.engines[1] in KERNELS


def _senders(found: Sequence[ValidatedScenario]) -> set[str]:
    """Return the simulated senders."""
    return {t.tcp for one in found for point in one.points for t in point.traffic if t.tcp}


def _swings_less(found: ValidatedScenario, row: Row) -> bool:
    """Return True if real flows make the queue swing less than simulated ones of another sender."""
    simulated, real = row.tested.mean(STD), row.reference.mean(STD)
    kernel_like = any(name.startswith(KERNEL_LIKE) for name in _senders([found]))
    return not kernel_like and not row.agrees and real < simulated


def _below_set_point(found: ValidatedScenario, row: Row) -> str:
    """Return the queues of a law that integrates and settles below its set-point; "" elsewhere."""
    if not row.info or not row.info.kind or not row.info.integrates:
        return ""
    cut = _without_signal(found, row.tested), _without_signal(found, row.reference)
    queues = [side.mean("queue_mean_pkts") for side in row.sides]
    if not row.info.target_pkts or max(queues) >= row.info.target_pkts or min(cut) <= 0:
        return ""
    return (
        f"{row.name} {queues[0]:.1f} packets simulated and {queues[1]:.1f} real, with no "
        f"signal for {100 * cut[0]:.1f} % and {100 * cut[1]:.1f} % of the time"
    )


def _of_laws(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the reasons that laws give in their own files, for those that differ: title and
    text."""
    laws: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        reason = registries.law(row.info.kind)["reality"] if row.info and row.info.kind else None
        if reason and not row.agrees:
            laws.setdefault(reason, set()).add(row.law)
    return [
        (f"{title} under {' and '.join(sorted(names))}", text)
        for (title, text), names in laws.items()
    ]


def _less_goodput(rows: Sequence[Row]) -> float | None:
    """Return how much less the real goodput of full links is in the median, in %."""
    shares = [
        _per_capacity(row.reference) / _per_capacity(row.tested)
        for row in rows
        if min(side.mean("utilisation") for side in row.sides) > FULL
    ]
    less = 1 - statistics.median(shares) if shares else 0.0
    return 100 * less if less > LEAST_SHARE else None


def _per_capacity(side: Side) -> float:
    return side.mean("goodput_bps") / side.mean("utilisation")


def _without_signal(found: ValidatedScenario, side: Side) -> float:
    """Return the share of the measured samples with a probability of zero."""
    start_s, end_s = found.points[0].measure_s
    shares = []
    for one in side.observed:
        time_s = one.samples["time_s"]
        p = one.samples["p"][(time_s > start_s) & (time_s <= end_s)]
        shares.append(float(np.mean(p <= 0)))
    return statistics.mean(shares)
