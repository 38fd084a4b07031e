"""`forebay identify`: estimates of a link, its flows and its loop from samples of a queue."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._base import quantities
from forebay._base.errors import ParameterError
from forebay._base.metrics import with_interval
from forebay._base.words import in_figures
from forebay._native import ScenarioError, quantity
from forebay.cli import options
from forebay.cli.declaration import with_options
from forebay.cli.invocation import Invocation, print_errors, print_json
from forebay.cli.options import OutputOptions, Tcp

if TYPE_CHECKING:
    from rich.console import Console

    from forebay._base.publication import Content
    from forebay.control.queue_estimate import Identified, IdentifiedResponse, IntervalEstimate
    from forebay.control.queue_records import QueueRecord

#: Largest number of queues that are shown.
MOST = 50


@with_options
def identify(
    trace: Path,
    /,
    *,
    rtt: str | None = None,
    tcp: Tcp = "reno",
    only: str | None = None,
    from_: str | None = None,
    to: str | None = None,
    interval: str | None = None,
    output: OutputOptions,
) -> None:
    """Estimate flows, RTT, rate and loop gain from queue samples.

    Every estimate has a 95 % confidence interval; a quantity that the samples do not determine is
    reported as not identified.

    Parameters
    ----------
    trace : TRACE
        Result of a run or a link, a .parquet file with samples, JSON lines of `tc -s -j qdisc`, or
        scrapes of Prometheus text.
    rtt : RTT
        Two-way propagation delay, such as 40ms, if it is known; estimated without it.
    tcp : NAME
        Congestion control of the flows, which determines their windows: reno, linux-reno, cubic,
        dctcp or prague.
    only : TEXT
        Use only queues whose name contains this.
    from_ : TIME
        Use samples from this time on; from a sixth of the record without it.
    to : TIME
        Use samples up to this time.
    interval : TIME
        Time between the samples of a log without times, such as 100ms.
    out : DIR
        Folder of identified.toml and the figure of the loop; nothing is written without it.
    """
    from forebay.control import queue_estimate as estimate
    from forebay.report.designs import print_item

    call = Invocation.begun(output, None)
    if (rtt_s := _seconds("--rtt", rtt)) == 0:
        raise ParameterError("rtt", rtt, "a time above zero")
    window_s = _window_s(from_, to)
    queues = _queues(trace, _seconds("--interval", interval), only or "")
    identified: list[tuple[Identified, IdentifiedResponse | None]] = []
    for queue in queues[:MOST]:
        part = queue.window(*window_s)
        numbers = estimate.identify(part, rtt_s, tcp)
        loop = estimate.loop_response(part, numbers.rtt_s.value) if numbers.rtt_s.known else None
        identified.append((numbers, loop))
        if call.as_json:
            print_json(numbers.to_dict() | {"loop": _loop(loop)})
    if not call.as_json:
        console = options.console(80)
        if len(identified) > 1:
            for numbers, _ in identified:
                print_item(console, _answer(numbers))
            console.print()
        for numbers, loop in identified:
            _show(console, numbers, loop)
        if len(queues) > MOST:
            print(f"{len(queues) - MOST} more queues are left out; choose with --only")
    if call.folder is not None:
        _write(identified, call.folder, show=not call.as_json)


def _seconds(key: str, text: str | None) -> float | None:
    return None if text is None else quantity(key, text, "time")


def _window_s(begin: str | None, end: str | None) -> tuple[float | None, float | None]:
    """Return the ends of a part of the record in seconds. Raises `ScenarioError` for no time."""
    from_s, to_s = _seconds("--from", begin), _seconds("--to", end)
    if from_s is not None and to_s is not None and from_s >= to_s:
        raise ScenarioError(f'--to: "{end}" is not later than --from "{begin}"')
    return from_s, to_s


def _queues(trace: Path, interval_s: float | None, name: str) -> list[QueueRecord]:
    """Return the queues of a file whose names contain `name`.

    A queue that only sums up other queues, such as mq's, is left out with a line on standard error,
    unless there are no other queues.
    """
    from forebay.control import queue_records

    queues = [
        queue for queue in queue_records.read_records(trace, interval_s) if name in queue.name
    ]
    if not queues:
        raise ScenarioError(f'--only: no queue has "{name}" in its name')
    sums = [queue for queue in queues if queue.children]
    if len(sums) == len(queues):
        return queues
    print_errors(
        f"{queue.name} is left out, because it sums up the {queue.children} queues below it; "
        "choose it with --only"
        for queue in sums
    )
    return [queue for queue in queues if not queue.children]


def _loop(loop: IdentifiedResponse | None) -> dict[str, Any] | None:
    """Return the response of the loop for JSON."""
    if loop is None:
        return None
    return {
        "crossover_rad_s": quantities.finite(loop.crossover_rad_s),
        "phase_margin_deg": quantities.finite(loop.phase_margin_deg),
        "omega_rad_s": loop.omega_rad_s.tolist(),
        "re": loop.gain.real.tolist(),
        "im": loop.gain.imag.tolist(),
        "size_error": loop.size_error.tolist(),
    }


def _write(
    identified: list[tuple[Identified, IdentifiedResponse | None]], out: Path, *, show: bool
) -> None:
    """Write the link's file and the figure of the loop for each queue."""
    from forebay._base.publication import publish
    from forebay.control import queue_estimate as estimate
    from forebay.report import loops

    for i, (numbers, loop) in enumerate(identified):
        end = "" if len(identified) == 1 else f"-{i + 1}"
        contents: dict[str, Content] = {f"identified{end}.toml": estimate.link_toml(numbers)}
        if loop is not None:
            contents[f"loop{end}.png"] = loops.identified(loop, numbers.name).png()
        written, *_ = publish(out, contents)
        if show:
            print(f"{numbers.name.rstrip(':')}: {written}")


#: Rows of the table: name, key, scale and unit.
ROWS = [
    ("rate C", "rate_bps", 1e-6, "Mbit/s"),
    ("queue", "queue_pkts", 1.0, "packets"),
    ("dropped", "loss", 100.0, "%"),
    ("dropped or marked p", "signals", 100.0, "%"),
    ("RTT with queue R", "rtt_s", 1e3, "ms"),
    ("RTT without queue", "propagation_s", 1e3, "ms"),
    ("window W", "window_pkts", 1.0, "packets"),
    ("flows N", "flows", 1.0, ""),
]
#: The estimates of the first line: name, key, scale and unit.
ANSWER = [
    ("rate", "rate_bps", 1e-6, " Mbit/s"),
    ("flows", "flows", 1.0, ""),
    ("RTT without queue", "propagation_s", 1e3, " ms"),
]


def _answer(numbers: Identified) -> str:
    """Return the main estimates of a queue as a sentence."""
    answers = []
    for name, key, scale, unit in ANSWER:
        number = getattr(numbers, key)
        value, low, high = _figures(number, scale) if number.known else ("", "", "")
        answers.append(
            f"{name} {value}{unit}{'' if low == high else f' ({low} to {high})'}"
            if value
            else f"{name} not identified"
        )
    return f"{numbers.name.rstrip(':')}: {', '.join(answers)}."


def _show(console: Console, numbers: Identified, loop: IdentifiedResponse | None) -> None:
    """Print the main estimates, the table with confidence intervals, and warnings."""
    from rich.table import Table

    from forebay.report.designs import print_item

    print_item(console, _answer(numbers))
    console.print()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("", "estimate", "95 % confidence"):
        table.add_column(title, justify="right" if title else "left")
    for name, key, scale, unit in ROWS:
        number = getattr(numbers, key)
        if not number.known:
            table.add_row(name, "not identified", "")
            continue
        value, low, high = _figures(number, scale)
        interval = "given" if low == high else f"{low} to {high}"
        table.add_row(name, f"{value} {unit}".strip(), interval)
    if loop is not None and loop.crossover_rad_s == loop.crossover_rad_s:
        table.add_row("crossover frequency", f"{loop.crossover_rad_s:.3g} rad/s", "")
        table.add_row("phase margin", f"{loop.phase_margin_deg:.0f}°", "")
    console.print(table)
    console.print()
    for why in dict.fromkeys(getattr(numbers, key).why for key in ("rate_bps", "rtt_s", "flows")):
        if why:
            print_item(console, f"warning: some estimates are missing: {why}")
    for remark in numbers.remarks:
        print_item(console, f"warning: {remark}")
    print_item(console, f"assumption: {numbers.assumed}")
    console.print()


def _figures(number: IntervalEstimate, scale: float) -> tuple[str, str, str]:
    """Return a value and the ends of its interval, in the figures that the interval supports."""
    half_width = scale * (number.high - number.low) / 2
    if not 0 < half_width < math.inf:
        bounds = (number.value, number.low, number.high)
        value, low, high = (in_figures(scale * bound, 3) for bound in bounds)
        return value, low, high
    value = with_interval(scale * number.value, half_width).partition(" ±")[0]
    decimals = len(value.partition(".")[2])
    return value, f"{scale * number.low:.{decimals}f}", f"{scale * number.high:.{decimals}f}"
