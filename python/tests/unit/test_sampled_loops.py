"""Loops with a delay and a sampler against other ways to the same numbers."""

from __future__ import annotations

import cmath
import itertools
import math
from dataclasses import replace

import control  # type: ignore[import-untyped]
import numpy as np
import pytest
from law_models import LAWS
from law_models import law_model as law

from forebay._native import OperatingPoint
from forebay.control import closed_loop_poles as roots
from forebay.control import frequency_response as gain
from forebay.control import margins
from forebay.control.delay_system import DelaySystem
from forebay.control.design import design
from forebay.control.frequency_response import Terms
from forebay.control.link import Link
from forebay.control.loop import Loop
from forebay.control.plant import PublishedPlant


def loop(kind: str, flows: float = 60.0, propagation_s: float = 0.2) -> Loop:
    found = PublishedPlant(law(kind)).loop_at(flows, propagation_s)
    assert found is not None
    return found


def with_gain(of: Loop, factor: float) -> Loop:
    """The same loop with its gain times `factor`."""
    model = dict(of.model)
    model["direct"] = factor * of.model["direct"]
    if of.model["sampled"] is not None:
        interval_s, numerator, denominator = of.model["sampled"]
        model["sampled"] = (interval_s, [factor * n for n in numerator], denominator)
    return Loop(of.point, model)  # type: ignore[arg-type]


# --- the operating point ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flows", "rtt_s", "capacity"), [(60, 0.2467, 3750), (15, 0.24, 1875), (1000, 0.15, 155_500)]
)
def test_the_operating_point_is_the_fluid_models_equilibrium(
    flows: float, rtt_s: float, capacity: float
) -> None:
    point = OperatingPoint(flows, rtt_s, capacity)
    window, p = point.window_pkts, point.probability
    # W' = 1/R − W²p/(2R) and q' = NW/R − C are zero.
    assert 1 / rtt_s == pytest.approx(window**2 * p / (2 * rtt_s))
    assert flows * window / rtt_s == pytest.approx(capacity)
    # The linearised equations, by differences of the nonlinear ones around them (R held).
    step = 1e-6
    dw = (-((window + step) * window) + window * window) * p / (2 * rtt_s) / step
    # W(t)·W(t − R)/R(t − R): once each for the two windows, which Hollot et al. merge.
    assert point.tcp_pole == pytest.approx(-2 * dw)
    gain = flows / rtt_s * window**2 / (2 * rtt_s)
    assert point.plant_gain == pytest.approx(gain)


def test_flows_settle_where_law_and_tcp_agree() -> None:
    red = law("red")
    for flows in (30.0, 60.0, 90.0):
        settled = red.operate(flows, 0.2)
        assert settled is not None
        point, model = settled
        assert point.rtt_s == pytest.approx(0.2 + model["queue_pkts"] / 3750, rel=1e-9)
        # RED's profile with the spacing of `wait`: p_b/1.5.
        p = 0.1 * (model["queue_pkts"] - 50) / 250 / 1.5
        assert p == pytest.approx(point.probability, rel=1e-6)


# --- delay, sampler and hold -----------------------------------------------------------------


def test_the_pulse_response_is_the_sum_of_all_aliases() -> None:
    terms = loop("pi-avg").terms
    interval_s = 0.0068
    assert terms.interval_s == pytest.approx(interval_s)
    omega = np.array([0.3, 2.0, 20.0, 200.0, 400.0])
    total = np.zeros(5, complex)
    for k in range(-2000, 2001):
        w = omega + 2 * math.pi * k / interval_s
        s = 1j * w
        total += gain.plant(terms, s) * (1 - np.exp(-s * interval_s)) / (s * interval_s)
    exact = gain.pulse(terms, 1j * omega)
    assert np.abs(total / exact - 1).max() < 1e-6


def test_margins_of_a_rational_loop_are_python_controls() -> None:
    # A continuous law, and a delay by a Padé approximation of high order, in their own code.
    found = loop("red")
    rational = control.tf([found.model["direct"] * found.terms.gain], [1.0])
    for pole in found.terms.poles:
        rational *= control.tf([1], [1, pole])
    delay = control.tf(*control.pade(found.terms.delay_s, 8))
    db, phase, sensitivity, w_turn, w_cross, _ = control.stability_margins(rational * delay)
    margins = found.margins
    assert margins.crossover_rad_s == pytest.approx(w_cross, rel=1e-4)
    if found.stable:
        assert margins.phase_deg == pytest.approx(phase, abs=0.05)
        assert margins.gain_db == pytest.approx(20 * math.log10(db), abs=0.05)
        assert margins.phase_crossover_rad_s == pytest.approx(w_turn, rel=1e-3)
        assert 1 / margins.sensitivity == pytest.approx(sensitivity, rel=0.01)


@pytest.mark.parametrize("kind", sorted(LAWS))
def test_margins_are_where_stability_ends(kind: str) -> None:
    found = loop(kind)
    if not found.stable:
        margins = found.margins
        assert margins.gain_db < 0
        assert with_gain(found, 0.98 * 10 ** (margins.gain_db / 20)).stable
        return
    factor = 10 ** (found.margins.gain_db / 20)
    assert with_gain(found, 0.98 * factor).stable
    assert not with_gain(found, 1.02 * factor).stable
    delay_s = found.margins.delay_s
    assert math.radians(found.margins.phase_deg) == pytest.approx(
        delay_s * found.margins.crossover_rad_s, rel=5e-3
    )
    assert found.changed(delay_s=0.97 * delay_s).stable
    assert not found.changed(delay_s=1.03 * delay_s).stable


def test_a_sampled_loops_roots_satisfy_its_equation() -> None:
    found = loop("pi")
    assert found.interval_s is not None
    for s in found.roots[:8]:
        z_1 = np.array([cmath.exp(-s * found.interval_s)])
        _, numerator, denominator = found.model["sampled"] or (0, [0.0], [1.0])
        law_gain = np.polyval(numerator[::-1], z_1) / np.polyval(denominator[::-1], z_1)
        loop_gain = law_gain * gain.pulse(found.terms, np.array([s]))
        assert abs(1 + loop_gain[0]) < 1e-6


# --- delay systems ---------------------------------------------------------------------------


def test_a_nearly_cancelled_root_is_how_long_a_loop_settles() -> None:
    """Beyond 300 intervals of delay: TCP's pole, which REM's zero is on, and the root beside it."""
    made = design(
        "rem", Link("17300000000bit/s", "339ms", flows=1559, packet="3056B"), target="683234p"
    )
    assert made.settling_s == pytest.approx(4 / made.point.tcp_pole, rel=1e-3)
    assert made.settling_s == pytest.approx(1545, rel=1e-3)


@pytest.mark.parametrize("law", ["pie", "pi2"])
def test_a_delay_is_as_old_as_its_head_has_waited(law: str) -> None:
    """The gain margin of a law on the delay, on drawn links, against the equations in time: a
    sample has the queue of a target before. Interpolated between two samples it was 0.6 dB off."""
    rng = np.random.default_rng(21)
    for _ in range(4):
        rate, rtt, flows = np.exp(rng.uniform(np.log([20, 10, 5]), np.log([1000, 60, 60])))
        made = design(
            law, Link(f"{rate:.4g}Mbit/s", f"{rtt:.4g}ms", flows=round(flows), packet="1500B")
        )
        loop, point = made.loop, made.point
        assert loop is not None
        assert loop.interval_s is not None
        assert loop.model["age_s"] == pytest.approx(point.rtt_s - made.link.rtt_s, rel=1e-6)
        edge = 10 ** (loop.margins.gain_db / 20)
        assert swings(loop, 0.98 * edge) < 1 < swings(loop, 1.02 * edge)


def swings(loop: Loop, gain: float, turns: float = 150.0) -> float:
    """By how much a swing grows over the second half of so many round trips, with so many times the
    plant's gain: two poles and two delays, stepped."""
    point = loop.point
    assert loop.model["sampled"] is not None
    interval_s, numerator, _ = loop.model["sampled"]
    per_sample = math.ceil(interval_s / (point.rtt_s / 60))
    dt = interval_s / per_sample
    late, aged = point.rtt_s / dt, loop.model["age_s"] / dt
    past = int(late + aged) + 3
    steps = int(turns * point.rtt_s / dt)
    p, queue = np.zeros(past + steps), np.zeros(past + steps + 1)
    x, y = 1.0, 1.0
    queue[past] = y
    seen, now = [0.0] * len(numerator), 0.0

    def at(values: np.ndarray, k: float) -> float:
        whole = int(k)
        return float(values[whole] + (k - whole) * (values[whole + 1] - values[whole]))

    decays = [math.exp(-pole * dt) for pole in (point.tcp_pole, point.queue_pole)]
    for k in range(past, past + steps):
        if (k - past) % per_sample == 0:
            seen = [at(queue, k - aged), *seen[:-1]]
            now += float(np.dot(numerator, seen))
        p[k] = now
        drive = -gain * point.plant_gain * at(p, k + 0.5 - late)
        before = x
        x = decays[0] * x + (1 - decays[0]) * drive / point.tcp_pole
        mean = 0.5 * (before + x)
        y = decays[1] * y + (1 - decays[1]) * mean / point.queue_pole
        queue[k + 1] = y
    half = past + steps // 2
    early, last = np.abs(queue[half : half + steps // 4]), np.abs(queue[-(steps // 4) :])
    return float(last.max() / early.max())


def test_a_pure_delay_turns_unstable_at_half_pi() -> None:
    # y' = −k·y(t − 1): stable for 0 < k < π/2, and at k = 1/e its roots meet at −1.
    assert DelaySystem([1, 0], [1.57], 1.0).stable()
    assert not DelaySystem([1, 0], [1.572], 1.0).stable()
    assert DelaySystem([1, 0], [1 / math.e - 1e-6], 1.0).rightmost().real == pytest.approx(
        -1, abs=0.01
    )


def test_the_rightmost_root_is_the_rate_of_the_delay_equation() -> None:
    # y'' + a1·y' + a0·y + b1·y'(t − h) + b0·y(t − h) = 0, integrated in small steps.
    a, b, delay_s = [1.0, 0.6, 2.0], [0.5, 1.2], 0.7
    system = DelaySystem(a, b, delay_s)
    root = system.rightmost()
    steps = 1400
    dt = delay_s / steps
    past = [np.array([math.cos(k * dt), -math.sin(k * dt)]) for k in range(-steps, 1)]
    y = past[-1].copy()

    def slope(now: np.ndarray, then: np.ndarray) -> np.ndarray:
        return np.array([now[1], -a[1] * now[1] - a[2] * now[0] - b[0] * then[1] - b[1] * then[0]])

    track = []
    for k in range(30 * steps):
        then, then_next = past[k], past[k + 1]
        first = slope(y, then)
        y = y + dt / 2 * (first + slope(y + dt * first, then_next))
        past.append(y)
        track.append(y[0])
    # Crossings of zero give the period, peaks the growth.
    values = np.array(track[10 * steps :])
    crossings = np.flatnonzero(np.diff(np.signbit(values)))
    period_s = 2 * float(np.mean(np.diff(crossings))) * dt
    assert 2 * math.pi / period_s == pytest.approx(root.imag, rel=2e-3)
    peaks = [np.abs(values[i:j]).max() for i, j in itertools.pairwise(crossings)]
    growth = np.polyfit(np.arange(len(peaks)) * period_s / 2, np.log(peaks), 1)[0]
    assert growth == pytest.approx(root.real, rel=5e-3)


def test_neutral_systems_with_a_gain_above_one_are_never_stable() -> None:
    system = DelaySystem([1, 5, 4], [1.1, 0, 0], 0.2)
    assert system.unstable_roots() == math.inf
    assert not system.stable()
    # Far roots lie along ln(1.1)/h.
    far = [r for r in system.roots(30) if abs(r) > 200]
    assert far
    assert all(r.real == pytest.approx(math.log(1.1) / 0.2, rel=0.05) for r in far)


def test_advanced_systems_are_refused() -> None:
    with pytest.raises(ValueError, match="higher degree"):
        DelaySystem([1, 2], [1, 0, 0], 1.0)


# --- maps ------------------------------------------------------------------------------------


def test_a_lightly_damped_inner_loop_hides_no_root() -> None:
    """Of PD-RED where RED alone is 0.05 dB from its own edge: L_s has a peak there that is narrower
    than the steps of a grid, and roots find the edge at 0.0173 dB."""
    there = Terms(
        gain=1366268.7269939329,
        poles=(5.7347072459202035, 7.275355592616319, 39.47368421530812),
        delay_s=0.13745032627888173,
        direct=0.0032276268596656073,
        interval_s=0.01,
        numerator=(1.4824646315555555e-06,),
        denominator=(1.0, -1.0),
        hybrid=True,
    )
    for db in (0.0, 0.017, 0.018, 0.03, 0.06):
        more = there.changed(gain=10 ** (db / 20))
        assert (margins.unstable_roots(more) == 0) == (roots.roots(more)[0].real < 0)


def test_an_array_of_frequencies_gives_the_values_of_each() -> None:
    """Loops of two paths, as rows and alone; with the folds that matter, and with all."""
    rng = np.random.default_rng(5)

    def path(delay_s: float, beside: Terms | None = None) -> Terms:
        column = rng.uniform(0.9, 1.1, (3, 1))
        return Terms(
            gain=400.0,
            poles=(0.4 * column, 3.0 + 2j * column, 3.0 - 2j * column),
            residues=(0.2 * column, -0.1 + 0.3j * column, -0.1 - 0.3j * column),
            delay_s=delay_s * column,
            direct=2e-3 * column,
            interval_s=0.05,
            numerator=(4e-3, -3.9e-3),
            denominator=(1.0, -1.0),
            hybrid=True,
            parallel=beside,
        )

    t = path(0.3, path(0.11))
    s = 1j * np.linspace(0.01, math.pi / 0.05, 60) * np.ones((3, 1))
    line = gain.loop(t, s)
    few = replace(t, aliases=gain.alias_terms(t, s))
    assert np.allclose(gain.loop(few, s), line, rtol=1e-6)
    for k in (0, 7, 59):
        assert np.allclose(gain.loop(t, s[:, [k]]), line[:, [k]], rtol=1e-12)
    # Off the axis as on it.
    assert np.allclose(gain.loop(t, s + 1e-9), line, rtol=1e-6)
