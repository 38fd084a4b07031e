"""The command line `forebay`. Ctrl-C while it loads ends it without a traceback.

`main` then catches signals; a program that uses the package keeps its own.
"""

from __future__ import annotations

import sys

# What `signal` is made of, without its enumerations: most of the time that this takes to load.
from _signal import (  # type: ignore[import-not-found]
    SIG_DFL,
    SIGINT,
    default_int_handler,
    getsignal,
    signal,
)


def _is_command() -> bool:
    """Return True if this process is the command, as a script or by `python -m forebay`."""
    script = sys.argv[0] if sys.argv else ""
    return script.endswith(("/forebay", "\\forebay.exe")) or "forebay" in sys.orig_argv[:4]


if _is_command() and getsignal(SIGINT) is default_int_handler:
    signal(SIGINT, SIG_DFL)
