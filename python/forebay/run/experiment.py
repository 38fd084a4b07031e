"""Running an experiment: a scenario file becomes a plan, and the plan finished runs."""

from __future__ import annotations

import hashlib
import itertools
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from forebay import _native
from forebay._native import ScenarioError
from forebay.run import auto, memory, named, ranges, signals

if TYPE_CHECKING:
    from forebay._native import Batch, Fault, Plan, Run
    from forebay.run.prototypes import Prototype
    from forebay.store.details import StoredRun
    from forebay.store.store import Store

T = TypeVar("T")

#: Time between two fetches of finished runs.
POLL_S = 0.05


@dataclass(frozen=True)
class Description:
    """What was run: sentences on the links, one on each traffic, and the rest."""

    link: str
    traffic: list[str]
    rest: str
    #: on each link besides the bottleneck
    others: list[str] = field(default_factory=list)


#: Largest file that a scenario may name, in bytes: it is held in memory while it is read.
LARGEST_FILE = 10**9


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

    @property
    def runs(self) -> int:
        """How many runs there are to make."""
        return len(self.plan.points) * len(self.plan.laws) * len(self.plan.seeds)


@dataclass(frozen=True)
class Progress:
    """How far the runs are: `fraction` of the simulated time, and runs that have ended."""

    fraction: float
    ended: int
    runs: int
    elapsed_s: float
    #: what else there is to say, after the count
    more: str = ""

    @property
    def left_s(self) -> float | None:
        """Estimate of the time left; None before any progress."""
        if self.fraction <= 0:
            return None
        return self.elapsed_s * (1 - self.fraction) / self.fraction


@dataclass(frozen=True)
class Execution:
    """What came of an experiment: runs sorted by point, law and seed."""

    runs: list[Run]
    #: How many of them were in the store.
    found: int = field(default=0, kw_only=True)
    #: Runs that failed; after the first, the others were stopped.
    faults: list[Fault]
    interrupted: bool
    elapsed_s: float


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
    laws: Sequence[str | Prototype] | None = None,
    sets: Sequence[str] = (),
    seeds: int | None = None,
) -> Experiment:
    """Reads and checks a scenario.

    `laws` are names, or classes as `forebay.Controller` describes them, to run instead of the
    file's; `sets` are "KEY=VALUE" texts, `seeds` the number of seeds. Raises `ScenarioError`,
    with one line that says what is wrong and what is allowed.
    """
    if seeds is not None and not 0 <= seeds < 2**32:
        raise ScenarioError(f"--seeds: found {seeds}, allowed: a whole number of at least 1")
    name, text = text_of(source)
    files: dict[str, str] = {}
    read_beside = beside(name)

    def read_and_note(file: str) -> bytes | None:
        contents = read_beside(file)
        if contents is not None:
            files[file] = hashlib.sha256(contents).hexdigest()
        return contents

    whole, left, designed = auto.resolved(
        expanded(text, name), name, [_split(item) for item in sets], laws or (), read_and_note
    )
    plan = _native.plan(
        whole,
        name,
        sets=left,
        laws=list(laws or ()),
        seeds=seeds,
        read=read_and_note,
    )
    # What is in no file can be given to standard input.
    in_command = STDIN if name == NO_FILE else name
    command = _command(in_command, laws or (), sets, seeds)
    shown = whole if designed else text
    return Experiment(plan, name, shown.decode(), command, files=files, designed=designed)


def text_of(source: Source) -> tuple[str, bytes]:
    """Name and text of a scenario; it may be an experiment's (`named`). Raises `ScenarioError`."""
    if isinstance(source, Mapping):
        from forebay.run.scenario import toml  # loads tomlkit

        return NO_FILE, toml(source).encode()
    name = os.fspath(source)
    if "\n" in name:
        return NO_FILE, name.encode()
    try:
        if name == STDIN:
            text = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with named.path(name).open("rb") as file:
                text = file.read(MOST_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise named.missing(name, reason) from error
    if len(text) > MOST_BYTES:
        raise ScenarioError(
            f"{name}: found more than {MOST_BYTES >> 20} MiB, allowed: a scenario file in TOML"
        )
    return name, text


def beside(path: str | os.PathLike[str]) -> Callable[[str], bytes | None]:
    """A reader of the files that a scenario at `path` names; None for what cannot be read.

    The reader raises `ScenarioError` for a file that is too large.
    """

    folder = named.path(path).parent

    def read(name: str) -> bytes | None:
        file = folder / name
        try:
            # What is no file, such as a pipe, might never end.
            if not file.is_file():
                return None
            size = file.stat().st_size
            if size <= LARGEST_FILE:
                return file.read_bytes()
        except (OSError, ValueError):
            return None
        found = f"a file of {size / 1e9:.1f} GB"
        allowed = (
            f"at most {LARGEST_FILE / 1e9:g} GB (editcap -s 100 keeps the headers of a capture)"
        )
        raise ScenarioError(f"{os.fspath(path)}: {name}: found {found}, allowed: {allowed}")

    return read


def expanded(text: bytes, name: str) -> bytes:
    """The scenario with lists in place of the ranges and samples of its sweep. Raises
    `ScenarioError`."""
    if b"sweep" not in text:
        return text
    try:
        return ranges.expanded(text.decode(), name).encode()
    except UnicodeDecodeError:
        return text


def _split(item: str) -> tuple[str, str]:
    key, separator, value = item.partition("=")
    if not separator:
        raise ScenarioError(f'--set: found "{item}", allowed: KEY=VALUE')
    return key.strip(), value.strip()


def _command(
    path: str, laws: Sequence[str | Prototype], sets: Sequence[str], seeds: int | None
) -> str:
    words = ["forebay", "run", path]
    for law in laws:
        words += ["--law", law if isinstance(law, str) else _where(law)]
    for item in sets:
        words += ["--set", item]
    if seeds is not None:
        words += ["--seeds", str(seeds)]
    return shlex.join(words)


def _where(prototype: Prototype) -> str:
    name = getattr(prototype, "__name__", type(prototype).__name__)
    module = sys.modules.get(getattr(prototype, "__module__", ""))
    file = getattr(module, "__file__", None)
    return f"{Path(file).name if file else 'FILE.py'}:{name}"


def cores() -> int:
    """Processor cores that this process may use."""
    # Linux alone tells it of a process.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def execute(
    experiment: Experiment,
    threads: int | None = None,
    watch: Callable[[Progress], None] | None = None,
    *,
    samples: bool = True,
    store: Store | None = None,
) -> Execution:
    """Makes every run of `experiment` on `threads` threads (all cores if None).

    `watch` hears of the progress now and then. Without `samples`, runs keep only their
    metrics, which takes far less memory. What is in `store` is taken from there, and what is not
    goes there as it finishes. Ctrl-C, as other signals in a command, and a run that
    fails, stop the others;
    what had finished by then is returned.
    """
    start = time.monotonic()
    memory.check(experiment.plan, threads or cores(), samples=samples)
    if store is None:
        batch = experiment.plan.start(threads or cores(), samples=samples)
        return _watched(experiment, batch, watch, start, lambda _: None, {})
    from forebay.store import keys  # loads polars, which --json does without
    from forebay.store.rows import Facts

    with store.writer() as writer:
        plan = experiment.plan
        kept = {
            (point, law): (config, Facts.of(plan, point, law, config))
            for point in range(len(plan.points))
            for law, config in enumerate(keys.configs(plan, point))
            if config is not None
        }
        wanted = {(*at, seed): config for at, (config, _) in kept.items() for seed in plan.seeds}
        found = store.runs(wanted, samples=samples)
        every = itertools.product(range(len(plan.points)), range(len(plan.laws)), plan.seeds)
        missing = {key for key in every if key not in found}
        batch = plan.start(threads or cores(), samples=samples, only=missing)

        def keep(some: list[Run]) -> None:
            for run in some:
                if (run.point, run.law) in kept:
                    writer.add(kept[run.point, run.law][1], run, samples=samples)
            writer.tick()

        return _watched(experiment, batch, watch, start, keep, found)


def _watched(
    experiment: Experiment,
    batch: Batch,
    watch: Callable[[Progress], None] | None,
    start: float,
    keep: Callable[[list[Run]], None],
    found: Mapping[tuple[int, int, int], StoredRun],
) -> Execution:
    """Waits for a batch; `keep` gets what finishes, and `found` is there already."""
    # A stored run has the attributes of one that was just made.
    runs: list[Run] = [cast("Run", run) for run in found.values()]
    faults: list[Fault] = []

    def take() -> None:
        some, some_faults = batch.take()
        runs.extend(some)
        faults.extend(some_faults)
        keep(some)

    with signals.held() as interrupted:
        try:
            while not (batch.done or faults or interrupted):
                time.sleep(POLL_S)
                take()
                if watch:
                    elapsed_s = time.monotonic() - start
                    ended, share = len(runs) + len(faults), len(found) / max(experiment.runs, 1)
                    fraction = share + (1 - share) * batch.progress()
                    watch(Progress(fraction, ended, experiment.runs, elapsed_s))
        finally:
            batch.cancel()
            while not batch.done:
                time.sleep(POLL_S)
                # A law in Python may have caught its interruption.
                batch.cancel()
        take()
    runs.sort(key=lambda run: (run.point, run.law, run.seed))
    faults.sort(key=lambda fault: (fault.point, fault.law, fault.seed))
    elapsed_s = time.monotonic() - start
    return Execution(runs, faults, bool(interrupted), elapsed_s, found=len(found))


def unbroken(native: Callable[[], T]) -> T:
    """What native code gives that makes numpy's arrays, which panics on a Ctrl-C in the middle.

    Raises the Ctrl-C afterwards.
    """
    with signals.held() as interrupted:
        found = native()
    if interrupted:
        raise KeyboardInterrupt
    return found


def fault_in_words(plan: Plan, fault: Fault) -> str:
    """Which run failed, and how."""
    point = plan.points[fault.point].label
    at = f" at {point}" if point else ""
    return f"{plan.laws[fault.law]}{at}, seed {fault.seed}, failed: {fault.message.rstrip()}"
