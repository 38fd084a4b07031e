"""`forebay validate`: is the simulator right? The same scenario with real flows, beside it."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay.validate import Comparison

#: Exit status where real flows cannot run.
FAILED = 1


def validate(
    file: Annotated[
        list[Path], typer.Argument(help="Scenarios in TOML, with ftp traffic.", metavar="FILE…")
    ],
    law: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this law instead of the file's. May be given several times.", metavar="LAW"
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a key of the scenario, such as traffic.0.flows=30. May be given several "
            "times.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Simulate with seeds 1 to N.", metavar="N", show_default=False),
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Real runs of each law, in real time.", min=1, metavar="N")
    ] = 3,
    attempts: Annotated[
        int, typer.Option(help="Runs at most for one that is not void.", min=1, metavar="N")
    ] = 3,
    links: Annotated[
        int, typer.Option(help="Real runs at a time, each on a link of its own.", min=1)
    ] = 1,
    void_lateness: Annotated[
        str,
        typer.Option(help="A run is void if one packet in 1000 is released later.", metavar="TIME"),
    ] = "1ms",
    void_rate: Annotated[
        str, typer.Option(help="A run is void if the rate is off by more.", metavar="SHARE")
    ] = "0.1%",
    page: Annotated[
        Path | None, typer.Option(help="Write the comparison as Markdown.", metavar="FILE")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per law instead of tables.")
    ] = False,
) -> None:
    """Run a scenario simulated and with real flows on a link, and lay both side by side."""
    from forebay import experiment, progress, validate
    from forebay.emulator import LinkError
    from forebay.result import Result

    read = [experiment.read(one, laws=law, sets=set_ or (), seeds=seeds) for one in file]
    plans = [validate.link_plans(one) for one in read]
    # Whatever is wrong with any of them is said before the time is spent.
    for plan in (plan for of_file in plans for plan in of_file):
        plan.settings(1, void_lateness, void_rate).check()
    if page is not None and not page.absolute().parent.is_dir():
        raise ScenarioError(f"--page: found {page}, allowed: a file in a directory that exists")
    if shutil.which("iperf3") is None:
        print("forebay validate: iperf3 is not here: apt-get install iperf3", file=sys.stderr)
        raise typer.Exit(FAILED)
    found = []
    for one, of_file in zip(read, plans, strict=True):
        execution = experiment.execute(one, samples=False)
        if execution.interrupted:
            raise KeyboardInterrupt
        if execution.faults:
            print(experiment.fault_in_words(one.plan, execution.faults[0]), file=sys.stderr)
            raise typer.Exit(FAILED)
        try:
            with progress.bar(what="real runs") as watch:
                real = validate.run(
                    of_file,
                    repeats,
                    attempts=attempts,
                    links=links,
                    void_lateness=void_lateness,
                    void_rate=void_rate,
                    watch=watch,
                )
        except (LinkError, validate.FlowError, subprocess.TimeoutExpired) as error:
            print(f"forebay validate: {error}", file=sys.stderr)
            raise typer.Exit(FAILED) from None
        found.append(validate.compare(Result(one, execution), real))
    if page is not None:
        from forebay.validate.page import markdown

        words = ["forebay", "validate", *map(str, file)]
        for option, values in [("--law", law), ("--set", set_)]:
            words += [word for value in values or () for word in (option, value)]
        for option, value in [("--seeds", seeds), ("--repeats", repeats), ("--attempts", attempts)]:
            words += [option, str(value)] if value is not None else []
        words += ["--links", str(links), "--page", str(page)]
        text = markdown(found, shlex.join(words), void_lateness, void_rate)
        page.write_text(text, encoding="utf-8")
    for comparison in found:
        _print(comparison, as_json)
    if page is not None and not as_json:
        print(f"Page: {page}")


def _print(comparison: Comparison, as_json: bool) -> None:
    from forebay.files import finite

    if as_json:
        for row in comparison.rows:
            sides = {"simulated": row.simulated, "real": row.real}
            line = {
                "scenario": comparison.path,
                "point": row.point,
                "law": row.law,
                "agrees": row.agrees,
                "repeats": row.repeats,
                "void": row.void,
                **{
                    name: [finite(metrics) for metrics in side.metrics]
                    for name, side in sides.items()
                },
            }
            print(json.dumps(line))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from forebay.metrics import METRICS

    shown = [name for name in comparison.metrics if name != "delay_p99_s"]
    table = Table(box=box.SIMPLE_HEAD, title=comparison.title, title_justify="left")
    table.add_column("law")
    table.add_column("")
    for name in shown:
        table.add_column(METRICS[name].heading, justify="right")
    table.add_column("verdict")
    for row in comparison.rows:
        name = f"{row.law}, {row.point}" if row.point else row.law
        table.add_row(name, "simulated", *(row.simulated.text(metric) for metric in shown), "")
        verdict = row.verdict() + (" (VOID)" if row.counts_void else "")
        table.add_row("", "real", *(row.real.text(metric) for metric in shown), verdict)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    for row in comparison.rows:
        if row.void:
            reasons = "; ".join(row.reasons)
            print(f"forebay validate: {row.law}: {row.void} of {row.repeats} VOID: {reasons}")
