"""Ctrl-C, SIGTERM and SIGHUP: they end work in progress, and finished work is kept."""

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

#: The signals that end a command: Ctrl-C, a stop from another program, and a terminal's hang-up.
ENDING = tuple(
    signal.Signals[name]
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if name in signal.Signals.__members__  # Windows has no terminal that hangs up
)


class Interruption:
    """A flag that is true once one of the signals has arrived."""

    def __init__(self) -> None:
        self._came = threading.Event()

    def __bool__(self) -> bool:
        return self._came.is_set()

    def set(self) -> None:
        """Note that a signal has arrived."""
        self._came.set()


#: The interruptions of `held` contexts that checkpoints raise, the innermost last.
_holds: list[Interruption] = []
#: The signals of `ENDING` that have arrived.
_came: list[int] = []


def status() -> int:
    """Return the exit status of a command that a signal ended: 128 plus its number."""
    return 128 + (_came[-1] if _came else signal.SIGINT)


#: File descriptors of the terminals that a command has, which `catch` remembers.
_terminals: list[int] = []

#: Time in seconds after which an interruption that could not be raised is sent again.
RETRY_S = 0.005

#: Prefix of the file names of Python's import system.
IMPORT_SYSTEM = "<frozen importlib."


def catch() -> None:
    """Make SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does, for a whole process.

    A signal that is ignored, as SIGHUP is under nohup, stays ignored.

    An interruption is neither lost nor does it break Python. It is deferred while the import system
    runs: raised there, it can leave a lock of that system held for ever, and every thread that
    imports a module then waits for it, even at the end of the process. It is sent again if Python
    discards it because it was raised in a callback of a weak reference or in a finaliser.
    """
    _terminals[:] = [fd for fd in (1, 2) if os.isatty(fd)]
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _interrupt)
    sys.unraisablehook = _retry_discarded


def ignore() -> None:
    """Ignore the signals that end a command from now on."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Note a signal, and raise `KeyboardInterrupt` as soon as that is safe."""
    _note(number)
    if frame is not None and frame.f_code.co_filename.startswith(IMPORT_SYSTEM):
        _come_again(number)
        return
    signal.default_int_handler(number, frame)


def _retry_discarded(unraisable: sys.UnraisableHookArgs) -> None:
    """Send an interruption again that Python would print and discard."""
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
    """Remember a signal for the exit status, and stop writing to a terminal that has gone away."""
    _came.append(number)
    # A terminal that has gone away refuses every byte; keeping results must not fail because of it.
    for fd in _terminals:
        if not os.isatty(fd):
            os.dup2(os.open(os.devnull, os.O_WRONLY), fd)


@contextmanager
def held(*, checkpoints: bool = False) -> Iterator[Interruption]:
    """Enter a context in which the first signal is only noted, so that nothing finished is lost.

    A second signal raises `KeyboardInterrupt`. In a thread that receives no signals, and for
    signals that do not raise `KeyboardInterrupt` here, nothing changes.

    Parameters
    ----------
    checkpoints : bool, default False
        True if `checkpoint` may end the work, which must then already have kept what it needs to
        keep.

    Yields
    ------
    Interruption
        True once a signal has arrived.
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
    """Raise `KeyboardInterrupt` if a signal that is held has arrived.

    Long work under `held` calls it at moments at which it may end, for example between two runs.
    """
    if any(_holds):
        raise KeyboardInterrupt


def end_waits() -> None:
    """Let Ctrl-C end a wait of this thread for another thread, a lock or a process.

    polars, once it is loaded, installs a handler with SA_RESTART in front of Python's, so the
    kernel resumes a system call and Ctrl-C is noticed only when the wait ends by itself.
    """
    if hasattr(signal, "siginterrupt"):
        signal.siginterrupt(signal.SIGINT, True)


@contextmanager
def kept_from_children() -> Iterator[None]:
    """Enter a context whose new processes do not receive Ctrl-C and the hang-up of a terminal.

    A terminal sends both to all processes. The parent ends its children itself, once it has their
    finished results. The context also covers processes of threads that begin in it.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    # Starting the tracker unblocks SIGINT in this thread, so it starts before SIGINT is blocked.
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _is_ours(handler: object) -> bool:
    """Return True if a handler is that of this module."""
    return getattr(handler, "__module__", "") == __name__
