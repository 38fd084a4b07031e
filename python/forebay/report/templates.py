"""Pages and sentences out of the files of `templates`."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from forebay._base import registries, words
from forebay._base.statistics import LEVEL
from forebay._native import __version__

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

#: Scripts and styles that studio and reports share; `web/vendor` holds uPlot (decision 010).
WEB = Path(__file__).with_name("web")


@cache
def template(name: str) -> Template:
    """A file of `templates`; in HTML it escapes its values."""
    environment = Environment(
        loader=PackageLoader("forebay.report"),
        autoescape=lambda name: name is None or ".html" in name,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "web": web_asset,
        "version": __version__,
        "level": f"{100 * LEVEL:.0f} %",
        "words": words,
        "quantity": words.quantity,
    }
    environment.filters |= {
        "marked": marked,
        "time_in_words": words.time,
        "digits": lambda number, count: f"{number:.{count}g}",
        "law_title": registries.title_of,
        "ms": lambda seconds, count: f"{1e3 * seconds:.{count}g} ms",
        "one_in": _one_in,
        "or_unlimited": lambda number, unit: (
            f"{number:.1f}{unit}" if math.isfinite(number) else "unlimited"
        ),
    }
    return environment.get_template(name)


def _one_in(probability: float) -> str:
    """A probability as so many packets of which one is meant; of ten where that says too little."""
    if probability > 0.3:
        return f"{10 * probability:.1f} of ten packets"
    return f"one packet in {1 / probability:.0f}"


def html(name: str, **values: Any) -> str:
    """A page in HTML."""
    return template(name).render(**values)


def markdown(name: str, **values: Any) -> str:
    """A page in Markdown, whose parts stand one empty line apart."""
    lines = [line.rstrip() for line in template(name).render(**values).strip().split("\n")]
    kept = [line for i, line in enumerate(lines) if line or lines[i - 1]]
    return "\n".join(kept) + "\n"


def paragraphs(name: str, **values: Any) -> list[str]:
    """The paragraphs of a text, which empty lines part, each in one line."""
    parts = re.split(r"\n\s*\n", template(name).render(**values))
    # Spaces alone: a no-break space stays.
    return [re.sub("[ \n]+", " ", one).strip(" \n") for one in parts if one.strip()]


def marked(text: str) -> Markup:
    """Markdown within a line as HTML: code, bold, italics."""
    return Markup(_reader().renderInline(text))


@cache
def _reader() -> MarkdownIt:
    from markdown_it import MarkdownIt  # which only some pages need

    return MarkdownIt("commonmark", {"html": False})


@cache
def web_asset(name: str) -> str:
    """Return a script or a style by its path in `web`, as it can stand inside a page."""
    content = (WEB / name).read_text(encoding="utf-8")
    return content.replace("</script", "<\\/script")
