"""Compare UDP-Prague, the L4S team's own sender, with the simulated Prague under DualPI2.

    make -C FOLDER            # UDP-Prague's source: udp_prague_sender and udp_prague_receiver
    python bench/udp_prague.py --run FOLDER
    python bench/udp_prague.py

UDP-Prague runs unchanged on the real kernel in virtual time (`--engine kernel`), with the kernel's
own `dualpi2` and CUBIC, and its numbers are kept in udp_prague.json; Prague is simulated. The
program prints the table of docs/evidence/programs.md. The exit status is 1 if a figure is outside
its tolerance.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars
from beside import Row, agree, count_within, progress, table

import forebay
from forebay.comparison.compare import Agreement, Tolerance
from forebay.scenario.builder import toml

THEIRS = Path(__file__).with_name("udp_prague.json")
PROGRAMS = ("udp_prague_sender", "udp_prague_receiver")
#: Cases of a rate in Mbit/s, a round trip in ms and a number of flows, which run alone and next to
#: as many flows of CUBIC; every pair of values occurs.
ALONE = [
    (4, 5, 1), (4, 20, 4), (4, 80, 8),
    (20, 5, 4), (20, 20, 8), (20, 80, 1),
    (100, 5, 8), (100, 20, 1), (100, 80, 4),
]  # fmt: skip
BESIDE = [
    (4, 5, 4), (4, 20, 1), (4, 80, 2),
    (20, 5, 1), (20, 20, 2), (20, 80, 4),
    (100, 5, 2), (100, 20, 4), (100, 80, 1),
]  # fmt: skip

TOLERANCES = (
    Tolerance("rate", "Prague (Mbit/s)", share=0.10, spreads=2, digits=2, scale=1e-6),
    Tolerance("others", "CUBIC (Mbit/s)", share=0.10, spreads=2, digits=2, scale=1e-6),
    Tolerance("delay", "delay of Prague (ms)", share=0.10, least=5e-4, spreads=2, scale=1e3),
    Tolerance("marks", "marks of Prague (%)", share=0.15, spreads=2, digits=2, scale=100),
)

LINK = """\
duration = "20s"
measure  = ["8s", "20s"]

[bottleneck]
rate   = "{rate}Mbit/s"
buffer = "10000p"
burst  = "3000B"
ecn    = true
rate_back = "1Tbit/s"

[[law]]
kind = "dualpi2"
"""
#: A packet is 1400 bytes of payload with UDP's, IP's and Ethernet's headers.
PRAGUE = {"label": "prague", "packet": "1442B", "header": "42B"}
PROGRAM = PRAGUE | {
    "kind": "program",
    "server": "./udp_prague_sender -p 8080",
    "client": "./udp_prague_receiver -a $FOREBAY_SERVER -p 8080 -c",
    "files": list(PROGRAMS),
}
OURS = PRAGUE | {"kind": "ftp", "tcp": "prague", "ecn": "l4s", "gso": False}
CUBIC = {
    "kind": "ftp",
    "label": "cubic",
    "tcp": "linux-cubic",
    "packet": "1514B",
    "header": "66B",
    "gso": False,
    "initial_window": "10p",
    "delayed_ack": True,
    "ack_delay": "40ms",
    "quick_acks": 16,
}


def scenario(case: tuple[int, int, int], sender: dict[str, Any], beside: bool) -> str:
    """Return the scenario of a case."""
    rate, rtt, flows = case
    path = {"access": "1Tbit/s", "rtt": f"{rtt}ms", "start": {"uniform": ["0s", "0.5s"]}}
    senders = [sender, CUBIC] if beside else [sender]
    tables = {"traffic": [traffic | path | {"flows": flows} for traffic in senders]}
    return LINK.format(rate=rate) + toml(tables)


def figures(text: str, folder: Path, seeds: int, engine: str) -> dict[str, list[float]]:
    """Return the figures of each seed's run."""
    path = folder / "case.toml"
    path.write_text(text)
    result = forebay.run(path, seeds=seeds, engine=engine)
    if result.traffic.is_empty():
        frame = result.metrics.with_columns(others=polars.lit(0.0))
        mine = frame
    else:
        mine = result.traffic.filter(label="prague")
        frame = result.traffic.filter(label="cubic")
        frame = frame.with_columns(others=polars.col("goodput_bps"))
    return {
        "rate": mine["goodput_bps"].to_list(),
        "others": frame["others"].to_list(),
        "delay": mine["delay_mean_s"].to_list(),
        "marks": mine["mark_rate"].to_list(),
    }


def compare(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> list[Agreement]:
    """Compare the simulated figures with those of UDP-Prague."""
    return [Agreement(rule, ours[rule.metric], theirs[rule.metric]) for rule in TOLERANCES]


def name(case: tuple[int, int, int], beside: bool) -> str:
    """Return the name of a case."""
    rate, rtt, flows = case
    return f"{rate} Mbit/s, {rtt} ms, {flows}" + (f" beside {flows}" if beside else "")


def main() -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="run theirs anew: where both programs are")
    parser.add_argument(
        "--seeds", type=int, default=2, help="of theirs; ours have four times these"
    )
    args = parser.parse_args()
    theirs = {} if args.run else json.loads(THEIRS.read_text())
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for program in PROGRAMS if args.run else ():
            shutil.copy2(args.run / program, folder)
        for case, beside in [
            *((case, False) for case in ALONE),
            *((case, True) for case in BESIDE),
        ]:
            title = name(case, beside)
            if args.run:
                text = scenario(case, PROGRAM, beside)
                theirs[title] = figures(text, folder, args.seeds, "kernel")
            ours = figures(scenario(case, OURS, beside), folder, 4 * args.seeds, "packets")
            compared = compare(ours, theirs[title])
            rows.append((title, compared))
            print(progress(*rows[-1]), file=sys.stderr, flush=True)
    if args.run:
        THEIRS.write_text(json.dumps(theirs, indent=1) + "\n")
    print(table(rows, TOLERANCES))
    print(count_within(rows))
    return 0 if all(agree(row) for _, row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
