"""`forebay fluid`: a scenario in the fluid model, alone or beside the packets.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import (
    Invocation,
    print_errors,
    print_json,
    result_name,
    stopped,
)

if TYPE_CHECKING:
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot

Row = dict[str, str | float | None]

#: Headings of the table; JSON has the names themselves.
HEADS = {
    "law": "Law",
    "point": "Point",
    "by": "By",
    "queue_mean_pkts": "Queue [packets]",
    "probability": "Signals [p]",
    "window_pkts": "Window [packets]",
    "in_flight_pkts": "In flight [packets]",
    "half_s": "Half way [s]",
    "period_s": "Period [s]",
    "damping": "Damping",
}

MEANS = "means over the second half; the window is of the first class of flows"
DIGITS = {"queue_mean_pkts": 1, "probability": 5, "window_pkts": 2, "in_flight_pkts": 2}


@with_options
def fluid(
    file: options.ScenarioFile,
    /,
    *,
    law: options.Laws = None,
    set_: options.ScenarioKeys = None,
    sawtooth: bool = False,
    compare: bool = False,
    seeds: int | None = None,
    step_at: float | None = None,
    output: options.OutputOptions,
    making: options.RunOptions,
) -> None:
    """Run a scenario's laws in the fluid model of TCP, and draw queue, window and probability.

    It is a view of `forebay run --engine fluid`, which has every metric and a report.

    law: Take this law instead of the file's: its kind or label.
    sawtooth: Describe windows more closely than the published equations.
    compare: Run the packets too, and lay both fluids beside them.
    seeds N: With --compare: packet runs per law and point.
    step_at SECONDS: With --compare: measure the response to the step at this time, in s.
    out: Where the figures go; results/NAME-fluid for a scenario NAME.toml.
    as_json: Print one JSON object per line of the table; figures only with --out.
    """
    from forebay.experiment import experiment
    from forebay.experiment.result import Result
    from forebay.fluid import packets, traces
    from forebay.fluid.engine import Fluid

    for key, value in [("--seeds", seeds), ("--step-at", step_at)]:
        if value is not None and not compare:
            raise ScenarioError(f"{key}: found {value:g} without --compare, allowed: beside it")
    # It is read several times.
    piped = str(file) == experiment.STDIN
    source: experiment.Source = experiment.text_of(file)[1].decode() if piped else file
    if compare:
        read = packets.experiments(source, law or (), set_ or (), seeds)
        packets.check_step(read[0], step_at)
    else:
        overrides = traces.with_windows(set_ or ())
        engine = Fluid(sawtooth)
        read = [experiment.read(source, laws=law, overrides=overrides, seeds=1, engine=engine)]
    print_errors(read[0].designed)
    call = Invocation.begun(output, f"{result_name(file)}-fluid")
    executed = call.executed(read, making)
    results = [Result(one, made) for one, made in zip(read, executed, strict=False)]
    whole = len(results) == len(read) and not any(result.partial for result in results)
    # A comparison is shown whole; one fluid alone as far as it is.
    if results[0].runs and (whole or not compare):
        _report(results, call, step_at)
    if not whole:
        raise stopped(
            sum(len(result.runs) for result in results),
            sum(one.runs for one in read),
            interrupted=any(one.interrupted for one in executed),
            reported=not compare and bool(results[0].runs),
            by_input=any(fault.of_law for one in executed for fault in one.faults),
        )


def _report(results: list[Result], call: Invocation, step_s: float | None) -> None:
    """Draw the figures, print the table, and what a reader must know of it."""
    from forebay.experiment import descriptions
    from forebay.fluid import packets
    from forebay.report import tables

    rows, figures = _compared(results, step_s) if len(results) > 1 else _alone(results[0])
    if call.folder is not None:
        files = [figure.files(name) for name, figure in figures.items()]
        call.publish({name: data for some in files for name, data in some.items()})
    if call.as_json:
        by = dict(zip(packets.NAMES, results, strict=False))
        for row in rows:
            traffic = _traffic(by.get(str(row.get("by")), results[0]), row)
            print_json(row | ({"traffic": traffic} if traffic else {}))
        return
    in_words = {point.label: descriptions.point(point) for point in results[0].plan.points}
    _print([row | {"point": in_words[str(row["point"])]} for row in rows])
    print("means over the time of measurement" if len(results) > 1 else MEANS)
    for name, result in zip(packets.LEGEND, results, strict=False):
        title = f"Who gets what: {name}" if len(results) > 1 else "Who gets what"
        tables.who_gets_what(options.console(), result, title)
    tables.warnings(options.console(), descriptions.warnings(results[0]))
    print(f"Figures: {call.folder}")


def _compared(results: list[Result], step_s: float | None) -> tuple[list[Row], dict[str, Plot]]:
    """Return the rows of fluids and packets, and a figure for each law."""
    from forebay.fluid import packets

    comparisons = packets.beside(results, step_s)
    rows = [row for comparison in comparisons for row in comparison.rows()]
    ordered = sorted(comparisons, key=lambda comparison: comparison.law)
    groups = groupby(ordered, key=lambda comparison: comparison.law)
    return rows, {name: packets.figure(list(group)) for name, group in groups}


def _alone(result: Result) -> tuple[list[Row], dict[str, Plot]]:
    """Return the rows of one fluid, and a figure for each law."""
    from forebay.fluid.traces import Traces

    traces = Traces(result)
    laws = sorted({trace.law for trace in traces})
    return traces.rows(), {law: traces.plot(law) for law in laws}


def _traffic(result: Result, row: Row) -> dict[str, dict[str, float | None]]:
    """Return what each traffic gets of the bottleneck in a row of the table, by their labels.

    Metrics are means over the seeds; nothing is returned where there is one traffic alone.
    """
    from forebay._base import quantities
    from forebay._base.metrics import TRAFFIC_METRICS

    labels = [point.label for point in result.plan.points]
    point, law = labels.index(str(row["point"])), result.plan.laws.index(str(row["law"]))
    cells = {
        traffic.label: {
            name: result.traffic_cell(point, law, traffic.label, name).mean
            for name in TRAFFIC_METRICS
        }
        for traffic in result.plan.points[point].traffic
        if result.traffic_cell(point, law, traffic.label, "share").seeds
    }
    return {label: quantities.finite(metrics) for label, metrics in cells.items()}


def _print(rows: list[Row]) -> None:
    from forebay._base.terminal_table import Column

    names = [key for key in rows[0] if any(row[key] != "" for row in rows)]
    keys = [name for name in names if name in ("law", "point", "by")]
    headings = [Column.from_heading(HEADS[name]) for name in names]
    columns = [replace(it, left=name in keys) for name, it in zip(names, headings, strict=True)]
    cells = [[_text(name, row[name]) for name in names] for row in rows]
    options.print_table(columns, cells, keys=len(keys))


def _text(column: str, value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.{DIGITS.get(column, 2)}f}"
