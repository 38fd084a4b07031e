"""Runs of a study on a cluster of Dask: one of this machine, or a scheduler that somebody has
started by hand, on Kubernetes or under SLURM."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from forebay._native import RESULTS_VERSION, ScenarioError
from forebay.run import signals
from forebay.run.experiment import cores
from forebay.run.metrics import COST
from forebay.study.threads import Done, Task

if TYPE_CHECKING:
    from distributed import Client

#: A task takes about so long; tasks that each worker has beside the one under way.
TASK_S, AHEAD = 2.0, 2
#: Runs of the first tasks, whose cost nobody knows; most of any.
FIRST_RUNS, MOST_RUNS = 8, 1000
#: How long a scheduler may take to answer, and tasks are waited for before the caller looks about.
ANSWER, WAIT_S = "10s", 0.2


def work(task: Task) -> tuple[int, list[dict[str, Any]]]:
    """Makes the runs of a task on one thread of a worker: the version of its numbers, and rows."""
    batch = task.start(1)
    rows: list[dict[str, Any]] = []
    while True:
        if task.limit_s is not None:
            batch.fail_longer_than(task.limit_s)
        ended = batch.done
        rows += task.rows(*batch.take())
        if ended:
            return RESULTS_VERSION, rows
        time.sleep(0.002)


class Cluster:
    """An engine of workers that somebody else looks after: lost ones lose no run."""

    def __init__(self, client: Client, address: str) -> None:
        self.client, self.address = client, address

    def make(self, tasks: Iterable[Task], stop: Callable[[], bool]) -> Iterator[Done]:
        """What ends, as it does; as many tasks are ahead as keep the workers busy."""
        from distributed import KilledWorker, wait

        run_s: float | None = None
        size = FIRST_RUNS
        waiting = iter(())  # type: Iterator[Task]
        whole = iter(tasks)
        under_way: dict[Any, Task] = {}
        more = True
        try:
            while not stop():
                workers = max(1, sum(self.client.nthreads().values()))  # type: ignore[no-untyped-call]
                while more and len(under_way) < (1 + AHEAD) * workers:
                    if run_s is not None:
                        size = min(MOST_RUNS, max(1, round(TASK_S / max(run_s, 1e-6))))
                    part = next(waiting, None)
                    if part is None:
                        task = next(whole, None)
                        if task is None:
                            more = False
                            break
                        waiting = _sized(task, size)
                        continue
                    under_way[self.client.submit(work, part, pure=False)] = part
                if not under_way:
                    return
                try:
                    ended = wait(  # type: ignore[no-untyped-call]
                        list(under_way), timeout=WAIT_S, return_when="FIRST_COMPLETED"
                    ).done
                except TimeoutError:
                    yield Done()
                    continue
                for future in ended:
                    task = under_way.pop(future)
                    try:
                        version, rows = future.result()
                    except KilledWorker:
                        # Several workers died while they had it. Where one of its runs is the
                        # reason, as one that takes all memory is, halves find out which.
                        if len(task.runs) == 1:
                            yield Done(task.lost("its worker died several times, out of memory?"))
                        else:
                            for part in task.split(-(-len(task.runs) // 2)):
                                under_way[self.client.submit(work, part, pure=False)] = part
                        continue
                    if version != RESULTS_VERSION:
                        raise ScenarioError(
                            f"--on: found a worker with results version {version}, allowed: "
                            f"{RESULTS_VERSION}, as here"
                        )
                    costs = [row[COST] for row in rows if row.get(COST) is not None]
                    if costs:
                        mean = sum(costs) / len(costs)
                        run_s = mean if run_s is None else 0.7 * run_s + 0.3 * mean
                    yield Done(rows)
        finally:
            if under_way:
                self.client.cancel(list(under_way))  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return f"Dask at {self.address}"


def _sized(task: Task, size: int) -> Iterator[Task]:
    return islice(task.split(size), None)


@contextmanager
def cluster(on: str, threads: int | None) -> Iterator[Cluster]:
    """The engine at an address, or, for "dask", on workers of this machine that end with it.

    Raises `ScenarioError` without the library, and where no scheduler answers.
    """
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ScenarioError(
            f"--on: found {on}, which needs Dask, allowed: pip install 'forebay[dask]', or threads"
        ) from error
    # A lost worker is no news: its tasks are done by others.
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if on == "dask":
        with ExitStack() as stack:
            # An interruption while they start is told once they have.
            with signals.held() as interrupted:
                try:
                    local = stack.enter_context(
                        LocalCluster(  # type: ignore[no-untyped-call]
                            n_workers=threads or cores(),
                            threads_per_worker=1,
                            dashboard_address=None,
                            silence_logs=logging.CRITICAL,
                        )
                    )
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
        client = Client(on, timeout=ANSWER)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TimeoutError) as error:
        raise ScenarioError(
            f'--on: found "{on}", which does not answer, allowed: the address of a scheduler of '
            "Dask that runs"
        ) from error
    with client:
        yield Cluster(client, on)
