"""`forebay init`: a scenario to start from."""

from __future__ import annotations

import re
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
    tc: list[str] | None = None,
    force: bool = False,
) -> None:
    """Write a commented scenario to start from.

    file [FILE]: File to write; - prints it.
    rate: Rate of the link; 20Mbit/s if it is left out.
    rtt TIME: Round-trip time without a queue; 40ms and 80ms if it is left out.
    flows: Number of long downloads; 20 if it is left out.
    buffer SIZE: Buffer size, such as 200p or 64kB; a bandwidth-delay product if it is left out.
    law: A law of `forebay laws`; pi, codel and droptail if none is named.
    tc LINE: What a router has, as `tc qdisc` takes or shows it: its law, queue and rate.
    force: Replace a file that is there.
    """
    from forebay.base import output_folder
    from forebay.guide import starter
    from forebay.runs import experiment

    printed = str(file) == experiment.STDIN
    name = "my-link.toml" if printed else file.name
    text = starter.scenario(name, rate, rtt, flows, buffer, law, tc="\n".join(tc) if tc else None)
    # What is written runs: whatever is wrong with an option is said before.
    try:
        experiment.read(text)
    except ScenarioError as error:
        raise ScenarioError(_of_option(str(error))) from None
    if printed:
        print(text, end="")
        return
    if file.exists() and not file.is_dir() and not force:
        raise ScenarioError(f"{file}: it exists; --force replaces it")
    output_folder.check_file(file, "FILE")
    file.write_text(text, encoding="utf-8")
    print(f"Wrote {file}. Run it:  forebay run {file}")


#: The option that writes a key of the scenario.
OPTIONS = {
    "bottleneck.rate": "--rate",
    "bottleneck.buffer": "--buffer",
    "traffic.0.rtt": "--rtt",
    "traffic.0.flows": "--flows",
}


def _of_option(error: str) -> str:
    """An error of the scenario, which nobody has seen yet, as one of the option that is wrong."""
    place = re.match(r"scenario:\d+: ([\w.]+): ", error)
    if place is None:
        return error
    law = re.fullmatch(r"law\.\d+\.kind", place[1])
    return f"{'--law' if law else OPTIONS.get(place[1], place[1])}: {error[place.end() :]}"
