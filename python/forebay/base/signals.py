"""Ctrl-C, SIGTERM and SIGHUP: they end what is under way, and keep what has finished."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

#: What ends a command: Ctrl-C, a stop from another program, and a terminal that goes away.
ENDING = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if name in signal.Signals.__members__  # Windows has no terminal that hangs up
)


class Interruption:
    """Whether one of the signals has come."""

    def __init__(self) -> None:
        self._came = threading.Event()

    def __bool__(self) -> bool:
        return self._came.is_set()

    def set(self) -> None:
        self._came.set()


#: Those of `ENDING` that have come.
_came: list[int] = []


def status() -> int:
    """Exit status of a command that a signal has ended: 128 and its number, as of a shell."""
    return 128 + (_came[-1] if _came else signal.SIGINT)


def catch() -> None:
    """Makes SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, for a whole process.

    One that is ignored, as SIGHUP is under nohup, stays so.
    """
    terminals = [fd for fd in (1, 2) if os.isatty(fd)]

    def handle(number: int, frame: FrameType | None) -> None:
        _note(number, terminals)
        signal.default_int_handler(number, frame)

    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, handle)


def _note(number: int, terminals: list[int] | None = None) -> None:
    _came.append(number)
    # A terminal that has gone away refuses every byte; what is kept must not fail over that.
    for fd in terminals or ():
        if not os.isatty(fd):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


@contextmanager
def held() -> Iterator[Interruption]:
    """The first signal is only noted while the context lasts, so that nothing finished is lost.

    A second one raises. Where signals do not come (another thread), and for signals that do not
    raise `KeyboardInterrupt` here, all is left as it is.
    """
    interruption = Interruption()
    if threading.current_thread() is not threading.main_thread():
        yield interruption
        return
    former = {number: signal.getsignal(number) for number in ENDING}
    raising = {
        number: handler
        for number, handler in former.items()
        if callable(handler) and (number == signal.SIGINT or _is_ours(handler))
    }

    def handle(number: int, frame: FrameType | None) -> None:
        again, former = bool(interruption), raising[signal.Signals(number)]
        interruption.set()
        if again:
            former(number, frame)
        elif _is_ours(former):
            # It notes the number, and a terminal that has gone.
            with suppress(KeyboardInterrupt):
                former(number, frame)

    for number in raising:
        signal.signal(number, handle)
    try:
        yield interruption
    finally:
        for number, handler in raising.items():
            signal.signal(number, handler)


def end_waits() -> None:
    """Lets Ctrl-C end a wait of this thread for another one, a lock or a process, again.

    polars, once it is loaded, has a handler of its own before Python's, with which the kernel goes
    on waiting (SA_RESTART): Ctrl-C would be heard when the wait ends by itself.
    """
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(signal.SIGINT, True)


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Processes started while the context lasts, also by threads that begin in it, do not get
    Ctrl-C and the hang-up of a terminal, which go to all processes there: who started them ends
    them, once it has what they have finished."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    # It lets Ctrl-C through again in the thread that starts it.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _is_ours(handler: object) -> bool:
    return getattr(handler, "__module__", "") == __name__
