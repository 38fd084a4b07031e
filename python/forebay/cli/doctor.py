"""`forebay doctor`: what this machine allows, and whether a device's queue is the bottleneck.

Its dependencies are loaded inside the command, so that other commands stay quick.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED
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
    from forebay._base import progress
    from forebay.linux import doctor as doctors

    with progress.status("looking at this machine"):
        findings = [doctors.queue(device)] if device else list(doctors.findings())
    if as_json:
        import json

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
        *(Column("check", left=True), Column("works", left=True)),
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
