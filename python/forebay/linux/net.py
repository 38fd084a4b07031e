"""A link in a Python program: `with forebay.link(...) as net: net.client.run([...])`."""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec

from forebay.linux.link_outcome import Outcome
from forebay.linux.link_process import Emulator
from forebay.linux.link_settings import Settings, settings

Words = Sequence[str | os.PathLike[str]]
P = ParamSpec("P")


class Host:
    """One end of a link: programs run here as on a host of its own."""

    def __init__(self, name: str, emulator: Emulator, network: str) -> None:
        environment = emulator.up.environment
        #: IPv4 address.
        self.address: str = environment[f"FOREBAY_{name.upper()}"]
        #: IPv6 address; None where the machine has no IPv6.
        self.address6: str | None = environment.get(f"FOREBAY_{name.upper()}6")
        self._environment = environment
        self._enter = [
            *(sys.executable, "-m", "forebay.linux.enter_namespace"),
            *(network, emulator.up.user or ""),
        ]
        self._started: list[subprocess.Popen[Any]] = []

    def popen(self, command: Words, **options: Any) -> subprocess.Popen[Any]:
        """Starts a program here; `options` as for `subprocess.Popen`, without `shell`.

        It is ended, with all that is left here, when the link is. Raises `TypeError` for a line
        instead of words, and `FileNotFoundError` where there is no such program.
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
        """Runs a program here to its end; like `subprocess.run`, but checked by default."""
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
        """Ends the programs that were started here; the link's process ends their daemons."""
        for process in self._started:
            _kill(process)
        for process in self._started:
            process.wait()


def _kill(process: subprocess.Popen[Any]) -> None:
    """Kills a program, with the session that `popen` made for it."""
    # Until somebody has waited for it, its number, and its session's, is nobody else's.
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None and os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


class Net:
    """A link that is up for as long as its context."""

    def __init__(self, wanted: Settings) -> None:
        self._settings = wanted
        #: What was observed; there after the context.
        self.outcome: Outcome | None = None

    def __enter__(self) -> Net:
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
        try:
            self.client.close()
            self.server.close()
        finally:
            self.outcome = self._emulator.stop()


def _within(wanted: Callable[P, Settings]) -> Callable[P, Net]:
    """The same arguments, for a context."""

    def link(*args: P.args, **kwargs: P.kwargs) -> Net:
        found = wanted(*args, **kwargs)
        return Net(found)

    link.__doc__ = f"""A link between a client and a server in this program.

    `with forebay.link("15Mbit/s", "30ms", "150p", "pi", {{"target": "50p"}}) as net:` has
    `net.client` and `net.server`; both run programs, and know their addresses. After the context
    `net.outcome` has what was observed. Entering it raises `LinkError` where the machine refuses.

    {(wanted.__doc__ or "").partition("Reads the settings of a link.")[2].strip()}
    """
    link.__signature__ = inspect.signature(wanted)  # type: ignore[attr-defined]
    return link


link = _within(settings)
