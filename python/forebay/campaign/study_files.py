"""The files of a study: its frame, and its page."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.publication import publish
from forebay._native import RESULTS_VERSION, __version__
from forebay.report import tables

if TYPE_CHECKING:
    from forebay._base.publication import Content
    from forebay.campaign.study import Study

FRAME, CSV, PAGE, FACTS = "frame.parquet", "frame.csv", "study.html", "study.json"
#: In the facts: the hash of each file that `forebay compare` reads.
HASHES = "sha256"
#: Differences between laws, where two of them have two seeds in common.
DIFFERENCES_CSV, DIFFERENCES_TEX = "differences.csv", "differences.tex"
#: Who gets what; where several traffics cross a link.
TRAFFIC = "traffic.parquet"


def former_seeds(out: Path) -> int:
    """How many seeds the laws of a former result have; 0 where there is none."""
    try:
        return int(json.loads((out / FACTS).read_bytes())["seeds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def write(
    study: Study,
    out: Path,
    command: str,
    *,
    metrics: Sequence[str] = (),
    partial: bool = False,
    report: bool = True,
) -> list[Path]:
    """Writes them into `out`, and returns what a reader looks at. metrics: those of the page."""
    frame = study.frame()
    contents = io.BytesIO()
    frame.write_parquet(contents)
    facts = {
        "forebay": __version__,
        "results": RESULTS_VERSION,
        "title": study.points.title,
        "engine": study.points.made.engine,
        "command": command,
        "study": study.points.digest,
        "partial": partial,
        "seeds": study.most_seeds,
        "runs": frame.height,
        "failures": study.failures().to_dicts(),
        HASHES: {FRAME: hashlib.sha256(contents.getvalue()).hexdigest()},
    }
    traffic = study.traffic()
    shared: dict[str, Content] = {} if traffic.is_empty() else {TRAFFIC: traffic}
    if differences := study.differences(metrics):
        table = tables.differences_table(differences, {})
        shared[DIFFERENCES_CSV] = tables.differences_frame(differences, {})
        shared[DIFFERENCES_TEX] = tables.latex(table, tables.DIFFERENCES_NOTE)
    files = {FRAME: contents.getvalue(), CSV: frame, FACTS: facts, **shared}
    publish(out, files, replaces=[TRAFFIC, DIFFERENCES_CSV, DIFFERENCES_TEX])
    written = [out / name for name in (FRAME, CSV, *shared)]
    if report:
        from forebay.campaign import study_page as page  # draws, which takes a while to load

        text = page.html(study, command, metrics=metrics, partial=partial)
        written += publish(out, {PAGE: text})
    return written
