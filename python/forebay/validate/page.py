"""The page of a comparison: verdicts, differences and causes, as Markdown, HTML and tables."""

from __future__ import annotations

import io
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup, escape

from forebay._native import __version__
from forebay.docs.tables import table
from forebay.report.files import finite
from forebay.report.page import Picture, template
from forebay.report.words import quantity
from forebay.validate import causes
from forebay.validate.causes import Cause
from forebay.validate.comparison import (
    CHANCE,
    DELAY_S,
    DELAY_SHARE,
    METRICS,
    SIGNAL_SHARE,
    UNSURE,
    Comparison,
    Row,
)

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
            parts += [table(*_verdicts(one)), table(*_table(one))]
    parts.append("## Differences and their causes\n")
    for title, some in _causes(found):
        parts += [f"{title}\n", *(f"- **{cause.title}**: {cause.text}" for cause in some), ""]
    parts.append(TSO)
    return "\n".join(parts) + "\n"


def html(
    found: Sequence[Comparison],
    pictures: Sequence[Sequence[Picture]],
    command: str,
    void_lateness: str,
    void_rate: str,
) -> str:
    """The same with its figures, for a browser."""
    sections = [
        {
            "title": one.title,
            "path": one.path,
            "summary": _marked(_summary(one)),
            "verdicts": _verdicts(one) if one.rows else None,
            "table": _table(one),
            "pictures": shown,
            "text": one.text,
        }
        for one, shown in zip(found, pictures, strict=True)
    ]
    return template("validate.html.j2").render(
        title=found[0].title if len(found) == 1 else "The simulator beside real flows",
        partial=[one.partial for one in found if one.partial],
        method=_marked(_method()),
        reading=[_marked(text) for text in _reading(void_lateness, void_rate)],
        command=command,
        sections=sections,
        causes=[
            (title, [(cause.title, _marked(cause.text)) for cause in some])
            for title, some in _causes(found)
        ],
        tso=TSO,
        version=__version__,
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


def numbers(found: Sequence[Comparison], command: str) -> dict[str, bytes]:
    """The files that have the numbers, by name."""
    return {
        JSON: (json.dumps(as_json(found, command), indent=1) + "\n").encode(),
        RUNS: _parquet(runs_table(found)),
        DELAYS: _parquet(delays_table(found)),
    }


def drawings(
    found: Sequence[Comparison], command: str, void_lateness: str, void_rate: str
) -> dict[str, bytes]:
    """The page and its figures, by name."""
    from forebay.validate import pictures  # draws, which takes a while to load

    shown = [pictures.pictures(one, number) for number, one in enumerate(found, start=1)]
    page = html(found, shown, command, void_lateness, void_rate)
    return {
        REPORT: page.encode(),
        **{
            name: contents for some in shown for one in some for name, contents in one.files.items()
        },
    }


def write(
    found: Sequence[Comparison], out: Path, command: str, void_lateness: str, void_rate: str
) -> None:
    """Writes all files to a directory, made if need be: the numbers before anything is drawn."""
    out.mkdir(parents=True, exist_ok=True)
    for old in [*out.glob("agreement-*.p*"), *out.glob("delays-*.p*"), out / REPORT]:
        old.unlink(missing_ok=True)
    _put(out, numbers(found, command))
    _put(out, drawings(found, command, void_lateness, void_rate))


def _put(out: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        part = out / f".{name}.part"
        part.write_bytes(data)
        part.rename(out / name)


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


def _parquet(frame: pl.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.write_parquet(out)
    return out.getvalue()


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


def _marked(text: str) -> Markup:
    """Markdown's code, bold and italics as HTML."""
    marked = str(escape(text))
    for pattern, tag in [(r"`([^`]+)`", "code"), (r"\*\*(.+?)\*\*", "b"), (r"\*(.+?)\*", "i")]:
        marked = re.sub(pattern, rf"<{tag}>\1</{tag}>", marked)
    return Markup(marked)
