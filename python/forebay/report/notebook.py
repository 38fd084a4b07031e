"""Results in a notebook: a short table and one picture."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
from markupsafe import escape

from forebay.experiment import descriptions
from forebay.report import pages, tables, templates

if TYPE_CHECKING:
    from forebay.experiment.result import Result
    from forebay.report.plot import Plot

#: Resolution of the picture in dots per inch: a cell of a notebook is about 900 px wide.
DPI = 80
#: Largest number of rows of a table; more make a notebook slow.
MOST_ROWS = 24


def html(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], figure: Plot | None
) -> str:
    """Return a title, a table and a picture as HTML.

    Parameters
    ----------
    title : str
        The title.
    heads : Sequence[str]
        Headings of the columns; empty texts for none.
    rows : Sequence[Sequence[str]]
        Rows of the table, of which `MOST_ROWS` are shown.
    figure : Plot | None
        The picture, if any.
    """
    return templates.html(
        "notebook.html.j2",
        title=title,
        heads=heads if any(heads) else [],
        rows=rows[:MOST_ROWS],
        more=max(0, len(rows) - MOST_ROWS),
        image=image(figure, title) if figure else "",
    )


def image(figure: Plot, name: str) -> str:
    """Return an <img> element of a figure.

    Parameters
    ----------
    figure : Plot
        The figure.
    name : str
        Name for a screen reader.
    """
    out = io.BytesIO()
    with mpl.rc_context():
        figure.savefig(out, format="png", dpi=DPI, facecolor="white")
    text = base64.b64encode(out.getvalue()).decode()
    return f'<img alt="{escape(name)}" src="data:image/png;base64,{text}" style="max-width:100%">'


def summary(result: Result) -> str:
    """Return the tables of a result and its first figure as HTML."""
    every = pages.report_figures(result)
    figures = [*next(iter(every.by_point.values()), []), *every.overviews][:1]
    images = [image(figure.plot(), figure.title) for figure in figures]
    points = list(result.points())
    page = templates.html(
        "summary.html.j2",
        title=result.plan.title,
        partial=pages.partial_result(result),
        warnings=descriptions.warnings(result),
        sections=[
            (descriptions.place(point, link), tables.laws_table(result, i, link))
            for i, point in points[: pages.MOST_SECTIONS]
            for link in range(len(point.links))
        ],
        more=max(0, len(points) - pages.MOST_SECTIONS),
        seeds=result.seeds,
    )
    return page + "".join(images)
