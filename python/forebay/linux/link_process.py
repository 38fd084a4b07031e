"""A link in a process of its own: a process with several threads may not enter a namespace."""

from __future__ import annotations

import errno
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from forebay._base.errors import LinkError as LinkError
from forebay._native import ScenarioError
from forebay.linux.link_outcome import Outcome
from forebay.linux.link_settings import Settings

if TYPE_CHECKING:
    from forebay._native import LinkReady

#: How long a stopped link may take to end.
PATIENCE_S = 10.0


class Emulator:
    """A link that runs in a child process. It ends with this process, also with a killed one."""

    def __init__(
        self,
        settings: Settings,
        command: Sequence[str | os.PathLike[str]] | None,
        server: str | None,
        stdin: int | IO[Any] | None = None,
        stdout: int | IO[Any] | None = None,
        stderr: int | IO[Any] | None = None,
        **more: Any,
    ) -> None:
        """Starts it, and waits until it is up. `more` is for `link_run`: programs, packets, apart.

        Raises `ScenarioError` for wrong settings, `LinkError` where the machine refuses.
        """
        self.settings = settings
        self.command = [os.fspath(word) for word in command or ()]
        self.server = server
        request = {
            "settings": settings,
            "command": self.command or None,
            "server": server,
            "more": more,
        }
        # Files without a name: nothing of them stays, and no folder has to be writable.
        wanted = _memory("request")
        wanted.write(pickle.dumps(request))
        wanted.seek(0)
        self._found = _memory("outcome")
        # Closed by the kernel when this process ends, and by Python when nobody has the link.
        self._stop, stopped = socket.socketpair()
        ready_read, ready_write = os.pipe()
        passed = (wanted.fileno(), self._found.fileno(), stopped.fileno(), ready_write)
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "forebay.linux.emulator_process", *map(str, passed)],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=passed,
                # A command has the terminal's Ctrl-C itself. Without one, Ctrl-C is for the
                # program that this is a part of, which may go on.
                start_new_session=not self.command,
            )
        except BaseException:
            os.close(ready_read)
            self._close()
            raise
        finally:
            wanted.close()
            stopped.close()
            os.close(ready_write)
        try:
            # Not up to the end of the pipe: what holds the namespaces is a fork that has it, too.
            with os.fdopen(ready_read, "rb") as ready:
                #: How others enter its namespaces.
                self.up: LinkReady = pickle.load(ready)
        except EOFError:
            self.wait()
            raise LinkError("the link ended before it was up") from None
        except BaseException:
            self.stop()
            raise

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

    def end(self) -> None:
        """Ends the link soon, with all that runs in it, also from another thread than the one that
        waits."""
        # Closing would not do where a fork of this process has the socket, too. One that is closed
        # is of a link that has ended.
        with suppress(OSError):
            self._stop.shutdown(socket.SHUT_RDWR)

    def stop(self) -> Outcome | None:
        """Ends the link with all that runs in it; None if it left nothing to read."""
        self.end()
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
        return Outcome(self.settings, self.command, self.server, value)

    def _close(self) -> None:
        self._stop.close()
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
    outcome = emulator.wait(timeout_s)
    number = outcome.observed.not_started
    if number is not None:
        raise OSError(number, os.strerror(number), emulator.command[0])
    return outcome


def why_not_started(number: int, program: str) -> tuple[str, int]:
    """A line, and the exit status that a shell has for it."""
    status = 127 if number == errno.ENOENT else 126
    return f"forebay link: {program}: {os.strerror(number).lower()}", status
