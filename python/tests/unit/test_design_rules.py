"""No design rule hands out gains that its own margins call unstable, on links drawn at random."""

from __future__ import annotations

import math

import numpy as np
import pytest

from forebay import ScenarioError
from forebay._native import OperatingPoint
from forebay.control.design import design
from forebay.control.link import Link


def test_the_link_of_the_issue() -> None:
    """A set-point of an eighth of a second above an RTT of half a second, with CUBIC."""
    made = design(
        "dualpi2", Link("926000000bit/s", "496ms", flows=21, packet="3828B", senders="cubic")
    )
    assert made.stable
    assert made.margins is not None
    assert made.margins.sensitivity <= 2.001


# --- PIE's gains are those of where the flows rest ----------------------------------------------


@pytest.mark.parametrize(
    ("rate", "flows", "rtt", "packet", "least"),
    [
        # Gains that keep clear of a step of PIE's (decision 020).
        ("16300000000bit/s", 106, "5.28ms", "1497B", 1.2),
        ("135Mbit/s", 126, "193ms", "1500B", 1.9),
    ],
)
def test_pies_rule_has_an_integral_with_cubic(
    rate: str, flows: int, rtt: str, packet: str, least: float
) -> None:
    made = design("pie", Link(rate, rtt, flows=flows, packet=packet, senders="cubic"))
    assert made.loop is not None
    assert made.margins is not None
    assert least < made.margins.sensitivity <= 2.001
    assert made.settling_s < 0.25 * flows
    gains = made.loop.model["sampled"]
    assert gains is not None
    # The gains of the loop are alpha and beta times the factor that the design tells.
    params = dict(made.params)
    per_packet = float(params["beta"]) / made.point.capacity_pkts_per_s
    assert -gains[1][1] == pytest.approx(per_packet * made.gains["gain_factor"], rel=1e-6)


def test_more_flows_of_reno_in_pies_rule_are_more_gain() -> None:
    """|1/(1 + L)| rises with the flows that the rule is asked for, so a search finds its
    edge."""
    link = Link("50Mbit/s", "40ms", flows=20, packet="1500B", senders="cubic")
    law = link.model("pie", [])
    wanted = OperatingPoint(15, 0.05, law.capacity_pkts_per_s)
    gains = [
        made["gains"]["beta"]
        for flows in np.geomspace(3, 60, 40)
        if (made := law.design(
            OperatingPoint(flows, 0.05, law.capacity_pkts_per_s), 50.0, [], wanted.probability
        ))
    ]  # fmt: skip
    assert np.all(np.diff(gains) > 0)


# --- what a rule's gains do in packets -----------------------------------------------------------


@pytest.mark.parametrize("tcp", ["cubic", "linux-reno"])
def test_a_self_tuning_law_begins_with_the_load_that_it_will_find(tcp: str) -> None:
    """It was given 198,000 flows: a rule's answer moves no loop of a law that tunes itself."""
    made = design("stpi", Link("145Mbit/s", "38.7ms", flows=46, packet="1500B", senders=tcp))
    point = made.point
    reno = point.capacity_pkts_per_s * point.rtt_s * math.sqrt(point.probability / 2)
    assert float(dict(made.params)["flows"]) == pytest.approx(reno, rel=0.01)


def test_a_loop_of_rates_that_nothing_makes_stable_is_refused() -> None:
    link = Link("188Mbit/s", "39.3ms", flows=68)
    with pytest.raises(ScenarioError, match="stable with no alpha: with 17 packets a flow"):
        design("avq", link)
    by_hand = design("avq", link, overrides={"alpha": "0.1"})
    assert not by_hand.stable and dict(by_hand.params)["alpha"] == "0.1"
    assert design("avq", Link("15Mbit/s", "200ms", flows=230, packet="1000B"), target="20p").stable
