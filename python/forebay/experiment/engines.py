"""The interface between a scenario and the engines that run it.

    scenario ──▶ engine ──▶ trace

The default engine is `packets`. Every other engine is a module that defines `ENGINE`, in the room
of the system that it runs on. Everything after the trace (metrics, tables, figures, pages and the
store) uses an engine only through the protocols of this module.
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
from forebay._base.words import check_choice

if TYPE_CHECKING:
    from forebay._native import Fault, Plan, Run

#: A run of an experiment: its point and law by their indices in the plan, and its seed.
Key = tuple[int, int, int]


@dataclass(frozen=True)
class ProgramEnd:
    """The outcome of a program that was traffic of a scenario.

    Attributes
    ----------
    traffic : int
        Index into the point's traffic.
    end : str
        "client" or "server".
    command : str
        The command line of the program.
    status : int | None
        Exit status; None if it was stopped at the end of the scenario.
    output : str
        Path of its output in the folder of the result.
    """

    traffic: int
    end: str
    command: str
    status: int | None
    output: str


@dataclass(frozen=True)
class Extras:
    """Files and program outcomes of a run, in addition to its trace.

    Attributes
    ----------
    programs : Sequence[ProgramEnd]
        Outcomes of the run's programs.
    files : Mapping[str, Path]
        Path of each file at present, by its name in the folder of the result.
    holder : object, optional
        Object that keeps the files; they are deleted with it.
    """

    programs: Sequence[ProgramEnd]
    files: Mapping[str, Path]
    holder: object = None


def file_name(plan: Plan, key: Key) -> str:
    """Return the name that the files of a run share: its law, point and seed.

    Parameters
    ----------
    plan : Plan
        The plan of the experiment.
    key : Key
        Point, law and seed of the run.

    Returns
    -------
    str
        The name without a suffix; it names the point only if the plan has several.
    """
    point, law, seed = key
    return run_name(plan.laws[law], point if len(plan.points) > 1 else None, seed)


def run_name(law: str, point: int | None, seed: int) -> str:
    """Return the name of a run for files, such as "pi-p3-1".

    Parameters
    ----------
    law : str
        Label of the law; characters that a file name cannot have become "_".
    point : int | None
        Index of the point; None omits it.
    seed : int
        The seed.
    """
    label = re.sub(r"[^\w.-]+", "_", law)
    return f"{label}-{'' if point is None else f'p{point}-'}{seed}"


@dataclass(frozen=True)
class Remark:
    """A fact about a run that a reader must know before its numbers.

    Attributes
    ----------
    kind : Literal['void', 'program']
        "void" if the numbers prove nothing, for example because packets were released late;
        "program" for the outcome of a program of the scenario.
    text : str
        The fact as a clause.
    """

    kind: Literal["void", "program"]
    text: str

    def __str__(self) -> str:
        """Return the fact, after the word "void" if it makes the run void."""
        return f"void, {self.text}" if self.kind == "void" else self.text


def void(remarks: Iterable[Remark]) -> list[str]:
    """Return the texts of those remarks that make a run void."""
    return [str(remark) for remark in remarks if remark.kind == "void"]


class Planned(Protocol):
    """The input of an engine: an experiment that has been read and checked (`Experiment`)."""

    @property
    def plan(self) -> Plan:
        """The points, laws and seeds."""

    @property
    def path(self) -> str:
        """The path of the scenario, for errors; files that it names are relative to its folder."""

    @property
    def text(self) -> str:
        """The scenario as TOML, without overrides."""


class RunningBatch(Protocol):
    """Runs that proceed in the background; no method of this protocol waits for one."""

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
        """A text to add to the progress bar, such as ", 2 repeated"; mostly empty."""

    def progress(self) -> float:
        """Return the share of the work that is done, from 0 to 1."""

    def take(self) -> tuple[list[Run], list[Fault]]:
        """Return the runs that finished and the runs that failed since the last call.

        A run has every metric of `forebay._base.metrics.METRICS`, NaN where the engine has none,
        and `user_cpu_s`.
        """

    def fail_longer_than(self, most_s: float) -> None:
        """Fail each run that has been under way for longer than `most_s`; called repeatedly."""

    def cancel(self) -> None:
        """Tell the runs under way to end, and start no further run.

        The call does not wait for the runs: `done` is true once all of them have ended. Until then
        it may be repeated, which tells the remaining runs once more.
        """


class Engine(Protocol):
    """An object that runs scenarios and produces traces."""

    @property
    def name(self) -> str:
        """The name that selects the engine."""

    @property
    def in_words(self) -> str:
        """The end of a sentence about how the runs were made: "simulated packet by packet"."""

    @property
    def runs_programs(self) -> bool:
        """True if traffic may be a program (`kind = "program"`)."""

    @property
    def kernel_keys(self) -> Collection[str]:
        """The keys of a scenario's table `[kernel]` that the engine honours."""

    def check(self, experiment: Planned) -> None:
        """Check that the engine can run an experiment, before anything runs.

        Parameters
        ----------
        experiment : Planned
            The experiment.

        Raises
        ------
        ScenarioError
            If it cannot; the message is one line with the file, the key, and what would be right.
        """

    def version(self) -> str | None:
        """Return a digest of what the numbers depend on besides the scenario and Forebay itself.

        The store files a run under this version. It is empty if the numbers depend on nothing else,
        and None if runs are not repeatable, so they are not stored.
        """

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Start runs in the background and return at once.

        Parameters
        ----------
        experiment : Planned
            The experiment.
        threads : int
            The number of runs to make at a time.
        samples : bool
            False to keep only the metrics of each run.
        only : Collection[Key]
            The runs to make.

        Returns
        -------
        RunningBatch
            The runs under way.
        """


#: Name of the engine that honours the whole table `[kernel]` of a scenario.
KERNEL = "kernel"


def check_repeatable(engine: Engine) -> str:
    """Return the version of an engine whose runs can be stored.

    Raises
    ------
    ParameterError
        If its runs are not repeatable.
    """
    version = engine.version()
    if version is None:
        expected = f"an engine whose runs can be stored, such as {PACKETS.name}"
        raise ParameterError("engine", engine.name, expected, reason="its runs cannot be repeated")
    return version


class Packets:
    """The packet simulator of `forebay-sim`, with Forebay's own senders and queues."""

    name = "packets"
    in_words = "simulated packet by packet"
    runs_programs = False
    kernel_keys = ()

    def check(self, experiment: Planned) -> None:
        """Accept every scenario: whatever can be read can be simulated."""

    def version(self) -> str:
        """Return "": the version of the simulator is that of the store."""
        return ""

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Start the runs in background threads of `forebay-batch`."""
        return experiment.plan.start(threads, samples=samples, only=only)


PACKETS = Packets()


def chosen_by(engine: Engine) -> list[str]:
    """Return the words of a command that select an engine; none for the default."""
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
    """Return the engine with this name.

    Parameters
    ----------
    name : str | Engine
        Name of an engine; an engine is returned unchanged.
    key : str, default 'engine'
        Name of the parameter, for the error.

    Raises
    ------
    ParameterError
        If there is no engine with this name.
    """
    if not isinstance(name, str):
        return name
    if name == PACKETS.name:
        return PACKETS
    check_choice(key, name, NAMES)
    # Imported on demand: the modules of an engine take a while to load.
    engine: Engine = import_module(MODULES[name]).ENGINE
    return engine


#: Length of the end of a program's output that is read for its last line, in bytes.
LAST_BYTES = 4000
#: Exit statuses of a shell for a command that it cannot run, and for one that it does not find.
NOT_THERE = (126, 127)


class ExtrasFolder:
    """A temporary folder for files of runs; it is deleted with this object."""

    def __init__(self) -> None:
        self._folder = temporary_folder()
        self.path = Path(self._folder.name)


def runs_programs(plan: Plan) -> bool:
    """Return True if a traffic of a plan is a program."""
    return any(traffic.kind == "program" for point in plan.points for traffic in point.traffic)


@dataclass(frozen=True)
class EndedProgram:
    """A program of a scenario that has ended.

    Attributes
    ----------
    traffic : int
        Index into the point's traffic.
    end : str
        "client" or "server".
    command : str
        The command line of the program.
    status : int | None
        Exit status; None if it was stopped at the end of the scenario.
    output : Path
        File with the output of the program; it does not exist if the program never started.
    last : str
        The last lines of the output, or why the program did not start.
    """

    traffic: int
    end: str
    command: str
    status: int | None
    output: Path
    last: str

    @property
    def failed(self) -> str:
        """A line on how the program failed, with its last words; empty if it did not fail."""
        if self.status in (0, None):
            return ""
        words = self.last.strip().splitlines()[-1:]
        reason = f": {words[0]}" if words else ""
        return f"`{self.command}` of {self.end} ended with status {self.status}{reason}"

    @property
    def is_no_program(self) -> bool:
        """True if the program is a client that does not exist, so its run has no traffic."""
        return self.end == "client" and self.status in NOT_THERE


def end_of(output: Path) -> str:
    """Return the last `LAST_BYTES` of a program's output; empty if the file cannot be read."""
    try:
        with output.open("rb") as file:
            file.seek(max(0, output.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def collect_extras(
    keep: ExtrasFolder, name: str, programs: Sequence[EndedProgram], capture: Path
) -> Extras:
    """Copy the files of a run that the result keeps out of the run's folder.

    Parameters
    ----------
    keep : ExtrasFolder
        Receives the files.
    name : str
        Name that the files share; see `file_name`.
    programs : Sequence[EndedProgram]
        The programs of the run.
    capture : Path
        The run's capture of packets; it need not exist.

    Returns
    -------
    Extras
        Outcomes of the programs, and the files by their names in the folder of the result.
    """
    ends, files = [], {}

    def take(source: Path, name_in_result: str) -> str:
        files[name_in_result] = keep.path / name_in_result.replace("/", "-")
        shutil.copyfile(source, files[name_in_result])
        return name_in_result

    for number, program in enumerate(programs):
        # A program that never started has no output but the reason.
        if not program.output.exists():
            program.output.write_text(program.last + "\n")
        name_in_result = take(program.output, f"programs/{name}-{number}.txt")
        end = ProgramEnd(
            program.traffic, program.end, program.command, program.status, name_in_result
        )
        ends.append(end)
    if capture.exists():
        take(capture, f"pcap/{name}.pcapng")
    return Extras(ends, files, keep)
