"""Measure the gain at which packets begin to oscillate, and compare it with the plants' margins.

    python bench/onset.py [--seeds 4] [--case pi:200 …] [--figure FILE]

There are ten loops of hundreds of marked flows, so many that TCP's own noise seldom takes the
probability to zero. At each gain, an autoregression of the queue (least squares, all seeds
together) gives the decay of its slowest oscillation. The plant with packets in trains
(expected_queue) has a curve of decay over gain. This curve is shifted by the number of decibels
that brings it nearest to the packets, as long as their probability is not cut off at zero; its zero
is the onset. The interval of the onset comes from the seeds (jackknife, 95 %). The program prints
the table of docs/evidence/theory.md, "Onset in packets"; --figure draws the first two cases.
It takes about ten minutes on one core.
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
#: RED is as fast as its rule allows; PIE is without the additions of Linux.
GOALS = {"red": {"crossover": 0.5}}
ADDED = {"pie": [("restart_at_mark", "true"), ("mark_up_to", "0.5")]}
#: The parameters that scale the gain.
KNOBS = {"pi": ("a", "b"), "pi-pd": ("alpha",), "pie": ("alpha", "beta")}
#: Gains relative to the limit of the plant with trains, in dB.
STEPS_DB = np.arange(-2.5, 2.01, 0.5)
#: Periods of the oscillation per seed, samples per period, and order of the autoregression.
PERIODS, SAMPLES, ORDER = 100, 32, 48
#: Decays are fitted if the deviation of p is at most this share of its mean, so that p is not cut
#: off at zero.
UNCUT = 1 / 3
#: Number of gains that always count.
LEAST = 4


@dataclass(frozen=True)
class At:
    """The measurement at one gain.

    Attributes
    ----------
    gain_db : float
        The gain in dB.
    decay : float
        Decay of the oscillation per second, over all seeds.
    without : Floats
        The same without each seed.
    deviation_pkts : float
        Standard deviation of the queue in packets.
    share : float
        Standard deviation of p relative to its mean.
    """

    gain_db: float
    decay: float
    without: Floats
    deviation_pkts: float
    share: float


def scaled(design_: Design, factor: float) -> list[tuple[str, str]]:
    """Return the parameters of a design with `factor` times the gain at the same equilibrium."""
    params = [*design_.params, *ADDED.get(design_.law, [])]
    if design_.law != "red":
        knobs = KNOBS[design_.law]
        return [(k, f"{float(v) * factor:.12g}" if k in knobs else v) for k, v in params]
    assert design_.sawtooth is not None
    rest = float(design_.sawtooth.model["queue_pkts"])
    values = dict(params)
    low, high = (float(values[key].removesuffix("p")) for key in ("min_th", "max_th"))
    values["min_th"] = f"{rest - (rest - low) / factor:.6f}p"
    values["max_th"] = f"{rest + (high - rest) / factor:.6f}p"
    return list(values.items())


def loop_at(design_: Design, params: Sequence[tuple[str, str]]) -> Loop:
    """Return the loop of a design with these parameters."""
    loop = AckClockedPlant(design_.link.model(design_.law, params)).loop_at(
        design_.link.flows, design_.link.rtt_s
    )
    assert loop is not None
    return loop


def ringing(series: Sequence[Floats], step_s: float, omega: float) -> complex:
    """Return the slowest root near `omega`, in 1/s, of an autoregression of all series."""
    rows, targets = [], []
    for queue in series:
        y = queue - queue.mean()
        windows = np.lib.stride_tricks.sliding_window_view(y, ORDER + 1)
        rows.append(windows[:, -2::-1])
        targets.append(windows[:, -1])
    a = np.linalg.lstsq(np.concatenate(rows), np.concatenate(targets), rcond=None)[0]
    s = np.log(np.roots(np.concatenate([[1.0], -a])).astype(complex)) / step_s
    near = s[(s.imag > omega / 1.6) & (s.imag < omega * 1.6)]
    return complex(near[np.argmax(near.real)])


def measure(design_: Design, gain_db: float, omega: float, seeds: int) -> At:
    """Measure packets of marked flows at one gain."""
    params = scaled(design_, 10 ** (gain_db / 20))
    step_s = 2 * math.pi / omega / SAMPLES
    start_s = 20 + 12 * math.pi / omega
    end_s = start_s + PERIODS * 2 * math.pi / omega
    text = replace(design_, params=params).toml()
    text = text.replace('duration = "60s"', f'duration = "{end_s:.2f}s"')
    text = text.replace('["20s", "60s"]', f'["{start_s:.2f}s", "{end_s:.2f}s"]')
    text = text.replace("[bottleneck]", "[bottleneck]\necn = true")
    text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true')
    samples = forebay.run(text, seeds=seeds).samples
    series, queues, shares = [], [], []
    for _, group in samples.filter(samples["time_s"] >= start_s).group_by(
        "seed", maintain_order=True
    ):
        time_s, queue = group["time_s"].to_numpy(), group["queue_pkts"].to_numpy().astype(float)
        p = group["p"].to_numpy()
        even = np.arange(time_s[0], time_s[-1], step_s)
        series.append(np.interp(even, time_s, queue))
        queues.append(queue.var())
        shares.append(p.std() / p.mean())
    decays_without = [
        ringing([*series[:i], *series[i + 1 :]], step_s, omega).real for i in range(len(series))
    ]
    return At(
        gain_db,
        ringing(series, step_s, omega).real,
        np.array(decays_without),
        math.sqrt(float(np.mean(queues))),
        float(np.mean(shares)),
    )


def decays(design_: Design, gains_db: Floats, plant: Callable[[Loop], Terms]) -> Floats:
    """Return the decay at each gain: the slowest root near the frequency of the oscillation."""
    omega = loop_at(design_, scaled(design_, 1.0)).margins.phase_crossover_rad_s
    decays_ = []
    for gain_db in gains_db:
        all_roots = poles.roots(plant(loop_at(design_, scaled(design_, 10 ** (gain_db / 20)))))
        near = [s.real for s in all_roots if omega / 1.6 < s.imag < omega * 1.6]
        decays_.append(max(near, default=math.nan))
    return np.array(decays_)


def onset(design_: Design, measurements: Sequence[At]) -> tuple[float, float]:
    """Return the gain at which packets do not decay, in dB, and the half width of its interval."""
    used = [at for i, at in enumerate(measurements) if at.share <= UNCUT or i < LEAST]
    db = np.array([at.gain_db for at in used])
    edge = edge_db(loop_at(design_, scaled(design_, 1.0)))
    fine = np.arange(edge - 6, edge + 3.01, 0.5)
    curve = decays(design_, fine, trains)

    def zero(decays_: Floats) -> float:
        return edge + float(
            minimize_scalar(
                lambda shift: float(((decays_ - np.interp(db - shift, fine, curve)) ** 2).sum()),
                bounds=(-3, 3),
                method="bounded",
            ).x
        )

    seeds = len(used[0].without)
    zeros = np.array([zero(np.array([at.without[i] for at in used])) for i in range(seeds)])
    error = math.sqrt((seeds - 1) / seeds * float(((zeros - zeros.mean()) ** 2).sum()))
    return zero(np.array([at.decay for at in used])), float(student.ppf(0.975, seeds - 1)) * error


def edge_db(loop: Loop) -> float:
    """Return the gain margin of the plant with packets in trains, in dB."""
    t = trains(loop)
    return margins.gain_db(t, margins.grid(t, loop.highest_rad_s), margins.stable(t))


def study(law: str, flows: int, seeds: int) -> tuple[Design, list[At]]:
    """Return a design, and the measurements at all gains."""
    rate, rtt, target = LINKS[flows]
    design_ = design(
        law,
        Link(rate, rtt, flows=flows, buffer="16000p"),
        target=target,
        overrides=GOALS.get(law, {}),
    )
    loop = loop_at(design_, scaled(design_, 1.0))
    omega = loop.margins.phase_crossover_rad_s
    measurements = [
        measure(design_, edge_db(loop) + float(step), omega, seeds) for step in STEPS_DB
    ]
    return design_, measurements


def draw(cases: Sequence[tuple[Design, Sequence[At]]], path: str) -> None:
    """Draw decay and deviation over gain, with the lines of theory."""
    with mpl.rc_context(STYLE):
        figure = Plot(figsize=(7.6, 2.9 * len(cases)), layout="constrained")
        for row, (design_, measurements) in zip(
            figure.subplots(len(cases), 2, squeeze=False), cases, strict=True
        ):
            db = np.array([design_.gain_db for design_ in measurements])
            fine = np.linspace(db[0] - 0.3, db[-1] + 0.3, 25)
            decay_axes, deviation_axes = row
            for words, colour, dash, of in (
                ("sawtooth plant", COLOURS[1], "--", lambda at: at.terms),
                ("with trains", COLOURS[2], "-", trains),
            ):
                decay_axes.plot(fine, decays(design_, fine, of), dash, color=colour, label=words)
            for flag, fill in ((True, COLOURS[0]), (False, "none")):
                points = [at for at in measurements if (at.share <= UNCUT) == flag]
                decay_axes.plot(
                    [at.gain_db for at in points], [at.decay for at in points], "o",
                    color=COLOURS[0], markerfacecolor=fill,
                    label="packets" if flag else "packets, p cut at zero",
                )  # fmt: skip
            zero, half = onset(design_, measurements)
            decay_axes.axvspan(zero - half, zero + half, color=COLOURS[0], alpha=0.15, linewidth=0)
            decay_axes.axhline(0, color="#222222", linewidth=1.0)
            decay_axes.set(
                xlabel="Gain over the design's [dB]", ylabel="Decay of the ringing [1/s]"
            )
            decay_axes.set_title(
                f"{design_.law}, {design_.link.rate}, {design_.link.flows:g} flows"
            )
            decay_axes.legend(fontsize=7)
            stays, swings = [], []
            for gain in fine:
                loop = loop_at(design_, scaled(design_, 10 ** (gain / 20)))
                moves, swing = expected(loop), cycle_of(loop)
                stays.append(moves.deviation_pkts if moves else math.nan)
                swings.append(swing.amplitude_pkts / math.sqrt(2) if swing else math.nan)
            deviation_axes.plot(fine, stays, color=COLOURS[2], label="TCP's noise, predicted")
            deviation_axes.plot(
                fine, swings, "--", color=COLOURS[1], label="limit cycle, predicted"
            )
            deviation_axes.plot(
                db,
                [at.deviation_pkts for at in measurements],
                "o",
                color=COLOURS[0],
                label="packets",
            )
            deviation_axes.set(
                xlabel="Gain over the design's [dB]", ylabel="Deviation [packets]", ylim=(0, None)
            )
            deviation_axes.legend(fontsize=7)
        figure.savefig(path, dpi=110)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--case", action="append", help="law:flows")
    parser.add_argument("--figure")
    options = parser.parse_args()
    cases = [
        (law, int(flows))
        for law, _, flows in (design_.partition(":") for design_ in options.case or [])
    ]
    print(
        "| law | link, flows | published | sawtooth | with trains | packets | deviation 2.5 dB "
        "below the edge with trains, at it, 2 dB above |\n|---|---|---|---|---|---|---|"
    )
    drawn = []
    for law, flows in cases or CASES:
        design_, measurements = study(law, flows, options.seeds)
        drawn.append((design_, measurements))
        loop = loop_at(design_, scaled(design_, 1.0))
        published = f"{design_.margins.gain_db:.1f}" if design_.margins else "–"
        zero, half = onset(design_, measurements)
        moved = [measurements[0], measurements[int(np.argmin(np.abs(STEPS_DB)))], measurements[-1]]
        print(
            f"| {law} | {design_.link.rate}, {design_.link.rtt}, {flows} | {published} "
            f"| {loop.margins.gain_db:.1f} | {edge_db(loop):.1f} | {zero:.1f} ± {half:.1f} "
            f"| {', '.join(f'{at.deviation_pkts:.0f}' for at in moved)} |",
            flush=True,
        )
        for at in measurements:
            print(
                f"#   {at.gain_db:.2f} dB: decay {at.decay:.3f} /s, deviation "
                f"{at.deviation_pkts:.1f}, p {at.share:.2f}",
                flush=True,
            )
        if options.figure and len(drawn) == 2:
            draw(drawn, options.figure)


if __name__ == "__main__":
    main()
