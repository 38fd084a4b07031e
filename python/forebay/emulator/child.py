"""The process that a link runs in: `python -m forebay.emulator.child FOLDER STOP READY`.

FOLDER has the request and gets the outcome; STOP is a pipe whose end ends the link, and what is
needed to enter the namespaces is written to READY.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

from forebay import _native


def main() -> None:
    folder, stop, ready = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(stop, False)
    os.set_inheritable(ready, False)
    # A terminal's Ctrl-C is for the command, and for the program that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    request = pickle.loads((folder / "request").read_bytes())

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
    part = folder / "outcome.part"
    part.write_bytes(pickle.dumps(answer))
    part.rename(folder / "outcome")


if __name__ == "__main__":
    main()
