"""Standard output whose reader may go, as after `| head -1`."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO


class Output:
    """Standard output that goes nowhere once its reader has gone: who has something to write to
    files goes on to do so."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        #: whether the reader has gone
        self.lost = False

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._lose()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._lose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self) -> None:
        self.lost = True
        close(self._stream)


def outlive_reader() -> None:
    """Standard output becomes an `Output`."""
    if not isinstance(sys.stdout, Output):
        sys.stdout = Output(sys.stdout)


def close(stream: TextIO) -> None:
    """Sends what is still to come nowhere: Python would complain once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
