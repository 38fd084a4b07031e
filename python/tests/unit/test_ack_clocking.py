"""The plant with ACKs as the clock and windows in sawteeth, against the fluid that integrates it:
where flows rest, how the loop rings, and where it starts to swing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from forebay import ScenarioError
from forebay._native import FlowModel
from forebay.control import frequency_response, stability_map
from forebay.control.ack_clocking import AckClockedEquilibrium, AckClockedPlant
from forebay.control.design import design
from forebay.control.link import Link


@pytest.mark.parametrize("window", [3.0, 8.0, 20.0, 100.0])
def test_the_equilibrium_satisfies_its_equation_both_ways(window: float) -> None:
    n, kappa = window - 0.5, 7 / 12

    def excess(p: float) -> float:
        a, b = 1 + n * p, 1 + kappa * n * p
        return (1 - p) * b**2 - kappa * p * (window * a) ** 2

    p = brentq(excess, 1e-9, 0.999, xtol=1e-15)
    # Of 7 flows on a link of 1000 packets a second.
    plant = FlowModel.ack_clocked()
    assert plant.operating_point(7, 7e-3 * n, 0, 1000).probability == pytest.approx(p, rel=1e-9)
    assert AckClockedEquilibrium.at_probability(p).in_flight_pkts == pytest.approx(n, rel=1e-9)


@pytest.mark.parametrize("law", ["pi", "red", "pd-red", "pie"])
def test_map_and_loop_agree(law: str) -> None:
    """Numbers of all cells at once against one by one."""
    one = design(law, Link("15Mbit/s", "200ms", flows=60, packet="500B"))
    link = one.link
    drawn = stability_map.theory_map(
        law, link, one.params, (40, 160), "rtt", (0.1, 0.3), points=2, windows="sawtooth"
    )
    model = AckClockedPlant(link.model(law, one.params))
    for k, rtt_s in enumerate(drawn.values):
        for i, flows in enumerate(drawn.flows):
            loop = model.loop_at(float(flows), float(rtt_s))
            if loop is None:
                assert np.isnan(drawn.gain_margin_db[k, i])
                continue
            wanted = loop.margins.gain_db
            assert bool(drawn.stable[k, i]) == loop.stable
            if abs(wanted) < 20:
                assert drawn.gain_margin_db[k, i] == pytest.approx(wanted, abs=0.1)


def test_more_alias_terms_change_nothing() -> None:
    """With one pole less, Poisson's sum needs more terms."""
    one = design("pd-red", Link("15Mbit/s", "200ms", flows=60, packet="500B"), target="175p")
    loop = one.sawtooth
    assert loop is not None
    assert loop.terms.hybrid
    omega = np.linspace(0.1, loop.highest_rad_s, 200)
    found = loop.response(omega)
    more = replace(loop.terms, aliases=tuple(m for m in range(-62, 63) if m))
    assert np.max(np.abs(frequency_response.loop(more, 1j * omega) / found - 1)) < 1e-4


def test_a_design_has_both() -> None:
    one = design("pi", Link("15Mbit/s", "200ms", flows=60, packet="500B"), target="175p")
    said = one.to_dict()
    assert said["margins"]["gain_db"] == pytest.approx(6.05, abs=0.01)
    assert said["sawtooth"]["margins"]["gain_db"] == pytest.approx(4.80, abs=0.01)
    assert said["sawtooth"]["operating_point"]["probability"] == pytest.approx(6.242e-3, rel=1e-3)


def test_windows_that_there_are_not_are_refused() -> None:
    with pytest.raises(ScenarioError, match='windows: "square" is not valid; expected one of '):
        stability_map.stability_map(
            "pi",
            Link("40Mbit/s", "40ms", flows=20),
            flows="2..20",
            rtt="5..40ms",
            points=2,
            windows="square",  # type: ignore[arg-type]
        )
    with pytest.raises(ScenarioError, match='windows: "sawtooth": there are L4S flows'):
        stability_map.stability_map(
            "dualpi2",
            Link("40Mbit/s", "40ms", flows=20, l4s_flows=5),
            flows="2..20",
            rtt="5..40ms",
            points=2,
            windows="sawtooth",
        )
