"""Becomes a program in a namespace: `python -m forebay.linux.enter_namespace NET USER COMMAND…`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forebay._native as _native


def main() -> None:
    network, user, *command = sys.argv[1:]
    try:
        asked = Path(network).stat()
        _native.link_enter(network, user or None)
        # A link that ends kills what is in its namespaces, after its paths have gone: what
        # comes in too late ends by itself.
        if not os.path.samestat(Path(network).stat(), asked):
            raise OSError("the link has ended")
        os.execvp(command[0], command)
    except OSError as error:
        print(f"forebay link: {command[0]}: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
