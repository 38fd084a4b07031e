"""Roots and margins of many loops at once, against each loop alone and against steps in time."""

from __future__ import annotations

import math

import control  # type: ignore[import-untyped]
import numpy as np
import pytest
from law_models import LAWS
from law_models import law_model as law

from forebay._native import ScenarioError
from forebay.control import closed_loop_poles as roots
from forebay.control.delay_system import DelaySystem
from forebay.control.design import design
from forebay.control.frequency_response import Terms
from forebay.control.link import Link
from forebay.control.loop import Loop, count_loops


@pytest.mark.parametrize("delay_s", [0.2, 0.2031, 0.0, 0.004])
def test_the_pulse_transfer_is_the_plant_stepped_in_time(delay_s: float) -> None:
    interval_s, rng = 0.05, np.random.default_rng(1)
    plant = Terms(100.0, (0.5, 4.0), delay_s, 0.0, interval_s)
    inputs = rng.normal(size=80)
    top, bottom = roots.pulse_transfer(plant)
    got = np.zeros(80)
    for k in range(80):
        got[k] = sum(top[i] * inputs[k - i] for i in range(min(len(top), k + 1)))
        got[k] -= sum(bottom[i] * got[k - i] for i in range(1, min(len(bottom), k + 1)))
    # python-control integrates the rational plant; the input is delayed by hand.
    fine = np.arange(0, 80 * interval_s, 1e-4)
    late = np.floor((fine - delay_s) / interval_s + 1e-9).astype(int)
    held = np.where(late >= 0, inputs[np.maximum(late, 0)], 0.0)
    rational = control.tf([100.0], [1, 4.5, 2.0])
    answer = control.forced_response(rational, fine, held).outputs
    at = np.round(np.arange(80) * interval_s / 1e-4).astype(int)
    assert np.abs(got - answer[at]).max() < 0.02 * np.abs(answer).max()


def test_counted_roots_are_the_roots_that_are_found() -> None:
    rng = np.random.default_rng(2)
    seen = set()
    for _ in range(120):
        order = int(rng.integers(1, 5))
        degree = int(rng.integers(0, order + 1))
        a = np.concatenate([[1.0], 3 * rng.normal(size=order)])
        b = 3 * rng.normal(size=degree + 1)
        if degree == order:
            b[0] = rng.uniform(-0.9, 0.9)
        system = DelaySystem(a.tolist(), b.tolist(), float(rng.uniform(0.1, 3)))
        roots = system.roots(60)
        assert np.abs(system(roots)).max() < 1e-6 * np.abs(a).max() * (1 + np.abs(roots)).max() ** 5
        assert system.unstable_roots() == np.sum(roots.real > 0)
        seen.add((degree == order, int(np.sum(roots.real > 0)) > 0))
    assert len(seen) == 4  # retarded and neutral, stable and not


@pytest.mark.parametrize("law", ["pi", "rem", "pie", "pi2", "pi-pd"])
def test_guessed_roots_are_those_of_the_matrix(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a sampled loop, refined guesses beside the eigenvalues of what an interval does; links are
    drawn. A root that the law's zero nearly cancels is among them."""
    rng = np.random.default_rng(11)
    compared = 0
    while compared < 8:
        rate, rtt, flows = np.exp(rng.uniform(np.log([5, 20, 3]), np.log([5000, 300, 1000])))
        try:
            made = design(
                law, Link(f"{rate:.4g}Mbit/s", f"{rtt:.4g}ms", flows=round(flows), packet="1500B")
            )
        except ScenarioError:
            continue
        assert made.loop is not None
        if made.loop.terms.longest_s / (made.loop.interval_s or 1) > roots.LONGEST:
            continue
        exact = made.loop.roots[0]
        with monkeypatch.context() as patched:
            patched.setattr(roots, "LONGEST", 0)
            guessed = roots.roots(made.loop.terms)[0]
        assert guessed.real == pytest.approx(exact.real, rel=1e-5)
        assert abs(guessed.imag) == pytest.approx(abs(exact.imag), rel=1e-4, abs=1e-6)
        compared += 1


@pytest.mark.parametrize("kind", sorted(LAWS))
def test_a_maps_cells_are_what_each_loop_says(kind: str) -> None:
    rng = np.random.default_rng(3)
    loops: list[Loop] = []
    while len(loops) < 25:
        flows = float(np.exp(rng.uniform(math.log(10), math.log(400))))
        propagation_s = float(np.exp(rng.uniform(math.log(0.02), math.log(0.5))))
        cell = law(kind).operate(flows, propagation_s)
        if cell is None or cell[1]["queue_pkts"] > 800:
            continue
        loops.append(Loop(*cell))
    for found, (margin, flag) in zip(loops, count_loops(loops), strict=True):
        exact = found.margins.gain_db
        assert flag == found.stable or abs(exact) < 0.1
        if abs(exact) < 20:
            assert margin == pytest.approx(exact, abs=0.15)
