"""`forebay init`: a scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli import completion


def init(
    file: Annotated[
        Path, typer.Argument(help="File to write; - prints it.", metavar="[FILE]")
    ] = Path("my-link.toml"),
    rate: Annotated[
        str | None, typer.Option(help="Rate of the link; 20Mbit/s if it is left out.")
    ] = None,
    rtt: Annotated[
        list[str] | None,
        typer.Option(
            help="Round-trip time without a queue; 40ms and 80ms if it is left out. "
            "May be given several times.",
            metavar="TIME",
        ),
    ] = None,
    flows: Annotated[
        int | None, typer.Option(help="Number of long downloads; 20 if it is left out.", min=1)
    ] = None,
    buffer: Annotated[
        str | None,
        typer.Option(
            help="Buffer size, such as 200p or 64kB; a bandwidth-delay product if it is left out.",
            metavar="SIZE",
        ),
    ] = None,
    law: Annotated[
        list[str] | None,
        typer.Option(
            "--law",
            "--aqm",
            help="A law of `forebay laws`; pi, codel and droptail if none is named. "
            "May be given several times.",
            metavar="KIND",
            autocompletion=completion.laws,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented scenario to start from."""
    from forebay.guide.starter import Starter
    from forebay.runs import experiment

    name = "my-link.toml" if str(file) == experiment.STDIN else file.name
    text = Starter.for_options(name, rate, rtt, flows, buffer, law).text()
    # What is written runs: whatever is wrong with an option is said before.
    experiment.read(text)
    if str(file) == experiment.STDIN:
        print(text, end="")
        return
    if file.is_dir():
        raise ScenarioError(f"{file}: found a folder, allowed: the name of a file")
    try:
        with file.open("w" if force else "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ScenarioError(f"{file}: it exists; --force replaces it") from None
    print(f"Wrote {file}. Run it:  forebay run {file}")
