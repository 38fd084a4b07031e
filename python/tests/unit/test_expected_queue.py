"""What TCP's own losses do to a queue, and how a queue swings under too much gain: each part
against another calculation, and the whole against packets and the fluid."""

from __future__ import annotations

import math

import numpy as np
import pytest
from designs import scaled_design as made

from forebay.control import expected_queue, frequency_response
from forebay.control.design import design
from forebay.control.link import Link


@pytest.mark.parametrize("share", [0.2, 0.6, 1.3])
def test_a_gaussian_that_is_cut_at_zero_and_keeps_its_mean(share: float) -> None:
    draws = np.random.default_rng(1).standard_normal(1_000_000) * share
    centre = expected_queue._centre(share)
    kept = np.maximum(0.0, draws + centre)
    assert kept.mean() == pytest.approx(1, rel=5e-3)
    assert expected_queue._clipped_gain(share) == pytest.approx(
        (draws + centre > 0).mean(), abs=2e-3
    )
    # The gain of a limiter for a Gaussian: its covariance with the input over the variance.
    assert expected_queue._clipped_gain(share) == pytest.approx(
        np.mean(kept * draws) / share**2, rel=1e-2
    )
    deviation, missing = expected_queue._clipped(20.0, 20.0 * share)
    assert deviation == pytest.approx(20 * kept.std(), rel=1e-2)
    assert missing == pytest.approx(
        20 * np.maximum(0.0, -draws - centre).mean(), rel=2e-2, abs=1e-3
    )


@pytest.mark.parametrize("p", [0.001, 0.005, 0.015])
def test_the_spread_of_windows(p: float) -> None:
    """Flows that grow by a packet in a round trip, are halved, and then rest for one."""
    random = np.random.default_rng(2)
    window, resting = np.full(4000, p**-0.5), np.zeros(4000, bool)
    means, squares, hits = [], [], []
    for turn in range(1200):
        hit = ~resting & (random.random(4000) < -np.expm1(np.log1p(-p) * window))
        window = np.where(hit, window / 2, np.where(resting, window, window + 1))
        resting = hit
        if turn >= 400:
            means.append(window.mean())
            squares.append((window**2).mean())
            hits.append(p * window.mean())
    spread = np.mean(squares) / np.mean(means) ** 2 - 1
    signals = float(np.mean(hits))
    second = (7 / 6 + 14 / 36 * signals) * (1 + signals) / (1 + 7 / 12 * signals) ** 2
    assert spread == pytest.approx(second - 1, rel=0.12)


@pytest.mark.parametrize("law", ["pi", "pid"])
def test_stepping_an_uncut_loop_is_its_spectrum(law: str) -> None:
    loop = made(law, ("50Mbit/s", 30, "40ms", "100p")).sawtooth
    assert loop is not None
    t, p0 = expected_queue.trains(loop), loop.point.probability
    # So little noise that nothing is cut; and as much, with the spectrum's deviation.
    little = 1e-4 * expected_queue.noise(loop)
    queue_pkts = loop.model["queue_pkts"]
    seen = expected_queue.saturated_moments(t, loop.point.rtt_s, p0, queue_pkts, little)
    omega = np.geomspace(1e-3, 1.0, 8000) * loop.highest_rad_s
    s = 1j * omega
    white = little * (5 / 6 + np.cos(omega * loop.point.rtt_s) / 6)
    pole = float(np.real(np.asarray(t.poles[0])))
    density = white * np.abs(frequency_response.sensitivity(t, s)) ** 2 / (omega**2 + pole**2)
    variance = float(np.trapezoid(density, omega)) / math.pi
    variance += 5 / 6 * little / loop.highest_rad_s / math.pi
    assert seen.deviation_pkts == pytest.approx(math.sqrt(variance), rel=0.03)
    assert seen.mean_pkts == pytest.approx(loop.model["queue_pkts"], rel=1e-3)
    assert abs(seen.missing_pkts) < 1e-9


def test_the_describing_function_of_a_clipped_sine_is_exact() -> None:
    turn = 2 * math.pi * np.arange(4096) / 4096
    for swing in (1.5, 4.0, 30.0):
        kept = expected_queue.fundamental_share(swing)
        # The bias that keeps the mean, by bisection.
        low, high = -swing, 1.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            if np.maximum(0, middle + swing * np.sin(turn)).mean() < 1:
                low = middle
            else:
                high = middle
        wave = np.maximum(0, low + swing * np.sin(turn))
        assert kept == pytest.approx(2 * np.mean(wave * np.sin(turn)) / swing, rel=1e-3)


def test_a_stable_loop_has_no_limit_cycle() -> None:
    assert made("pi", ("30Mbit/s", 60, "200ms", "200p")).cycle is None


def test_a_gain_beyond_every_balance_has_no_cycle() -> None:
    """A thousand times too much: the design says that it is unstable, and no more."""
    far = design(
        "pi",
        Link("15Mbit/s", "200ms", flows=60, packet="500B"),
        target="175p",
        overrides={"a": 0.5, "b": 0.49},
    )
    assert not far.stable
    assert far.cycle is None
