"""A design, for one link or for a range, as tables on a terminal, as words and as files.

`design_reasons.txt.j2` has the sentences of `paragraph`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from forebay._base import registries, words
from forebay._base.publication import publish
from forebay.control import margins, measured_law, pi_stabilising_set
from forebay.control.ack_clocking import AckClockedEquilibrium
from forebay.control.margins import ROBUST_PEAK
from forebay.report import loops, templates
from forebay.scenario import router
from forebay.scenario.builder import Law

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.publication import Content
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
    """Print a design, its reasons, its law and the commands that use it.

    out: the folder that `written` is in, if anything was written.
    """
    console.print(_table(result))
    console.print()
    console.print(paragraph(result))
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
    """Return gains, equilibrium and margins, as published and with sawtooth windows."""
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
    """Yield rows of a name, a number, and the number of the closer loop."""

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
    for group in mixed.classes if mixed else ():
        name = f"{group.flows:g} of {group.tcp}, {1e3 * group.propagation_s:g} ms"
        yield name, f"{group.window_pkts:.4g} packets in {1e3 * group.rtt_s:.4g} ms"
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
        yield "oscillates by", "", f"±{result.cycle.amplitude_pkts:.3g} packets"
        yield "every", "", f"{result.cycle.period_s:.3g} s"
    yes = {True: "yes", False: "no"}
    yield "stable", yes[result.stable], yes[closer.stable] if closer else ""


def _show_law(console: Console, law: str, params: Sequence[tuple[str, str]]) -> None:
    console.print()
    for line in Law(law, params).text().splitlines():
        console.print(f"    {line}", markup=False)


def show_range(console: Console, result: RangeDesign) -> None:
    """Print one set of gains for a range of links, corner by corner."""
    table = Table(title=f"{result.law} for every corner", title_justify="left", box=None)
    for title in ("rate", "RTT", "flows", "S", "settles in", "own K_i"):
        table.add_column(title, justify="right")
    for corner, loop, own in zip(result.corners, result.loops, result.own, strict=True):
        table.add_row(
            corner.place.rate,
            corner.place.rtt,
            f"{corner.place.flows:g}",
            f"{loop.peak:.2f}",
            f"{loop.settling_s:.3g} s",
            f"{own.k_i / result.gains.k_i:.3g} times",
        )
    console.print(table)
    for line in result.left_out:
        console.print(f"left out: {line}", markup=False)
    gains = result.gains
    console.print(
        f"\nK_p = {gains.k_p:.4g}, K_i = {gains.k_i:.4g}/s every {1e3 * gains.interval_s:.3g} ms: "
        "the largest K_i with |1/(1 + L)| at most 2 at every corner."
    )
    if not result.suffices:
        console.print(
            "One set of gains does not suffice: some corners alone could bear more than "
            f"{pi_stabilising_set.SLOW:g} times the integral. Gains by the load and the rate:"
        )
        for corner, own in zip(result.corners, result.own, strict=True):
            place = corner.place
            console.print(
                f"    {place.rate}, {place.rtt}, {place.flows:g} flows: "
                + " ".join(f"{name}={value}" for name, value in result.written(own)),
                markup=False,
            )
        console.print("A law that tunes itself follows them: `forebay laws` names those.")
    _show_law(console, result.law, result.params)


#: Fast retransmit needs three packets after the lost one.
LEAST_WINDOW_PKTS = 4.0


def paragraph(design: Design) -> str:
    """Return one paragraph from the link to the margins, with what to change."""
    link, loop = design.link, design.loop
    stable = loop is not None and loop.stable
    headroom = design.headroom
    reach_is_known = stable and design.modelled_elsewhere
    fewest, longest_s = _reach(design) if reach_is_known else (None, None)
    (text,) = templates.paragraphs(
        "design_reasons.txt.j2",
        design=design,
        link=link,
        point=design.point,
        classes=design.classes,
        senders=design.senders,
        small_windows=design.window_pkts < LEAST_WINDOW_PKTS,
        misses_target=abs(design.held_pkts - design.target_pkts) > 0.01 * design.target_pkts,
        loop=loop,
        margins=design.margins,
        usual=design.published,
        fewest=fewest,
        longest_s=longest_s,
        cut=None if headroom is None or headroom.suffices else headroom,
        slowed_by=design.model().slowed_by if design.modelled_elsewhere else None,
        step=design.gain_step,
        sawtooth=design.sawtooth,
        robust_peak=ROBUST_PEAK,
        infinite=math.inf,
    )
    return text


def _reach(design: Design) -> tuple[float | None, float | None]:
    """Return the fewest flows and the longest propagation at which these gains are stable.

    None for a limit that no link reaches.
    """
    plant, link = design.among_flows(), design.link

    def stable(flows: float, rtt_s: float) -> bool:
        loop = plant.loop_at(flows, rtt_s)
        return loop is not None and loop.stable

    fewest = _edge(lambda factor: stable(link.flows * factor, link.rtt_s), 1e-3)
    longest = _edge(lambda factor: stable(link.flows, link.rtt_s * factor), 1e3)
    return fewest and link.flows * fewest, longest and link.rtt_s * longest


def _edge(stable: Callable[[float], bool], far: float) -> float | None:
    """Return the factor between 1 and `far` at which stability ends; None if it does not."""
    good, step = 1.0, far ** (1 / 24)
    while stable(good * step):
        good *= step
        if abs(math.log(good)) >= abs(math.log(far)) - 1e-9:
            return None
    log, width = math.log(good), math.log(step)
    return math.exp(
        margins.edge(lambda x: stable(math.exp(x)), log, log + width, 2**-12 * abs(width))
    )


#: Of a design for a range: the law and the pictures.
LAW, PICTURES = "law.toml", ("gains", "bode", "nichols", "step")


def write(result: Design, out: Path) -> list[Path]:
    """Write a design for one link to `out`, and return its files.

    A law written in Python is copied next to the scenario, which may load code only from its own
    folder.
    """
    contents: dict[str, Content] = {"design.json": result.to_dict()}
    scenario = result.toml()
    if measured_law.is_python(result.kind):
        file, _, name = result.kind.rpartition(":")
        contents[Path(file).name] = Path(file).read_bytes()
        scenario = scenario.replace(result.kind, f"{Path(file).name}:{name}")
    contents[f"{result.law}.toml"] = scenario
    if result.loop is not None:
        for kind, draw in loops.FIGURES.items():
            contents |= draw(result.loop, result.title).files(kind)
    return publish(out, contents)


def write_range(result: RangeDesign, out: Path) -> list[Path]:
    """Write a design for a range of links to `out`, and return its files."""
    every, title = [*result.loops, *result.inside], f"{result.law} over the range"
    figures = (
        loops.regions(result),
        loops.bode_of_range(every, result.middle, title),
        loops.nichols_of_range(every, result.middle, title),
        loops.step_of_range(result.loops, result.middle, title),
    )
    contents: dict[str, Content] = {LAW: Law(result.law, result.params).text() + "\n"}
    named = zip(PICTURES, figures, strict=True)
    contents |= {f"{name}.png": figure.png() for name, figure in named}
    return publish(out, contents)
