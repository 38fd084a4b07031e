r"""Compare a hundred random cases: real Linux in a guest, and the simulator.

    python bench/drawn.py draw --out experiments/reality/drawn.json
    python bench/drawn.py run experiments/reality/drawn.json \
        --runs experiments/reality/drawn.csv --out docs/evidence/reality-drawn.md

Cases have the form of the reference's (`linux.py` makes a scenario of each), so that its harness
can run them as well. The numbers of Linux are kept in `--runs` by the scenario's hash: an
interrupted call continues, and a new version of the simulator is compared without a guest.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import linux
import polars as pl
from beside import agree, cell, table
from beside import run as runs_of
from fidelity_guest import LinuxRuns
from fidelity_linux import LIMITS, TOLERANCES, figures

from forebay.comparison.compare import Agreement
from forebay.report.tables import markdown_table

DRAWS_SEED = 21
CASES = 100
LINUX_SEEDS = 3
OUR_SEEDS = 10
#: Smallest share of a flow in Mbit/s: that of the reference's most crowded links.
LEAST_SHARE_MBIT = 0.1
#: Rate in Mbit/s from which the measurement is shorter.
FAST_MBIT = 20
CAUSES = Path(__file__).with_name("drawn_causes.md")

#: Kinds of queues, which are equally likely, with their words in tc; the second of two marks.
QUEUES: dict[str, tuple[str, ...]] = {
    "pfifo": ("pfifo limit {buffer}",),
    "codel": ("codel", "codel ecn"),
    "fq_codel": ("fq_codel noecn", "fq_codel"),
    "pie": ("pie", "pie ecn"),
    "fq_pie": ("fq_pie", "fq_pie ecn"),
    "cake": ("cake", "cake besteffort", "cake besteffort flows"),
    # COBALT alone.
    "cobalt": ("cake besteffort flowblind",),
    "dualpi2": ("dualpi2",),
    "red": (
        "red limit {limit} min {least} max {most} avpkt 1500 burst {burst} probability 0.1",
        "red limit {limit} min {least} max {most} avpkt 1500 burst {burst} probability 0.1 ecn",
    ),
}
#: Combinations of senders, which are equally likely; `udp` adds a constant rate.
LOADS: tuple[tuple[str, ...], ...] = (
    ("cubic",),
    ("reno",),
    ("bbr",),
    ("dctcp",),
    ("cubic-ecn",),
    ("cubic", "dctcp"),
    ("cubic", "reno"),
    ("cubic", "bbr"),
    ("cubic", "udp"),
)


def draw(count: int, seed: int) -> list[dict[str, Any]]:
    """Return random cases; those of one seed do not depend on the count."""
    return [_case(number, random.Random(f"{seed}.{number}")) for number in range(1, count + 1)]


def _case(number: int, draws: random.Random) -> dict[str, Any]:
    """Return one random case."""
    rate_mbit = float(f"{_between(draws, 1, 100):.2g}")
    kind = draws.choice(list(QUEUES))
    load = draws.choice(LOADS)
    flows_limit = min(60, int(rate_mbit / LEAST_SHARE_MBIT))
    senders = [sender for sender in load if sender != "udp"]
    flows = max(len(senders), round(_between(draws, 1, flows_limit)))
    rtts_ms = [round(_between(draws, 5, 200), 2) for _ in range(2)]
    # With two round trips, each of two kinds of senders has its own; a single kind is divided.
    parted = flows > 1 and draws.random() < 1 / 3
    groups = []
    if parted and len(senders) == 1:
        senders *= 2
    for place, sender in enumerate(senders):
        share = flows // len(senders) + (place < flows % len(senders))
        rtt_ms = rtts_ms[place if parted else 0]
        groups.append(_group(sender, share, rtt_ms, kind))
    if "udp" in load:
        mbit = round(rate_mbit * draws.uniform(0.5, 1.1), 2)
        groups.append({"cc": "udp", "mbit": mbit, "rtt_ms": rtts_ms[0]})
    marks = any(group.get("ecn") for group in groups)
    spelled = QUEUES[kind]
    if kind == "cake":
        words = draws.choice(spelled)
    else:
        # A queue that can mark does so half of the time for senders without ECN, too.
        either = len(spelled) > 1
        words = spelled[-1 if marks or (either and draws.random() < 1 / 2) else 0]
    words = words.format(**_sizes(rate_mbit, rtts_ms[0], draws))
    name = f"{kind}.{'-'.join(load)}{flows}.{rate_mbit:g}M.{rtts_ms[0]:g}ms"
    window = [20, 60] if rate_mbit <= FAST_MBIT else [15, 45]
    return {
        "id": f"{number:03}.{name}",
        "window": window,
        "case": {
            "id": f"{number:03}.{name}",
            "rate_mbit": rate_mbit,
            "qdisc": words,
            "groups": groups,
            "duration": window[1],
        },
    }


def _between(draws: random.Random, smallest: float, largest: float) -> float:
    """Return a number that is uniform in the logarithm."""
    return math.exp(draws.uniform(math.log(smallest), math.log(largest)))


def _group(sender: str, flows: int, rtt_ms: float, kind: str) -> dict[str, Any]:
    """Return a group of flows."""
    name, _, ecn = sender.partition("-")
    group: dict[str, Any] = {"n": flows, "cc": name, "rtt_ms": rtt_ms}
    if ecn or name == "dctcp":
        group["ecn"] = 1
    if name == "dctcp" and kind == "dualpi2":
        group["ect1"] = 1
    return group


def _sizes(rate_mbit: float, rtt_ms: float, draws: random.Random) -> dict[str, int]:
    """Return the sizes for which Linux has no default.

    A FIFO has one or two bandwidth-delay products, and at least 50 packets. RED follows tc-red(8),
    with `max` at 50 ms and at least 15 packets.
    """
    product_pkts = rate_mbit * 1e3 * rtt_ms / 8 / linux.PACKET_BYTES
    max_bytes = max(round(rate_mbit * 1e3 / 8 * 50), 15 * linux.PACKET_BYTES)
    min_bytes = max_bytes // 3
    return {
        "buffer": max(50, round(product_pkts * draws.choice((1, 2)))),
        "limit": 8 * max_bytes,
        "least": min_bytes,
        "most": max_bytes,
        "burst": math.ceil((2 * min_bytes + max_bytes) / 3 / linux.PACKET_BYTES),
    }


def compare(case: Mapping[str, Any], linux_runs: pl.DataFrame, seeds: int) -> list[Agreement]:
    """Simulate a case, and compare its figures with those of Linux."""
    ran = runs_of(linux.scenario(case["case"], tuple(case["window"]), "packets"), seeds)
    ours = figures(case, ran)
    return [Agreement(rule, ours[rule.metric], rule.values(linux_runs)) for rule in TOLERANCES]


def page(drawn: Sequence[tuple[Mapping[str, Any], list[Agreement]]], planned: int) -> str:
    """Return the page in Markdown, of the cases that have been run with their figures."""
    rows = [(str(case["id"]), row) for case, row in drawn]
    delays = [row[0] for _, row in rows]
    counts = [
        [
            "every figure",
            str(sum(agree(row) for _, row in rows)),
            str(sum(not any(figure.proven for figure in row) for _, row in rows)),
        ],
        [
            "mean delay alone",
            str(sum(figure.agrees for figure in delays)),
            str(sum(not figure.proven for figure in delays)),
        ],
    ]
    misses = [
        [
            str(case["id"]),
            f"`{case['case']['qdisc']}`",
            figure.tolerance.title,
            *map(figure.tolerance.mean_and_deviation, (figure.reference, figure.tested)),
            "yes" if figure.proven else "no",
        ]
        for case, row in drawn
        for figure in row
        if not figure.agrees
    ]
    heads = ["case", "qdisc", "figure", "Linux", "Forebay", "proven"]
    listed = markdown_table(heads, misses) if misses else "None.\n"
    causes = CAUSES.read_text(encoding="utf-8") if CAUSES.exists() and misses else ""
    ours = len(delays[0].tested)
    theirs = [len(figure.reference) for figure in delays]
    seeds = str(min(theirs)) if min(theirs) == max(theirs) else f"{min(theirs)} to {max(theirs)}"
    progress = f"\n{len(drawn)} have been run so far, those of slow links first."
    progress = "" if len(drawn) == planned else progress
    return f"""# Drawn cases on real Linux

This page compares simulated runs with the Linux kernel for cases that were drawn at random before any of them had been run.

The {planned} cases were drawn with a fixed seed (`bench/drawn.py`): {", ".join(QUEUES)} with Linux's defaults; CUBIC, Reno, BBR, DCTCP, CUBIC with ECN, two of these, or CUBIC together with UDP of 50 to 110 % of the rate; 1 to 100 Mbit/s, 5 to 200 ms, 1 to 60 flows, each uniform in the logarithm, with at least {LEAST_SHARE_MBIT * 1e3:g} kbit/s per flow; a third of them with two round-trip times.
Each case is run on the real kernel in a guest (`--engine kernel`, {seeds} seeds, kept in `experiments/reality/drawn.csv`), and simulated ({ours} seeds).
`make reality-drawn` makes this page.{progress}

{LIMITS}
A miss, which is a figure outside, is *proven* if the whole 95 % interval of the difference is beyond the limit (Welch's t-test); any other miss may be the chance of few seeds.

{markdown_table([f"of {len(drawn)} cases", "inside", "not proven outside"], counts)}
## Cases outside

{listed}
{causes}
## All cases

A cell shows *Linux → Forebay*; bold is outside.

{table(rows, TOLERANCES)}
"""


def _run(args: argparse.Namespace) -> int:
    """Run the missing cases on Linux, simulate all, and write the page."""
    every = json.loads(args.cases.read_text())
    cases = [case for case in every if re.search(args.only, case["id"])]
    linux_runs_of = LinuxRuns(args.runs)
    if not args.page_only:
        # Slow links come first: they take the least time.
        for case in sorted(cases, key=lambda item: item["case"]["rate_mbit"] * item["window"][1]):
            if linux_runs_of.of(case).height < args.seeds:
                linux_runs_of.make(case, args.seeds)
                count = linux_runs_of.of(case).height
                print(f"{case['id']}: {count} runs", file=sys.stderr, flush=True)
    if args.linux_only:
        return 0
    drawn = []
    for case in cases:
        if (linux_runs := linux_runs_of.of(case)).is_empty():
            continue
        row = compare(case, linux_runs, OUR_SEEDS)
        drawn.append((case, row))
        worst = "proven" if any(figure.proven for figure in row) else "outside"
        flag = "" if agree(row) else f"  <-- {worst}"
        print(f"{case['id']:44} {' | '.join(map(cell, row))}{flag}", file=sys.stderr, flush=True)
    if args.out and drawn:
        args.out.write_text(page(drawn, len(cases)), encoding="utf-8")
    return 0 if drawn and not any(figure.proven for _, row in drawn for figure in row) else 1


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tasks = parser.add_subparsers(dest="task", required=True)
    drawing = tasks.add_parser("draw", help="draw the cases")
    drawing.add_argument("--count", type=int, default=CASES)
    drawing.add_argument("--seed", type=int, default=DRAWS_SEED)
    drawing.add_argument("--out", type=Path, required=True)
    running = tasks.add_parser("run", help="run what is not kept, and write the page")
    running.add_argument("cases", type=Path)
    running.add_argument("--runs", type=Path, required=True, help="CSV of what Linux did")
    running.add_argument("--out", type=Path, help="page to write")
    running.add_argument("--seeds", type=int, default=LINUX_SEEDS, help="of Linux's runs")
    running.add_argument("--only", default="", help="cases whose name this pattern finds")
    running.add_argument("--page-only", action="store_true", help="run no guest")
    running.add_argument("--linux-only", action="store_true", help="run guests alone")
    args = parser.parse_args()
    if args.task == "run":
        return _run(args)
    lines = ",\n".join(json.dumps(case) for case in draw(args.count, args.seed))
    args.out.write_text(f"[\n{lines}\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
