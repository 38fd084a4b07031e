"""Runs of real flows over links, under way in the background; void runs are repeated up to a
bound."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from forebay._base.temporary import temporary_folder
from forebay._native import Fault, LinkPrograms, Observed, Run, ScenarioError
from forebay.experiment import engines
from forebay.experiment.engines import VOID, Ended, Keep
from forebay.linux import congestion
from forebay.linux.flow_mapping import LEAD_S, LinkPlan, Program
from forebay.linux.link_process import Emulator, LinkError

if TYPE_CHECKING:
    from forebay.experiment.engines import Extras, Key
    from forebay.linux.link_outcome import Outcome

#: How long iperf3 may take to end: its results cross the same queue.
PATIENCE_S = 30.0
#: Ends of a program's flow, as a link has them.
ENDS = ("client", "server")
#: Name of a capture in an attempt's folder.
CAPTURE = "bottleneck.pcapng"
#: Longest excerpt of a program's output, in bytes.
MOST_BYTES = 300
#: Of a run beside its metrics: how many earlier attempts were void or failed.
MADE_AGAIN = "made_again"


class FlowError(RuntimeError):
    """A real flow failed; the text is its program's output."""


class ProgramError(RuntimeError):
    """A program of the scenario is not there, which no other attempt will change."""


@dataclass(frozen=True)
class Attempt:
    """What came of one attempt: what was observed at the bottleneck, and why it is void."""

    observed: Observed
    void: list[str]
    #: What its programs did that a reader must know of, and what they left.
    remarks: Sequence[str] = ()
    extras: Extras | None = None


@dataclass(frozen=True)
class Limits:
    """When a run is void, and how often it is then made.

    attempts: runs at most for one that is not void. void_lateness, void_rate: a run is void if one
    packet in 1000 is released later, in time, or if the rate is off by more, as a share.
    """

    attempts: int = 3
    void_lateness: str = "1ms"
    void_rate: str = "0.1%"


class RealRuns:
    """Such runs under way, `links` at a time, each on a link of its own.

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
        called: Mapping[Key, str] | None = None,
    ) -> None:
        """`plans` by point and law; `keys` are the runs, in the order in which they begin; what
        they leave is called by a name for each."""
        self._plans, self._samples = plans, samples
        self._limits = limits or Limits()
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._faults: list[Fault] = []
        self._again: list[str] = []
        #: when each run that is under way has begun
        self._began_s: dict[Key, float] = {}
        self._ended = 0
        self.remarks: dict[Key, list[str]] = {}
        self.extras: dict[Key, Extras] = {}
        self._called = called or {}
        leaves = any(plan.keeps_packets or plan.has_programs for plan in plans.values())
        self._keep = Keep() if leaves else None
        self._under_way = _UnderWay()
        self._pool = ThreadPoolExecutor(links, thread_name_prefix="forebay-real")
        self._futures = [self._pool.submit(self._run, key) for key in keys]
        self._pool.shutdown(wait=False)

    @property
    def done(self) -> bool:
        return all(future.done() for future in self._futures)

    @property
    def more(self) -> str:
        """For the bar: what was made again, and why."""
        with self._lock:
            again = list(self._again)
        return f", {len(again)} made again; the last: {again[-1]}" if again else ""

    def progress(self) -> float:
        now_s = time.monotonic()
        with self._lock:
            under_way = [
                min(1.0, (now_s - began_s) / self._lasts_s(key))
                for key, began_s in self._began_s.items()
            ]
            passed = self._ended + sum(under_way)
        return passed / len(self._futures) if self._futures else 1.0

    def take(self) -> tuple[list[Run], list[Fault]]:
        with self._lock:
            found = self._runs, self._faults
            self._runs, self._faults = [], []
        return found

    def fail_longer_than(self, most_s: float) -> None:
        """Each ends by itself: a run in real time that may not last so long fails before."""

    def cancel(self) -> None:
        for future in self._futures:
            future.cancel()
        self._under_way.end()

    def _lasts_s(self, key: Key) -> float:
        return LEAD_S + self._plans[key[:2]].point.duration_s

    def _run(self, key: Key) -> None:
        try:
            run, attempt = self._attempts(key)
        except Exception as error:
            with self._lock:
                # What is given up leaves nothing.
                if not self._under_way.ended:
                    known = (
                        *(FlowError, ProgramError, LinkError, ScenarioError),
                        subprocess.TimeoutExpired,
                    )
                    why = "" if isinstance(error, known) else f"{type(error).__name__}: "
                    self._faults.append(Fault(*key, f"{why}{error}"))
        else:
            with self._lock:
                remarks = [*(f"{VOID}{why}" for why in attempt.void), *attempt.remarks]
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
        plan, former = self._plans[key[:2]], 0
        name = self._called.get(key, "")
        while True:
            if self._under_way.ended:
                raise FlowError("given up")
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
                    kept = observed if self._samples else _metrics_of(observed)
                    return Run(*key, kept), attempt
            former += 1
            with self._lock:
                self._again.append(f"{plan.law.label}, seed {key[2]}, {void[0]}")


class _UnderWay:
    """Links that are up; an interrupted thread ends those of the others."""

    def __init__(self) -> None:
        self._links: set[Emulator] = set()
        self.ended = False
        self._lock = threading.Lock()

    def add(self, link: Emulator) -> None:
        with self._lock:
            self._links.add(link)
            if self.ended:
                link.end()

    def remove(self, link: Emulator) -> None:
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
    keep: Keep | None = None,
    name: str = "",
) -> Attempt:
    """One attempt; what it leaves is called `name` and goes to `keep`."""
    with (
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryFile() as output,
        temporary_folder() as folder,
    ):
        here = Path(folder)
        programs = _Programs(plan, seed, here)
        start_s, end_s = LEAD_S, LEAD_S + plan.point.duration_s
        link = Emulator(
            plan.settings(seed, limits.void_lateness, limits.void_rate),
            plan.command(seed),
            plan.server(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            programs=programs.on_the_link,
            packets=(str(here / CAPTURE), start_s, end_s) if plan.keeps_packets else None,
            apart=plan.apart(),
        )
        under_way.add(link)
        try:
            outcome = link.wait(end_s + PATIENCE_S)
        finally:
            under_way.remove(link)
        ended = programs.ended(outcome)
        missing = [program for program in ended if program.is_no_program]
        if missing:
            raise ProgramError(missing[0].failed)
        if outcome.status != 0:
            raise FlowError(_read(errors).strip() or f"status {outcome.status}")
        # Only the client of short transfers prints a result.
        transfers = json.loads(_read(output)) if plan.short_traffic else {}
        if outcome.observed.capture_failed is not None:
            raise FlowError(f"a capture: {outcome.observed.capture_failed}")
        return Attempt(
            _at_bottleneck(plan, outcome, transfers),
            outcome.void,
            [
                *(program.failed for program in ended if program.failed),
                *_of_default(plan, outcome),
            ],
            engines.taken(keep, name, ended, here / CAPTURE) if keep else None,
        )


def _of_default(plan: LinkPlan, outcome: Outcome) -> list[str]:
    """What to know of programs that chose no congestion control: no namespace may choose freely
    what its sockets have."""
    default = outcome.congestion_control
    of_programs = outcome.directions[0].observed.tcp_flows > plan.long_flows
    if not (plan.has_programs and of_programs and congestion.warning(default)):
        return []
    return [
        f"a program's TCP has {default}, this machine's default, unless it chooses another: it "
        "hardly follows the law"
    ]


class _Programs:
    """The programs of an attempt, with what each writes in a folder of the attempt's."""

    def __init__(self, plan: LinkPlan, seed: int, folder: Path) -> None:
        self._programs = plan.programs(seed)
        draw = random.Random(f"programs {seed}")
        #: For the link, in the order of `plan.programs`.
        self.on_the_link = [
            LinkPrograms(
                program.client,
                program.server,
                str(self._where(plan, folder, program)),
                self._outputs(folder, number),
                LEAD_S + program.start_s,
                # The link has its own servers up before its command starts, and so before zero.
                LEAD_S + min(draw.uniform(*program.stop_s), plan.point.duration_s),
                program.sysctls,
            )
            for number, program in enumerate(self._programs)
        ]

    @staticmethod
    def _where(plan: LinkPlan, folder: Path, program: Program) -> Path:
        """The scenario's folder, or one that has the program's files alone."""
        if not program.files:
            return plan.folder
        own = folder / f"files-{program.traffic}"
        for name in program.files:
            link = own / name
            link.parent.mkdir(parents=True, exist_ok=True)
            # Of another flow, or named twice.
            if not link.is_symlink():
                link.symlink_to(plan.folder / name)
        return own

    @staticmethod
    def _outputs(folder: Path, number: int) -> tuple[str, str]:
        return str(folder / f"client-{number}"), str(folder / f"server-{number}")

    def ended(self, outcome: Outcome) -> list[Ended]:
        """How each ended: client, then server."""
        found = []
        for program, told, statuses in zip(
            self._programs, self.on_the_link, outcome.observed.programs, strict=True
        ):
            for end, status, output in zip(ENDS, statuses, told.outputs, strict=True):
                command = program.client if end == "client" else program.server
                if command is not None:
                    last = engines.end_of(output)
                    found.append(Ended(program.traffic, end, command, status, output, last))
        return found


def _at_bottleneck(plan: LinkPlan, outcome: Outcome, found: dict[str, float]) -> Observed:
    """The direction of the data, on the scenario's clock: the link runs before it and after it."""
    of_link = outcome.directions[0].run
    time_s, half_s = of_link.samples["time_s"] - LEAD_S, 0.5 * plan.point.sample_s
    within = (time_s > half_s) & (time_s < plan.point.duration_s + half_s)
    samples = {name: column[within] for name, column in of_link.samples.items()}
    samples["time_s"] = np.asarray(samples["time_s"] - LEAD_S)
    return Observed(
        link=plan.point.links[0].name,
        metrics=outcome.up | found,
        samples=samples,
        delay_s=of_link.delay_s,
        delay_packets=of_link.delay_packets,
        flow_traffic=of_link.flow_traffic,
        flow_goodput_bps=of_link.flow_goodput_bps,
        classes=of_link.classes,
        traffic=of_link.traffic,
        transfer_traffic=of_link.transfer_traffic,
        transfer_packets=of_link.transfer_packets,
        transfer_s=of_link.transfer_s,
        goodput=of_link.goodput,
    )


def _metrics_of(observed: Observed) -> Observed:
    """The same without its columns."""
    return Observed(
        link=observed.link,
        metrics=observed.metrics,
        samples={},
        delay_s=None,
        delay_packets=None,
        flow_traffic=None,
        flow_goodput_bps=None,
        classes=observed.classes,
        traffic=observed.traffic,
        transfer_traffic=None,
        transfer_packets=None,
        transfer_s=None,
        goodput=[],
    )


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(MOST_BYTES).decode(errors="replace")
