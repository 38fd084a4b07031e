"""Engines: what takes a scenario that has been read, and gives runs, each with its trace.

    scenario ──▶ engine ──▶ trace

`packets` is the default. Each other engine is a module with its `ENGINE`, in the room of what it
runs on. What comes after them (metrics, tables, figures, pages and the store) uses of an engine
what is declared here.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from forebay._base.errors import ParameterError
from forebay._base.temporary import temporary_folder

if TYPE_CHECKING:
    from forebay._native import Fault, Plan, Run

#: A run of an experiment: its point and law by their indices in the plan, and its seed.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class ProgramEnd:
    """How a program of a scenario ended."""

    #: Index into the point's traffic.
    traffic: int
    #: "client" or "server".
    end: str
    command: str
    #: Exit status; None where it was stopped at the scenario's end.
    status: int | None
    #: Where the result has what it wrote.
    output: str


@dataclass(frozen=True)
class Extras:
    """What a run leaves beside its trace."""

    programs: Sequence[ProgramEnd]
    #: Files by their names in the result's folder, and where they are until then.
    files: Mapping[str, Path]
    #: What keeps them there.
    holder: object = None


def file_name(plan: Plan, key: Key) -> str:
    """Of what a run leaves: the law's label, the number of the point where there are several, and
    the seed."""
    point, law, seed = key
    return run_name(plan.laws[law], point if len(plan.points) > 1 else None, seed)


def run_name(law: str, point: int | None, seed: int) -> str:
    """Such a name of parts; `point` is None where it is the only one."""
    label = re.sub(r"[^\w.-]+", "_", law)
    return f"{label}-{'' if point is None else f'p{point}-'}{seed}"


@dataclass(frozen=True)
class Remark:
    """A fact about a run that a reader must know before its numbers, and its kind.

    kind: "void" where the numbers prove nothing, as of packets that came late; "program" for what a
        program of the scenario did.
    """

    kind: Literal["void", "program"]
    text: str

    def __str__(self) -> str:
        return f"void, {self.text}" if self.kind == "void" else self.text


def void(remarks: Iterable[Remark]) -> list[str]:
    """Return those of a run's remarks that make it void, in words."""
    return [str(remark) for remark in remarks if remark.kind == "void"]


class Planned(Protocol):
    """The input of an engine: an experiment (`experiment.Experiment`) that has been read and
    checked."""

    @property
    def plan(self) -> Plan:
        """Points, laws and seeds."""

    @property
    def path(self) -> str:
        """The path of the scenario, for errors; files that it names are relative to its folder."""

    @property
    def text(self) -> str:
        """The scenario as TOML, without overrides."""


class RunningBatch(Protocol):
    """Runs under way, which go on by themselves: no call of these waits for one."""

    @property
    def done(self) -> bool:
        """True if every run has ended, or was cancelled and has left nothing."""

    @property
    def remarks(self) -> Mapping[Key, Sequence[Remark]]:
        """Facts that a reader must know of a run before its numbers, by run.

        Remarks become warnings of the result, and a run with a remark is not stored.
        """

    @property
    def extras(self) -> Mapping[Key, Extras]:
        """Files of runs for the result's folder, in addition to the trace; most have none."""

    @property
    def more(self) -> str:
        """A text to add to the progress bar, such as ", 2 made again"; mostly empty."""

    def progress(self) -> float:
        """Share of the work that is done: 0 to 1."""

    def take(self) -> tuple[list[Run], list[Fault]]:
        """Return the runs that finished and the runs that failed since the last call.

        A run has every metric of `forebay._base.metrics.METRICS`, NaN where the engine has none,
        and `user_cpu_s`.
        """

    def fail_longer_than(self, most_s: float) -> None:
        """Fails each run that has been under way for longer; called now and then."""

    def cancel(self) -> None:
        """Ends the runs soon, and starts no further one. May be called again until `done`."""


class Engine(Protocol):
    """Something that takes a scenario and gives traces."""

    @property
    def name(self) -> str:
        """The name by which it is chosen."""

    @property
    def in_words(self) -> str:
        """What made the runs, as a sentence of a report ends: "simulated packet by packet"."""

    @property
    def runs_programs(self) -> bool:
        """Whether traffic may be programs (`kind = "program"`)."""

    @property
    def kernel_keys(self) -> Collection[str]:
        """Keys of a scenario's table `[kernel]` that it follows."""

    def check(self, experiment: Planned) -> None:
        """Refuses what this engine cannot run, before anything runs. Raises `ScenarioError`, with
        one line that has the file, the key, what was found and what is allowed."""

    def version(self) -> str | None:
        """What the numbers of a run depend on beside the scenario and the version of the
        simulator: the digest of a stored run has it. Empty where there is nothing; None where runs
        are not repeatable, which keeps them out of the store."""

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Starts the runs in `only`, `threads` at a time, and returns at once.

        Without `samples`, runs keep only their metrics.
        """


#: Name of the engine that follows all of the table `[kernel]` of a scenario.
KERNEL = "kernel"


def check_repeatable(engine: Engine) -> str:
    """The version of an engine. Raises `ParameterError` for one whose runs cannot be kept."""
    version = engine.version()
    if version is None:
        expected = f"one whose runs can be kept, such as {PACKETS.name}"
        raise ParameterError(
            "engine", engine.name, expected, reason="no two runs of which are alike"
        )
    return version


class Packets:
    """Our own senders and queues, packet by packet: the simulator of `forebay-sim`."""

    name = "packets"
    in_words = "simulated packet by packet"
    runs_programs = False
    kernel_keys = ()

    def check(self, experiment: Planned) -> None:
        """Every scenario that can be read can be run."""

    def version(self) -> str:
        """The version of the simulator is that of the store."""
        return ""

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Runs in background threads of `forebay-batch`."""
        return experiment.plan.start(threads, samples=samples, only=only)


PACKETS = Packets()


def chosen_by(engine: Engine) -> list[str]:
    """The words of a command that choose an engine; none for the default."""
    return [] if engine.name == PACKETS.name else ["--engine", engine.name]


#: The module of each engine but the default.
MODULES = {
    "fluid": "forebay.fluid.engine",
    "kernel": "forebay.linux.kernel_engine",
    "link": "forebay.linux.link_engine",
}
#: The names of all engines; the first is the default.
NAMES = (PACKETS.name, *MODULES)


def named(name: str | Engine, key: str = "engine") -> Engine:
    """Return the engine with this name; an engine is returned as it is.

    Raises `ParameterError` for an unknown name; `key` is that of the parameter.
    """
    if not isinstance(name, str):
        return name
    if name == PACKETS.name:
        return PACKETS
    if name not in NAMES:
        raise ParameterError(key, name, ", ".join(NAMES))
    # Loaded when it is asked for: what an engine needs takes a while.
    engine: Engine = import_module(MODULES[name]).ENGINE
    return engine


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
    """Return True if a traffic of a plan is a program."""
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
        """A line on how the program failed, with its last words; empty if it did not fail."""
        if self.status in (0, None):
            return ""
        words = self.last.strip().splitlines()[-1:]
        said = f": {words[0]}" if words else ""
        return f"`{self.command}` of {self.end} ended with status {self.status}{said}"

    @property
    def is_no_program(self) -> bool:
        """True if the program is a client that does not exist, so that its run has no traffic."""
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
