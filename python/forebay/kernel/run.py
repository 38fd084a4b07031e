"""One run in a guest: a process that is watched, and ends with the one that started it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._native import guest_orders, guest_run
from forebay.kernel.guests import PROGRAM

if TYPE_CHECKING:
    from forebay._native import Plan, Run
    from forebay.kernel.guests import Guest
    from forebay.runs.engine import Key

#: Folders of runs, by the process that has them.
PREFIX = "forebay-kernel-"
#: A file system in memory, where there is one: guests write packets there.
MEMORY = Path("/dev/shm")
#: Memory of a guest. What it does not use is not taken from the machine.
MEMORY_MB = 1024
#: When every run begins, in the guest's own time: 2026-01-01.
START_NS = 1_767_225_600 * 10**9
#: Lines of a guest's console that a failure shows.
LAST_LINES = 6


class GuestError(RuntimeError):
    """A guest that failed, in one line."""


def tidy() -> None:
    """Removes folders of processes that were killed."""
    for folder in _memory().glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _memory() -> Path:
    usable = MEMORY.is_dir() and os.access(MEMORY, os.W_OK)
    return MEMORY if usable else Path(tempfile.gettempdir())


@dataclass
class GuestRun:
    """A run of a plan, under way or not yet; `made` makes it, and `cancel` ends it from another
    thread."""

    plan: Plan
    key: Key
    guest: Guest
    #: Keeps the samples.
    samples: bool
    #: A queue of ours, also where the kernel has the law.
    ours: bool = False
    cancelled: bool = False
    _folder: Path | None = None
    _process: subprocess.Popen[bytes] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def made(self) -> Run:
        """The run. Raises `GuestError`."""
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=_memory()))
        try:
            return self._made(folder)
        finally:
            self._folder = None
            shutil.rmtree(folder, ignore_errors=True)

    def _made(self, folder: Path) -> Run:
        point, law, seed = self.key
        orders, kernels, files = guest_orders(self.plan, point, law, seed, ours=self.ours)
        (folder / "orders.json").write_text(orders)
        for number, contents in enumerate(files):
            (folder / str(number)).write_bytes(contents)
        with (folder / "console").open("wb") as console:
            user_cpu_s = self._run(folder, console.fileno())
        if self.cancelled:
            raise GuestError("was cancelled")
        try:
            run, _ = guest_run(
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
            raise GuestError(f"{error}{_last_words(folder)}") from error
        return run

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
            f"init={PROGRAM}",
            "con=null",
            "con0=null,fd:1",
            "ssl=null",
            "quiet",
            "seccomp=auto",
            # A processor without limits: time passes only while nothing is to be done.
            "time-travel=inf-cpu",
            f"time-travel-start={START_NS}",
            "umid=guest",
            f"uml_dir={folder}/",
            f"FOREBAY_RUN={folder}",
            f"FOREBAY_TOOLS={self.guest.tools}",
        ]
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
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                env=environment,
                start_new_session=True,
            )
        _, _, used = os.wait4(self._process.pid, 0)
        with self._lock:
            # wait4 has taken its status; what is left of its group ends, too.
            self._process.returncode = 0
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process = None
        return used.ru_utime + used.ru_stime

    def cancel(self) -> None:
        """Ends it at once."""
        with self._lock:
            self.cancelled = True
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
