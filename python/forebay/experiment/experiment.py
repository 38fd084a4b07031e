"""Read an experiment: a scenario file becomes a plan that has been checked."""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import forebay._native as _native
from forebay._base import quantities
from forebay._base.errors import ParameterError, reason_of
from forebay._base.input_file import MOST_DATA_BYTES
from forebay._base.publication import digest_of
from forebay._base.registries import scenario_pairs
from forebay._native import ScenarioError
from forebay.experiment import automatic_gains
from forebay.experiment.engines import KERNEL, PACKETS, chosen_by
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._base.quantities import Overrides
    from forebay._native import Plan
    from forebay.experiment.engines import Engine
    from forebay.scenario.python_laws import Prototype


@dataclass(frozen=True)
class Description:
    """The description of an experiment in sentences.

    Attributes
    ----------
    link : str
        Sentences on the bottleneck.
    traffic : list[str]
        A sentence on each traffic.
    rest : str
        Sentences on the duration, the window of measurement and the seeds.
    other_links : list[str]
        A sentence on each link besides the bottleneck.
    """

    link: str
    traffic: list[str]
    rest: str
    other_links: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """A scenario that has been read and checked, with what was chosen on top of the file.

    Attributes
    ----------
    plan : Plan
        Points, laws and seeds.
    path : str
        Path of the scenario, for messages.
    text : str
        The scenario as TOML, without overrides.
    command : str
        The command that makes the same runs.
    description : Description, optional
        The experiment in words; None writes it from the plan.
    warning : str, default ''
        What a reader must know before the numbers.
    idle : Sequence[int], default ()
        Points with nothing to compare, which an overview omits.
    files : dict[str, str]
        Files that the scenario names, each with a hash of its contents.
    designed : Sequence[str], default ()
        Lines on laws that were designed for the scenario.
    engine : Engine, default PACKETS
        The engine that makes the runs.
    """

    plan: Plan
    path: str
    text: str
    command: str
    description: Description | None = None
    warning: str = ""
    idle: Sequence[int] = ()
    files: dict[str, str] = field(default_factory=dict)
    designed: Sequence[str] = ()
    engine: Engine = PACKETS

    @property
    def made_by(self) -> str:
        """The name of the engine."""
        return self.engine.name

    @property
    def runs(self) -> int:
        """The number of runs to make."""
        return len(self.plan.points) * len(self.plan.laws) * len(self.plan.seeds)

    @cached_property
    def digest(self) -> str:
        """The digest of everything that the numbers depend on except the seeds.

        It covers the engine, the points and the laws, but not how the file is spelled, its prose
        and its path. For a law in Python it covers the contents of the file that defines it.
        """
        from forebay.experiment import run_rows  # loads polars

        made_by = run_rows.MadeBy(self.engine.name, self.engine.version() or self.engine.name)
        points = range(len(self.plan.points))
        configs = [run_rows.configs(self.plan, p, made_by, prototypes=True) for p in points]
        return digest_of([self.engine.name, configs])


#: The largest scenario file, in bytes; an endless file, such as /dev/zero, exceeds it.
MOST_BYTES = 16 << 20
#: The name of standard input.
STDIN = "-"
#: The name, in errors, of a scenario without a file.
NO_FILE = "scenario"

#: A scenario: a file, "-" for standard input, TOML in a text of several lines, or its tables.
Source = str | os.PathLike[str] | Mapping[str, Any]


def read(
    source: Source,
    *,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    overrides: Overrides = (),
    seeds: int | None = None,
    engine: Engine = PACKETS,
) -> Experiment:
    """Read and check a scenario.

    Parameters
    ----------
    source : Source
        A TOML file, "-" for standard input, a text of several lines, or the tables of a scenario.
    laws : str | Prototype | Sequence[str | Prototype], optional
        Names of laws, or classes like `forebay.Controller`, that replace the laws of the file.
    overrides : Overrides, default ()
        Keys to set on top of the file.
    seeds : int, optional
        The number of seeds; that of the file by default.
    engine : Engine, default PACKETS
        The engine that makes the runs.

    Returns
    -------
    Experiment
        The experiment, ready to be executed.

    Raises
    ------
    ScenarioError
        If the scenario is wrong, or the engine cannot run it; the message is one line that says
        what is wrong and what would be right.
    """
    check_seeds(seeds)
    laws = quantities.listed(laws)
    name, text = text_of(source)
    pairs = scenario_pairs(overrides)
    files = FilesBeside(name, pairs)
    plan = _native.plan(
        text, name, overrides=pairs, laws=laws, seeds=seeds, read=files,
        programs=engine.runs_programs,
    )  # fmt: skip
    hashes = {file: hashlib.sha256(data).hexdigest() for file, data in files.contents.items()}
    # A scenario without a file can be passed to the command on standard input.
    in_command = STDIN if name == NO_FILE else name
    command = _command(in_command, laws, pairs, seeds, engine)
    scenario_text = text.decode()
    if plan.designed:
        scenario_text = automatic_gains.written(scenario_text, plan.designed)
    experiment = Experiment(
        plan, name, scenario_text, command, warning=_unread_keys(name, plan, engine), files=hashes,
        designed=automatic_gains.lines(plan), engine=engine,
    )  # fmt: skip
    engine.check(experiment)
    return experiment


def _unread_keys(name: str, plan: Plan, engine: Engine) -> str:
    """Return a warning of keys of the kernel that the engine does not read; empty without any."""
    unread = [f"kernel.{key}" for key in plan.kernel_keys if key not in engine.kernel_keys]
    if not unread:
        return ""
    count = "counts" if len(unread) == 1 else "count"
    return f"{name}: {', '.join(unread)} {count} with the engine {KERNEL} alone"


def check_seeds(seeds: int | None) -> None:
    """Raise `ParameterError` unless `seeds` is a positive number of seeds, or None."""
    if seeds is not None and (isinstance(seeds, bool) or not hasattr(seeds, "__index__")):
        expected = "a whole number of at least 1, such as 5 for the seeds 1 to 5"
        raise ParameterError("seeds", repr(seeds), expected)
    if seeds is not None and not 0 <= seeds < 2**32:
        raise ParameterError("seeds", seeds, "a whole number of at least 1")


def text_of(source: Source) -> tuple[str, bytes]:
    """Return the name and the text of a scenario.

    Parameters
    ----------
    source : Source
        As for `read`; a name may also be that of an experiment of the papers.

    Raises
    ------
    ScenarioError
        If the file cannot be read, or is too large to be a scenario.
    """
    if isinstance(source, Mapping):
        from forebay.scenario.builder import toml  # loads tomlkit

        return NO_FILE, toml(source).encode()
    name = os.fspath(source)
    if "\n" in name:
        return NO_FILE, name.encode()
    try:
        if name == STDIN:
            text = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with names.path(name).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise names.missing(name, reason_of(error)) from error
    if len(text) > MOST_BYTES:
        raise ScenarioError(
            f"{name}: larger than {MOST_BYTES >> 20} MiB; a scenario is a short file in TOML"
        )
    return name, text


class FilesBeside:
    """A reader of the files that a scenario names, relative to the folder of the scenario.

    Parameters
    ----------
    path : str or path
        The scenario. P overrides (sequence of pairs, default ()): Keys that were set on top of it;
        a file that they name may be relative to the working directory.

    Attributes
    ----------
    contents : dict of str to bytes
        The contents of the files that were read, by name.
    """

    def __init__(
        self, path: str | os.PathLike[str], overrides: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._path = os.fspath(path)
        self._from_here = {value.strip("\"'") for _, value in overrides}
        self.contents: dict[str, bytes] = {}

    def __call__(self, name: str) -> bytes | None:
        """Return the contents of a file; None if it cannot be read.

        Raises
        ------
        ScenarioError
            If the file is too large.
        """
        file = names.path(self._path).parent / name
        if name in self._from_here and not file.exists():
            file = Path(name)
        try:
            # A pipe or a device might never end.
            if not file.is_file():
                return None
            size = file.stat().st_size
            if size <= MOST_DATA_BYTES:
                self.contents[name] = file.read_bytes()
                return self.contents[name]
        except (OSError, ValueError):
            return None
        raise ScenarioError(
            f"{self._path}: {name}: the file has {size / 1e9:.1f} GB, and at most "
            f"{MOST_DATA_BYTES / 1e9:g} GB are read (editcap -s 100 keeps the headers of a capture)"
        )


def _command(
    path: str,
    laws: Sequence[str | Prototype],
    overrides: Sequence[tuple[str, str]],
    seeds: int | None,
    engine: Engine,
) -> str:
    """Return the command that makes the runs of an experiment."""
    words = ["forebay", "run", path, *chosen_by(engine)]
    for law in laws:
        words += ["--law", law if isinstance(law, str) else _where(law)]
    for key, value in overrides:
        words += ["--set", f"{key}={value}"]
    if seeds is not None:
        words += ["--seeds", str(seeds)]
    return shlex.join(words)


def _where(prototype: Prototype) -> str:
    """Return FILE:CLASS of a law in Python, as `--law` takes it."""
    name = getattr(prototype, "__name__", type(prototype).__name__)
    module = sys.modules.get(getattr(prototype, "__module__", ""))
    file = getattr(module, "__file__", None)
    return f"{Path(file).name if file else 'FILE.py'}:{name}"
