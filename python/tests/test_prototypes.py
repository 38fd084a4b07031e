"""Laws written in Python, next to the built-in ones."""

from __future__ import annotations

import functools
import json
import math
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from conftest import PROTOTYPES, Cli
from polars.testing import assert_frame_equal

import forebay

CLASSES: dict[str, Any] = {}
exec(PROTOTYPES, CLASSES)
PythonPi = CLASSES["PythonPi"]


def test_a_python_pi_is_the_built_in_one_bit_for_bit(scenario: Path) -> None:
    result = forebay.run(scenario, laws=["pi", PythonPi])
    for table in (result.samples, result.metrics, result.delays):
        ours, theirs = (
            table.filter(pl.col("law") == law).drop("law") for law in ("pi", "PythonPi")
        )
        assert len(ours) > 0
        assert_frame_equal(ours, theirs, check_exact=True)
    assert (result.samples["p"] > 0).any()


def test_on_the_command_line(cli: Cli, scenario: Path, prototypes: Path) -> None:
    done = cli("run", scenario, "--law", "pi", "--law", "mine.py:PythonPi", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    by_law: dict[str, list[Any]] = {"pi": [], "PythonPi": []}
    for line in lines:
        del line["costs"]
        by_law[line["law"]].append(line["metrics"])
    assert len(by_law["pi"]) == 4
    assert by_law["pi"] == by_law["PythonPi"]
    assert all(metrics["qacd_pkts"] > 0 for metrics in by_law["pi"])


class Recorder:
    """Keeps what it sees; for one run at a time."""

    interval = 0.01
    seen: list[Any]

    def sample(self, queue: Any) -> float:
        self.seen.append(queue)
        return 0.1


def test_what_a_prototype_sees(scenario: Path) -> None:
    Recorder.seen = []
    result = forebay.run(scenario, laws=[Recorder], sets={"traffic.0.flows": 5}, seeds=1)
    # One sample every 10 ms in 4 s; the last falls on the end.
    assert len(Recorder.seen) in (399, 400)
    queue = Recorder.seen[-1]
    assert (queue.limit_packets, queue.rate_bps) == (100, 10_000_000)
    for queue in Recorder.seen:
        assert 0 <= queue.packets <= 100
        assert queue.bytes <= 1000 * queue.packets
    # The sampling times are those of the trace.
    assert max(queue.packets for queue in Recorder.seen) == result.samples["queue_pkts"][:-1].max()


@pytest.mark.parametrize(("interval", "samples"), [("500ms", 8), (0.25, 16), ("2s", 2)])
def test_intervals(scenario: Path, interval: float | str, samples: int) -> None:
    Recorder.seen = []
    law = type("Timed", (Recorder,), {"interval": interval})
    forebay.run(scenario, laws=[law], sets={"traffic.0.flows": 5}, seeds=1)
    assert len(Recorder.seen) in (samples - 1, samples)


class Constant:
    interval = "10ms"

    def __init__(self, p: float = 0.0) -> None:
        self.p = p
        self.label = f"p = {p}"

    def sample(self, queue: Any) -> float:
        return self.p


def test_probabilities_are_held_to_0_and_1(scenario: Path) -> None:
    laws = [functools.partial(Constant, p) for p in (float("nan"), -3.0, 7.0)]
    result = forebay.run(scenario, laws=laws, sets={"traffic.0.flows": 5}, seeds=1)
    assert result.plan.laws == ["p = nan", "p = -3.0", "p = 7.0"]
    nan, negative, large = result.metrics["early_drop_rate"]
    assert nan == negative == 0
    late = result.samples.filter(law="p = 7.0").filter(pl.col("time_s") > 0.02)
    assert late["p"].unique().to_list() == [1.0]
    # Nothing gets through.
    assert late["arrivals"].sum() == late["early_drops"].sum() > 0
    assert 0.9 < large <= 1 or math.isnan(large)


def test_an_exception_ends_the_runs_and_names_one(scenario: Path) -> None:
    with pytest.raises(forebay.RunError) as caught:
        forebay.run(scenario, laws=["pi", CLASSES["Raises"]], threads=1)
    error = caught.value
    assert (error.law, error.point, error.seed) == ("Raises", "traffic.0.flows = 5", 1)
    assert "ArithmeticError: ten is enough" in error.message
    assert "in sample" in error.message
    # What had finished is not lost; the run before this one had, and perhaps some after it.
    assert error.result.partial
    assert set(error.result.metrics["law"]) == {"pi"}


def test_an_exception_on_the_command_line(cli: Cli, scenario: Path, prototypes: Path) -> None:
    done = cli(
        *("run", scenario, "--law", "pi", "--law", "mine.py:Raises", "--threads", 1, "--json"),
        *("--out", "out", "--no-report"),
    )
    assert done.returncode == 1
    assert "Raises at traffic.0.flows = 5, seed 1, failed: Traceback" in done.stderr
    assert "ten is enough" in done.stderr
    assert re.search(r"stopped: [1-4] of 8 runs had finished and are reported\n", done.stderr)
    assert {json.loads(line)["law"] for line in done.stdout.splitlines()} == {"pi"}
    written = json.loads((scenario.parent / "out" / "metrics.json").read_text())
    assert written["partial"] is True


@pytest.mark.parametrize("value", ["much", None, [0.1]])
def test_a_probability_that_is_no_number(scenario: Path, value: Any) -> None:
    law = type("Odd", (Constant,), {"sample": lambda self, queue: value})
    with pytest.raises(forebay.RunError, match="TypeError: sample: returned"):
        forebay.run(scenario, laws=[law], seeds=1)


@pytest.mark.parametrize("interval", [0, -1, float("nan"), True, "10", "never", None, "2min"])
def test_intervals_that_are_refused(scenario: Path, interval: Any) -> None:
    law = type("Odd", (Constant,), {"interval": interval})
    with pytest.raises(forebay.ScenarioError, match=r"Odd\.interval: found .*, allowed: "):
        forebay.run(scenario, laws=[law])


def test_two_of_one_name_are_refused(scenario: Path) -> None:
    with pytest.raises(forebay.ScenarioError, match="PythonPi: found twice"):
        forebay.run(scenario, laws=[PythonPi, PythonPi])
