"""Where flows settle, against plain root finding in Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from forebay._native import OperatingPoint
from forebay.control.link import Link
from forebay.control.plants import MixedPlant

PLACES = [
    ("20ms,80ms,200ms", "cubic"),
    ("50ms", "linux-reno"),
    ("10ms,300ms", "reno"),
    ("30ms,60ms", "cubic,dctcp"),
]
LAWS: list[tuple[str, list[tuple[str, str]]]] = [
    ("red", []),
    ("red", [("min_th", "40p"), ("max_th", "400p"), ("max_p", "0.3")]),
    ("p-avg", []),
    ("pd-red", []),
    ("pi", [("target", "60p")]),
]


def bisected(plant: MixedPlant, flows: float) -> tuple[float, float]:
    """Queue and p by bisection of the law's queue less the queue, and of p within it."""
    capacity = plant.law.capacity_pkts_per_s

    def rate(p: float, queue_pkts: float) -> float:
        """Of all flows."""
        total = 0.0
        for each in plant.classes:
            rtt_s = each.ratio * plant.link.rtt_s + queue_pkts / capacity
            window_pkts = float(each.sender.window(np.array(p), np.array(rtt_s)))
            total += flows * each.share * window_pkts / rtt_s
        return total

    def p_at(queue_pkts: float) -> float:
        def off(x: float) -> float:
            return math.log(rate(math.exp(x), queue_pkts) / capacity)

        return math.exp(brentq(off, -40, 20, xtol=1e-15, rtol=1e-15))

    def above(queue_pkts: float) -> bool:
        rtt_s = plant.link.rtt_s + queue_pkts / capacity
        alike = math.sqrt(p_at(queue_pkts) / 2) * rtt_s * capacity
        model = plant.law.linear(OperatingPoint(alike, rtt_s, capacity))
        return model is None or model["queue_pkts"] > queue_pkts

    low, high = 0.0, 1.0
    while above(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if above(middle) else (low, middle)
    return high, p_at(high)


@pytest.mark.parametrize(("rtt", "tcp"), PLACES)
@pytest.mark.parametrize(("law", "params"), LAWS)
def test_every_equilibrium_agrees_with_bisection(
    law: str, params: list[tuple[str, str]], rtt: str, tcp: str
) -> None:
    link = Link("50Mbit/s", rtt, flows=30, packet="1500B", buffer="2000p", senders=tcp)
    plant = MixedPlant.on_link(link, law, params)
    compared = 0
    for flows in (3.0, 30.0, 300.0):
        how, queue_pkts, p, there = plant.settle(flows, link.rtt_s)
        if how in ("linear", "full"):
            assert (queue_pkts, p) == pytest.approx(bisected(plant, flows), rel=1e-9)
            compared += 1
        assert (there is not None) == (how == "linear")
    assert compared
