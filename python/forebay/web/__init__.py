"""Scripts and styles that studio and reports share; `vendor/` holds uPlot (decision 014)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def text(name: str) -> str:
    """A script or a style by its path in this folder, as it can stand inside a page."""
    found = files(__name__).joinpath(name).read_text(encoding="utf-8")
    return found.replace("</script", "<\\/script")
