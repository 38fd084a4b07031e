"""`forebay kernel`: laws that this machine's kernel runs on its network devices.

`forebay attach` and `forebay detach` are short forms of two of these commands.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._base import quantities
from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import print_errors
from forebay.cli.main import FAILED, print_error
from forebay.cli.options import LawKind, Settings, console, print_table, settings

if TYPE_CHECKING:
    from forebay.linux.law_statistics import LawCounts

#: Mark of a device that no longer exists, or whose name another device has now.
GONE = " (gone)"
Device = Annotated[str, typer.Argument(metavar="DEV", help="Network device, such as eth0.")]


@contextmanager
def _kernel() -> Iterator[None]:
    """Report an error of the kernel in one line, and exit."""
    from forebay.linux.devices import shown
    from forebay.linux.programs import KernelError

    try:
        yield
    except KernelError as error:
        print_error(shown(str(error)))
        raise typer.Exit(FAILED) from None


@with_options
def attach(
    device: Device,
    law: LawKind,
    /,
    *,
    rate: str | None = None,
    buffer: str | None = None,
    set_: Settings = None,
    design: str | None = None,
    ecn: bool = False,
    front: str | None = None,
    dry_run: bool = False,
) -> None:
    """Install a law in the kernel, on a network device.

    Parameters
    ----------
    rate : RATE
        Rate of a new shaper, such as 15Mbit/s, slightly below the link's own; without it, the
        device's shaper is used.
    buffer : SIZE
        Buffer of the new shaper, such as 500p; 250p without it.
    set_ : KEY=VALUE
        Set a parameter of the law, such as target=50p or target=20ms.
    design : KEYS
        Design the law for these flows and this RTT, such as flows=60,rtt=246ms, and for their
        congestion control, such as tcp=cubic.
    ecn
        Mark ECN-capable packets instead of dropping them.
    front : WHERE
        Where the law runs: classifier, in front of a shaper, or qdisc, which also shapes (Linux
        6.16 or newer); what the kernel supports without it.
    dry_run
        Print the commands without running them.
    """
    from forebay.linux import attachments
    from forebay.linux.devices import quoted, shown

    act = attachments.plan if dry_run else attachments.attach
    designed = settings(design.split(",")) if design else None
    with _kernel():
        done = act(
            device, law, settings(set_), rate=rate, buffer=buffer, ecn=ecn, design=designed,
            front=front,
        )  # fmt: skip
    for note in done.notes:
        print(note)
    if dry_run:
        for step in done.steps:
            print(" ".join(map(quoted, step.words)))
        return
    how = f"a {done.attached.engine}" if done.twin else f"Linux's {done.attached.engine}"
    word = quoted(device)
    print(
        f"{shown(device)}: {law} installed as {how}; `forebay kernel show {word}` shows its "
        f"counters, `forebay detach {word}` removes it"
    )


@with_options
def detach(
    device: Annotated[str | None, typer.Argument(metavar="DEV")] = None, /, *, stale: bool = False
) -> None:
    """Remove the law from a device and restore the previous qdiscs.

    Parameters
    ----------
    device : [DEV]
        Network device, by its present name.
    stale
        Instead, remove damaged records and those of devices that no longer exist.
    """
    from forebay.linux import attachments
    from forebay.linux.devices import shown

    if stale == (device is not None):
        raise ScenarioError("detach requires either a device or --stale")
    with _kernel():
        if device is None:
            gone, damaged = attachments.detach_stale()
            for record in gone:
                print(f"{shown(record.device)}: {record.law} was gone; record removed")
            for problem in damaged:
                print(f"{problem.file}: record removed ({problem.why})")
            if not gone and not damaged:
                print("no stale records")
            return
        done = attachments.detach(device)
    for note in done.notes:
        print(note)
    print(f"{shown(done.device)}: {done.law or 'the law'} removed")


@with_options
def change(
    device: Device,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE")],
    /,
) -> None:
    """Change a law in the kernel while traffic runs.

    Parameters
    ----------
    changes : KEY=VALUE...
        Parameters of the law, such as target=30p, or rate=20Mbit/s for its shaper.
    """
    from forebay.linux import attachments

    with _kernel():
        attachments.change(device, settings(changes))


@with_options
def show(
    device: Annotated[str | None, typer.Argument(metavar="[DEV]")] = None,
    /,
    *,
    as_json: bool = False,
    prometheus: bool = False,
    watch: bool = False,
) -> None:
    """Show the counters of laws in the kernel.

    Parameters
    ----------
    device : [DEV]
        Network device; every device with a law without it.
    as_json
        Print JSON instead of a table.
    prometheus
        Print metrics in the text format of Prometheus.
    watch
        Print the counters again every second.
    """
    from forebay.linux import law_statistics

    widths: list[int] | None = None
    while True:
        with _kernel():
            all_counts = (
                [law_statistics.counts_of(device)] if device else law_statistics.all_counts()
            )
            warnings = (
                list(map(law_statistics.bypass_warning, all_counts)) if widths is None else []
            )
        if widths is None:
            print_errors([*_problems(), *filter(None, warnings)])
            widths = []
        if as_json:
            numbers = [counts.as_json() for counts in all_counts]
            print(json.dumps(numbers, indent=None if watch else 1), flush=True)
        elif prometheus:
            print(law_statistics.prometheus(all_counts), end="", flush=True)
        else:
            widths = _print_counts(all_counts, widths)
        if not watch:
            return
        time.sleep(1)


@with_options
def list_(*, as_json: bool = False) -> None:
    """List the network devices that have a law.

    Parameters
    ----------
    as_json
        Print JSON instead of a table.
    """
    from forebay._base.terminal_table import Column
    from forebay.linux import devices, records
    from forebay.linux.devices import quoted, shown

    attached, problems = records.read()
    print_errors(problems)
    with _kernel():
        print_errors(
            f"{shown(name)} has a law of Forebay without a record; "
            f"`forebay detach {quoted(name)}` removes it"
            for name in devices.unrecorded()
        )
    if as_json:
        print(json.dumps([asdict(record) for record in attached], indent=1))
        return
    rows = []
    for record in attached:
        with _kernel():
            state = devices.state_of(record)
            name = devices.present_name(record) or record.device
        params = ", ".join(f"{key}={value}" for key, value in record.params.items())
        rate = quantities.rate(record.rate_bps)
        where = f" ({state})" if state else ""
        rows.append([shown(name) + where, record.law, rate, record.engine, params])
    heads = ("device", "law", "rate", "engine", "parameters")
    print_table([Column(head, align_left=True) for head in heads], rows)


def _problems() -> Sequence[object]:
    """Return the problems of damaged records."""
    from forebay.linux import records

    return records.read()[1]


def _print_counts(all_counts: list[LawCounts], former: list[int]) -> list[int]:
    """Print a table of counters, without headings if its columns are as wide as before.

    Parameters
    ----------
    all_counts : list of LawCounts
        Counters of each device.
    former : list of int
        Widths of the columns of the former table.

    Returns
    -------
    list of int
        Widths of the columns of this table.
    """
    from forebay._base import terminal_table
    from forebay._base.terminal_table import Column, RowGroup
    from forebay.linux.devices import shown

    heads = [
        *("device", "law", "queue [packets]", "mean", "deviation", "delay [ms]", "signals [%]"),
        *("marks", "drops", "overflows", "sent [MB]"),
    ]

    def text(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
        return "" if value is None else f"{scale * value:,.{digits}f}"

    rows = [
        [
            *(shown(counts.device) + ("" if counts.present else GONE), counts.law),
            *(text(counts.queue_pkts), text(counts.queue_mean_pkts), text(counts.queue_std_pkts)),
            *(text(counts.delay_mean_s, 1, 1e3), text(counts.p, 3, 100)),
            *(text(count, 0) for count in (counts.marks, counts.drops, counts.overflows)),
            text(counts.sent_bytes, 1, 1e-6),
        ]
        for counts in all_counts
    ]
    columns, screen = list(map(Column.from_heading, heads)), console()
    widths = terminal_table.fitting_widths(columns, [RowGroup(rows)], screen.width)
    header = not widths or widths != former
    terminal_table.show(screen, columns, [RowGroup(rows)], header=header)
    return widths
