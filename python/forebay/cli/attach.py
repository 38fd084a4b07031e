"""`forebay attach`, `detach`, `set`, `stats` and `list`: a law in the kernel, on a device."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from forebay.cli.declaration import with_options
from forebay.cli.main import FAILED
from forebay.cli.options import LawKind, Settings, print_table, settings

if TYPE_CHECKING:
    from forebay.kernel.statistics import LawCounts

#: Of a device that is there no more, or is another by the same name.
GONE = " (gone)"
Device = Annotated[str, typer.Argument(metavar="DEV", help="Network device, such as eth0.")]


@contextmanager
def _kernel() -> Iterator[None]:
    """What the kernel refuses is one line."""
    from forebay.kernel.programs import KernelError

    try:
        yield
    except KernelError as error:
        typer.echo(str(error), err=True)
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
    """Put a law into the kernel, before the queue of a network device.

    rate: Rate of a shaper to make, such as 15Mbit/s, a little less than the link's own; the shaper
        that is there if it is left out.
    buffer: Its buffer, such as 500p; 250p if it is left out.
    set_: A parameter of the law, such as target=50p or target=20ms.
    design KEYS: Design the law for flows and round trips, such as flows=60,rtt=246ms.
    ecn: Mark packets that can be marked instead of dropping them.
    front: Where the law stands: classifier, before a shaper, or qdisc, which shapes itself (Linux
        6.16); what the kernel offers if it is left out.
    dry_run: Print what would be done, and do nothing.
    """
    from forebay.kernel import attachments

    act = attachments.plan if dry_run else attachments.attach
    with _kernel():
        done = act(
            device,
            law,
            settings(set_),
            rate=rate,
            buffer=buffer,
            ecn=ecn,
            design=settings(design.split(",")) if design else None,
            front=front,
        )
    for note in done.notes:
        print(note)
    if dry_run:
        for step in done.steps:
            print(shlex.join(step.words))
        return
    how = f"a {done.attached.engine}" if done.twin else f"Linux's {done.attached.engine}"
    print(f"{device}: {law} as {how}; `forebay stats {device}`, `forebay detach {device}`")


@with_options
def detach(device: Device, /) -> None:
    """Take the law from a device, and give back the queue that it had."""
    from forebay.kernel import attachments

    with _kernel():
        done = attachments.detach(device)
    print(f"{device}: {done.law} is gone")


@with_options
def set_(
    device: Device,
    changes: Annotated[list[str], typer.Argument(metavar="KEY=VALUE")],
    /,
) -> None:
    """Change a law in the kernel while traffic runs.

    changes KEY=VALUE: A parameter of the law, such as target=30p, or rate=20Mbit/s of its shaper.
    """
    from forebay.kernel import attachments

    with _kernel():
        attachments.change(device, settings(changes))


@with_options
def stats(
    device: Annotated[str | None, typer.Argument(metavar="[DEV]")] = None,
    /,
    *,
    as_json: bool = False,
    prometheus: bool = False,
    watch: bool = False,
) -> None:
    """Show what laws in the kernel have seen and done.

    device [DEV]: Network device; all that have a law if it is left out.
    as_json: Print JSON instead of a table.
    prometheus: Print metrics in the text format of Prometheus.
    watch: Go on, each second.
    """
    import time

    from forebay.kernel import statistics

    while True:
        with _kernel():
            found = [statistics.seen(device)] if device else statistics.all_seen()
        if as_json:
            print(
                json.dumps([one.as_json() for one in found], indent=None if watch else 1),
                flush=True,
            )
        elif prometheus:
            print(statistics.prometheus(found), end="", flush=True)
        else:
            _show(found)
        if not watch:
            return
        time.sleep(1)


@with_options
def list_(*, as_json: bool = False) -> None:
    """List the devices of this machine that have a law.

    as_json: Print JSON instead of a table.
    """
    from dataclasses import asdict

    from forebay.base import quantities
    from forebay.base.terminal_table import Column
    from forebay.kernel import records

    found = records.everything()
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    columns = [
        Column(name, left=True) for name in ("device", "law", "rate", "engine", "parameters")
    ]
    here = records.namespace()
    rows = []
    for one in found:
        elsewhere = " (another namespace)" if one.namespace != here else ""
        gone = GONE if not elsewhere and not records.exists(one) else ""
        params = ", ".join(f"{key}={value}" for key, value in one.params.items())
        rate = quantities.rate(one.rate_bps)
        rows.append([one.device + elsewhere + gone, one.law, rate, one.engine, params])
    print_table(columns, rows)


def _show(found: list[LawCounts]) -> None:
    from forebay.base.terminal_table import Column

    heads = [
        *("device", "law", "queue [packets]", "mean", "deviation", "delay [ms]", "signals [%]"),
        *("marks", "drops", "overflows", "sent [MB]"),
    ]

    def text(value: float | None, digits: int = 1, scale: float = 1.0) -> str:
        return "" if value is None else f"{scale * value:,.{digits}f}"

    rows = [
        [
            *(one.device + ("" if one.present else GONE), one.law),
            *(text(one.queue_pkts), text(one.queue_mean_pkts)),
            *(text(one.queue_std_pkts), text(one.delay_mean_s, 1, 1e3), text(one.p, 3, 100)),
            *(text(one.marks, 0), text(one.drops, 0), text(one.overflows, 0)),
            text(one.sent_bytes, 1, 1e-6),
        ]
        for one in found
    ]
    print_table([Column.from_heading(head) for head in heads], rows)
