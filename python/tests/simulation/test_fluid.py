"""The fluid model against an integration of its own, against the packets, and from the shell."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Cli
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import forebay
from forebay import ScenarioError, fluid
from forebay.experiment import store as stores
from forebay.fluid.packets import compare, figure, response, spread

#: staqm's PI for N = 60, C = 3750 packets/s, R = 0.2467 s, at 160 Hz.
A, B, TARGET, TICK_S = 7.853e-5, 7.827e-5, 175.0, 1 / 160
FLOWS, CAPACITY, RTT_S = 60, 3750.0, 0.2

#: Of seven flows one leaves at 60 s.
LOAD_STEP = Path(__file__).parents[3] / "experiments" / "fluid" / "load-step.toml"

ONE = """\
duration = "60s"
measure  = ["20s", "60s"]
seeds    = 3

[bottleneck]
rate   = "30Mbit/s"
delay  = "10ms"
buffer = "800p"
ecn    = true

[[traffic]]
kind   = "ftp"
start  = "0s"
flows  = 120
tcp    = "sack"
ecn    = true
packet = "1000B"
rtt    = "200ms"

[[law]]
kind   = "red"
min_th = "100p"
max_th = "700p"
max_p  = 0.2
w_q    = 2e-5
"""


def pi_model(
    duration: str, sample: str = "10ms", tcp: str = "reno", step: str = "auto"
) -> fluid.Model:
    """Packets of 1 MB, so that a law that counts bytes sees the queue to 1e-6 packets."""
    law = fluid.Bottleneck(
        "pi",
        rate="30Gbit/s",
        packet="1MB",
        buffer_pkts=800,
        params={"target": f"{TARGET}p", "a": A, "b": B, "queue_in_bytes": True},
    )
    flows = fluid.Class(FLOWS, f"{RTT_S}s", marks=True, initial_window_pkts=15, tcp=tcp)
    return fluid.Model([law], [flows], duration, sample=sample, step=step)


@dataclass(frozen=True)
class Equations:
    """Of a sender, written out once more: its states at the start, the window that they are, and
    their slopes, from the round trip and what was sent and signalled one round trip ago."""

    start: list[float]
    window: Callable[[NDArray[np.float64]], float]
    slopes: Callable[[NDArray[np.float64], float, float, float], list[float]]


def cubic_window(states: NDArray[np.float64]) -> float:
    most, since_s, friendly = (float(state) for state in states)
    return max(most + 0.4 * (since_s - math.cbrt(0.75 * most)) ** 3, friendly)


def cubic_slopes(states: NDArray[np.float64], rtt_s: float, sent: float, p: float) -> list[float]:
    """Vardoyan et al. (INFOCOM 2018), and an AIMD(9/17, 0.7) window beside it."""
    most, since_s, friendly = states
    signals = sent * p
    return [
        (cubic_window(states) - most) * signals,
        1 - since_s * signals,
        9 / 17 / rtt_s - 0.3 * friendly * signals,
    ]


def dctcp_slopes(states: NDArray[np.float64], rtt_s: float, sent: float, p: float) -> list[float]:
    """Alizadeh et al. (SIGMETRICS 2011), with the probability of a mark in a window."""
    window, alpha = states
    marked = 1 - np.exp(-sent * p * rtt_s)
    return [(1 - window * alpha / 2 * marked) / rtt_s, (p - alpha) / 16 / rtt_s]


SENDERS = {
    "reno": Equations(
        [15.0],
        lambda states: float(states[0]),
        lambda states, rtt_s, sent, p: [1 / rtt_s - states[0] / 2 * sent * p],
    ),
    "cubic": Equations([15 / 0.7, 0.0, 15.0], cubic_window, cubic_slopes),
    "dctcp": Equations([15.0, 1.0], lambda states: float(states[0]), dctcp_slopes),
}


def method_of_steps(
    end_s: float, sender: Equations, tolerance: float = 1e-9
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Window and queue at every tick, by scipy's DOP853 from tick to tick.

    The delay is longer than a tick, so over each one the past is known. The law is
    written out here.
    """
    past: list[Any] = []
    probabilities: list[float] = []

    def before(time_s: float) -> tuple[float, float]:
        """Rate of a flow and probability at an earlier time."""
        if time_s < 0:
            return 0.0, 0.0
        tick = min(int(time_s / TICK_S), len(past) - 1)
        *states, queue = past[tick](time_s)
        return sender.window(np.array(states)) / (RTT_S + queue / CAPACITY), probabilities[tick]

    def slopes(time_s: float, state: NDArray[np.float64]) -> list[float]:
        states, queue = state[:-1], state[-1]
        rtt_s = RTT_S + queue / CAPACITY
        sent, probability = before(time_s - rtt_s)
        arriving = FLOWS * sender.window(states) / rtt_s
        return [*sender.slopes(states, rtt_s, sent, probability), arriving - CAPACITY]

    state = np.array([*sender.start, 0.0])
    states = [state]
    p, error = 0.0, 0.0
    for tick in range(round(end_s / TICK_S)):
        span = (tick * TICK_S, (tick + 1) * TICK_S)
        solved = solve_ivp(
            slopes, span, state, method="DOP853", rtol=tolerance, atol=tolerance, dense_output=True
        )
        past.append(solved.sol)
        probabilities.append(p)
        state = solved.y[:, -1]
        states.append(state)
        new_error = state[-1] - TARGET
        p = min(1.0, max(0.0, p + A * new_error - B * error))
        error = new_error
    windows = np.array([sender.window(state[:-1]) for state in states])
    return windows, np.array(states)[:, -1]


def test_the_integration_agrees_with_scipys() -> None:
    windows, queues = method_of_steps(5.0, SENDERS["reno"])
    # Neither bound of the queue is met, so nothing but the equations counts.
    assert 0 < queues[1:].min() < 120 < 200 < queues.max() < 800
    for step, most in [("1ms", 1e-3), ("auto", 3e-3)]:
        trace = fluid.run(pi_model(duration="5s", sample="6.25ms", step=step))
        assert trace.time_s == pytest.approx(np.arange(len(queues)) * TICK_S)
        assert np.abs(trace.queue_pkts[0] - queues).max() < most
        assert np.abs(trace.window_pkts[0] - windows).max() < most / 10


@pytest.mark.parametrize("tcp", ["cubic", "dctcp"])
def test_other_senders_agree_with_scipys_integration(tcp: str) -> None:
    # A looser tolerance, for time: the difference is that of scipy's steps.
    windows, queues = method_of_steps(1.2, SENDERS[tcp], tolerance=1e-6)
    assert 0 < queues[1:].min() < 150 < queues.max() < 800
    trace = fluid.run(pi_model(duration="1.2s", sample="6.25ms", tcp=tcp))
    assert np.abs(trace.queue_pkts[0] - queues).max() < 0.15
    assert np.abs(trace.window_pkts[0] - windows).max() < 3e-3


def test_halving_the_step_changes_little() -> None:
    assert fluid.halving(pi_model(duration="20s"))["queue_pkts"] < 3e-3
    assert fluid.halving(pi_model(duration="20s", step="1ms"))["queue_pkts"] < 1e-4


def test_a_model_that_makes_no_sense_is_refused() -> None:
    link = fluid.Bottleneck("pi", rate="30Mbit/s", buffer_pkts=800)
    flows = fluid.Class(60, "200ms")
    for model, words in [
        (
            fluid.Model([link], [fluid.Class(60, "200")]),
            'classes.0.rtt: "200" is not valid; expected a time',
        ),
        (fluid.Model([link], [flows], step="1s"), "classes.0.rtt"),
        (
            fluid.Model([link], [flows], step="soon"),
            'step: "soon" is not valid; expected "auto", or',
        ),
        (
            fluid.Model([link], [fluid.Class(9, "1us")]),
            "duration: .* steps are too many; expected at most ",
        ),
        (
            fluid.Model([link], [fluid.Class(60, "200ms", tcp="bbr")]),
            'tcp: "bbr" is not valid; expected a sender with a published fluid model',
        ),
        (fluid.Model([link], [fluid.Class(60, "200ms", route=[1])]), "classes.0.route"),
        (fluid.Model([fluid.Bottleneck("pye", "1Mbit/s", 9)], [flows]), "bottlenecks.0.law"),
        (fluid.Model([fluid.Bottleneck("pi", "1Mbit/s", 9)], [flows]), "target"),
        (fluid.Model([link], [flows], changes=[fluid.Change("1s", "load", 3)]), "changes.0.what"),
    ]:
        with pytest.raises(ScenarioError, match=words):
            fluid.run(model)


def test_responses_are_measured() -> None:
    time_s = np.arange(0, 40, 0.05)
    after = np.clip(time_s - 10, 0, None)
    # Natural frequency 2 rad/s, damping 0.2: period 2π/(2·√0.96).
    swing = 300 - 100 * (time_s > 10) * np.exp(-0.4 * after) * np.cos(2 * np.sqrt(0.96) * after)
    found = response(time_s, swing, 10, 40)
    assert found.period_s == pytest.approx(2 * np.pi / (2 * np.sqrt(0.96)), rel=1e-2)
    assert found.damping == pytest.approx(0.2, rel=1e-2)
    # Two time constants, 1 s and 4 s: half of the way back after 2.3 s.
    creep = 300 - 100 * (time_s > 10) * (0.3 * np.exp(-after) + 0.7 * np.exp(-after / 4))
    found = response(time_s, creep, 10, 40)
    assert found.period_s is None
    share = 0.3 * np.exp(-found.half_s) + 0.7 * np.exp(-found.half_s / 4)
    assert share == pytest.approx(0.5, abs=0.02)


def test_the_interval_of_a_response_shrinks_with_more_runs() -> None:
    time_s = np.arange(0, 40, 0.2)
    after = np.clip(time_s - 10, 0, None)
    swing = 300 - 100 * (time_s > 10) * np.exp(-0.4 * after) * np.cos(2 * np.sqrt(0.96) * after)
    rng = np.random.default_rng(1)
    widths = []
    for runs in (16, 64):
        found = spread(time_s, swing + rng.normal(0, 40, (runs, len(time_s))), 10, 40, draws=25)
        low, high = found.damping
        assert low <= 0.2 <= high
        assert found.period_s[0] <= 2 * np.pi / (2 * np.sqrt(0.96)) <= found.period_s[1]
        widths.append(high - low)
    # Four times the runs, half the chance.
    assert 0.25 < widths[1] / widths[0] < 0.85
    # One run that swings and one that creeps back: either may be all that is drawn.
    creep = np.where(time_s > 10, 300 - 100 * np.exp(-after / 3), 300.0)
    found = spread(time_s, np.array([swing, creep]), 10, 40, draws=25)
    assert found.damping[0] == pytest.approx(0.2, rel=0.05)
    assert found.damping[1] > 0.7


@pytest.mark.parametrize("tcp", ["reno", "linux-cubic"])
def test_windows_are_recorded(tcp: str) -> None:
    # A receiver's window of 8 packets on an idle link; the mice beside them have other windows.
    flows = {"tcp": tcp, "rtt": "200ms", "packet": "1000B"}
    scenario = {
        "duration": "10s",
        "bottleneck": {"rate": "30Mbit/s", "delay": "10ms", "buffer": "800p"},
        "traffic": [
            {"kind": "ftp", "flows": 2, "window": "8p", **flows},
            {"kind": "mice", "flows": 3, "window": "20p", **flows},
        ],
        "law": [{"kind": "droptail"}],
    }
    samples = forebay.run({**scenario, "windows": True}).samples
    late = samples.filter(pl.col("time_s") > 5)["in_flight_pkts"]
    assert len(late) == 500
    assert set(late) == {8.0}
    assert "in_flight_pkts" not in forebay.run(scenario).samples.columns


def test_sawtooth_windows_meet_the_packets(tmp_path: Path) -> None:
    path = tmp_path / "red.toml"
    path.write_text(ONE)
    (found,) = compare(path)
    packets, published, sawtooth = found.rows()
    queue = float(packets["queue_mean_pkts"] or 0)
    assert sawtooth["queue_mean_pkts"] == pytest.approx(queue, rel=0.05)
    # 750 packets are on the way beside the queue; by the recorded windows of the flows.
    assert packets["in_flight_pkts"] == pytest.approx((750 + queue) / 120, rel=0.02)
    assert sawtooth["in_flight_pkts"] == pytest.approx(packets["in_flight_pkts"], rel=0.02)
    # As published, p·W² = 2 gives too much signal, and under RED too long a queue
    # (docs/explanation/fluid.md).
    assert float(published["queue_mean_pkts"] or 0) > 1.1 * queue


def test_the_figure_labels_its_axes_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "pi.toml"
    path.write_text(ONE)
    drawn = figure(compare(path, laws=["pi"], seeds=1)).svg()
    for text in ["Queue [packets]", "Time [s]", "set-point", "fluid, published equations"]:
        assert f">{text}</text>" in drawn, text


def test_ack_clocking_settles_pi_as_packets_do() -> None:
    overrides = {"traffic.0.flows": "60", "traffic.1.flows": "10"}
    (found,) = compare(LOAD_STEP, laws=["pi"], overrides=overrides, seeds=10, step_s=60)
    packets, published, sawtooth = found.rows()
    # As published, rates follow windows with a lag of 1/R, and the loop oscillates
    # (docs/explanation/fluid.md).
    assert published["period_s"] is not None
    assert packets["period_s"] is None
    assert sawtooth["period_s"] is None
    assert sawtooth["damping"] == pytest.approx(packets["damping"], rel=0.25)
    # 10 of 70 flows leave, and with them a seventh of 950 packets within a round trip.
    falls = [
        float(line.queue_pkts[line.time_s > 60].min() - line.queue_pkts[line.time_s == 60][0])
        for line in found.lines
    ]
    assert falls[2] == pytest.approx(-950 / 7, rel=0.05)
    assert falls[2] == pytest.approx(falls[0], rel=0.1)


def test_the_command_line(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "red.toml").write_text(ONE)
    done = cli("fluid", "red.toml", "--set", "traffic.0.flows=some")
    assert done.returncode == 2
    assert done.stderr.startswith("error: --set: traffic.0.flows: ")
    done = cli("fluid", "red.toml", "--law", "pi", "--json", "--out", "figures")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["law"] == "pi"
    assert row["queue_mean_pkts"] == pytest.approx(200, rel=0.2)
    assert (tmp_path / "figures" / "pi.png").read_bytes().startswith(b"\x89PNG")


def test_a_scenario_s_sender_counts(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "red.toml").write_text(ONE)
    signals = {}
    for tcp in ["sack", "linux-cubic", "dctcp"]:
        done = cli("fluid", "red.toml", "--set", f"traffic.0.tcp={tcp}", "--sawtooth", "--json")
        assert done.returncode == 0, done.stderr
        signals[tcp] = json.loads(done.stdout)["probability"]
    # A reduction to 0.7 and growth by 8/15 need about as many signals as Reno; shares of marks
    # need two in a window.
    assert signals["linux-cubic"] == pytest.approx(signals["sack"], rel=0.3)
    assert signals["dctcp"] > 2 * signals["sack"]
    done = cli("fluid", "red.toml", "--set", "traffic.0.tcp=bbr")
    assert done.returncode == 2
    assert done.stderr.startswith(
        'error: red.toml: traffic.0.tcp: "bbr" is not valid; expected a sender with a published '
        "fluid model, one of reno, "
    )
    assert done.stderr.count("\n") == 1


def test_cubic_meets_the_packets(tmp_path: Path) -> None:
    path = tmp_path / "red.toml"
    path.write_text(ONE)
    overrides = {"traffic.0.tcp": "linux-cubic", "traffic.0.flows": "60"}
    (found,) = compare(path, overrides=overrides)
    packets, _, sawtooth = found.rows()
    queue = float(packets["queue_mean_pkts"] or 0)
    assert sawtooth["queue_mean_pkts"] == pytest.approx(queue, rel=0.05)


def test_a_scenario_that_the_fluid_cannot_express_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "mice.toml").write_text(ONE.replace('"ftp"', '"mice"'))
    done = cli("fluid", "mice.toml")
    assert done.returncode == 2
    assert done.stderr.startswith(
        'error: mice.toml: traffic.0.kind: "mice" is not valid; expected "ftp", since '
    )
    assert not (tmp_path / "results").exists()


def test_a_fluid_and_a_session_accept_the_arguments_of_run() -> None:
    """Ranges, samples, designed gains and every spelling of `sets`."""
    head, _, _ = ONE.partition("[[law]]")
    laws = f'{head}[[law]]\nkind = "pi"\ngains = "auto"\n'
    swept = f'{laws}\n[sweep]\n"traffic.0.flows" = "20..40 lin 2"\n'
    plan = forebay.run(swept, seeds=1, overrides=["duration=1s", "measure=['0.5s', '1s']"]).plan
    assert [("20 flows" in one.line, "40 flows" in one.line) for one in plan.designed] == [
        (True, False),
        (False, True),
    ]
    short = {"duration": "1s", "measure": ["0.5s", "1s"]}
    traces = forebay.fluid.scenario(swept, overrides=short)
    assert [(one.point, one.law) for one in traces] == [
        (point.label, law) for point in plan.points for law in plan.laws
    ]
    session = forebay.session(swept, overrides=list(short.items()), target="20p")
    assert session.duration_s == 1.0
    sampled = f'{ONE}\n[sweep]\npoints = "latin 3"\n"traffic.0.flows" = "20..4000 log"\n'
    labels = [point.label for point in forebay.run(sampled, seeds=1, overrides=short).plan.points]
    assert [one.point for one in forebay.fluid.scenario(sampled, overrides=short)] == labels


def test_a_scenario_is_the_model_that_one_would_build(tmp_path: Path) -> None:
    """The engine's columns are those of the equations, row by row."""
    (found,) = fluid.scenario(ONE, overrides={"duration": "20s", "measure": "['5s', '20s']"})
    red: dict[str, bool | float | str] = {
        "min_th": "100p",
        "max_th": "700p",
        "max_p": 0.2,
        "w_q": 2e-5,
    }
    link = fluid.Bottleneck("red", "30Mbit/s", 800, "1000B", red)
    # A packet takes 8/30 ms to pass the link, and access links of 1 Gbit/s twice.
    access_s = found.rtt_s[0, 0] - found.queue_pkts[0, 0] / CAPACITY
    flows = fluid.Class(120, f"{access_s:.12f}s", marks=True)
    built = fluid.run(fluid.Model([link], [flows], "20s"))
    assert found.classes == ["ftp"]
    assert access_s == pytest.approx(0.2, rel=0.01)
    np.testing.assert_allclose(found.time_s, built.time_s[1:])
    np.testing.assert_allclose(found.queue_pkts, built.queue_pkts[:, 1:], atol=0.05)
    np.testing.assert_allclose(found.window_pkts, built.window_pkts[:, 1:], rtol=1e-3)
    np.testing.assert_allclose(found.probability, built.probability[:, 1:], atol=1e-5)
    np.testing.assert_allclose(found.in_flight_pkts, built.in_flight_pkts[1:], rtol=1e-3)


def test_the_command_is_a_view_of_the_engine(tmp_path: Path, cli: Cli) -> None:
    """Metrics, warnings, who gets what and the store are those of `run --engine fluid`."""
    two = ONE.replace("[[law]]", ONE[ONE.index("[[traffic]]") : ONE.index("[[law]]")] + "[[law]]")
    two = two.replace('rtt    = "200ms"', 'rtt    = "50ms"\nlabel  = "near"', 1)
    two = two.replace("flows  = 120", "flows  = 30")
    (tmp_path / "two.toml").write_text(two)
    words = ("two.toml", "--law", "pi", "--set", "law.0.gains=auto")
    done = cli("fluid", *words, "--json", "--store", "kept")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    same = ("--engine", "fluid", "--set", "windows=true", "--seeds", "1")
    done = cli("run", *words, *same, "--json", "--store", "kept")
    assert done.returncode == 0, done.stderr
    run = json.loads(done.stdout)
    assert row["traffic"] == run["traffic"]
    assert row["traffic"]["near"]["ratio"] > 1.5
    assert row["queue_mean_pkts"] == pytest.approx(run["metrics"]["queue_mean_pkts"], rel=0.1)
    # One run, and not two: the second command found it.
    assert stores.at(tmp_path / "kept").scan().collect().height == 1
    done = cli("fluid", *words, "--compare", "--seeds", "1", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["by"] for line in lines] == ["packets", "published", "sawtooth"]
    for line in lines:
        assert set(line["traffic"]) == {"near", "ftp"}
        assert line["traffic"]["near"]["share"] > 0.5
    done = cli("fluid", *words)
    assert "Results by traffic" in done.stdout
