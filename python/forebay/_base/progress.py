"""How far the runs are, on standard error: a bar on a terminal, a line that moves in a notebook, a
line now and then elsewhere."""

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
    """The progress of runs: `fraction` of the work, and runs that have ended."""

    fraction: float
    ended: int
    runs: int
    elapsed_s: float
    #: what else there is to say, after the count
    more: str = ""
    #: the part of `fraction` that was there before, and took no time
    found: float = 0.0

    @property
    def left_s(self) -> float | None:
        """Estimate of the time left; None before any progress."""
        made = self.fraction - self.found
        return self.elapsed_s * (1 - self.fraction) / made if made > 0 else None


#: Least time between two lines where there is no terminal.
LINE_EVERY_S = 2.0
#: A notebook, whose own bars would need ipywidgets; there a line is written over.
NOTEBOOK, NOTEBOOK_EVERY_S = "ipykernel", 0.2


@contextmanager
def bar(
    *, only_on_terminal: bool = False, what: str = "runs"
) -> Iterator[Callable[[Progress], None]]:
    """A function that shows the progress of `what` while the context lasts."""
    console = _terminal()
    if console is not None:
        from rich import progress

        shown = progress.Progress(
            progress.TextColumn("{task.fields[runs]}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        )
        task = shown.add_task("", total=1.0, runs="", left="")

        def update(now: Progress) -> None:
            shown.update(task, completed=now.fraction, runs=_count(now, what), left=_left(now))

        # A terminal that goes away must take no run with it.
        with suppress(OSError):
            shown.start()
        try:
            yield update
        finally:
            with suppress(OSError):
                shown.stop()
        return

    last_s = 0.0
    in_notebook = NOTEBOOK in sys.modules

    def line(now: Progress) -> None:
        nonlocal last_s
        every_s = LINE_EVERY_S if not in_notebook else NOTEBOOK_EVERY_S
        if (in_notebook or not only_on_terminal) and now.elapsed_s - last_s >= every_s:
            last_s = now.elapsed_s
            text = f"{_count(now, what)}, {100 * now.fraction:.0f} %, {_left(now)}".rstrip(", ")
            # A notebook's cell has one line, which is written over.
            _say(f"\r{text:60}" if in_notebook else f"{text}\n")

    yield line
    if in_notebook and last_s:
        _say(f"\r{'':60}\r")


@contextmanager
def stages(*, only_on_terminal: bool = False) -> Iterator[Callable[[str, Progress], None]]:
    """Show the progress of work in stages, each named by what it counts, as `bar` does."""
    stage, update = "", None
    with ExitStack() as stack:

        def watch(what: str, now: Progress) -> None:
            nonlocal stage, update
            if update is None or what != stage:
                stack.close()
                stage = what
                update = stack.enter_context(bar(only_on_terminal=only_on_terminal, what=what))
            update(now)

        yield watch


def _say(text: str) -> None:
    with suppress(OSError):
        print(text, end="", file=sys.stderr, flush=True)


def status(text: str) -> AbstractContextManager[object]:
    """Shows on a terminal what takes a while."""
    console = _terminal()
    return nullcontext() if console is None else console.status(text)


def _terminal() -> Console | None:
    """A terminal, where something can move. Loads rich only if it may be one."""
    if not sys.stderr.isatty():
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal and not console.is_jupyter else None


def _count(now: Progress, what: str) -> str:
    return f"{now.ended} of {now.runs} {what}{now.more}"


def _left(now: Progress) -> str:
    """The estimate, no finer than it deserves."""
    if now.left_s is None or now.elapsed_s < 1:
        return ""
    return f"{about(now.left_s)} left"


def about(seconds: float) -> str:
    """Return an estimated time, no finer than an estimate deserves: "about 40 s"."""
    seconds = round(seconds)
    if seconds < 90:
        return f"about {seconds} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {minutes} min"
    return f"about {minutes / 60:.1f} h"
