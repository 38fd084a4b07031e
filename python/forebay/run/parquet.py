"""Writing tables to Parquet, with errors of the disk as the operating system names them."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polars import DataFrame


def write(frame: DataFrame, path: Path) -> None:
    """Writes a table. Raises `OSError` where the disk is full or fails."""
    from polars.exceptions import ComputeError

    try:
        frame.write_parquet(path)
    except ComputeError as error:
        # Polars puts the number of the error into a sentence.
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error
