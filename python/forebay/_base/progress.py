"""Show the progress of work on standard error.

A terminal gets a bar, a notebook one line that is overwritten, and anything else a line from time
to time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Progress:
    """The progress of runs.

    Attributes
    ----------
    fraction : float
        Share of the work that is done, from 0 to 1.
    ended_runs : int
        Number of runs that have ended.
    runs : int
        Number of all runs.
    elapsed_s : float
        Time since the start in seconds.
    more : str, default ''
        A text to append to the count, such as ", 2 failed".
    fraction_from_store : float, default 0.0
        The part of `fraction` that was in the store and took no time.
    """

    fraction: float
    ended_runs: int
    runs: int
    elapsed_s: float
    more: str = ""
    fraction_from_store: float = 0.0

    @property
    def left_s(self) -> float | None:
        """The estimated remaining time in seconds; None before any progress."""
        fraction_made = self.fraction - self.fraction_from_store
        return self.elapsed_s * (1 - self.fraction) / fraction_made if fraction_made > 0 else None


#: The shortest time in seconds between two lines if there is no terminal.
LINE_EVERY_S = 2.0
#: The module that marks a notebook, and the shortest time between two updates of its line. A bar
#: in a notebook would need ipywidgets.
NOTEBOOK, NOTEBOOK_EVERY_S = "ipykernel", 0.2


@contextmanager
def bar(
    *, only_on_terminal: bool = False, unit: str = "runs"
) -> Iterator[Callable[[Progress], None]]:
    """Enter a context with a function that shows progress while the context lasts.

    Parameters
    ----------
    only_on_terminal : bool, default False
        True to show nothing without a terminal or a notebook.
    unit : str, default 'runs'
        The noun that is counted.

    Yields
    ------
    Callable[[Progress], None]
        The function.
    """
    console = _terminal()
    if console is not None:
        from rich import progress

        display = progress.Progress(
            progress.TextColumn("{task.fields[runs]}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        task = display.add_task("", total=1.0, runs="", left="")

        def update(now: Progress) -> None:
            display.update(task, completed=now.fraction, runs=_count(now, unit), left=_left(now))

        # A terminal that goes away must not end the runs.
        with suppress(OSError):
            display.start()
        try:
            yield update
        finally:
            with suppress(OSError):
                display.stop()
        return

    last_s = 0.0
    in_notebook = NOTEBOOK in sys.modules

    def line(now: Progress) -> None:
        nonlocal last_s
        every_s = LINE_EVERY_S if not in_notebook else NOTEBOOK_EVERY_S
        if (in_notebook or not only_on_terminal) and now.elapsed_s - last_s >= every_s:
            last_s = now.elapsed_s
            text = f"{_count(now, unit)}, {100 * now.fraction:.0f} %, {_left(now)}".rstrip(", ")
            # The cell of a notebook shows one line, which is overwritten.
            _say(f"\r{text:60}" if in_notebook else f"{text}\n")

    yield line
    if in_notebook and last_s:
        _say(f"\r{'':60}\r")


@contextmanager
def stages(*, only_on_terminal: bool = False) -> Iterator[Callable[[str, Progress], None]]:
    """Enter a context with a function that shows the progress of work in stages.

    Parameters
    ----------
    only_on_terminal : bool, default False
        True to show nothing without a terminal or a notebook.

    Yields
    ------
    Callable[[str, Progress], None]
        The function, whose first argument is the noun that the stage counts.
    """
    stage, update = "", None
    with ExitStack() as stack:

        def watch(unit: str, now: Progress) -> None:
            nonlocal stage, update
            if update is None or unit != stage:
                stack.close()
                stage = unit
                update = stack.enter_context(bar(only_on_terminal=only_on_terminal, unit=unit))
            update(now)

        yield watch


def _say(text: str) -> None:
    """Print to standard error, and ignore a terminal that has gone away."""
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


def status(text: str) -> AbstractContextManager[object]:
    """Enter a context that shows a text on a terminal while a task lasts."""
    console = _terminal()
    return nullcontext() if console is None else console.status(text)


def _terminal() -> Console | None:
    """Return a terminal on which a bar can move; None if there is none.

    Rich is loaded only if standard error may be such a terminal.
    """
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal and not console.is_jupyter else None


def _count(now: Progress, unit: str) -> str:
    """Return the count of runs in words."""
    return f"{now.ended_runs} of {now.runs} {unit}{now.more}"


def _left(now: Progress) -> str:
    """Return the estimated remaining time in words; empty if there is no estimate yet."""
    if now.left_s is None or now.elapsed_s < 1:
        return ""
    return f"{about(now.left_s)} left"


def about(seconds: float) -> str:
    """Return an estimated time with the precision of an estimate, such as "about 40 s"."""
    seconds = round(seconds)
    if seconds < 90:
        return f"about {seconds} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {minutes} min"
    return f"about {minutes / 60:.1f} h"
