"""Tables in Parquet files that may be damaged.

The reader of polars expects sound files: damage makes it panic with a trace on standard error, or
ask for more memory than there is, which ends the process. A file of unknown origin is therefore
first read by another process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from forebay._base.documents import FormatError

if TYPE_CHECKING:
    from polars import DataFrame

#: Largest file that is read.
MOST_BYTES = 1 << 30
#: Longest time that reading a file may take.
MOST_S = 300.0
#: Reads a file; all columns, and every value once, since values are decoded late.
TRIAL = "import polars, sys; polars.read_parquet(sys.argv[1]).hash_rows()"


def read(file: Path, *, sound: bool = False) -> DataFrame:
    """Return the table of a file.

    Parameters
    ----------
    file : Path
        The file.
    sound : bool, optional
        True if its contents are known to be as they were written. By default another process reads
        the file first.

    Raises
    ------
    FormatError
        If the file cannot be read, is too large, or is damaged.
    """
    import polars as pl

    try:
        if file.stat().st_size > MOST_BYTES:
            raise FormatError(f"it is larger than {MOST_BYTES >> 20} MiB")
        if not sound:
            _try_elsewhere(file)
        return pl.read_parquet(file)
    except (OSError, ValueError, MemoryError, pl.exceptions.PolarsError) as error:
        raise FormatError(f"it is no Parquet ({_first_line(str(error))})") from error


def _try_elsewhere(file: Path) -> None:
    """Raise `FormatError` if another process fails to read the file."""
    words = [sys.executable, "-c", TRIAL, str(file.absolute())]
    try:
        trial = subprocess.run(words, capture_output=True, timeout=MOST_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise FormatError(f"reading it takes more than {MOST_S:g} s") from error
    if trial.returncode == 0:
        return
    error_lines = trial.stderr.decode("utf-8", "replace").strip().splitlines()
    last = next(
        (line for line in reversed(error_lines) if line.startswith("polars.exceptions.")), ""
    )
    reason = last.partition(": ")[2]
    raise FormatError(f"it is no Parquet ({_first_line(reason)})" if reason else "it is damaged")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
