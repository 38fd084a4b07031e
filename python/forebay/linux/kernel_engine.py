"""The real Linux kernel, in guests whose time is virtual: its senders, its queues, and ours."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from forebay._native import Fault, guest_check
from forebay.experiment.engines import KERNEL, Keep, file_name, runs_programs
from forebay.linux import installed_guests as guests
from forebay.linux.guest_run import GuestError, GuestRun, tidy
from forebay.scenario import names

if TYPE_CHECKING:
    from forebay._native import Run
    from forebay.experiment.engines import Extras, Key, Planned, RunningBatch


class Kernel:
    """Linux in a guest: a process that needs no rights."""

    name = KERNEL
    in_words = "run on the real Linux kernel, in virtual time"
    runs_programs = True
    kernel_keys = ("tcp", "offloads", "shaper", "sysctls", "pcap")

    def check(self, experiment: Planned) -> None:
        """Raises `ScenarioError` without a guest, and for what a guest cannot run."""
        guests.chosen()
        guest_check(experiment.plan)

    def version(self) -> str:
        """Of the kernel, and of what runs in it."""
        guest = guests.chosen()
        program = hashlib.sha256(guests.PROGRAM.read_bytes()).hexdigest()
        return f"{guest.digest}/{program[:16]}"

    def start(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> RunningBatch:
        """Each run is a guest of its own."""
        tidy()
        return _Guests(experiment, threads, samples=samples, only=only)


class _Guests:
    """Runs in guests, so many at a time."""

    def __init__(
        self, experiment: Planned, threads: int, *, samples: bool, only: Collection[Key]
    ) -> None:
        guest = guests.chosen()
        plan = experiment.plan
        order = sorted(only, key=lambda key: (key[2], key[0], key[1]))
        folder = names.path(experiment.path).parent.absolute()
        keep = Keep() if plan.keeps_packets or runs_programs(plan) else None
        self._runs = [
            GuestRun(plan, key, guest, samples, folder, file_name(plan, key), keep) for key in order
        ]
        self._duration_s = [plan.points[key[0]].duration_s for key in order]
        self._lock = threading.Lock()
        self._made: list[Run] = []
        self._faults: list[Fault] = []
        self._ended = [False] * len(order)
        self._began_s: dict[int, float] = {}
        self._pool = ThreadPoolExecutor(max(threads, 1))
        self._futures: list[Future[None]] = [
            self._pool.submit(self._one, number) for number in range(len(order))
        ]
        self._pool.shutdown(wait=False)

    def _one(self, number: int) -> None:
        run = self._runs[number]
        self._began_s[number] = time.monotonic()
        try:
            made = run.made()
            with self._lock:
                self._made.append(made)
        except (GuestError, OSError) as error:
            if not run.cancelled:
                self._fail(run, str(error))
        finally:
            self._ended[number] = True

    def _fail(self, run: GuestRun, message: str) -> None:
        point, law, seed = run.key
        with self._lock:
            self._faults.append(Fault(point, law, seed, message))

    @property
    def done(self) -> bool:
        return all(future.done() for future in self._futures)

    @property
    def remarks(self) -> Mapping[Key, Sequence[str]]:
        """What programs did: one that failed, or that said what a reader should see."""
        return {run.key: run.remarks for run in self._runs if run.remarks}

    @property
    def extras(self) -> Mapping[Key, Extras]:
        """Outputs of programs, and captures. A run has all of its own before it can be taken."""
        return {run.key: run.extras for run in self._runs if run.extras}

    @property
    def more(self) -> str:
        """Nothing besides the count."""
        return ""

    def progress(self) -> float:
        total = sum(self._duration_s)
        passed = (
            duration_s if ended else min(run.passed_s(), duration_s)
            for run, ended, duration_s in zip(
                self._runs, self._ended, self._duration_s, strict=True
            )
        )
        return sum(passed) / total if total else 1.0

    def take(self) -> tuple[list[Run], list[Fault]]:
        with self._lock:
            made, faults = self._made, self._faults
            self._made, self._faults = [], []
        return made, faults

    def fail_longer_than(self, most_s: float) -> None:
        now_s = time.monotonic()
        for number, began_s in list(self._began_s.items()):
            run = self._runs[number]
            if not self._ended[number] and not run.cancelled and now_s - began_s > most_s:
                self._fail(run, f"took longer than {most_s:g} s")
                run.cancel()

    def cancel(self) -> None:
        for future in self._futures:
            future.cancel()
        for run in self._runs:
            run.cancel()


ENGINE = Kernel()
