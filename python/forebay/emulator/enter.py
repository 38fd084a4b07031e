"""Becomes a program in a link's namespace: `python -m forebay.emulator.enter NET USER COMMAND…`."""

from __future__ import annotations

import os
import sys

from forebay import _native


def main() -> None:
    network, user, *command = sys.argv[1:]
    try:
        _native.link_enter(network, user or None)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"forebay link: {command[0]}: {error}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
