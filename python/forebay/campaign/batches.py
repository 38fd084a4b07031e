"""How many runs go to a worker at a time: seconds of work, so that messages cost little, and less
towards the end, so that no worker is left with much when the others have none."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable

from forebay.campaign.threads import Task

#: A batch takes about so long, and at the end no less than this, which hides the way of a message
#: over a slow network.
BATCH_S, LEAST_S = 2.0, 0.25
#: Batches that each worker has beside the one under way.
AHEAD = 2
#: Runs of the first batches, whose cost nobody knows; most of any.
FIRST_RUNS, MOST_RUNS = 2, 1000


class Batches:
    """Tasks cut into batches when they are asked for, by what runs have cost so far."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)
        self._more = True
        #: what has been read ahead; of the first one the runs from `_at` on are left
        self._read: deque[Task] = deque()
        self._at, self._left = 0, 0
        self._again: list[Task] = []
        self._run_s: float | None = None

    @property
    def ended(self) -> bool:
        """Whether `next` has nothing left."""
        return not (self._again or self._read or self._more)

    def next(self, workers: int) -> Task | None:
        """One more batch for one of so many workers; None where nothing is left."""
        if self._again:
            return self._again.pop()
        size = self._size(max(1, workers))
        if not self._read:
            return None
        runs = self._read[0].runs[self._at : self._at + size]
        batch = self._read[0].only(runs)
        self._at += len(runs)
        self._left -= len(runs)
        if self._at == len(self._read[0].runs):
            self._read.popleft()
            self._at = 0
        return batch

    def again(self, task: Task) -> None:
        """A batch that was lost."""
        self._again.append(task)

    def took(self, costs_s: list[float]) -> None:
        """What the runs of a batch have cost."""
        if costs_s:
            mean_s = sum(costs_s) / len(costs_s)
            self._run_s = mean_s if self._run_s is None else 0.7 * self._run_s + 0.3 * mean_s

    def _size(self, workers: int) -> int:
        """Runs of the next batch. The workers have `AHEAD` more at hand, and what comes after
        these must be as much again, so that no one is left alone with them."""
        run_s = None if self._run_s is None else max(self._run_s, 1e-6)
        shares = 2 * (1 + AHEAD) * workers
        enough = 1 if run_s is None else shares * BATCH_S / run_s
        while self._more and self._left < enough:
            task = next(self._tasks, None)
            if task is None:
                self._more = False
            else:
                self._read.append(_mixed(task))
                self._left += len(task.runs)
        if run_s is None:
            return FIRST_RUNS
        size = min(BATCH_S / run_s, max(self._left / shares, LEAST_S / run_s))
        return min(MOST_RUNS, max(1, round(size)))


def _mixed(task: Task) -> Task:
    """The same, with the points in any order below each seed: batches then cost alike, though runs
    at neighbouring points are all short or all long. Runs of laws at a point stay together."""
    place = list(range(len(task.points)))
    random.Random(0).shuffle(place)
    return task.only(sorted(task.runs, key=lambda run: (run[2], place[run[0]], run[1])))
