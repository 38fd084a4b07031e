"""Classic and L4S flows under a coupled law: where they rest, and their loop, each by another
calculation or by packets."""

from __future__ import annotations

import json
import math
from typing import Literal

import numpy as np
import pytest
from conftest import Cli
from designs import class_equilibria as both
from designs import coupled_design as made
from scipy.optimize import brentq

from forebay._native import ScenarioError
from forebay.control import frequency_response as gain
from forebay.control import margins, stability_map
from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.link import Link
from forebay.control.loop import Loop
from forebay.control.plants import CoupledPlant


def loop(one: Design) -> Loop:
    assert one.loop is not None
    return one.loop


# --- where they rest --------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "l4s_rtt_s"), [("dualpi2", 0.030), ("pi2", 0.045)])
def test_the_equilibrium_windows_of_both_classes_fill_the_link(law: str, l4s_rtt_s: float) -> None:
    """pi2 has one line for both, and so one RTT."""
    rests = both(made(law))
    capacity = 40e6 / 12000

    def excess(root: float) -> float:
        classic, l4s = 10 * math.sqrt(2) / root / 0.045, 5 * 2 / (2 * root) / l4s_rtt_s
        return classic + l4s - capacity

    assert rests.root == pytest.approx(brentq(excess, 1e-3, 1.0), rel=1e-9)
    used = 10 * rests.classic.rate_pkts_per_s + 5 * rests.l4s.rate_pkts_per_s
    assert used == pytest.approx(capacity, rel=1e-9)
    assert rests.classic.flows == pytest.approx(10)
    # k = 2: at equal RTTs a flow of L4S gets 1/√2 of a classic one.
    ratio = math.sqrt(2) / 2 * 0.045 / l4s_rtt_s
    assert rests.ratio == pytest.approx(ratio, rel=1e-9)
    # The classic queue holds what the classic flows send in 15 ms.
    alone = 10 * rests.classic.rate_pkts_per_s if law == "dualpi2" else capacity
    assert rests.queue_pkts == pytest.approx(0.015 * alone)


def test_without_l4s_flows_it_is_the_loop_of_the_classic_class() -> None:
    plain, none = loop(made(l4s_flows=0)), loop(made("pi2", l4s_flows=0))
    few = loop(made(l4s_flows=1e-6))
    assert plain.terms == none.terms
    assert few.margins.gain_db == pytest.approx(plain.margins.gain_db, rel=0.02)
    assert few.margins.phase_deg == pytest.approx(plain.margins.phase_deg, rel=0.01)


# --- the loop, in time ------------------------------------------------------------------------


def test_the_roots_are_those_of_the_response() -> None:
    """Of a sampled loop: 1 + L is zero there, and the step settles as the slowest says."""
    one = loop(made())
    roots = one.roots[:6]
    at = gain.loop(one.terms, np.asarray(roots, complex))
    assert np.abs(1 + at).max() < 1e-6
    _, queue = one.step(3 * one.settling_s)
    assert abs(queue[-1]) < 0.01 * np.abs(queue).max()


def test_a_loop_with_a_greater_gain_than_its_margin_is_unstable() -> None:
    one = loop(made())
    edge = 10 ** (one.margins.gain_db / 20)
    assert one.changed(gain=0.99 * edge).stable
    assert not one.changed(gain=1.01 * edge).stable
    assert np.abs(one.changed(gain=edge).roots[0].real) < 0.01


# --- maps -------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["rtt", "rate"])
def test_a_map_is_the_loops_of_its_cells(axis: Literal["rtt", "rate"]) -> None:
    link = Link("40Mbit/s", "60ms", flows=100, packet="1500B", buffer="2000p", l4s_flows=5)
    spans = {"rtt": (0.005, 0.4), "rate": (4e6, 2e8)}
    params = [("target", "15ms")]
    drawn = stability_map.theory_map("dualpi2", link, params, (2, 100), axis, spans[axis], 12)
    assert {"linear", "saturated"} <= set(drawn.rest.ravel())
    assert drawn.stable.any()
    assert (~drawn.stable[drawn.rest == "linear"]).any()
    for row, value in enumerate(drawn.values):
        here = (
            link.varied(rtt=f"{1e6 * value:.9g}us")
            if axis == "rtt"
            else link.varied(rate=f"{round(value)}bit/s")
        )
        law = CoupledPlant.on_link(here, "dualpi2", params)
        for column in (0, 5, 11):
            found = law.loop_at(float(drawn.flows[column]), here.rtt_s)
            there = drawn.rest[row, column] == "linear"
            assert (found is not None) == there
            if found is not None:
                assert found.stable == drawn.stable[row, column]
                if found.stable and found.margins.gain_db < margins.MOST_DB:
                    margin = drawn.gain_margin_db[row, column]
                    assert margin == pytest.approx(found.margins.gain_db, abs=0.1)


def test_l4s_flows_alone_may_saturate() -> None:
    """At p' = 1/k every packet of L4S is marked, though no more than p'² of the classic ones."""
    law = CoupledPlant.on_link(
        Link("4Mbit/s", "30ms", flows=2, packet="1500B", buffer=None, l4s_flows=8),
        "dualpi2",
        [("target", "15ms")],
    )
    how, _, p, _ = law.settle(2, 0.030)
    assert how == "saturated"
    assert p is not None
    assert p >= 1
    assert law.equilibrium(2, 0.030) is None


# --- packets ----------------------------------------------------------------------------------


# --- the command line -------------------------------------------------------------------------

DESIGN = ["design", "dualpi2", "--rate", "40Mbit/s", "--flows", "10", "--rtt", "30ms"]


def test_the_command_shows_both_classes(cli: Cli) -> None:
    done = cli(*DESIGN, "--l4s-flows", "5", "--packet", "1500B", "--target", "15ms", "--json")
    classes = json.loads(done.stdout)["classes"]
    assert classes["rate_ratio"] == pytest.approx(1.0607, rel=1e-3)
    assert classes["l4s"]["probability"] == pytest.approx(2 * classes["p_root"])
    assert json.loads(cli(*DESIGN, "--json").stdout)["classes"] is None


def test_a_law_that_is_not_coupled_refuses_l4s_flows() -> None:
    with pytest.raises(ScenarioError, match=r"l4s_flows: 5: pie .* expected 0, or"):
        made("pie")
    with pytest.raises(ScenarioError, match="has no integral"):
        design("dualpi2", Link("40Mbit/s", "30ms", flows=10, l4s_flows=5), overrides={"alpha": 0})
    with pytest.raises(ScenarioError, match="l4s_flows: -1 is not"):
        made(l4s_flows=-1)
