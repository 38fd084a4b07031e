"""`forebay design` and `forebay map`: a law's gains for a link, and where a law is stable.

Their dependencies are loaded inside the commands, so that other commands stay quick.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._base import signals
from forebay._base.errors import ParameterError
from forebay._base.quantities import DOTS, range_ends
from forebay._base.registries import title_of
from forebay._base.words import in_figures
from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, print_json

if TYPE_CHECKING:
    from forebay.control.designed_law import Design
    from forebay.control.link import Link
    from forebay.control.stability_map import StabilityMap


@dataclass(frozen=True, kw_only=True)
class LinkOptions:
    """The link of a design and its flows.

    Attributes
    ----------
    rate : RATE
        Rate of the link, such as 15Mbit/s, or a range, such as 5..50Mbit/s.
    flows : FLOWS
        Number of long-lived TCP flows, such as 60; a range, such as 10..400; or, with commas, one
        for each class of flows.
    rtt : RTT
        Two-way propagation delay, such as 200ms; a range, such as 20..200ms; or, with commas, one
        for each class of flows.
    from_ : FILE
        A file of `forebay identify`; it gives the options above that are left out: its rate, the
        fewest flows and the longest RTT of its intervals.
    packet : SIZE
        Packet size of the flows; 1000B without it.
    """

    rate: str | None = None
    flows: str | None = None
    rtt: str | None = None
    from_: Path | None = None
    tcp: options.Tcp = "reno"
    l4s_flows: options.L4sFlows = 0.0
    packet: str | None = None

    def completed(self, *, quiet: bool) -> tuple[str, str, str, str]:
        """Return rate, flows, RTT and packet; the file has those that are not given."""
        rate, flows, rtt, packet = self.rate, self.flows, self.rtt, self.packet
        if self.from_ is not None:
            from forebay.control import queue_estimate

            link = queue_estimate.read_link(self.from_)
            rate, packet, rtt = rate or link.rate, packet or link.packet, rtt or link.rtt[1]
            flows = f"{max(1.0, link.flows[0]):g}" if flows is None else flows
            if not quiet:
                print(
                    f"From {self.from_}: {rate}, {flows} flows or more, {rtt} or less, packets of "
                    f"{packet}"
                )
        for text in flows.split(",") if flows is not None and DOTS not in flows else ():
            _number(text, text, "a number")
        for key, value in [("--rate", rate), ("--flows", flows), ("--rtt", rtt)]:
            if value is None:
                raise ScenarioError(f"{key} is required, unless --from FILE has it")
        assert rate is not None and flows is not None and rtt is not None
        return rate, flows, rtt, packet or "1000B"


def _number(text: str, flows: str, expected: str) -> float:
    """Return a number of flows. Raises `ParameterError` for a text that is none."""
    try:
        return float(text)
    except ValueError:
        raise ParameterError("flows", flows, expected) from None


@with_options
def design(
    law: options.LawKind,
    /,
    *,
    link: LinkOptions,
    target: str | None = None,
    buffer: str | None = None,
    set_: options.Settings = None,
    explain: bool = False,
    output: options.OutputOptions,
    export: Path | None = None,
) -> None:
    """Compute a law's gains for a link, with stability margins.

    Parameters
    ----------
    target : TARGET
        Set-point: queue length or queuing delay, such as 175p or 40ms; a quarter of the
        bandwidth-delay product without it.
    buffer : SIZE
        Buffer size, such as 500p; without it, the bandwidth-delay product, or twice the target if
        that is more.
    set_ : KEY=VALUE
        Set a goal of the design rule, such as beta=0.3, or a parameter of the law that the design
        does not change, such as interval=10ms.
    explain
        Also explain the design, from the operating point to the margins.
    out : DIR
        Folder of the figures and the scenario; nothing is written without it.
    export : FILE
        Also write the loop for other tools: .mat (MATLAB, Octave, Simulink), .json, or .csv
        (frequency response).
    """
    site = link.completed(quiet=output.as_json)
    call = Invocation.begun(output, None)
    overrides = options.settings(set_)
    if any(DOTS in text for text in site[:3]):
        _refuse_with_range({"--buffer": buffer, "--export": export})
        _design_range(law, link, site, target, overrides, call)
        return
    from forebay.control import export as exported
    from forebay.control.design import design as designed
    from forebay.control.link import Link
    from forebay.report import designs

    if export is not None:
        exported.check(export)
    rate, flows, rtt, packet = site
    place = Link(
        rate, rtt, flows=flows, packet=packet, buffer=buffer, senders=link.tcp,
        l4s_flows=link.l4s_flows,
    )  # fmt: skip
    result = designed(law, place, target=target, overrides=overrides)
    _export(result, export)
    written = result.report(call.folder) if call.folder is not None else []
    if call.as_json:
        print_json(result.to_dict())
        return
    designs.show(options.console(80), result, call.folder, written, explain=explain)


def _refuse_with_range(values: Mapping[str, object]) -> None:
    """Raise `ScenarioError` if an option is given that does not go with a range."""
    for key, value in values.items():
        if value is not None:
            raise ScenarioError(f"{key} cannot be combined with a range; leave it out")


def _export(result: Design, file: Path | None) -> None:
    """Write the loop of a design for other tools, if a file is given."""
    from forebay.control import export

    if file is None:
        return
    if result.loop is None:
        raise ScenarioError(
            f"--export: {result.law} acts on rates and has no loop of the queue to export"
        )
    export.save(result.loop, file)


def _design_range(
    law: str,
    link: LinkOptions,
    site: tuple[str, str, str, str],
    target: str | None,
    overrides: dict[str, str],
    call: Invocation,
) -> None:
    """Design one PI law for every corner of the ranges, and print and write it."""
    from forebay.control import pi_stabilising_set
    from forebay.control.link import Link
    from forebay.report import designs

    rate, flows, rtt, packet = site
    for key, text in [("--rate", rate), ("--flows", flows), ("--rtt", rtt)]:
        if "," in text and (DOTS in text or key == "--flows"):
            raise ScenarioError(
                f'{key}: "{text}" is a list, which cannot be combined with a range; give one value'
            )
    if target is None:
        target = overrides.pop("target", None)
    interval = overrides.pop("interval", None)
    for key in overrides:
        raise ScenarioError(
            f'--set: "{key}" cannot be combined with a range; only "target" and "interval" can'
        )
    few, many = (_number(text, flows, "such as 10..400") for text in range_ends("--flows", flows))
    rates, rtts = range_ends("--rate", rate), range_ends("--rtt", rtt)
    place = Link(
        rates[0], rtts[0], flows=few, packet=packet, senders=link.tcp, l4s_flows=link.l4s_flows
    )
    result = pi_stabilising_set.design_for_range(
        law, place, rate=rates, rtt=rtts if DOTS in rtt else None, flows=(few, many),
        target=target, interval=interval,
    )  # fmt: skip
    written = designs.write_range(result, call.folder) if call.folder is not None else []
    if call.as_json:
        print_json(result.to_dict())
        return
    designs.show_range(options.console(80), result)
    if call.folder is None:
        print("\nAdd --out DIR to write figures and a scenario with this law.")
    else:
        print(f"\nFiles in {call.folder}: {', '.join(path.name for path in written)}")


@dataclass(frozen=True, kw_only=True)
class MapLinkOptions:
    """The links of a map.

    Attributes
    ----------
    rate : RATE
        Rate of the link, such as 15Mbit/s, or its range, such as 5..50Mbit/s.
    flows : FLOWS
        Range of the number of long-lived TCP flows, such as 10..400.
    rtt : RTT
        Two-way propagation delay or its range, such as 20..500ms; with commas, one for each class
        of flows.
    buffer : SIZE
        Buffer size, such as 500p; the largest bandwidth-delay product without it.
    """

    rate: str
    flows: str
    rtt: str
    tcp: options.Tcp = "reno"
    l4s_flows: options.L4sFlows = 0.0
    packet: options.Packet = "1000B"
    buffer: str | None = None

    def upper_end(self) -> Link:
        """Return the link at the upper ends of both axes, for which everything is valid."""
        from forebay.control.link import Link

        flows = range_ends("--flows", self.flows)[1]
        return Link(
            range_ends("--rate", self.rate)[1], range_ends("--rtt", self.rtt)[1],
            flows=_number(flows, self.flows, "a range such as 10..400"), packet=self.packet,
            buffer=self.buffer, senders=self.tcp, l4s_flows=self.l4s_flows,
        )  # fmt: skip


@with_options
def stability_map(
    law: options.LawKind,
    /,
    *,
    links: MapLinkOptions,
    set_: options.Settings = None,
    windows: str = "published",
    points: Annotated[int, typer.Option(min=2, max=2000)] = 200,
    simulate: Annotated[int, typer.Option(min=0, max=20)] = 5,
    output: options.OutputOptions,
    stored: options.StoreOptions,
) -> None:
    """Map where a law is stable, over flows and RTT or rate.

    Packet simulations of some cells check the theory. The picture and the cells are files.

    Parameters
    ----------
    set_ : KEY=VALUE
        Set a parameter of the law, such as a=1e-5, target=50p or target=40ms.
    windows : NAME
        Model of the flows: published, as in the papers, or sawtooth, with ACK clocking and sawtooth
        windows, which is closer to packets.
    points
        Number of cells along each axis.
    simulate
        Number of packet simulations along each axis; 0 for none.
    out : DIR
        Folder of the map; results/map-LAW without it.
    """
    from forebay.control import stability_map as mapped
    from forebay.experiment import store as stores

    axis, place = _map_axis(links.rate, links.rtt), links.upper_end()
    call = Invocation.begun(output, f"map-{law.rpartition(':')[2]}")
    store = stores.store(stored.store, without=stored.no_store) if simulate else None
    drawn = mapped.stability_map(
        law, place, flows=links.flows, rtt=links.rtt if axis == "rtt" else None,
        rate=links.rate if axis == "rate" else None, overrides=options.settings(set_),
        points=points, simulate=simulate, store=store, windows=windows,  # type: ignore[arg-type]
    )  # fmt: skip
    _report_map(law, drawn, "rate_bps" if axis == "rate" else "rtt_s", call)


def _map_axis(rate: str, rtt: str) -> str:
    """Return the one of rate and RTT that is a range. Raises `ScenarioError` unless one is."""
    if DOTS in rtt and "," in rtt:
        raise ScenarioError(
            f'--rtt: "{rtt}" is a range and a list; expected a range, or a list with a range of '
            "rates"
        )
    if DOTS in rate and DOTS in rtt:
        raise ScenarioError("--rate and --rtt are both ranges; expected one of them")
    if DOTS not in rate and DOTS not in rtt:
        raise ScenarioError(f'--rtt: "{rtt}" is not a range; expected a range here or in --rate')
    return "rate" if DOTS in rate else "rtt"


def _report_map(law: str, drawn: StabilityMap, axis: str, call: Invocation) -> None:
    """Write the picture and the cells, and print how many cells are stable."""
    if call.folder is not None:
        call.publish(drawn.files())
    if call.as_json:
        print_json(drawn.to_dict())
    else:
        _show_map(law, drawn, axis)
        print(f"Map: {call.folder}/map.png; its cells: {call.folder}/map.parquet")
    if drawn.interrupted:
        print("interrupted; the map has no packet simulations", file=sys.stderr)
        raise typer.Exit(signals.status())


def _show_map(law: str, drawn: StabilityMap, axis: str) -> None:
    """Print where the law is stable, the numbers of cells, and the packet simulations."""
    from forebay.report.designs import print_item

    cells, counts = drawn.stable.size, drawn.counts()
    windows = "" if drawn.windows == "published" else f" with {drawn.windows} windows"
    stable, unstable, *missing = (100 * number / cells for number in counts.values())
    no_equilibrium = f"; {_percent(sum(missing))} has no equilibrium" if missing else ""
    print_item(
        options.console(80),
        f"{title_of(law)}{windows} is stable in {_percent(stable)} of the map and unstable in "
        f"{_percent(unstable)}{no_equilibrium}.",
    )
    print()
    for reason, number in counts.items():
        print_item(options.console(80), f"{number:>6,} of {cells:,} cells: {reason}")
    if drawn.oscillation:
        print(f"\nPacket simulations of {drawn.simulated_s:.0f} s:")
        _show_packets(drawn, axis)
        if any(drawn.unsettled(flows, value) for flows, value, _ in drawn.oscillation):
            print_item(
                options.console(80),
                f"warning: Cells that need more than {drawn.simulated_s:.0f} s to settle had not "
                "reached the steady state when their simulation ended; run their scenario for "
                "longer to see it.",
            )


def _percent(share: float) -> str:
    """Return a share of cells in percent, such as "98 %"; neither 0 nor 100 % for some cells."""
    if 0 < share < 1:
        return "less than 1 %"
    return f"{99 if 99 < share < 100 else share:.0f} %"


def _show_packets(drawn: StabilityMap, axis: str) -> None:
    """Print a row for each simulated cell."""
    from forebay._base.terminal_table import Column

    over_rate = axis == "rate_bps"
    columns = [
        *(Column("Flows"), Column("Rate", "Mbit/s") if over_rate else Column("RTT", "ms")),
        *(Column("Queue, SD / mean"), Column("Theory", sentence=True), Column("Settling", "s")),
    ]
    rows: Sequence[Sequence[str]] = [
        [
            f"{flows:g}",
            in_figures(value * (1e-6 if over_rate else 1e3)),
            f"{deviation:.2f}",
            drawn.verdict(flows, value),
            in_figures(drawn.settling_s[flows, value], 2)
            if (flows, value) in drawn.settling_s
            else "–",
        ]
        for flows, value, deviation in drawn.oscillation
    ]
    options.print_table(columns, rows, keys=2)
