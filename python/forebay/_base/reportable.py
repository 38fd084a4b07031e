"""The interface of every result of the public API: `Reportable`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import polars as pl


@runtime_checkable
class Reportable(Protocol):
    """A result that can be stored, tabulated, drawn, reported and printed.

    `forebay.run`, `design`, `stability_map`, `tune` and the other functions of the public API that
    calculate something return one. `isinstance` tells whether an object has these methods. A class
    adds arguments with defaults where it has more to choose from: the names of its figures are a
    `Literal` type.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return the result as values that JSON can hold; None stands for NaN and infinity."""
        ...

    def frame(self) -> pl.DataFrame:
        """Return the result as a table."""
        ...

    def plot(self) -> Any:
        """Draw the result; the first argument, `kind`, chooses among its figures."""
        ...

    def report(self, out: str | os.PathLike[str]) -> Any:
        """Write the result and its figures to a folder."""
        ...

    def __str__(self) -> str:
        """Return a short text for a terminal."""
        ...

    def _repr_html_(self) -> str:
        """Return a table and a figure for a notebook."""
        ...
