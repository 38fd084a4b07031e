"""Ctrl-C, SIGTERM and SIGHUP: they end what is under way, and keep what has finished."""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


#: Those that are held now and heard at checkpoints, the innermost last.
_holds: list[Interruption] = []
#: Those of `ENDING` that have come.
_came: list[int] = []


def status() -> int:
    """Exit status of a command that a signal has ended: 128 and its number, as of a shell."""
    return 128 + (_came[-1] if _came else signal.SIGINT)


#: File descriptors of the terminals that a command has, which `catch` remembers.
_terminals: list[int] = []

#: Time after which an interruption that came at a moment when it cannot be raised comes again.
RETRY_S = 0.005

#: Where Python has its own code for imports.
IMPORT_SYSTEM = "<frozen importlib."


def catch() -> None:
    """Make SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, for a whole process.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored.

    An interruption is neither lost nor does it break Python. It is put off while the import system
    itself runs: raised there, it can leave a lock of that system held for ever, and every thread
    that imports something then waits for it, also at the end of the process. And it comes again
    where Python discards it, because it was raised in a callback of a weak reference or in a
    finaliser.
    """
    _terminals[:] = [fd for fd in (1, 2) if os.isatty(fd)]
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)
    sys.unraisablehook = _retry_discarded


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Note a signal, and raise `KeyboardInterrupt` as soon as that is safe."""
    _note(number)
    if frame is not None and frame.f_code.co_filename.startswith(IMPORT_SYSTEM):
        _come_again(number)
        return
    signal.default_int_handler(number, frame)


def _retry_discarded(unraisable: sys.UnraisableHookArgs) -> None:
    """Let an interruption come again that Python would print and discard."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt) and _came:
        _come_again(_came[-1])
    else:
        sys.__unraisablehook__(unraisable)


def _come_again(number: int) -> None:
    """Send a signal to the main thread after `RETRY_S`."""

    def send() -> None:
        time.sleep(RETRY_S)
        main = threading.main_thread().ident
        if hasattr(signal, "pthread_kill") and main is not None:
            signal.pthread_kill(main, number)  # also ends a system call that waits
        else:
            _thread.interrupt_main(signal.Signals(number))

    # `threading.Thread` takes locks that the interrupted code may hold.
    _thread.start_new_thread(send, ())


def _note(number: int) -> None:
    """Remember a signal for the exit status, and do without a terminal that has gone away."""
    _came.append(number)
    # A terminal that has gone away refuses every byte; what is kept must not fail over that.
    for fd in _terminals:
        if not os.isatty(fd):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


@contextmanager
def held(*, checkpoints: bool = False) -> Iterator[Interruption]:
    """The first signal is only noted while the context lasts, so that nothing finished is lost.

    A second one raises. Where signals do not come (another thread), and for signals that do not
    raise `KeyboardInterrupt` here, all is left as it is.

    checkpoints: True if `checkpoint` may end the work, which keeps what it must have kept before.
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
            _note(number)

    for number in raising:
        signal.signal(number, handle)
    if checkpoints:
        _holds.append(interruption)
    try:
        yield interruption
    finally:
        if checkpoints:
            _holds.remove(interruption)
        for number, handler in raising.items():
            signal.signal(number, handler)


def checkpoint() -> None:
    """Raise `KeyboardInterrupt` if a signal has come that is held.

    For long work under `held`, at a moment at which it may end: between two runs, say.
    """
    if any(_holds):
        raise KeyboardInterrupt


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
