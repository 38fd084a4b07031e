"""`forebay cite`: BibTeX of Forebay, and of what a result stands on."""

from __future__ import annotations

from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli import completion
from forebay.cli.declaration import with_options


@with_options
def cite(
    name: Annotated[list[str] | None, typer.Argument(autocompletion=completion.cited)] = None, /
) -> None:
    """Print BibTeX for a paper: Forebay, and the sources of laws, files and results.

    name [NAME]...: Laws, queues, senders or papers (see docs/references.md), a scenario file, or a
        folder of results; Forebay alone if none is named.
    """
    from forebay.guide import cite as guide
    from forebay.scenario import names as named

    names: list[str] = []
    for text in name or ():
        path = named.path(text)
        if path.is_dir():
            sources, sentence = guide.of_results(path)
            print(f"% {sentence}")
            names += sources
        elif path.suffix == ".toml":
            try:
                names += guide.of_scenario(path.read_text("utf-8"), path)
            except (OSError, UnicodeDecodeError) as error:
                why = (getattr(error, "strerror", None) or "is no text").lower()
                raise ScenarioError(f"{path}: {why}, allowed: a scenario file") from None
        else:
            names.append(text)
    for entry in (guide.software(), *(it.bibtex() for it in guide.named(names))):
        print(f"\n{entry}")
