"""Processes that draw figures on the other cores while their caller does something else.

A process needs half a second to load matplotlib, so that it is best started while runs are made.
"""

from __future__ import annotations

import queue
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from forebay._base import signals
from forebay._base.worker_process import Worker
from forebay.experiment.execution import cores
from forebay.report import style

if TYPE_CHECKING:
    from forebay.report.plot import Rendered
    from forebay.report.sheet import FigureData

#: Largest number of processes; each takes 100 MB of memory.
MOST_PROCESSES = 4
#: Number of figures for which another process is worth its start.
FIGURES_PER_PROCESS = 4
#: The function that a process calls.
FUNCTION = "forebay.report.drawing:rendered"


class DrawingPool:
    """A pool of processes that draw figures.

    It is a context manager; the processes end with the context, even while they draw.
    """

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        """Return the pool, which has no processes yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        self._threads = None
        self._ends.close()

    def start(self, figures: int) -> bool:
        """Start as many processes as a number of figures is worth, unless they run already.

        Parameters
        ----------
        figures : int
            Number of figures, which need not be exact.

        Returns
        -------
        bool
            False if there are no processes: then a single core is available, or too few figures.
        """
        count = min(cores(), MOST_PROCESSES, figures // FIGURES_PER_PROCESS)
        if self._threads is None and cores() > 1 and count:
            self._threads = self._ends.enter_context(ThreadPoolExecutor(count))
            for _ in range(count):
                # An interruption while a process starts would leave the process running.
                with signals.held(checkpoints=True):
                    worker = Worker(FUNCTION, {"OPENBLAS_NUM_THREADS": "1"})
                    # Processes end before their threads, which then wait for nothing.
                    self._ends.callback(worker.end)
                    self._idle.put(worker)
                    signals.checkpoint()
            # polars, once it is loaded, keeps Ctrl-C from ending a wait for a figure.
            signals.end_waits()
        return self._threads is not None

    def render(self, content: FigureData, file: str, name: str) -> Future[Rendered] | None:
        """Begin to draw a figure in the style in use.

        Parameters
        ----------
        content : FigureData
            The figure as data.
        file : str
            Name of the files without their suffix; empty for none.
        name : str
            Name of the figure for a screen reader.

        Returns
        -------
        Future or None
            The files and the <svg> element, or `WorkerError` if the process has ended; None if
            there are no processes.
        """
        if self._threads is None:
            return None
        return self._threads.submit(self._rendered, content, file, name, style.in_use())

    def _rendered(self, *arguments: object) -> Rendered:
        """Let the next idle process draw a figure."""
        worker = self._idle.get()
        try:
            answer: Rendered = worker.ask(*arguments)
            return answer
        finally:
            self._idle.put(worker)
