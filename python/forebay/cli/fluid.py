"""`forebay fluid`: a scenario in the fluid model, alone or beside the packets.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.options import ScenarioFile, ScenarioKeys, Style, console, settings

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


def fluid(
    file: ScenarioFile,
    law: Annotated[
        list[str] | None, options.laws("Take this law instead of the file's: its kind or label.")
    ] = None,
    set_: ScenarioKeys = None,
    sawtooth: Annotated[
        bool,
        typer.Option(
            "--sawtooth", help="Describe windows more closely than the published equations."
        ),
    ] = False,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Run the packets too, and lay both fluids beside them."),
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="With --compare: packet runs per law and point.", metavar="N", show_default=False
        ),
    ] = None,
    step_at: Annotated[
        float | None,
        typer.Option(
            help="With --compare: measure the response to the step at this time, in s.",
            metavar="SECONDS",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the figures go; results/NAME-fluid for a scenario NAME.toml.",
            metavar="DIR",
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object per line of the table; figures only with --out."
        ),
    ] = False,
    style: Style = "screen",
) -> None:
    """Run a scenario's laws in the fluid model of TCP, and draw queue, window and probability."""
    from forebay.fluid import api
    from forebay.report import place, words
    from forebay.report import style as styles
    from forebay.run import experiment, named

    for key, value in [("--seeds", seeds), ("--step-at", step_at)]:
        if value is not None and not compare:
            raise ScenarioError(f"{key}: found {value:g} without --compare, allowed: beside it")
    styles.use(style)
    if out is None and not as_json:
        out = Path("results") / ("stdin-fluid" if str(file) == "-" else f"{named.stem(file)}-fluid")
    if out is not None:
        place.check(out)
    sets = list(settings(set_).items())
    # It is read several times.
    piped = str(file) == experiment.STDIN
    source: experiment.Source = experiment.text_of(file)[1].decode() if piped else file
    plan = experiment.read(source, laws=law or (), sets=set_ or ()).plan
    rows: list[Row]
    if compare:
        from forebay.fluid import packets  # draws, which takes a while to load

        comparisons = packets.compare(
            source, laws=law or (), sets=sets, seeds=seeds, step_s=step_at
        )
        rows = [row for comparison in comparisons for row in comparison.rows()]
        ordered = sorted(comparisons, key=lambda comparison: comparison.law)
        figures = {
            name: packets.figure(list(group))
            for name, group in groupby(ordered, key=lambda comparison: comparison.law)
        }
    else:
        from forebay.fluid import picture

        traces = api.scenario(source, laws=law or (), sets=sets, sawtooth=sawtooth)
        rows = [_row(trace) for trace in traces]
        by_law = sorted(traces, key=lambda trace: trace.law)
        figures = {
            name: picture.draw(list(group), plan)
            for name, group in groupby(by_law, key=lambda t: t.law)
        }
    if out is not None:
        drawn = [figure.files(name) for name, figure in figures.items()]
        out.mkdir(parents=True, exist_ok=True)
        for files in drawn:
            for name, contents in files.items():
                (out / name).write_bytes(contents)
    if as_json:
        for row in rows:
            print(json.dumps(row))
        return
    in_words = {point.label: words.point(point) for point in plan.points}
    _print([row | {"point": in_words[str(row["point"])]} for row in rows])
    print(f"Figures: {out}")


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
    from forebay.report import screen
    from forebay.report.screen import Column, Group

    names = [key for key in rows[0] if any(row[key] != "" for row in rows)]
    keys = [name for name in names if name in ("law", "point", "by")]
    columns = [Column(HEADS.get(name, name), left=name in keys) for name in names]
    cells = [[_text(name, row[name]) for name in names] for row in rows]
    screen.show(console(), columns, [Group(cells)], keys=len(keys))


def _text(column: str, value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.{DIGITS.get(column, 2)}f}"
