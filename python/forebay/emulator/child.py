"""The process that a link runs in: `python -m forebay.emulator.child REQUEST OUTCOME STOP READY`.

All are open files: what is asked for, what came of it, a socket whose end ends the link, and a
pipe for what is needed to enter its namespaces.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from typing import Any

from forebay import _native


def main() -> None:
    wanted, found, stop, ready = map(int, sys.argv[1:])
    for fd in (wanted, found, stop, ready):
        os.set_inheritable(fd, False)
    # A terminal's Ctrl-C is for the command, and for the program that started this one. The link
    # takes no notice of it where there is a command; where there is none, this has no terminal.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(wanted, "rb") as asked:
        request = pickle.load(asked)

    def tell(up: dict[str, Any]) -> None:
        with os.fdopen(ready, "w") as pipe:
            pipe.write(json.dumps(up) + "\n")

    answer: tuple[str, object]
    try:
        observed = _native.link_run(
            request["settings"],
            command=request["command"],
            server=request["server"],
            stop=stop,
            ready=tell,
        )
        answer = ("outcome", observed)
    except _native.ScenarioError as error:
        answer = ("wrong", str(error))
    except OSError as error:
        answer = ("refused", str(error))
    with os.fdopen(found, "wb") as outcome:
        pickle.dump(answer, outcome)


if __name__ == "__main__":
    main()
