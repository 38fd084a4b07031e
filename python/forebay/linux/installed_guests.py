"""The guests that have been built: a kernel each, with the tools that set up its network."""

from __future__ import annotations

import json
import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from forebay._native import ScenarioError

#: Where guests are kept, in place of a folder of the user's cache.
VARIABLE = "FOREBAY_KERNELS"
#: What a guest has: its kernel, iproute2 with its libraries, and what it was built from.
KERNEL, TOOLS, FACTS = "linux", "tools", "guest.json"
#: The guest's first process, built with the package.
PROGRAM = Path(__file__).with_name("forebay-guest")
SETUP = "`forebay kernel setup` builds one in some minutes, without root"


@dataclass(frozen=True)
class Guest:
    """A guest on this machine."""

    folder: Path
    #: Of what it was built from.
    digest: str
    #: As `uname -r` of it says.
    release: str
    #: What it was built from, in words.
    source: str
    #: Ticks of its clock in a second.
    hz: int
    #: Its kernel takes several system calls at one time.
    several_calls: bool = False

    @property
    def kernel(self) -> Path:
        return self.folder / KERNEL

    @property
    def tools(self) -> Path:
        return self.folder / TOOLS

    @property
    def size_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


def place() -> Path:
    """The folder of all guests."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "forebay" / "kernels"


def installed() -> list[Guest]:
    """The guests that are whole, the newest first."""
    found: list[tuple[float, Guest]] = []
    for facts in place().glob(f"*/{FACTS}"):
        try:
            known = json.loads(facts.read_text())
            guest = Guest(
                facts.parent,
                known["digest"],
                known["release"],
                known["source"],
                known["hz"],
                # One that was built before has no word of it.
                known.get("several_calls", False),
            )
            found.append((facts.stat().st_mtime, guest))
        except (OSError, ValueError, KeyError):
            continue
    found.sort(key=lambda one: one[0], reverse=True)
    return [guest for _, guest in found]


def chosen(name: str | None = None) -> Guest:
    """The guest whose digest begins with `name`, or the newest. Raises `ScenarioError`."""
    check_machine()
    every = installed()
    if not every:
        raise ScenarioError(f"--engine kernel: found no guest in {place()}, allowed: one; {SETUP}")
    if name is None:
        return every[0]
    of_name = [guest for guest in every if guest.digest.startswith(name)]
    if len(of_name) != 1:
        known = ", ".join(guest.digest[:12] for guest in every)
        raise ScenarioError(f'kernel: found "{name}", allowed: the start of one of {known}')
    return of_name[0]


def check_system() -> None:
    """Raise `ScenarioError` on a system for which there are no guests."""
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        host = f"{system} on {machine}"
        raise ScenarioError(f"--engine kernel: found {host}, allowed: Linux on x86_64")


def check_machine() -> None:
    """Raise `ScenarioError` on a machine on which no guest runs."""
    check_system()
    if not PROGRAM.exists():
        raise ScenarioError(
            f"--engine kernel: this package has no {PROGRAM.name}, the first process of a guest; "
            "`make guest` builds it in a checkout (Debian: libc6-dev), as `forebay kernel setup` "
            "does, and wheels for Linux on x86_64 have it"
        )


def remove(guest: Guest) -> None:
    """Deletes a guest. Raises `OSError`."""
    # Its facts first: what is left of it, if anything, is no guest.
    (guest.folder / FACTS).unlink()
    shutil.rmtree(guest.folder)
