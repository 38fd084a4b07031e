"""`forebay fluid`: a scenario in the fluid model, alone or compared with packets.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import quantities
from forebay._base.metrics import TRAFFIC_METRICS
from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, print_errors, print_json, result_name, stopped_runs

if TYPE_CHECKING:
    from forebay.experiment.experiment import Experiment
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot

Row = dict[str, str | float | None]

#: Headings of the table; JSON has the names themselves.
HEADS = {
    "law": "Law",
    "point": "Point",
    "by": "Model",
    "queue_mean_pkts": "Queue [packets]",
    "probability": "Probability",
    "window_pkts": "Window [packets]",
    "in_flight_pkts": "In flight [packets]",
    "half_s": "Half way [s]",
    "period_s": "Period [s]",
    "damping": "Damping",
}

MEANS = (
    "Means over the second half of the run. The probability is that of a signal (mark or drop) for "
    "a packet; the window is that of the first class of flows."
)
MEANS_COMPARED = (
    "Means over the measurement window. The probability is that of a signal (mark or drop) for a "
    "packet; packets in flight are those of one flow."
)
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
    """Run a scenario in the fluid model of TCP.

    It draws queue, window and probability over time. `forebay run --engine fluid` has every metric
    and a report.

    Parameters
    ----------
    law : LAW
        Run this law instead of the scenario's: its kind or label.
    sawtooth
        Model sawtooth windows, which is closer to packets than the published equations.
    compare
        Also run packets, and compare both fluid models with them.
    seeds : N
        Number of packet runs of each law at each point, with --compare.
    step_at : SECONDS
        Measure the response to the change at this time, with --compare.
    out : DIR
        Folder of the figures; results/NAME-fluid for a scenario NAME.toml without it.
    as_json
        Print one JSON object per row of the table; write no figures unless --out is given.
    """
    from forebay.experiment.result import Result

    for key, value in [("--seeds", seeds), ("--step-at", step_at)]:
        if value is not None and not compare:
            raise ScenarioError(f"{key} requires --compare")
    if compare:
        experiments = _with_packets(file, law, set_, seeds, step_at)
    else:
        experiments = [_fluid_alone(file, law, set_, sawtooth=sawtooth)]
    print_errors(experiments[0].designed)
    call = Invocation.begun(output, f"{result_name(file)}-fluid")
    executions = call.executed(experiments, making)
    results = list(map(Result, experiments, executions))
    whole = len(results) == len(experiments) and not any(result.partial for result in results)
    # A comparison needs all runs; the runs of one fluid model are shown as far as they go.
    if results[0].runs and (whole or not compare):
        _report(results, call, step_at)
    if not whole:
        reported = not compare and bool(results[0].runs)
        raise stopped_runs(experiments, executions, reported=reported)


def _with_packets(
    file: Path,
    law: options.Laws,
    set_: options.ScenarioKeys,
    seeds: int | None,
    step_s: float | None,
) -> list[Experiment]:
    """Return the scenario in packets and in both fluid models."""
    from forebay.experiment import experiment
    from forebay.fluid import packets

    # Standard input can be read only once, and the scenario is needed several times.
    piped = str(file) == experiment.STDIN
    source: experiment.Source = experiment.text_of(file)[1].decode() if piped else file
    experiments = packets.experiments(source, law or (), set_ or (), seeds)
    packets.check_step(experiments[0], step_s)
    return experiments


def _fluid_alone(
    file: Path, law: options.Laws, set_: options.ScenarioKeys, *, sawtooth: bool
) -> Experiment:
    """Return the scenario in one fluid model."""
    from forebay.experiment import experiment
    from forebay.fluid import traces
    from forebay.fluid.engine import Fluid

    overrides = traces.with_windows(set_ or ())
    return experiment.read(file, laws=law, overrides=overrides, seeds=1, engine=Fluid(sawtooth))


def _report(results: list[Result], call: Invocation, step_s: float | None) -> None:
    """Draw the figures, and print the table and its warnings."""
    from forebay.experiment import descriptions
    from forebay.fluid import packets
    from forebay.report import tables
    from forebay.report.designs import print_item

    rows, figures = _compared(results, step_s) if len(results) > 1 else _alone(results[0])
    if call.folder is not None:
        files = [figure.files(name) for name, figure in figures.items()]
        call.publish({name: data for named in files for name, data in named.items()})
    if call.as_json:
        by = dict(zip(packets.NAMES, results, strict=False))
        for row in rows:
            traffic = _traffic(by.get(str(row.get("by")), results[0]), row)
            print_json(row | ({"traffic": traffic} if traffic else {}))
        return
    in_words = {point.label: descriptions.point(point) for point in results[0].plan.points}
    _print([row | {"point": in_words[str(row["point"])]} for row in rows])
    print_item(options.console(), MEANS if len(results) == 1 else MEANS_COMPARED)
    for name, result in zip(packets.LEGEND, results, strict=False):
        title = f"Results by traffic: {name}" if len(results) > 1 else "Results by traffic"
        tables.show_traffic(options.console(), result, title)
    tables.warnings(options.console(), descriptions.warnings(results[0]))
    print(f"Figures: {call.folder}")


def _compared(results: list[Result], step_s: float | None) -> tuple[list[Row], dict[str, Plot]]:
    """Return the rows of fluids and packets, and a figure for each law."""
    from forebay.fluid import packets

    comparisons = packets.comparisons(results, step_s)
    rows = [row for comparison in comparisons for row in comparison.rows()]
    ordered = sorted(comparisons, key=lambda comparison: comparison.law)
    groups = groupby(ordered, key=lambda comparison: comparison.law)
    return rows, {name: packets.figure(list(group)) for name, group in groups}


def _alone(result: Result) -> tuple[list[Row], dict[str, Plot]]:
    """Return the rows of one fluid, and a figure for each law."""
    from forebay.fluid.traces import Traces

    traces = Traces(result)
    laws = sorted({trace.law for trace in traces})
    return traces.rows(), {law: traces.plot(law=law) for law in laws}


def _traffic(result: Result, row: Row) -> dict[str, dict[str, float | None]]:
    """Return the metrics of each traffic in a row of the table, by the traffic's label.

    They are means over the seeds; the table is empty where the bottleneck has a single traffic.
    """
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
    columns = [
        replace(heading, align_left=name in keys)
        for name, heading in zip(names, headings, strict=True)
    ]
    cells = [[_text(name, row[name]) for name in names] for row in rows]
    options.print_table(columns, cells, keys=len(keys))


def _text(column: str, value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.{DIGITS.get(column, 2)}f}"
