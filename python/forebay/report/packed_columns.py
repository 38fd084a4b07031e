"""Columns of numbers inside a page: as many bytes as they need, packed as one text.

Each column is a row of bytes: whole numbers as differences, since neighbours are alike, and others
as 32-bit floats; bytes of the same weight stand together. All of it is deflated as gzip, which
browsers read by themselves (`DecompressionStream`), and written as base64.
"""

from __future__ import annotations

import base64
import gzip
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Differences of whole numbers below this fit into 32 bits.
MOST_WHOLE = 2**29
#: How far times may be from equal steps, in parts of a step.
TINY = 1e-6


class PackedColumns:
    """Columns that a page names by their number."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._at = 0
        #: of each column its kind and length; then its first byte, or its first value and step
        self.columns: list[list[Any]] = []

    def add(self, values: NDArray[Any]) -> int:
        """Takes a column; its number. NaN means that there is no value."""
        values = np.asarray(values)
        whole = values.dtype.kind in "ui" or bool(
            np.isfinite(values).all() and (values == np.rint(values)).all()
        )
        if whole and len(values) and np.abs(values.astype(float)).max() < MOST_WHOLE:
            steps = np.diff(values.astype(np.int64), prepend=0).astype(np.int32)
            # Small numbers of either sign become small numbers (zigzag).
            words: NDArray[Any] = ((steps << 1) ^ (steps >> 31)).astype("<u4")
            kind = "i"
        else:
            words, kind = values.astype("<f4"), "f"
        return self._pack(kind, words)

    def add_times(self, times: NDArray[Any]) -> int:
        """Takes places along an axis; its number. Equal steps take no room."""
        if len(times) > 1:
            step = float(times[-1] - times[0]) / (len(times) - 1)
            even = times[0] + step * np.arange(len(times))
            if step > 0 and np.abs(times - even).max() < TINY * step:
                # Without what rounding left at the end of 0.01.
                first, step = (float(f"{value:.12g}") for value in (times[0], step))
                self.columns.append(["r", len(times), first, step])
                return len(self.columns) - 1
        return self._pack("d", np.asarray(times, "<f8"))

    def _pack(self, kind: str, words: NDArray[Any]) -> int:
        planes = np.frombuffer(words.tobytes(), np.uint8).reshape(-1, words.itemsize).T
        self.columns.append([kind, len(words), self._at])
        self._parts.append(planes.tobytes())
        self._at += planes.size
        return len(self.columns) - 1

    def text(self) -> str:
        """All columns. The same numbers give the same text."""
        return base64.b64encode(gzip.compress(b"".join(self._parts), 6, mtime=0)).decode()
