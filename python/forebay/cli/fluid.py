"""`forebay fluid`: a scenario in the fluid model, alone or beside the packets.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, result_name
from forebay.cli.options import Laws, OutputOptions, ScenarioFile, ScenarioKeys, print_table

if TYPE_CHECKING:
    from forebay._native import FluidTrace

Row = dict[str, str | float | None]

#: What is too long for a table of 80 columns.
HEADS = {
    "queue_mean_pkts": "queue_pkts",
    "probability": "p",
    "in_flight_pkts": "flight_pkts",
}

DIGITS = {"queue_mean_pkts": 1, "probability": 5, "window_pkts": 2, "in_flight_pkts": 2}


@with_options
def fluid(
    file: ScenarioFile,
    /,
    *,
    law: Laws = None,
    set_: ScenarioKeys = None,
    sawtooth: bool = False,
    compare: bool = False,
    seeds: int | None = None,
    step_at: float | None = None,
    output: OutputOptions,
) -> None:
    """Run a scenario's laws in the fluid model of TCP, and draw queue, window and probability.

    law: Take this law instead of the file's: its kind or label.
    sawtooth: Describe windows more closely than the published equations.
    compare: Run the packets too, and lay both fluids beside them.
    seeds N: With --compare: packet runs per law and point.
    step_at SECONDS: With --compare: measure the response to the step at this time, in s.
    out: Where the figures go; results/NAME-fluid for a scenario NAME.toml.
    as_json: Print one JSON object per line of the table; figures only with --out.
    """
    from forebay.base.publication import publish
    from forebay.fluid import api
    from forebay.runs import descriptions, experiment

    for key, value in [("--seeds", seeds), ("--step-at", step_at)]:
        if value is not None and not compare:
            raise ScenarioError(f"{key}: found {value:g} without --compare, allowed: beside it")
    call = Invocation.begun(output, f"{result_name(file)}-fluid")
    # It is read several times.
    piped = str(file) == experiment.STDIN
    source: experiment.Source = experiment.text_of(file)[1].decode() if piped else file
    rows: list[Row]
    if compare:
        from forebay.fluid import packets  # draws, which takes a while to load

        comparisons = packets.compare(
            source, laws=law or (), sets=set_ or (), seeds=seeds, step_s=step_at
        )
        in_words = {one.point: one.title for one in comparisons}
        rows = [row for comparison in comparisons for row in comparison.rows()]
        ordered = sorted(comparisons, key=lambda comparison: comparison.law)
        figures = {
            name: packets.figure(list(group))
            for name, group in groupby(ordered, key=lambda comparison: comparison.law)
        }
    else:
        from forebay.fluid import picture

        traces = api.scenario(source, laws=law or (), sets=set_ or (), sawtooth=sawtooth)
        points = traces.plan.points
        in_words = {point.label: descriptions.point(point) for point in points}
        rows = [_row(trace) for trace in traces]
        by_law = sorted(traces, key=lambda trace: trace.law)
        figures = {
            name: picture.draw(list(group), traces.plan)
            for name, group in groupby(by_law, key=lambda t: t.law)
        }
    if call.folder is not None:
        drawn = [figure.files(name) for name, figure in figures.items()]
        publish(call.folder, {name: data for files in drawn for name, data in files.items()})
    if call.as_json:
        for row in rows:
            print(json.dumps(row))
        return
    _print([row | {"point": in_words[str(row["point"])]} for row in rows])
    print(f"Figures: {call.folder}")


def _row(trace: FluidTrace) -> Row:
    """Means over the second half."""
    half = slice(len(trace.time_s) // 2, None)
    return {
        "law": trace.law,
        "point": trace.point,
        "queue_mean_pkts": float(trace.queue_pkts[0, half].mean()),
        "probability": float(trace.probability[0, half].mean()),
        "window_pkts": float(trace.window_pkts[0, half].mean()),
    }


def _print(rows: list[Row]) -> None:
    from forebay.base.terminal_table import Column

    names = [key for key in rows[0] if any(row[key] != "" for row in rows)]
    keys = [name for name in names if name in ("law", "point", "by")]
    columns = [Column(HEADS.get(name, name), left=name in keys) for name in names]
    cells = [[_text(name, row[name]) for name in names] for row in rows]
    print_table(columns, cells, keys=len(keys))


def _text(column: str, value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.{DIGITS.get(column, 2)}f}"
