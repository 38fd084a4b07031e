"""The hooks of one law in Python while it runs: made for the Rust module, which calls them, with
the words for what one of them does wrong."""

from __future__ import annotations

import ctypes
import dis
import inspect
import random
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

#: Hooks that a law may have, with what each may return.
HOOKS = {
    "sample": "a probability, 0 to 1",
    "on_enqueue": '"pass", "mark" or "drop"',
    "on_dequeue": '"pass", "mark" or "drop"',
}
#: Most lines of a law's own calls under what it raised.
MOST_CALLS = 4


class UnfitError(Exception):
    """A class that makes no law: its `key`, what was `found`, and what is `allowed`."""

    def __init__(self, key: str, found: str, allowed: str) -> None:
        self.key, self.found, self.allowed = key, found, allowed
        super().__init__(f"{key}: found {found}, allowed: {allowed}")


@dataclass(frozen=True)
class LawHooks:
    """One law, as the Rust module calls it."""

    #: seconds, or a text with a unit; None without `sample`
    interval: object
    sample: Callable[..., object] | None
    on_enqueue: Callable[..., object] | None
    on_dequeue: Callable[..., object] | None
    #: takes a seed for the law's random numbers
    seeded: Callable[[int], None]
    #: takes the name of a hook with what it raised, or else with what it returned; gives words
    blame: Callable[[str, BaseException | None, object], str]


def make(prototype: Callable[..., Any], values: dict[str, Any]) -> LawHooks:
    """A law with these parameters. Raises `UnfitError`."""
    try:
        law = prototype(**values)
    except Exception as error:
        found = f"{type(error).__name__}: {error}{_at(error)}"
        raise UnfitError("kind", found, "a class that takes its parameters") from error
    hooks = {name: getattr(law, name, None) for name in HOOKS}
    for name, hook in hooks.items():
        if hook is not None and not callable(hook):
            raise UnfitError(name, repr(hook), f"a method that returns {HOOKS[name]}")
    if not any(hooks.values()):
        found = f"nothing to call in {type(law).__name__}"
        allowed = "a method sample, which returns a probability, on_enqueue or on_dequeue"
        raise UnfitError("sample", found, allowed)
    interval = getattr(law, "interval", None)
    if hooks["sample"] and interval is None:
        allowed = 'the time between two samples: seconds, or a text such as "15ms"'
        raise UnfitError("interval", "nothing", allowed)

    def seeded(seed: int) -> None:
        if not hasattr(law, "rng"):
            # A frozen dataclass gets it, too; one with slots has no place for it.
            try:
                object.__setattr__(law, "rng", random.Random(seed))
            except AttributeError:
                return

    return LawHooks(
        interval=interval if hooks["sample"] else None,
        **hooks,
        seeded=seeded,
        blame=lambda name, error, value: blame(law, name, error, value),
    )


def interrupter() -> Callable[[], None]:
    """Stops what Python runs in this thread, called from another one.

    A thread that runs no Python at that time does not hear of it. Signals reach the main thread
    alone, and runs have threads of their own.
    """
    thread = ctypes.c_ulong(threading.get_ident())

    def interrupt() -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(KeyboardInterrupt))

    return interrupt


def blame(law: object, name: str, error: BaseException | None, value: object) -> str:
    """File, line and hook; what it raised, or else returned; and what is allowed."""
    hook = f"{type(law).__name__}.{name}"
    if error is None:
        method = getattr(law, name)
        code = getattr(inspect.unwrap(method), "__code__", None)
        where = f"{_shown(code.co_filename)}:{_return_line(code)}: " if code else ""
        return f"{where}{hook}: found {_short(value)}, allowed: {HOOKS[name]}"
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{_shown(frames[-1].filename)}:{frames[-1].lineno}: " if frames else ""
    calls = [
        f"\n    {_shown(frame.filename)}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in frames[-MOST_CALLS:]
    ]
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    return f"{where}{hook}: raised {said}{''.join(calls)}"


def _return_line(code: CodeType) -> int:
    """Line of the only `return` of a function, or else its first."""
    lines = {
        step.positions.lineno
        for step in dis.get_instructions(code)
        if step.opname in {"RETURN_VALUE", "RETURN_CONST"} and step.positions
    }
    return (lines.pop() if len(lines) == 1 else None) or code.co_firstlineno


def _at(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)[1:]
    return f" ({_shown(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""


def _shown(file: str) -> str:
    """A file as from the present folder, where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
