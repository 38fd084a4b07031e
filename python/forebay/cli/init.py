"""`forebay init`: a scenario to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.options import Laws


@with_options
def init(
    file: Path = Path("my-link.toml"),
    /,
    *,
    rate: str | None = None,
    rtt: list[str] | None = None,
    flows: Annotated[int | None, typer.Option(min=1)] = None,
    buffer: str | None = None,
    law: Laws = None,
    force: bool = False,
) -> None:
    """Write a commented scenario to start from.

    file [FILE]: File to write; - prints it.
    rate: Rate of the link; 20Mbit/s if it is left out.
    rtt TIME: Round-trip time without a queue; 40ms and 80ms if it is left out.
    flows: Number of long downloads; 20 if it is left out.
    buffer SIZE: Buffer size, such as 200p or 64kB; a bandwidth-delay product if it is left out.
    law: A law of `forebay laws`; pi, codel and droptail if none is named.
    force: Replace a file that is there.
    """
    from forebay.guide import starter
    from forebay.runs import experiment

    printed = str(file) == experiment.STDIN
    name = "my-link.toml" if printed else file.name
    text = starter.scenario(name, rate, rtt, flows, buffer, law)
    # What is written runs: whatever is wrong with an option is said before.
    experiment.read(text)
    if printed:
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
