"""Prague with round trips below 25 ms: the queue integrates p, and ACKs are the flows' clock.

Verdicts are compared with solutions over time of the nonlinear equations in
docs/explanation/theory.md, "Senders other than Reno".
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from forebay.control.design import design
from forebay.control.link import Link
from forebay.control.loop import Loop, count_loops
from forebay.control.plants import plant_on
from forebay.control.stability_map import theory_map as stability_map

ROUND_S = 0.025


def growth(loop: Loop, flows: float, rtt_s: float, turns: float = 800.0) -> float:
    """By how much a small swing of the queue grows over a fifth of so many round trips, after its
    start: W' = (1 − p)R/R_v² − W·a/(2R_v)·x/(1 + x) and a' = (p − a)/(16R_v) with p a round trip
    late, and what is in flight beyond the pipe as the queue, by Heun's method."""
    capacity, queue_pkts = loop.point.capacity_pkts_per_s, loop.model["queue_pkts"]
    assert loop.model["sampled"] is not None
    interval_s, (a, minus_b, *_), _ = loop.model["sampled"]
    marks = ROUND_S * capacity / flows
    rest = brentq(lambda p: (p * marks) ** 2 / 2 - (1 - p) * (1 + p * marks), 1e-9, 1 - 1e-9)
    assert rest == pytest.approx(loop.point.probability, rel=1e-9)
    per_sample = math.ceil(interval_s / (loop.point.rtt_s / 40))
    dt = interval_s / per_sample
    steps, past = int(turns * loop.point.rtt_s / dt), int(3 * loop.point.rtt_s / dt) + 5
    p = [rest] * (steps + past)

    def slopes(window: float, share: float, k: int) -> tuple[float, float]:
        now_s = flows * window / capacity
        at = past + k - now_s / dt
        late = p[int(at)] + (at - int(at)) * (p[int(at) + 1] - p[int(at)])
        x = late * window * ROUND_S / now_s
        fall = window * share / (2 * ROUND_S) * x / (1 + x)
        return (1 - late) * now_s / ROUND_S**2 - fall, (late - share) / (16 * ROUND_S)

    window, share = 1.001 * loop.point.rtt_s * capacity / flows, rest
    before, now, errors = queue_pkts, rest, np.zeros(steps)
    for k in range(steps):
        queue = flows * window - capacity * rtt_s
        if k % per_sample == 0:
            now += a * (queue - queue_pkts) + minus_b * (before - queue_pkts)
            before = queue
        p[past + k] = now
        first = slopes(window, share, k)
        second = slopes(window + dt * first[0], share + dt * first[1], k + 1)
        window += dt * (first[0] + second[0]) / 2
        share += dt * (first[1] + second[1]) / 2
        errors[k] = abs(queue - queue_pkts) / queue_pkts
        if errors[k] > 0.5:
            return math.inf
    early, late = (errors[len(errors) * i // 5 :][: steps // 5].max() for i in (1, 4))
    return 0.0 if late < 1e-6 else float(late / early)


def test_random_links_agree_with_the_equations_in_time() -> None:
    rng = np.random.default_rng(9)
    verdicts: list[bool] = []
    while len(verdicts) < 10:
        rate, rtt, flows = np.exp(rng.uniform(np.log([20, 3, 4]), np.log([300, 20, 40])))
        per_s = 1e6 * rate / 12_000
        target = max(20, round(per_s * 1e-3 * rtt * rng.uniform(0.2, 0.6)))
        link = Link(
            f"{rate:.4g}Mbit/s",
            f"{rtt:.4g}ms",
            flows=round(flows),
            packet="1500B",
            senders="prague",
        ).with_buffer_for(target)
        a = 10 ** rng.uniform(-1.5, 1) / (per_s * 1e-3 * rtt)
        b = a * (1 - 10 ** rng.uniform(-3.5, -1))
        params = [("target", f"{target}p"), ("a", f"{a:.9g}"), ("b", f"{b:.12g}")]
        loop = plant_on(link, "pi", params).loop_at(link.flows, link.rtt_s)
        if loop is None or loop.point.rtt_s > 0.024:
            continue
        rightmost = loop.roots[0].real
        assert loop.stable == (rightmost < 0)
        ((_, counted),) = count_loops([loop])
        assert counted == loop.stable
        # Nearer to the edge than this the equations take too long to show it.
        if abs(rightmost) * loop.point.rtt_s > 5e-3:
            assert (growth(loop, link.flows, link.rtt_s) < 1) == loop.stable
            verdicts.append(loop.stable)
    assert 2 <= sum(verdicts) <= 8


@pytest.mark.parametrize(
    ("rate", "flows", "rtt"), [("50Mbit/s", 10, "10ms"), ("100Mbit/s", 20, "15ms")]
)
def test_a_design_is_robust(rate: str, flows: int, rtt: str) -> None:
    made = design("pi", Link(rate, rtt, flows=flows, packet="1500B", senders="prague"))
    assert made.loop is not None
    assert made.margins is not None
    assert made.stable
    assert made.loop.roots[0].real < 0
    assert made.margins.phase_deg > 25
    assert made.margins.gain_db > 5
    assert made.senders is not None
    assert "the queue integrates the rate" in (made.senders.classes[0].region or "")
    assert growth(made.loop, flows, made.link.rtt_s) < 1


def test_a_map_has_the_verdicts_of_roots() -> None:
    link = Link("150Mbit/s", "80ms", flows=300, packet="1200B", senders="prague")
    params = [("target", "60p"), ("a", "1.5e-3"), ("b", "1.45e-3")]
    drawn = stability_map("pi", link, params, (4, 300), "rtt", (0.003, 0.08), points=7)
    compared = 0
    for i, rtt_s in enumerate(drawn.values):
        for k, flows in enumerate(drawn.flows):
            if drawn.rest[i, k] == "linear":
                loop = plant_on(link, "pi", params).loop_at(float(flows), float(rtt_s))
                assert loop is not None
                assert drawn.stable[i, k] == (loop.roots[0].real < 0)
                compared += 1
    assert compared > 20
