"""Scripts and styles that studio and reports share; `web/vendor` holds uPlot (decision 014)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).with_name("web")


@cache
def text(name: str) -> str:
    """Return a script or a style by its path in `web`, as it can stand inside a page."""
    content = (FOLDER / name).read_text(encoding="utf-8")
    return content.replace("</script", "<\\/script")
