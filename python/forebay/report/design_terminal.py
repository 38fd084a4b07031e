"""A design, for one link or for a range, as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from forebay._base import registries, words
from forebay.control import pi_stabilising_set
from forebay.control.ack_clocking import AckClockedEquilibrium
from forebay.report import design_reasons as reasons
from forebay.scenario import router
from forebay.scenario.builder import Law

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.control.designed_law import Design
    from forebay.control.loop import Loop
    from forebay.control.margins import Margins
    from forebay.control.pi_stabilising_set import RangeDesign

#: Rows of a loop: name, format, and which of its margins.
MARGINS: list[tuple[str, str, Callable[[Margins], float]]] = [
    ("crossover", "{:.4g} rad/s", lambda margins: margins.crossover_rad_s),
    ("phase margin", "{:.1f}°", lambda margins: margins.phase_deg),
    ("gain margin", "{:.1f} dB", lambda margins: margins.gain_db),
    ("delay margin", "{:.4g} ms", lambda margins: 1e3 * margins.delay_s),
    ("sensitivity peak", "{:.3g}", lambda margins: margins.sensitivity),
]


def _finite(value: float, form: str) -> str:
    if math.isnan(value):
        return "none"
    if not math.isfinite(value):
        return "unlimited"
    text = form.format(value)
    # All of a large whole part, and no power of ten.
    return f"{value:.0f}{form.partition('}')[2]}" if "e+" in text else text


def show(console: Console, result: Design, out: Path | None, written: Sequence[Path]) -> None:
    """Prints a design, its reasons, its law and the commands that use it.

    out: the folder that `written` is in, if anything was written.
    """
    console.print(_table(result))
    console.print()
    console.print(reasons.paragraph(result))
    console.print()
    name = f"{result.law}.toml"
    console.print("The law for a scenario:" if out is None else f"The law, as in {out / name}:")
    _show_law(console, result.kind, result.params)
    console.print()
    console.print("To use it:")
    where = f"{out}/" if out is not None else ""
    for command in result.commands():
        console.print(
            f"    {command.replace(f'run {name}', f'run {where}{name}')}",
            markup=False,
            soft_wrap=True,
        )
    settings: list[str] = []
    if result.law in registries.laws():
        settings += router.lines(
            result.law,
            result.params,
            rate_bps=round(result.link.rate_bps),
            packet_bytes=round(result.link.packet_bytes),
            buffer_pkts=result.link.buffer_pkts,
        )
    if settings:
        console.print()
        console.print("On a router with Linux:")
        for line in settings:
            console.print(f"    {line}", markup=False, soft_wrap=True)
    pictures = [path.name for path in written if path.suffix in (".png", ".pdf")]
    if pictures:
        console.print()
        console.print(f"Pictures: {out}/{{{','.join(pictures)}}}", markup=False, soft_wrap=True)


def _table(result: Design) -> Table:
    """Gains, rest and margins, as published and beside it with sawtooth windows."""
    title = f"{result.law} on {words.quantity(result.link.rate)}"
    table = Table(title=title, title_justify="left", box=None)
    table.add_column("", style="bold")
    table.add_column("", justify="right")
    closer = result.sawtooth
    if closer is not None:
        table.columns[1].header = "as published"
        table.add_column("sawtooth", justify="right")
    for row in _rows(result, closer):
        table.add_row(*row)
    return table


def _rows(result: Design, closer: Loop | None) -> Iterator[tuple[str, ...]]:
    """Name, number, and that of the closer loop."""

    def both(
        name: str, form: str, value: float, of: Callable[[Loop], float]
    ) -> tuple[str, str, str]:
        return name, _finite(value, form), _finite(of(closer), form) if closer else ""

    def window_pkts(loop: Loop) -> float:
        return float(AckClockedEquilibrium.at_probability(loop.point.probability).window_pkts)

    for name, gain in result.gains.items():
        yield name, f"{gain:.5g}"
    point, mixed, coupled = result.point, result.senders, result.classes
    if mixed is None:
        yield both("window W0", "{:.4g} packets", point.window_pkts, window_pkts)
    for each in mixed.classes if mixed else ():
        name = f"{each.flows:g} of {each.tcp}, {1e3 * each.propagation_s:g} ms"
        yield name, f"{each.window_pkts:.4g} packets in {1e3 * each.rtt_s:.4g} ms"
    yield both("probability p0", "{:.4g}", point.probability, lambda loop: loop.point.probability)
    if coupled is not None:
        yield "p'", f"{coupled.root:.4g}"
        yield "k p' of L4S", f"{coupled.l4s.probability:.4g}"
        yield "window of L4S", f"{coupled.l4s.window_pkts:.4g} packets"
        yield "rate, classic", f"{coupled.classic.rate_pkts_per_s:.4g} packets/s"
        yield "rate, L4S", f"{coupled.l4s.rate_pkts_per_s:.4g} packets/s"
        yield "L4S to classic", f"{coupled.ratio:.4g}"
    if mixed is None:
        yield both("RTT R", "{:.4g} ms", 1e3 * point.rtt_s, lambda loop: 1e3 * loop.point.rtt_s)
    queue_pkts = result.queue_pkts
    yield both("queue", "{:.4g} packets", queue_pkts, lambda loop: loop.model["queue_pkts"])
    if result.loop is not None and result.loop.interval_s is not None:
        yield "sampling interval", f"{1e3 * result.loop.interval_s:.4g} ms"
    for name, form, of in MARGINS if result.margins else ():
        assert result.margins is not None
        value = of(result.margins)
        yield both(name, form, value, lambda loop, of=of: of(loop.margins))  # type: ignore[misc]
    yield both("settling time", "{:.3g} s", result.settling_s, lambda loop: loop.settling_s)
    if result.expected is not None:
        yield "queue's deviation", "", f"{result.expected.deviation_pkts:.3g} packets"
        yield "p's deviation", "", f"{100 * result.expected.share:.0f} %"
        yield "utilisation", "", f"{100 * result.expected.utilisation:.4g} %"
    if result.cycle is not None:
        yield "swings by", "", f"±{result.cycle.amplitude_pkts:.3g} packets"
        yield "every", "", f"{result.cycle.period_s:.3g} s"
    yes = {True: "yes", False: "no"}
    yield "stable", yes[result.stable], yes[closer.stable] if closer else ""


def _show_law(console: Console, law: str, params: Sequence[tuple[str, str]]) -> None:
    console.print()
    for line in Law(law, params).text().splitlines():
        console.print(f"    {line}", markup=False)


def show_range(console: Console, found: RangeDesign) -> None:
    """Prints one set of gains for a range of links, corner by corner."""
    shown = Table(title=f"{found.law} for every corner", title_justify="left", box=None)
    for title in ("rate", "RTT", "flows", "S", "settles in", "own K_i"):
        shown.add_column(title, justify="right")
    for one, loop, own in zip(found.corners, found.loops, found.own, strict=True):
        shown.add_row(
            one.place.rate,
            one.place.rtt,
            f"{one.place.flows:g}",
            f"{loop.peak:.2f}",
            f"{loop.settling_s:.3g} s",
            f"{own.k_i / found.gains.k_i:.3g} times",
        )
    console.print(shown)
    for line in found.left_out:
        console.print(f"left out: {line}", markup=False)
    gains = found.gains
    console.print(
        f"\nK_p = {gains.k_p:.4g}, K_i = {gains.k_i:.4g}/s every {1e3 * gains.interval_s:.3g} ms: "
        "the largest K_i with |1/(1 + L)| at most 2 at every corner."
    )
    if not found.suffices:
        console.print(
            "One set of gains does not suffice: some corners alone could bear more than "
            f"{pi_stabilising_set.SLOW:g} times the integral. Gains by the load and the rate:"
        )
        for one, own in zip(found.corners, found.own, strict=True):
            console.print(
                f"    {one.place.rate}, {one.place.rtt}, {one.place.flows:g} flows: "
                + " ".join(f"{name}={value}" for name, value in found.written(own)),
                markup=False,
            )
        console.print("A law that tunes itself follows them: `forebay laws` names those.")
    _show_law(console, found.law, found.params)
