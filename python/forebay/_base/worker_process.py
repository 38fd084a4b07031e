"""A process that answers requests by calling a function of this package.

The process is a command that this one starts, neither forked nor spawned from it: so a notebook, a
program with threads and a script without a guarded main may start one.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from forebay._native import ScenarioError

#: The process finds the package where this one does.
COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from forebay._base import worker_process; worker_process.serve(sys.argv[2])"
)


class WorkerError(RuntimeError):
    """The process of a worker has ended, for example for lack of memory."""


class Worker:
    """A process that calls one function: `send` its arguments, then `receive` what it returns."""

    def __init__(self, function: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the process with a function such as "forebay.studio.theory:answer"."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, json.dumps(sys.path), function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict(environment or {}),
            # A terminal's Ctrl-C is for this process, which then ends the other.
            start_new_session=True,
        )
        self._loaded = False

    def loaded(self, timeout_s: float | None = None) -> bool:
        """Return True once the process has loaded its function, which takes its time."""
        if not self._loaded and self.answered(timeout_s):
            self.receive()
            self._loaded = True
        return self._loaded

    def answered(self, timeout_s: float | None = None) -> bool:
        """Return True once there is something to receive; by default wait for it.

        Raises `WorkerError`.
        """
        assert self._process.stdout is not None
        try:
            return bool(select.select([self._process.stdout], [], [], timeout_s)[0])
        except ValueError as error:  # another thread has ended it
            raise WorkerError(f"{self._process.args!r} has ended") from error

    def send(self, *arguments: object) -> None:
        """Begin a call. Raises `WorkerError`."""
        assert self._process.stdin is not None
        try:
            pickle.dump(arguments, self._process.stdin)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerError(f"{self._process.args!r} has ended") from error

    def receive(self) -> Any:
        """Wait for the end of a call, and return its result.

        Raises `ScenarioError` as the function did, and `WorkerError`.
        """
        assert self._process.stdout is not None
        try:
            result, refusal = pickle.load(self._process.stdout)
        except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
            raise WorkerError(f"{self._process.args!r} has ended") from error
        if refusal is not None:
            raise ScenarioError(refusal)
        return result

    def ask(self, *arguments: object) -> Any:
        """Return the result of a whole call; raises as `send` and `receive` do."""
        self.loaded()
        self.send(*arguments)
        return self.receive()

    def end(self) -> None:
        """End the process at once, in the middle of a call too."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


def serve(function: str) -> None:
    """Answer calls of a function on standard output until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints is no answer.
    os.dup2(2, 1)
    module, _, name = function.partition(":")
    call = getattr(importlib.import_module(module), name)
    answer: tuple[Any, str | None] = None, None
    with suppress(EOFError):
        while True:
            pickle.dump(answer, answers)
            answers.flush()
            arguments = pickle.load(sys.stdin.buffer)
            try:
                answer = call(*arguments), None
            except ScenarioError as error:
                answer = None, str(error)
