"""What runs leave beside their traces: what programs wrote, how they ended, and captures."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.temporary import temporary_folder
from forebay.experiment.engine import Extras, ProgramEnd

if TYPE_CHECKING:
    from forebay._native import Plan

#: End of a program's output in which its last words are.
LAST_BYTES = 4000
#: Exit statuses of a shell for what it cannot run, and for what it does not find.
NOT_THERE = (126, 127)


class Keep:
    """A folder for what runs leave beside their traces, on a disk: it goes with this object."""

    def __init__(self) -> None:
        self._folder = temporary_folder()
        self.path = Path(self._folder.name)


def runs_programs(plan: Plan) -> bool:
    """Whether a traffic of a plan is a program."""
    return any(traffic.kind == "program" for point in plan.points for traffic in point.traffic)


@dataclass(frozen=True)
class Ended:
    """A program that has ended."""

    #: Index into the point's traffic.
    traffic: int
    #: "client" or "server".
    end: str
    command: str
    #: Exit status; None where it was stopped at its end.
    status: int | None
    #: What it wrote; none where it never started.
    output: Path
    #: The end of it, or why it did not start.
    last: str

    @property
    def failed(self) -> str:
        """In a line, how it failed, with its last words; empty where it did not."""
        if self.status in (0, None):
            return ""
        words = self.last.strip().splitlines()[-1:]
        said = f": {words[0]}" if words else ""
        return f"`{self.command}` of {self.end} ended with status {self.status}{said}"

    @property
    def is_no_program(self) -> bool:
        """Whether a client is not there: its run has made no traffic to speak of."""
        return self.end == "client" and self.status in NOT_THERE


def end_of(output: Path) -> str:
    """The end of what a program wrote."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def taken(keep: Keep, name: str, programs: Sequence[Ended], capture: Path) -> Extras:
    """Takes what is to stay out of a run's folder: its files are called by `name`."""
    ends, files = [], {}

    def take(found: Path, called: str) -> str:
        files[called] = keep.path / called.replace("/", "-")
        shutil.copyfile(found, files[called])
        return called

    for number, program in enumerate(programs):
        # Of one that never started there is only the reason.
        if not program.output.exists():
            program.output.write_text(program.last + "\n")
        called = take(program.output, f"programs/{name}-{number}.txt")
        end = ProgramEnd(program.traffic, program.end, program.command, program.status, called)
        ends.append(end)
    if capture.exists():
        take(capture, f"pcap/{name}.pcapng")
    return Extras(ends, files, keep)
