"""A link in a process of its own: a process with several threads may not enter a namespace."""

from __future__ import annotations

import errno
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any

from forebay._native import ScenarioError
from forebay.emulator import outcome
from forebay.emulator.outcome import Outcome
from forebay.emulator.settings import Settings

#: How long a stopped link may take to end.
PATIENCE_S = 10.0


class LinkError(RuntimeError):
    """This machine does not allow a link; the text says what to do."""


class Emulator:
    """A link under way in a child process. It ends when this process does, however that is."""

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str | os.PathLike[str]] | None,
        server: str | None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
    ) -> None:
        """Starts it, and waits until it is up.

        Raises `ScenarioError` for wrong settings, `LinkError` where the machine refuses.
        """
        settings.check()
        self.settings = settings
        self.command = [os.fspath(word) for word in command or ()]
        self.server = server
        request = {"settings": settings, "command": self.command or None, "server": server}
        # Files without a name: nothing of them stays, and no folder has to be writable.
        wanted = _memory("request")
        wanted.write(pickle.dumps(request))
        wanted.seek(0)
        self._found = _memory("outcome")
        stop_read, self._stop = os.pipe()
        ready_read, ready_write = os.pipe()
        passed = (wanted.fileno(), self._found.fileno(), stop_read, ready_write)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forebay.emulator.child", *map(str, passed)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=passed,
            )
        except BaseException:
            self._close()
            raise
        finally:
            wanted.close()
            os.close(stop_read)
            os.close(ready_write)
        with os.fdopen(ready_read) as ready:
            line = ready.readline()
        if not line:
            self.wait()
            raise LinkError("the link ended before it was up")
        #: What others need to enter its namespaces.
        self.up: dict[str, Any] = json.loads(line)

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """Waits until the link ends; after `timeout_s` it is stopped.

        Raises `subprocess.TimeoutExpired`, `ScenarioError` and `LinkError`.
        """
        try:
            self.process.wait(timeout_s)
        except BaseException:
            self.stop()
            raise
        try:
            return self._outcome()
        finally:
            self._close()

    def stop(self) -> Outcome | None:
        """Ends the link with all that runs in it; None if it left nothing to read."""
        if self._stop >= 0:
            os.close(self._stop)
            self._stop = -1
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        try:
            return self._outcome()
        except LinkError:
            return None
        finally:
            self._close()

    def _outcome(self) -> Outcome:
        self._found.seek(0)
        try:
            kind, value = pickle.load(self._found)
        except (EOFError, pickle.UnpicklingError):
            # It was killed.
            raise LinkError(
                f"the link's process ended with status {self.process.returncode}"
            ) from None
        if kind == "wrong":
            raise ScenarioError(value)
        if kind == "refused":
            raise LinkError(value)
        return outcome.read(self.settings, self.command, self.server, value)

    def _close(self) -> None:
        if self._stop >= 0:
            os.close(self._stop)
            self._stop = -1
        self._found.close()


def _memory(name: str) -> IO[bytes]:
    """A file without a name, for a child too."""
    return os.fdopen(os.memfd_create(f"forebay-{name}"), "w+b")


def run(
    settings: Settings,
    command: Sequence[str | os.PathLike[str]],
    *,
    server: str | None = None,
    timeout_s: float | None = None,
    stdin: int | IO[Any] | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> Outcome:
    """Runs a command behind a link, and returns what was observed.

    command: program and arguments; it finds addresses in FOREBAY_SERVER and FOREBAY_CLIENT, and
        with 6 at the end those of IPv6.
    server: a line for the shell, to run at the far end; the command is started when it listens.
    timeout_s: the run is stopped after so long, with `subprocess.TimeoutExpired`.
    stdin, stdout, stderr: as for `subprocess.Popen`, of the command and the server.

    Raises `ScenarioError` for settings that cannot be, `LinkError` where the machine refuses
    the link, and `OSError` where it cannot start the command.
    """
    emulator = Emulator(settings, command, server, stdin, stdout, stderr)
    found = emulator.wait(timeout_s)
    if found.not_started is not None:
        number = found.not_started
        raise OSError(number, os.strerror(number), emulator.command[0])
    return found


def why_not_started(number: int, program: str) -> tuple[str, int]:
    """A line, and the exit status that a shell has for it."""
    status = 127 if number == errno.ENOENT else 126
    return f"forebay link: {program}: {os.strerror(number).lower()}", status
