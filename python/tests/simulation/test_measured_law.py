"""Laws written in Python in linear theory: their models are measured at the law."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli

import forebay
from forebay._base.quantities import Packets, Seconds
from forebay.control.design import design
from forebay.control.link import Link

GAINS = {"a": "1.822e-5", "b": "1.816e-5", "interval": "6.25ms", "target": "40p"}


@dataclass
class PythonPi(forebay.Controller):
    interval: Seconds = 6.25e-3
    target: Packets = 40
    a: float = 1.822e-5
    b: float = 1.816e-5

    def __post_init__(self) -> None:
        self.p = self.before = 0.0

    def sample(self, queue: Any) -> float:
        error = queue.packets - self.target
        self.p = min(1.0, max(0.0, self.p + self.a * error - self.b * self.before))
        self.before = error
        return self.p


@dataclass
class AveragePi(PythonPi):
    """The same behind an average, which adds a pole."""

    share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.average = 0.0

    def sample(self, queue: Any) -> float:
        self.average += self.share * (queue.packets - self.average)
        error = self.average - self.target
        self.p = min(1.0, max(0.0, self.p + self.a * error - self.b * self.before))
        self.before = error
        return self.p


class Relay(forebay.Controller):
    interval = "10ms"

    def sample(self, queue: Any) -> float:
        return 0.3 if queue.packets > 60 else 0.0


class Clock(forebay.Controller):
    interval = "10ms"

    def sample(self, queue: Any) -> float:
        return float(min(1.0, 1e-3 * queue.now_s + 1e-4 * queue.packets))


class OneSided(forebay.Controller):
    """Answers a rise of its queue twice as much as a fall."""

    interval = "10ms"

    def __init__(self) -> None:
        self.before = 0.0

    def sample(self, queue: Any) -> float:
        change = queue.packets - self.before
        self.before = queue.packets
        kick = 2e-4 * change if change > 0 else 1e-4 * change
        return float(min(1.0, max(0.0, 5e-4 * queue.packets + kick)))


class Judge(forebay.Controller):
    def on_dequeue(self, queue: Any, packet: Any) -> str:
        return "pass"


class Noise(forebay.Controller):
    interval = "10ms"

    def sample(self, queue: Any) -> float:
        return float("nan")


def of(
    law: Any, flows: Any = 30, tcp: str = "reno", overrides: dict[str, str] | None = None
) -> Any:
    return design(
        law,
        Link("10Mbit/s", "100ms", flows=flows, buffer="400p", senders=tcp),
        overrides=overrides or {},
    )


@pytest.mark.parametrize("tcp", ["reno", "cubic", "linux-reno"])
@pytest.mark.parametrize("faster", [1, 30])
def test_a_python_pi_has_the_margins_of_the_built_in_one(tcp: str, faster: float) -> None:
    gains = {**GAINS, "b": f"{1.822e-5 - faster * 6e-8}"}
    ours, theirs = of(PythonPi, tcp=tcp, overrides=gains), of("pi", tcp=tcp, overrides=gains)
    assert ours.loop.model["queue_pkts"] == pytest.approx(40, rel=1e-6)
    assert ours.stable
    assert theirs.stable
    for name in ("phase_deg", "gain_db", "delay_s", "sensitivity", "crossover_rad_s"):
        expected = getattr(theirs.margins, name)
        assert getattr(ours.margins, name) == pytest.approx(expected, rel=1e-4), name
    assert ours.settling_s == pytest.approx(theirs.settling_s, rel=1e-3)


def test_an_average_is_part_of_the_measured_controller() -> None:
    made = of(AveragePi)
    _, numerator, denominator = made.loop.model["sampled"]
    # (a − b z⁻¹) · 0.1 / ((1 − z⁻¹)(1 − 0.9 z⁻¹))
    assert denominator == pytest.approx([1, -1.9, 0.9], rel=1e-6)
    assert numerator[:2] == pytest.approx([1.822e-6, -1.816e-6], rel=1e-5)
    assert made.margins.gain_db < of(PythonPi).margins.gain_db - 1


@pytest.mark.parametrize(
    ("law", "reason"),
    [
        (Relay, "it is a relay: its probability jumps from 0 to 0.3 at a queue of 60 packets"),
        (Clock, "its probability keeps changing at every constant queue"),
        (OneSided, "it does not respond to a small rise of the queue as to a small fall"),
        (Judge, "decides packet by packet"),
        (Noise, "nan is not a probability from 0 to 1"),
    ],
)
def test_what_has_no_linear_model_is_refused_with_the_reason(law: Any, reason: str) -> None:
    with pytest.raises(forebay.ScenarioError, match=reason) as refused:
        of(law, flows=60)
    assert "\n" not in str(refused.value)


FILE = """\
from dataclasses import dataclass
from forebay.units import Packets


@dataclass
class Proportional:
    target: Packets = 40
    gain: float = 5e-4
    interval = "10ms"

    def sample(self, queue):
        return min(1.0, max(0.0, self.gain * (queue.packets - self.target)))
"""


def test_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    words = ["--rate", "10Mbit/s", "--flows", "60", "--rtt", "100ms", "--buffer", "600p"]
    done = cli("design", "mine.py:Proportional", *words, "--set", "gain=1e-3", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rest = found["operating_point"]
    # Where p = gain (q − target) is what the flows need.
    assert rest["probability"] == pytest.approx(1e-3 * (rest["queue_pkts"] - 40), rel=1e-6)
    done = cli("design", "mine.py:Proportional", *words, "--out", "out")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "bode.png").stat().st_size > 10_000
    # The scenario of the design runs from any folder.
    done = cli("run", "out/Proportional.toml", "--seeds", "1", "--no-report", "--json")
    assert done.returncode == 0, done.stderr
    wrong = cli("design", "mine.py:Proportional", *words, "--set", "gian=1")
    assert wrong.returncode == 2
    assert "gian is not a parameter of this law; it has target, gain" in wrong.stderr


MAP = """\
from forebay import Controller


class PythonPi(Controller):
    interval, target = "6250us", 40
    a, b = 1.822e-5, 1.0e-5

    def __init__(self):
        self.p = self.before = 0.0

    def sample(self, queue):
        error = queue.packets - self.target
        self.p = min(1.0, max(0.0, self.p + self.a * error - self.b * self.before))
        self.before = error
        return self.p
"""


def test_a_map_of_a_python_pi_is_that_of_the_built_in_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MAP + FILE)
    link = forebay.Link("10Mbit/s", "400ms", flows=60, buffer="600p")
    axes: dict[str, Any] = {"flows": (10, 60), "rtt": ("50ms", "400ms")}
    gains = {**GAINS, "b": "1.0e-5"}
    ours = forebay.stability_map("mine.py:PythonPi", link, **axes, points=12)
    theirs = forebay.stability_map("pi", link, **axes, overrides=gains, points=12)
    assert (ours.stable == theirs.stable).all()
    assert ours.stable.any()
    assert not ours.stable.all()
    np.testing.assert_allclose(ours.gain_margin_db, theirs.gain_margin_db, rtol=1e-3, atol=1e-3)
    # Where a law without an integral rests depends on the load.
    with pytest.raises(forebay.ScenarioError, match="another linear model at every load"):
        forebay.stability_map("mine.py:Proportional", link, **axes, points=4)
