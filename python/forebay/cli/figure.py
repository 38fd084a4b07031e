"""`forebay figure`: the papers' control figures, made anew."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import RESULTS
from forebay.cli.options import Style


@with_options
def figure(
    name: list[str] | None = None,
    /,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR")] = RESULTS,
    style: Style = "screen",
) -> None:
    """Draw the papers' control figures from our own code.

    name [NAME]...: Figures to draw; without any, their names.
    out: Where they go.
    """
    from forebay._base import publication
    from forebay._base.publication import publish
    from forebay.campaign.control_figures import FIGURES
    from forebay.report import style as styles

    styles.use(style)
    if not name:
        for known, draw in FIGURES.items():
            print(f"{known:14} {(draw.__doc__ or '').splitlines()[0]}")
        return
    for each in name:
        if each not in FIGURES:
            raise ScenarioError(f'NAME: found "{each}", allowed: {", ".join(FIGURES)}')
    publication.check_folder(out)
    drawn = [FIGURES[each]().files(each) for each in name]
    for file in publish(out, {file: data for files in drawn for file, data in files.items()}):
        print(f"Figure: {file}")
