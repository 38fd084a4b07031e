"""The page of a validation: verdicts, differences, figures, and the causes of differences."""

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

#: The files of `write_files`, which replace those of a former call.
REPORT, JSON, RUNS, DELAYS = "report.html", "metrics.json", "metrics.parquet", "delays.parquet"

TSO = (
    "TSO is not a cause: below 1 Gbit/s the link splits segments before the queue, so a law "
    "sees packets of the link's size."
)
#: Engines whose senders are the kernel's.
KERNELS = ("kernel", "link")

#: Prefix of the senders that are modelled on the kernel's.
KERNEL_LIKE = "linux-"
STD = "queue_std_pkts"
#: Utilisation above which a link is full, so its goodput shows the size of headers.
FULL = 0.98
#: Smallest relative difference of goodput that is reported.
LEAST_SHARE = 0.01
#: Colour and marker of each side.
LOOKS: list[dict[str, Any]] = [
    {"color": COLOURS[0], "marker": "o"},
    {"color": COLOURS[1], "marker": "s"},
]
BAND: dict[str, Any] = {"color": "#dddddd", "linewidth": 0, "zorder": 0}
#: Width of a law along the axis, and the offset of its two sides.
ROOM, ASIDE = 0.8, 0.16
#: Largest ratio of values on a linear axis; a wider axis is logarithmic.
MOST_LINEAR = 4.0
#: Panels in a row of the figure.
COLUMNS = 5
#: Least width of a figure, below which the page would enlarge it.
LEAST_WIDTH_IN = 8.0


def markdown(
    scenarios: Sequence[ValidatedScenario], command: str, void_lateness: str, void_rate: str
) -> str:
    """Return the page in Markdown.

    Parameters
    ----------
    scenarios : sequence of ValidatedScenario
        The compared scenarios.
    command : str
        Command line that repeats the runs.
    void_lateness, void_rate : str
        Limits from which on a real run is void.

    Returns
    -------
    str
        The page.
    """
    values = _values(scenarios, command, void_lateness, void_rate)
    return templates.markdown("validate.md.j2", **values)


def _title(engines: Sequence[str]) -> str:
    usual = list(engines) == list(SIDES)
    return "Real flows in real time" if usual else "Engines compared"


def _values(
    scenarios: Sequence[ValidatedScenario], command: str, void_lateness: str, void_rate: str
) -> dict[str, Any]:
    """Return the values of both templates, which `markdown` describes."""
    tested = dict.fromkeys(scenario.engines[0] for scenario in scenarios)
    names = list(dict.fromkeys([*tested, *(scenario.engines[1] for scenario in scenarios)]))
    return {
        "engines": names,
        "title": _title(names),
        "partial": [scenario.partial for scenario in scenarios if scenario.partial],
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
                "title": scenario.heading,
                "path": scenario.path,
                "summary": _summary(scenario),
                "verdicts": _verdicts(scenario) if scenario.rows else None,
                "table": _table(scenario),
                "text": scenario.text,
            }
            for scenario in scenarios
        ],
        "causes": causes(scenarios),
        "tso": TSO if "link" in names else "",
    }


def _summary(scenario: ValidatedScenario) -> str:
    def values(name: str) -> list[float]:
        sides = [side for row in scenario.rows for side in row.sides]
        every = [value for side in sides for value in side.values(name)]
        return [value for value in every if value == value]

    (text,) = templates.paragraphs(
        "validate_summary.txt.j2",
        found=scenario,
        late_s=values("lateness_p99_s"),
        transfers=values("transfers"),
        median=statistics.median,
    )
    return text


def _verdicts(scenario: ValidatedScenario) -> Table:
    less = f"{scenario.sides[1]} − {scenario.sides[0]}"
    head = ["law", f"delay, {less} [ms]", "allowed", f"loss, {less} [%]"]
    cells = []
    for row in scenario.rows:
        verdict = row.verdict + (", void" if row.counts_void else "")
        numbers = [text for metric in row.agreements for text in _difference_and_limit(metric)]
        cells.append([row.name, *numbers, verdict])
    head += ["allowed", "verdict"]
    return Table(head, cells, keys=len(head))


def _difference_and_limit(metric: Agreement) -> tuple[str, str]:
    scale = metric.tolerance.scale
    difference = signed(scale * reversed_difference(metric), scale * metric.half_width)
    return difference, f"± {scale * metric.limit:.2g}"


def _table(scenario: ValidatedScenario) -> Table:
    names = scenario.metrics
    head = ["law", "side", *(METRICS[name].heading for name in names)]
    return Table(head, scenario.table_rows(names), keys=len(head))


def as_json(
    scenarios: Sequence[ValidatedScenario], command: str, digest: str = ""
) -> dict[str, Any]:
    """Return the contents of metrics.json: the verdicts and the metrics of every run.

    Parameters
    ----------
    scenarios : sequence of ValidatedScenario
        The compared scenarios.
    command : str
        Command line that repeats the runs.
    digest : str
        Digest of the inputs.

    Returns
    -------
    dict
        The contents.
    """
    return {
        "forebay": __version__,
        "command": command,
        "digest": digest,
        "scenarios": [
            {
                "scenario": scenario.path,
                "title": scenario.title,
                "engines": list(scenario.engines),
                "partial": bool(scenario.partial),
                "laws": [row.as_json() for row in scenario.rows],
                "runs": [run | {"metrics": finite(run["metrics"])} for run in scenario.runs],
            }
            for scenario in scenarios
        ],
    }


def write_files(
    scenarios: Sequence[ValidatedScenario],
    out: Path,
    command: str,
    void_lateness: str,
    void_rate: str,
    *,
    digest: str = "",
) -> None:
    """Write all files to a folder, the numbers before anything is drawn.

    Parameters
    ----------
    scenarios : sequence of ValidatedScenario
        The compared scenarios.
    out : Path
        The folder, which is created if needed.
    command : str
        Command line that repeats the runs.
    void_lateness, void_rate : str
        Limits from which on a real run is void.
    digest : str
        Digest of the inputs.
    """
    numbers: dict[str, Content] = {
        JSON: as_json(scenarios, command, digest),
        RUNS: runs_table(scenarios),
        DELAYS: delays_table(scenarios),
    }
    publish(out, numbers, replaces=["agreement-*.p*", "delays-*.p*", REPORT])
    values = _values(scenarios, command, void_lateness, void_rate)
    for number, (scenario, section) in enumerate(
        zip(scenarios, values["sections"], strict=True), start=1
    ):
        section["figures"] = figures(scenario, number)
    if len(scenarios) == 1:
        values["title"] = scenarios[0].heading
    with publication(out) as unfinished:
        drawn = [figure for section in values["sections"] for figure in section["figures"]]
        render_all(drawn, unfinished)
        write(unfinished / REPORT, templates.html("validate.html.j2", **values))


def runs_table(scenarios: Sequence[ValidatedScenario]) -> pl.DataFrame:
    """Return a row for each run: scenario, side, law, point, seed, void or not, and metrics."""
    rows = [
        {
            "scenario": scenario.path,
            **{key: run[key] for key in ("side", "law", "point", "seed")},
            "void": bool(run["void"]),
            **{name: run["metrics"].get(name) for name in METRICS},
        }
        for scenario in scenarios
        for run in scenario.runs
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def delays_table(scenarios: Sequence[ValidatedScenario]) -> pl.DataFrame:
    """Return a row for each run and bin of the queuing delay.

    A row has the upper end of the bin in s and its number of packets.
    """
    frames = [
        pl.DataFrame(
            {
                **{"scenario": scenario.path, "side": side, "law": row.law, "point": row.point},
                "run": number,
                **{"delay_s": observed.delay_s, "packets": observed.delay_packets},
            },
            schema_overrides={"run": pl.Int32},
        )
        for scenario in scenarios
        for row in scenario.rows
        for side, of_side in zip(row.names, row.sides, strict=True)
        for number, observed in enumerate(of_side.observed, start=1)
    ]
    return pl.concat(frames) if frames else pl.DataFrame()


def figures(scenario: ValidatedScenario, number: int) -> list[PageFigure]:
    """Return the figures of a scenario.

    Parameters
    ----------
    scenario : ValidatedScenario
        The scenario.
    number : int
        Number of the scenario, which is part of the figures' names.

    Returns
    -------
    list of PageFigure
        The figures; none if no law has runs on both sides.
    """
    if not scenario.rows:
        return []
    page_figures = [
        PageFigure(
            f"agreement-{number}",
            partial(agreement, scenario),
            "Mean delay, and packets dropped or marked",
            "Mean over the runs with its 95 % confidence interval. In the grey band "
            f"the {scenario.sides[0]} mean agrees with the {scenario.sides[1]} one: within "
            f"{100 * DELAY.share:g} % or {1e3 * DELAY.least:g} ms for the delay, "
            f"{100 * SIGNALS.share:g} % for the loss. A law "
            "agrees if both blue marks lie in their bands.",
        )
    ]
    if all(side.observed for row in scenario.rows for side in row.sides):
        page_figures.append(
            PageFigure(
                f"delays-{number}",
                partial(delays, scenario),
                "Queuing delay",
                "Share of packets that waited longer than the time on the axis, over all runs. "
                "A curve crosses 1 % at the 99th percentile.",
            )
        )
    return page_figures


@styled
def agreement(scenario: ValidatedScenario) -> Plot:
    """Draw mean delay and loss of each law on both sides, with the band in which they agree."""
    rows = scenario.rows
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
def delays(scenario: ValidatedScenario) -> Plot:
    """Draw the share of packets that waited longer than a time, with a panel for each law."""
    rows = scenario.rows
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
    # Sticky edges could end the axis at the edge of a band and cut a mark in half.
    axes.use_sticky_edges = False
    values: list[float] = []
    rule = agreements[0].tolerance
    for place, metric in enumerate(agreements):
        low, high = (
            rule.scale * (metric.reference_mean + limit) for limit in (-metric.limit, metric.limit)
        )
        axes.bar(place, high - low, ROOM, bottom=low, **BAND)
        values += [low, high]
    for look, (name, how) in enumerate(zip(rows[0].names, LOOKS, strict=True)):
        sides = [row.sides[look] for row in rows]
        cells = [
            intervals.mean_and_interval([rule.scale * v for v in side.values(rule.metric)])
            for side in sides
        ]
        at = [place + (-ASIDE, ASIDE)[look] for place in range(len(rows))]
        mean, half = zip(*cells, strict=True)
        parts.dots(axes, at, mean, look, name, yerr=half, fmt=how["marker"])
        values += mean
    if min(values) > 0 and max(values) > MOST_LINEAR * min(values):
        axes.set_yscale("log")
        parts.plain_log(axes.yaxis)
    else:
        axes.set_ylim(bottom=0)


def causes(scenarios: Sequence[ValidatedScenario]) -> list[tuple[str, list[str]]]:
    """Return the causes of differences in groups: a heading, and a paragraph for each cause."""
    facts = _facts(scenarios)
    groups = [
        ("Differences between the simulated sender and the kernel's:", "senders"),
        ("Other differences, which no setting removes:", "the rest"),
    ]
    groups_of_causes = [
        (title, templates.paragraphs("validate_causes.txt.j2", part=part, **facts))
        for title, part in groups
    ]
    return [(title, paragraphs) for title, paragraphs in groups_of_causes if paragraphs]


def _facts(scenarios: Sequence[ValidatedScenario]) -> dict[str, Any]:
    """Return the values of the template of causes; a list is empty if its cause does not apply.

    "tails" has the queue's standard deviations under the baseline, where they are smaller with
    real flows; "low" the laws whose queue settles below the target on both sides; "laws" the causes
    that laws declare. "short" is True with short transfers, "fluid" with the fluid model, and
    "real" with an engine in real time. "less_goodput" is the deficit of real goodput on full links
    in %, or None.
    """
    # Causes that concern senders apply to simulated packets compared with the kernel's.
    every, ours = scenarios, [scenario for scenario in scenarios if _is_kernel_reference(scenario)]
    senders = sorted(_senders(ours))
    reference = registries.baseline()
    rows = [(scenario, row) for scenario in ours for row in scenario.rows]
    return {
        "kernel_like": [name for name in senders if name.startswith(KERNEL_LIKE)],
        "others": [name for name in senders if not name.startswith(KERNEL_LIKE)],
        "short": any(SHORT.name in scenario.metrics for scenario in ours),
        "baseline": reference["short_title"],
        "tails": [
            f"{row.tested.mean(STD):.1f} packets simulated, {row.reference.mean(STD):.1f} real"
            for scenario, row in rows
            if row.info and row.info.kind == reference["name"] and _swings_less(scenario, row)
        ],
        "low": [text for scenario, row in rows if (text := _below_set_point(scenario, row))],
        "laws": _of_laws([row for _, row in rows]),
        "less_goodput": _less_goodput([row for _, row in rows]),
        "fluid": any("fluid" in scenario.engines for scenario in every),
        "real": any(scenario.in_real_time for scenario in every),
        "void": sum(row.void for scenario in every for row in scenario.rows),
    }


def _is_kernel_reference(scenario: ValidatedScenario) -> bool:
    return scenario.engines[0] == "packets" and scenario.engines[1] in KERNELS


def _senders(scenarios: Sequence[ValidatedScenario]) -> set[str]:
    """Return the simulated senders."""
    return {
        t.tcp for scenario in scenarios for point in scenario.points for t in point.traffic if t.tcp
    }


def _swings_less(scenario: ValidatedScenario, row: Row) -> bool:
    """Return True if the queue varies less with real flows than with those of another sender."""
    simulated, real = row.tested.mean(STD), row.reference.mean(STD)
    kernel_like = any(name.startswith(KERNEL_LIKE) for name in _senders([scenario]))
    return not kernel_like and not row.agrees and real < simulated


def _below_set_point(scenario: ValidatedScenario, row: Row) -> str:
    """Return a text on an integrating law that settles below its target; empty for others."""
    if not row.info or not row.info.kind or not row.info.integrates:
        return ""
    cut = _without_signal(scenario, row.tested), _without_signal(scenario, row.reference)
    queues = [side.mean("queue_mean_pkts") for side in row.sides]
    if not row.info.target_pkts or max(queues) >= row.info.target_pkts or min(cut) <= 0:
        return ""
    return (
        f"{scenario.title}: {row.name}: {queues[0]:.1f} packets simulated and {queues[1]:.1f} "
        f"real, probability zero for {100 * cut[0]:.1f} % and {100 * cut[1]:.1f} % of the time"
    )


def _of_laws(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return title and text of the causes that laws declare, for the laws that differ."""
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
    """Return the median deficit of real goodput on full links in %; None if it is negligible."""
    shares = [
        _per_capacity(row.reference) / _per_capacity(row.tested)
        for row in rows
        if min(side.mean("utilisation") for side in row.sides) > FULL
    ]
    less = 1 - statistics.median(shares) if shares else 0.0
    return 100 * less if less > LEAST_SHARE else None


def _per_capacity(side: Side) -> float:
    return side.mean("goodput_bps") / side.mean("utilisation")


def _without_signal(scenario: ValidatedScenario, side: Side) -> float:
    """Return the share of samples in the measurement window with a probability of zero."""
    start_s, end_s = scenario.points[0].measure_s
    shares = []
    for observed in side.observed:
        time_s = observed.samples["time_s"]
        p = observed.samples["p"][(time_s > start_s) & (time_s <= end_s)]
        shares.append(float(np.mean(p <= 0)))
    return statistics.mean(shares)
