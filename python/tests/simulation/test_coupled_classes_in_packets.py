"""Classic and L4S flows under a coupled law: packets and equations in time against the model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from designs import class_equilibria as both
from designs import coupled_design as made
from numpy.typing import NDArray

from forebay.control.designed_law import Design
from forebay.control.loop import Loop
from forebay.experiment.result import run


@pytest.mark.parametrize("tcp", ["prague", "dctcp"])
@pytest.mark.parametrize("l4s_flows", [5, 10])
def test_packets_rest_where_the_model_does(tcp: str, l4s_flows: float, tmp_path: Path) -> None:
    """Packets and the model agree on the equilibrium, within what the model leaves out.

    Classic flows have ECN, because the model has no losses. Reno's sawteeth need up to a fifth less
    signal than p·W² = 2 (docs/explanation/fluid.md), and Prague does not grow for a marked packet,
    so p' is less.
    """
    one = made(l4s_flows=l4s_flows)
    path = tmp_path / "made.toml"
    path.write_text(one.toml())
    result = run(path, overrides={"traffic.0.ecn": True, "traffic.1.tcp": tcp}, seeds=3)
    # The queue of both is shorter than the set-point, which is of the delay.
    assert result.warnings == []
    rests = both(one)
    by_class = [{each.name: each.metrics for each in seen.classes} for seen in result.runs]

    def mean(values: Iterable[float]) -> float:
        return float(np.mean(list(values)))

    rates = [np.array(seen.flow_goodput_bps) for seen in result.runs]
    ratio = mean(of[10:].mean() / of[:10].mean() for of in rates)
    assert ratio == pytest.approx(rests.ratio, rel=0.3)
    of_l4s = mean(of["l4s"]["mark_rate"] for of in by_class) / rests.coupling
    assert of_l4s == pytest.approx(rests.root, rel=0.25)
    of_classic = mean(math.sqrt(of["classic"]["mark_rate"]) for of in by_class)
    assert of_classic == pytest.approx(rests.root, rel=0.25)
    # Little's law: what waits for classic flows, which is what the model's law sees.
    share = mean(of[:10].sum() / of.sum() for of in rates)
    delay_s = mean(of["classic"]["delay_mean_s"] for of in by_class)
    assert share * 40e6 / 12_000 * delay_s == pytest.approx(rests.queue_pkts, rel=0.1)


def loop(one: Design) -> Loop:
    assert one.loop is not None
    return one.loop


def delays(
    one: Design, law: str, gain: float, duration_s: float = 40.0
) -> tuple[NDArray[np.float64], float]:
    """The head's delay after a small push, by Euler's method on the equations themselves, with
    the PI's gains times `gain`; and where it rests."""
    rests, set_ = both(one), dict(one.params)
    interval_s = 1e-3 * float(set_["interval"].removesuffix("ms"))
    alpha, beta = gain * float(set_["alpha"]), gain * float(set_["beta"])
    dt = interval_s / math.ceil(interval_s / 5e-4)
    capacity, propagation_s = 40e6 / 12000, 0.030
    rest_s = rests.classic.rtt_s - propagation_s
    n_c, n_l, g = 10.0, rests.l4s.flows, 1 / 16
    steps, every = round(duration_s / dt), round(interval_s / dt)
    back_c, back_l = round(rests.classic.rtt_s / dt), round(rests.l4s.rtt_s / dt)
    age = round(rest_s / dt)
    apart = law == "dualpi2"
    left = capacity - (n_l * rests.l4s.rate_pkts_per_s if apart else 0.0)
    before = back_c + age + 2
    root = np.full(before + steps + 1, rests.root)
    window = np.full(before + steps + 1, rests.classic.window_pkts)
    scalable = np.full(before + steps + 1, rests.l4s.window_pkts)
    share, d, last = rests.l4s.probability, rest_s * 1.001, 0.0
    found = np.zeros(steps)
    for k in range(steps):
        i = before + k
        if k % every == 0:
            error = d - rest_s
            root[i:] = root[i - 1] + alpha * error + beta * (error - last)
            last = error
        w, s, r_c, r_l = window[i], scalable[i], rests.classic.rtt_s, rests.l4s.rtt_s
        window[i + 1] = w + dt * (1 / r_c - w * w / (2 * r_c) * root[i - back_c] ** 2)
        share_next = share + dt * g / r_l * (rests.coupling * root[i - back_l] - share)
        scalable[i + 1] = s + dt * (1 / r_l - s * share / (2 * r_l))
        share = share_next
        # In one line L4S packets wait as the others do.
        of_l4s = n_l * s / r_l if apart else n_l * scalable[i - age] / (propagation_s + d)
        of_classic = n_c * window[i - age] / (propagation_s + d)
        d += dt * (of_classic + of_l4s - capacity) / left
        found[k] = d
    return found, rest_s


@pytest.mark.parametrize(("law", "l4s_flows"), [("dualpi2", 5), ("dualpi2", 15), ("pi2", 5)])
def test_the_equations_in_time_swing_where_the_loop_has_no_margin(
    law: str, l4s_flows: float
) -> None:
    one = made(law, l4s_flows)
    edge = 10 ** (loop(one).margins.gain_db / 20)
    assert edge > 1

    def growth(factor: float) -> float:
        found, rest_s = delays(one, law, factor)
        off, quarter = np.abs(found - rest_s), len(found) // 4
        return float(off[-quarter:].max() / off[quarter : 2 * quarter].max())

    assert growth(0.95 * edge) < 0.9
    assert growth(1.05 * edge) > 1.1
