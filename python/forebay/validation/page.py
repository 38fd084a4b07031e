"""The page of a comparison: verdicts, differences and causes, as Markdown, HTML and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from forebay._native import __version__
from forebay.base.publication import publication, publish
from forebay.base.publication import write as put
from forebay.base.words import quantity
from forebay.pages.page_figures import PageFigure, render_all
from forebay.pages.result_files import finite
from forebay.pages.tables import Table, markdown_table
from forebay.pages.templates import html as page_html
from forebay.validation import causes
from forebay.validation.causes import Cause
from forebay.validation.comparison import (
    CHANCE,
    DELAY_S,
    DELAY_SHARE,
    METRICS,
    SIGNAL_SHARE,
    UNSURE,
    Comparison,
    Row,
)

if TYPE_CHECKING:
    from forebay.base.publication import Content

#: Every file of `write`; it replaces those of a former call.
REPORT, JSON, RUNS, DELAYS = "report.html", "metrics.json", "metrics.parquet", "delays.parquet"


def markdown(found: Sequence[Comparison], command: str, void_lateness: str, void_rate: str) -> str:
    """The page; every number in it is from the runs, which `command` makes."""
    parts = ["# The simulator beside real flows\n"]
    parts += [f"**{one.partial}**\n" for one in found if one.partial]
    parts += [f"```sh\n{command}\n```\n", "writes this page. " + _method()]
    parts += [paragraph + "\n" for paragraph in _reading(void_lateness, void_rate)]
    for one in found:
        parts += [f"## {one.title}\n", f"`{one.path}`: {_summary(one)}\n"]
        if one.rows:
            parts += [markdown_table(*_verdicts(one)), markdown_table(*_table(one))]
    parts.append("## Differences and their causes\n")
    for title, some in _causes(found):
        parts += [f"{title}\n", *(f"- **{cause.title}**: {cause.text}" for cause in some), ""]
    parts.append(TSO)
    return "\n".join(parts) + "\n"


def html(
    found: Sequence[Comparison],
    figures: Sequence[Sequence[PageFigure]],
    command: str,
    void_lateness: str,
    void_rate: str,
) -> str:
    """The same with its figures, for a browser."""
    sections = [
        {
            "title": one.title,
            "path": one.path,
            "summary": _summary(one),
            "verdicts": Table(*_verdicts(one)) if one.rows else None,
            "table": Table(*_table(one)),
            "figures": shown,
            "text": one.text,
        }
        for one, shown in zip(found, figures, strict=True)
    ]
    return page_html(
        "validate.html.j2",
        title=found[0].title if len(found) == 1 else "The simulator beside real flows",
        partial=[one.partial for one in found if one.partial],
        method=_method(),
        reading=_reading(void_lateness, void_rate),
        command=command,
        sections=sections,
        causes=[
            (title, [(cause.title, cause.text) for cause in some]) for title, some in _causes(found)
        ],
        tso=TSO,
    )


def as_json(found: Sequence[Comparison], command: str) -> dict[str, Any]:
    """The whole of metrics.json: verdicts, and every run's metrics."""
    return {
        "forebay": __version__,
        "command": command,
        "scenarios": [
            {
                "scenario": one.path,
                "title": one.title,
                "partial": bool(one.partial),
                "laws": [row.as_json() for row in one.rows],
                "runs": [{**vars(run), "metrics": finite(run.metrics)} for run in one.runs],
            }
            for one in found
        ],
    }


def numbers(found: Sequence[Comparison], command: str) -> dict[str, Content]:
    """The files that have the numbers, by name."""
    return {
        JSON: as_json(found, command),
        RUNS: runs_table(found),
        DELAYS: delays_table(found),
    }


def write(
    found: Sequence[Comparison], out: Path, command: str, void_lateness: str, void_rate: str
) -> None:
    """Writes all files to a directory, made if need be: the numbers before anything is drawn."""
    drawn = ["agreement-*.p*", "delays-*.p*", REPORT]
    publish(out, numbers(found, command), replaces=drawn)
    from forebay.validation import pictures  # draws, which takes a while to load

    shown = [pictures.figures(one, number) for number, one in enumerate(found, start=1)]
    with publication(out) as unfinished:
        render_all([one for some in shown for one in some], unfinished)
        put(unfinished / REPORT, html(found, shown, command, void_lateness, void_rate))


def runs_table(found: Sequence[Comparison]) -> pl.DataFrame:
    """A row per run: scenario, side, law, point, seed, whether it is void, and every metric."""
    rows = [
        {
            "scenario": one.path,
            "side": run.side,
            "law": run.law,
            "point": run.point,
            "seed": run.seed,
            "void": bool(run.void),
            **{name: run.metrics.get(name) for name in METRICS},
        }
        for one in found
        for run in one.runs
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def delays_table(found: Sequence[Comparison]) -> pl.DataFrame:
    """A row per run and bin of the queuing delay: its upper end delay_s, and packets in it."""
    frames = [
        pl.DataFrame({"delay_s": observed.delay_s, "packets": observed.delay_packets}).select(
            *(
                pl.lit(value).alias(name)
                for name, value in [
                    ("scenario", one.path),
                    ("side", side),
                    ("law", row.law),
                    ("point", row.point),
                    ("run", number),
                ]
            ),
            pl.all(),
        )
        for one in found
        for row in one.rows
        for side, of_side in (("simulated", row.simulated), ("real", row.real))
        for number, observed in enumerate(of_side.observed, start=1)
    ]
    return pl.concat(frames) if frames else pl.DataFrame()


def _method() -> str:
    return (
        "Each scenario is run twice: simulated, and over `forebay link`, where the same law, in "
        "the same Rust code, judges packets of the Linux kernel's TCP. iperf3 sends the long "
        "flows; connections that open and close make the short transfers. The window of "
        "measurement, rate, propagation RTT, buffer and packet size are the same. Values are means "
        "over the runs ± half their 95 % interval (Student's t). Differences are differences of "
        "the means ± half their 95 % interval (Welch's t). Few real runs make the intervals "
        "wide.\n"
    )


def _reading(void_lateness: str, void_rate: str) -> list[str]:
    return [
        f"A law agrees if the mean delay is within {100 * DELAY_SHARE:g} % or {1e3 * DELAY_S:g} "
        "ms (the wider) of the real value, and the share of packets dropped or marked within "
        f"{100 * SIGNAL_SHARE:g} % of the real one. The means decide. *{UNSURE.capitalize()}* "
        "means that the interval of a difference reaches across its limit, so that other runs may "
        f"turn the verdict. *{CHANCE.capitalize()}* means that it reaches across zero, too.",
        "A real run is void if the machine did not keep time within the window of measurement: "
        "one packet in a thousand was fetched or released more than "
        f"{quantity(void_lateness)} late, or the rate was off by more than {void_rate}. Void "
        "runs are made again, up to `--attempts` in all. If no run of a law is sound, the page "
        "shows the void ones and says so; their numbers prove nothing.",
    ]


TSO = (
    "TSO is no cause: below 1 Gbit/s the link takes segments apart before the queue, so that a law "
    "sees packets of the link's size."
)


def _causes(found: Sequence[Comparison]) -> list[tuple[str, list[Cause]]]:
    groups = [
        ("Between the simulated sender and the kernel's:", causes.of_senders(found)),
        ("Differences that no setting covers:", causes.of_the_rest(found)),
    ]
    return [(title, some) for title, some in groups if some]


def _summary(found: Comparison) -> str:
    if not found.rows:
        return "No law has runs on both sides."
    simulated, repeats = _counted(found.simulated_runs, "simulated run"), _repeats(found.rows)
    return (
        f"{simulated}, {repeats} real {'one' if repeats == '1' else 'ones'} of each law. "
        f"**{found.count()}.** {_void(found.rows)} {_lateness(found.rows)}{_transfers(found.rows)}"
    )


def _verdicts(found: Comparison) -> tuple[list[str], list[list[str]]]:
    head = ["law", "delay, real − simulated [ms]", "allowed", "loss, real − simulated [%]"]
    cells = []
    for row in found.rows:
        verdict = row.verdict + (", void" if row.counts_void else "")
        cells.append([row.name, *row.delay.cells, *row.signals.cells, verdict])
    return [*head, "allowed", "verdict"], cells


def _table(found: Comparison) -> tuple[list[str], list[list[str]]]:
    names = found.metrics
    head = ["law", "side", *(METRICS[name].heading for name in names)]
    cells = []
    for row in found.rows:
        cells.append([row.name, "simulated", *(row.simulated.text(name) for name in names)])
        cells.append(["", "real", *(row.real.text(name) for name in names)])
        cells.append(["", "difference", *(row.difference_text(name) for name in names)])
    return head, cells


def _repeats(rows: Sequence[Row]) -> str:
    least, most = min(row.repeats for row in rows), max(row.repeats for row in rows)
    return str(least) if least == most else f"{least} to {most}"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _void(rows: Sequence[Row]) -> str:
    void, again = sum(row.void for row in rows), sum(row.again for row in rows)
    total = sum(row.repeats for row in rows)
    if not void and not again:
        return (
            f"None of the {total} real runs was void."
            if total > 1
            else "The real run was not void."
        )
    none_sound = [row.name for row in rows if row.counts_void]
    text = f"Of {_counted(total, 'real run')} {void} stayed void"
    made_again = f"{_counted(again, 'void run')} {'was' if again == 1 else 'were'} made again"
    text += f", after {made_again}." if again else "."
    if len(none_sound) == len(rows):
        text += " No law had a sound one."
    elif none_sound:
        text += f" No run was sound of: {'; '.join(none_sound)}."
    return text


def _lateness(rows: Sequence[Row]) -> str:
    late_s = sorted(value for row in rows for value in row.real.values("lateness_p99_s"))
    return (
        f"In the median run 99 % of the packets left within {1e3 * statistics.median(late_s):.2g} "
        f"ms of their time, in the worst within {1e3 * late_s[-1]:.2g} ms."
    )


def _transfers(rows: Sequence[Row]) -> str:
    counts = [value for row in rows for value in row.real.values("transfers") if value == value]
    if not counts:
        return ""
    return (
        f" Within its window a real run completed {min(counts):.0f} to {max(counts):.0f} short "
        "transfers."
    )
