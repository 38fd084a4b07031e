"""The processes that run in a link's namespaces; they load quickly and have one thread.

`python -m forebay.linux.emulator_process run REQUEST OUTCOME STOP READY` is the process of a link.
Its arguments are open files: the request, the outcome, a socket whose end ends the link, and a pipe
for the paths of the namespaces. `... enter NET USER COMMAND...` becomes a program in one of them.
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
    """Run the command "run ..." or "enter ..."."""
    verb, *arguments = sys.argv[1:]
    if verb == "run":
        run(*map(int, arguments))
    else:
        enter(*arguments)


def run(request_file: int, outcome_file: int, stop: int, ready_pipe: int) -> None:
    """Run a link until its command ends, or the other end of `stop` is closed.

    Parameters
    ----------
    request_file : int
        Descriptor of a file with the pickled arguments of `_native.link_run`.
    outcome_file : int
        Descriptor of a file that gets the pickled outcome, or an error.
    stop : int
        Descriptor of a socket whose end ends the link.
    ready_pipe : int
        Descriptor of a pipe that gets the pickled `LinkReady`.
    """
    for file in (request_file, outcome_file, stop, ready_pipe):
        os.set_inheritable(file, False)
    # Ctrl-C is for the command and for the program that started this process. Without a command,
    # this process has no terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(request_file, "rb") as stream:
        request = pickle.load(stream)
    networks: list[int] = []

    def report(up: _native.LinkReady) -> None:
        # While these files are open, no other namespaces can get their inode numbers.
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
    """Become a program in a network namespace.

    Parameters
    ----------
    network, user : str
        Paths of the network namespace and of its user namespace; an empty `user` for root.
    *command : str
        The program and its arguments.
    """
    try:
        before = Path(network).stat()
        _native.link_enter(network, user or None)
        # A link that ends removes its paths and then kills the processes in its namespaces. A
        # process that enters later must end by itself.
        if not os.path.samestat(Path(network).stat(), before):
            raise OSError("the link has ended")
        os.execvp(command[0], command)
    except OSError as error:
        print(f"forebay link: {command[0]}: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
