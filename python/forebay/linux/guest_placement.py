"""Which processor a guest runs on: one, for a system call of its programs is two switches of tasks,
and between processors each costs several times as much."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

#: A guest that waited for so much of an interval for its processor goes to the next one.
MOST_WAITING = 0.25
INTERVAL_S = 0.5

#: Guests of this process by processor.
_taken: Counter[int] = Counter()
_lock = threading.Lock()


class Placement:
    """The processor of a guest that runs; `watch` is called now and then, and `end` at its end."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        # Other processes of ours begin elsewhere.
        known = sorted(os.sched_getaffinity(0))
        turn = os.getpid() % len(known)
        self._processors = known[turn:] + known[:turn]
        with _lock:
            self._processor = min(self._processors, key=lambda one: _taken[one])
            _taken[self._processor] += 1
        self._seen_s, self._waited_s = 0.0, 0.0
        self._keep()

    def watch(self, now_s: float) -> None:
        """Moves it where others want its processor, too."""
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
        self._keep()

    def end(self) -> None:
        """Gives its processor back."""
        with _lock:
            _taken[self._processor] -= 1

    def _keep(self) -> None:
        for pid in (self._pid, *children(self._pid)):
            # One that has ended, or a machine that allows nobody to choose.
            with suppress(OSError):
                os.sched_setaffinity(pid, {self._processor})

    def _waiting_s(self) -> float:
        """For a processor, since it began (Documentation/scheduler/sched-stats.rst)."""
        try:
            return int(Path(f"/proc/{self._pid}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0


def children(pid: int) -> list[int]:
    """Processes below a guest's own: its programs, while they run (proc(5))."""
    try:
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    except (OSError, ValueError):
        return []
