"""The engine `kernel`: the real Linux kernel in guests with virtual time.

Senders are the kernel's; queues are the kernel's or Forebay's. Each run is a guest of its own, a
process that needs no privileges and ends with the process that started it.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import temporary
from forebay._base.temporary import own_prefix
from forebay._native import Fault, guest_check, guest_orders, guest_run
from forebay.experiment import engines
from forebay.experiment.engines import (
    KERNEL,
    EndedProgram,
    ExtrasFolder,
    Remark,
    file_name,
    runs_programs,
)
from forebay.linux import guests
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._native import Plan, Run
    from forebay.experiment.engines import Extras, Key, Planned, RunningBatch
    from forebay.linux.guests import Guest

#: Share of an interval that a guest may wait for its processor before it moves to the next one.
MOST_WAITING = 0.25
INTERVAL_S = 0.5
#: A file system in memory, where there is one: guests write packets there.
MEMORY = Path("/dev/shm")
#: Free memory that a guest needs: the pages that it touches, and its rows.
LEAST_FREE_BYTES = 256 << 20
#: Path of a run's folder for its guest. It is the same for every run, because the kernel's random
#: numbers also depend on its command line.
HERE = "/proc/self/cwd"
#: Capture of the bottleneck, if the scenario asks for one.
CAPTURE = "bottleneck.pcapng"
#: Memory of a guest; unused memory is not taken from the machine.
MEMORY_MB = 1024
#: Start of every run in the guest's own time: 2026-01-01.
START_NS = 1_767_225_600 * 10**9
#: Time between two looks at a guest.
POLL_S = 0.05
#: CPU time without a step of the guest's clock after which a guest is stopped.
STILL_S = 60.0
#: Lines of a guest's console that a failure shows.
LAST_LINES = 6
#: The guest's kernel and its arguments, but for the kernel itself. The process ends with the thread
#: that waits for it, however that ends.
SUPERVISED = ["setpriv", "--pdeathsig", "KILL"]
ARGUMENTS = [
    f"mem={MEMORY_MB}M",
    *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={HERE}/init"),
    *("con=null", "con0=null,fd:1", "ssl=null", "quiet", "seccomp=auto"),
    # A processor without limits: time passes only while nothing is to be done.
    *("time-travel=inf-cpu", f"time-travel-start={START_NS}"),
    *("umid=guest", f"uml_dir={HERE}/"),
    *(f"FOREBAY_RUN={HERE}", f"FOREBAY_TOOLS={HERE}/tools/."),
]

#: Guests of this process by processor.
_taken: Counter[int] = Counter()
_lock = threading.Lock()


class GuestError(RuntimeError):
    """A guest that failed, in one line."""


# --- the processor of a guest -------------------------------------------------------------------


class Placement:
    """The processor of a running guest.

    A guest keeps to one processor, because a system call of its programs takes two task switches,
    which cost several times as much between processors.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # Processes of Forebay start at different processors.
        usable = sorted(os.sched_getaffinity(0))
        turn = os.getpid() % len(usable)
        self._processors = usable[turn:] + usable[:turn]
        with _lock:
            self._processor = min(self._processors, key=lambda processor: _taken[processor])
            _taken[self._processor] += 1
        self._seen_s, self._waited_s = 0.0, 0.0
        self._bind()

    def watch(self, now_s: float) -> None:
        """Move the guest to another processor if its own is busy; to be called regularly."""
        if now_s - self._seen_s < INTERVAL_S:
            return
        waited_s = self._waiting_s()
        waiting = (waited_s - self._waited_s) / (now_s - self._seen_s)
        first = self._seen_s == 0.0
        self._seen_s, self._waited_s = now_s, waited_s
        if first or waiting < MOST_WAITING or len(self._processors) == 1:
            return
        place = self._processors.index(self._processor)
        with _lock:
            _taken[self._processor] -= 1
            self._processor = self._processors[(place + 1) % len(self._processors)]
            _taken[self._processor] += 1
        self._bind()

    def end(self) -> None:
        """Release the processor."""
        with _lock:
            _taken[self._processor] -= 1

    def _bind(self) -> None:
        for pid in (self._pid, *_children(self._pid)):
            # The process may have ended, or the machine may forbid it.
            with suppress(OSError):
                os.sched_setaffinity(pid, {self._processor})

    def _waiting_s(self) -> float:
        """Return the time that the guest has waited for a processor since it began.

        See Documentation/scheduler/sched-stats.rst.
        """
        try:
            return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0


def _children(pid: int) -> list[int]:
    """Return the processes below a guest's own: its programs, while they run (proc(5))."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except (OSError, ValueError):
        return []


def _cpu_s(pid: int) -> float:
    """Return user and system time of a guest that runs (proc(5)).

    That is of its kernel, of programs that have ended, and of those that run, which are processes
    below it.
    """
    programs = sum(_ticks(Path(f"/proc/{child}"), 2) for child in _children(pid))
    return (_ticks(Path(f"/proc/{pid}"), 4) + programs) / os.sysconf("SC_CLK_TCK")


def _ticks(process: Path, times: int) -> int:
    """Return the first two times of a process, or four with those of its ended children."""
    try:
        columns = (process / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, columns[11 : 11 + times]))
    except (OSError, ValueError):
        return 0


# --- one run ------------------------------------------------------------------------------------


def tidy() -> None:
    """Remove folders of processes that were killed."""
    temporary.tidy([MEMORY])


def _memory() -> Path:
    """Return where the folder of a new run goes."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    # A container often has little of it.
    if usable and shutil.disk_usage(MEMORY).free >= LEAST_FREE_BYTES:
        return MEMORY
    return Path(tempfile.gettempdir())


@dataclass
class GuestRun:
    """A run of a plan: `execute` runs it, and `cancel` ends it from another thread."""

    plan: Plan
    key: Key
    guest: Guest
    #: True to keep the samples.
    samples: bool
    #: Folder of the scenario, where programs run.
    scenario: Path
    #: Name of the run's files, and their folder; None if the run leaves no files.
    name: str = ""
    keep: ExtrasFolder | None = None
    #: True for a queue of Forebay's, even if the kernel has the law.
    ours: bool = False
    cancelled: bool = False
    #: What a reader must know of the run.
    remarks: list[Remark] = field(default_factory=list)
    #: The files that the run has left.
    extras: Extras | None = None
    _folder: Path | None = None
    _process: subprocess.Popen[bytes] | None = None
    #: As wait4(2) has it.
    _status: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def execute(self) -> Run:
        """Run the guest to its end. Raises `GuestError`."""
        folder = Path(tempfile.mkdtemp(prefix=own_prefix(), dir=_memory()))
        try:
            return self._execute(folder)
        finally:
            self._folder = None
            shutil.rmtree(folder, ignore_errors=True)

    def _execute(self, folder: Path) -> Run:
        several_calls, scenario = self.guest.several_calls, str(self.scenario)
        orders, kernels, files = guest_orders(
            self.plan, *self.key, ours=self.ours, several_calls=several_calls, folder=scenario
        )
        (folder / "orders.json").write_text(orders)
        for number, contents in enumerate(files):
            (folder / str(number)).write_bytes(contents)
        with (folder / "console").open("wb") as console:
            user_cpu_s = self._run(folder, console.fileno())
        if self.cancelled:
            raise GuestError("was cancelled")
        try:
            run, outcome = guest_run(
                self.plan, *self.key, folder, user_cpu_s, kernels=kernels, samples=self.samples
            )
        except RuntimeError as error:
            raise GuestError(f"{error}{self._cause(folder)}{_last_lines(folder)}") from error
        programs = [
            EndedProgram(
                *(program["traffic"], program["end"], program["command"], program["status"]),
                folder / f"program-{number}",
                program["output"],
            )
            for number, program in enumerate(json.loads(outcome)["programs"])
        ]
        if self.keep is not None:
            self.extras = engines.collect_extras(self.keep, self.name, programs, folder / CAPTURE)
        for program in programs:
            # Without its client a run has no traffic; the end of the client's output says why.
            if program.is_no_program:
                raise GuestError(program.failed)
            if program.failed:
                self.remarks.append(Remark("program", program.failed))
        return run

    def _cause(self, folder: Path) -> str:
        """Return what ended a guest that did not come to its end, as far as it is known."""
        cause = ""
        if self._status and os.WIFSIGNALED(self._status):
            cause = f"; it was ended by {signal.Signals(os.WTERMSIG(self._status)).name}"
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE_BYTES:
            cause += (
                f"; {folder.parent} has {free >> 20} MiB free, and a guest takes up to "
                f"{LEAST_FREE_BYTES >> 20} MiB"
            )
        return cause

    def _run(self, folder: Path, console: int) -> float:
        """Run the guest's process, and return its CPU time."""
        (folder / "init").symlink_to(guests.PROGRAM)
        (folder / "tools").symlink_to(self.guest.tools)
        with self._lock:
            if self.cancelled:
                return 0.0
            self._folder = folder
            self._process = subprocess.Popen(
                [*SUPERVISED, str(self.guest.kernel), *ARGUMENTS],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env={
                    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
                    "HOME": "/",
                    "TMPDIR": str(folder),
                    # The kernel's random numbers (arch/um, os_getrandom) come from the seed alone.
                    "FOREBAY_SEED": str(self.key[2]),
                },
                start_new_session=True,
            )
            placement = Placement(self._process.pid)
        try:
            used = self._wait(self._process.pid, placement)
        finally:
            placement.end()
        with self._lock:
            # wait4 has taken its status; what is left of its group ends, too.
            self._process.returncode = 0
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None
        return used.ru_utime + used.ru_stime

    def _wait(self, pid: int, placement: Placement) -> resource.struct_rusage:
        """Wait until the guest has ended. Raises `GuestError` where its time stands still."""
        passed_s, since_s = 0.0, 0.0
        while True:
            ended_pid, self._status, used = os.wait4(pid, os.WNOHANG)
            if ended_pid:
                return used
            time.sleep(POLL_S)
            placement.watch(time.monotonic())
            now_s, cpu_s = self.passed_s(), _cpu_s(pid)
            if now_s > passed_s:
                passed_s, since_s = now_s, cpu_s
            elif cpu_s - since_s > STILL_S:
                # Nobody has cancelled it: its failure is reported.
                self._kill()
                os.wait4(pid, 0)
                raise GuestError(
                    f"the guest's clock stood still for {STILL_S:g} s of CPU time after "
                    f"{passed_s:g} s, because a program polls the clock without sleeping"
                )

    def cancel(self) -> None:
        """End the guest at once."""
        with self._lock:
            self.cancelled = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def passed_s(self) -> float:
        """Return the simulated time that has passed."""
        folder = self._folder
        if folder is None:
            return 0.0
        try:
            lines = (folder / "progress").read_bytes().splitlines()
            return int(lines[-1]) / 1e9 if lines else 0.0
        except (OSError, ValueError):
            return 0.0


def _last_lines(folder: Path) -> str:
    try:
        console = (folder / "console").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [line.strip() for line in console if line.strip() and "Power down" not in line]
    return f"; its last lines: {' | '.join(lines[-LAST_LINES:])}" if lines else ""


# --- the engine ---------------------------------------------------------------------------------


class Kernel:
    """Linux in guests."""

    name = KERNEL
    in_words = "run on the real Linux kernel, in virtual time"
    runs_programs = True
    kernel_keys = ("tcp", "offloads", "shaper", "sysctls", "pcap")

    def check(self, experiment: Planned) -> None:
        """Raise `ScenarioError` without a guest, and for what a guest cannot run."""
        guests.chosen()
        guest_check(experiment.plan)

    def version(self) -> str:
        """Return the version of the kernel, and of what runs in it."""
        guest = guests.chosen()
        program = hashlib.sha256(guests.PROGRAM.read_bytes()).hexdigest()
        return f"{guest.digest}/{program[:16]}"

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Start runs, each in a guest of its own."""
        tidy()
        return _Guests(experiment, threads, samples=samples, only=only)


class _Guests:
    """Runs in guests, so many at a time."""

    more = ""

    def __init__(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> None:
        guest = guests.chosen()
        plan = experiment.plan
        order = sorted(only, key=lambda key: (key[2], key[0], key[1]))
        folder = names.path(experiment.path).parent.absolute()
        keep = ExtrasFolder() if plan.keeps_packets or runs_programs(plan) else None
        self._runs = [
            GuestRun(plan, key, guest, samples, folder, file_name(plan, key), keep) for key in order
        ]
        self._duration_s = [plan.points[key[0]].duration_s for key in order]
        self._lock = threading.Lock()
        self._done: list[Run] = []
        self._faults: list[Fault] = []
        self._ended = [False] * len(order)
        self._began_s: dict[int, float] = {}
        self._pool = ThreadPoolExecutor(max(threads, 1))
        self._futures: list[Future[None]] = [
            self._pool.submit(self._execute, number) for number in range(len(order))
        ]
        self._pool.shutdown(wait=False)

    def _execute(self, number: int) -> None:
        run = self._runs[number]
        self._began_s[number] = time.monotonic()
        try:
            done = run.execute()
            with self._lock:
                self._done.append(done)
        except (GuestError, OSError) as error:
            if not run.cancelled:
                self._fail(run, str(error))
        finally:
            self._ended[number] = True

    def _fail(self, run: GuestRun, message: str) -> None:
        with self._lock:
            self._faults.append(Fault(*run.key, message))

    @property
    def done(self) -> bool:
        """True once all runs have ended."""
        return all(future.done() for future in self._futures)

    @property
    def remarks(self) -> Mapping[Key, Sequence[Remark]]:
        """Remarks on programs that failed, and messages of programs that concern the result."""
        return {run.key: run.remarks for run in self._runs if run.remarks}

    @property
    def extras(self) -> Mapping[Key, Extras]:
        """Outputs of programs and captures, which are complete before a run can be taken."""
        return {run.key: run.extras for run in self._runs if run.extras}

    def progress(self) -> float:
        """Return the share of the simulated time that has passed."""
        total = sum(self._duration_s)
        passed = (
            duration_s if has_ended else min(run.passed_s(), duration_s)
            for run, has_ended, duration_s in zip(
                self._runs, self._ended, self._duration_s, strict=True
            )
        )
        return sum(passed) / total if total else 1.0

    def take(self) -> tuple[list[Run], list[Fault]]:
        """Return the runs and faults since the last call.

        An exception that is no fault of a run is raised here, from the thread of its guest.
        """
        for future in self._futures:
            if future.done() and not future.cancelled():
                future.result()
        with self._lock:
            done, faults = self._done, self._faults
            self._done, self._faults = [], []
        return done, faults

    def fail_longer_than(self, most_s: float) -> None:
        """Fail the runs that have taken longer than `most_s`."""
        now_s = time.monotonic()
        for number, began_s in list(self._began_s.items()):
            run = self._runs[number]
            if not self._ended[number] and not run.cancelled and now_s - began_s > most_s:
                self._fail(run, f"took longer than {most_s:g} s")
                run.cancel()

    def cancel(self) -> None:
        """End all runs."""
        for future in self._futures:
            future.cancel()
        for run in self._runs:
            run.cancel()


ENGINE = Kernel()
