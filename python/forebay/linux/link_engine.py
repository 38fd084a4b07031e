"""Real flows as an engine: the kernel's own TCP over a link of `forebay link`, in real time.

A run takes as long as its scenario says, on this machine alone, and is void where the machine was
too busy; it is then repeated a few times, and in the end counts as void, with a warning. No two
runs are alike, so none is stored.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from forebay._base.temporary import temporary_folder, tidy
from forebay._native import Fault, LinkPrograms, Observed, Run, ScenarioError
from forebay.experiment import engines
from forebay.experiment.engines import EndedProgram, ExtrasFolder, Remark, file_name
from forebay.linux import flow_mapping, link_outcome
from forebay.linux.flow_mapping import LEAD_S, LinkPlan, Program
from forebay.linux.link_process import Emulator, LinkError

if TYPE_CHECKING:
    from forebay.experiment.engines import Extras, Key, Planned, RunningBatch
    from forebay.linux.link_outcome import Outcome

#: Time that iperf3 may take to end: its results cross the same queue.
PATIENCE_S = 30.0
#: Ends of a program's flow, as a link has them.
ENDS = ("client", "server")
#: Name of a capture in an attempt's folder.
CAPTURE = "bottleneck.pcapng"
#: Longest excerpt of a program's output, in bytes.
MOST_BYTES = 300
#: A run's number of earlier attempts that were void or failed, among its metrics.
MADE_AGAIN = "made_again"
#: The columns of what was observed, and what they are without their values.
COLUMNS: dict[str, Any] = {
    "samples": {},
    **dict.fromkeys(("delay_s", "delay_packets", "flow_traffic", "flow_goodput_bps")),
    **dict.fromkeys(("transfer_traffic", "transfer_packets", "transfer_s")),
    "goodput": [],
}


class FlowError(RuntimeError):
    """A real flow failed; the text is its program's output."""


class ProgramError(RuntimeError):
    """A program of the scenario does not exist, so the run is not repeated."""


@dataclass(frozen=True)
class Attempt:
    """An attempt: what was observed at the bottleneck, and the reasons why it is void."""

    observed: Observed
    void: list[str]
    #: What a reader must know of the programs of the run, and the files that they left.
    remarks: Sequence[Remark] = ()
    extras: Extras | None = None


@dataclass(frozen=True)
class Limits:
    """The limits from which on a run is void, and the number of its attempts.

    Attributes
    ----------
    attempts : int
        Largest number of attempts for one that is not void.
    void_lateness, void_rate : str
        A run is void if one packet in 1000 is released later, in time, or if the rate is off by a
        larger share.
    """

    attempts: int = 3
    void_lateness: str = "1ms"
    void_rate: str = "0.1%"


@dataclass(frozen=True)
class LinkEngine:
    """Links of this machine.

    Attributes
    ----------
    links : int
        Runs at a time, each on a link of its own; threads do not count, since runs that share a
        core would be void.
    """

    links: int = 1
    limits: Limits = field(default_factory=Limits)
    name: str = "link"
    in_words: str = "run with this machine's own TCP over a link, in real time"
    runs_programs: bool = True
    kernel_keys: tuple[str, ...] = ("pcap",)

    def check(self, experiment: Planned) -> None:
        """Raise `ScenarioError` for what real flows cannot do, and without iperf3.

        Real flows are ftp, mice, web and programs over one link that does not change.
        """
        plans = flow_mapping.link_plans(experiment)
        for plan in plans:
            plan.settings(1, self.limits.void_lateness, self.limits.void_rate)
        if any(plan.long_flows for plan in plans) and shutil.which("iperf3") is None:
            raise ScenarioError(
                "engine: link needs iperf3, which sends its flows; install it with "
                "`apt-get install iperf3`"
            )

    def version(self) -> None:
        """Return None: no two runs are alike."""

    def start(
        self,
        experiment: Planned,
        threads: int,  # noqa: ARG002
        *,
        samples: bool,
        only: Collection[Key],
    ) -> RunningBatch:
        """Start runs; laws take turns, so that a busy spell of the machine hits all of them."""
        plans = {(plan.index, plan.number): plan for plan in flow_mapping.link_plans(experiment)}
        keys = sorted(only, key=lambda key: (key[2], key[0], key[1]))
        tidy()
        names = {key: file_name(experiment.plan, key) for key in keys}
        return RealRuns(
            plans, keys, links=self.links, limits=self.limits, samples=samples, names=names
        )


class RealRuns:
    """Runs under way, `links` at a time, each on a link of its own.

    A void run, and a run with flows that fail, is repeated; the last one counts, as void, or is a
    fault. So is a machine that allows no link.
    """

    def __init__(
        self,
        plans: Mapping[tuple[int, int], LinkPlan],
        keys: Iterable[Key],
        *,
        links: int = 1,
        limits: Limits | None = None,
        samples: bool = True,
        names: Mapping[Key, str] | None = None,
    ) -> None:
        """Start runs.

        Parameters
        ----------
        plans : dict
            Plans by point and law.
        keys : iterable of Key
            The runs, in the order in which they begin.
        names : dict, optional
            Name of what each run leaves.
        """
        self._plans, self._samples = plans, samples
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._faults: list[Fault] = []
        self._again: list[str] = []
        #: Start of each run that is under way.
        self._began_s: dict[Key, float] = {}
        self._ended = 0
        self.remarks: dict[Key, list[Remark]] = {}
        self.extras: dict[Key, Extras] = {}
        self._names = names or {}
        leaves = any(plan.keeps_packets or plan.has_programs for plan in plans.values())
        self._keep = ExtrasFolder() if leaves else None
        self._under_way = _UnderWay()
        self._pool = ThreadPoolExecutor(links, thread_name_prefix="forebay-real")
        self._futures = [self._pool.submit(self._run, key) for key in keys]
        self._pool.shutdown(wait=False)

    @property
    def done(self) -> bool:
        """True once all runs have ended."""
        return all(future.done() for future in self._futures)

    @property
    def more(self) -> str:
        """The number of repeated runs and the reason of the last, for a progress bar."""
        with self._lock:
            again = list(self._again)
        if not again:
            return ""
        attempts = "attempt" if len(again) == 1 else "attempts"
        return f"; {len(again)} {attempts} void and repeated, last: {again[-1]}"

    def progress(self) -> float:
        """Return the share of the time that has passed."""

        def share(key: Key, began_s: float) -> float:
            return min(1.0, (now_s - began_s) / (LEAD_S + self._plans[key[:2]].point.duration_s))

        now_s = time.monotonic()
        with self._lock:
            passed = self._ended + sum(share(*row) for row in self._began_s.items())
        return passed / len(self._futures) if self._futures else 1.0

    def take(self) -> tuple[list[Run], list[Fault]]:
        """Return the runs and faults since the last call."""
        with self._lock:
            results = self._runs, self._faults
            self._runs, self._faults = [], []
        return results

    def fail_longer_than(self, most_s: float) -> None:
        """Do nothing: a run in real time ends by itself, or fails before it starts."""

    def cancel(self) -> None:
        """End all runs."""
        for future in self._futures:
            future.cancel()
        self._under_way.end()

    def _run(self, key: Key) -> None:
        try:
            run, attempt = self._attempts(key)
        except Exception as error:
            with self._lock:
                # A cancelled run is not a fault.
                if not self._under_way.ended:
                    expected = (FlowError, ProgramError, LinkError, ScenarioError)
                    plain = isinstance(error, (*expected, subprocess.TimeoutExpired))
                    kind = "" if plain else f"{type(error).__name__}: "
                    self._faults.append(Fault(*key, f"{kind}{error}"))
        else:
            with self._lock:
                remarks = [*(Remark("void", reason) for reason in attempt.void), *attempt.remarks]
                if remarks:
                    self.remarks[key] = remarks
                if attempt.extras is not None:
                    self.extras[key] = attempt.extras
                self._runs.append(run)
        finally:
            with self._lock:
                self._began_s.pop(key, None)
                self._ended += 1

    def _attempts(self, key: Key) -> tuple[Run, Attempt]:
        """Repeat a run until it is not void, or up to the limit."""
        plan, former = self._plans[key[:2]], 0
        name = self._names.get(key, "")
        while True:
            if self._under_way.ended:
                raise FlowError("cancelled")
            with self._lock:
                self._began_s[key] = time.monotonic()
            last = former + 1 == self._limits.attempts
            try:
                attempt = once(plan, key[2], self._limits, self._under_way, self._keep, name)
            except FlowError:
                # On a busy machine a server may come up late.
                if last or self._under_way.ended:
                    raise
                void = ["its flows failed"]
            else:
                void, observed = attempt.void, attempt.observed
                if last or not void:
                    observed.metrics[MADE_AGAIN] = former
                    result = observed if self._samples else _observed(observed, COLUMNS)
                    return Run(*key, [result]), attempt
            former += 1
            with self._lock:
                self._again.append(f"{plan.law.label}, seed {key[2]}, {void[0]}")


class _UnderWay:
    """Links that are up; an interrupted thread also ends the links of other threads."""

    def __init__(self) -> None:
        self._links: set[Emulator] = set()
        self.ended = False
        self._lock = threading.Lock()

    def wait(self, link: Emulator, timeout_s: float) -> Outcome:
        """Return the outcome of a link, which an interruption ends."""
        with self._lock:
            self._links.add(link)
            if self.ended:
                link.end()
        try:
            return link.wait(timeout_s)
        finally:
            with self._lock:
                self._links.discard(link)

    def end(self) -> None:
        with self._lock:
            self.ended = True
            for link in self._links:
                link.end()


def once(
    plan: LinkPlan,
    seed: int,
    limits: Limits,
    under_way: _UnderWay,
    keep: ExtrasFolder | None = None,
    name: str = "",
) -> Attempt:
    """Make one attempt at a run.

    Parameters
    ----------
    plan, seed : LinkPlan, int
        The link and its flows, and the seed of the run.
    limits : Limits
        Limits from which on the run is void.
    under_way : _UnderWay
        The links that an interruption ends.
    keep, name : ExtrasFolder or None, str
        Where outputs of programs and captures go, and the name of the run's files.

    Raises
    ------
    FlowError
        If a flow failed.
    ProgramError
        If a program of the scenario does not exist.
    """
    with (
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryFile() as output,
        temporary_folder() as temporary,
    ):
        folder = Path(temporary)
        programs = _Programs(plan, seed, folder)
        start_s, end_s = LEAD_S, LEAD_S + plan.point.duration_s
        link = Emulator(
            plan.settings(seed, limits.void_lateness, limits.void_rate),
            plan.command(seed),
            plan.server(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            programs=programs.on_the_link,
            packets=(str(folder / CAPTURE), start_s, end_s) if plan.keeps_packets else None,
            apart=plan.apart(),
        )
        outcome = under_way.wait(link, end_s + PATIENCE_S)
        ended_programs = programs.ended(outcome)
        _check_ended(ended_programs, outcome, errors)
        # Only the client of short transfers prints a result.
        transfers = json.loads(_read(output)) if plan.short_traffic else {}
        failed = [program.failed for program in ended_programs if program.failed]
        return Attempt(
            _at_bottleneck(plan, outcome, transfers),
            outcome.void,
            [*(Remark("program", text) for text in failed), *_default_warning(plan, outcome)],
            engines.collect_extras(keep, name, ended_programs, folder / CAPTURE) if keep else None,
        )


def _check_ended(programs: Sequence[EndedProgram], outcome: Outcome, errors: IO[bytes]) -> None:
    """Raise `ProgramError` or `FlowError` if a program does not exist, or a flow failed."""
    missing = [program for program in programs if program.is_no_program]
    if missing:
        raise ProgramError(missing[0].failed)
    if outcome.status != 0:
        raise FlowError(_read(errors).strip() or f"status {outcome.status}")
    if outcome.observed.capture_failed is not None:
        raise FlowError(f"a capture: {outcome.observed.capture_failed}")


def _default_warning(plan: LinkPlan, outcome: Outcome) -> list[Remark]:
    """Return a warning on programs that did not choose their congestion control.

    A network namespace of a user cannot choose the congestion control of its sockets freely.
    """
    default = outcome.congestion_control
    of_programs = outcome.directions[0].observed.tcp_flows > plan.long_flows
    if not (plan.has_programs and of_programs and link_outcome.congestion_warning(default)):
        return []
    text = (
        f"the congestion control of programs is {default}, this machine's default, unless they "
        "choose another; it hardly reacts to marks and drops"
    )
    return [Remark("program", text)]


class _Programs:
    """The programs of an attempt, with what each writes in a folder of the attempt's."""

    def __init__(self, plan: LinkPlan, seed: int, folder: Path) -> None:
        self._programs = plan.programs(seed)
        draw = random.Random(f"programs {seed}")
        #: The programs for the link, in the order of `plan.programs`.
        self.on_the_link = [
            LinkPrograms(
                program.client,
                program.server,
                str(self._where(plan, folder, program)),
                (str(folder / f"client-{number}"), str(folder / f"server-{number}")),
                LEAD_S + program.start_s,
                # The link has its own servers up before its command starts, and so before zero.
                LEAD_S + min(draw.uniform(*program.stop_s), plan.point.duration_s),
                program.sysctls,
            )
            for number, program in enumerate(self._programs)
        ]

    @staticmethod
    def _where(plan: LinkPlan, folder: Path, program: Program) -> Path:
        """Return the scenario's folder, or one that has the program's files alone."""
        if not program.files:
            return plan.folder
        own = folder / f"files-{program.traffic}"
        for name in program.files:
            link = own / name
            link.parent.mkdir(parents=True, exist_ok=True)
            # It is a link already for another flow, or where it is named twice.
            if not link.is_symlink():
                link.symlink_to(plan.folder / name)
        return own

    def ended(self, outcome: Outcome) -> list[EndedProgram]:
        """Return how each program ended: client, then server."""
        rows = zip(self._programs, self.on_the_link, outcome.observed.programs, strict=True)
        return [
            EndedProgram(program.traffic, end, command, status, output, engines.end_of(output))
            for program, on_link, statuses in rows
            for end, command, status, output in zip(
                ENDS, (program.client, program.server), statuses, on_link.outputs, strict=True
            )
            if command is not None
        ]


def _at_bottleneck(plan: LinkPlan, outcome: Outcome, transfers: dict[str, float]) -> Observed:
    """Return the direction of the data on the scenario's clock; the link runs longer than it."""
    of_link = outcome.directions[0].run
    time_s, half_s = of_link.samples["time_s"] - LEAD_S, 0.5 * plan.point.sample_s
    within = (time_s > half_s) & (time_s < plan.point.duration_s + half_s)
    samples = {name: column[within] for name, column in of_link.samples.items()}
    samples["time_s"] = np.asarray(samples["time_s"] - LEAD_S)
    changes = {"metrics": outcome.up | transfers, "samples": samples}
    return _observed(of_link, {"link": plan.point.links[0].name, **changes})


def _observed(observed: Observed, changes: Mapping[str, Any]) -> Observed:
    """Return what was observed, with changes."""
    names = ("link", "metrics", "classes", "traffic", *COLUMNS)
    return Observed(**{name: getattr(observed, name) for name in names} | dict(changes))


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_BYTES).decode(errors="replace")


ENGINE = LinkEngine()
