"""Reading an experiment: a scenario file becomes a plan, which has been checked."""

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
    """What was run: sentences on the links, one on each traffic, and the rest."""

    link: str
    traffic: list[str]
    rest: str
    #: on each link besides the bottleneck
    others: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Experiment:
    """A scenario that has been read and checked, with what was chosen on top of the file."""

    plan: Plan
    path: str
    text: str
    #: The command that makes the same runs.
    command: str
    #: What was run, in words; written from the plan where it is None.
    description: Description | None = None
    #: What a reader must know before the numbers.
    warning: str = ""
    #: Points with nothing to compare: an overview leaves them out.
    idle: Sequence[int] = ()
    #: Files that the scenario names, each with a hash of its contents.
    files: dict[str, str] = field(default_factory=dict)
    #: Lines on laws that were designed for the scenario.
    designed: Sequence[str] = ()
    #: What makes the runs.
    engine: Engine = PACKETS

    @property
    def made_by(self) -> str:
        """The name of the engine."""
        return self.engine.name

    @property
    def runs(self) -> int:
        """How many runs there are to make."""
        return len(self.plan.points) * len(self.plan.laws) * len(self.plan.seeds)

    @cached_property
    def digest(self) -> str:
        """The digest of all that the numbers depend on but the seeds: engine, points and laws.

        How the file is spelled, its prose and its place are not in it. Of a law in Python it has
        the contents of the file that it comes from.
        """
        from forebay.experiment import run_rows  # loads polars

        made = run_rows.MadeBy(self.engine.name, self.engine.version() or self.engine.name)
        points = range(len(self.plan.points))
        configs = [run_rows.configs(self.plan, p, made, prototypes=True) for p in points]
        return digest_of([self.engine.name, configs])


#: A scenario file may have so many bytes; what never ends, such as /dev/zero, has more.
MOST_BYTES = 16 << 20
#: Stands for standard input.
STDIN = "-"
#: Name in errors of a scenario without a file.
NO_FILE = "scenario"

#: A file, "-" for standard input, TOML in a text of several lines, or its tables.
Source = str | os.PathLike[str] | Mapping[str, Any]


def read(
    source: Source,
    *,
    laws: str | Prototype | Sequence[str | Prototype] | None = None,
    overrides: Overrides = (),
    seeds: int | None = None,
    engine: Engine = PACKETS,
) -> Experiment:
    """Reads and checks a scenario, whatever is to be made of it.

    `laws` are names, or classes as `forebay.Controller` describes them, to run instead of the
    file's; `overrides` are set on top of it, and `seeds` is the number of seeds. `engine` makes
    its runs. Raises `ScenarioError`, with one line that says what is wrong and what is
    allowed, also where the engine cannot run it.
    """
    check_seeds(seeds)
    laws = quantities.listed(laws)
    name, text = text_of(source)
    pairs = quantities.set_pairs(overrides)
    files = FilesBeside(name, pairs)
    plan = _native.plan(
        text,
        name,
        overrides=pairs,
        laws=laws,
        seeds=seeds,
        read=files,
        programs=engine.runs_programs,
    )
    hashes = {file: hashlib.sha256(found).hexdigest() for file, found in files.found.items()}
    # What is in no file can be given to standard input.
    in_command = STDIN if name == NO_FILE else name
    command = _command(in_command, laws, pairs, seeds, engine)
    shown = text.decode()
    if plan.designed:
        shown = automatic_gains.written(shown, plan.designed)
    lines = automatic_gains.lines(plan)
    unread = [f"kernel.{key}" for key in plan.kernel_keys if key not in engine.kernel_keys]
    count = "counts" if len(unread) == 1 else "count"
    keys = ", ".join(unread)
    warning = f"{name}: {keys} {count} with the engine {KERNEL} alone" if unread else ""
    read = Experiment(
        plan,
        name,
        shown,
        command,
        warning=warning,
        files=hashes,
        designed=lines,
        engine=engine,
    )
    engine.check(read)
    return read


def check_seeds(seeds: int | None) -> None:
    """Raise `ScenarioError` unless `seeds` is a number of seeds, or None."""
    if seeds is not None and (isinstance(seeds, bool) or not hasattr(seeds, "__index__")):
        expected = "a whole number of at least 1, such as 5 for the seeds 1 to 5"
        raise ParameterError("seeds", repr(seeds), expected)
    if seeds is not None and not 0 <= seeds < 2**32:
        raise ParameterError("seeds", seeds, "a whole number of at least 1")


def text_of(source: Source) -> tuple[str, bytes]:
    """Name and text of a scenario; it may be an experiment's (`named`). Raises `ScenarioError`."""
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
            f"{name}: found more than {MOST_BYTES >> 20} MiB, allowed: a scenario file in TOML"
        )
    return name, text


class FilesBeside:
    """Reads the files that a scenario at `path` names, and keeps in `found` what was in them.

    overrides: keys that were set on top of it; what they name may be a file as from here.
    """

    def __init__(
        self, path: str | os.PathLike[str], overrides: Sequence[tuple[str, str]] = ()
    ) -> None:
        self._path = os.fspath(path)
        self._from_here = {value.strip("\"'") for _, value in overrides}
        self.found: dict[str, bytes] = {}

    def __call__(self, name: str) -> bytes | None:
        """None for what cannot be read. Raises `ScenarioError` for a file that is too large."""
        file = names.path(self._path).parent / name
        if name in self._from_here and not file.exists():
            file = Path(name)
        try:
            # What is no file, such as a pipe, might never end.
            if not file.is_file():
                return None
            size = file.stat().st_size
            if size <= MOST_DATA_BYTES:
                self.found[name] = file.read_bytes()
                return self.found[name]
        except (OSError, ValueError):
            return None
        raise ScenarioError(
            f"{self._path}: {name}: found a file of {size / 1e9:.1f} GB, allowed: at most "
            f"{MOST_DATA_BYTES / 1e9:g} GB (editcap -s 100 keeps the headers of a capture)"
        )


def _command(
    path: str,
    laws: Sequence[str | Prototype],
    overrides: Sequence[tuple[str, str]],
    seeds: int | None,
    engine: Engine,
) -> str:
    words = ["forebay", "run", path, *chosen_by(engine)]
    for law in laws:
        words += ["--law", law if isinstance(law, str) else _where(law)]
    for key, value in overrides:
        words += ["--set", f"{key}={value}"]
    if seeds is not None:
        words += ["--seeds", str(seeds)]
    return shlex.join(words)


def _where(prototype: Prototype) -> str:
    name = getattr(prototype, "__name__", type(prototype).__name__)
    module = sys.modules.get(getattr(prototype, "__module__", ""))
    file = getattr(module, "__file__", None)
    return f"{Path(file).name if file else 'FILE.py'}:{name}"
