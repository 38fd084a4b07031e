"""A link in a process of its own: a process with several threads may not enter a namespace.

`run` runs a command behind a link, and `link` is one in a Python program:
`with forebay.link(...) as net: net.client.run([...])`.
"""

from __future__ import annotations

import errno
import inspect
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

from forebay._base.errors import LinkError as LinkError
from forebay._native import ScenarioError
from forebay.linux.link_outcome import Outcome
from forebay.linux.link_settings import Settings, settings

if TYPE_CHECKING:
    from forebay._native import LinkReady

Words = Sequence[str | os.PathLike[str]]
Stream = int | IO[Any] | None

#: Time that a stopped link may take to end.
PATIENCE_S = 10.0
#: The programs that run in namespaces, with one thread.
PROGRAM = [sys.executable, "-m", "forebay.linux.emulator_process"]


class Emulator:
    """A link that runs in a child process. It ends with this process, also with a killed one."""

    def __init__(
        self,
        settings: Settings,
        command: Words | None,
        server: str | None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        **more: Any,
    ) -> None:
        """Start the link, and wait until it is up. `more` are further arguments of `link_run`.

        Raises `ScenarioError` for wrong settings, `LinkError` where the machine refuses.
        """
        self.settings = settings
        self.command = [os.fspath(word) for word in command or ()]
        self.server = server
        request = {"settings": settings, "command": self.command or None, "server": server, **more}
        # Files without a name: nothing of them stays, and no folder has to be writable.
        request_file = _memory("request")
        request_file.write(pickle.dumps(request))
        request_file.seek(0)
        self._outcome_file = _memory("outcome")
        # Closed by the kernel when this process ends, and by Python when nobody has the link.
        self._stop, stopped = socket.socketpair()
        ready_read, ready_write = os.pipe()
        files = (request_file, self._outcome_file, stopped)
        passed = (*(file.fileno() for file in files), ready_write)
        try:
            self.process = subprocess.Popen(
                [*PROGRAM, "run", *map(str, passed)],
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
            request_file.close()
            stopped.close()
            os.close(ready_write)
        try:
            # Not up to the end of the pipe: what holds the namespaces is a fork that has it, too.
            with os.fdopen(ready_read, "rb") as ready:
                #: How other processes enter the namespaces of the link.
                self.up: LinkReady = pickle.load(ready)
        except EOFError:
            self.wait()
            raise LinkError("the link ended before it was up") from None
        except BaseException:
            self.stop()
            raise

    def wait(self, timeout_s: float | None = None) -> Outcome:
        """Wait until the link ends; after `timeout_s` it is stopped.

        Raises `subprocess.TimeoutExpired`, `ScenarioError` and `LinkError`.
        """
        try:
            self.process.wait(timeout_s)
        except BaseException:
            self.stop()
            raise
        return self._outcome()

    def end(self) -> None:
        """End the link soon, with all that runs in it, also from a thread that does not wait."""
        # Closing would not end the connection if a fork of this process has the socket, too.
        # A socket that is closed already belongs to a link that has ended.
        with suppress(OSError):
            self._stop.shutdown(socket.SHUT_RDWR)

    def stop(self) -> Outcome | None:
        """End the link with all that runs in it; None if it left nothing to read."""
        self.end()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        with suppress(LinkError):
            return self._outcome()
        return None

    def _outcome(self) -> Outcome:
        try:
            self._outcome_file.seek(0)
            kind, value = pickle.load(self._outcome_file)
        except (EOFError, pickle.UnpicklingError):
            # It was killed.
            status = self.process.returncode
            raise LinkError(f"the link's process ended with status {status}") from None
        finally:
            self._close()
        if kind == "wrong":
            raise ScenarioError(value)
        if kind == "refused":
            raise LinkError(value)
        return Outcome(self.settings, self.command, self.server, value)

    def _close(self) -> None:
        self._stop.close()
        self._outcome_file.close()


def _memory(name: str) -> IO[bytes]:
    """Return a file without a name, which a child may inherit."""
    return os.fdopen(os.memfd_create(f"forebay-{name}"), "w+b")


def run(
    settings: Settings,
    command: Words,
    *,
    server: str | None = None,
    timeout_s: float | None = None,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
) -> Outcome:
    """Run a command behind a link, and return what was observed.

    Parameters
    ----------
    command : sequence of str
        Program and arguments. It finds addresses in FOREBAY_SERVER and FOREBAY_CLIENT, and with 6
        at the end those of IPv6.
    server : str, optional
        A line for the shell, to run at the far end; the command is started when it listens.
    timeout_s : float, optional
        Time after which the run is stopped, with `subprocess.TimeoutExpired`.
    stdin, stdout, stderr
        Streams of the command and the server, as for `subprocess.Popen`.

    Raises
    ------
    ScenarioError
        If the settings cannot be.
    LinkError
        If the machine refuses the link.
    OSError
        If it cannot start the command.
    """
    emulator = Emulator(settings, command, server, stdin, stdout, stderr)
    outcome = emulator.wait(timeout_s)
    number = outcome.observed.not_started
    if number is not None:
        raise OSError(number, os.strerror(number), emulator.command[0])
    return outcome


def why_not_started(number: int, program: str) -> tuple[str, int]:
    """Return the error line of a program that did not start, and its exit status.

    Parameters
    ----------
    number : int
        Error number (errno).
    program : str
        The program.

    Returns
    -------
    (str, int)
        The line, and the status that a shell would return.
    """
    status = 127 if number == errno.ENOENT else 126
    return f"forebay link: {program}: {os.strerror(number).lower()}", status


class Host:
    """One end of a link: programs run here as on a host of its own."""

    def __init__(self, name: str, emulator: Emulator, network: str) -> None:
        environment = emulator.up.environment
        #: IPv4 address.
        self.address: str = environment[f"FOREBAY_{name.upper()}"]
        #: IPv6 address; None where the machine has no IPv6.
        self.address6: str | None = environment.get(f"FOREBAY_{name.upper()}6")
        self._environment = environment
        self._enter = [*PROGRAM, "enter", network, emulator.up.user or ""]
        self._started: list[subprocess.Popen[Any]] = []

    def popen(self, command: Words, **options: Any) -> subprocess.Popen[Any]:
        """Start a program here; `options` as for `subprocess.Popen`, without `shell`.

        The end of the link ends it and all other processes here. Raises `TypeError` for a line
        instead of words, and `FileNotFoundError` for a missing program.
        """
        if isinstance(command, str | bytes) or options.pop("shell", False):
            raise TypeError('a command is a list of words; for a shell, ["sh", "-c", LINE]')
        environment = {**(options.pop("env", None) or os.environ), **self._environment}
        words = [os.fspath(word) for word in command]
        program: str | Path = words[0]
        if "/" in words[0]:
            program = Path(options.get("cwd") or "", words[0]).absolute()
        if shutil.which(program, path=environment.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
        options = {"start_new_session": True, **options}
        process = subprocess.Popen([*self._enter, *words], env=environment, **options)
        # Errors name the program, and not how it came here.
        process.args = words
        self._started.append(process)
        return process

    def run(
        self, command: Words, *, timeout: float | None = None, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[Any]:
        """Run a program here to its end; like `subprocess.run`, but checked by default."""
        if options.pop("capture_output", False):
            options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        text = options.pop("input", None)
        if text is not None:
            options["stdin"] = subprocess.PIPE
        with self.popen(command, **options) as process:
            try:
                output, errors = process.communicate(text, timeout)
            except BaseException:
                # Not to the end of its output, which a daemon may hold open.
                _kill(process)
                raise
        done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
        if check:
            done.check_returncode()
        return done

    def close(self) -> None:
        """End the programs that were started here; the link's process ends their daemons."""
        for process in self._started:
            _kill(process)
        for process in self._started:
            process.wait()


def _kill(process: subprocess.Popen[Any]) -> None:
    """Kill a program, with the session that `popen` made for it."""
    # Until somebody has waited for it, its number, and its session's, is nobody else's.
    with suppress(ProcessLookupError):
        if process.returncode is None and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


class Net:
    """A link that is up for as long as its context."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: What was observed; there after the context.
        self.outcome: Outcome | None = None

    def __enter__(self) -> Net:
        """Start the emulator and a process in each network."""
        self._emulator = Emulator(self._settings, None, None, stdin=subprocess.DEVNULL)
        try:
            client, server = self._emulator.up.networks
            self.client = Host("client", self._emulator, client)
            self.server = Host("server", self._emulator, server)
        except BaseException:
            self._emulator.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the emulator and keep its outcome."""
        try:
            self.client.close()
            self.server.close()
        finally:
            self.outcome = self._emulator.stop()


def link(*args: object, **kwargs: object) -> Net:
    """Return a link; the arguments are described below."""
    return Net(settings(*args, **kwargs))


link.__doc__ = f"""Return a link between a client and a server in this program.

`with forebay.link("15Mbit/s", "30ms", "150p", "pi", {{"target": "50p"}}) as net:` has `net.client`
and `net.server`; both run programs, and know their addresses. After the context `net.outcome` has
what was observed. Entering it raises `LinkError` where the machine refuses.

{(settings.__doc__ or "").partition("settings of a link.")[2].strip()}
"""
link.__signature__ = inspect.signature(settings)  # type: ignore[attr-defined]
