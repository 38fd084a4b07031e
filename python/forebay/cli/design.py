"""`forebay design`: gains for a link, their margins, and why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from forebay._native import ScenarioError
from forebay.base.quantities import DOTS, range_ends
from forebay.cli import options
from forebay.cli.groups import Help, with_groups
from forebay.cli.invocation import Invocation
from forebay.cli.options import L4sFlows, LawKind, OutputOptions, Tcp, settings


@with_groups
def design(
    law: LawKind,
    rate: Annotated[
        str | None,
        typer.Option(help="Rate of the link, such as 15Mbit/s.", show_default=False),
    ] = None,
    flows: Annotated[
        str | None,
        typer.Option(
            help="Long-lived TCP flows on it; 10..400 for a range; 30,20 for classes of flows.",
            show_default=False,
        ),
    ] = None,
    rtt: Annotated[
        str | None,
        typer.Option(
            help="Propagation both ways, such as 200ms; 20ms,80ms for classes of flows.",
            show_default=False,
        ),
    ] = None,
    from_: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="A file of `forebay identify`, for what is not given: its rate, and of its "
            "intervals the fewest flows and the longest RTT.",
            metavar="FILE",
        ),
    ] = None,
    tcp: Tcp = "reno",
    l4s_flows: L4sFlows = 0.0,
    packet: Annotated[
        str | None, typer.Option(help="Usual size of a packet; 1000B if it is left out.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="Queue length or queuing delay to hold, such as 175p or 40ms; a quarter of the "
            "bandwidth-delay product if it is left out.",
            show_default=False,
        ),
    ] = None,
    buffer: Annotated[
        str | None,
        options.buffer("the bandwidth-delay product, or twice the target if that is more,"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        options.sets(
            "A goal of the design, such as beta=0.3, or a parameter of the law that it leaves "
            "alone, such as interval=10ms."
        ),
    ] = None,
    *,
    output: Annotated[
        OutputOptions,
        Help(out=options.folder("the pictures and the scenario", "results/design-LAW")),
    ],
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the loop for other tools, too: .mat (MATLAB, Octave, Simulink), .json, or "
            ".csv (frequency response).",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Design a law for a link: gains, margins, and why."""
    rate, counts, rtt, packet = _link(rate, flows, rtt, packet, from_, quiet=output.as_json)
    call = Invocation.begun(output, f"design-{law}")
    if any(DOTS in text for text in (rate, counts, rtt)):
        wanted = settings(set_)
        if target is None:
            target = wanted.pop("target", None)
        beside = {
            "--buffer": buffer,
            "--export": export,
        }
        for key, value in beside.items():
            if value is not None:
                raise ScenarioError(f'{key}: found "{value}" with a range, allowed: none')
        for key, text in [("--rate", rate), ("--flows", counts), ("--rtt", rtt)]:
            if "," in text and (DOTS in text or key == "--flows"):
                raise ScenarioError(
                    f'{key}: found "{text}" with a range, allowed: one value, or a range'
                )
        for key in wanted:
            if key != "interval":
                raise ScenarioError(f'--set: found "{key}" with a range, allowed: target, interval')
        _for_range(
            law, rate, rtt, counts, packet, target, wanted.get("interval"), l4s_flows, tcp, call
        )
        return
    from forebay.theory.design.design import design as designed

    if export is not None:
        from forebay.designs import export as exported

        exported.check(export)
    result = designed(
        law, rate, counts, rtt, packet, target, buffer, settings(set_), l4s_flows, tcp
    )
    if export is not None:
        if result.loop is None:
            raise ScenarioError(f'--export: found "{law}", allowed: a law with a loop of the queue')
        exported.save(result.loop, export)
    written = []
    if call.folder is not None:
        from forebay.designs import files

        written = files.write(result, call.folder)
    if call.as_json:
        print(json.dumps(result.as_json()))
        return
    from rich.console import Console

    from forebay.designs import terminal

    terminal.show(Console(highlight=False, soft_wrap=False), result, call.folder, written)


def _for_range(
    law: str,
    rate: str,
    rtt: str,
    flows: str,
    packet: str,
    target: str | None,
    interval: str | None,
    l4s_flows: float,
    tcp: str,
    call: Invocation,
) -> None:
    """One PI for every corner of the ranges."""
    from forebay.theory.design import pi_stabilising_set

    counts = []
    for text in range_ends("--flows", flows):
        try:
            counts.append(float(text))
        except ValueError:
            raise ScenarioError(f'--flows: found "{flows}", allowed: such as 10..400') from None
    found = pi_stabilising_set.design_for_range(
        law,
        range_ends("--rate", rate),
        range_ends("--rtt", rtt),
        counts,
        packet,
        target,
        interval,
        l4s_flows,
        tcp,
    )
    written = []
    if call.folder is not None:
        from forebay.designs import files

        written = files.write_range(found, call.folder)
    if call.as_json:
        print(json.dumps(found.as_json()))
        return
    from forebay.designs import terminal

    terminal.show_range(options.console(80), found)
    print(f"\nWritten: {call.folder}/{{{','.join(path.name for path in written)}}}")


def _link(
    rate: str | None,
    flows: str | None,
    rtt: str | None,
    packet: str | None,
    path: Path | None,
    *,
    quiet: bool,
) -> tuple[str, str, str, str]:
    """What is given, and the rest from a file of `forebay identify`."""
    if path is not None:
        from forebay.identification import link_file

        found = link_file.read_link(path)
        rate, packet = rate or found.rate, packet or found.packet
        flows = f"{max(1.0, found.flows[0]):g}" if flows is None else flows
        rtt = rtt or found.rtt[1]
        if not quiet:
            print(f"From {path}: {rate}, {flows} flows or more, {rtt} or less, packets of {packet}")
    if flows is not None and DOTS not in flows:
        for one in flows.split(","):
            _number(one)
    for key, value in [("--rate", rate), ("--flows", flows), ("--rtt", rtt)]:
        if value is None:
            raise ScenarioError(f"{key}: found nothing, allowed: a value, here or in --from FILE")
    assert rate is not None and flows is not None and rtt is not None
    return rate, flows, rtt, packet or "1000B"


def _number(text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise ScenarioError(f'--flows: found "{text}", allowed: a number') from None
