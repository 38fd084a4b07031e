"""Writing tables, with errors of the disk as the operating system names them."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polars import DataFrame


def write(frame: DataFrame, path: Path) -> None:
    """Writes a table as Parquet. Raises `OSError` where the disk is full or fails."""
    with errors_of(path):
        frame.write_parquet(path)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Faults of the disk, where polars writes to a file, as `OSError` with its name."""
    from polars.exceptions import ComputeError

    try:
        yield
    except (ComputeError, OSError) as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        # Polars puts the number of the error into a sentence.
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else getattr(error, "errno", None) or errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
