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
    """The access line of a home.

    Attributes
    ----------
    line : KIND
        Access line of a home, such as ethernet, docsis, vdsl2-pppoe or adsl-pppoa, with --down and
        --up; this writes a scenario of both directions and prints the commands for a router.
    down : RATE
        Rate of the line towards the home, framing included.
    up : RATE
        Rate of the line from the home, framing included.
    direction : WAY
        Direction that the scenario tests, down or up.
    device : NAME
        The router's network device towards the line, for the printed commands.
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

    Parameters
    ----------
    file : [FILE]
        File to write; - prints it.
    rate : RATE
        Rate of the link; 20Mbit/s without it.
    rtt : TIME
        Round-trip time without queuing, such as 40ms; a range, such as 10ms..100ms; or several with
        commas, which the flows take in turn; 40ms and 80ms without it.
    flows : N
        Number of long downloads; 20 without it.
    buffer : SIZE
        Buffer size, such as 200p or 64kB; the bandwidth-delay product without it.
    law : LAW
        A law of `forebay laws`; pi, codel and droptail without it.
    tc : LINE
        A router's law, queue and rate, as `tc qdisc` and `tc class` take or print them.
    force
        Replace an existing file.
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
    # The scenario is read once, so that an error in an option is reported before it is written.
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
        raise ScenarioError(f"{file} already exists; overwrite it with --force")
    publication.check_file(file, "FILE")
    file.write_text(text, encoding="utf-8")
    print(f"Wrote {file}. To run it: forebay run {file}")


def _check(
    line: str | None, with_line: Mapping[str, object], without_line: Mapping[str, object]
) -> None:
    """Refuse options that only go with a home line, or only without one."""
    for option, value in (without_line if line is not None else with_line).items():
        if value and line is not None:
            raise ScenarioError(
                f"{option} cannot be combined with --line; give the rates with --down and --up"
            )
        if value:
            raise ScenarioError(f"{option} requires --line, such as --line vdsl2-pppoe")


#: The option that writes a key of the scenario.
OPTIONS = {
    "bottleneck.rate": "--rate",
    "bottleneck.buffer": "--buffer",
    "traffic.0.rtt": "--rtt",
    "traffic.0.flows": "--flows",
}


def _of_option(error: str, words: Mapping[str, str]) -> str:
    """Return an error of the unwritten scenario with the option, or the word of tc, at fault.

    Parameters
    ----------
    error : str
        The error's line.
    words : mapping
        Words of tc by the key of the scenario that they set.

    Returns
    -------
    str
        The line.
    """
    place = re.match(r"scenario:\d+: ([\w.]+): ", error)
    if place is None:
        return error
    if place[1] in words:
        return f"--tc: {words[place[1]]}: {error[place.end() :]}"
    law = re.fullmatch(r"law\.\d+\.kind", place[1])
    return f"{'--law' if law else OPTIONS.get(place[1], place[1])}: {error[place.end() :]}"
