"""One run in a guest: a process that is watched, and ends with the one that started it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base import temporary
from forebay._base.temporary import own_prefix
from forebay._native import guest_orders, guest_run
from forebay.experiment import engines
from forebay.experiment.engines import Ended, Keep
from forebay.linux.guest_placement import Placement, children
from forebay.linux.installed_guests import PROGRAM

if TYPE_CHECKING:
    from forebay._native import Plan, Run
    from forebay.experiment.engines import Extras, Key
    from forebay.linux.installed_guests import Guest

#: A file system in memory, where there is one: guests write packets there.
MEMORY = Path("/dev/shm")
#: What there must be free of it: the memory that a guest touches, and its rows.
LEAST_FREE_BYTES = 256 << 20
#: The folder of a run, as its guest's process finds it. The kernel's random numbers depend on its
#: command line, too, which is the same for every run so.
HERE = "/proc/self/cwd"
#: The packets of the bottleneck, where they were asked for.
CAPTURE = "bottleneck.pcapng"
#: Memory of a guest. What it does not use is not taken from the machine.
MEMORY_MB = 1024
#: When every run begins, in the guest's own time: 2026-01-01.
START_NS = 1_767_225_600 * 10**9
#: Time between two looks at a guest.
POLL_S = 0.05
#: CPU time without a step of the guest's clock, after which it is given up.
STILL_S = 60.0
#: Lines of a guest's console that a failure shows.
LAST_LINES = 6


class GuestError(RuntimeError):
    """A guest that failed, in one line."""


def tidy() -> None:
    """Remove folders of processes that were killed."""
    temporary.tidy([MEMORY])


def _memory() -> Path:
    """Where the folder of a new run goes."""
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    # A container often has little of it.
    if usable and shutil.disk_usage(MEMORY).free >= LEAST_FREE_BYTES:
        return MEMORY
    return Path(tempfile.gettempdir())


@dataclass
class GuestRun:
    """A run of a plan, under way or not yet; `made` makes it, and `cancel` ends it from another
    thread."""

    plan: Plan
    key: Key
    guest: Guest
    #: Keeps the samples.
    samples: bool
    #: Of the scenario, where programs run.
    scenario: Path
    #: Of its files.
    name: str = ""
    #: Where they go; nowhere where it leaves none.
    keep: Keep | None = None
    #: A queue of ours, also where the kernel has the law.
    ours: bool = False
    cancelled: bool = False
    #: What a reader must know of it.
    remarks: list[str] = field(default_factory=list)
    #: What it has left.
    extras: Extras | None = None
    _folder: Path | None = None
    _process: subprocess.Popen[bytes] | None = None
    #: As wait4(2) has it.
    _status: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def made(self) -> Run:
        """The run. Raises `GuestError`."""
        folder = Path(tempfile.mkdtemp(prefix=own_prefix(), dir=_memory()))
        try:
            return self._made(folder)
        finally:
            self._folder = None
            shutil.rmtree(folder, ignore_errors=True)

    def _made(self, folder: Path) -> Run:
        point, law, seed = self.key
        orders, kernels, files = guest_orders(
            self.plan,
            point,
            law,
            seed,
            ours=self.ours,
            several_calls=self.guest.several_calls,
            folder=str(self.scenario),
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
                self.plan,
                point,
                law,
                seed,
                folder,
                user_cpu_s,
                kernels=kernels,
                samples=self.samples,
            )
        except RuntimeError as error:
            raise GuestError(f"{error}{self._why(folder)}{_last_words(folder)}") from error
        programs = [
            Ended(
                told["traffic"],
                told["end"],
                told["command"],
                told["status"],
                folder / f"program-{number}",
                told["output"],
            )
            for number, told in enumerate(json.loads(outcome)["programs"])
        ]
        if self.keep is not None:
            self.extras = engines.taken(self.keep, self.name, programs, folder / CAPTURE)
        for program in programs:
            self._hear(program)
        return run

    def _why(self, folder: Path) -> str:
        """What ended a guest that did not come to its end, as far as it can be told."""
        why = ""
        if self._status and os.WIFSIGNALED(self._status):
            why = f"; it was ended by {signal.Signals(os.WTERMSIG(self._status)).name}"
        free = shutil.disk_usage(folder).free
        if free < LEAST_FREE_BYTES:
            why += (
                f"; {folder.parent} has {free >> 20} MiB free, and a guest takes up to "
                f"{LEAST_FREE_BYTES >> 20} MiB"
            )
        return why

    def _hear(self, program: Ended) -> None:
        """A client that is not there has made no traffic to speak of: its last words are why."""
        if program.is_no_program:
            raise GuestError(program.failed)
        if program.failed:
            self.remarks.append(program.failed)

    def _run(self, folder: Path, console: int) -> float:
        """CPU time of a guest that has come to its end."""
        command = [
            # It ends with the thread that waits for it, however that ends.
            "setpriv",
            "--pdeathsig",
            "KILL",
            str(self.guest.kernel),
            f"mem={MEMORY_MB}M",
            "root=/dev/root",
            "rootfstype=hostfs",
            "rootflags=/",
            "ro",
            f"init={HERE}/init",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            "quiet",
            "seccomp=auto",
            # A processor without limits: time passes only while nothing is to be done.
            "time-travel=inf-cpu",
            f"time-travel-start={START_NS}",
            "umid=guest",
            f"uml_dir={HERE}/",
            f"FOREBAY_RUN={HERE}",
            f"FOREBAY_TOOLS={HERE}/tools/.",
        ]
        (folder / "init").symlink_to(PROGRAM)
        (folder / "tools").symlink_to(self.guest.tools)
        environment = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "HOME": "/",
            "TMPDIR": str(folder),
            # The kernel's random numbers (arch/um, os_getrandom) come from the seed alone.
            "FOREBAY_SEED": str(self.key[2]),
        }
        with self._lock:
            if self.cancelled:
                return 0.0
            self._folder = folder
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
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
        """Until it has ended. Raises `GuestError` where time does not go on."""
        passed_s, since_s = 0.0, 0.0
        while True:
            ended, self._status, used = os.wait4(pid, os.WNOHANG)
            if ended:
                return used
            time.sleep(POLL_S)
            placement.watch(time.monotonic())
            now_s = self.passed_s()
            cpu_s = _cpu_s(pid)
            if now_s > passed_s:
                passed_s, since_s = now_s, cpu_s
            elif cpu_s - since_s > STILL_S:
                # Nobody has cancelled it: its failure is to be heard of.
                self._kill()
                os.wait4(pid, 0)
                raise GuestError(
                    f"time stood still for {STILL_S:g} s of its processor after {passed_s:g} s: a "
                    "program looks at the clock and does not sleep"
                )

    def cancel(self) -> None:
        """Ends it at once."""
        with self._lock:
            self.cancelled = True
            self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def passed_s(self) -> float:
        """Simulated time that has passed."""
        folder = self._folder
        if folder is None:
            return 0.0
        try:
            lines = (folder / "progress").read_bytes().splitlines()
            return int(lines[-1]) / 1e9 if lines else 0.0
        except (OSError, ValueError):
            return 0.0


def _last_words(folder: Path) -> str:
    try:
        said = (folder / "console").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    lines = [line.strip() for line in said if line.strip() and "Power down" not in line]
    return f"; its last lines: {' | '.join(lines[-LAST_LINES:])}" if lines else ""


def _cpu_s(pid: int) -> float:
    """User and system time of a guest that runs: of its kernel, of programs that have ended, and of
    those that run, which are processes below it (proc(5))."""
    below = sum(_ticks(Path(f"/proc/{child}"), 2) for child in children(pid))
    ticks = _ticks(Path(f"/proc/{pid}"), 4) + below
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(process: Path, times: int) -> int:
    """Of the first two times of a process, or with those of its children that have ended."""
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return sum(int(field) for field in fields[11 : 11 + times])
    except (OSError, IndexError, ValueError):
        return 0
