"""Which store a command uses."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from forebay._base.publication import why_not_writable
from forebay._base.temporary import temporary_folder
from forebay.experiment.store import Store
from forebay.experiment.store_files import place

#: Where the store is where nothing is chosen: beside the results.
DEFAULT = Path("results") / ".store"
#: Chooses another; "off" does without.
VARIABLE, OFF = "FOREBAY_STORE", "off"


def at(address: str | os.PathLike[str]) -> Store:
    """The store at an address, made when something is written. Raises `ScenarioError`."""
    return Store(place(address))


def store(
    address: str | os.PathLike[str] | None, *, without: bool = False, default: bool = True
) -> Store | None:
    """The store of a command: `address`, else that of FOREBAY_STORE, else `DEFAULT`, if that is
    wanted and can be written to; None `without` one. Raises `ScenarioError`."""
    if without:
        return None
    if (chosen := named(address)) is not None:
        found = at(chosen)
        found.check_writable()
        return found
    if not default or os.environ.get(VARIABLE) == OFF:
        return None
    if why := why_not_writable(DEFAULT):
        print(f"{DEFAULT}: {why}: runs are not stored", file=sys.stderr)
        return None
    return at(DEFAULT)


def of_study(address: str | os.PathLike[str] | None, *, without: bool = False) -> Store:
    """The store of a command that reads what it has made: as `store`, or one for this process alone
    where none is wanted, which goes with it.

    Raises `ScenarioError`.
    """
    chosen = None if without else named(address)
    if without or (chosen is None and os.environ.get(VARIABLE) == OFF):
        folder = temporary_folder()
        found = at(folder.name)
        found.goes_with = folder
        return found
    return at(chosen if chosen is not None else DEFAULT)


def named(address: str | os.PathLike[str] | None) -> str | os.PathLike[str] | None:
    """`address`, else that of FOREBAY_STORE; None where neither names one."""
    if address is not None:
        return address
    of_environment = os.environ.get(VARIABLE, "")
    return of_environment if of_environment not in ("", OFF) else None
