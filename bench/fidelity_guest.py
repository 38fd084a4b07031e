r"""Compare `--engine kernel` with the reference runs of real Linux, case by case.

    python bench/fidelity_guest.py --reference ../shared/reference/linux.json bench/linux.json \
        --runs bench/fidelity_guest.csv --out docs/evidence/fidelity-guest.md

Both are Linux in virtual time: the reference has a harness of its own, and this program uses
Forebay's guest, which is given nothing but a scenario. A run is kept in `--runs` with the hash of
its scenario and is not made again; an interrupted call continues. The exit status is 1 if a case is
missing or a figure is outside.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import linux
import polars as pl
from beside import agree, cell, progress, run
from fidelity_linux import TOLERANCES as LINUX
from fidelity_linux import figures, theirs

from forebay.comparison.compare import Agreement
from forebay.comparison.saved_runs import KeptRuns
from forebay.report.tables import markdown_table

#: Number of seeds, which is at least that of the reference.
SEEDS = 3
#: Level of the interval of a difference: one figure in a hundred is outside by chance.
LEVEL = 0.99
#: Resolution of a trace, by which a figure may differ in addition: a share of the reference's value
#: and a difference.
RESOLUTION: dict[str, tuple[float, float]] = {
    "delay_mean_s": (0.01, 1e-4),
    "delay_p95_s": (0.01, 1e-4),
    "drop_rate": (0.01, 1e-5),
    "mark_rate": (0.01, 1e-5),
    "utilisation": (0.0, 2e-4),
    "jain": (0.0, 1e-3),
}
#: The tolerance is the wider of the resolution and the interval of the difference (Welch 1947).
TOLERANCES = tuple(
    replace(rule, share=share, least=least, absolute=0.0, spreads=0.0, level=LEVEL)
    for rule in LINUX
    for share, least in [RESOLUTION[rule.metric]]
)
CAUSES = Path(__file__).with_name("fidelity_guest_causes.md")


class LinuxRuns:
    """Runs of the cases on Linux, kept by the hash of each case's scenario."""

    def __init__(self, path: Path) -> None:
        cell = {"case": pl.String, "scenario": pl.String}
        self.kept = KeptRuns(path, cell, [rule.metric for rule in TOLERANCES])
        self.runs = self.kept.read()

    def of(self, case: Mapping[str, Any]) -> pl.DataFrame:
        """Return the kept runs of a case as it is now."""
        return self.runs.filter(case=case["id"], scenario=digest(_scenario(case)))

    def make(self, case: Mapping[str, Any], seeds: int) -> None:
        """Run a case on the kernel, and keep the seeds that are new."""
        scenario = _scenario(case)
        ran = run(scenario, seeds, "kernel")
        columns = {"seed": ran.metrics["seed"].to_list(), **figures(case, ran)}
        runs = pl.DataFrame(columns).select(
            pl.lit(case["id"]).alias("case"), pl.lit(digest(scenario)).alias("scenario"), pl.all()
        )
        self.kept.add(runs.filter(~pl.col("seed").is_in(self.of(case)["seed"].implode())))
        self.runs = self.kept.read()


def _scenario(case: Mapping[str, Any]) -> str:
    """Return the scenario of a case for the kernel engine."""
    return linux.scenario(case["case"], tuple(case["window"]), "kernel")


def digest(scenario: str) -> str:
    """Return the hash of a scenario."""
    return hashlib.sha256(scenario.encode()).hexdigest()[:12]


def compare(case: Mapping[str, Any], runs: pl.DataFrame) -> list[Agreement]:
    """Hold each figure of a case against the reference's."""
    return [Agreement(rule, rule.values(runs), theirs(case, rule.metric)) for rule in TOLERANCES]


def page(
    cases: Sequence[tuple[str, Sequence[Agreement]]], planned: int, seeds: tuple[int, int]
) -> str:
    """Return the page in Markdown."""
    count = sum(len(row) for _, row in cases)
    whole = sum(agree(row) for _, row in cases)
    smallest, largest = seeds
    rows = [[name, *map(cell, row)] for name, row in cases]
    misses = [
        [name, figure.tolerance.title, *map(figure.tolerance.mean_and_deviation, sides)]
        for name, row in cases
        for figure in row
        if not figure.agrees
        for sides in [(figure.reference, figure.tested)]
    ]
    few = [[f"{count}", f"{(1 - LEVEL) * count:.1f}", f"{len(misses)}"]]
    counts = f"{smallest}" if smallest == largest else f"{smallest} to {largest}"
    causes = CAUSES.read_text(encoding="utf-8") if CAUSES.exists() and misses else ""
    return f"""# The kernel engine and Linux

This page compares the kernel engine, which starts from a scenario file, with the same kernel under an independent harness.

Each row is a case of the reference runs, in which the harness drives Linux 7.2 in virtual time (3 seeds), and the same case with `--engine kernel` ({counts} seeds).
The last cases were made with the reference's harness as well (`bench/linux.json`).
A cell shows *reference → guest*.
A cell is bold if its two means differ by more than chance explains, beyond the {LEVEL:.0%} interval of the difference (Welch's t-test), and also by more than a trace resolves.
A trace resolves 1 % of a delay or rate, 0.02 percentage points of utilisation, and 0.001 of Jain's index.

{whole} of {len(cases)} cases are inside with every figure{_left(len(cases), planned)}.

{markdown_table(["figures", "expected outside by chance", "outside"], few)}

`make fidelity-guest` makes this page, and runs the cases that are not in `bench/fidelity_guest.csv`.

{markdown_table(["case", *(rule.title for rule in TOLERANCES)], rows)}

## Cases outside

{markdown_table(["case", "figure", "reference", "guest"], misses) if misses else "None."}

{causes}"""


def _left(done: int, planned: int) -> str:
    """Return the words about cases that have not been run."""
    return "" if done == planned else f"; {planned - done} of {planned} have not been run"


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, nargs="+", required=True, help="linux.json")
    parser.add_argument("--runs", type=Path, required=True, help="CSV of what was run")
    parser.add_argument("--out", type=Path, help="page to write")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", default="", help="run cases whose name this pattern finds")
    parser.add_argument("--page-only", action="store_true", help="run nothing")
    args = parser.parse_args()
    cases = [case for path in args.reference for case in json.loads(path.read_text())]
    linux_runs = LinuxRuns(args.runs)
    compared: list[tuple[str, list[Agreement]]] = []
    counts: set[int] = set()
    for case in cases:
        name = case["id"]
        if (
            not args.page_only
            and re.search(args.only, name)
            and linux_runs.of(case).height < args.seeds
        ):
            linux_runs.make(case, args.seeds)
            print(progress(name, compare(case, linux_runs.of(case))), file=sys.stderr, flush=True)
        if (runs := linux_runs.of(case)).height:
            compared.append((name, compare(case, runs)))
            counts.add(runs.height)
    if args.out and compared:
        args.out.write_text(page(compared, len(cases), (min(counts), max(counts))))
    whole = len(compared) == len(cases)
    return 0 if whole and all(agree(row) for _, row in compared) else 1


if __name__ == "__main__":
    sys.exit(main())
