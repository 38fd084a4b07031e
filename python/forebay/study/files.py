"""The files of a study: its frame, and its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._native import RESULTS_VERSION, __version__
from forebay.run import parquet

if TYPE_CHECKING:
    from forebay.study.study import Study

FRAME, PAGE, FACTS = "frame.parquet", "study.html", "study.json"


def write(
    study: Study, out: Path, command: str, *, partial: bool = False, report: bool = True
) -> list[Path]:
    """Writes them into `out`, each whole or not at all, and returns what a reader looks at."""
    out.mkdir(parents=True, exist_ok=True)
    frame = study.frame()
    _whole(out / FRAME, frame.write_parquet)
    _whole(out / "frame.csv", frame.write_csv)
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
    _whole(out / FACTS, lambda path: path.write_text(json.dumps(facts, indent=1) + "\n"))
    written = [out / FRAME, out / "frame.csv"]
    if report:
        from forebay.study import page  # draws, which takes a while to load

        html = page.html(study, command, partial=partial)
        _whole(out / PAGE, lambda path: path.write_text(html, encoding="utf-8"))
        written.append(out / PAGE)
    return written


def _whole(path: Path, write: object) -> None:
    assert callable(write)
    unfinished = path.with_name(f".{path.name}.new")
    try:
        with parquet.errors_of(path):
            write(unfinished)
        unfinished.rename(path)
    finally:
        unfinished.unlink(missing_ok=True)
