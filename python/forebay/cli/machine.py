"""`forebay doctor` and `forebay guest`: what this machine allows, and its guests.

A guest runs real Linux in virtual time for the engine `kernel`. Dependencies are loaded inside the
commands, so that other commands stay quick.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from forebay._base import progress
from forebay._base.errors import ParameterError
from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED, print_error
from forebay.cli.options import print_table

if TYPE_CHECKING:
    from forebay.linux.doctor import Capability

#: Style of each verdict.
STYLES = {"yes": "green", "partly": "yellow", "no": "bold"}


@with_options
def doctor(device: str | None = None, /, *, as_json: bool = False) -> None:
    """Check what this machine supports.

    It tries rootless links, namespaces, timing and offloads; with a device, it checks whether the
    device's queue is the bottleneck.

    Parameters
    ----------
    device : [DEVICE]
        Check instead whether packets wait at this network device.
    as_json
        Print JSON instead of a table.
    """
    from forebay.linux import doctor as doctors

    with progress.status("looking at this machine"):
        findings = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        _print(findings, device)
    if not _is_usable(findings):
        raise typer.Exit(FAILED)


def _is_usable(findings: Sequence[Capability]) -> bool:
    """Return True if links work on this machine, or if a device's queue is a bottleneck.

    The first two findings are the two kinds of link, or the device alone.
    """
    return any(finding.verdict != "no" for finding in findings[:2])


def _print(findings: Sequence[Capability], device: str | None) -> None:
    """Print whether links work, or whether a device is a bottleneck; then each finding."""
    from rich.text import Text

    from forebay._base.terminal_table import Cell, Column
    from forebay.report.designs import print_item

    if device is None:
        works = "works" if _is_usable(findings) else "does not work"
        limited = [finding.name for finding in findings if finding.verdict != "yes"]
        text = f"`forebay link` {works} on this machine"
        print(f"{text}; limited: {', '.join(limited)}." if limited else f"{text}.")
    else:
        is_not = {"yes": "is", "partly": "may be", "no": "is not"}[findings[0].verdict]
        print(f"{device} {is_not} a bottleneck.")
    print()
    columns = [
        *(Column("check", align_left=True), Column("works", align_left=True)),
        Column("result", sentence=True),
    ]
    rows: list[list[Cell]] = [
        [finding.name, Text(finding.verdict, style=STYLES[finding.verdict]), finding.found]
        for finding in findings
    ]
    screen = print_table(columns, rows)
    for finding in findings:
        if finding.advice:
            print_item(screen, f"{finding.name}: {finding.advice}")


# --- guests -------------------------------------------------------------------------------------


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
