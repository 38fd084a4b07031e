"""`forebay guest`: the guests in which the engine `kernel` runs real Linux in virtual time.

Their dependencies are loaded inside the commands, so that other commands stay quick.
"""

from __future__ import annotations

from pathlib import Path

import typer

from forebay._base.errors import ParameterError
from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED, print_error
from forebay.cli.options import print_table


@with_options
def setup(*, source: Path | None = None, suite: str = "sid", hz: int = 1000) -> None:
    """Build a guest from Linux's source, without root.

    It takes some minutes on two cores, once.

    Parameters
    ----------
    source : DIR
        Source tree of Linux, such as net-next or a vendor's, which stays unchanged; without it,
        Debian's is downloaded as apt is configured here.
    suite : SUITE
        Debian suite of the kernel and of iproute2.
    hz : N
        Frequency of the guest's clock in Hz, 100 to 1000.
    """
    from forebay._base import progress
    from forebay.linux.guests import KernelSource, SetupError
    from forebay.linux.guests import setup as build

    if not 100 <= hz <= 1000:
        raise ParameterError("hz", hz, "100 to 1000")
    try:
        with progress.bar(unit="guests") as watch:
            guest, is_new = build(KernelSource(source, suite, hz), watch)
    except SetupError as error:
        print_error(f"guest setup: {error}")
        raise typer.Exit(FAILED) from None
    state = "built" if is_new else "already built"
    print(f"guest {guest.digest[:12]} {state}: Linux {guest.release} from {guest.source}")
    print(f"folder: {guest.folder}")
    print("to use it: forebay run pi-pd/load --seeds 1 --engine kernel --law codel")


@with_options
def list_() -> None:
    """List the guests, the newest first, which runs use."""
    from forebay._base.terminal_table import Column
    from forebay.linux import guests

    installed = guests.installed()
    if not installed:
        print(f"no guests in {guests.place()}; {guests.SETUP}")
        return
    rows = [
        [
            guest.digest[:12],
            guest.release,
            str(guest.hz),
            f"{guest.size_bytes / 1e6:.0f}",
            guest.source,
        ]
        for guest in installed
    ]
    print_table([Column(head) for head in ("guest", "Linux", "Hz", "MB", "source")], rows, width=80)


@with_options
def remove(guest: str, /) -> None:
    """Remove a guest.

    Parameters
    ----------
    guest : GUEST
        First letters of its name in `forebay guest list`.
    """
    from forebay.linux import guests

    chosen = guests.chosen(guest)
    guests.remove(chosen)
    print(f"{chosen.digest[:12]} removed")
