"""No design rule hands out gains that its own margins call unstable, on links drawn at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import forebay
from forebay import ScenarioError
from forebay._base import registries
from forebay._native import OperatingPoint
from forebay.control.design import design
from forebay.control.design_rule import design_once
from forebay.control.designed_law import Design
from forebay.control.loaded_link import LoadedLink
from forebay.report import designs

RULES = [name for name, law in registries.laws().items() if law["has_rule"] and law["modelled"]]


def drawn(rng: np.random.Generator, most_flows: float = 100) -> tuple[str, int, str]:
    low, high = np.log([4, 2, 2]), np.log([2000, 400, most_flows])
    rate, rtt, flows = np.exp(rng.uniform(low, high))
    return f"{rate:.4g}Mbit/s", max(1, round(flows)), f"{rtt:.4g}ms"


def checked(law: str, link: tuple[str, int, str], **asked: Any) -> Design | None:
    """The design, with all its roots to the left; None where it is refused in a line."""
    try:
        made = design(law, *link, packet="1500B", **asked)
    except ScenarioError as error:
        assert "\n" not in str(error)
        return None
    assert made.stable
    if made.loop is not None:
        assert made.loop.roots[0].real < 0
        assert made.margins is not None
        assert made.margins.phase_deg > 0
    return made


def test_with_flows_of_l4s() -> None:
    """Half of these were unstable, mostly with set-points far above the RTT."""
    rng = np.random.default_rng(4)
    asked_for_less = 0
    for _ in range(30):
        link, law = drawn(rng), str(rng.choice(["dualpi2", "pi2"]))
        target_ms = float(link[2].removesuffix("ms")) * math.exp(rng.uniform(-1, 3))
        l4s_flows = float(rng.integers(1, 60))
        made = checked(law, link, l4s_flows=l4s_flows, target=f"{target_ms:.4g}ms")
        if made is not None and made.unstable_goal is not None:
            asked_for_less += 1
            before = LoadedLink.from_texts(
                link[0], "1500B", link[1], link[2], f"{target_ms:.4g}ms", None, l4s_flows
            )
            assert not design_once(law, before, {}).stable
    assert asked_for_less >= 3


@pytest.mark.parametrize("tcp", ["reno", "cubic", "dctcp", "prague"])
def test_with_any_sender(tcp: str) -> None:
    rng = np.random.default_rng(9)
    made = [checked(str(rng.choice(RULES)), drawn(rng), tcp=tcp) for _ in range(20)]
    assert sum(one is not None for one in made) > 8


def test_the_link_of_the_issue() -> None:
    """A set-point of an eighth of a second above an RTT of half a second, with CUBIC."""
    made = design("dualpi2", "926000000bit/s", 21, "496ms", packet="3828B", tcp="cubic")
    assert made.stable
    assert made.margins is not None
    assert made.margins.sensitivity <= 2.001


# --- PIE's gains are those of where the flows rest ----------------------------------------------


@pytest.mark.parametrize(
    ("rate", "flows", "rtt", "packet", "least"),
    [
        # Gains that keep clear of a step of PIE's (decision 114).
        ("16300000000bit/s", 106, "5.28ms", "1497B", 1.2),
        ("135Mbit/s", 126, "193ms", "1500B", 1.9),
    ],
)
def test_pies_rule_has_an_integral_with_cubic(
    rate: str, flows: int, rtt: str, packet: str, least: float
) -> None:
    made = design("pie", rate, flows, rtt, packet=packet, tcp="cubic")
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
    """|1/(1 + L)| rises with the flows that the rule is asked for, so that a search finds its
    edge."""
    link = LoadedLink.from_texts("50Mbit/s", "1500B", 20, "40ms", tcp="cubic")
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


def in_packets(made: Design, duration_s: float = 60) -> dict[str, float]:
    """Metrics of one run of a design's own scenario, of its second half."""
    span = [f"{duration_s / 2:g}s", f"{duration_s:g}s"]
    overrides = {"duration": span[1], "measure": span, "seeds": 1}
    rows = forebay.run(made.toml(), overrides=overrides).summary().iter_rows(named=True)
    return {row["metric"]: row["mean"] for row in rows}


@pytest.mark.parametrize(
    ("law", "link"),
    [("pi", ("8.24Mbit/s", 2, "7ms")), ("rem", ("3.25Mbit/s", 1, "6.03ms"))],
)
def test_a_robust_gain_leaves_the_probability_headroom(
    law: str, link: tuple[str, int, str]
) -> None:
    """A packet of queue moved p by more than all of it: these held 58 and 65 % of their target."""
    made = design(law, *link, packet="500B", tcp="prague", target="8.4ms")
    found = made.headroom
    assert found is not None and found.headroom_pkts > 2
    assert in_packets(made)["queue_mean_pkts"] == pytest.approx(made.queue_pkts, rel=0.1)


def test_pie_marks_whom_marks_steer() -> None:
    """Above a probability of 0.1 it drops what it could mark: 61 ± 17 packets for 58, and 6 %
    lost."""
    made = design("pie", "188Mbit/s", 68, "39.3ms", packet="4000B", tcp="dctcp")
    assert made.point.probability > 0.4
    assert dict(made.params)["mark_up_to"] == "1"
    assert made.gain_params == ("alpha", "beta")
    got = in_packets(made, 40)
    assert got["queue_mean_pkts"] == pytest.approx(made.queue_pkts, rel=0.03)
    assert got["queue_std_pkts"] < 0.15 * made.queue_pkts
    asked = design("pie", "188Mbit/s", 68, "39.3ms", tcp="dctcp", overrides={"mark_up_to": "0.2"})
    assert dict(asked.params)["mark_up_to"] == "0.2" and asked.gains
    assert "mark_up_to" not in dict(design("pie", "188Mbit/s", 68, "39.3ms").params)


@pytest.mark.parametrize("tcp", ["cubic", "linux-reno"])
def test_a_self_tuning_law_begins_with_the_load_that_it_will_find(tcp: str) -> None:
    """It was given 198,000 flows: a rule's answer moves no loop of a law that tunes itself."""
    made = design("stpi", "145Mbit/s", 46, "38.7ms", packet="1500B", tcp=tcp)
    point = made.point
    reno = point.capacity_pkts_per_s * point.rtt_s * math.sqrt(point.probability / 2)
    assert float(dict(made.params)["flows"]) == pytest.approx(reno, rel=0.01)


def test_a_loop_of_rates_that_nothing_makes_stable_is_refused() -> None:
    link = ("188Mbit/s", 68, "39.3ms")
    with pytest.raises(ScenarioError, match="stable with no alpha: with 17 packets a flow"):
        design("avq", *link)
    by_hand = design("avq", *link, overrides={"alpha": "0.1"})
    assert not by_hand.stable and dict(by_hand.params)["alpha"] == "0.1"
    assert design("avq", "15Mbit/s", 230, "200ms", packet="1000B", target="20p").stable


def test_sawteeth_of_cubic_are_warned_of_as_those_of_reno() -> None:
    made = design("rem", "4.17Mbit/s", 2, "133ms", packet="500B", tcp="cubic")
    assert "it will settle below the set-point" in designs.paragraph(made)
    assert in_packets(made, 200)["queue_mean_pkts"] < 0.6 * made.queue_pkts
    many = design("pi", "188Mbit/s", 68, "39.3ms", packet="4000B", tcp="cubic")
    assert "it will settle below the set-point" not in designs.paragraph(many)
