"""`forebay validate`: is the simulator right? The same scenario with real flows, beside it."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli import options
from forebay.cli.options import FAILED, Force, OpenPage, ScenarioKeys, Style, console
from forebay.run import signals

if TYPE_CHECKING:
    from forebay.validate.comparison import Comparison


def validate(
    file: Annotated[
        list[Path],
        typer.Argument(help="Scenarios in TOML, with ftp, mice or web traffic.", metavar="FILE…"),
    ],
    law: Annotated[
        list[str] | None, options.laws("Only this law instead of the file's.", "LAW")
    ] = None,
    set_: ScenarioKeys = None,
    seeds: Annotated[
        int | None,
        typer.Option(help="Simulate with seeds 1 to N.", metavar="N", show_default=False),
    ] = None,
    repeats: Annotated[
        int, typer.Option(help="Real runs of each law, in real time.", min=1, metavar="N")
    ] = 3,
    attempts_: Annotated[
        int,
        typer.Option(
            "--attempts", help="Runs at most for one that is not void.", min=1, metavar="N"
        ),
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the comparison as HTML with its figures, and all runs as JSON and Parquet.",
            metavar="DIR",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per law instead of tables.")
    ] = False,
    force: Force = False,
    style: Style = "screen",
    open_: OpenPage = False,
) -> None:
    """Run a scenario simulated and with real flows on a link, and lay both side by side.

    Ctrl-C keeps what has finished.
    """
    from forebay.report import place
    from forebay.report import style as styles
    from forebay.report.result import Result
    from forebay.run import experiment, progress
    from forebay.validate import comparison, mapping, real

    styles.use(style)
    command = shlex.join(["forebay", *sys.argv[1:]])
    read = [experiment.read(one, laws=law, sets=set_ or (), seeds=seeds) for one in file]
    plans = [mapping.link_plans(one) for one in read]
    # All files are checked before the first run takes its time.
    for plan in (plan for of_file in plans for plan in of_file):
        plan.settings(1, void_lateness, void_rate)
    if page is not None:
        place.check_file(page, "--page")
    if out is not None:
        place.check(out)
        place.claim(out, command, force=force)
    if any(plan.flows for of_file in plans for plan in of_file) and shutil.which("iperf3") is None:
        print("forebay validate: iperf3 is not here: apt-get install iperf3", file=sys.stderr)
        raise typer.Exit(FAILED)
    found: list[Comparison] = []
    done, wanted = 0, repeats * sum(map(len, plans))
    interrupted, failure = False, ""
    for one, of_file in zip(read, plans, strict=True):
        execution = experiment.execute(one)
        if execution.interrupted:
            interrupted = True
            break
        if execution.faults:
            failure = experiment.fault_in_words(one.plan, execution.faults[0])
            break
        with progress.bar(what="real runs") as watch:
            attempts = real.run(
                of_file,
                repeats,
                attempts=attempts_,
                links=links,
                void_lateness=void_lateness,
                void_rate=void_rate,
                watch=watch,
            )
        done += len(attempts.finished)
        if attempts.finished:
            found.append(comparison.compare(Result(one, execution), attempts))
        interrupted, failure = attempts.interrupted, attempts.failure
        if interrupted or failure:
            break
    if found:
        if page is not None or out is not None:
            from forebay.validate import page as pages

            # First what has the runs.
            if out is not None:
                try:
                    with progress.status("writing the report"):
                        pages.write(found, out, command, void_lateness, void_rate)
                except KeyboardInterrupt:
                    print(f"interrupted while drawing: {out} has the numbers", file=sys.stderr)
                    raise typer.Exit(signals.status()) from None
            if page is not None:
                text = pages.markdown(found, command, void_lateness, void_rate)
                page.write_text(text, encoding="utf-8")
        for one_found in found:
            _print(one_found, as_json)
        if not as_json:
            for name, where in [("Page", page), ("Report", out and out / "report.html")]:
                if where is not None:
                    print(f"{name}: {where}")
        if open_ and out is not None:
            options.open_page(out / "report.html")
    if interrupted or failure:
        if failure:
            print(f"forebay validate: {failure}", file=sys.stderr)
        print(
            f"{'interrupted' if interrupted else 'stopped'}: {done} of {wanted} real "
            f"run{'' if wanted == 1 else 's'} had finished{' and are reported' if found else ''}",
            file=sys.stderr,
        )
        raise typer.Exit(signals.status() if interrupted else FAILED)


def _print(found: Comparison, as_json: bool) -> None:
    from forebay.report.files import finite

    if as_json:
        for row in found.rows:
            sides = {"simulated": row.simulated, "real": row.real}
            runs = {
                name: [finite(metrics) for metrics in side.metrics] for name, side in sides.items()
            }
            print(json.dumps({"scenario": found.path, **row.as_json(), **runs}))
        return
    from forebay.report import screen
    from forebay.report.screen import Column, Group
    from forebay.validate.comparison import METRICS

    shown = [name for name in found.metrics if name not in ("delay_p99_s", "utilisation")]
    columns = [
        Column("law", left=True),
        Column("", left=True),
        Column("verdict", sentence=True),
        *(Column(METRICS[name].title, METRICS[name].unit) for name in shown),
    ]
    rows = []
    for row in found.rows:
        verdict = row.verdict + (" (VOID)" if row.counts_void else "")
        rows += [
            [row.name, "simulated", "", *(row.simulated.text(name) for name in shown)],
            ["", "real", "", *(row.real.text(name) for name in shown)],
            ["", "difference", verdict, *(row.difference_text(name) for name in shown)],
        ]
    terminal = console(160)
    screen.show(terminal, columns, [Group(rows, found.title)], keys=2)
    terminal.print(f"{found.count()}.")
    for row in found.rows:
        if row.void:
            reasons = "; ".join(row.reasons)
            print(f"forebay validate: {row.law}: {row.void} of {row.repeats} VOID: {reasons}")
