"""`forebay suite`: every scenario of RFC 7928 under every law.

What it needs is loaded inside it, so that other commands stay quick.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, repeating, stopped
from forebay.cli.options import (
    Engine,
    Laws,
    ReportOptions,
    RunOptions,
    ScenarioKeys,
    Seeds,
    print_table,
)

if TYPE_CHECKING:
    from forebay.campaign.suite import Suite

#: First those that a narrow terminal shows; the page has all.
SHOWN = ["goodput_bps", "delay_mean_s", "flow_completion_p95_s", "jain", "delay_p95_s", "drop_rate"]


@with_options
def suite(
    name: str,
    /,
    *,
    law: Laws = None,
    scenario: list[str] | None = None,
    link: str | None = None,
    set_: ScenarioKeys = None,
    seeds: Seeds = None,
    engine: Engine = "packets",
    output: ReportOptions,
    page: Path | None = None,
    making: RunOptions,
) -> None:
    """Run every scenario of RFC 7928 under every law, and compare the laws.

    name SUITE: A suite, such as rfc7928.
    law: Run this law instead of the suite's: its kind, all, or FILE.py:CLASS for a prototype in
        Python.
    scenario NAME: Run this scenario alone, such as 5-1-friendly.
    link RATE,DELAY: Another link: its rate and its delay, one way, such as 50Mbit/s,20ms. Rates of
        the traffic and buffers follow.
    out: Where the report goes; results/SUITE by default.
    as_json: Print one JSON object per law and scenario; files are written only with --out.
    page FILE: Write the comparison as Markdown, too.
    """
    from forebay._base import progress, publication
    from forebay._base.publication import publish_file
    from forebay.campaign import suite as suites
    from forebay.report import result_files

    wanted = suites.planned(name, law, scenario, link, seeds, set_ or (), engine)
    command = repeating(
        "suite", name, law=law, scenario=scenario, link=link, set=set_, seeds=seeds,
        engine=None if engine == "packets" else engine, page=page,
    )  # fmt: skip
    call = Invocation.begun(output, wanted.settings.name, command, digest=wanted.digest)
    out = call.folder
    if page is not None:
        publication.check_file(page, "page")
    with progress.bar() as watch:
        found = wanted.run(making.threads, watch, call.store(making))

    for fault in found.faults:
        print(fault, file=sys.stderr)
    if call.as_json:
        for line in found.lines():
            print(json.dumps(line))
    if found.cases and (out is not None or page is not None):
        from forebay.campaign import suite_page as pages

        about = pages.About(wanted.settings, wanted.link, command, call.digest)
        if out is not None:
            pages.write_numbers(found, about, out)
        with call.drawing(
            f"{out / result_files.NUMBERS} has the numbers" if out else "nothing is left"
        ):
            if not call.as_json:
                _show(found)
            if out is not None:
                with progress.bar(what="figures") as watch:
                    where = pages.write(found, about, out, watch)
                call.tell("Report", where)
                call.show(where)
        if page is not None:
            publish_file(page, pages.markdown(found, about))
    if found.partial:
        raise stopped(
            found.made,
            found.wanted,
            interrupted=found.interrupted,
            reported=bool(found.cases),
            by_input=found.of_law,
        )


def _show(found: Suite) -> None:
    from forebay._base.terminal_table import Column
    from forebay.campaign import suite_page as pages

    if found.whole():
        table = pages.comparison(found, SHOWN)
        columns = [Column("law", left=True), *map(Column.from_heading, table.heads[1:])]
        cases = f"{len(found.whole())} case{'s' if len(found.whole()) > 1 else ''}"
        print_table(columns, table.rows).print(
            f"means over {cases} ± half the 95 % confidence interval"
            if len(found.seeds) > 1
            else f"means over {cases}; one seed: no interval",
            style="dim",
        )
    print(f"{found.made} runs in {found.elapsed_s:.0f} s")
