"""`forebay init`: a scenario to start from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import print_errors
from forebay.cli.options import Laws


@dataclass(frozen=True, kw_only=True)
class LineOptions:
    """A line to a home.

    line: A line to a home, such as ethernet, docsis, vdsl2-pppoe or adsl-pppoa, with --down and
        --up: a scenario of both directions, and the commands for a router.
    down RATE: Rate of the line towards the home, its framing included.
    up RATE: Rate of the line from the home, its framing included.
    direction: Direction of the line that is under test, down or up.
    device NAME: The router's device towards the line, in the printed commands.
    """

    line: str | None = None
    down: str | None = None
    up: str | None = None
    direction: str = "down"
    device: str | None = None


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
    home: LineOptions,
    force: bool = False,
) -> None:
    """Write a commented scenario to start from.

    file [FILE]: File to write; - prints it.
    rate: Rate of the link; 20Mbit/s if it is left out.
    rtt TIME: Round-trip time without a queue, a range 10ms..100ms, or several with commas between
        them, which the flows take in turn; 40ms and 80ms if it is left out.
    flows: Number of long downloads; 20 if it is left out.
    buffer SIZE: Buffer size, such as 200p or 64kB; a bandwidth-delay product if it is left out.
    law: A law of `forebay laws`; pi, codel and droptail if none is named.
    tc LINE: What a router has, as `tc qdisc` and `tc class` take or show it: its law, queue and
        rate.
    force: Replace a file that is there.
    """
    from forebay.experiment import experiment
    from forebay.guide import starter

    printed = str(file) == experiment.STDIN
    name = "my-link.toml" if printed else file.name
    with_line = {"--down": home.down, "--up": home.up, "--device": home.device}
    _check(home.line, with_line, {"--rate": rate, "--tc": tc})
    if home.line is not None:
        draft = starter.for_line(
            name, home.line, home.down, home.up, direction=home.direction, device=home.device,
            rtts=rtt, flows=flows, buffer=buffer, laws=law,
        )  # fmt: skip
    else:
        lines = "\n".join(tc) if tc else None
        draft = starter.scenario(name, rate, rtt, flows, buffer, law, tc=lines)
    # What is written runs: whatever is wrong with an option is said before.
    try:
        experiment.read(draft.text)
    except ScenarioError as error:
        raise ScenarioError(_of_option(str(error), draft.names)) from None
    print_errors(draft.notes)
    if printed:
        print(draft.text, end="")
    else:
        _write(file, draft.text, force=force)


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write a scenario, and print how to run it."""
    from forebay._base import publication

    if file.exists() and not file.is_dir() and not force:
        raise ScenarioError(f"{file}: it exists; --force replaces it")
    publication.check_file(file, "FILE")
    file.write_text(text, encoding="utf-8")
    print(f"Wrote {file}. Run it:  forebay run {file}")


def _check(
    line: str | None, with_line: Mapping[str, object], without_line: Mapping[str, object]
) -> None:
    """Refuse options that only go with a home line, or only without one."""
    for option, value in (without_line if line is not None else with_line).items():
        if value and line is not None:
            raise ScenarioError(
                f"{option}: it does not go with --line; --down and --up are its rates"
            )
        if value:
            raise ScenarioError(f"{option}: it goes with --line, such as --line vdsl2-pppoe")


#: The option that writes a key of the scenario.
OPTIONS = {
    "bottleneck.rate": "--rate",
    "bottleneck.buffer": "--buffer",
    "traffic.0.rtt": "--rtt",
    "traffic.0.flows": "--flows",
}


def _of_option(error: str, words: Mapping[str, str]) -> str:
    """Return an error of the scenario, which nobody has seen yet, as one of the option that is
    wrong, or of the word of tc."""
    place = re.match(r"scenario:\d+: ([\w.]+): ", error)
    if place is None:
        return error
    if place[1] in words:
        return f"--tc: {words[place[1]]}: {error[place.end() :]}"
    law = re.fullmatch(r"law\.\d+\.kind", place[1])
    return f"{'--law' if law else OPTIONS.get(place[1], place[1])}: {error[place.end() :]}"
