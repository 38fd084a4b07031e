"""What results show of themselves in a notebook: a short table, and one picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from markupsafe import Markup, escape

if TYPE_CHECKING:
    from forebay.figures.plot import Plot

#: Dots per inch of the picture: a cell of a notebook is about 900 px wide.
DPI = 80
#: Rows of a table at most; more make a notebook slow.
MOST_ROWS = 24


def html(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], figure: Plot | None
) -> str:
    """A title, a table and a picture, as HTML."""
    head = Markup("").join(Markup("<th>{}</th>").format(text) for text in heads)
    body = Markup("").join(
        Markup("<tr>{}</tr>").format(
            Markup("").join(Markup("<td>{}</td>").format(cell) for cell in row)
        )
        for row in rows[:MOST_ROWS]
    )
    more = len(rows) - MOST_ROWS
    left = Markup("<p>… and {} more rows.</p>").format(more) if more > 0 else ""
    first = Markup("<tr>{}</tr>").format(head) if any(heads) else ""
    return str(
        Markup("<div><strong>{}</strong><table>{}{}</table>{}{}</div>").format(
            title, first, body, left, Markup(image(figure, title)) if figure else ""
        )
    )


def image(figure: Plot, name: str) -> str:
    """An <img> of a figure; `name` is what a screen reader calls it."""
    out = io.BytesIO()
    with mpl.rc_context():
        figure.savefig(out, format="png", dpi=DPI, facecolor="white")
    text = base64.b64encode(out.getvalue()).decode()
    return f'<img alt="{escape(name)}" src="data:image/png;base64,{text}" style="max-width:100%">'
