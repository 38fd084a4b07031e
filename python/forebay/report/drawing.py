"""Drawing many figures: matplotlib takes most of a report's time, so all cores take part."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from forebay.run.experiment import cores
from forebay.run.signals import ENDING

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from forebay.report.page import Sketch

#: Figures for which a further process is worth its start.
WORTH = 3
#: A process that is silent for longer is given up, and the figure drawn here.
PATIENCE_S = 120.0

#: Files by their names, and an SVG.
Drawn = tuple[dict[str, bytes], str]


def rendered(pictures: Sequence[Sketch]) -> Generator[Drawn, None, None]:
    """Files and SVG of each figure, in their order; drawn on all cores where that is possible."""
    processes = min(cores(), len(pictures) // WORTH)
    if processes < 2 or not _may_fork():
        yield from (picture.render() for picture in pictures)
        return
    # Before the fork, so that each process has it.
    from forebay.report import plots

    del plots
    fork = multiprocessing.get_context("fork")
    pipes: list[Connection] = []
    started = []
    # A signal must not meet a child before it ignores the terminal's.
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        for i in range(processes):
            here, there = fork.Pipe(duplex=False)
            pipes.append(here)
            child = fork.Process(
                target=_draw, args=(pictures[i::processes], there, list(pipes)), daemon=True
            )
            child.start()
            started.append(child)
            there.close()
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    try:
        for i, picture in enumerate(pictures):
            yield _received(pipes[i % processes]) or picture.render()
    finally:
        for child in started:
            child.kill()
        for child, pipe in zip(started, pipes, strict=True):
            child.join()
            pipe.close()


def _may_fork() -> bool:
    """A notebook's kernel has threads of its own, whose locks a fork would copy; a process of a
    pool may have no children."""
    return (
        sys.platform == "linux"
        and "ipykernel" not in sys.modules
        and threading.current_thread() is threading.main_thread()
        and not multiprocessing.current_process().daemon
    )


def _draw(pictures: Sequence[Sketch], to: Connection, others: Sequence[Connection]) -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
    # Where the parent is killed, nobody reads any more, and the write fails.
    for other in others:
        other.close()
    try:
        for picture in pictures:
            to.send(picture.render())
    except Exception:
        # The parent draws this figure itself, and meets the same fault.
        return


def _received(pipe: Connection) -> Drawn | None:
    try:
        if not pipe.poll(PATIENCE_S):
            return None
        found: Drawn = pipe.recv()
        return found
    except (EOFError, OSError):
        return None
