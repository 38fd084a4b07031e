"""The fluid model against an integration of its own, against the packets, and from the shell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

from forebay import ScenarioError, fluid
from forebay.fluid.packets import compare, figure, response

#: staqm's PI for N = 60, C = 3750 packets/s, R = 0.2467 s, at 160 Hz.
A, B, TARGET, TICK_S = 7.853e-5, 7.827e-5, 175.0, 1 / 160
FLOWS, CAPACITY, RTT_S = 60, 3750.0, 0.2

#: Of seven flows one leaves at 60 s.
LOAD_STEP = Path(__file__).parents[2] / "experiments" / "fluid" / "load-step.toml"

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


def pi_model(duration: str, sample: str = "10ms") -> fluid.Model:
    """Packets of 1 MB, so that a law that counts bytes sees the queue to 1e-6 packets."""
    law = fluid.Bottleneck(
        "pi",
        rate="30Gbit/s",
        packet="1MB",
        buffer_pkts=800,
        params={"target": f"{TARGET}p", "a": A, "b": B, "queue_in_bytes": True},
    )
    flows = fluid.Class(FLOWS, f"{RTT_S}s", marks=True, initial_window_pkts=15)
    return fluid.Model([law], [flows], duration, sample=sample)


def method_of_steps(end_s: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Window and queue at every tick, by scipy's DOP853 from tick to tick.

    The delay is longer than a tick, so that over each one the past is known. The law is
    written out here.
    """
    past: list[Any] = []
    probabilities: list[float] = []

    def before(time_s: float) -> tuple[float, float]:
        """Rate of a flow and probability at an earlier time."""
        if time_s < 0:
            return 0.0, 0.0
        tick = min(int(time_s / TICK_S), len(past) - 1)
        window, queue = past[tick](time_s)
        return window / (RTT_S + queue / CAPACITY), probabilities[tick]

    def slopes(time_s: float, state: NDArray[np.float64]) -> list[float]:
        window, queue = state
        rtt_s = RTT_S + queue / CAPACITY
        rate, probability = before(time_s - rtt_s)
        return [
            1 / rtt_s - window / 2 * rate * probability,
            FLOWS * window / rtt_s - CAPACITY,
        ]

    state = np.array([15.0, 0.0])
    states = [state]
    p, error = 0.0, 0.0
    for tick in range(round(end_s / TICK_S)):
        span = (tick * TICK_S, (tick + 1) * TICK_S)
        solved = solve_ivp(
            slopes, span, state, method="DOP853", rtol=1e-9, atol=1e-9, dense_output=True
        )
        past.append(solved.sol)
        probabilities.append(p)
        state = solved.y[:, -1]
        states.append(state)
        new_error = state[1] - TARGET
        p = min(1.0, max(0.0, p + A * new_error - B * error))
        error = new_error
    windows, queues = np.array(states).T
    return windows, queues


def test_the_integration_agrees_with_scipys() -> None:
    windows, queues = method_of_steps(5.0)
    # Neither bound of the queue is met, so that nothing but the equations counts.
    assert 0 < queues[1:].min() < 120 < 200 < queues.max() < 800
    trace = fluid.run(pi_model(duration="5s", sample="6.25ms"))
    assert trace.time_s == pytest.approx(np.arange(len(queues)) * TICK_S)
    assert np.abs(trace.queue_pkts[0] - queues).max() < 1e-3
    assert np.abs(trace.window_pkts[0] - windows).max() < 1e-4


def test_halving_the_step_changes_little() -> None:
    assert fluid.halving(pi_model(duration="20s"))["queue_pkts"] < 1e-3


def test_a_model_that_makes_no_sense_is_refused() -> None:
    link = fluid.Bottleneck("pi", rate="30Mbit/s", buffer_pkts=800)
    flows = fluid.Class(60, "200ms")
    for model, words in [
        (fluid.Model([link], [fluid.Class(60, "200")]), 'classes.0.rtt: found "200"'),
        (fluid.Model([link], [flows], step="1s"), "classes.0.rtt"),
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


def test_sawtooth_windows_meet_the_packets(tmp_path: Path) -> None:
    path = tmp_path / "red.toml"
    path.write_text(ONE)
    (found,) = compare(path)
    packets, published, sawtooth = found.rows()
    queue = float(packets["queue_mean_pkts"] or 0)
    assert sawtooth["queue_mean_pkts"] == pytest.approx(queue, rel=0.05)
    # As published, p·W² = 2: too much signal, and under RED too long a queue. docs/fluid.md.
    assert float(published["queue_mean_pkts"] or 0) > 1.1 * queue


def test_the_figure_says_what_it_shows(tmp_path: Path) -> None:
    path = tmp_path / "pi.toml"
    path.write_text(ONE)
    drawn = figure(compare(path, laws=["pi"], seeds=1)).svg()
    for text in ["Queue [packets]", "Time [s]", "set-point", "fluid, published equations"]:
        assert f">{text}</text>" in drawn, text


def test_ack_clocking_settles_pi_as_packets_do() -> None:
    sets = [("traffic.0.flows", "60"), ("traffic.1.flows", "10")]
    (found,) = compare(LOAD_STEP, laws=["pi"], sets=sets, seeds=10, step_s=60)
    packets, published, sawtooth = found.rows()
    # As published, rates follow windows with a lag of 1/R, and the loop swings. docs/fluid.md.
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
    assert done.stderr.startswith("--set: traffic.0.flows: found")
    done = cli("fluid", "red.toml", "--law", "pi", "--json", "--out", "figures")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert row["law"] == "pi"
    assert row["queue_mean_pkts"] == pytest.approx(200, rel=0.2)
    assert (tmp_path / "figures" / "pi.png").read_bytes().startswith(b"\x89PNG")


def test_what_a_fluid_cannot_be_is_refused(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "mice.toml").write_text(ONE.replace('"ftp"', '"mice"'))
    done = cli("fluid", "mice.toml")
    assert done.returncode == 2
    assert done.stderr.startswith('mice.toml: traffic.0.kind: found "mice", allowed: "ftp"')
    assert not (tmp_path / "results").exists()
