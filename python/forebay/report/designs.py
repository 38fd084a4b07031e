"""A design, for one link or for a range, as tables on a terminal, as words and as files.

`design_summary.txt.j2` has the verdict, `design_warnings.txt.j2` the warnings, and
`design_reasons.txt.j2` the explanation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

#: Rows of a loop: name, format, and the margin.
MARGINS: list[tuple[str, str, Callable[[Margins], float]]] = [
    ("crossover frequency", "{:.3g} rad/s", lambda margins: margins.crossover_rad_s),
    ("phase margin", "{:.1f}°", lambda margins: margins.phase_deg),
    ("gain margin", "{:.1f} dB", lambda margins: margins.gain_db),
    ("delay margin", "{:.3g} ms", lambda margins: 1e3 * margins.delay_s),
    ("sensitivity peak", "{:.3g}", lambda margins: margins.sensitivity),
]


def _finite(value: float, form: str) -> str:
    """Return a number in a format; "none" for nan and "unlimited" for an infinite one."""
    if math.isnan(value):
        return "none"
    if not math.isfinite(value):
        return "unlimited"
    text = form.format(value)
    # Large numbers are written out, without a power of ten.
    return f"{value:.0f}{form.partition('}')[2]}" if "e+" in text else text


def show(
    console: Console,
    result: Design,
    out: Path | None,
    written: Sequence[Path],
    *,
    explain: bool = False,
) -> None:
    """Print a design: the verdict, a table, warnings, the law, and the commands that use it.

    Parameters
    ----------
    console : Console
        The console.
    result : Design
        The design.
    out : Path or None
        The folder of `written`, if anything was written.
    written : sequence of Path
        The files.
    explain : bool
        True to print also every number and the explanation.
    """
    _show_verdict(console, result, explain=explain)
    name = f"{result.law}.toml"
    console.print("The law for a scenario:" if out is None else f"The law, as in {out / name}:")
    _show_law(console, result.kind, result.params)
    _show_use(console, result, out)
    pictures = [path.name for path in written if path.suffix in (".png", ".pdf")]
    if pictures:
        console.print()
        console.print(f"Figures in {out}: {', '.join(pictures)}", markup=False)


def _show_verdict(console: Console, result: Design, *, explain: bool) -> None:
    """Print the verdict, a table and the warnings, and the explanation if it is asked for."""
    facts = _facts(result)
    for sentence in templates.paragraphs("design_summary.txt.j2", **facts):
        console.print(words.wrapped(sentence, console.width), markup=False, soft_wrap=True)
    console.print()
    console.print(_table(result, _short_rows(result, result.sawtooth)))
    console.print()
    warnings = templates.paragraphs("design_warnings.txt.j2", **facts)
    for warning in warnings:
        print_item(console, f"warning: {warning}")
    if warnings:
        console.print()
    if explain:
        console.print(_table(result, _rows(result, result.sawtooth)))
        console.print()
        text = words.wrapped(paragraph(result), console.width)
        console.print(text, markup=False, soft_wrap=True)
        console.print()


def _show_use(console: Console, result: Design, out: Path | None) -> None:
    """Print the commands that use a design, also on a router where its law has a qdisc."""
    name = f"{result.law}.toml"
    folder = out if out is not None else "DIR"
    commands = [
        command.replace(f"run {name}", f"run {folder}/{name}") for command in result.commands()
    ]
    console.print()
    heading = "To use it:" if out is not None else "To use it, add --out DIR (scenario, figures):"
    print_commands(console, heading, commands)
    if result.law not in registries.laws():
        return
    settings = list(
        router.lines(
            result.law,
            result.params,
            rate_bps=round(result.link.rate_bps),
            packet_bytes=round(result.link.packet_bytes),
            buffer_pkts=result.link.buffer_pkts,
        )
    )
    if settings:
        console.print()
        print_commands(console, "On a router with Linux:", settings)


def print_item(console: Console, text: str) -> None:
    """Print a paragraph whose further lines are indented.

    Parameters
    ----------
    console : Console
        The console.
    text : str
        The paragraph.
    """
    console.print(words.wrapped(text, console.width, "  "), markup=False, soft_wrap=True)


def print_commands(console: Console, heading: str, lines: Sequence[str]) -> None:
    """Print commands below a heading, each broken with backslashes where it is too long.

    Parameters
    ----------
    console : Console
        The console.
    heading : str
        Line above them.
    lines : sequence of str
        Command lines, and comments that begin with "#".
    """
    console.print(heading)
    for line in lines:
        for part in words.broken_command(line, console.width - 4):
            console.print(f"    {part}", markup=False, soft_wrap=True)


def _table(result: Design, rows: Iterable[tuple[str, ...]]) -> Table:
    """Return a table of rows for published windows and, if there are any, sawtooth windows."""
    table = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=result.sawtooth is not None
    )
    table.add_column("")
    table.add_column("", justify="right")
    if result.sawtooth is not None:
        table.columns[1].header = "published model"
        table.add_column("sawtooth model", justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _both(
    name: str, form: str, value: float, closer: Loop | None, of: Callable[[Loop], float]
) -> tuple[str, str, str]:
    """Return a row with a number of a design, and of its closer loop if there is one."""
    return name, _finite(value, form), _finite(of(closer), form) if closer else ""


def _window_pkts(loop: Loop) -> float:
    """Return the window of a loop with ACK clocking, in packets."""
    return float(AckClockedEquilibrium.at_probability(loop.point.probability).window_pkts)


def _delay_ms(result: Design, queue_pkts: float) -> float:
    """Return the time in ms that the link takes to send a queue."""
    return 1e3 * 8 * result.link.packet_bytes * queue_pkts / result.link.rate_bps


def _short_rows(result: Design, closer: Loop | None) -> Iterator[tuple[str, ...]]:
    """Yield at most twelve rows: the equilibrium, the margins, and the queue's deviation."""
    point, coupled = result.point, result.classes
    if result.loop is not None:
        text = f"{_delay_ms(result, result.queue_pkts):.3g} ms"
        queues = [text, f"{_delay_ms(result, closer.model['queue_pkts']):.3g} ms" if closer else ""]
        yield "queuing delay", *queues
    if coupled is not None:
        classic, l4s = coupled.classic, coupled.l4s
        yield (
            "signal probability, classic and L4S",
            f"{100 * point.probability:.3g} % and {100 * l4s.probability:.3g} %",
        )
        yield (
            "rate of a flow, classic and L4S",
            f"{classic.rate_pkts_per_s:.3g} and {l4s.rate_pkts_per_s:.3g} packets/s",
        )
    else:
        probability = 100 * (
            point.probability if result.senders is None else result.senders.probability
        )
        yield _both(
            "signal probability",
            "{:.3g} %",
            probability,
            closer,
            lambda loop: 100 * loop.point.probability,
        )
        window = "window of a flow" if result.senders is None else "mean window of a flow"
        yield _both(window, "{:.3g} packets", result.window_pkts, closer, _window_pkts)
    yield _both(
        "RTT with queue",
        "{:.4g} ms",
        1e3 * point.rtt_s,
        closer,
        lambda loop: 1e3 * loop.point.rtt_s,
    )
    if result.loop is not None and result.loop.interval_s is not None:
        yield "sampling interval", f"{1e3 * result.loop.interval_s:.3g} ms", ""
    yield from _loop_rows(result, closer)
    if result.expected is not None:
        text = f"{_delay_ms(result, result.expected.deviation_pkts):.2g} ms"
        yield "standard deviation of the delay", "", text
    elif result.cycle is not None:
        cycle = result.cycle
        text = f"±{_delay_ms(result, cycle.amplitude_pkts):.2g} ms every {cycle.period_s:.2g} s"
        yield "oscillation of the delay", "", text


def _loop_rows(result: Design, closer: Loop | None) -> Iterator[tuple[str, ...]]:
    """Yield a row for each margin, and one for the settling time."""
    for name, form, of in MARGINS if result.margins else ():
        assert result.margins is not None
        yield _both(
            name,
            form,
            of(result.margins),
            closer,
            lambda loop, of=of: of(loop.margins),  # type: ignore[misc]
        )
    yield _both(
        "settling time", "{:.2g} s", result.settling_s, closer, lambda loop: loop.settling_s
    )


def _rows(result: Design, closer: Loop | None) -> Iterator[tuple[str, ...]]:
    """Yield every number of a design: its name, its value, and that of the closer loop."""
    for name, gain in result.gains.items():
        yield name, f"{gain:.5g}"
    point, mixed, coupled = result.point, result.senders, result.classes
    if mixed is None:
        yield _both("window W0", "{:.4g} packets", point.window_pkts, closer, _window_pkts)
    for group in mixed.classes if mixed else ():
        name = f"{group.flows:g} {group.tcp} flows, {1e3 * group.propagation_s:g} ms"
        yield name, f"{group.window_pkts:.4g} packets in {1e3 * group.rtt_s:.4g} ms"
    yield _both(
        "probability p0", "{:.4g}", point.probability, closer, lambda loop: loop.point.probability
    )
    if coupled is not None:
        yield "p'", f"{coupled.root:.4g}"
        yield "k p' of L4S", f"{coupled.l4s.probability:.4g}"
        yield "window of L4S", f"{coupled.l4s.window_pkts:.4g} packets"
        yield "rate, classic", f"{coupled.classic.rate_pkts_per_s:.4g} packets/s"
        yield "rate, L4S", f"{coupled.l4s.rate_pkts_per_s:.4g} packets/s"
        yield "L4S to classic", f"{coupled.ratio:.4g}"
    if mixed is None:
        yield _both(
            "RTT R", "{:.4g} ms", 1e3 * point.rtt_s, closer, lambda loop: 1e3 * loop.point.rtt_s
        )
    yield _both(
        "queue", "{:.4g} packets", result.queue_pkts, closer, lambda loop: loop.model["queue_pkts"]
    )
    if result.loop is not None and result.loop.interval_s is not None:
        yield "sampling interval", f"{1e3 * result.loop.interval_s:.4g} ms"
    yield from _loop_rows(result, closer)
    if result.expected is not None:
        yield "standard deviation of the queue", "", f"{result.expected.deviation_pkts:.3g} packets"
        yield "standard deviation of p", "", f"{100 * result.expected.share:.0f} %"
        yield "utilisation", "", f"{100 * result.expected.utilisation:.4g} %"
    if result.cycle is not None:
        yield "amplitude of the oscillation", "", f"±{result.cycle.amplitude_pkts:.3g} packets"
        yield "period of the oscillation", "", f"{result.cycle.period_s:.3g} s"
    yes = {True: "yes", False: "no"}
    yield "stable", yes[result.stable], yes[closer.stable] if closer else ""


def _show_law(console: Console, law: str, params: Sequence[tuple[str, str]]) -> None:
    """Print the table of a law, indented."""
    console.print()
    for line in Law(law, params).text().splitlines():
        console.print(f"    {line}", markup=False)


def show_range(console: Console, result: RangeDesign) -> None:
    """Print one set of gains for a range of links: the verdict, the corners, and the law.

    Parameters
    ----------
    console : Console
        The console.
    result : RangeDesign
        The design.
    """
    title, gains = registries.title_of(result.law), result.gains
    peak = max(loop.peak for loop in result.loops)
    settling_s = max(loop.settling_s for loop in result.loops)
    verdict = (
        f"{title} is stable and robust at every corner of the range (sensitivity peak at most "
        f"{peak:.2f}; robust is at most {ROBUST_PEAK:g}); it settles within "
        f"{words.in_figures(settling_s, 2)} s."
    )
    console.print(words.wrapped(verdict, console.width), markup=False, soft_wrap=True)
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for head in (
        "rate",
        "RTT",
        "flows",
        "sensitivity\npeak",
        "settling\ntime",
        "K_i alone\n/ common",
    ):
        table.add_column(head, justify="right", vertical="bottom")
    for corner, loop, own in zip(result.corners, result.loops, result.own, strict=True):
        table.add_row(
            corner.place.rate,
            corner.place.rtt,
            f"{corner.place.flows:g}",
            f"{loop.peak:.2f}",
            f"{words.in_figures(loop.settling_s, 2)} s",
            words.in_figures(own.k_i / gains.k_i),
        )
    console.print(table)
    console.print()
    print_item(
        console,
        f"K_p = {gains.k_p:.4g}, K_i = {gains.k_i:.4g}/s every {1e3 * gains.interval_s:.3g} ms: "
        f"the largest K_i with a sensitivity peak of at most {ROBUST_PEAK:g} at every corner. The "
        "last column is the largest K_i for one corner alone, divided by this one.",
    )
    console.print()
    for line in result.left_out:
        print_item(console, f"warning: corner left out: {line}")
    if not result.suffices:
        print_item(
            console,
            "warning: One set of gains is slow for this range: for some corners alone, K_i could "
            f"be more than {pi_stabilising_set.SLOW:g} times as large. Use a self-tuning law of "
            "`forebay laws`, or the gains of the corner that is nearest to your link:",
        )
        for corner, own in zip(result.corners, result.own, strict=True):
            place = corner.place
            console.print(
                f"    {place.rate}, {place.rtt}, {place.flows:g} flows: "
                + " ".join(f"{name}={value}" for name, value in result.written(own)),
                markup=False,
            )
    console.print()
    console.print("The law for a scenario:")
    _show_law(console, result.law, result.params)


#: Smallest window in packets for fast retransmit, which needs three packets after the lost one.
LEAST_WINDOW_PKTS = 4.0


def paragraph(design: Design) -> str:
    """Return the explanation of a design as one paragraph, from the link to the margins."""
    stable = design.loop is not None and design.loop.stable
    reach_is_known = stable and design.modelled_elsewhere
    fewest, longest_s = _reach(design) if reach_is_known else (None, None)
    (text,) = templates.paragraphs(
        "design_reasons.txt.j2",
        point=design.point,
        classes=design.classes,
        senders=design.senders,
        fewest=fewest,
        longest_s=longest_s,
        **_facts(design),
    )
    return text


def _facts(design: Design) -> dict[str, Any]:
    """Return the values of the templates."""
    link, headroom = design.link, design.headroom
    return {
        "design": design,
        "title": registries.title_of(design.law),
        "link": link,
        "loop": design.loop,
        "margins": design.margins,
        "delay_s": 1e-3 * _delay_ms(design, design.queue_pkts),
        "small_windows": design.window_pkts < LEAST_WINDOW_PKTS,
        "misses_target": abs(design.held_pkts - design.target_pkts) > 0.01 * design.target_pkts,
        "usual": design.published,
        "replaced_interval": design.impossible_s
        or (design.published and design.published.interval_s),
        "cut": None if headroom is None or headroom.suffices else headroom,
        "slowed_by": design.model().slowed_by if design.modelled_elsewhere else None,
        "step": design.gain_step,
        "advice": design.advice,
        "sawtooth": design.sawtooth,
        "robust_peak": ROBUST_PEAK,
        "infinite": math.inf,
    }


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


#: The files of a design for a range: the law and the pictures.
LAW, PICTURES = "law.toml", ("gains", "bode", "nichols", "step")


def write(result: Design, out: Path) -> list[Path]:
    """Write a design for one link.

    A law written in Python is copied next to the scenario, which may load code only from its own
    folder.

    Parameters
    ----------
    result : Design
        The design.
    out : Path
        The folder.

    Returns
    -------
    list[Path]
        The paths of the files.
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
    """Write a design for a range of links.

    Parameters
    ----------
    result : RangeDesign
        The design.
    out : Path
        The folder.

    Returns
    -------
    list[Path]
        The paths of the files.
    """
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
