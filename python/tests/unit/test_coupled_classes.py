"""Classic and L4S flows under a coupled law: where they rest, and their loop, each by another
calculation or by packets."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import Cli
from numpy.typing import NDArray
from scipy.optimize import brentq

from forebay._native import ScenarioError
from forebay.control import frequency_response as gain
from forebay.control import margins, stability_map
from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.loaded_link import LoadedLink
from forebay.control.loop import Loop
from forebay.control.plant import CoupledEquilibrium
from forebay.control.plants import CoupledPlant
from forebay.experiment.result import run


def made(law: str = "dualpi2", l4s_flows: float = 5, **options: str) -> Design:
    given = {"rate": "40Mbit/s", "rtt": "30ms", "target": "15ms", "packet": "1500B"} | options
    return design(law, flows=10, l4s_flows=l4s_flows, **given)  # type: ignore[arg-type]


def both(one: Design) -> CoupledEquilibrium:
    assert one.classes is not None
    return one.classes


def loop(one: Design) -> Loop:
    assert one.loop is not None
    return one.loop


# --- where they rest --------------------------------------------------------------------------


@pytest.mark.parametrize(("law", "l4s_rtt_s"), [("dualpi2", 0.030), ("pi2", 0.045)])
def test_both_classes_fill_the_link_where_the_windows_rest(law: str, l4s_rtt_s: float) -> None:
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
def test_a_map_is_the_loops_of_its_cells(axis: str) -> None:
    link = LoadedLink.from_texts("40Mbit/s", "1500B", 100, "60ms", "15ms", "2000p", 5)
    spans = {"rtt": (0.005, 0.4), "rate": (4e6, 2e8)}
    params = [("target", "15ms")]
    drawn = stability_map.theory_map("dualpi2", link, params, (2, 100), axis, spans[axis], 12)
    assert {"linear", "saturated"} <= set(drawn.rest.ravel())
    assert drawn.stable.any()
    assert (~drawn.stable[drawn.rest == "linear"]).any()
    for row, value in enumerate(drawn.values):
        here = (
            replace(link, rtt=f"{1e6 * value:.9g}us")
            if axis == "rtt"
            else replace(link, rate=f"{round(value)}bit/s")
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
        LoadedLink.from_texts("4Mbit/s", "1500B", 2, "30ms", "15ms", None, 8),
        "dualpi2",
        [("target", "15ms")],
    )
    how, _, p, _ = law.settle(2, 0.030)
    assert how == "saturated"
    assert p is not None
    assert p >= 1
    assert law.equilibrium(2, 0.030) is None


# --- packets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tcp", ["prague", "dctcp"])
@pytest.mark.parametrize("l4s_flows", [5, 10])
def test_packets_rest_where_the_model_does(tcp: str, l4s_flows: float, tmp_path: Path) -> None:
    """Classic flows with ECN, as the model has no losses. Reno's sawteeth need up to a fifth less
    signal than p·W² = 2 (docs/fluid.md), and Prague does not grow for a marked packet, so p' is
    less."""
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


# --- the command line -------------------------------------------------------------------------

DESIGN = ["design", "dualpi2", "--rate", "40Mbit/s", "--flows", "10", "--rtt", "30ms"]


def test_the_command_shows_both_classes(cli: Cli) -> None:
    done = cli(*DESIGN, "--l4s-flows", "5", "--packet", "1500B", "--target", "15ms", "--json")
    classes = json.loads(done.stdout)["classes"]
    assert classes["rate_ratio"] == pytest.approx(1.0607, rel=1e-3)
    assert classes["l4s"]["probability"] == pytest.approx(2 * classes["p_root"])
    assert json.loads(cli(*DESIGN, "--json").stdout)["classes"] is None


def test_a_law_that_is_not_coupled_refuses_l4s_flows() -> None:
    with pytest.raises(ScenarioError, match=r"--l4s-flows: found 5 with pie, .* allowed: 0, or"):
        made("pie")
    with pytest.raises(ScenarioError, match="without an integral"):
        design("dualpi2", "40Mbit/s", 10, "30ms", overrides={"alpha": 0}, l4s_flows=5)
    with pytest.raises(ScenarioError, match="--l4s-flows: found -1"):
        made(l4s_flows=-1)
