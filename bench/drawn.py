"""A hundred cases that were drawn, not chosen: real Linux in a guest, and Forebay.

    python bench/drawn.py draw --out experiments/reality/drawn.json
    python bench/drawn.py run experiments/reality/drawn.json \\
        --runs experiments/reality/drawn.csv --out docs/reality-drawn.md

Cases have the form of the reference's (`linux.py` makes a scenario of each), so that its harness
can run them as well. What Linux did is kept in `--runs` by the scenario's hash: a call that was
stopped goes on, and a new version of ours is laid beside it without a guest.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import linux
from beside import Comparison, table
from beside import run as runs_of
from fidelity_guest import digest, keep, made, read
from fidelity_linux import FIGURES, TOLERANCE, figures

from forebay._base.statistics import difference_and_interval
from forebay.report.tables import markdown_table

DRAWS_SEED = 21
CASES = 100
LINUX_SEEDS = 3
OUR_SEEDS = 10
#: The reference's most crowded links have so much for a flow.
LEAST_SHARE_MBIT = 0.1
#: A fast link's window is shorter.
FAST_MBIT = 20
CAUSES = Path(__file__).with_name("drawn_causes.md")

#: Kinds of queues, each as likely, and how each may be written: the second marks.
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
#: What sends, each as likely: names of groups; `udp` comes beside the others.
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
    """Cases; those of one seed are the same with any count."""
    return [_case(number, random.Random(f"{seed}.{number}")) for number in range(1, count + 1)]


def _case(number: int, draws: random.Random) -> dict[str, Any]:
    rate_mbit = float(f"{_between(draws, 1, 100):.2g}")
    kind = draws.choice(list(QUEUES))
    load = draws.choice(LOADS)
    most = min(60, int(rate_mbit / LEAST_SHARE_MBIT))
    senders = [it for it in load if it != "udp"]
    flows = max(len(senders), round(_between(draws, 1, most)))
    rtts_ms = [round(_between(draws, 5, 200), 2) for _ in range(2)]
    # Two round trips: of two kinds of senders each has its own, one kind is parted.
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
        # Also beside senders without ECN, as often.
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


def _between(draws: random.Random, least: float, most: float) -> float:
    """Uniform in the logarithm."""
    return math.exp(draws.uniform(math.log(least), math.log(most)))


def _group(sender: str, flows: int, rtt_ms: float, kind: str) -> dict[str, Any]:
    name, _, ecn = sender.partition("-")
    group: dict[str, Any] = {"n": flows, "cc": name, "rtt_ms": rtt_ms}
    if ecn or name == "dctcp":
        group["ecn"] = 1
    if name == "dctcp" and kind == "dualpi2":
        group["ect1"] = 1
    return group


def _sizes(rate_mbit: float, rtt_ms: float, draws: random.Random) -> dict[str, int]:
    """Of what Linux has no default for: a FIFO of one or two bandwidth-delay products, 50 packets
    at least; RED's as tc-red(8) has them, `max` at 50 ms and 15 packets at least."""
    product_pkts = rate_mbit * 1e3 * rtt_ms / 8 / linux.PACKET_BYTES
    most = max(round(rate_mbit * 1e3 / 8 * 50), 15 * linux.PACKET_BYTES)
    least = most // 3
    return {
        "buffer": max(50, round(product_pkts * draws.choice((1, 2)))),
        "limit": 8 * most,
        "least": least,
        "most": most,
        "burst": math.ceil((2 * least + most) / 3 / linux.PACKET_BYTES),
    }


@dataclass(frozen=True)
class Drawn:
    """A case with its figures, Linux's and ours."""

    case: Mapping[str, Any]
    figures: Sequence[Comparison]

    @property
    def name(self) -> str:
        return str(self.case["id"])

    @property
    def inside(self) -> bool:
        return all(it.within for it in self.figures)

    @property
    def proven(self) -> list[Comparison]:
        return [it for it in self.figures if proven(it)]


def proven(figure: Comparison) -> bool:
    """Whether the whole 95 % interval of the difference is outside (Welch 1947): no chance of the
    seeds."""
    _, half_width = difference_and_interval(figure.ours, figure.theirs)
    return abs(figure.difference) - half_width > figure.allowed


def compare(
    case: Mapping[str, Any], linux_runs: Mapping[int, Mapping[str, float]], seeds: int
) -> Drawn:
    """Runs a case here, beside what Linux did."""
    ran = runs_of(_scenario(case, "packets"), seeds)
    ours = figures(case, ran)
    columns = {
        figure.key: [values[figure.key] for values in linux_runs.values()] for figure in FIGURES
    }
    return Drawn(case, [Comparison(it, columns[it.key], ours[it.key]) for it in FIGURES])


def page(drawn: Sequence[Drawn], planned: int) -> str:
    inside = sum(it.inside for it in drawn)
    unproven = sum(not it.proven for it in drawn)
    delay = sum(it.figures[0].within for it in drawn)
    delay_unproven = sum(not proven(it.figures[0]) for it in drawn)
    counts = [
        ["every figure", str(inside), str(unproven)],
        ["mean delay alone", str(delay), str(delay_unproven)],
    ]
    misses = [
        [
            it.name,
            f"`{it.case['case']['qdisc']}`",
            figure.figure.title,
            *(_values(figure, values) for values in (figure.theirs, figure.ours)),
            "yes" if proven(figure) else "no",
        ]
        for it in drawn
        for figure in it.figures
        if not figure.within
    ]
    heads = ["case", "qdisc", "figure", "Linux", "Forebay", "proven"]
    listed = markdown_table(heads, misses) if misses else "None.\n"
    causes = CAUSES.read_text(encoding="utf-8") if CAUSES.exists() and misses else ""
    ours = len(drawn[0].figures[0].ours)
    theirs = [len(it.figures[0].theirs) for it in drawn]
    seeds = str(min(theirs)) if min(theirs) == max(theirs) else f"{min(theirs)} to {max(theirs)}"
    left = f" {len(drawn)} have been run so far, those of slow links first."
    left = "" if len(drawn) == planned else left
    rows = [(it.name, list(it.figures)) for it in drawn]
    return f"""# Drawn cases beside the Linux kernel

```sh
make reality-drawn
```

writes this page. Its {planned} cases were drawn with a fixed seed (`bench/drawn.py`), before any of
them had been run: {", ".join(QUEUES)} with Linux's defaults; CUBIC, Reno, BBR, DCTCP, CUBIC
with ECN, two of these, or CUBIC beside UDP of 50 to 110 % of the rate; 1 to 100 Mbit/s, 5 to
200 ms, 1 to 60 flows, each uniform in the logarithm, and at least
{LEAST_SHARE_MBIT * 1e3:g} kbit/s for a flow; a third with two round trips.
Each is run on the real kernel in a guest (`--engine kernel`,
{seeds} seeds, kept in `experiments/reality/drawn.csv`), which
[fidelity-guest.md](fidelity-guest.md) lays beside the reference's runs, and simulated ({ours}
seeds).{left}

A figure is inside with {TOLERANCE}. A miss is *proven* where the whole 95 % interval of the
difference is outside (Welch's t); any other may be the chance of few seeds.

| of {len(drawn)} cases | inside | not proven outside |
| --- | --- | --- |
{_lines(counts)}

## Outside

{listed}
{causes}
## All

A cell shows *Linux → Forebay*; bold is outside.

{table(rows, FIGURES)}
"""


def _lines(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _values(figure: Comparison, values: Sequence[float]) -> str:
    scale, digits = figure.figure.scale, figure.figure.digits
    mean, spread = statistics.mean(values), statistics.stdev(values)
    return f"{scale * mean:.{digits}f} ± {scale * spread:.{digits}f}"


def _run(args: argparse.Namespace) -> int:
    every = json.loads(args.cases.read_text())
    cases = [case for case in every if re.search(args.only, case["id"])]
    known = read(args.runs)
    keys = {case["id"]: _key(case) for case in cases}
    if not args.page_only:
        # The slow links first: they take the least time.
        for case in sorted(cases, key=lambda it: it["case"]["rate_mbit"] * it["window"][1]):
            key = keys[case["id"]]
            if len(known.get(key, {})) < args.seeds:
                rows = made(case, _scenario(case, "kernel"), args.seeds)
                new = {seed: it for seed, it in rows.items() if seed not in known.get(key, {})}
                keep(args.runs, *key, new)
                known[key] = rows
                print(f"{case['id']}: {len(rows)} runs", file=sys.stderr, flush=True)
    if args.linux_only:
        return 0
    drawn = []
    for case in cases:
        if keys[case["id"]] not in known:
            continue
        one = compare(case, known[keys[case["id"]]], OUR_SEEDS)
        drawn.append(one)
        said = " | ".join(it.cell() for it in one.figures)
        flag = "" if one.inside else "  <-- proven" if one.proven else "  <-- outside"
        print(f"{case['id']:44} {said}{flag}", file=sys.stderr, flush=True)
    if args.out and drawn:
        args.out.write_text(page(drawn, len(cases)), encoding="utf-8")
    return 0 if drawn and not any(it.proven for it in drawn) else 1


def _scenario(case: Mapping[str, Any], engine: str) -> str:
    return linux.scenario(case["case"], tuple(case["window"]), engine)


def _key(case: Mapping[str, Any]) -> tuple[str, str]:
    """Under which Linux's runs are kept."""
    return case["id"], digest(_scenario(case, "kernel"))


def main() -> int:
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
