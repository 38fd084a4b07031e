"""Write docs/evidence/reality.md: every law in the simulator and on the real Linux kernel.

    python -m tools.reality keep KERNEL.parquet --out experiments/reality/kernel.csv
    python -m tools.reality page PACKETS.parquet KERNEL.csv --out docs/evidence/reality.md

The kernel's numbers are kept, so a new version of the simulator is compared in minutes,
without a guest. `make reality` makes both studies first, `make reality-page` only the simulated
one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from forebay.comparison.compare import Agreement, Tolerance, agreements
from forebay.comparison.saved_runs import KeptRuns
from forebay.report.tables import markdown_table

#: The columns that identify a cell, with their names on the page.
AXES = {
    "law": "law",
    "bottleneck.rate": "rate",
    "traffic.0.tcp": "tcp",
    "traffic.0.flows": "flows",
    "traffic.0.rtt": "rtt",
    "bottleneck.ecn": "ecn",
}
#: The types of these columns.
CELL: dict[str, type[pl.DataType]] = {
    "law": pl.String,
    "bottleneck.rate": pl.Float64,
    "traffic.0.tcp": pl.String,
    "traffic.0.flows": pl.Float64,
    "traffic.0.rtt": pl.Float64,
    "bottleneck.ecn": pl.String,
}
#: The metrics of a run that are kept.
VALUES = ("delay_mean_s", "queue_std_pkts", "drop_rate", "mark_rate", "utilisation")
#: Units and scales of the numeric columns of a cell.
UNITS: dict[str, tuple[str, float]] = {
    "bottleneck.rate": ("Mbit/s", 1e-6),
    "traffic.0.rtt": ("ms", 1e3),
}
NOTES = Path(__file__).with_name("reality_causes.md")

#: Tolerated differences. If Linux ran once, a further simulated run provides the test.
TOLERANCES = (
    Tolerance(
        "delay_mean_s", "mean delay (ms)", share=0.05, least=0.5e-3, scale=1e3, digits=2,
        predicts=True,
    ),
    # A tenth of a packet is below the resolution of any trace.
    Tolerance(
        "queue_std_pkts", "deviation of the queue (packets)", share=0.10, least=0.1, predicts=True
    ),
    # One drop or mark in ten thousand packets is only a handful per run.
    Tolerance(
        "drop_rate+mark_rate", "drops and marks (%)", share=0.10, least=1e-4, scale=100, digits=3,
        predicts=True,
    ),
    Tolerance(
        "utilisation", "utilisation (%)", least=0.005, scale=100, digits=2, predicts=True
    ),
)  # fmt: skip


def verdicts(packets: pl.DataFrame, kernel: pl.DataFrame) -> list[Agreement]:
    """Return the agreement of every figure of every cell that both frames have."""
    return agreements(packets, kernel, list(AXES), TOLERANCES)


def names(cell: dict[str, Any]) -> list[str]:
    """Return the values of a cell as a page shows them."""
    texts = []
    for key, value in cell.items():
        unit, scale = UNITS.get(key, ("", 1.0))
        texts.append(f"{scale * value:g} {unit}".rstrip() if isinstance(value, float) else value)
    return texts


def seeds_text(frame: pl.DataFrame) -> str:
    """Return how many seeds the cells of a frame have, such as "1 to 3 seeds"."""
    smallest, largest = _seeds(frame)
    counts = str(largest) if smallest == largest else f"{smallest} to {largest}"
    return f"{counts} seed" if largest == 1 else f"{counts} seeds"


def _seeds(frame: pl.DataFrame) -> tuple[int, int]:
    """Return the smallest and the largest number of seeds of the cells."""
    counts = frame.group_by(list(AXES)).len()["len"].to_list()
    return min(counts), max(counts)


def page(packets: pl.DataFrame, kernel: pl.DataFrame) -> str:
    """Return the page in Markdown."""
    figures, planned = verdicts(packets, kernel), packets.group_by(list(AXES)).len().height
    cells = _cells(figures)
    misses = sorted(
        (figure for figure in figures if not figure.agrees), key=lambda figure: -figure.excess
    )
    proven = [miss for miss in misses if miss.proven]
    notes = NOTES.read_text(encoding="utf-8") + "\n" if NOTES.exists() else ""
    by_figure = [
        [rule.title, str(_agree(of_rule)), str(len(of_rule)), str(_proven(of_rule))]
        for rule in TOLERANCES
        for of_rule in [[figure for figure in figures if figure.tolerance is rule]]
    ]
    heads = [*AXES.values(), "figure", "Linux → Forebay", "× allowed"]
    return f"""\
# Every law on real Linux

This page compares every law in the simulator with the same law on the real Linux kernel, over many links and loads.

Each of {cells} cells is a law on a link, and is run twice: simulated (`--engine packets`, {seeds_text(packets)}), and on the real Linux kernel in virtual time (`--engine kernel`, {seeds_text(kernel)}; [real-kernel.md](../howto/real-kernel.md)).
In the runs on Linux, senders and receivers are Linux's, and so is the queue if Linux has the law with these parameters; every other law decides on packets of the kernel's TCP in a queue of Forebay's.
[cells.toml](../../experiments/reality/cells.toml) has the cells: every law under Reno, CUBIC, BBR and DCTCP, with 1, 10 and 100 flows, 4, 15 and 100 Mbit/s, round-trip times of 10, 60 and 200 ms, with drops and with ECN, drawn once so that every pair of values occurs.{_left(cells, planned)}
`make reality` makes this page.

A figure agrees if the means of both sides differ by at most the first or the second limit, whichever is wider.
Limits in percent are shares of the value on Linux.

{limits()}
A figure that does not agree is a *miss*.
A miss is *proven* if the whole 95 % interval of the difference is beyond the limit ({_test(kernel)}); any other miss may be the chance of few seeds.
[Real flows in real time](reality-realtime.md) check the guest itself, and [attached laws](reality-attached.md) have a page of their own.

## What agrees

{markdown_table(["figure", "agree", "of", "proven misses"], by_figure)}
{chr(10).join(_by(key, figures) for key in AXES)}
{notes}## Misses

{len(misses)} of {len(figures)} figures are outside, {len(proven)} of them proven.
The proven ones, the largest first, as multiples of the tolerance:

{markdown_table(heads, map(_miss, proven)).rstrip()}
"""


def limits() -> str:
    """Return the table of the largest differences at which figures agree."""
    delay, deviation, signals, use = TOLERANCES
    rows = [
        ["mean delay", _percent(delay.share), f"{delay.least * 1e3:g} ms"],
        [
            "standard deviation of the queue",
            _percent(deviation.share),
            f"{deviation.least:g} packets",
        ],
        [
            "share of packets dropped or marked",
            _percent(signals.share),
            f"{100 * signals.least:g} percentage points",
        ],
        ["utilisation of the link", "–", f"{100 * use.least:g} percentage points"],
    ]
    return markdown_table(["figure", "relative limit", "absolute limit"], rows)


def _percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:g} %"


def _test(kernel: pl.DataFrame) -> str:
    """Return the sentence about the test of a miss."""
    once, several = "by that of one further simulated run if Linux ran once", "by Welch's t-test"
    smallest, largest = _seeds(kernel)
    if largest == 1:
        return once
    return several if smallest > 1 else f"{several}, or {once}"


def _left(cells: int, planned: int) -> str:
    """Return the sentence about cells that have not been run yet."""
    if cells == planned:
        return ""
    return f" Of {planned} cells {cells} have been run so far, those of the slow links first."


def _by(key: str, figures: Sequence[Agreement]) -> str:
    """Return how many cells agree in each figure, with a row for each value of a key."""
    rows = []
    for value in dict.fromkeys(figure.cell[key] for figure in figures):
        of_value = [figure for figure in figures if figure.cell[key] == value]
        agree = [
            _agree(figure for figure in of_value if figure.tolerance is rule) for rule in TOLERANCES
        ]
        counts = [_cells(of_value), *agree, _proven(of_value)]
        rows.append([*names({key: value}), *map(str, counts)])
    heads = [AXES[key], "cells", *(rule.title for rule in TOLERANCES), "proven misses"]
    return markdown_table(heads, rows)


def _cells(figures: Iterable[Agreement]) -> int:
    """Return the number of distinct cells."""
    return len({tuple(figure.cell.values()) for figure in figures})


def _agree(figures: Iterable[Agreement]) -> int:
    """Return the number of figures that agree."""
    return sum(figure.agrees for figure in figures)


def _proven(figures: Iterable[Agreement]) -> int:
    """Return the number of proven misses."""
    return sum(figure.proven for figure in figures)


def _miss(figure: Agreement) -> list[str]:
    """Return the row of a miss."""
    numbers = f"{figure.text} ± {figure.tolerance.text(figure.half_width)}"
    return [*names(dict(figure.cell)), figure.tolerance.title, numbers, f"{figure.excess:.1f}"]


def kept(path: Path) -> KeptRuns:
    """Return the file that keeps the numbers of the kernel's runs."""
    return KeptRuns(path, CELL, VALUES)


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    keeping = tasks.add_parser("keep", help="keep what Linux did, beside what is kept")
    keeping.add_argument("kernel", type=Path, help="frame.parquet of the study on the kernel")
    written = tasks.add_parser("page", help="write the page")
    written.add_argument("packets", type=Path, help="frame.parquet of the simulated study")
    written.add_argument("kernel", type=Path, help="what Linux did, kept")
    for task in (keeping, written):
        task.add_argument("--out", type=Path, required=True, help="file to write")
    arguments = parser.parse_args()
    if arguments.task == "keep":
        kept(arguments.out).add(pl.read_parquet(arguments.kernel))
        return 0
    packets, kernel = pl.read_parquet(arguments.packets), kept(arguments.kernel).read()
    arguments.out.write_text(page(packets, kernel), encoding="utf-8")
    figures = verdicts(packets, kernel)
    print(f"{arguments.out}: {_agree(figures)} of {len(figures)} figures agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
