"""Convert a scenario of the reference's ns-2 runs to a Forebay scenario.

`ns2-dumbbell.tcl` of the reference names its parameters; a case of `ns2.json` lists those that
differ from the defaults of the script. This module expresses both in TOML.

Run as a program, it makes a reference: it runs the cases of a file in real ns-2 and writes the
figures into the file. `ns2.json` next to this file holds cases that the reference does not have.

    python bench/ns2.py ../shared/reference/ns2-dumbbell.tcl bench/ns2.json
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULTS: dict[str, Any] = {
    "aqm": "DropTail", "bw": 45e6, "bdelay": 40, "buf": 1125, "pkt": 500, "topo": "perflow",
    "rtts": "100", "accbw": 100e6, "npairs": 1, "tcp": "Reno", "window": 10000, "ecn": 0,
    "minrto": 0.2, "delack": 0, "nftp": 100, "start0": 0, "start1": 1, "nstop": 0, "stop0": 0,
    "nrestart": 0, "restart0": 0, "restart1": 1, "mice": 0, "T": 100,
    "min": 15, "max": 785, "maxp": 0.01, "wq": 0.002, "gentle": 1, "adaptive": 0,
    "alpha": 0.01, "beta": 0.9, "interval": 0.5, "mark": 0, "redwait": 1,
    "pia": 1.822e-5, "pib": 1.816e-5, "qref": 200, "piw": 160, "gamma": 0.98,
}  # fmt: skip

RECOVERY = {"Reno": "reno", "Newreno": "newreno", "Sack1": "sack"}


def scenario(params: Mapping[str, Any], window_s: tuple[float, float]) -> str:
    """Return the TOML of a case, measured over `window_s`."""
    p = {**DEFAULTS, **params}
    # ns-2's DropTail holds one packet less than its limit (reference, note 2).
    buffer = int(p["buf"]) - (p["aqm"] == "DropTail")
    return "\n".join(
        [
            f'title = "ns-2: {p["aqm"]}, {p["nftp"]} flows"',
            f'duration = "{p["T"]}s"',
            f'measure = ["{window_s[0]}s", "{window_s[1]}s"]',
            f'target = "{target_pkts(p)}p"',
            "[bottleneck]",
            f'rate = "{float(p["bw"]):.0f}bit/s"',
            f'delay = "{p["bdelay"]}ms"',
            f'buffer = "{buffer}p"',
            f"ecn = {'true' if p['mark'] else 'false'}",
            *(line for block in traffic(p) for line in block),
            "[[law]]",
            *law(p),
            "",
        ]
    )


def target_pkts(p: Mapping[str, Any]) -> float:
    """Return the set-point against which the reference computes QACD."""
    if p["aqm"] == "PI":
        return float(p["qref"])
    return float(min(400 if p["pkt"] == 500 else 200, p["buf"] // 2))


def law(p: Mapping[str, Any]) -> list[str]:
    """Return the lines of `[[law]]`."""
    if p["aqm"] == "DropTail":
        return ['kind = "droptail"']
    if p["aqm"] == "PI":
        return [
            'kind = "pi"',
            f'target = "{p["qref"]}p"',
            f"a = {float(p['pia'])}",
            f"b = {float(p['pib'])}",
            f'interval = "{1e9 / p["piw"]:.0f}ns"',
        ]
    if p["aqm"] == "Vq":
        # ns-2 adapts to the packets it accepts.
        return ['kind = "avq"', f"gamma = {p['gamma']}", "count_drops = false"]
    red = [
        f'min_th = "{p["min"]}p"',
        f'max_th = "{p["max"]}p"',
        f"max_p = {p['maxp']}",
        f"w_q = {float(p['wq'])}",
        f"gentle = {'true' if p['gentle'] else 'false'}",
        f"wait = {'true' if p['redwait'] else 'false'}",
    ]
    if not p["adaptive"]:
        return ['kind = "red"', *red]
    return [
        'kind = "ared"',
        *red,
        f"alpha = {p['alpha']}",
        f"beta = {p['beta']}",
        f'interval = "{p["interval"]}s"',
    ]


def traffic(p: Mapping[str, Any]) -> list[list[str]]:
    """Return one block of lines per `[[traffic]]`."""
    common = [
        f'tcp = "{RECOVERY[p["tcp"]]}"',
        f'packet = "{p["pkt"]}B"',
        # The packet size of ns-2 includes headers.
        'header = "0B"',
        "rtt = [" + ", ".join(f'"{rtt}ms"' for rtt in str(p["rtts"]).split()) + "]",
        f'access = "{float(p["accbw"]):.0f}bit/s"',
        f'window = "{p["window"]}p"',
        f'min_rto = "{p["minrto"]}s"',
        f"ecn = {'true' if p['ecn'] else 'false'}",
        f"delayed_ack = {'true' if p['delack'] else 'false'}",
    ]
    if p["topo"] == "pairs":
        common += [f"pairs = {p['npairs']}", 'group = "hosts"']
    start = f'start = {{ uniform = ["{p["start0"]}s", "{p["start1"]}s"] }}'

    def block(kind: str, flows: int, *lines: str) -> list[str]:
        return ["[[traffic]]", f'kind = "{kind}"', f"flows = {flows}", *common, *lines]

    blocks = [block("ftp", p["nftp"] - p["nstop"], start)]
    if p["nstop"]:
        # The script stops all of them at one time.
        assert p["stop0"] == p["stop1"]
        blocks.append(block("ftp", p["nstop"], start, f'stop = "{p["stop0"]}s"'))
    if p["nrestart"]:
        restart = f'start = {{ uniform = ["{p["restart0"]}s", "{p["restart1"]}s"] }}'
        blocks.append(block("ftp", p["nrestart"], restart))
    if p["mice"]:
        blocks.append(block("mice", p["mice"] * p["npairs"], "ns2_reset = true"))
    return blocks


@dataclass(frozen=True)
class Ns2Run:
    """The output of one run of real ns-2.

    Attributes
    ----------
    queue : list[tuple[float, int]]
        Times in seconds, and packets in the queue.
    counters : list[tuple[float, ...]]
        Cumulative counters per second: time in seconds; packets arrived, departed, dropped, dropped
        early, marked; bytes arrived, departed, dropped.
    user_cpu_s : float
        Processor time in seconds.
    """

    queue: list[tuple[float, int]]
    counters: list[tuple[float, ...]]
    user_cpu_s: float

    def figures(self, window_s: tuple[float, float], bw_bps: float) -> dict[str, float]:
        """Return the figures of `ns2.json` over (start, end]."""
        start, end = window_s
        queue = [q for t, q in self.queue if start < t <= end]
        first, last = (
            next(row for row in self.counters if row[0] >= edge - 1e-9) for edge in window_s
        )
        arrivals, _, drops, early, marks, _, sent_bytes, _ = (
            b - a for a, b in zip(first[1:], last[1:], strict=True)
        )
        return {
            "mean": statistics.fmean(queue),
            "std": statistics.pstdev(queue),
            "drop_rate": drops / arrivals,
            "early_drop_rate": early / arrivals,
            "mark_rate": marks / arrivals,
            "util": sent_bytes * 8 / bw_bps / (end - start),
        }


def run(script: Path, params: Mapping[str, Any], seed: int) -> Ns2Run:
    """Run the reference's script in real ns-2 (Debian package `ns2`)."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        arguments = [f"{k}={v}" for k, v in {**params, "out": trace, "seed": seed}.items()]
        done = subprocess.run(
            ["bash", "-c", 'TIMEFORMAT="%U"; time ns "$@"', "ns", str(script), *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        user_cpu_s = float(re.findall(r"^[\d.]+$", done.stderr, re.M)[-1])
        lines = [line.split() for line in trace.read_text().splitlines()]
    return Ns2Run(
        queue=[(float(x[1]), int(x[2])) for x in lines if x[0] == "Q"],
        counters=[tuple(map(float, x[1:10])) for x in lines if x[0] == "C"],
        user_cpu_s=user_cpu_s,
    )


def fill(case: dict[str, Any], script: Path, seeds: list[int]) -> None:
    """Run a case in real ns-2, and store one value per seed in each figure of its windows."""
    runs = [run(script, case["params"], seed) for seed in seeds]
    bw_bps = float({**DEFAULTS, **case["params"]}["bw"])
    for window in case["windows"]:
        measured = [ran.figures((window["t0"], window["t1"]), bw_bps) for ran in runs]
        for key in measured[0]:
            window[key] = [round(figures[key], 6) for figures in measured]


def text(cases: list[dict[str, Any]]) -> str:
    """Return JSON with one case per line."""
    return "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n"


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Runs cases in real ns-2 (Debian's ns2).")
    parser.add_argument("script", type=Path, help="ns2-dumbbell.tcl")
    parser.add_argument("cases", type=Path, help="cases, whose figures are written into it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 4711, 90210])
    parser.add_argument("--only", default="", help="cases whose name contains this")
    args = parser.parse_args()
    cases = json.loads(args.cases.read_text())
    for case in cases:
        if args.only in case["id"]:
            fill(case, args.script, args.seeds)
            args.cases.write_text(text(cases))


if __name__ == "__main__":
    main()
