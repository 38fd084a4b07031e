"""The page of a comparison: verdicts, differences and causes, as Markdown, HTML and tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from forebay._base.publication import publication, publish, write
from forebay._native import __version__
from forebay.comparison.causes import causes
from forebay.comparison.engine_comparison import (
    CHANCE,
    DELAY_S,
    DELAY_SHARE,
    METRICS,
    SIDES,
    SIGNAL_SHARE,
    UNSURE,
    ValidatedScenario,
)
from forebay.experiment import engines
from forebay.report import templates
from forebay.report.pages import PageFigure, render_all
from forebay.report.result_files import finite
from forebay.report.tables import Table

if TYPE_CHECKING:
    from forebay._base.publication import Content

#: Every file of `write_files`; it replaces those of a former call.
REPORT, JSON, RUNS, DELAYS = "report.html", "metrics.json", "metrics.parquet", "delays.parquet"

TSO = (
    "TSO is no cause: below 1 Gbit/s the link takes segments apart before the queue, so that a law "
    "sees packets of the link's size."
)


def markdown(
    found: Sequence[ValidatedScenario], command: str, void_lateness: str, void_rate: str
) -> str:
    """The page; every number in it is from the runs, which `command` makes."""
    told = _told(found, command, void_lateness, void_rate)
    return templates.markdown("validate.md.j2", **told)


def html(
    found: Sequence[ValidatedScenario],
    figures: Sequence[Sequence[PageFigure]],
    command: str,
    void_lateness: str,
    void_rate: str,
) -> str:
    """The same with its figures, for a browser."""
    told = _told(found, command, void_lateness, void_rate)
    for section, shown in zip(told["sections"], figures, strict=True):
        section["figures"] = shown
    title = found[0].heading if len(found) == 1 else _title(told["engines"])
    return templates.html("validate.html.j2", **told | {"title": title})


def _title(engines: Sequence[str]) -> str:
    usual = list(engines) == list(SIDES)
    return "The simulator beside real flows" if usual else "Engines beside each other"


def _told(
    found: Sequence[ValidatedScenario], command: str, void_lateness: str, void_rate: str
) -> dict[str, Any]:
    """What both pages have."""
    tested = dict.fromkeys(one.engines[0] for one in found)
    names = list(dict.fromkeys([*tested, *(one.engines[1] for one in found)]))
    return {
        "engines": names,
        "title": _title(names),
        "partial": [one.partial for one in found if one.partial],
        "command": command,
        "method": templates.paragraphs(
            "validate_method.txt.j2",
            engines=names,
            in_words=[(name, engines.named(name).in_words) for name in names],
            reference=SIDES.get(names[-1], names[-1]),
            void_lateness=void_lateness,
            void_rate=void_rate,
            delay_share=DELAY_SHARE,
            delay_s=DELAY_S,
            signal_share=SIGNAL_SHARE,
            unsure=UNSURE,
            chance=CHANCE,
        ),
        "sections": [
            {
                "title": one.heading,
                "path": one.path,
                "summary": _summary(one),
                "verdicts": _verdicts(one) if one.rows else None,
                "table": _table(one),
                "text": one.text,
            }
            for one in found
        ],
        "causes": causes(found),
        "tso": TSO if "link" in names else "",
    }


def _summary(found: ValidatedScenario) -> str:
    def values(name: str) -> list[float]:
        sides = [side for row in found.rows for side in row.sides]
        every = [value for side in sides for value in side.values(name)]
        return [value for value in every if value == value]

    (text,) = templates.paragraphs(
        "validate_summary.txt.j2",
        found=found,
        late_s=values("lateness_p99_s"),
        transfers=values("transfers"),
        median=statistics.median,
    )
    return text


def _verdicts(found: ValidatedScenario) -> Table:
    less = f"{found.sides[1]} − {found.sides[0]}"
    head = ["law", f"delay, {less} [ms]", "allowed", f"loss, {less} [%]"]
    cells = []
    for row in found.rows:
        verdict = row.verdict + (", void" if row.counts_void else "")
        cells.append([row.name, *row.delay.cells, *row.signals.cells, verdict])
    head += ["allowed", "verdict"]
    return Table(head, cells, keys=len(head))


def _table(found: ValidatedScenario) -> Table:
    names = found.metrics
    head = ["law", "side", *(METRICS[name].heading for name in names)]
    cells = []
    for row in found.rows:
        for name, of, side in zip([row.name, ""], row.names, row.sides, strict=True):
            cells.append([name, of, *(side.text(metric) for metric in names)])
        cells.append(["", "difference", *(row.difference_text(name) for name in names)])
    return Table(head, cells, keys=len(head))


def as_json(found: Sequence[ValidatedScenario], command: str, digest: str = "") -> dict[str, Any]:
    """The whole of metrics.json: verdicts, and every run's metrics."""
    return {
        "forebay": __version__,
        "command": command,
        "digest": digest,
        "scenarios": [
            {
                "scenario": one.path,
                "title": one.title,
                "engines": list(one.engines),
                "partial": bool(one.partial),
                "laws": [row.as_json() for row in one.rows],
                "runs": [run | {"metrics": finite(run["metrics"])} for run in one.runs],
            }
            for one in found
        ],
    }


def write_files(
    found: Sequence[ValidatedScenario],
    out: Path,
    command: str,
    void_lateness: str,
    void_rate: str,
    *,
    digest: str = "",
) -> None:
    """Writes all files to a directory, made if need be: the numbers before anything is drawn."""
    numbers: dict[str, Content] = {
        JSON: as_json(found, command, digest),
        RUNS: runs_table(found),
        DELAYS: delays_table(found),
    }
    publish(out, numbers, replaces=["agreement-*.p*", "delays-*.p*", REPORT])
    from forebay.comparison import (
        validation_pictures as pictures,  # draws, which takes a while to load
    )

    shown = [pictures.figures(one, number) for number, one in enumerate(found, start=1)]
    with publication(out) as unfinished:
        render_all([one for some in shown for one in some], unfinished)
        write(unfinished / REPORT, html(found, shown, command, void_lateness, void_rate))


def runs_table(found: Sequence[ValidatedScenario]) -> pl.DataFrame:
    """A row per run: scenario, side, law, point, seed, whether it is void, and every metric."""
    rows = [
        {
            "scenario": one.path,
            **{key: run[key] for key in ("side", "law", "point", "seed")},
            "void": bool(run["void"]),
            **{name: run["metrics"].get(name) for name in METRICS},
        }
        for one in found
        for run in one.runs
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def delays_table(found: Sequence[ValidatedScenario]) -> pl.DataFrame:
    """A row per run and bin of the queuing delay: its upper end delay_s, and packets in it."""
    frames = [
        pl.DataFrame(
            {
                **{"scenario": one.path, "side": side, "law": row.law, "point": row.point},
                "run": number,
                **{"delay_s": observed.delay_s, "packets": observed.delay_packets},
            },
            schema_overrides={"run": pl.Int32},
        )
        for one in found
        for row in one.rows
        for side, of_side in zip(row.names, row.sides, strict=True)
        for number, observed in enumerate(of_side.observed, start=1)
    ]
    return pl.concat(frames) if frames else pl.DataFrame()
