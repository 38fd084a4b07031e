"""What TCP's own losses do to a queue, and how a queue swings under too much gain: each part
against another calculation, and the whole against packets and the fluid."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from forebay import fluid, run
from forebay.control import expected_queue, frequency_response
from forebay.control.ack_clocking import AckClockedEquilibrium
from forebay.control.design import design
from forebay.control.designed_law import Design


def made(law: str, link: tuple[str, int, str, str], factor: float = 1.0) -> Design:
    rate, flows, rtt, target = link
    one = design(law, rate, flows, rtt, target=target, buffer="3000p")
    knobs = {"pi": ("a", "b"), "pi-pd": ("alpha",)}.get(law, ())
    return replace(
        one,
        params=[
            (key, f"{float(value) * factor:.10g}" if key in knobs else value)
            for key, value in one.params
        ],
    )


@pytest.mark.parametrize("share", [0.2, 0.6, 1.3])
def test_a_gaussian_that_is_cut_at_zero_and_keeps_its_mean(share: float) -> None:
    draws = np.random.default_rng(1).standard_normal(1_000_000) * share
    centre = expected_queue._centre(share)
    kept = np.maximum(0.0, draws + centre)
    assert kept.mean() == pytest.approx(1, rel=5e-3)
    assert expected_queue._kept(share) == pytest.approx((draws + centre > 0).mean(), abs=2e-3)
    # The gain of a limiter for a Gaussian: its covariance with the input over the variance.
    assert expected_queue._kept(share) == pytest.approx(np.mean(kept * draws) / share**2, rel=1e-2)
    deviation, missing = expected_queue._cut(20.0, 20.0 * share)
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


@pytest.mark.parametrize("law", ["pi", "pi-pd", "red"])
@pytest.mark.parametrize(
    "link",
    [
        ("50Mbit/s", 30, "40ms", "100p"),
        ("100Mbit/s", 50, "20ms", "80p"),
    ],
)
def test_deviation_and_utilisation_of_packets(law: str, link: tuple[str, int, str, str]) -> None:
    """Within 12 % with four seeds, RED within 25; the papers' loop says 10 to 40 % less, and for
    RED 40 % more."""
    one = made(law, link)
    moves = one.expected
    assert moves is not None
    text = one.toml().replace("[bottleneck]", "[bottleneck]\necn = true")
    text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true')
    found = run(text, seeds=4)
    late = found.samples.filter(found.samples["time_s"] >= 20)
    variances = [float(group["queue_pkts"].to_numpy().var()) for _, group in late.group_by("seed")]
    assert moves.deviation_pkts == pytest.approx(
        math.sqrt(np.mean(variances)), rel=0.25 if law == "red" else 0.12
    )
    used = found.summary().filter(metric="utilisation")["mean"][0]
    assert moves.utilisation == pytest.approx(used, abs=0.01)


@pytest.mark.parametrize("law", ["pi", "rem", "pid"])
def test_a_few_flows_take_an_integral_to_zero(law: str) -> None:
    """With ten flows within 12 %, four seeds; cut after the law it was up to 15 % more, and the
    queue's mean at the set-point."""
    one = made(law, ("10Mbit/s", 10, "50ms", "30p"))
    moves = one.expected
    assert moves is not None
    text = one.toml().replace("[bottleneck]", "[bottleneck]\necn = true")
    text = text.replace('kind = "ftp"', 'kind = "ftp"\necn = true').replace('"60s"', '"120s"')
    found = run(text, seeds=4)
    late = found.samples.filter(found.samples["time_s"] >= 20)
    queues = [group["queue_pkts"].to_numpy() for _, group in late.group_by("seed")]
    deviation = math.sqrt(np.mean([float(queue.var()) for queue in queues]))
    assert moves.deviation_pkts == pytest.approx(deviation, rel=0.12)
    mean = float(np.mean([queue.mean() for queue in queues]))
    assert moves.mean_pkts == pytest.approx(mean, rel=0.1)
    assert moves.mean_pkts < 28


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


def test_what_a_cut_leaves_of_a_sine() -> None:
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


@pytest.mark.parametrize(
    ("law", "factor", "amplitude", "period"),
    [("pi", 2.0, 0.1, 0.03), ("pi", 3.0, 0.1, 0.08), ("pi-pd", 6.0, 0.25, 0.05)],
)
@pytest.mark.parametrize(
    "link",
    [
        ("30Mbit/s", 60, "200ms", "200p"),
        ("50Mbit/s", 30, "40ms", "100p"),
        ("100Mbit/s", 100, "100ms", "400p"),
    ],
)
def test_the_fluid_swings_as_the_balance_says(
    law: str, factor: float, amplitude: float, period: float, link: tuple[str, int, str, str]
) -> None:
    one = made(law, link, factor)
    swing, loop = one.cycle, one.sawtooth
    assert swing is not None
    assert loop is not None
    assert one.expected is None
    window = float(AckClockedEquilibrium.at_probability(loop.point.probability).window_pkts)
    numbers = {key: float(text) if text[-1].isdigit() else text for key, text in one.params}
    end_s = 30 + 60 * swing.period_s
    flows = fluid.Class(
        one.link.flows, one.link.rtt, marks=True, sawtooth=True, initial_window_pkts=window
    )
    queue = fluid.Bottleneck(law, one.link.rate, 3000, params=numbers)
    trace = fluid.run(fluid.Model([queue], [flows], f"{end_s:.2f}s", sample="5ms"))
    late = trace.time_s > 0.6 * end_s
    time_s, pkts = trace.time_s[late], trace.queue_pkts[0][late]
    low, high = np.percentile(pkts, [0.5, 99.5])
    up = np.flatnonzero(np.diff(np.signbit(pkts - pkts.mean()).astype(int)) < 0)
    assert swing.amplitude_pkts == pytest.approx(0.5 * (high - low), rel=amplitude)
    assert swing.period_s == pytest.approx(float(np.diff(time_s[up]).mean()), rel=period)


def test_a_stable_loop_does_not_swing() -> None:
    assert made("pi", ("30Mbit/s", 60, "200ms", "200p")).cycle is None


def test_a_gain_beyond_every_balance_has_no_cycle() -> None:
    """A thousand times too much: the design says that it is unstable, and no more."""
    far = design(
        "pi", "15Mbit/s", 60, "200ms", packet="500B", target="175p", overrides={"a": 0.5, "b": 0.49}
    )
    assert not far.stable
    assert far.cycle is None
