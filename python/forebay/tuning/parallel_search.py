"""The searches of a tuning, each law for each goal, in processes of their own.

A search holds the interpreter, so threads do not help it. The processes are commands that this one
starts, neither forked nor spawned from it: so a notebook, a program with threads and a script
without a guarded main may tune. A search depends on its law, goal, ranges and seed alone, and every
process has one thread of BLAS: the result is the same with any number of them.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay._base import signals
from forebay._native import ScenarioError
from forebay.experiment import execution
from forebay.experiment import store as designs
from forebay.experiment.store import Designs
from forebay.tuning import calm_regions, candidates
from forebay.tuning.candidates import GOALS, Candidate
from forebay.tuning.gain_search import search
from forebay.tuning.ranges import Ranges

if TYPE_CHECKING:
    from forebay.experiment.store import Store

#: A law, and the name of a goal.
Task = tuple[str, str]
Worker = subprocess.Popen[bytes]

#: What such a process does; it finds the package where this one does.
_COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from forebay.tuning import parallel_search; parallel_search.serve()"
)
#: Variables that say how many threads a BLAS has.
_BLAS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def best_candidate(task: Task, ranges: Ranges, seed: int) -> Candidate:
    """The best of a law for a goal: from the calm region of a PI, or else by search."""
    law, goal = task[0], GOALS[task[1]]
    region = calm_regions.region_of(law, ranges)
    found = region.best(goal) if region is not None else None
    if found is not None:
        return found
    space = candidates.space(law, ranges)
    assert space is not None
    return search(space, goal, ranges, seed)


def search_all(
    tasks: Sequence[Task],
    ranges: Ranges,
    seed: int,
    processes: int | None = None,
    store: Store | None = None,
) -> Generator[tuple[int, Candidate]]:
    """`best_candidate` of each task, with its number, as they end; first those that `store` has.

    processes: at most so many at once; one for each core if None. One alone is this one.
    """
    if store is None:
        yield from _search_all(tasks, ranges, seed, processes)
        return
    kept = Designs(store)
    digests = [
        designs.design_digest({"task": task, "ranges": repr(ranges), "seed": seed})
        for task in tasks
    ]
    missing = []
    try:
        for number, digest in enumerate(digests):
            numbers = kept.get(digest)
            if numbers is None:
                missing.append(number)
                continue
            params = tuple((name, text) for name, text in numbers.pop("params"))
            candidate = Candidate(**numbers, params=params)
            yield number, _with_models(candidate, ranges)
        for at, candidate in _search_all([tasks[i] for i in missing], ranges, seed, processes):
            numbers = vars(candidate) | {"local": (), "point": dict(candidate.point)}
            kept.put(digests[missing[at]], numbers)
            kept.tick()
            yield missing[at], candidate
    finally:
        kept.flush()


def _search_all(
    tasks: Sequence[Task], ranges: Ranges, seed: int, processes: int | None
) -> Generator[tuple[int, Candidate]]:
    most = min(processes or execution.cores(), len(tasks))
    if most < 2 or not sys.executable:
        for number, task in enumerate(tasks):
            yield number, best_candidate(task, ranges, seed)
        return
    # What a range has worked out for itself does not travel.
    plain = replace(ranges)
    with _started(most) as workers, ThreadPoolExecutor(most) as pool:
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in workers:
            idle.put(worker)

        def ask(task: Task) -> Candidate:
            worker = idle.get()
            try:
                return _answer(worker, (task, plain, seed))
            finally:
                idle.put(worker)

        asked = {pool.submit(ask, task): number for number, task in enumerate(tasks)}
        try:
            signals.end_waits()
            for done in as_completed(asked):
                yield asked[done], _with_models(done.result(), ranges)
                # Who has the candidate may have loaded polars for it.
                signals.end_waits()
        except BaseException:
            # What waits is not begun, and the processes end in the middle of what they do.
            for future in asked:
                future.cancel()
            _end(workers)
            raise


def serve() -> None:
    """Answers tasks from standard input until it ends; Ctrl-C is the business of who asks."""
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    # What a library prints is no answer.
    sys.stdout = sys.stderr
    with suppress(EOFError):
        while True:
            task, ranges, seed = pickle.load(asked)
            answer: Candidate | str
            try:
                answer = replace(best_candidate(task, ranges, seed), local=())
            except ScenarioError as error:
                answer = str(error)
            pickle.dump(answer, answers)
            answers.flush()


@contextmanager
def _started(number: int) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        for _ in range(number):
            # An interruption while a process begins would leave it out of the list, and behind.
            with signals.held(checkpoints=True):
                worker = subprocess.Popen(
                    [sys.executable, "-c", _COMMAND, json.dumps(sys.path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=os.environ | dict.fromkeys(_BLAS, "1"),
                    # A terminal's Ctrl-C is for this process, which ends those.
                    start_new_session=True,
                )
                workers.append(worker)
                signals.checkpoint()
        yield workers
    finally:
        _end(workers)


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.kill()
        worker.wait()
        for pipe in (worker.stdin, worker.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def _answer(worker: Worker, request: tuple[Task, Ranges, int]) -> Candidate:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        pickle.dump(request, worker.stdin)
        worker.stdin.flush()
        found = pickle.load(worker.stdout)
    except (EOFError, OSError) as error:
        raise RuntimeError("a process that searched for gains has ended") from error
    if isinstance(found, str):
        raise ScenarioError(found)
    assert isinstance(found, Candidate)
    return found


def _with_models(candidate: Candidate, ranges: Ranges) -> Candidate:
    """With its linear models, which do not travel."""
    space = calm_regions.space_of(candidate, ranges)
    assert space is not None
    try:
        return replace(
            candidate, local=tuple(space.local(candidate.point, ranges, ranges.conditions))
        )
    except ScenarioError:  # as of `gain_search.search`
        return candidate
