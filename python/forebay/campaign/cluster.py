"""Runs of a study on a cluster of Dask: one of this machine, or a scheduler that somebody has
started by hand, on Kubernetes or under SLURM."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from typing import TYPE_CHECKING, Any

from forebay._base import signals
from forebay._base.metrics import COST
from forebay._native import RESULTS_VERSION, ScenarioError
from forebay.campaign.making import Done, Task
from forebay.experiment.execution import POLL_S, cores

if TYPE_CHECKING:
    from distributed import Client

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
        """True if `next` has nothing left."""
        return not (self._again or self._read or self._more)

    def next(self, workers: int) -> Task | None:
        """Return one more batch for one of so many workers; None if nothing is left."""
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
        """Give out a batch again that was lost."""
        self._again.append(task)

    def took(self, costs_s: list[float]) -> None:
        """Learn from what the runs of a batch have cost."""
        if costs_s:
            mean_s = sum(costs_s) / len(costs_s)
            self._run_s = mean_s if self._run_s is None else 0.7 * self._run_s + 0.3 * mean_s

    def _size(self, workers: int) -> int:
        """Return the number of runs of the next batch. The workers have `AHEAD` more at hand, and
        what comes after these must be as much again, so that no one is left alone with them."""
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
    """Return the task with its points in any order below each seed: batches then cost alike, though
    runs at neighbouring points are all short or all long. Runs of laws at a point stay together."""
    place = list(range(len(task.points)))
    random.Random(0).shuffle(place)
    return task.only(sorted(task.runs, key=lambda run: (run[2], place[run[0]], run[1])))


#: How long a scheduler may take to answer, at first and after its connection was lost; how often it
#: is asked for its workers.
ANSWER_S, ASK_S = 10.0, 2.0
ANSWER = f"{ANSWER_S:g}s"
#: How long a result that is somewhere is waited for.
WAIT = "5s"


def work(task: Task) -> tuple[int, Done]:
    """Make the runs of a task on one thread of a worker; return the version of its numbers, and
    what came of them."""
    batch = task.start(1)
    done = Done()
    while True:
        if task.limit_s is not None:
            batch.fail_longer_than(task.limit_s)
        ended = batch.done
        done += task.taken(batch)
        if ended:
            return RESULTS_VERSION, done
        time.sleep(0.002)


class Cluster:
    """Workers that somebody else looks after: lost ones lose no run."""

    def __init__(self, client: Client, address: str) -> None:
        self.client, self.address = client, address
        self._workers: dict[str, int] = {}
        self._asked_s = -ASK_S
        #: how often in a row there was none
        self._none = 0

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """Yield runs as they end; as many tasks are ahead as keep the workers busy, also where a
        message takes long."""
        batches = Batches(tasks)
        under_way: dict[Any, Task] = {}
        try:
            while not stop():
                if self.client.status == "closed":
                    yield Done(stopped=f"the scheduler at {self.address} is gone")
                    return
                workers = self.threads()
                while (
                    self.client.status == "running"
                    and len(under_way) < (1 + AHEAD) * max(1, workers)
                    and (task := batches.next(workers)) is not None
                ):
                    under_way[self.client.submit(work, task, pure=False)] = task
                if not under_way and batches.ended:
                    return
                time.sleep(POLL_S)
                yield self._done(under_way, batches)
            yield from self._begun(under_way, batches)
        finally:
            if under_way and self.client.status == "running":
                with suppress(OSError):
                    self.client.cancel(list(under_way))  # type: ignore[no-untyped-call]

    def _begun(self, under_way: dict[Any, Task], batches: Batches) -> Generator[Done]:
        """Yield what workers have begun when the study is stopped, and end within a batch's time.

        Each works on as many batches as it has threads, the first of those it was given; the
        others are taken back.
        """
        end_s = time.monotonic() + BATCH_S
        with suppress(OSError):
            if under_way and self.client.status == "running":
                given = self.client.processing()  # type: ignore[no-untyped-call]
                place = {future.key: i for i, future in enumerate(under_way)}
                begun = {
                    key
                    for worker, keys in given.items()
                    for key in sorted(
                        (key for key in keys if key in place), key=lambda key: place[key]
                    )[: self._workers.get(worker, 1)]
                }
                waiting = [
                    future
                    for future in under_way
                    if future.key not in begun and future.status == "pending"
                ]
                self.client.cancel(waiting)  # type: ignore[no-untyped-call]
                for future in waiting:
                    del under_way[future]
        while under_way and self.client.status == "running" and time.monotonic() < end_s:
            yield self._done(under_way, batches)
            time.sleep(POLL_S)

    def threads(self) -> int:
        """Return the threads of all workers, as the scheduler lately said. Raises `ScenarioError`
        for a worker without forebay: it would die of each task, as if the runs were the reason."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= ASK_S and self.client.status == "running":
            # One that has just died counts no worker; its status soon says so.
            with suppress(OSError):
                former, self._workers = self._workers, self.client.nthreads()  # type: ignore[no-untyped-call]
                if new := [worker for worker in self._workers if worker not in former]:
                    said = self.client.run(
                        metadata.version, "forebay", workers=new, on_error="return"
                    )
                    for worker, version in said.items():
                        if isinstance(version, metadata.PackageNotFoundError):
                            raise ScenarioError(
                                f"--on: found a worker without forebay at {worker}, allowed: "
                                "workers that have this version of it"
                            )
            self._asked_s = now_s
            # Those that were killed may be back in a moment.
            self._none = 0 if self._workers else self._none + 1
            if self._none == 2:
                print(f"{self.address} has no workers: the runs wait for them", file=sys.stderr)
        return sum(self._workers.values())

    def _done(self, under_way: dict[Any, Task], batches: Batches) -> Done:
        """Return what came of tasks that have ended. Those that a lost scheduler has forgotten wait
        once more, as do parts of those that killed their workers."""
        from distributed import KilledWorker

        finished = [future for future in under_way if future.status == "finished"]
        done = Done()
        for future, outcome in self._outcomes(finished).items():
            version, found = outcome
            if version != RESULTS_VERSION:
                raise ScenarioError(
                    f"--on: found a worker with results version {version}, allowed: "
                    f"{RESULTS_VERSION}, as here"
                )
            del under_way[future]
            batches.took([row[COST] for row in found.rows if row.get(COST) is not None])
            done += found
        for future in [future for future in under_way if future.cancelled()]:
            batches.again(under_way.pop(future))
        for future in [future for future in under_way if future.status == "error"]:
            task, error = under_way.pop(future), future.exception()
            if not isinstance(error, KilledWorker):
                said = f"{type(error).__name__}: {error}".partition("\n")[0]
                raise ScenarioError(
                    f"--on: found a worker that says {said}, allowed: workers that have this "
                    "version of forebay"
                )
            if len(task.runs) == 1:
                done.rows += task.lost("its worker died several times, out of memory?")
                continue
            # Several workers died while they had it. Where one of its runs is the reason, as one
            # that takes all memory is, halves find out which.
            for half in task.split(-(-len(task.runs) // 2)):
                batches.again(half)
        return done

    def _outcomes(self, finished: list[Any]) -> dict[Any, Any]:
        """Return what tasks have returned, without those that are lost and will be done once
        more."""
        try:
            # All together: one after another, each would wait for messages to and fro.
            results = self.client.gather(finished)  # type: ignore[no-untyped-call]
            return dict(zip(finished, results, strict=True))
        except Exception:  # one's worker has died, or the scheduler has
            found = {}
            for future in finished:
                with suppress(Exception):
                    found[future] = future.result(timeout=WAIT)
            return found


@contextmanager
def cluster(on: str, threads: int | None) -> Iterator[Cluster]:
    """Connect to the scheduler at an address or, for "dask", to workers of this machine.

    The workers of this machine end with the context. A scheduler at a ``tls://`` address gets the
    client's certificate that Dask's own configuration names (``distributed.comm.tls``).

    Raises
    ------
    ScenarioError
        If Dask is not installed, or no scheduler answers.
    """
    try:
        from distributed import Client

        if on == "dask":
            import cryptography  # noqa: F401 -- makes the certificate of a cluster
    except ImportError as error:
        raise ScenarioError(
            f"--on: {on} needs Dask and {error.name}, which is not installed; "
            "`pip install dask distributed cryptography`, or leave --on out to use threads"
        ) from error
    # A lost worker is no news: its tasks are done by others. Of a lost scheduler we say it.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if on == "dask":
        with ExitStack() as stack:
            # An interruption while they start is told once they have.
            with signals.held() as interrupted, signals.kept_from_children():
                try:
                    from forebay.campaign.local_cluster import local_cluster

                    local = stack.enter_context(local_cluster(threads or cores()))
                    client = stack.enter_context(Client(local))  # type: ignore[no-untyped-call]
                except (OSError, RuntimeError) as error:
                    if interrupted:
                        raise KeyboardInterrupt from None
                    raise ScenarioError(
                        f"--on: found dask, whose workers do not start ({error}), allowed: threads"
                    ) from error
            if interrupted:
                raise KeyboardInterrupt
            yield Cluster(client, local.scheduler_address)
        return
    try:
        _answers(on)
        client = Client(on, timeout=ANSWER)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever it makes of what is no scheduler
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise ScenarioError(
            f'--on: no Dask scheduler answers at "{on}" ({why}); write the address of one that '
            "runs, and for tls:// name the client's certificate in Dask's configuration "
            "(distributed.comm.tls)"
        ) from error
    with client:
        yield Cluster(client, on)


def _answers(address: str) -> None:
    """Return once a scheduler has greeted; a client would wait for that for ever.

    Raises
    ------
    Exception
        Whatever goes wrong on the way, such as a certificate that is not accepted.
    """
    from distributed.comm.core import connect
    from distributed.security import Security

    # As `Client` reads them: from Dask's configuration.
    certificates = Security().get_connection_args("client")  # type: ignore[no-untyped-call]

    found: list[BaseException | None] = []

    async def greet() -> None:
        connecting = connect(address, timeout=ANSWER, **certificates)  # type: ignore[no-untyped-call]
        comm = await asyncio.wait_for(connecting, ANSWER_S)
        comm.abort()

    def try_it() -> None:
        try:
            asyncio.run(greet())
            found.append(None)
        except BaseException as error:
            found.append(error)

    # A notebook has a loop under way in this thread; one that waits must not hold up an exit.
    thread = threading.Thread(target=try_it, daemon=True)
    thread.start()
    while not found:
        thread.join(POLL_S)
    if found[0] is not None:
        raise found[0]
