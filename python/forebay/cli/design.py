"""`forebay design`: gains for a link, their margins, and why."""

from __future__ import annotations

import json
from pathlib import Path

from forebay._base.quantities import DOTS, range_ends
from forebay._native import ScenarioError
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation
from forebay.cli.options import L4sFlows, LawKind, OutputOptions, Settings, Tcp, console, settings


@with_options
def design(
    law: LawKind,
    /,
    *,
    rate: str | None = None,
    flows: str | None = None,
    rtt: str | None = None,
    from_: Path | None = None,
    tcp: Tcp = "reno",
    l4s_flows: L4sFlows = 0.0,
    packet: str | None = None,
    target: str | None = None,
    buffer: str | None = None,
    set_: Settings = None,
    output: OutputOptions,
    export: Path | None = None,
) -> None:
    """Design a law for a link: gains, margins, and why.

    rate: Rate of the link, such as 15Mbit/s.
    flows: Long-lived TCP flows on it; 10..400 for a range; 30,20 for classes of flows.
    rtt: Propagation both ways, such as 200ms; 20ms,80ms for classes of flows.
    from_ FILE: A file of `forebay identify`, for what is not given: its rate, and of its intervals
        the fewest flows and the longest RTT.
    packet: Usual size of a packet; 1000B if it is left out.
    target: Queue length or queuing delay to hold, such as 175p or 40ms; a quarter of the
        bandwidth-delay product if it is left out.
    buffer: Buffer size in packets, such as 500p; the bandwidth-delay product, or twice the target
        if that is more, if it is left out.
    set_: A goal of the design, such as beta=0.3, or a parameter of the law that it leaves alone,
        such as interval=10ms.
    out: Folder for the pictures and the scenario; results/design-LAW if it is left out.
    export FILE: Write the loop for other tools, too: .mat (MATLAB, Octave, Simulink), .json, or
        .csv (frequency response).
    """
    rate, flows, rtt, packet = _link(rate, flows, rtt, packet, from_, quiet=output.as_json)
    call = Invocation.begun(output, f"design-{law.rpartition(':')[2]}")
    if any(DOTS in text for text in (rate, flows, rtt)):
        for key, value in [("--buffer", buffer), ("--export", export)]:
            if value is not None:
                raise ScenarioError(f'{key}: found "{value}" with a range, allowed: none')
        _for_range(law, rate, rtt, flows, packet, target, settings(set_), l4s_flows, tcp, call)
        return
    from forebay.control.design import design as designed

    if export is not None:
        from forebay.control import export as exported

        exported.check(export)
    result = designed(law, rate, flows, rtt, packet, target, buffer, settings(set_), l4s_flows, tcp)
    if export is not None:
        if result.loop is None:
            raise ScenarioError(f'--export: found "{law}", allowed: a law with a loop of the queue')
        exported.save(result.loop, export)
    written = []
    if call.folder is not None:
        written = result.report(call.folder)
    if call.as_json:
        print(json.dumps(result.as_json()))
        return
    from rich.console import Console

    from forebay.report import designs

    designs.show(Console(highlight=False, soft_wrap=False), result, call.folder, written)


def _for_range(
    law: str,
    rate: str,
    rtt: str,
    flows: str,
    packet: str,
    target: str | None,
    wanted: dict[str, str],
    l4s_flows: float,
    tcp: str,
    call: Invocation,
) -> None:
    """One PI for every corner of the ranges."""
    from forebay.control import pi_stabilising_set

    for key, text in [("--rate", rate), ("--flows", flows), ("--rtt", rtt)]:
        if "," in text and (DOTS in text or key == "--flows"):
            raise ScenarioError(
                f'{key}: found "{text}" with a range, allowed: one value, or a range'
            )
    if target is None:
        target = wanted.pop("target", None)
    interval = wanted.pop("interval", None)
    for key in wanted:
        raise ScenarioError(f'--set: found "{key}" with a range, allowed: target, interval')
    counts = [_number(text, flows, "such as 10..400") for text in range_ends("--flows", flows)]
    result = pi_stabilising_set.design_for_range(
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
        from forebay.report import designs

        written = designs.write_range(result, call.folder)
    if call.as_json:
        print(json.dumps(result.as_json()))
        return
    from forebay.report import designs

    designs.show_range(console(80), result)
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
        from forebay.control import queue_estimate

        link = queue_estimate.read_link(path)
        rate, packet = rate or link.rate, packet or link.packet
        flows = f"{max(1.0, link.flows[0]):g}" if flows is None else flows
        rtt = rtt or link.rtt[1]
        if not quiet:
            print(f"From {path}: {rate}, {flows} flows or more, {rtt} or less, packets of {packet}")
    if flows is not None and DOTS not in flows:
        for count in flows.split(","):
            _number(count, count, "a number")
    for key, value in [("--rate", rate), ("--flows", flows), ("--rtt", rtt)]:
        if value is None:
            raise ScenarioError(f"{key}: found nothing, allowed: a value, here or in --from FILE")
    assert rate is not None and flows is not None and rtt is not None
    return rate, flows, rtt, packet or "1000B"


def _number(text: str, flows: str, allowed: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ScenarioError(f'--flows: found "{flows}", allowed: {allowed}') from None
