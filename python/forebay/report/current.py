"""Whether a folder already holds the page that would be drawn: drawing takes longer
than most runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import forebay
from forebay.report import files

if TYPE_CHECKING:
    from forebay.run.runs import Runs


def is_current(result: Runs, out: Path) -> bool:
    """Whether `out` has the tables and the page of these very numbers, drawn by this code."""
    page = out / files.REPORT
    try:
        if (out / files.NUMBERS).read_text() != files.numbers(result):
            return False
        if not all((out / f"{table}.parquet").exists() for table in files.TABLES):
            return False
        return page.stat().st_mtime > _newest_code()
    except OSError:
        return False


def _newest_code() -> float:
    """When the package was last changed: a page that is older may look different now."""
    package = Path(forebay.__file__).parent
    endings = {".py", ".so", ".j2", ".js", ".css"}
    return max(file.stat().st_mtime for file in package.rglob("*") if file.suffix in endings)
