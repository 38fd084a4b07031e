"""A design, for one link or for a range, as tables on a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from forebay.base import words
from forebay.designs import reasons
from forebay.scenarios.builder import Law
from forebay.theory.design import pi_stabilising_set
from forebay.theory.plant.ack_clocking import AckClockedEquilibrium

if TYPE_CHECKING:
    from rich.console import Console

    from forebay.theory.design.designed_law import Design
    from forebay.theory.design.pi_stabilising_set import RangeDesign
    from forebay.theory.loop.loop import Loop
    from forebay.theory.loop.margins import Margins

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
    return form.format(value) if math.isfinite(value) else "unlimited"


def show(console: Console, result: Design, out: Path | None, written: Sequence[Path]) -> None:
    """Prints a design, its reasons, its law and the commands that use it.

    out: the folder that `written` is in, if anything was written.
    """
    table = Table(
        title=f"{result.law} on {words.quantity(result.link.rate)}",
        title_justify="left",
        box=None,
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
        return float(AckClockedEquilibrium.at_probability(loop.point.probability).window_pkts)

    mixed = result.senders
    if mixed is None:
        row("window W0", "{:.4g} packets", point.window_pkts, window_pkts)
    for one in () if mixed is None else mixed.classes:
        name = f"{one.flows:g} of {one.tcp}, {1e3 * one.propagation_s:g} ms"
        table.add_row(name, f"{one.window_pkts:.4g} packets in {1e3 * one.rtt_s:.4g} ms")
    row("probability p0", "{:.4g}", point.probability, lambda loop: loop.point.probability)
    both = result.classes
    if both is not None:
        table.add_row("p'", f"{both.root:.4g}")
        table.add_row("k p' of L4S", f"{both.l4s.probability:.4g}")
        table.add_row("window of L4S", f"{both.l4s.window_pkts:.4g} packets")
        table.add_row("rate, classic", f"{both.classic.rate_pkts_per_s:.4g} packets/s")
        table.add_row("rate, L4S", f"{both.l4s.rate_pkts_per_s:.4g} packets/s")
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
    console.print(reasons.paragraph(result))
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
            f"{pi_stabilising_set.peak(loop):.2f}",
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
    console.print()
    for line in Law(found.law, found.params).text().splitlines():
        console.print(f"    {line}", markup=False)
