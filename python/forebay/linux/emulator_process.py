"""The programs that run in a link's namespaces; they load quickly, and have one thread.

`python -m forebay.linux.emulator_process run REQUEST OUTCOME STOP READY` is the process of a link.
All are open files: what is asked for, what came of it, a socket whose end ends the link, and a pipe
for what is needed to enter its namespaces. `… enter NET USER COMMAND…` becomes a program in one of
them.
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

#: Longest time for killed programs to end; less than `link_process.PATIENCE_S`.
GONE_WITHIN_S = 5.0


def main() -> None:
    """Run "run …" or "enter …"."""
    verb, *arguments = sys.argv[1:]
    if verb == "run":
        run(*map(int, arguments))
    else:
        enter(*arguments)


def run(request_file: int, outcome_file: int, stop: int, ready_pipe: int) -> None:
    """Run a link until its command, or the other end of `stop`, ends."""
    for file in (request_file, outcome_file, stop, ready_pipe):
        os.set_inheritable(file, False)
    # A terminal's Ctrl-C is for the command, and for the program that started this one. The link
    # takes no notice of it where there is a command; where there is none, this has no terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(request_file, "rb") as stream:
        request = pickle.load(stream)
    networks: list[int] = []

    def report(up: _native.LinkReady) -> None:
        # As long as they are open, their numbers are no other namespaces'.
        networks.extend(os.open(path, os.O_RDONLY) for path in up.networks)
        with os.fdopen(ready_pipe, "wb") as pipe:
            pickle.dump(up, pipe)

    answer: tuple[str, object]
    try:
        answer = ("outcome", _native.link_run(**request, stop=stop, ready=report))
    except _native.ScenarioError as error:
        answer = ("wrong", str(error))
    except OSError as error:
        answer = ("refused", str(error))
    finally:
        kill_all(networks)
    with os.fdopen(outcome_file, "wb") as outcome:
        pickle.dump(answer, outcome)


def kill_all(networks: list[int]) -> None:
    """Kill the processes that others have started in these namespaces.

    It is done here, as the program that started them may have died; and by namespace, as a daemon
    has left its parent and its session.
    """
    ours = {(status.st_dev, status.st_ino) for status in map(os.fstat, networks)}
    deadline_s = time.monotonic() + GONE_WITHIN_S
    # Again, until nobody is left who could have forked meanwhile.
    while time.monotonic() < deadline_s:
        killed = False
        for entry in Path("/proc").iterdir():
            # One that has ended, or is another user's.
            with contextlib.suppress(OSError):
                # This process itself may have been left in one of them.
                if not entry.name.isdigit() or int(entry.name) == os.getpid():
                    continue
                status = (entry / "ns" / "net").stat()
                if (status.st_dev, status.st_ino) in ours:
                    killed = True
                    os.kill(int(entry.name), signal.SIGKILL)
        if not killed:
            return
        time.sleep(0.001)


def enter(network: str, user: str, *command: str) -> None:
    """Become a program in a network namespace."""
    try:
        before = Path(network).stat()
        _native.link_enter(network, user or None)
        # A link that ends kills what is in its namespaces, after its paths have gone: what
        # comes in too late ends by itself.
        if not os.path.samestat(Path(network).stat(), before):
            raise OSError("the link has ended")
        os.execvp(command[0], command)
    except OSError as error:
        print(f"forebay link: {command[0]}: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
