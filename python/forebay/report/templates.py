"""Render pages and sentences from the files in `templates`."""

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

#: The folder of scripts and styles that studio and reports share; `web/vendor` holds uPlot.
WEB = Path(__file__).with_name("web")


@cache
def _environment() -> Environment:
    """Return the settings of all templates; it keeps those that it has compiled."""
    environment = Environment(
        loader=PackageLoader("forebay.report"),
        # The files of an installed package do not change.
        auto_reload=False,
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
        "laws_in_prose": registries.titles_in,
        "ms": lambda seconds, count: f"{1e3 * seconds:.{count}g} ms",
        "one_in": _one_in,
        "or_unlimited": lambda number, unit: (
            f"{number:.1f}{unit}" if math.isfinite(number) else "unlimited"
        ),
    }
    return environment


def template(name: str) -> Template:
    """Return a file of `templates`, compiled; an HTML template escapes its values."""
    return _environment().get_template(name)


def _one_in(probability: float) -> str:
    """Return a probability as "one packet in N", or as packets of ten if it is large."""
    if probability > 0.3:
        return f"{10 * probability:.1f} of ten packets"
    return f"one packet in {1 / probability:.0f}"


def html(name: str, **values: Any) -> str:
    """Return a page in HTML."""
    return template(name).render(**values)


def markdown(name: str, **values: Any) -> str:
    """Return a page in Markdown, with one empty line between its parts."""
    lines = [line.rstrip() for line in template(name).render(**values).strip().split("\n")]
    without_double_blanks = [line for i, line in enumerate(lines) if line or lines[i - 1]]
    return "\n".join(without_double_blanks) + "\n"


def paragraphs(name: str, **values: Any) -> list[str]:
    """Return the paragraphs of a text, each as one line.

    Empty lines separate paragraphs in the template.
    """
    parts = re.split(r"\n\s*\n", template(name).render(**values))
    # Only plain spaces are merged: a no-break space stays.
    return [re.sub("[ \n]+", " ", part).strip(" \n") for part in parts if part.strip()]


def marked(text: str) -> Markup:
    """Return inline Markdown (code, bold, italics) as HTML."""
    return Markup(_reader().renderInline(text))


@cache
def _reader() -> MarkdownIt:
    """Return the parser of Markdown, which only some pages need."""
    from markdown_it import MarkdownIt  # only some pages need it

    return MarkdownIt("commonmark", {"html": False})


@cache
def web_asset(name: str) -> str:
    """Return a script or a style by its path in `web`, escaped for embedding in a page."""
    content = (WEB / name).read_text(encoding="utf-8")
    return content.replace("</script", "<\\/script")
