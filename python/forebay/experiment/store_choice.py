"""The choice of a store: the folder or address of the runs that a command uses.

The choice needs no table, so a command that uses no store does not load polars, as `store` does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

#: The default store, next to the results.
DEFAULT = Path("results") / ".store"
#: The environment variable that names a store, and its value for no store.
VARIABLE, OFF = "FOREBAY_STORE", "off"


@dataclass(frozen=True)
class StoreChoice:
    """The store that a command uses.

    Attributes
    ----------
    address : str | os.PathLike[str]
        Its folder or address.
    is_named : bool
        True if the user named it; False for `DEFAULT`.
    """

    address: str | os.PathLike[str]
    is_named: bool


def choose(
    address: str | os.PathLike[str] | None, *, without: bool = False, default: bool = True
) -> StoreChoice | None:
    """Return the store that a command uses; None for no store.

    Parameters
    ----------
    address : str | os.PathLike[str] | None
        Folder or address that the user chose; None takes that of FOREBAY_STORE, or else `DEFAULT`.
    without : bool, default False
        True to use no store.
    default : bool, default True
        False to use no store unless one is named.
    """
    of_environment = os.environ.get(VARIABLE, "")
    if without:
        return None
    if address is not None:
        return StoreChoice(address, is_named=True)
    if of_environment not in ("", OFF):
        return StoreChoice(of_environment, is_named=True)
    if not default or of_environment == OFF:
        return None
    return StoreChoice(DEFAULT, is_named=False)
