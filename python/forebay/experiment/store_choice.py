"""The store that a command uses: that of an option, of FOREBAY_STORE, or the default."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from forebay._base.publication import why_not_writable
from forebay._base.temporary import temporary_folder
from forebay.experiment.store import Store
from forebay.experiment.store_files import place

#: The default store, next to the results.
DEFAULT = Path("results") / ".store"
#: The environment variable that names a store, and its value for no store.
VARIABLE, OFF = "FOREBAY_STORE", "off"


#: A store, or the address of one.
StoreLike = Store | str | os.PathLike[str]


def opened(store: StoreLike | None) -> Store | None:
    """Return the store of an argument, which may be its address; None for no store.

    Raises
    ------
    ParameterError
        If the address is not that of a store.
    """
    return store if store is None or isinstance(store, Store) else at(store)


def at(address: str | os.PathLike[str]) -> Store:
    """Return the store at an address; its files are created when something is written.

    Raises
    ------
    ParameterError
        If the address is not that of a store.
    """
    return Store(place(address))


def store(
    address: str | os.PathLike[str] | None, *, without: bool = False, default: bool = True
) -> Store | None:
    """Return the store of a command that can do without one.

    Parameters
    ----------
    address : str | os.PathLike[str] | None
        Folder or address that the user chose; None takes that of FOREBAY_STORE, or else `DEFAULT`.
    without : bool, default False
        True to use no store.
    default : bool, default True
        False to use no store unless one is named.

    Returns
    -------
    Store | None
        The store; None if there is none, for example because `DEFAULT` cannot be written to.

    Raises
    ------
    ParameterError
        If the named place is not a store, or cannot be written to.
    """
    if without:
        return None
    if (chosen := named(address)) is not None:
        chosen_store = at(chosen)
        chosen_store.check_writable()
        return chosen_store
    if not default or os.environ.get(VARIABLE) == OFF:
        return None
    if why := why_not_writable(DEFAULT):
        print(f"{DEFAULT}: {why}: runs are not stored", file=sys.stderr)
        return None
    return at(DEFAULT)


def of_study(address: str | os.PathLike[str] | None, *, without: bool = False) -> Store:
    """Return the store of a command that reads back what it has made.

    Parameters
    ----------
    address : str | os.PathLike[str] | None
        As for `store`.
    without : bool, default False
        True to use a temporary store.

    Returns
    -------
    Store
        The store; a temporary one is deleted with the returned object.

    Raises
    ------
    ParameterError
        If the named place is not a store.
    """
    chosen = None if without else named(address)
    if without or (chosen is None and os.environ.get(VARIABLE) == OFF):
        folder = temporary_folder()
        temporary = at(folder.name)
        temporary.goes_with = folder
        return temporary
    return at(chosen if chosen is not None else DEFAULT)


def named(address: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """Return `address`, or else that of FOREBAY_STORE; None if neither names a store."""
    if address is not None:
        return address
    of_environment = os.environ.get(VARIABLE, "")
    return of_environment if of_environment not in ("", OFF) else None
