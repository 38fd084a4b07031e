"""How far the runs are, on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.run.experiment import Progress

#: Least time between two lines where there is no terminal.
LINE_EVERY_S = 2.0


@contextmanager
def bar(
    *, only_on_terminal: bool = False, what: str = "runs"
) -> Iterator[Callable[[Progress], None]]:
    """A function that shows the progress of `what` while the context lasts."""
    console = _terminal()
    if console is not None:
        from rich import progress

        with progress.Progress(
            progress.TextColumn("{task.fields[runs]}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
        ) as shown:
            task = shown.add_task("", total=1.0, runs="", left="")

            def update(now: Progress) -> None:
                shown.update(task, completed=now.fraction, runs=_count(now, what), left=_left(now))

            yield update
        return

    last_s = 0.0

    def line(now: Progress) -> None:
        nonlocal last_s
        if not only_on_terminal and now.elapsed_s - last_s >= LINE_EVERY_S:
            last_s = now.elapsed_s
            text = f"{_count(now, what)}, {100 * now.fraction:.0f} %, {_left(now)}"
            print(text.rstrip(", "), file=sys.stderr, flush=True)

    yield line


def status(text: str) -> AbstractContextManager[object]:
    """Shows on a terminal what takes a while."""
    console = _terminal()
    return nullcontext() if console is None else console.status(text)


def _terminal() -> Console | None:
    """Where something can move: a terminal or a notebook. Loads rich only if it may be one."""
    if not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return None
    from rich.console import Console

    console = Console(stderr=True)
    return console if console.is_terminal or console.is_jupyter else None


def _count(now: Progress, what: str) -> str:
    return f"{now.ended} of {now.runs} {what}"


def _left(now: Progress) -> str:
    """The estimate, no finer than it deserves."""
    if now.left_s is None or now.elapsed_s < 1:
        return ""
    seconds = round(now.left_s)
    if seconds < 90:
        return f"about {seconds} s left"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"about {minutes} min left"
    return f"about {minutes / 60:.1f} h left"
