"""`forebay design`: gains for a link, their margins, and why."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forebay._native import ScenarioError
from forebay.cli import options
from forebay.cli.options import AsJson, L4sFlows, LawKind, Style, Tcp, settings
from forebay.control.spans import DOTS

if TYPE_CHECKING:
    from forebay.control.designed import Design
    from forebay.control.loop import Loop
    from forebay.control.margins import Margins

#: Rows of a loop: name, format, and which of its margins.
MARGINS: list[tuple[str, str, Callable[[Margins], float]]] = [
    ("crossover", "{:.4g} rad/s", lambda margins: margins.crossover_rad_s),
    ("phase margin", "{:.1f}°", lambda margins: margins.phase_deg),
    ("gain margin", "{:.1f} dB", lambda margins: margins.gain_db),
    ("delay margin", "{:.4g} ms", lambda margins: 1e3 * margins.delay_s),
    ("sensitivity peak", "{:.3g}", lambda margins: margins.sensitivity),
]


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
    out: Annotated[
        Path | None, options.out("the pictures and the scenario", "results/design-LAW")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Write the loop for other tools, too: .mat (MATLAB, Octave, Simulink), .json, or "
            ".csv (frequency response).",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
    style: Style = "screen",
) -> None:
    """Design a law for a link: gains, margins, and why."""
    from forebay.control.design import design as designed
    from forebay.report import place
    from forebay.report import style as styles

    styles.use(style)
    rate, counts, rtt, packet = _link(rate, flows, rtt, packet, from_, quiet=as_json)
    if any(DOTS in text for text in (rate, counts, rtt)):
        wanted = settings(set_)
        if target is None:
            target = wanted.pop("target", None)
        from forebay.cli import ranges

        beside = {
            "--buffer": buffer,
            "--export": export,
            "--l4s-flows": l4s_flows or None,
            "--tcp": None if tcp == "reno" else tcp,
        }
        for key, value in beside.items():
            if value is not None:
                raise ScenarioError(f'{key}: found "{value}" with a range, allowed: none')
        for key, text in [("--rate", rate), ("--flows", counts), ("--rtt", rtt)]:
            if "," in text:
                raise ScenarioError(
                    f'{key}: found "{text}" with a range, allowed: one value, or a range'
                )
        for key in wanted:
            if key != "interval":
                raise ScenarioError(f'--set: found "{key}" with a range, allowed: target, interval')
        ranges.design(
            law, rate, rtt, counts, packet, target, wanted.get("interval"), out, as_json=as_json
        )
        return
    if out is None and not as_json:
        out = Path("results") / f"design-{law}"
    if out is not None:
        place.check(out)
    if export is not None:
        from forebay.control import export as exported

        exported.check(export)
    result = designed(
        law, rate, counts, rtt, packet, target, buffer, settings(set_), l4s_flows, tcp
    )
    if export is not None:
        if result.loop is None:
            raise ScenarioError(f'--export: found "{law}", allowed: a law with a loop of the queue')
        exported.save(result.loop, export)
    written = _write(result, out) if out is not None else []
    if as_json:
        print(json.dumps(result.as_json()))
        return
    _show(result, out, written)


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
        from forebay.identify import file

        found = file.read(path)
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


def _write(result: Design, out: Path) -> list[Path]:
    """The scenario, the numbers and the pictures."""
    from forebay.control import pictures
    from forebay.report import words

    contents: dict[str, str | bytes] = {
        f"{result.law}.toml": result.toml(),
        "design.json": json.dumps(result.as_json(), indent=1) + "\n",
    }
    if result.loop is not None:
        link = result.link
        beside = f" and {link.l4s_flows:g} of L4S" if link.l4s_flows else ""
        beside += f" of {link.senders}" if link.groups else ""
        title = f"{result.law} for {words.quantity(link.rate)}, {link.flows:g} flows{beside}"
        for name, draw in [
            ("bode", pictures.bode),
            ("step", pictures.step),
            ("nyquist", pictures.nyquist),
            ("nichols", pictures.nichols),
            ("roots", pictures.roots),
        ]:
            contents |= draw(result.loop, title).files(name)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        data = content.encode() if isinstance(content, str) else content
        (out / name).write_bytes(data)
    return [out / name for name in contents]


def _finite(value: float, form: str) -> str:
    if math.isnan(value):
        return "none"
    return form.format(value) if math.isfinite(value) else "unlimited"


def _show(result: Design, out: Path | None, written: list[Path]) -> None:
    from rich.console import Console
    from rich.table import Table

    from forebay.control import reasons
    from forebay.control.sawtooth import Rest
    from forebay.report import words
    from forebay.run.scenario import Law

    console = Console(highlight=False, soft_wrap=False)
    table = Table(
        title=f"{result.law} on {words.quantity(result.link.rate)}", title_justify="left", box=None
    )
    table.add_column("", style="bold")
    table.add_column("", justify="right")
    closer = result.sawtooth
    if closer is not None:
        table.columns[1].header = "as published"
        table.add_column("sawtooth", justify="right")
    for name, gain in result.gains.items():
        table.add_row(name, f"{gain:.5g}")
    point, margins = result.point, result.margins

    def row(name: str, form: str, value: float, other: Callable[[Loop], float]) -> None:
        beside = "" if closer is None else _finite(other(closer), form)
        table.add_row(name, _finite(value, form), beside)

    def window_pkts(loop: Loop) -> float:
        return float(Rest.signalled(loop.point.probability).window_pkts)

    mixed = result.rested
    if mixed is None:
        row("window W0", "{:.4g} packets", point.window_pkts, window_pkts)
    for one in () if mixed is None else mixed.classes:
        name = f"{one.flows:g} of {one.tcp}, {1e3 * one.propagation_s:g} ms"
        table.add_row(name, f"{one.window_pkts:.4g} packets in {1e3 * one.rtt_s:.4g} ms")
    row("probability p0", "{:.4g}", point.probability, lambda loop: loop.point.probability)
    both = result.classes
    if both is not None:
        table.add_row("p'", f"{both.root:.4g}")
        table.add_row("k p' of L4S", f"{both.probability_l4s:.4g}")
        table.add_row("window of L4S", f"{both.window_l4s_pkts:.4g} packets")
        table.add_row("rate, classic", f"{both.rate_classic_pkts_per_s:.4g} packets/s")
        table.add_row("rate, L4S", f"{both.rate_l4s_pkts_per_s:.4g} packets/s")
        table.add_row("L4S to classic", f"{both.ratio:.4g}")
    if mixed is None:
        row("RTT R", "{:.4g} ms", 1e3 * point.rtt_s, lambda loop: 1e3 * loop.point.rtt_s)
    row("queue", "{:.4g} packets", result.queue_pkts, lambda loop: loop.model["queue_pkts"])
    if result.loop is not None and result.loop.interval_s is not None:
        table.add_row("sampling interval", f"{1e3 * result.loop.interval_s:.4g} ms")
    if margins is not None:
        for name, form, of in MARGINS:
            row(name, form, of(margins), lambda loop, of=of: of(loop.margins))  # type: ignore[misc]
    row("settling time", "{:.3g} s", result.settling_s, lambda loop: loop.settling_s)
    if result.expected is not None:
        at_all = result.expected
        table.add_row("queue's deviation", "", f"{at_all.deviation_pkts:.3g} packets")
        table.add_row("p's deviation", "", f"{100 * at_all.share:.0f} %")
        table.add_row("goodput", "", f"{100 * at_all.goodput:.4g} %")
    if result.cycle is not None:
        table.add_row("swings by", "", f"±{result.cycle.amplitude_pkts:.3g} packets")
        table.add_row("every", "", f"{result.cycle.period_s:.3g} s")
    yes = {True: "yes", False: "no"}
    table.add_row("stable", yes[result.stable], "" if closer is None else yes[closer.stable])
    console.print(table)
    console.print()
    console.print(reasons.of(result))
    console.print()
    name = f"{result.law}.toml"
    console.print("The law for a scenario:" if out is None else f"The law, as in {out / name}:")
    console.print()
    for line in Law(result.law, result.params).text().splitlines():
        console.print(f"    {line}", markup=False)
    console.print()
    console.print("To use it:")
    where = f"{out}/" if out is not None else ""
    for command in result.commands():
        console.print(
            f"    {command.replace(f'run {name}', f'run {where}{name}')}",
            markup=False,
            soft_wrap=True,
        )
    pictures = [path.name for path in written if path.suffix in (".png", ".pdf")]
    if pictures:
        console.print()
        console.print(f"Pictures: {out}/{{{','.join(pictures)}}}", markup=False, soft_wrap=True)
