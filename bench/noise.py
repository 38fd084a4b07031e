"""Measure what TCP's own losses do to a queue: predicted and in packets.

    python bench/noise.py [--seeds 5] [--law pi …] [--cycles]

Twelve links run under seven laws. The program prints the tables of docs/evidence/theory.md: the
standard deviation of the queue and the goodput that `forebay design` predicts, and those of
packets, for flows that are marked and for flows of SACK that lose packets. With --cycles it prints
oscillations of loops with too much gain: predicted, in the fluid and in packets. It takes about
five minutes on one core.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import replace

import numpy as np

import forebay
from forebay import fluid
from forebay.control.ack_clocking import AckClockedEquilibrium
from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.link import Link

#: Rate, RTT, flows and set-point; packets of 1000 bytes.
LINKS = [
    ("30Mbit/s", "200ms", 60, "200p"),
    ("15Mbit/s", "100ms", 20, "60p"),
    ("10Mbit/s", "50ms", 10, "30p"),
    ("20Mbit/s", "80ms", 40, "60p"),
    ("50Mbit/s", "40ms", 30, "100p"),
    ("100Mbit/s", "20ms", 50, "80p"),
    ("100Mbit/s", "100ms", 100, "400p"),
    ("5Mbit/s", "200ms", 8, "50p"),
    ("8Mbit/s", "30ms", 5, "20p"),
    ("200Mbit/s", "50ms", 300, "400p"),
    ("40Mbit/s", "150ms", 25, "250p"),
    ("2Mbit/s", "100ms", 4, "15p"),
]
LAWS = ["pi", "rem", "pid", "pi-pd", "p-avg", "pie", "red"]
#: Oscillating loops: law, parameters that scale its gain, and factor.
SWINGING = [("pi", ("a", "b"), 2), ("pi", ("a", "b"), 3), ("pi-pd", ("alpha",), 6)]
#: Duration of the measurement in seconds after three settling times, and latest start.
MEASURED_S, LONGEST_S = 60.0, 600.0


def packets(design_: Design, seeds: int, *, marks: bool) -> tuple[float, float, float]:
    """Return deviation and mean of the queue in packets, and the share of the link that is used."""
    loop = design_.sawtooth
    settling_s = loop.settling_s if loop is not None and loop.stable else 10.0
    start_s = min(30.0 + 3 * settling_s, LONGEST_S)
    text = design_.toml()
    text = text.replace('duration = "60s"', f'duration = "{start_s + MEASURED_S:.0f}s"')
    text = text.replace('["20s", "60s"]', f'["{start_s:.0f}s", "{start_s + MEASURED_S:.0f}s"]')
    if marks:
        text = text.replace("[bottleneck]", "[bottleneck]\necn = true")
        text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true')
    else:
        text = text.replace('kind = "ftp"', 'kind = "ftp"\ntcp = "sack"')
    result = forebay.run(text, seeds=seeds)
    means = {row["metric"]: row["mean"] for row in result.summary().iter_rows(named=True)}
    late = result.samples.filter(result.samples["time_s"] >= start_s)
    runs = [group["queue_pkts"].to_numpy() for _, group in late.group_by("seed")]
    return (
        math.sqrt(float(np.mean([queue.var() for queue in runs]))),
        float(np.mean([queue.mean() for queue in runs])),
        means["goodput_bps"] / design_.link.rate_bps,
    )


def noise(laws: list[str], seeds: int) -> None:
    """Print the tables of deviation and goodput."""
    lines: dict[str, list[str]] = {"deviation": [], "goodput": []}
    ratios: dict[tuple[str, bool], list[float]] = {}
    for rate, rtt, flows, target in LINKS:
        cells: dict[str, list[str]] = {"deviation": [], "goodput": []}
        window = math.nan
        for law in laws:
            design_ = design(law, Link(rate, rtt, flows=flows), target=target)
            moves = design_.expected
            assert design_.sawtooth is not None
            window = float(
                AckClockedEquilibrium.at_probability(design_.sawtooth.point.probability).window_pkts
            )
            if moves is None or design_.sawtooth.settling_s > LONGEST_S / 3:
                cells["deviation"].append("–")
                cells["goodput"].append("–")
                continue
            predicted_and_measured = [f"{moves.deviation_pkts:.3g}"]
            used = [f"{100 * moves.goodput:.1f}"]
            for marks in (True, False):
                deviation, _, goodput = packets(design_, seeds, marks=marks)
                ratios.setdefault((law, marks), []).append(moves.deviation_pkts / deviation)
                predicted_and_measured.append(f"{deviation:.3g}")
                used.append(f"{100 * goodput:.1f}")
            cells["deviation"].append(
                ": ".join([predicted_and_measured[0], ", ".join(predicted_and_measured[1:])])
            )
            cells["goodput"].append(": ".join([used[0], ", ".join(used[1:])]))
        name = f"{rate.replace('Mbit/s', ' Mbit/s')}, {rtt.replace('ms', ' ms')}, {flows}"
        for key, values in cells.items():
            lines[key].append(" | ".join(["", name, f"{window:.0f}", *values, ""]).strip())
            print(lines[key][-1], flush=True)
    for key, rows in lines.items():
        print(f"\n{key}: predicted: with marks, with SACK")
        print("| " + " | ".join(["link, flows", "W", *laws]) + " |")
        print("|---" * (len(laws) + 2) + "|")
        print("\n".join(rows))
    print("\ndeviation predicted over packets: median (least to most), within 10 %")
    for (law, marks), values in ratios.items():
        near = sum(abs(ratio - 1) <= 0.1 for ratio in values)
        print(
            f"| {law} | {'marks' if marks else 'SACK'} | {np.median(values):.2f} "
            f"({min(values):.2f} to {max(values):.2f}) | {near} of {len(values)} |"
        )


def cycles(seeds: int) -> None:
    """Print the table of oscillations."""
    print("| law, gain | link, flows | predicted | fluid | packets |\n|---|---|---|---|---|")
    for law, knobs, factor in SWINGING:
        for rate, rtt, flows, target in LINKS:
            plain = design(law, Link(rate, rtt, flows=flows, buffer="3000p"), target=target)
            params = [
                (key, f"{float(value) * factor:.10g}" if key in knobs else value)
                for key, value in plain.params
            ]
            design_ = replace(plain, params=params)
            cycle, loop = design_.cycle, design_.sawtooth
            if cycle is None or loop is None:
                continue
            window = float(AckClockedEquilibrium.at_probability(loop.point.probability).window_pkts)
            numbers = {k: float(v) if v[-1].isdigit() else v for k, v in params}
            end_s = 60 + 60 * cycle.period_s
            trace = fluid.run(
                fluid.Model(
                    [fluid.Bottleneck(law, rate, 3000, params=numbers)],
                    [
                        fluid.Class(
                            flows, rtt, marks=True, sawtooth=True, initial_window_pkts=window
                        )
                    ],
                    f"{end_s:.2f}s",
                    sample="5ms",
                )
            )
            late = trace.time_s > 0.6 * end_s
            queue, time_s = trace.queue_pkts[0][late], trace.time_s[late]
            low, high = np.percentile(queue, [0.5, 99.5])
            up = np.flatnonzero(np.diff(np.signbit(queue - queue.mean()).astype(int)) < 0)
            period_s = float(np.diff(time_s[up]).mean()) if len(up) > 1 else math.nan
            deviation, _, _ = packets(design_, seeds, marks=True)
            print(
                f"| {law}, {factor} times | {rate}, {rtt}, {flows} "
                f"| ±{cycle.amplitude_pkts:.3g}, {cycle.period_s:.3g} s "
                f"| ±{(high - low) / 2:.3g}, {period_s:.3g} s "
                f"| ±{math.sqrt(2) * deviation:.3g} |",
                flush=True,
            )


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--law", action="append", choices=LAWS)
    parser.add_argument("--cycles", action="store_true")
    options = parser.parse_args()
    if options.cycles:
        cycles(options.seeds)
    else:
        noise(options.law or LAWS, options.seeds)


if __name__ == "__main__":
    main()
