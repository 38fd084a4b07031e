"""Theory in a process of its own, which can be ended in the middle of a thought.

A loop with time constants far apart takes minutes, and nothing in it can be interrupted. Beside
that, packets do not wait for the lock of Python's interpreter.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any

from forebay._native import ScenarioError

#: Time that a thought may take, and one that nobody waits for any more.
LONGEST_S, OUTDATED_S = 10.0, 0.5
#: Time between two looks at whether somebody waits.
POLL_S = 0.01
#: What it says when it has loaded.
READY = ("ready", None)


class Abandoned(Exception):  # noqa: N818 - nothing is wrong
    """Nobody waits for the answer any more."""


class TheoryProcess:
    """A process that knows theory; started when it is first needed, and again after an end."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ready = False
        self._ended = False

    def start(self) -> subprocess.Popen[bytes]:
        """Starts it, so that it has loaded when it is asked."""
        if self._process is None or self._process.returncode is not None:
            self._ready = False
            self._process = subprocess.Popen(
                [sys.executable, "-m", "forebay.studio.theory_process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # Ctrl-C is for the studio, and its end is this one's.
                start_new_session=True,
            )
        return self._process

    def ask(self, name: str, *arguments: object, outdated: Callable[[], bool]) -> dict[str, Any]:
        """What `forebay.studio.theory` says.

        Raises `ScenarioError` for what it refuses, and where it takes too long; `Abandoned` when
        nobody waits any more.
        """
        if self._ended:
            raise Abandoned
        process = self.start()
        assert process.stdin and process.stdout
        try:
            while not self._ready:
                # Loading is no thought: it goes on for the next one.
                if select.select([process.stdout], [], [], POLL_S)[0]:
                    self._ready = pickle.load(process.stdout) == READY
                elif outdated():
                    raise Abandoned
            pickle.dump((name, arguments), process.stdin)
            process.stdin.flush()
            start = time.monotonic()
            while not select.select([process.stdout], [], [], POLL_S)[0]:
                spent_s = time.monotonic() - start
                if spent_s > OUTDATED_S and outdated():
                    self._kill()
                    self.start()
                    raise Abandoned
                if spent_s > LONGEST_S:
                    self._kill()
                    self.start()
                    raise ScenarioError(
                        f"{name}: theory takes over {LONGEST_S:g} s for this law on this link"
                    )
            how, found = pickle.load(process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            # Killed, as by a lack of memory.
            self._kill()
            raise ScenarioError(f"{name}: the process for theory has ended") from None
        if how == "wrong":
            raise ScenarioError(found)
        answer: dict[str, Any] = found
        return answer

    def close(self) -> None:
        """Ends it at once, and for good."""
        self._ended = True
        self._kill()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def main() -> None:
    """Answers on standard output until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints is no answer.
    os.dup2(2, 1)
    from forebay.studio import theory

    known: dict[str, Callable[..., Any]] = {
        "loops": theory.loops,
        "fluid": theory.fluid,
        "maps": theory.maps,
    }
    _say(answers, READY)
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = ("ok", known[name](*arguments))
        except ScenarioError as error:
            answer = ("wrong", str(error))
        except Exception as error:
            # A fault of ours: the page says so, and goes on.
            answer = ("wrong", f"{name}: theory failed here, {type(error).__name__}: {error}")
        _say(answers, answer)


def _say(answers: IO[bytes], answer: object) -> None:
    pickle.dump(answer, answers)
    answers.flush()


if __name__ == "__main__":
    main()
