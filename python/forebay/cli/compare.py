"""`forebay compare` and `forebay validate`: two saved results, and several engines, compared.

Their dependencies are loaded inside the commands, so that other commands stay quick.
"""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import progress
from forebay._base.registries import title_of
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, command_line, print_json, stopped
from forebay.cli.main import print_error

if TYPE_CHECKING:
    from forebay.comparison.validate import ValidatedScenario

#: Metrics that only the report shows.
IN_REPORT = ("delay_p99_s", "utilisation")
#: Metrics that verdicts depend on, which a narrow terminal must show.
JUDGED = ("delay_mean_s", "drop_rate", "mark_rate")


@with_options
def compare(
    a: Path, b: Path, /, *, metric: options.Metrics = None, output: options.ReportOptions
) -> None:
    """Test the differences between two saved results.

    Laws and points are matched by their labels, runs by their seeds. The table is printed, and a
    page with all differences is written.

    Parameters
    ----------
    a : A
        Folder of a result of `forebay run` or `forebay study`, or a data file of flent, or a folder
        of them.
    b : B
        Another result.
    out : DIR
        Folder of the page and the numbers; results/compare-A-B without it.
    """
    from forebay._base.publication import digest_of
    from forebay.comparison import comparison_page as page
    from forebay.comparison.compare import compare as compared

    comparison = compared(a, b, metrics=options.metric_names(metric))
    default = f"compare-{a.resolve().name}-{b.resolve().name}"
    digest = digest_of([a.resolve(), b.resolve()])
    call = Invocation.begun(
        output, default, command_line(), digest=lambda: digest, numbers=page.NUMBERS
    )
    if call.as_json:
        print_json(comparison.to_dict())
    else:
        page.show(options.console(), comparison)
    if call.folder is not None:
        with call.drawing("no page was written"):
            written = page.write(comparison, call.folder, call.command, call.digest)
        call.tell("Page", written)
        call.show(written)


@dataclass(frozen=True, kw_only=True)
class RealTimeOptions:
    """The runs in real time, and when such a run is void.

    Attributes
    ----------
    repeats
        Number of real-time runs of each law.
    attempts
        Largest number of attempts at a real-time run that is not void.
    links
        Number of real-time runs in parallel, each on its own link.
    void_lateness : TIME
        A real-time run is void if more than one packet in 1000 is released later than this.
    void_rate : SHARE
        A real-time run is void if its rate is off by more than this share.
    """

    repeats: options.AtLeastOne = 3
    attempts: options.AtLeastOne = 3
    links: options.AtLeastOne = 1
    void_lateness: str = "1ms"
    void_rate: str = "0.1%"


@with_options
def validate(
    file: list[Path],
    /,
    *,
    overrides: options.ScenarioOptions,
    real: RealTimeOptions,
    engines: str = "packets,link",
    page: Path | None = None,
    output: options.ReportOptions,
) -> None:
    """Compare engines on one scenario, such as simulated and real.

    A law agrees if its mean delay and its share of dropped or marked packets do. Ctrl-C keeps the
    runs that have finished.

    Parameters
    ----------
    file : FILE...
        Scenarios in TOML; real flows can be ftp, mice, web or program traffic.
    law : LAW
        Run only this law instead of the scenario's.
    engines : A,B
        Engines to compare; the last is the reference (docs/explanation/engines.md).
    page : FILE
        Also write the comparison as Markdown.
    out : DIR
        Folder of the page with figures, and of all runs as JSON and Parquet.
    as_json
        Print one JSON object per law instead of tables.
    """
    from forebay._base.publication import digest_of
    from forebay.comparison import validate as validation

    void = (real.void_lateness, real.void_rate)
    runs = (real.repeats, real.attempts, real.links)
    digest = digest_of([file, astuple(overrides), engines, *runs, void])
    call = Invocation.begun(output, None, command_line(), page=page, digest=lambda: digest)
    names = [name.strip() for name in engines.split(",")]
    outcome = validation.validate(
        file, overrides.law, overrides=overrides.set_ or (), seeds=overrides.seeds,
        **asdict(real), progress=lambda runs: progress.bar(unit=f"{runs} runs"), engines=names,
    )  # fmt: skip
    if outcome.comparisons:
        _report(outcome.comparisons, call, void)
    if outcome.failure:
        print_error(outcome.failure)
    if outcome.interrupted or outcome.failure:
        raise stopped(
            outcome.finished, outcome.total, interrupted=outcome.interrupted,
            reported=bool(outcome.comparisons), noun=f"{outcome.reference} run",
        )  # fmt: skip


def _report(validated: list[ValidatedScenario], call: Invocation, void: tuple[str, str]) -> None:
    """Print the tables, then write the files, those with the runs first."""
    for scenario in validated:
        if call.as_json:
            _print_lines(scenario)
        else:
            _show(scenario)
    if call.page is None and call.folder is None:
        return
    from forebay.comparison import validation_page as pages

    if call.folder is not None:
        with call.drawing(f"the numbers are in {call.folder}", "writing the report"):
            pages.write_files(validated, call.folder, call.command, *void, digest=call.digest)
    if call.page is not None:
        call.publish_page(lambda: pages.markdown(validated, call.command, *void))
        call.tell("Page", call.page)
    if call.folder is not None:
        call.tell("Report", call.folder / "report.html")
        call.show(call.folder / "report.html")


def _print_lines(scenario: ValidatedScenario) -> None:
    """Print an object of JSON for each law."""
    from forebay.report.result_files import finite

    for row in scenario.rows:
        sides = zip(row.names, row.sides, strict=True)
        runs = {name: [finite(metrics) for metrics in side.metrics] for name, side in sides}
        print_json({"scenario": scenario.path, **row.as_json(), **runs})


def _show(scenario: ValidatedScenario) -> None:
    """Print the verdicts, three rows for each law, and warnings about void runs."""
    from forebay._base.terminal_table import Column
    from forebay.comparison.validate import METRICS
    from forebay.report.designs import print_item

    metrics = [name for name in scenario.metrics if name not in IN_REPORT]
    names = sorted(metrics, key=lambda name: name not in JUDGED)
    columns = [
        *(Column("law", align_left=True), Column("", align_left=True)),
        *(Column(METRICS[name].title, METRICS[name].unit) for name in names),
    ]
    console = options.console()
    print_item(console, f"{scenario.count()} ({scenario.heading}).")
    for row in scenario.rows:
        print_item(console, f"- {row.name}: {row.verdict}{' (void)' if row.counts_void else ''}")
    print()
    screen = options.print_table(columns, scenario.table_rows(names), width=160, keys=2)
    if again := sum(row.again for row in scenario.rows):
        screen.print(f"Attempts that were void or failed, and were repeated: {again}")
    for row in scenario.rows:
        if row.void:
            reasons = "; ".join(row.reasons)
            print(
                f"warning: {title_of(row.law)}: {row.void} of {row.repeats} runs are void "
                f"({reasons}), so its numbers prove nothing; repeat them on an idle machine"
            )
