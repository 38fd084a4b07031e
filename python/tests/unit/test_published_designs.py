"""The papers' numbers from our code, and designs at other points by other means."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from forebay import ScenarioError, _native
from forebay._native import LawModel, OperatingPoint, averaging_design, critical_load_time_s
from forebay.campaign.claims import of_paper
from forebay.control.delay_system import DelaySystem, RateLoop
from forebay.control.design import design
from forebay.control.link import Link
from forebay.control.plant import PublishedPlant

PI_PD, STAQM_FIGURES = of_paper("pi-pd"), of_paper("staqm")
STAQM: dict[str, Any] = {
    "rate": "15Mbit/s",
    "packet": "500B",
    "rtt": "200ms",
    "buffer": "800p",
}
TARGET = "175p"


def test_example_1_of_pi_pd() -> None:
    point = OperatingPoint(60, 0.2467, 3750)
    assert point.plant_gain == pytest.approx(117187.5)
    assert (point.tcp_pole, point.queue_pole) == pytest.approx((0.53, 4.05), rel=0.01)
    figures = PI_PD.without_control(point)
    assert figures.omega_n == pytest.approx(342.3, abs=0.1)
    assert figures.xi == pytest.approx(0.0067, abs=5e-5)
    assert 100 * figures.overshoot == pytest.approx(97.92, abs=0.005)
    assert figures.rise_s == pytest.approx(5.26e-3, abs=5e-6)
    assert figures.settling_s == pytest.approx(1.75, abs=5e-3)
    # 1/54985.1, for R = 0.2467 s to four digits.
    assert figures.error_at_rest == pytest.approx(1 / 54985.1, rel=1e-4)


def test_section_5_1_of_bigdeli() -> None:
    point = OperatingPoint(15, 0.24, 1875)
    assert (point.tcp_pole, point.queue_pole) == pytest.approx((0.28, 4.17), rel=0.01)
    figures = PI_PD.without_control(point)
    assert figures.omega_n == pytest.approx(342.33, abs=0.01)
    assert figures.xi == pytest.approx(6.495e-3, rel=1e-3)
    assert figures.rise_exact_s == pytest.approx(4.608e-3, abs=1e-6)
    assert figures.settling_s == pytest.approx(1.8, abs=5e-3)
    assert 100 * figures.overshoot == pytest.approx(97.98, abs=0.005)
    # Printed with poles rounded to 0.28 and 4.17.
    assert figures.error_at_rest == pytest.approx(9.96e-6, rel=0.01)


def test_the_step_of_figure_3_is_the_formulas() -> None:
    point = OperatingPoint(60, 0.2467, 3750)
    figures = PI_PD.without_control(point)
    time_s, queue = PI_PD.unit_step(point, 2.0, 40_000)
    rest = 1 - figures.error_at_rest
    assert queue.max() / rest - 1 == pytest.approx(figures.overshoot, rel=1e-3)
    assert time_s[queue.argmax()] == pytest.approx(math.pi / figures.omega_d, rel=0.01)
    assert time_s[np.argmax(queue > rest)] == pytest.approx(figures.rise_exact_s, rel=0.02)
    last = time_s[np.flatnonzero(np.abs(queue - rest) > 0.02)[-1]]
    assert last == pytest.approx(figures.settling_s, rel=0.03)


@pytest.mark.parametrize(
    ("flows", "a", "b"), [(60, 0.000078530, 0.000078272), (240, 0.00031567, 0.00031154)]
)
@pytest.mark.parametrize("law", ["pi", "stpi"])
def test_pi_of_staqm(law: str, flows: int, a: float, b: float) -> None:
    gains = design(law, Link(flows=flows, **STAQM), target=TARGET).gains
    assert gains["a"] == pytest.approx(a, rel=1e-3)
    assert gains["b"] == pytest.approx(b, rel=1e-3)


def test_pi_of_hollot() -> None:
    # pi-pd Table 1 is 1.822e-5 and 1.816e-5, without the factor |jω_g·R + 1| = 1.0084 of (4).
    designed = design(
        "pi",
        Link("30Mbit/s", "246.7ms", flows=60, buffer="800p"),
        target="0.001p",
        overrides={"beta": 0},
    )
    assert designed.gains["a"] == pytest.approx(1.0084 * 1.822e-5, rel=2e-3)
    assert designed.gains["b"] == pytest.approx(1.0084 * 1.816e-5, rel=2e-3)


def test_pid_of_pi_pd() -> None:
    # (16), for R = 0.246 s with 200 packets in the queue; the law gets a twentieth of it.
    designed = design("pid", Link("30Mbit/s", "192.667ms", flows=60, buffer="800p"), target="200p")
    for name, printed in [("k_p", 1.24e-3), ("k_i", 6.23e-4), ("k_d", 1.02e-4)]:
        assert designed.gains[f"{name}_placed"] == pytest.approx(printed, rel=0.01)
        assert designed.gains[name] == pytest.approx(0.05 * printed, rel=0.01)
    assert designed.stable
    # What was placed without the delay is unstable with it.
    placed = design(
        "pid",
        Link("30Mbit/s", "192.667ms", flows=60, buffer="800p"),
        target="200p",
        overrides={"tuning": 1},
    )
    assert placed.gains["k_p"] == pytest.approx(1.24e-3, rel=0.01)
    assert not placed.stable


def test_red_of_staqm_appendix_d() -> None:
    # R = 0.15 s with the 5 ms of the target.
    designed = design(
        "stred", Link("622Mbit/s", "145ms", flows=1000, packet="500B"), target="777.5p"
    )
    for name, printed in [
        ("k_red", 5.495e-3),
        ("l_red", 3.294e-6),
        ("w_q", 3.53e-8),
        ("q_d", 1116),
        ("max_p", 7.35e-3),
    ]:
        assert designed.gains[name] == pytest.approx(printed, rel=0.01)


def test_the_response_time_of_figure_12() -> None:
    for ratio, printed in [(0.0064, 17.5), (0.0005, 225)]:
        omega_g = averaging_design(85, 0.1, OperatingPoint(ratio, 0.15, 1.0))["omega_g"]
        assert 1 / omega_g == pytest.approx(printed, rel=0.01)


@pytest.mark.parametrize(("rtt_s", "printed"), [(0.1, 0.325), (0.25, 0.81)])
def test_critical_time_constants_of_figure_11(rtt_s: float, printed: float) -> None:
    assert STAQM_FIGURES.critical_stpi_s(0.5, rtt_s) == pytest.approx(printed, rel=0.01)
    assert critical_load_time_s(0.5, rtt_s) == pytest.approx(printed, rel=0.01)


@pytest.mark.parametrize("beta", [0.1, 0.3, 0.6, 0.8, 0.85])
def test_figure_11_by_its_formula_and_by_counting(beta: float) -> None:
    for rtt_s in (0.05, 0.2):
        formula = critical_load_time_s(beta, rtt_s)
        assert STAQM_FIGURES.critical_stpi_s(beta, rtt_s) == pytest.approx(formula, rel=1e-3)


def test_figure_11_blows_up() -> None:
    assert critical_load_time_s(0.86, 0.1) > 100
    assert math.isinf(critical_load_time_s(0.861, 0.1))
    assert math.isinf(STAQM_FIGURES.critical_stpi_s(0.861, 0.1))


def test_figure_29_grows_with_the_phase_and_falls_with_the_load() -> None:
    times = [STAQM_FIGURES.critical_stred_s(phase, 0.006, 0.15) for phase in (50, 70, 85)]
    assert times == sorted(times)
    loads = [STAQM_FIGURES.critical_stred_s(85, ratio, 0.15) for ratio in (0.002, 0.006, 0.02)]
    assert loads == sorted(loads, reverse=True)
    # On the line the rightmost pair is on the axis.
    root = STAQM_FIGURES.stred(85, 0.006, 0.15, 1 / times[-1]).rightmost()
    assert abs(root.real) < 1e-3 * abs(root.imag)


def eavq(gain: float, k_p: float = 0.05, k_i: float = 0.5) -> RateLoop:
    k2 = RateLoop(1250, 50, 0.1, k_i).k2
    return RateLoop(1250, 50, 0.1, k_i, k_p, gain / k2)


def test_the_theorem_of_e_avq_and_the_exact_test_disagree() -> None:
    low, high = eavq(0.5), eavq(1.2)
    assert low.system.rightmost() == pytest.approx(-0.399, abs=5e-4)
    assert low.system.stable()
    assert not low.printed_theorem()
    root = high.system.rightmost()
    assert root.real == pytest.approx(3.05, rel=0.01)
    assert root.imag == pytest.approx(28.3, rel=0.01)
    assert not high.system.stable()
    assert high.printed_theorem()


def test_the_theorem_asks_for_the_one_thing_that_excludes_stability() -> None:
    # (22) and (23) together are K2·Kd > 1: docs/explanation/theory.md does it by hand.
    rng = np.random.default_rng(4)
    seen = set()
    for _ in range(400):
        capacity, flows, d = rng.uniform(50, 2000), rng.uniform(1, 400), rng.uniform(0.01, 1)
        k_i, k_p, gain = rng.uniform(0.01, 2), rng.uniform(0, 1), rng.uniform(0.01, 2)
        k2 = RateLoop(capacity, flows, d, k_i).k2
        loop = RateLoop(capacity, flows, d, k_i, k_p, gain / k2)
        assert loop.printed_theorem() == (gain > 1)
        assert not (loop.printed_theorem() and loop.system.stable())
        seen.add((loop.printed_theorem(), loop.system.stable()))
    assert len(seen) == 3


def test_the_bound_of_avq_is_where_its_roots_reach_the_axis() -> None:
    for flows, capacity in [(50, 1000.0), (70, 1000.0), (400, 6000.0)]:
        law = LawModel("avq", [], round(8000 * capacity), 1000, 100.0)
        designed = law.design(OperatingPoint(flows, 0.1, capacity), 20.0, [])
        assert designed is not None
        bound = designed["gains"]["alpha_bound"]
        assert RateLoop(capacity, flows, 0.1, 0.99 * bound).system.stable()
        assert not RateLoop(capacity, flows, 0.1, 1.01 * bound).system.stable()
    # Where there is no bound, nothing is stable.
    for alpha in (1e-4, 1e-2, 1.0, 100.0):
        assert not RateLoop(1000.0, 5, 0.1, alpha).system.stable()


@pytest.mark.parametrize("flows", [10, 25, 60, 120])
@pytest.mark.parametrize("rtt_ms", [40, 120, 300])
def test_pi_crosses_where_it_is_designed_to(flows: int, rtt_ms: int) -> None:
    # Sampling at 160 Hz moves the crossover little.
    designed = design(
        "pi",
        Link("15Mbit/s", f"{rtt_ms}ms", flows=flows, packet="500B", buffer="800p"),
        target="50p",
    )
    margins = designed.margins
    assert margins is not None
    assert margins.crossover_rad_s == pytest.approx(0.5 / designed.point.rtt_s, rel=0.02)
    # PM = 90° − atan β − β, less half a sample's lag.
    continuous = 90 - math.degrees(math.atan(0.5) + 0.5)
    lag = math.degrees(margins.crossover_rad_s * 0.00625 / 2)
    assert margins.phase_deg == pytest.approx(continuous - lag, abs=0.5)
    assert designed.stable


@pytest.mark.parametrize(("flows", "rtt_ms"), [(40, 100), (60, 200), (200, 150)])
def test_the_bound_of_pi_pd_is_where_it_oscillates(flows: int, rtt_ms: int) -> None:
    link = Link("30Mbit/s", f"{rtt_ms}ms", flows=flows, buffer="800p")
    at_bound = design("pi-pd", link, target="150p", overrides={"gain_margin": 1})
    assert at_bound.gains["interval_s"] <= at_bound.gains["interval_bound_s"]
    alpha = at_bound.gains["alpha_bound"]
    below, above = (
        design("pi-pd", link, target="150p", overrides={"alpha": factor * alpha})
        for factor in (0.98, 1.02)
    )
    assert below.stable
    assert not above.stable


@pytest.mark.parametrize(
    "law", ["pi", "pid", "pi-pd", "pi-avg", "pid-avg", "red", "pd-red", "rem", "stpi", "stred"]
)
@pytest.mark.parametrize(
    ("rate", "flows", "rtt", "target"),
    [
        ("10Mbit/s", 20, "80ms", "60p"),
        ("45Mbit/s", 200, "150ms", "400p"),
        ("155Mbit/s", 150, "40ms", "300p"),
    ],
)
def test_designs_are_stable_where_they_are_meant(
    law: str, rate: str, flows: int, rtt: str, target: str
) -> None:
    designed = design(law, Link(rate, rtt, flows=flows), target=target)
    assert designed.stable
    margins = designed.margins
    assert margins is not None
    assert margins.phase_deg > 15
    assert margins.gain_db > 3
    assert designed.point.window_pkts**2 * designed.point.probability == pytest.approx(2)


def test_the_step_settles_as_the_slowest_root_says() -> None:
    designed = design("pi", Link(flows=60, **STAQM), target=TARGET)
    assert designed.loop is not None
    time_s, queue = designed.loop.step(4 * designed.settling_s)
    peak = np.abs(queue).max()
    assert np.abs(queue[time_s > 1.2 * designed.settling_s]).max() < 0.02 * peak
    assert np.abs(queue[time_s > 0.5 * designed.settling_s]).max() > 0.02 * peak
    assert np.all(queue[time_s < designed.point.rtt_s] == 0)
    # An unstable loop grows.
    slow = PublishedPlant(
        LawModel("pi", [("target", "175p"), ("a", "3e-4"), ("b", "2.99e-4")], 15_000_000, 500, 800)
    ).loop_at(60, 0.2)
    assert slow is not None
    assert not slow.stable
    _, queue = slow.step(20)
    assert np.abs(queue[-200:]).max() > 10 * np.abs(queue[: len(queue) // 4]).max()


def test_roots_move_with_the_delay() -> None:
    system = DelaySystem([1, 2, 1], [3], 0.5)
    assert system.shifted(0.1).rightmost() == pytest.approx(system.rightmost() - 0.1)


@pytest.mark.parametrize(
    "law",
    [
        entry["name"]
        for entry in _native.laws()
        if any(param["name"] == "target" for param in entry["params"])
    ],
)
def test_a_set_point_is_the_same_as_an_option_and_as_a_parameter(law: str) -> None:
    link = Link("50Mbit/s", "80ms", flows=120)
    try:
        option = design(law, link, target="300p")
    except ScenarioError as refused:
        with pytest.raises(ScenarioError) as error:
            design(law, link, overrides={"target": "300p"})
        assert str(error.value) == str(refused)
    else:
        param = design(law, link, overrides={"target": "300p"})
        assert (param.to_dict(), param.toml()) == (option.to_dict(), option.toml())
        if law == "pi":
            assert option.gains["a"] == pytest.approx(2.11e-4, rel=2e-3)


def test_two_set_points_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r'target: "300p".*"200p"'):
        design(
            "pi", Link("50Mbit/s", "80ms", flows=120), target="300p", overrides={"target": "200p"}
        )
