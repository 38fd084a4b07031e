"""Standard output as it is: its reader may go, as after `| head -1`, and it may lack characters."""

from __future__ import annotations

import codecs
import os
import sys
from typing import Any, TextIO

#: The characters that replace those of a text which a console lacks, by the lacking character.
PLAIN = {
    **dict.fromkeys("─━┄┈╌‐‑‒–—―−", "-"),
    **dict.fromkeys("│┃╎", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╯╰┏┓┗┛╺╸", "+"),
    **dict.fromkeys("‘’‚", "'"),
    **dict.fromkeys("“”„", '"'),
    **{"±": "+/-", "×": "x", "·": "*", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≈": "~"},
    **{"…": "...", "°": " deg", "µ": "u", "μ": "u", "σ": "sigma", "ω": "omega", "∞": "inf"},
    **{"²": "^2", "³": "^3", "√": "sqrt", "•": "*", "✓": "yes", "✗": "no", "\u00a0": " "},
}
#: Name of the handler of encoding errors that writes `PLAIN`'s characters.
REPLACE = "forebay_plain"


def _replaced(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return what stands for the characters that an encoding lacks, as `codecs` asks for it."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = "".join(_plain(c) for c in error.object[error.start : error.end])
    return plain, error.end


def _plain(character: str) -> str:
    if 0xDC80 <= ord(character) <= 0xDCFF:
        # A byte of a name that is not UTF-8.
        return f"\\x{ord(character) - 0xDC00:02x}"
    return PLAIN.get(character, "?")


def replace_what_is_lacking() -> None:
    """Let standard output and standard error write every text, in whichever encoding they are.

    Characters that a console lacks, as one in Latin-1 or ASCII does, and bytes of names that are
    not UTF-8 are replaced.
    """
    codecs.register_error(REPLACE, _replaced)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=REPLACE)


class Output:
    """Standard output that discards what is written once its reader has gone.

    A command that also writes files goes on to do so.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        #: whether the reader has gone
        self.lost = False

    def write(self, text: str) -> int:
        """Write a text, or nothing once the reader has gone."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._lose()
            return len(text)

    def flush(self) -> None:
        """Write what is buffered, or nothing once the reader has gone."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._lose()

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute of the stream."""
        return getattr(self._stream, name)

    def _lose(self) -> None:
        self.lost = True
        close(self._stream)


def outlive_reader() -> None:
    """Replace standard output by an `Output`."""
    if not isinstance(sys.stdout, Output):
        sys.stdout = Output(sys.stdout)


def close(stream: TextIO) -> None:
    """Discard the remaining output, since Python would report the error again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
