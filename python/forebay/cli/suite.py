"""`forebay suite`: the benchmark of RFC 7928 for every law.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import (
    Invocation,
    print_errors,
    print_json,
    repeating,
    stopped,
)

if TYPE_CHECKING:
    from forebay.campaign.suite import Suite

#: Metrics of the table, the most important first; a narrow terminal shows the first of them.
SHOWN = ["goodput_bps", "delay_mean_s", "flow_completion_p95_s", "jain", "delay_p95_s", "drop_rate"]


@with_options
def suite(
    name: str,
    /,
    *,
    law: options.Laws = None,
    scenario: list[str] | None = None,
    link: str | None = None,
    set_: options.ScenarioKeys = None,
    seeds: options.Seeds = None,
    engine: options.Engine = "packets",
    output: options.ReportOptions,
    page: Path | None = None,
    making: options.RunOptions,
) -> None:
    """Compare laws in the benchmark of RFC 7928.

    Every scenario of the suite runs under every law.

    Parameters
    ----------
    name : SUITE
        Name of the suite, such as rfc7928.
    law : LAW
        Run this law instead of the suite's: its kind, all, or FILE.py:CLASS for a law written in
        Python.
    scenario : NAME
        Run only this scenario, such as 5-1-friendly.
    link : RATE,DELAY
        Rate and one-way delay of the link, such as 50Mbit/s,20ms; buffers and traffic rates are
        scaled with it.
    out : DIR
        Folder of the report; results/SUITE without it.
    as_json
        Print one JSON object per law and scenario; write no files unless --out is given.
    page : FILE
        Also write the comparison as Markdown.
    """
    from forebay._base import progress
    from forebay.campaign import suite as suites

    plan = suites.planned(name, law, scenario, link, seeds, set_ or (), engine)
    command = repeating(
        "suite", name, law=law, scenario=scenario, link=link, set=set_, seeds=seeds,
        engine=None if engine == "packets" else engine, page=page,
    )  # fmt: skip
    call = Invocation.begun(output, plan.settings.name, command, page=page, digest=plan.digest)
    with progress.bar() as watch:
        results = plan.run(making.threads, watch, call.store(making))
    print_errors(results.faults)
    if call.as_json:
        for line in results.lines():
            print_json(line)
    if results.cases and (call.folder is not None or page is not None):
        _report(results, call)
    if results.partial:
        raise stopped(
            results.finished, results.total, interrupted=results.interrupted,
            reported=bool(results.cases), by_input=results.of_law,
        )  # fmt: skip


def _report(results: Suite, call: Invocation) -> None:
    """Write the numbers, print the comparison, and write the pages."""
    from forebay._base import progress
    from forebay.campaign import suite_page as pages
    from forebay.report import result_files

    out = call.folder
    if out is not None:
        pages.write_numbers(results, out, call.command, call.digest)
    with call.drawing(
        f"the numbers are in {out / result_files.NUMBERS}" if out else "no file was written"
    ):
        if not call.as_json:
            _show(results)
        if out is not None:
            with progress.bar(unit="figures") as watch:
                where = pages.write(results, out, call.command, watch)
            call.tell("Report", where)
            call.show(where)
    call.publish_page(lambda: pages.markdown(results, call.command))


def _show(results: Suite) -> None:
    """Print the comparison of the laws, if every case was run."""
    from forebay._base.terminal_table import Column
    from forebay.campaign import suite_page as pages

    if count := len(results.whole()):
        table = pages.comparison(results, SHOWN)
        columns = [Column("law", left=True), *map(Column.from_heading, table.heads[1:])]
        interval = " ± half of the 95 % confidence interval"
        note = interval if len(results.seeds) > 1 else "; no interval, because there is one seed"
        options.print_table(columns, table.rows).print(
            f"mean over {count} case{'s' if count > 1 else ''}{note}", style="dim"
        )
    print(f"{results.finished} runs in {results.elapsed_s:.0f} s")
