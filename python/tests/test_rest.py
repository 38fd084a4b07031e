"""`forebay.theory.plant.equilibrium`: where flows settle, against plain bisection."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from forebay.theory.plant import equilibrium
from forebay.theory.plant import mixed_senders as mixes
from forebay.theory.plant.loaded_link import LoadedLink
from forebay.theory.plant.mixed_senders import MixedPlant

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


def on(
    law: str, params: list[tuple[str, str]], rtt: str, tcp: str, rate: str = "50Mbit/s"
) -> MixedPlant:
    link = LoadedLink.from_texts(rate, "1500B", 30, rtt, buffer="2000p", target="60p", tcp=tcp)
    return MixedPlant.on_link(link, law, params)


def bisected(one: MixedPlant, flows: float) -> tuple[float, float]:
    """Queue and p by bisection of the law's queue less the queue, and of p within it."""
    classes, capacity = one.classes, one.law.capacity_pkts_per_s

    def p_at(queue: float) -> float:
        rtts_s = classes.rtts_s(one.link.rtt_s, np.array([queue]))

        def off(x: float) -> float:
            return math.log(flows * float(classes.offered(np.exp([x]), rtts_s)[0]) / capacity)

        return math.exp(brentq(off, -40, 20, xtol=1e-15, rtol=1e-15))

    def above(queue: float) -> bool:
        rtt_s = one.link.rtt_s + queue / capacity
        alike = math.sqrt(p_at(queue) / 2) * rtt_s * capacity
        (law_pkts,) = one.law.queues([alike], [rtt_s])
        return math.isnan(law_pkts) or law_pkts > queue

    low, high = 0.0, 1.0
    while above(high):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if above(middle) else (low, middle)
    return high, p_at(high)


@pytest.mark.parametrize(("rtt", "tcp"), PLACES)
@pytest.mark.parametrize(("law", "params"), LAWS)
def test_all_rest_where_bisection_finds_it(
    law: str, params: list[tuple[str, str]], rtt: str, tcp: str
) -> None:
    one = on(law, params, rtt, tcp)
    flows = np.array([3.0, 30.0, 300.0])
    found = one.settle_all(flows, one.link.rtt_s)
    assert {"linear", "full"} & set(found.how)
    for how, n, queue, p in zip(found.how, flows, found.queue_pkts, found.probability, strict=True):
        if how in ("linear", "full"):
            assert (queue, p) == pytest.approx(bisected(one, n), rel=1e-9)


def test_a_rest_takes_few_questions() -> None:
    """Bisection to the same precision asks the law fifty times."""
    one, asked = on("red", LAWS[1][1], *PLACES[0]), []

    def law(
        alike: equilibrium.Floats, rtts_s: equilibrium.Floats, _rows: equilibrium.Rows
    ) -> equilibrium.Floats:
        asked.append(len(alike))
        return np.array(one.law.queues(alike.tolist(), rtts_s.tolist()))

    found = equilibrium.settle(one.classes, law, 2000.0, np.array([30.0]), one.link.rtt_s)
    assert found.how == ["linear"]
    assert len(asked) <= 24


def test_several_links_at_once_are_each_alone() -> None:
    there = [
        on("red", [], "20ms,80ms", "cubic,reno", rate="5Mbit/s"),
        on("red", [], "40ms,80ms", "cubic,reno", rate="50Mbit/s"),
        on("red", [], "40ms,500ms", "cubic,reno", rate="500Mbit/s"),
    ]
    flows, rtts_s = [10.0, 40.0, 2.0], [one.link.rtt_s for one in there]
    for one, n, rtt_s, found in zip(
        there, flows, rtts_s, mixes.equilibria_on_links(there, flows, rtts_s), strict=True
    ):
        alone = one.equilibrium(n, rtt_s)
        assert (found is None) == (alone is None)
        if found is None or alone is None:
            continue
        assert found[0].flows == pytest.approx(alone[0].flows, rel=1e-9)
        assert found[1]["queue_pkts"] == pytest.approx(alone[1]["queue_pkts"], rel=1e-9)
