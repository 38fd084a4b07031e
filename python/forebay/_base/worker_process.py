"""A process that answers requests by calling a function of this package.

The process runs a new interpreter and is neither forked nor spawned by `multiprocessing`, so that a
notebook, a program with threads and a script without a guarded main may start one.
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

#: The program of the process, which imports from the same path as this process.
COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from forebay._base import worker_process; worker_process.serve(sys.argv[2])"
)


class WorkerError(RuntimeError):
    """The process of a worker has ended, for example for lack of memory."""


class Worker:
    """A process that calls one function: `send` passes arguments, and `receive` returns the result.

    Parameters
    ----------
    function : str
        The function, such as "forebay.studio.theory:answer".
    environment : mapping of str to str, optional
        Variables to set in the process.
    """

    def __init__(self, function: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, json.dumps(sys.path), function],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict(environment or {}),
            # In a session of its own the process gets no Ctrl-C; this process ends it.
            start_new_session=True,
        )
        self._loaded = False

    def loaded(self, timeout_s: float | None = None) -> bool:
        """Return True once the process has loaded its function.

        Parameters
        ----------
        timeout_s : float, optional
            Time to wait in seconds; without limit by default.
        """
        if not self._loaded and self.answered(timeout_s):
            self.receive()
            self._loaded = True
        return self._loaded

    def answered(self, timeout_s: float | None = None) -> bool:
        """Return True once there is a result to receive.

        Parameters
        ----------
        timeout_s : float, optional
            Time to wait in seconds; without limit by default.

        Raises
        ------
        WorkerError
            If the process has ended.
        """
        assert self._process.stdout is not None
        try:
            return bool(select.select([self._process.stdout], [], [], timeout_s)[0])
        except ValueError as error:  # another thread has closed the pipe
            raise WorkerError(f"{self._process.args!r} has ended") from error

    def send(self, *arguments: object) -> None:
        """Begin a call.

        Raises
        ------
        WorkerError
            If the process has ended.
        """
        assert self._process.stdin is not None
        try:
            pickle.dump(arguments, self._process.stdin)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise WorkerError(f"{self._process.args!r} has ended") from error

    def receive(self) -> Any:
        """Wait for the end of a call, and return its result.

        Raises
        ------
        ScenarioError
            If the function raised it.
        WorkerError
            If the process has ended.
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
        """Make a call and return its result.

        Raises
        ------
        ScenarioError
            If the function raised it.
        WorkerError
            If the process has ended.
        """
        self.loaded()
        self.send(*arguments)
        return self.receive()

    def end(self) -> None:
        """End the process at once, even during a call."""
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
    # Output of a library must not mix with answers, so it goes to standard error.
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
