"""Where packets begin to swing: the law's gain raised step by step, beside the plants' margins.

    python bench/onset.py [--seeds 4] [--case pi:200 …] [--figure FILE]

Ten loops of hundreds of marked flows, so many that TCP's own noise seldom takes the probability to
zero. At each gain an autoregression of the queue (least squares, all seeds together) gives the
decay of its slowest ringing. The plant with packets in trains (expected_queue) has a
curve of decay over gain; moved by as many decibels as bring it nearest to packets, as long as their
probability is not cut at zero, it has its zero where their ringing would stay: that gain is the
onset. Its interval is of the seeds (jackknife, 95 %). Prints the table of docs/evidence/theory.md,
"Onset of oscillation in packets"; --figure draws the first two cases. About ten minutes.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import t as student

import forebay
from forebay.control import closed_loop_poles as poles
from forebay.control import margins
from forebay.control.ack_clocking import AckClockedPlant
from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.expected_queue import expected, trains
from forebay.control.expected_queue import limit_cycle as cycle_of
from forebay.control.frequency_response import Terms
from forebay.control.link import Link
from forebay.control.loop import Loop
from forebay.report.plot import Plot
from forebay.report.style import COLOURS, STYLE

Floats = NDArray[np.float64]

#: Rate, RTT and set-point by the number of flows; packets of 1000 bytes.
LINKS = {
    1000: ("1Gbit/s", "100ms", "4000p"),
    600: ("200Mbit/s", "100ms", "1000p"),
    610: ("800Mbit/s", "40ms", "1000p"),
    200: ("200Mbit/s", "100ms", "1000p"),
}
CASES = [
    *((law, flows) for flows in (600, 610) for law in ("pi", "pi-pd", "red", "pie")),
    ("pi-pd", 200),
    ("pi", 1000),
]
#: RED as quick as its rule allows; PIE without what Linux adds to it.
GOALS = {"red": {"crossover": 0.5}}
ADDED = {"pie": [("restart_at_mark", "true"), ("mark_up_to", "0.5")]}
#: What scales the gain.
KNOBS = {"pi": ("a", "b"), "pi-pd": ("alpha",), "pie": ("alpha", "beta")}
#: Gains around the edge of the plant with trains, in dB.
STEPS_DB = np.arange(-2.5, 2.01, 0.5)
#: Periods of the swing that are seen of each seed, samples of a period, and those that the
#: autoregression looks back.
PERIODS, SAMPLES, ORDER = 100, 32, 48
#: Decays are fitted where p's deviation is at most this share of its mean: not yet cut at zero.
UNCUT = 1 / 3
#: Gains that count in any case.
LEAST = 4


@dataclass(frozen=True)
class At:
    """The measurement at one gain in dB: decay of the ringing per second (of all seeds, and without
    each), standard deviation of the queue, and that of p over its mean."""

    gain_db: float
    decay: float
    without: Floats
    deviation_pkts: float
    share: float


def scaled(one: Design, factor: float) -> list[tuple[str, str]]:
    """Return parameters with `factor` times the gain and the same equilibrium."""
    params = [*one.params, *ADDED.get(one.law, [])]
    if one.law != "red":
        knobs = KNOBS[one.law]
        return [(k, f"{float(v) * factor:.12g}" if k in knobs else v) for k, v in params]
    assert one.sawtooth is not None
    rest = float(one.sawtooth.model["queue_pkts"])
    given = dict(params)
    low, high = (float(given[key].removesuffix("p")) for key in ("min_th", "max_th"))
    given["min_th"] = f"{rest - (rest - low) / factor:.6f}p"
    given["max_th"] = f"{rest + (high - rest) / factor:.6f}p"
    return list(given.items())


def loop_at(one: Design, params: Sequence[tuple[str, str]]) -> Loop:
    found = AckClockedPlant(one.link.model(one.law, params)).loop_at(one.link.flows, one.link.rtt_s)
    assert found is not None
    return found


def ringing(series: Sequence[Floats], step_s: float, omega: float) -> complex:
    """The slowest root near `omega`, in 1/s, of an autoregression of all these series."""
    rows, wanted = [], []
    for one in series:
        y = one - one.mean()
        windows = np.lib.stride_tricks.sliding_window_view(y, ORDER + 1)
        rows.append(windows[:, -2::-1])
        wanted.append(windows[:, -1])
    a = np.linalg.lstsq(np.concatenate(rows), np.concatenate(wanted), rcond=None)[0]
    s = np.log(np.roots(np.concatenate([[1.0], -a])).astype(complex)) / step_s
    near = s[(s.imag > omega / 1.6) & (s.imag < omega * 1.6)]
    return complex(near[np.argmax(near.real)])


def measure(one: Design, gain_db: float, omega: float, seeds: int) -> At:
    """Measure the decay with packets of marked flows."""
    params = scaled(one, 10 ** (gain_db / 20))
    step_s = 2 * math.pi / omega / SAMPLES
    start_s = 20 + 12 * math.pi / omega
    end_s = start_s + PERIODS * 2 * math.pi / omega
    text = replace(one, params=params).toml()
    text = text.replace('duration = "60s"', f'duration = "{end_s:.2f}s"')
    text = text.replace('["20s", "60s"]', f'["{start_s:.2f}s", "{end_s:.2f}s"]')
    text = text.replace("[bottleneck]", "[bottleneck]\necn = true")
    text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true')
    found = forebay.run(text, seeds=seeds).samples
    series, queues, shares = [], [], []
    for _, group in found.filter(found["time_s"] >= start_s).group_by("seed", maintain_order=True):
        time_s, queue = group["time_s"].to_numpy(), group["queue_pkts"].to_numpy().astype(float)
        p = group["p"].to_numpy()
        even = np.arange(time_s[0], time_s[-1], step_s)
        series.append(np.interp(even, time_s, queue))
        queues.append(queue.var())
        shares.append(p.std() / p.mean())
    left = [
        ringing([*series[:i], *series[i + 1 :]], step_s, omega).real for i in range(len(series))
    ]
    return At(
        gain_db,
        ringing(series, step_s, omega).real,
        np.array(left),
        math.sqrt(float(np.mean(queues))),
        float(np.mean(shares)),
    )


def decays(one: Design, gains_db: Floats, plant: Callable[[Loop], Terms]) -> Floats:
    """Return the decays of the slowest root near the frequency of oscillation."""
    omega = loop_at(one, scaled(one, 1.0)).margins.phase_crossover_rad_s
    found = []
    for gain_db in gains_db:
        all_roots = poles.roots(plant(loop_at(one, scaled(one, 10 ** (gain_db / 20)))))
        near = [s.real for s in all_roots if omega / 1.6 < s.imag < omega * 1.6]
        found.append(max(near, default=math.nan))
    return np.array(found)


def onset(one: Design, seen: Sequence[At]) -> tuple[float, float]:
    """Return the gain in dB at which the packets' decays reach zero, and half of its interval."""
    used = [at for i, at in enumerate(seen) if at.share <= UNCUT or i < LEAST]
    db = np.array([at.gain_db for at in used])
    edge = edge_db(loop_at(one, scaled(one, 1.0)))
    fine = np.arange(edge - 6, edge + 3.01, 0.5)
    curve = decays(one, fine, trains)

    def zero(found: Floats) -> float:
        return edge + float(
            minimize_scalar(
                lambda shift: float(((found - np.interp(db - shift, fine, curve)) ** 2).sum()),
                bounds=(-3, 3),
                method="bounded",
            ).x
        )

    seeds = len(used[0].without)
    each = np.array([zero(np.array([at.without[i] for at in used])) for i in range(seeds)])
    error = math.sqrt((seeds - 1) / seeds * float(((each - each.mean()) ** 2).sum()))
    return zero(np.array([at.decay for at in used])), float(student.ppf(0.975, seeds - 1)) * error


def edge_db(loop: Loop) -> float:
    """Return the gain margin in dB of the plant with packets in trains."""
    t = trains(loop)
    return margins.gain_db(t, margins.grid(t, loop.highest_rad_s), margins.stable(t))


def study(law: str, flows: int, seeds: int) -> tuple[Design, list[At]]:
    rate, rtt, target = LINKS[flows]
    one = design(
        law,
        Link(rate, rtt, flows=flows, buffer="16000p"),
        target=target,
        overrides=GOALS.get(law, {}),
    )
    loop = loop_at(one, scaled(one, 1.0))
    omega = loop.margins.phase_crossover_rad_s
    seen = [measure(one, edge_db(loop) + float(step), omega, seeds) for step in STEPS_DB]
    return one, seen


def draw(cases: Sequence[tuple[Design, Sequence[At]]], path: str) -> None:
    """Decay and deviation over gain, with theory's lines."""
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(7.6, 2.9 * len(cases)), layout="constrained")
        for row, (one, seen) in zip(
            figure.subplots(len(cases), 2, squeeze=False), cases, strict=True
        ):
            db = np.array([one.gain_db for one in seen])
            fine = np.linspace(db[0] - 0.3, db[-1] + 0.3, 25)
            left, right = row
            for words, colour, dash, of in (
                ("sawtooth plant", COLOURS[1], "--", lambda at: at.terms),
                ("with trains", COLOURS[2], "-", trains),
            ):
                left.plot(fine, decays(one, fine, of), dash, color=colour, label=words)
            for flag, fill in ((True, COLOURS[0]), (False, "none")):
                shown = [at for at in seen if (at.share <= UNCUT) == flag]
                left.plot(
                    [at.gain_db for at in shown], [at.decay for at in shown], "o",
                    color=COLOURS[0], markerfacecolor=fill,
                    label="packets" if flag else "packets, p cut at zero",
                )  # fmt: skip
            zero, half = onset(one, seen)
            left.axvspan(zero - half, zero + half, color=COLOURS[0], alpha=0.15, linewidth=0)
            left.axhline(0, color="#222222", linewidth=1.0)
            left.set(xlabel="Gain over the design's [dB]", ylabel="Decay of the ringing [1/s]")
            left.set_title(f"{one.law}, {one.link.rate}, {one.link.flows:g} flows")
            left.legend(fontsize=7)
            stays, swings = [], []
            for gain in fine:
                there = loop_at(one, scaled(one, 10 ** (gain / 20)))
                moves, swing = expected(there), cycle_of(there)
                stays.append(moves.deviation_pkts if moves else math.nan)
                swings.append(swing.amplitude_pkts / math.sqrt(2) if swing else math.nan)
            right.plot(fine, stays, color=COLOURS[2], label="TCP's noise, predicted")
            right.plot(fine, swings, "--", color=COLOURS[1], label="limit cycle, predicted")
            right.plot(
                db, [at.deviation_pkts for at in seen], "o", color=COLOURS[0], label="packets"
            )
            right.set(
                xlabel="Gain over the design's [dB]", ylabel="Deviation [packets]", ylim=(0, None)
            )
            right.legend(fontsize=7)
        figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--case", action="append", help="law:flows")
    parser.add_argument("--figure")
    given = parser.parse_args()
    wanted = [
        (law, int(flows)) for law, _, flows in (one.partition(":") for one in given.case or [])
    ]
    print(
        "| law | link, flows | published | sawtooth | with trains | packets | deviation 2.5 dB "
        "below the edge with trains, at it, 2 dB above |\n|---|---|---|---|---|---|---|"
    )
    drawn = []
    for law, flows in wanted or CASES:
        one, seen = study(law, flows, given.seeds)
        drawn.append((one, seen))
        loop = loop_at(one, scaled(one, 1.0))
        published = f"{one.margins.gain_db:.1f}" if one.margins else "–"
        zero, half = onset(one, seen)
        moved = [seen[0], seen[int(np.argmin(np.abs(STEPS_DB)))], seen[-1]]
        print(
            f"| {law} | {one.link.rate}, {one.link.rtt}, {flows} | {published} "
            f"| {loop.margins.gain_db:.1f} | {edge_db(loop):.1f} | {zero:.1f} ± {half:.1f} "
            f"| {', '.join(f'{at.deviation_pkts:.0f}' for at in moved)} |",
            flush=True,
        )
        for at in seen:
            print(
                f"#   {at.gain_db:.2f} dB: decay {at.decay:.3f} /s, deviation "
                f"{at.deviation_pkts:.1f}, p {at.share:.2f}",
                flush=True,
            )
        if given.figure and len(drawn) == 2:
            draw(drawn, given.figure)


if __name__ == "__main__":
    main()
