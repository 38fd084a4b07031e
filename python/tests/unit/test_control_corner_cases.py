"""Corners of the control bench, each by a calculation of its own."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from conftest import Cli
from designs import typed_design as of
from linear_loop import critical_gain_db, sampled

from forebay._native import LawModel, OperatingPoint, ScenarioError
from forebay.campaign.claims import figures
from forebay.control import loop as loops
from forebay.control.design import design
from forebay.control.design_rule import design_once
from forebay.control.link import Link
from forebay.control.plant import PublishedPlant
from forebay.report import designs

# --- margins at z = −1 ------------------------------------------------------------------------

AT_NYQUIST = [
    "pid --rate 1Gbit/s --flows 50 --rtt 5ms --packet 1500B",
    "pi-avg --rate 1Gbit/s --flows 20 --rtt 1ms --packet 1500B",
    "p-avg --rate 45.4Mbit/s --flows 8 --rtt 7.68ms --packet 200B",
]
USUAL = {"pid": "33.898305ms", "pi-avg": "6.8ms", "p-avg": "75ms", "pd-red": "10ms"}


@pytest.mark.parametrize("text", AT_NYQUIST)
def test_a_gain_margin_may_be_at_half_the_sampling_frequency(text: str) -> None:
    made = of(text, interval=USUAL[text.split()[0]])
    assert made.loop is not None
    assert made.margins is not None
    assert made.margins.gain_db == pytest.approx(
        critical_gain_db(made.loop.point, made.loop.model), abs=1e-4
    )
    assert made.margins.phase_crossover_rad_s == pytest.approx(
        math.pi / (made.loop.interval_s or 0)
    )


def test_a_gain_above_one_is_not_described_as_below_one() -> None:
    # Before its second thoughts: `design` gives no gains that are unstable.
    link = Link("100Mbit/s", "10ms", flows=20, packet="1500B")
    made = design_once("p-avg", link, link.set_point_pkts(), {"interval": "75ms"})
    assert of("p-avg --rate 100Mbit/s --flows 20 --rtt 10ms --packet 1500B", interval="75ms").stable
    assert made.loop is not None
    point, model = made.loop.point, made.loop.model
    radius = np.abs(np.linalg.eigvals(sampled(point, model))).max()
    assert radius > 1
    assert not made.stable
    # L at z, from the open loop's matrix: det(zI − closed)/det(zI − open) = 1 + L.
    shut, opened = sampled(point, model), sampled(point, model, 0.0)
    z = np.exp(1j * np.linspace(0, math.pi, 400))
    eye = np.eye(len(shut))
    gains = [abs(np.linalg.det(x * eye - shut) / np.linalg.det(x * eye - opened) - 1) for x in z]
    assert made.margins is not None
    assert made.margins.least_gain == pytest.approx(min(gains), rel=1e-3)
    assert min(gains) > 1.1
    assert "stays above one" in designs.paragraph(made)
    assert "stays below one" not in designs.paragraph(made)


def test_the_peak_of_s_is_between_the_grids_points() -> None:
    """A loop a hair from the edge: its peak is narrower than any grid."""
    found = PublishedPlant(
        LawModel(
            "pi", [("target", "175p"), ("a", "7.853e-5"), ("b", "7.827e-5")], 15_000_000, 500, 800.0
        )
    ).loop_at(60, 0.2)
    assert found is not None
    near = found.changed(gain=10 ** ((found.margins.gain_db - 0.01) / 20))
    w = near.margins.phase_crossover_rad_s
    fine = np.linspace(0.98 * w, 1.02 * w, 200_001)
    true = float(np.abs(1 / (1 + near.response(fine))).max())
    assert true > 400
    assert near.margins.sensitivity == pytest.approx(true, rel=1e-4)


@pytest.mark.parametrize("text", AT_NYQUIST[:2])
def test_a_delay_that_is_added_acts_in_parts_of_an_interval(text: str) -> None:
    made = of(text, interval=USUAL[text.split()[0]])
    assert made.loop is not None
    assert made.margins is not None
    point, model, delay_s = made.loop.point, made.loop.model, made.margins.delay_s

    def radius(more_s: float) -> float:
        return float(np.abs(np.linalg.eigvals(sampled(point, model, 1.0, more_s))).max())

    assert (made.loop.interval_s or 0) > point.rtt_s
    assert max(radius(share * delay_s) for share in np.linspace(0, 0.999, 40)) < 1
    assert radius(1.001 * delay_s) > 1


# --- equilibria -------------------------------------------------------------------------------


def test_the_equilibrium_of_red_is_where_its_profile_meets_tcp() -> None:
    """A profile written out here, and a search over every queue for where it crosses TCP's p."""
    red = [("min_th", "30p"), ("max_th", "150p"), ("max_p", "0.1"), ("w_q", "2e-4")]
    queue = np.linspace(0, 999, 400_000)
    profile = np.where(
        queue < 30,
        0,
        np.where(queue < 150, 0.1 * (queue - 30) / 120, 0.1 + 0.9 * (queue - 150) / 150),
    )
    signals = np.where(queue >= 300, 1.0, np.minimum(profile, 1) / 1.5)
    rng, seen = np.random.default_rng(5), set()
    for _ in range(60):
        flows, rtt_s = np.exp(rng.uniform(np.log([5, 0.01]), np.log([1500, 0.4])))
        how, at, _ = LawModel("red", red, 40_000_000, 1000, 1000.0).rest(flows, rtt_s)
        need = 2 * (flows / (5000 * rtt_s + queue)) ** 2
        above = np.flatnonzero(signals >= need)
        seen.add(how)
        if not len(above) or need[above[0]] >= 1 or (flows / (5000 * rtt_s + 300)) ** 2 >= 0.5:
            assert how == "saturated"
        elif queue[above[0]] >= 299.99:
            assert how == "jump"
            assert at == pytest.approx(300)
        else:
            assert how == "linear"
            assert at == pytest.approx(queue[above[0]], abs=0.01)
    assert seen == {"linear", "jump", "saturated"}


@pytest.mark.parametrize(
    ("text", "overrides", "says"),
    [
        (
            "red --rate 40Mbit/s --flows 220 --rtt 10ms --target 290p --buffer 1000p",
            {"min_th": "30p", "max_th": "150p", "max_p": "0.1", "w_q": "2e-4"},
            "probability jumps at a queue of 300 packets",
        ),
        (
            "pi --rate 40Mbit/s --flows 20 --rtt 10ms --buffer 100p",
            {"a": "1e-5", "b": "1e-5"},
            "buffer: ",
        ),
    ],
)
def test_a_design_without_equilibrium_is_one_line(
    text: str, overrides: dict[str, str], says: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        of(text, **overrides)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_equilibrium_of_a_design_is_within_its_buffer() -> None:
    rng = np.random.default_rng(8)
    for _ in range(40):
        rate, rtt, flows = np.exp(rng.uniform(np.log([2, 5, 5]), np.log([200, 300, 200])))
        law = ["p-avg", "pd-avg", "red", "pi"][int(rng.integers(4))]
        try:
            made = of(f"{law} --rate {rate:.3g}Mbit/s --flows {flows:.0f} --rtt {rtt:.3g}ms")
        except ScenarioError:
            continue
        assert 0 <= made.queue_pkts <= made.link.buffer_pkts


# --- PD-RED -----------------------------------------------------------------------------------


# --- PI without an integral -------------------------------------------------------------------


def test_gains_that_are_nearly_equal_keep_their_difference() -> None:
    from forebay.tuning import candidates
    from forebay.tuning.ranges import LinkRange

    ranges = LinkRange("1..200Mbit/s", "5..400ms", flows="2..800")
    space = candidates.space("pi", ranges)
    assert space is not None
    slow = {axis.name: axis.low for axis in space.axes}
    params = dict(space.params(slow))
    a, b = float(params["a"]), float(params["b"])
    # K_I·T with K_I = zero·K_P and T of 160 Hz.
    assert a - b == pytest.approx(slow["k_p"] * slow["zero"] / 160, rel=1e-4)


# --- intervals and advice ---------------------------------------------------------------------


def test_an_interval_that_ignores_the_rtt_is_replaced_and_named() -> None:
    made = of("pi --rate 10Gbit/s --flows 50 --rtt 2ms")
    assert made.loop is not None
    assert made.loop.interval_s == pytest.approx(0.5e-3)
    assert made.published is not None
    weak, usual_model = made.published.margins, made.published.model
    assert weak.gain_db == pytest.approx(critical_gain_db(made.point, usual_model), abs=1e-4)
    assert weak.phase_deg < 5
    assert made.loop.margins.phase_deg > 30
    assert "usual interval of 6.25 ms is long compared with R" in designs.paragraph(made)
    assert "--set interval=6.25ms" in designs.paragraph(made)
    kept = of("pi --rate 10Gbit/s --flows 50 --rtt 2ms", interval="6.25ms")
    assert kept.loop is not None
    assert kept.loop.margins == weak
    # Where the usual interval suits the RTT, the published rule is as it was.
    usual = of("pi --rate 15Mbit/s --packet 500B --flows 60 --rtt 200ms --target 175p")
    assert usual.published is None
    assert dict(usual.params)["interval"] == "6.25ms"
    r, c, n = 0.2 + 175 / 3750, 3750.0, 60.0
    k_p = 2 * 0.5 * math.hypot(0.5, 1) * n / (r * c) ** 2
    assert usual.gains["k_p"] == pytest.approx(k_p, rel=1e-12)
    assert usual.gains["k_i"] == pytest.approx(2 * n / (r * r * c) * k_p, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        "pi --rate 20Mbit/s --flows 40 --rtt 80ms --target 60p",
        "pi-pd --rate 20Mbit/s --flows 40 --rtt 80ms",
        "pi-pd --rate 100Mbit/s --flows 10 --rtt 20ms",
        "p-avg --rate 100Mbit/s --flows 20 --rtt 10ms --packet 1500B",
        "rem --rate 8Mbit/s --flows 15 --rtt 60ms",
    ],
)
def test_a_peak_above_two_is_named_and_mended(text: str) -> None:
    made = of(text)
    assert made.loop is not None
    fine = np.linspace(0, 40 / made.point.rtt_s, 200_000)[1:]
    fine = fine[fine <= made.loop.highest_rad_s]
    peak = float(np.abs(1 / (1 + made.loop.response(fine))).max())
    if peak <= 1.999:
        assert made.advice is None
        return
    assert made.advice is not None
    assert made.advice.peak == pytest.approx(peak, rel=0.01)
    assert made.advice.key is not None
    assert made.advice.value is not None
    assert f"`--set {made.advice.key}={made.advice.value}` would lower it" in designs.paragraph(
        made
    )
    calm = of(text, **{made.advice.key: made.advice.value})
    assert calm.margins is not None
    assert calm.margins.sensitivity <= 2.001
    assert calm.advice is None


# --- the rest ---------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["droptail", "blue", "avq", "e-avq", "codel"])
def test_a_law_without_a_model_has_no_map_and_no_search(cli: Cli, law: str) -> None:
    done = cli("map", law, "--rate", "20Mbit/s", "--flows", "5..50", "--rtt", "20..200ms")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no linear model" in done.stderr
    done = cli("tune", "--rate", "20Mbit/s", "--rtt", "50ms", "--flows", "10", "--law", law)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_the_figure_says_where_the_paper_has_another_number() -> None:
    texts = [text.get_text() for axes in figures()["staqm-12"]().axes for text in axes.texts]
    assert any("40 s" in text and "225 s" in text for text in texts)
    point = OperatingPoint(0.0005, 0.15, 1.0)
    assert 1 / (0.1 * min(point.tcp_pole, point.queue_pole)) == pytest.approx(225)


def test_json_has_the_interval_and_the_advice(cli: Cli) -> None:
    done = cli("design", "pi", "--rate", "10Gbit/s", "--flows", 50, "--rtt", "2ms", "--json")
    found = json.loads(done.stdout)
    assert found["interval_s"] == pytest.approx(0.5e-3)
    assert found["at_published_interval"]["phase_deg"] < 5
    assert found["advice"]["set"].startswith("beta=")


def test_a_signal_for_most_packets_is_no_signal_for_one_in_one() -> None:
    made = design(
        "pi", Link("50Mbit/s", "60ms", flows=300, packet="1500B", senders="prague"), target="100p"
    )
    assert "need a signal for 7.8 of ten packets: p0 = 78.23 %" in designs.paragraph(made)
    made = design("pi", Link("15Mbit/s", "246ms", flows=60))
    assert "signal for one packet in " in designs.paragraph(made)


# --- links that are very fast, loads that are very small ---------------------------------------

EXTREMES = [
    ("pi", "400Gbit/s", 2, "300ms", "1500B"),
    ("pi", "100Gbit/s", 100, "100ms", "1000B"),
    ("pie", "1Tbit/s", 10, "1s", "1500B"),
    ("rem", "400Gbit/s", 1, "300ms", "9000B"),
    ("pie", "1Gbit/s", 0.01, "10s", "40B"),
    ("pi", "10Mbit/s", 0.1, "10ms", "1000B"),
    ("pi", "10Mbit/s", 0.001, "10ms", "1000B"),
]


@pytest.mark.parametrize(("law", "rate", "flows", "rtt", "packet"), EXTREMES)
def test_work_has_a_bound_at_the_edges_of_the_allowed_ranges(
    law: str, rate: str, flows: float, rtt: str, packet: str
) -> None:
    began = time.process_time()
    made = design(law, Link(rate, rtt, flows=flows, packet=packet))
    assert made.loop is not None
    json.dumps(made.to_dict())
    settling_s = made.settling_s
    duration_s = 1.5 * settling_s if math.isfinite(settling_s) else 30 * made.point.rtt_s
    time_s, moved = made.loop.step(duration_s)
    assert np.isfinite(moved).all()
    assert len(time_s) <= loops.MOST_STEPS + 1
    assert time.process_time() - began < 10


@pytest.mark.parametrize("law", ["pi", "pie", "red", "rem"])
def test_a_long_response_is_that_of_many_short_steps(
    law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = of(f"{law} --rate 10Mbit/s --flows 20 --rtt 100ms").loop
    assert loop is not None
    duration_s = 2 * loop.settling_s
    stepped_s, stepped = loop.step(duration_s)
    monkeypatch.setattr(loops, "MOST_STEPS", 1)
    time_s, inverted = loop.step(duration_s)
    exact = np.interp(time_s, stepped_s, stepped)
    assert np.abs(inverted - exact).max() < 2e-3 * np.abs(exact).max()


# --- gains that Linux can have -----------------------------------------------------------------


@pytest.mark.parametrize(
    "link", ["--rate 100Mbit/s --flows 40 --rtt 20ms", "--rate 20Mbit/s --flows 20 --rtt 40ms"]
)
def test_pie_gets_gains_that_linux_can_have(link: str) -> None:
    words = f"pie {link} --packet 1500B --target 15ms"
    made = of(words)
    alpha, beta = (float(dict(made.params)[key]) for key in ("alpha", "beta"))
    assert 1 / 32 <= alpha <= 2
    assert 1 / 16 <= beta <= 2
    assert made.stable
    assert "Linux's pie" in made.notes[0]
    assert made.loop is not None
    assert made.loop.peak <= 2
    # A goal that is asked for is kept.
    asked = of(words, crossover="0.4")
    assert float(dict(asked.params)["beta"]) > 2
