"""`--engine kernel` beside the reference runs of real Linux: every case, from a scenario alone.

    python bench/fidelity_guest.py --reference ../shared/reference/linux.json bench/linux.json \\
        --runs bench/fidelity_guest.csv --out docs/fidelity-guest.md

Both are Linux in virtual time: a harness of its own there, our guest here. A case that has been
run is kept in `--runs`, with its scenario's hash, and is not run again; a call that was stopped
goes on. Exit status 1 where a case is missing or a figure is outside.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import linux
from beside import Comparison, Figure, run
from fidelity_linux import FIGURES, figures, theirs

from forebay._base.statistics import difference_and_interval
from forebay.report.tables import markdown_table

#: As many as the reference has of a case, at least.
SEEDS = 3
#: Of the interval of a difference: one figure in a hundred is outside by chance.
LEVEL = 0.99
#: What a figure may differ by besides, since a trace tells no more: by the key of ours, a share of
#: the reference's value and a difference.
RESOLUTION: dict[str, tuple[float, float]] = {
    "delay_mean_s": (0.01, 1e-4),
    "delay_p95_s": (0.01, 1e-4),
    "drop_rate": (0.01, 1e-5),
    "mark_rate": (0.01, 1e-5),
    "utilisation": (0.0, 2e-4),
    "jain": (0.0, 1e-3),
}
CAUSES = Path(__file__).with_name("fidelity_guest_causes.md")
COLUMNS = ("case", "scenario", "seed", *(figure.key for figure in FIGURES))

#: By case and hash of its scenario: figures of each seed.
Runs = dict[tuple[str, str], dict[int, dict[str, float]]]


@dataclass(frozen=True)
class Beside:
    """A figure of a case, there and here."""

    case: str
    comparison: Comparison

    @property
    def figure(self) -> Figure:
        return self.comparison.figure

    @property
    def allowed(self) -> float:
        """The wider of what a trace tells and the interval of the difference (Welch 1947)."""
        share, least = RESOLUTION[self.figure.key]
        _, half = difference_and_interval(self.comparison.ours, self.comparison.theirs, LEVEL)
        return max(half, least, share * abs(statistics.mean(self.comparison.theirs)))

    @property
    def within(self) -> bool:
        return abs(self.comparison.difference) <= self.allowed

    def values(self, values: Sequence[float]) -> str:
        scale, digits = self.figure.scale, self.figure.digits
        mean, spread = statistics.mean(values), statistics.stdev(values)
        return f"{scale * mean:.{digits}f} ± {scale * spread:.{digits}f}"

    def cell(self) -> str:
        """`theirs → ours`; bold where they are too far apart."""
        scale, digits = self.figure.scale, self.figure.digits
        means = (statistics.mean(it) for it in (self.comparison.theirs, self.comparison.ours))
        text = " → ".join(f"{scale * mean:.{digits}f}" for mean in means)
        return text if self.within else f"**{text}**"


def read(path: Path) -> Runs:
    """What has been run."""
    runs: Runs = {}
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                values = {figure.key: float(row[figure.key]) for figure in FIGURES}
                seeds = runs.setdefault((row["case"], row["scenario"]), {})
                seeds[int(row["seed"])] = values
    return runs


def keep(path: Path, case: str, digest: str, rows: Mapping[int, Mapping[str, float]]) -> None:
    """Adds the seeds of a case."""
    begun = path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if not begun:
            writer.writerow(COLUMNS)
        for seed, values in rows.items():
            shown = (f"{values[figure.key]:.6g}" for figure in FIGURES)
            writer.writerow([case, digest, seed, *shown])


def digest(scenario: str) -> str:
    """Of what is run: with another scenario it is another run."""
    return hashlib.sha256(scenario.encode()).hexdigest()[:12]


def made(case: Mapping[str, Any], scenario: str, seeds: int) -> dict[int, dict[str, float]]:
    """Runs a case; figures by seed."""
    ran = run(scenario, seeds, "kernel")
    columns = figures(case, ran)
    numbers = ran.metrics["seed"].to_list()
    return {
        seed: {key: values[row] for key, values in columns.items()}
        for row, seed in enumerate(numbers)
    }


def beside(case: Mapping[str, Any], seeds: Mapping[int, Mapping[str, float]]) -> list[Beside]:
    """Each figure of a case."""
    return [
        Beside(
            case["id"],
            Comparison(
                figure,
                theirs(case, figure.reference_key),
                [values[figure.key] for values in seeds.values()],
            ),
        )
        for figure in FIGURES
    ]


def page(cases: Sequence[Sequence[Beside]], planned: int, seeds: tuple[int, int]) -> str:
    """The page in Markdown."""
    every = [one for row in cases for one in row]
    outside = [one for one in every if not one.within]
    whole = sum(all(one.within for one in row) for row in cases)
    least, most = seeds
    rows = [[row[0].case, *(one.cell() for one in row)] for row in cases]
    misses = [
        [
            one.case,
            one.figure.title,
            one.values(one.comparison.theirs),
            one.values(one.comparison.ours),
        ]
        for one in outside
    ]
    few = [[f"{len(every)}", f"{(1 - LEVEL) * len(every):.1f}", f"{len(outside)}"]]
    counts = f"{least}" if least == most else f"{least} to {most}"
    causes = CAUSES.read_text(encoding="utf-8") if CAUSES.exists() and misses else ""
    return f"""# The kernel engine beside Linux

Each row is a case of the reference runs, in which a harness of its own drives Linux 7.2 in virtual
time (3 seeds), made here with `--engine kernel` from a scenario file alone ({counts} seeds). The
last of them were made with the reference's harness, too (`bench/linux.json`). A cell shows
*reference → guest*; bold is outside the spread of the seeds: the difference of the means is beyond
its {LEVEL:.0%} interval (Welch's t), and beyond what a trace tells: a hundredth of a delay or rate,
0.02 points of utilisation, 0.001 of Jain's index.

{whole} of {len(cases)} cases are inside with every figure{_left(len(cases), planned)}.

{markdown_table(["figures", "outside by chance, about", "outside"], few)}

`make fidelity-guest` writes this page, and runs what is not in `bench/fidelity_guest.csv`.

{markdown_table(["case", *(figure.title for figure in FIGURES)], rows)}

## Outside

{markdown_table(["case", "figure", "reference", "guest"], misses) if misses else "None."}

{causes}"""


def _left(done: int, planned: int) -> str:
    return "" if done == planned else f"; {planned - done} of {planned} have not been run"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, nargs="+", required=True, help="linux.json")
    parser.add_argument("--runs", type=Path, required=True, help="CSV of what was run")
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", default="", help="run cases whose name this pattern finds")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    args = parser.parse_args()
    cases = [case for path in args.reference for case in json.loads(path.read_text())]
    known = read(args.runs)
    compared: list[list[Beside]] = []
    counts: set[int] = set()
    for case in cases:
        scenario = linux.scenario(case["case"], tuple(case["window"]), "kernel")
        key = (case["id"], digest(scenario))
        wanted = not args.page_only and re.search(args.only, case["id"])
        if wanted and len(known.get(key, {})) < args.seeds:
            rows = made(case, scenario, args.seeds)
            new = {seed: it for seed, it in rows.items() if seed not in known.get(key, {})}
            keep(args.runs, *key, new)
            known[key] = rows
            shown = beside(case, rows)
            flag = "" if all(one.within for one in shown) else "  <-- outside"
            said = " | ".join(one.cell() for one in shown)
            print(f"{case['id']:32} {said}{flag}", file=sys.stderr, flush=True)
        if key in known:
            compared.append(beside(case, known[key]))
            counts.add(len(known[key]))
    if args.out and compared:
        args.out.write_text(page(compared, len(cases), (min(counts), max(counts))))
    whole = len(compared) == len(cases)
    return 0 if whole and all(one.within for row in compared for one in row) else 1


if __name__ == "__main__":
    sys.exit(main())
