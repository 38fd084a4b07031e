"""Runs of a study on a Dask cluster: one of this machine, or a scheduler that is already running.

Such a scheduler may have been started by hand, on Kubernetes or under SLURM.

Dask's scheduler and workers run whatever a client sends them. On a machine with several users the
workers of this machine therefore speak TLS with a certificate that is made for one cluster and
never leaves its processes' memory, listen on loopback alone, and serve no web pages.
"""

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
from typing import Any

from distributed import Client, KilledWorker, Nanny, Scheduler, SpecCluster, Worker
from distributed.comm.core import connect
from distributed.security import Security
from distributed.system import MEMORY_LIMIT

from forebay._base import signals
from forebay._base.errors import ParameterError
from forebay._base.metrics import COST
from forebay._base.temporary import temporary_folder
from forebay._native import RESULTS_VERSION
from forebay.campaign.runner import Done, Task
from forebay.experiment.execution import POLL_S, cores

#: Address of the processes of a cluster of this machine, and their protocol.
HOST, PROTOCOL = "127.0.0.1", "tls://"


class LocalScheduler(Scheduler):
    """A scheduler without the HTTP server, which knows no certificates."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open no port for web pages: Dask opens one even if the dashboard is switched off."""


class LocalWorker(Worker):
    """A worker without the HTTP server, which knows no certificates."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open no port for web pages: Dask opens one even if the dashboard is switched off."""


@contextmanager
def local_cluster(workers: int) -> Iterator[SpecCluster]:
    """Start a scheduler and `workers` workers of one thread each, and end them on exit.

    Raises
    ------
    ImportError
        If ``cryptography``, which makes the certificate, is not installed.
    OSError, RuntimeError
        If the processes do not start.
    """
    security = Security.temporary()  # type: ignore[no-untyped-call]
    # Workers unpickle what they have spilled to disk, so its folder is this user's alone.
    with temporary_folder() as folder:
        shared = {"host": HOST, "protocol": PROTOCOL, "security": security, "dashboard": False}
        worker = {
            "cls": Nanny,
            "options": {
                **shared,
                "worker_class": LocalWorker,
                "nthreads": 1,
                "memory_limit": MEMORY_LIMIT // workers,
                "local_directory": folder,
                "silence_logs": logging.CRITICAL,
            },
        }
        with SpecCluster(  # type: ignore[no-untyped-call]
            workers=dict.fromkeys(range(workers), worker),
            scheduler={"cls": LocalScheduler, "options": {**shared, "port": 0}},
            worker=worker,
            security=security,
            silence_logs=logging.CRITICAL,
        ) as started:
            yield started


#: Duration of a batch, and shortest one at the end, which hides the latency of a slow network; in
#: seconds.
BATCH_S, LEAST_S = 2.0, 0.25
#: Number of batches that each worker has in addition to the one under way.
AHEAD = 2
#: Number of runs of the first batches, whose cost is not known; and largest number of any.
FIRST_RUNS, MOST_RUNS = 2, 1000


class Batches:
    """Tasks that are cut into batches as they are asked for, by what runs have cost so far."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks = iter(tasks)
        self._more = True
        # Tasks that have been read ahead; the runs of the first one are left from `_at` on.
        self._queue: deque[Task] = deque()
        self._at, self._left = 0, 0
        self._lost: list[Task] = []
        self._run_s: float | None = None

    @property
    def ended(self) -> bool:
        """True if `next` has nothing left."""
        return not (self._lost or self._queue or self._more)

    def next(self, workers: int) -> Task | None:
        """Return a batch for one of so many workers; None if nothing is left."""
        if self._lost:
            return self._lost.pop()
        size = self._size(max(1, workers))
        if not self._queue:
            return None
        runs = self._queue[0].runs[self._at : self._at + size]
        batch = self._queue[0].only(runs)
        self._at += len(runs)
        self._left -= len(runs)
        if self._at == len(self._queue[0].runs):
            self._queue.popleft()
            self._at = 0
        return batch

    def again(self, task: Task) -> None:
        """Hand out a lost batch again."""
        self._lost.append(task)

    def took(self, costs_s: list[float]) -> None:
        """Learn from the processor time of the runs of a batch, in seconds."""
        if costs_s:
            mean_s = sum(costs_s) / len(costs_s)
            self._run_s = mean_s if self._run_s is None else 0.7 * self._run_s + 0.3 * mean_s

    def _size(self, workers: int) -> int:
        """Return the number of runs of the next batch.

        The workers have `AHEAD` more batches, and as many must follow, so that no worker is left
        alone with the last ones.
        """
        run_s = None if self._run_s is None else max(self._run_s, 1e-6)
        shares = 2 * (1 + AHEAD) * workers
        enough = 1 if run_s is None else shares * BATCH_S / run_s
        while self._more and self._left < enough:
            task = next(self._tasks, None)
            if task is None:
                self._more = False
            else:
                self._queue.append(_shuffled(task))
                self._left += len(task.runs)
        if run_s is None:
            return FIRST_RUNS
        size = min(BATCH_S / run_s, max(self._left / shares, LEAST_S / run_s))
        return min(MOST_RUNS, max(1, round(size)))


def _shuffled(task: Task) -> Task:
    """Return the task with its points shuffled within each seed; runs at a point stay together.

    Runs at neighbouring points are all short or all long; shuffled, batches cost about the same.
    """
    place = list(range(len(task.points)))
    random.Random(0).shuffle(place)
    return task.only(sorted(task.runs, key=lambda run: (run[2], place[run[0]], run[1])))


#: How long a scheduler may take to answer, at first and after its connection was lost; and how
#: often it is asked for its workers; in seconds.
ANSWER_S, ASK_S = 10.0, 2.0
ANSWER = f"{ANSWER_S:g}s"
#: Timeout for the result of a single task.
WAIT = "5s"


def work(task: Task) -> tuple[int, Done]:
    """Make the runs of a task on one thread of a worker; return its results version, and them."""
    task.begin(1)
    done = Done()
    while True:
        is_last = task.done
        done += task.take()
        if is_last:
            return RESULTS_VERSION, done
        time.sleep(0.002)


class Cluster:
    """The workers of a Dask scheduler; a worker that is lost loses no run.

    Parameters
    ----------
    client : Client
        The connection to the scheduler.
    address : str
        The address of the scheduler.
    """

    def __init__(self, client: Client, address: str) -> None:
        # Dask's client has no types.
        self.client: Any = client
        self.address = address
        self._workers: dict[str, int] = {}
        self._asked_s = -ASK_S
        # Number of times in a row that the scheduler had no workers.
        self._none = 0

    def _error(self, reason: str) -> ParameterError:
        expected = "workers that have the same version of forebay as this machine"
        return ParameterError("on", self.address, expected, reason=reason)

    @property
    def _connected(self) -> bool:
        return bool(self.client.status == "running")

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Generator[Done]:
        """Yield runs as they end: see `Workers.make`.

        So many tasks are submitted ahead that workers stay busy, also if messages take long.
        """
        batches = Batches(tasks)
        under_way: dict[Any, Task] = {}
        try:
            while not stop():
                if self.client.status == "closed":
                    yield Done(stopped=f"the scheduler at {self.address} is gone")
                    return
                workers = self.threads()
                while (
                    self._connected
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
            if under_way and self._connected:
                with suppress(OSError):
                    self.client.cancel(list(under_way))

    def _begun(self, under_way: dict[Any, Task], batches: Batches) -> Generator[Done]:
        """Yield what workers had begun when the study was stopped, as far as it ends in `BATCH_S`.

        Each worker runs as many batches as it has threads, the first of those that it was given;
        the remaining ones are cancelled.
        """
        end_s = time.monotonic() + BATCH_S
        with suppress(OSError):
            if under_way and self._connected:
                order = {future.key: i for i, future in enumerate(under_way)}
                running: set[Any] = set()
                for worker, keys in self.client.processing().items():
                    own = sorted((key for key in keys if key in order), key=order.__getitem__)
                    running.update(own[: self._workers.get(worker, 1)])
                waiting = [
                    future
                    for future in under_way
                    if future.key not in running and future.status == "pending"
                ]
                self.client.cancel(waiting)
                for future in waiting:
                    del under_way[future]
        while under_way and self._connected and time.monotonic() < end_s:
            yield self._done(under_way, batches)
            time.sleep(POLL_S)

    def threads(self) -> int:
        """Return the number of threads of all workers, as the scheduler lately said.

        Raises
        ------
        ScenarioError
            If a worker lacks forebay: each task would kill it, as if the runs were the reason.
        """
        now_s = time.monotonic()
        if now_s - self._asked_s >= ASK_S and self._connected:
            # A scheduler that has just died counts no worker; its status soon says so.
            with suppress(OSError):
                former, self._workers = self._workers, self.client.nthreads()
                if new := [worker for worker in self._workers if worker not in former]:
                    versions = self.client.run(
                        metadata.version, "forebay", workers=new, on_error="return"
                    )
                    for worker, version in versions.items():
                        if isinstance(version, metadata.PackageNotFoundError):
                            raise self._error(f"the worker at {worker} has no forebay")
            self._asked_s = now_s
            # Workers that were killed may be back in a moment.
            self._none = 0 if self._workers else self._none + 1
            if self._none == 2:
                print(f"{self.address} has no workers: the runs wait for them", file=sys.stderr)
        return sum(self._workers.values())

    def _done(self, under_way: dict[Any, Task], batches: Batches) -> Done:
        """Return the outcome of tasks that have ended, and remove them.

        Tasks that a lost scheduler has forgotten, and halves of those that killed their workers,
        are handed out again.
        """
        done = Done()
        finished = [future for future in under_way if future.status == "finished"]
        for future, (version, outcome) in self._outcomes(finished).items():
            if version != RESULTS_VERSION:
                versions = f"{version}, and this machine {RESULTS_VERSION}"
                raise self._error(f"a worker has results version {versions}")
            del under_way[future]
            batches.took([row[COST] for row in outcome.rows if row.get(COST) is not None])
            done += outcome
        for future in [future for future in under_way if future.cancelled()]:
            batches.again(under_way.pop(future))
        for future in [future for future in under_way if future.status == "error"]:
            task, error = under_way.pop(future), future.exception()
            if not isinstance(error, KilledWorker):
                raise self._error(f"a worker failed ({_first_line(error)})")
            if len(task.runs) == 1:
                done.rows += task.faults("its worker died several times, out of memory?")
                continue
            # Several workers died while they had it. Halves find the run that is the reason, for
            # example because it takes all memory.
            for half in task.split(-(-len(task.runs) // 2)):
                batches.again(half)
        return done

    def _outcomes(self, finished: list[Any]) -> dict[Any, tuple[int, Done]]:
        """Return the results of tasks by future, without those that are lost and will be redone."""
        try:
            # All at once: otherwise each would wait for messages to and from the scheduler.
            return dict(zip(finished, self.client.gather(finished), strict=True))
        except Exception:  # the worker of a task has died, or the scheduler has
            outcomes = {}
            for future in finished:
                with suppress(Exception):
                    outcomes[future] = future.result(timeout=WAIT)
            return outcomes


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


@contextmanager
def cluster(on: str, threads: int | None) -> Iterator[Cluster]:
    """Connect to the scheduler at an address or, for "dask", to workers of this machine.

    The workers of this machine end with the context. A scheduler at a ``tls://`` address gets the
    client's certificate that Dask's own configuration names (``distributed.comm.tls``).

    Parameters
    ----------
    on : str
        "dask" or an address.
    threads : int or None
        Number of workers of this machine; a worker per core if None.

    Raises
    ------
    ScenarioError
        If no scheduler answers, or the workers do not start.
    """
    # Dask reports each worker that is lost, but its tasks are redone; a lost scheduler we report.
    for name in list(logging.root.manager.loggerDict):
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)
    if on == "dask":
        with ExitStack() as stack:
            # An interruption while the workers start is raised once they have started.
            with signals.held() as interrupted, signals.kept_from_children():
                try:
                    local = stack.enter_context(local_cluster(threads or cores()))
                    client = stack.enter_context(Client(local))  # type: ignore[no-untyped-call]
                except (OSError, RuntimeError) as error:
                    if interrupted:
                        raise KeyboardInterrupt from None
                    reason = f"its workers do not start ({error})"
                    raise ParameterError("on", on, "threads", reason=reason) from error
            if interrupted:
                raise KeyboardInterrupt
            yield Cluster(client, local.scheduler_address)
        return
    try:
        _greet(on)
        client = Client(on, timeout=ANSWER)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever Dask makes of something that is no scheduler
        expected = (
            "the address of one that runs, and for tls:// the client's certificate in Dask's "
            "configuration (distributed.comm.tls)"
        )
        reason = f"no Dask scheduler answers at this address ({_first_line(error)})"
        raise ParameterError("on", on, expected, reason=reason) from error
    with client:
        yield Cluster(client, on)


def _greet(address: str) -> None:
    """Return once a scheduler has answered; a client would wait for ever.

    Raises
    ------
    Exception
        Whatever goes wrong, such as a certificate that is not accepted.
    """
    # The certificates of Dask's configuration, which `Client` reads, too.
    certificates = Security().get_connection_args("client")  # type: ignore[no-untyped-call]
    outcome: list[BaseException | None] = []

    async def greet() -> None:
        connecting = connect(address, timeout=ANSWER, **certificates)  # type: ignore[no-untyped-call]
        comm = await asyncio.wait_for(connecting, ANSWER_S)
        comm.abort()

    def run() -> None:
        try:
            asyncio.run(greet())
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    # This thread may have a running event loop, as in a notebook. The other one is a daemon, so
    # that it does not hold up an exit while it waits.
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while not outcome:
        thread.join(POLL_S)
    if outcome[0] is not None:
        raise outcome[0]
