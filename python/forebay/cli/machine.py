"""`forebay doctor` and `forebay kernel`: what this machine allows, and the guests in which the
engine `kernel` runs real Linux.

What they need is loaded inside them, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

import typer

from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED
from forebay.cli.options import print_table

STYLES = {"yes": "green", "partly": "yellow", "no": "bold"}


@with_options
def doctor(device: str | None = None, /, *, as_json: bool = False) -> None:
    """Find out what this machine can do: rootless links, timing, offloads; or whether a queue
    really is the bottleneck.

    device [DEVICE]: Look instead whether packets wait at this network device.
    as_json: Print JSON instead of a table.
    """
    from forebay._base import progress
    from forebay.linux import doctor as doctors

    with progress.status("looking at this machine"):
        findings = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        import json

        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        from rich.text import Text

        from forebay._base.terminal_table import Cell, Column

        columns = [
            *(Column("what", left=True), Column("verdict", left=True)),
            *(Column("found", sentence=True), Column("what to do", sentence=True)),
        ]
        rows: list[list[Cell]] = [
            [
                finding.name,
                Text(finding.verdict, style=STYLES[finding.verdict]),
                finding.found,
                finding.advice,
            ]
            for finding in findings
        ]
        print_table(columns, rows)
    # No link can be made, or a device's queue is no bottleneck.
    if all(finding.verdict == "no" for finding in findings[:2]):
        raise typer.Exit(FAILED)


@with_options
def setup_guest(*, source: Path | None = None, suite: str = "sid", hz: int = 1000) -> None:
    """Build a guest out of Linux's source, once, without root: some minutes on two cores.

    source DIR: A tree of Linux's source: a vendor's, net-next, one with Prague or BBR 3; it stays
        as it is. [default: Debian's, fetched as apt is configured here]
    suite SUITE: Debian's suite that kernel and iproute2 come from.
    hz N: Ticks of the guest's clock in a second, 100 to 1000.
    """
    from forebay._base import progress
    from forebay.linux.guests import KernelSource, SetupError
    from forebay.linux.guests import setup as build

    if not 100 <= hz <= 1000:
        raise ScenarioError(f"--hz: found {hz}, allowed: 100 to 1000")
    try:
        with progress.bar(unit="guests") as watch:
            guest, is_new = build(KernelSource(source, suite, hz), watch)
    except SetupError as error:
        print(f"forebay kernel setup: {error}", file=sys.stderr)
        raise typer.Exit(FAILED) from None
    state = "built" if is_new else "was there already"
    print(f"{guest.digest[:12]} {state}: Linux {guest.release}, of {guest.source}: {guest.folder}")
    print("try: forebay run experiments/pi-pd/load.toml --seeds 1 --engine kernel --law codel")


@with_options
def list_guest() -> None:
    """List the guests, the newest first; runs use that one."""
    from forebay._base.terminal_table import Column
    from forebay.linux import guests

    installed = guests.installed()
    if not installed:
        print(f"no guest in {guests.place()}; {guests.SETUP}")
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
    print_table([Column(head) for head in ("guest", "Linux", "Hz", "MB", "of")], rows, width=80)


@with_options
def remove_guest(guest: str, /) -> None:
    """Remove a guest.

    guest GUEST: First letters of its name in `forebay kernel list`.
    """
    from forebay.linux import guests

    chosen = guests.chosen(guest)
    guests.remove(chosen)
    print(f"{chosen.digest[:12]} removed")
