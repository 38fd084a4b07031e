"""docs/reality.md: every law simulated, and on the real Linux kernel, from two studies' frames.

    python -m tools.reality keep KERNEL.parquet --out experiments/reality/kernel.csv
    python -m tools.reality page PACKETS.parquet KERNEL.csv --out docs/reality.md

What Linux did is kept: a new version of ours is laid beside it in minutes, without a guest.
`make reality` makes both studies first, `make reality-page` only the simulated one.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from forebay._base.statistics import difference_and_interval, student_quantile
from forebay.report.tables import markdown_table

#: Columns that tell a cell from others, and how a reader is told of one.
CELL = ("law", "rate", "tcp", "flows", "rtt", "ecn")
AXES = {
    "law": "law",
    "bottleneck.rate": "rate",
    "traffic.0.tcp": "tcp",
    "traffic.0.flows": "flows",
    "traffic.0.rtt": "rtt",
    "bottleneck.ecn": "ecn",
}
#: Columns of runs that are kept, besides those of a cell.
MEASURED = ("seed", "delay_mean_s", "queue_std_pkts", "drop_rate", "mark_rate", "utilisation")
#: Units of what a frame has as numbers.
SHOWN: dict[str, tuple[str, float]] = {"rate": ("Mbit/s", 1e-6), "rtt": ("ms", 1e3)}
NOTES = Path(__file__).with_name("reality_causes.md")


@dataclass(frozen=True)
class Figure:
    """A metric, and what it may differ by: the wider of a share of Linux's value and `least`."""

    title: str
    #: of the frame; several are added
    columns: tuple[str, ...]
    share: float
    least: float
    #: from the unit of the column to that of the title
    scale: float
    digits: int

    def values(self, frame: pl.DataFrame) -> list[float]:
        return frame.select(pl.sum_horizontal(self.columns)).to_series().to_list()


FIGURES = (
    Figure("mean delay (ms)", ("delay_mean_s",), 0.05, 0.5e-3, 1e3, 2),
    # A tenth of a packet is less than any trace tells.
    Figure("deviation of the queue (packets)", ("queue_std_pkts",), 0.10, 0.1, 1, 1),
    # A drop or mark in ten thousand packets is a handful in a run.
    Figure("drops and marks (%)", ("drop_rate", "mark_rate"), 0.10, 1e-4, 100, 3),
    Figure("utilisation (%)", ("utilisation",), 0.0, 0.005, 100, 2),
)


@dataclass(frozen=True)
class Verdict:
    """A figure of one cell: Linux's mean, ours less that, and half of the 95 % interval."""

    figure: Figure
    cell: dict[str, str]
    linux: float
    difference: float
    half_width: float

    @property
    def allowed(self) -> float:
        return max(self.figure.share * abs(self.linux), self.figure.least)

    @property
    def agrees(self) -> bool:
        return abs(self.difference) <= self.allowed

    @property
    def proven(self) -> bool:
        """Whether the whole interval is outside: no chance of the seeds."""
        return abs(self.difference) - self.half_width > self.allowed

    @property
    def excess(self) -> float:
        return abs(self.difference) / self.allowed


@dataclass(frozen=True)
class Seeds:
    """How many seeds the cells of a study have."""

    least: int
    most: int

    @classmethod
    def of_cells(cls, frame: pl.DataFrame) -> Seeds:
        counts = [len(cell) for cell in _cells(frame).values()]
        return cls(min(counts), max(counts))

    def __str__(self) -> str:
        counts = str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{counts} seed" if self.most == 1 else f"{counts} seeds"


def verdicts(packets: pl.DataFrame, kernel: pl.DataFrame) -> list[Verdict]:
    """Of every figure of every cell that both frames have."""
    ours = _cells(packets)
    found = []
    for key, theirs in _cells(kernel).items():
        if key not in ours:
            continue
        cell = {name: _shown(name, value) for name, value in zip(CELL, key, strict=True)}
        for figure in FIGURES:
            linux = figure.values(theirs)
            mean = statistics.fmean(linux)
            # A delay is that of packets that left: there is none where nothing did.
            if math.isnan(mean):
                continue
            values = figure.values(ours[key])
            difference, half_width = difference_and_interval(values, linux)
            if len(linux) == 1:
                half_width = _of_one_more(values) if len(values) > 1 else math.inf
            found.append(Verdict(figure, cell, mean, difference, half_width))
    return found


def _of_one_more(values: Sequence[float]) -> float:
    """Half of the 95 % interval for a further run: of one seed of Linux's no spread is known."""
    count = len(values)
    return student_quantile(count - 1) * statistics.stdev(values) * math.sqrt(1 + 1 / count)


def _cells(frame: pl.DataFrame) -> dict[tuple[object, ...], pl.DataFrame]:
    named = frame.rename(AXES)
    return dict(named.partition_by(CELL, as_dict=True, maintain_order=True).items())


def _shown(name: str, value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    unit, scale = SHOWN.get(name, ("", 1.0))
    return f"{scale * value:g} {unit}".rstrip()


def page(found: Sequence[Verdict], ours: Seeds, linux: Seeds, planned: int) -> str:
    """The page in Markdown, of so many cells as are planned, or of those that have been run."""
    cells = len({tuple(one.cell.values()) for one in found})
    outside = sorted((one for one in found if not one.agrees), key=lambda one: -one.excess)
    proven = [one for one in outside if one.proven]
    parts = [
        f"""\
# Every law beside real Linux

```sh
make reality
```

writes this page. Each of {cells} cells is a law on a link, and is run twice: simulated
(`--engine packets`, {ours}), and on the real Linux kernel in virtual time
(`--engine kernel`, {linux}; [real-kernel.md](real-kernel.md)). There the senders and
receivers are Linux's, and so is the queue where Linux has the law with these parameters; every
other law judges packets of the kernel's TCP in a queue of ours.
[cells.toml](../experiments/reality/cells.toml) has the cells: every law under Reno, CUBIC, BBR and
DCTCP, with 1, 10 and 100 flows, 4, 15 and 100 Mbit/s, round trips of 10, 60 and 200 ms, with drops
and with ECN, drawn once so that every pair of values occurs.{_left(cells, planned)}

A figure agrees if the means are within {limits()}.
*Proven* is a miss whose whole 95 % interval is outside, {_test(linux)}; any other may be the
chance of few seeds. [Real traffic in real time](reality-realtime.md) is the check of the guest
itself, and [laws in a kernel](reality-attached.md) have a page of their own.

## What agrees

{_by_figure(found)}

{chr(10).join(_by(key, found) + chr(10) for key in CELL)}"""
    ]
    if NOTES.exists():
        parts.append(NOTES.read_text(encoding="utf-8"))
    parts.append(f"""\
## Misses

{len(outside)} of {len(found)} figures are outside, {len(proven)} of them proven. The proven ones,
the largest first, as multiples of what is allowed:

{_misses(proven)}
""")
    return "\n".join(parts)


def limits(
    deviation_of: str = "the queue's deviation", share_of: str = "packets dropped or marked"
) -> str:
    """What a figure may differ by, in words; another page may call the figures otherwise."""
    delay, deviation, signals, use = FIGURES
    return (
        f"{_percent(delay.share)} or {delay.least * 1e3:g} ms of mean delay, "
        f"{_percent(deviation.share)} of {deviation_of} (or {deviation.least:g} packets) "
        f"and of the share of {share_of} (or {_percent(signals.least)}), and "
        f"{100 * use.least:g} points of utilisation"
    )


def _percent(share: float) -> str:
    return f"{100 * share:g} %"


def _test(linux: Seeds) -> str:
    once, several = "that of one further run of ours where Linux ran once", "by Welch's t"
    if linux.most == 1:
        return once
    return several if linux.least > 1 else f"{several}, or {once}"


def _left(cells: int, planned: int) -> str:
    if cells == planned:
        return ""
    return f" Of {planned} cells {cells} have been run so far, those of the slow links first."


def _by_figure(found: Sequence[Verdict]) -> str:
    rows = []
    for figure in FIGURES:
        mine = [one for one in found if one.figure is figure]
        rows.append([figure.title, str(_agree(mine)), str(len(mine)), str(_proven(mine))])
    return markdown_table(["figure", "agree", "of", "proven misses"], rows).rstrip()


def _by(key: str, found: Sequence[Verdict]) -> str:
    """How many cells agree in each figure; a row for each value of a key."""
    rows = []
    for value in dict.fromkeys(one.cell[key] for one in found):
        mine = [one for one in found if one.cell[key] == value]
        agree = [str(_agree([one for one in mine if one.figure is figure])) for figure in FIGURES]
        cells = len({tuple(one.cell.values()) for one in mine})
        rows.append([value, str(cells), *agree, str(_proven(mine))])
    head = [key, "cells", *(figure.title for figure in FIGURES), "proven misses"]
    return markdown_table(head, rows).rstrip()


def _agree(found: Iterable[Verdict]) -> int:
    return sum(one.agrees for one in found)


def _proven(found: Iterable[Verdict]) -> int:
    return sum(one.proven for one in found)


def _misses(found: Sequence[Verdict]) -> str:
    rows = []
    for one in found:
        figure = one.figure
        linux, ours = (
            f"{figure.scale * value:.{figure.digits}f}"
            for value in (one.linux, one.linux + one.difference)
        )
        half = f"{figure.scale * one.half_width:.{figure.digits}f}"
        rows.append(
            [
                *one.cell.values(),
                figure.title,
                f"{linux} → {ours} ± {half}",
                f"{one.excess:.1f}",
            ]
        )
    heads = [*CELL, "figure", "Linux → Forebay", "× allowed"]
    return markdown_table(heads, rows).rstrip()


def keep(kernel: pl.DataFrame, out: Path) -> None:
    """Linux's runs as text, a line for each, in six digits: no difference that counts is less.

    Runs that `out` has already stay, but for those that were made again.
    """
    frame = kernel.select(*AXES, *MEASURED).with_columns(pl.selectors.float().round_sig_figs(6))
    if out.exists():
        frame = pl.concat([kept(out, frame.schema), frame])
    frame = frame.with_row_index("row").with_columns(cell=pl.col("row").min().over(*AXES))
    frame = frame.unique([*AXES, "seed"], keep="last").sort("cell", "seed")
    frame.drop("row", "cell").write_csv(out)


def kept(runs: Path, schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """What `keep` wrote, with the columns' types of a study's frame."""
    return pl.read_csv(runs, schema_overrides=schema)


def main() -> int:
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
    given = parser.parse_args()
    if given.task == "keep":
        keep(pl.read_parquet(given.kernel), given.out)
        return 0
    packets = pl.read_parquet(given.packets)
    kernel = kept(given.kernel, packets.select(*AXES, *MEASURED).schema)
    found = verdicts(packets, kernel)
    seeds = Seeds.of_cells(packets), Seeds.of_cells(kernel)
    given.out.write_text(page(found, *seeds, len(_cells(packets))), encoding="utf-8")
    print(f"{given.out}: {sum(one.agrees for one in found)} of {len(found)} figures agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
