"""The files of a study: its frame, and its page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from forebay._native import RESULTS_VERSION, __version__
from forebay.base.publication import publish

if TYPE_CHECKING:
    from forebay.studies.study import Study

FRAME, CSV, PAGE, FACTS = "frame.parquet", "frame.csv", "study.html", "study.json"
#: Who gets what; where several traffics cross a link.
TRAFFIC = "traffic.parquet"


def write(
    study: Study, out: Path, command: str, *, partial: bool = False, report: bool = True
) -> list[Path]:
    """Writes them into `out`, and returns what a reader looks at."""
    frame = study.frame()
    facts = {
        "forebay": __version__,
        "results": RESULTS_VERSION,
        "title": study.points.title,
        "command": command,
        "study": study.points.digest,
        "partial": partial,
        "runs": frame.height,
        "failures": study.failures().to_dicts(),
    }
    traffic = study.traffic()
    shared = {} if traffic.is_empty() else {TRAFFIC: traffic}
    publish(out, {FRAME: frame, CSV: frame, FACTS: facts, **shared}, replaces=[TRAFFIC])
    written = [out / name for name in (FRAME, CSV, *shared)]
    if report:
        from forebay.studies import page  # draws, which takes a while to load

        written += publish(out, {PAGE: page.html(study, command, partial=partial)})
    return written
