"""The drawn cases of docs/evidence/reality-drawn.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from forebay.comparison.compare import Agreement
from forebay.experiment import experiment

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "experiments" / "reality" / "drawn.json").read_text())
RUNS = ROOT / "experiments" / "reality" / "drawn.csv"

sys.path.insert(0, str(ROOT / "bench"))

import drawn  # noqa: E402
import fidelity_guest  # noqa: E402
import fidelity_linux  # noqa: E402
import linux  # noqa: E402


def test_the_cases_are_those_of_the_seed() -> None:
    assert drawn.draw(drawn.CASES, drawn.DRAWS_SEED) == CASES
    assert drawn.draw(3, drawn.DRAWS_SEED) == CASES[:3]
    assert drawn.draw(3, drawn.DRAWS_SEED + 1) != CASES[:3]


def test_they_have_every_queue_and_every_load_within_the_limits() -> None:
    assert {it["id"].split(".")[1] for it in CASES} == set(drawn.QUEUES)
    for case in (it["case"] for it in CASES):
        flows = sum(group.get("n", 0) for group in case["groups"])
        assert 1 <= flows <= 60
        assert flows * drawn.LEAST_SHARE_MBIT <= case["rate_mbit"] <= 100
        assert all(5 <= group["rtt_ms"] <= 200 for group in case["groups"])


@pytest.mark.parametrize("engine", ["packets", "kernel"])
def test_each_is_a_scenario(engine: str) -> None:
    for case in CASES:
        experiment.read(linux.scenario(case["case"], tuple(case["window"]), engine))


def test_kept_runs_of_linux_belong_to_the_present_scenarios() -> None:
    known = {
        (it["id"], fidelity_guest.digest(linux.scenario(it["case"], tuple(it["window"]), "kernel")))
        for it in CASES
    }
    kept = fidelity_guest.LinuxRuns(RUNS).runs
    counts = {
        (case, scenario): n
        for case, scenario, n in kept.group_by("case", "scenario").len().iter_rows()
    }
    assert counts
    assert set(counts) <= known
    assert all(count >= 2 for count in counts.values())


def _figure(theirs: list[float], ours: list[float]) -> Agreement:
    return Agreement(fidelity_linux.TOLERANCES[0], ours, theirs)


def test_figures_without_any_spread_are_no_miss() -> None:
    """As the marks of a link without ECN: Welch's interval is unknown there."""
    marks = fidelity_guest.TOLERANCES[3]
    assert Agreement(marks, [0.0] * 3, [0.0] * 3).agrees
    assert Agreement(marks, [0.2] * 3, [0.2] * 3).agrees
    assert not Agreement(marks, [0.2] * 3, [0.3] * 3).agrees


def test_a_miss_is_proven_where_no_chance_of_the_seeds_can_have_made_it() -> None:
    near = _figure([10e-3, 10.1e-3, 9.9e-3], [15e-3, 15.1e-3, 14.9e-3])
    assert not near.agrees
    assert near.proven
    wide = _figure([10e-3, 16e-3, 4e-3], [15e-3, 15.1e-3, 14.9e-3])
    assert not wide.agrees
    assert not wide.proven
