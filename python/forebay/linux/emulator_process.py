"""The process of a link: `python -m forebay.linux.emulator_process REQUEST OUTCOME STOP READY`.

All are open files: what is asked for, what came of it, a socket whose end ends the link, and a
pipe for what is needed to enter its namespaces.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import time
from pathlib import Path

import forebay._native as _native

#: Longest time for killed programs to end; less than `process.PATIENCE_S`.
GONE_WITHIN_S = 5.0


def main() -> None:
    wanted, found, stop, ready = map(int, sys.argv[1:])
    for fd in (wanted, found, stop, ready):
        os.set_inheritable(fd, False)
    # A terminal's Ctrl-C is for the command, and for the program that started this one. The link
    # takes no notice of it where there is a command; where there is none, this has no terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(wanted, "rb") as asked:
        request = pickle.load(asked)

    networks: list[int] = []

    def tell(up: _native.LinkReady) -> None:
        # As long as they are open, their numbers are no other namespaces'.
        networks.extend(os.open(path, os.O_RDONLY) for path in up.networks)
        with os.fdopen(ready, "wb") as pipe:
            pickle.dump(up, pipe)

    answer: tuple[str, object]
    try:
        observed = _native.link_run(
            request["settings"],
            command=request["command"],
            server=request["server"],
            stop=stop,
            ready=tell,
            **request["more"],
        )
        answer = ("outcome", observed)
    except _native.ScenarioError as error:
        answer = ("wrong", str(error))
    except OSError as error:
        answer = ("refused", str(error))
    finally:
        kill_all(networks)
    with os.fdopen(found, "wb") as outcome:
        pickle.dump(answer, outcome)


def kill_all(networks: list[int]) -> None:
    """Kills what others have started in these namespaces.

    It is done here, as the program that started it may have died; and by namespace, as a daemon
    has left its parent and its session.
    """
    ours = {(found.st_dev, found.st_ino) for found in map(os.fstat, networks)}
    deadline_s = time.monotonic() + GONE_WITHIN_S
    # Again, until nobody is left who could have forked meanwhile.
    while time.monotonic() < deadline_s:
        some = False
        for entry in Path("/proc").iterdir():
            # One that has ended, or is another user's.
            with contextlib.suppress(OSError):
                # This process itself may have been left in one of them.
                if not entry.name.isdigit() or int(entry.name) == os.getpid():
                    continue
                found = (entry / "ns" / "net").stat()
                if (found.st_dev, found.st_ino) in ours:
                    some = True
                    os.kill(int(entry.name), signal.SIGKILL)
        if not some:
            return
        time.sleep(0.001)


if __name__ == "__main__":
    main()
