"""No design rule hands out gains that its own margins call unstable, on links drawn at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from forebay import ScenarioError
from forebay._native import OperatingPoint
from forebay.base import registries
from forebay.theory.design.design import design
from forebay.theory.design.designed_law import Design, design_once
from forebay.theory.plant.loaded_link import LoadedLink

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
    ("rate", "flows", "rtt", "packet"),
    [("16300000000bit/s", 106, "5.28ms", "1497B"), ("135Mbit/s", 126, "193ms", "1500B")],
)
def test_pies_rule_has_an_integral_with_cubic(rate: str, flows: int, rtt: str, packet: str) -> None:
    made = design("pie", rate, flows, rtt, packet=packet, tcp="cubic")
    assert made.loop is not None
    assert made.margins is not None
    assert 1.9 < made.margins.sensitivity <= 2.001
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
