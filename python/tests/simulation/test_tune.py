"""`forebay tune`: the model against closed forms and packets, the search, the choice, the test."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest
from calm_pi import fastest_calm_pi
from conftest import Cli, command
from scipy import stats as scipy_stats

from forebay import ScenarioError
from forebay._base import statistics
from forebay._base.progress import Progress
from forebay._base.words import quantity
from forebay._native import LawModel
from forebay.control import fitted_gains
from forebay.control.loop import Loop, queue_deviations
from forebay.experiment import store as stores
from forebay.scenario import router
from forebay.tuning import candidates, check, recommendation, search, tuning
from forebay.tuning.candidates import GOALS, Candidate
from forebay.tuning.check import Course, TuningEstimate
from forebay.tuning.ranges import LinkRange, OperatingPoint
from forebay.tuning.tuning import tune

#: Few flows with long windows, where the model holds.
RATE, RTT, FLOWS = "20Mbit/s", "100ms", "5..10"
OPTIONS = ["--rate", RATE, "--rtt", RTT, "--flows", FLOWS]


@pytest.fixture(scope="module")
def narrow() -> LinkRange:
    return LinkRange(RATE, RTT, flows=FLOWS)


@pytest.fixture(scope="module")
def tuned() -> tuning.Tuning:
    return tune(LinkRange(RATE, RTT, flows=FLOWS), laws=["pi", "avq"], seeds=2, threads=2)


def test_corners_are_every_pair_of_ends() -> None:
    ranges = LinkRange("5..50Mbit/s", "20..200ms", flows="10..400")
    assert len(ranges.corners) == 8
    assert ranges.corners[0] == OperatingPoint(5_000_000, 0.02, 10)
    assert ranges.middle == OperatingPoint(15_800_000, 0.0632, 63)
    assert ranges.buffer_pkts == 1250  # 50 Mbit/s · 200 ms
    assert LinkRange("5Mbit/s", "20ms", flows="10").conditions == [
        OperatingPoint(5_000_000, 0.02, 10)
    ]
    assert LinkRange("500kbit/s..5Mbit/s", "20ms", flows="10").rates_bps == (500_000, 5_000_000)
    assert len(ranges.grid(5)) == 125
    assert set(ranges.corners) <= set(ranges.grid(3))


def test_steps_go_from_one_end_to_the_other() -> None:
    ranges = LinkRange("5..50Mbit/s", "20..200ms", flows="10..400")
    assert [str(one).replace("\N{NO-BREAK SPACE}", " ") for one in ranges.steps] == [
        "50 Mbit/s, 200 ms, 400 to 10 flows",
        "5 Mbit/s, 200 ms, 10 to 400 flows",
        "50 to 5 Mbit/s, 200 ms, 400 flows",
        "5 to 50 Mbit/s, 200 ms, 10 flows",
    ]
    written = tomllib.loads(check.scenario([candidates.default("pi")], ranges, "", ranges.steps[0]))
    assert written["traffic"][0]["flows"] == 400
    (change,) = written["at"]
    assert change == {
        "time": f"{check.STEP_S:g}s",
        "set": {"bottleneck.rate": "50Mbit/s", "traffic.0.flows": 10},
    }
    assert written["measure"] == [f"{check.STEP_S + check.SETTLED_S:g}s", f"{check.DURATION_S:g}s"]
    assert LinkRange("5Mbit/s", "20..200ms", flows="10").steps == []
    classes = LinkRange("5Mbit/s", "20ms,80ms", flows="10..40", senders="cubic,reno")
    written = tomllib.loads(
        check.scenario([candidates.default("pi")], classes, "", classes.steps[1])
    )
    assert written["at"][0]["set"] == {
        "bottleneck.rate": "5Mbit/s", "traffic.0.flows": 20, "traffic.1.flows": 20,
    }  # fmt: skip


def test_a_choice_keeps_its_goal_after_a_step() -> None:
    """Where the rate rises from 7 to 45 Mbit/s, what was best at rest keeps less goodput for 40 s
    than the goal allows anywhere."""
    ranges = LinkRange("7..45Mbit/s", "18..130ms", flows="8..70")
    at_rest = (
        ("target", "3.299ms"), ("alpha", "0.00463686"), ("beta", "1.36016"), ("interval", "2.9ms"),
    )  # fmt: skip
    result = tune(ranges, goal="delay", laws=["pi2"], seeds=2)
    assert result.meets_goal
    assert result.sure
    steps = [i for i, place in enumerate(result.ranges.places) if place.before]
    assert len(steps) == 4
    least = 1 - result.goal.give_up
    assert result.tested[0].relative(result.best)[steps].min() >= least
    former = check.check([Candidate("pi2", "former", at_rest, "listed")], result.ranges, 4)
    assert former.checked[0].relative(result.best)[steps].min() < least
    text = " ".join(result.reasons())
    assert "10 s after a step of the load or of the rate" in text


def test_noise_of_an_open_loop_is_that_of_two_poles() -> None:
    """White noise of intensity S through 1/R/((s + a)(s + b)) has variance S/R²/(2ab(a + b))."""
    model = LawModel("pi", [("target", "50p"), ("a", "1e-12"), ("b", "0")], 8_000_000, 1000, 500)
    found = model.operate(5.0, 0.15)
    assert found is not None
    loop = Loop(*found)
    point = loop.point
    a, b = point.tcp_pole, point.queue_pole
    wanted = 0.5 * point.capacity_pkts_per_s / point.rtt_s**2 / (2 * a * b * (a + b))
    peak, noise_pkts, _ = queue_deviations(loop)
    assert peak == pytest.approx(1, abs=0.02)
    assert noise_pkts == pytest.approx(math.sqrt(wanted), rel=0.02)


def test_predicted_deviation_is_that_of_packets() -> None:
    """The model's deviation at constant load, and that of the packets, within a third."""
    ranges = LinkRange("15Mbit/s", "150ms", flows="20")
    params = (("target", "150p"), ("a", "0.00002"), ("b", "0.0000198"))
    local = candidates.local_models_at(
        "pi", lambda _place, _flows: params, 150.0, ranges, ranges.conditions
    )[0]
    assert local is not None
    assert local.in_range
    seen = check.check([Candidate("pi", "pi", params, "listed")], ranges, 3).checked[0]
    assert float(seen.deviation_s.mean()) == pytest.approx(local.noise_delay_s, rel=0.33)


@pytest.mark.parametrize("tcp", ["linux-reno", "cubic", "dctcp"])
def test_predicted_deviation_is_that_of_each_sender(tcp: str) -> None:
    """With the fastest calm PI of that sender, whose plant and noise it has."""
    ranges = LinkRange("20Mbit/s", "100ms", flows="10", senders=tcp)
    region, point, local = fastest_calm_pi(ranges, 50.0, 0.02)
    assert local.in_range
    assert local.loop.stable
    assert local.loop.margins.sensitivity <= 1.03 * candidates.SENSITIVITY
    assert local.sensitivity > 1.8
    one = Candidate("pi", "pi", region.params(point), "listed")
    seen = check.check([one], ranges, 2).checked[0]
    assert float(seen.deviation_s.mean()) == pytest.approx(local.noise_delay_s, rel=0.5)
    # Of Reno, with the same gains.
    reno = region.local(point, LinkRange("20Mbit/s", "100ms", flows="10"), ranges.conditions)[0]
    assert reno is not None
    assert reno.sensitivity != pytest.approx(local.sensitivity, rel=0.02)


def test_any_law_is_searched_on_the_plant_of_its_senders() -> None:
    ranges = LinkRange("20Mbit/s", "100ms", flows="5..10", senders="dctcp")
    for law in ("red", "stpi", "pid"):
        space = candidates.space(law, ranges)
        assert space is not None
        point = {axis.name: math.sqrt(axis.low * axis.high) for axis in space.axes}
        for local in space.local(point, ranges, ranges.conditions):
            assert local is not None
            assert local.flows == local.point.flows
            # p = 2/W, and no 2/W².
            window_pkts = local.loop.point.rtt_s * local.capacity_pkts_per_s / local.flows
            assert local.loop.point.probability == pytest.approx(2 / window_pkts, rel=1e-6)


@pytest.mark.parametrize(
    ("tcp", "kind", "ecn"),
    [("reno", None, None), ("cubic", "linux-cubic", None), ("prague", "prague", "l4s")],
)
def test_packets_run_with_the_sender(tcp: str, kind: str | None, ecn: str | None) -> None:
    ranges = LinkRange(RATE, RTT, flows=FLOWS, senders=tcp)
    written = tomllib.loads(check.scenario([candidates.default("pi")], ranges, ""))
    (traffic,) = written["traffic"]
    assert (traffic.get("tcp"), traffic.get("ecn")) == (kind, ecn)
    assert written["bottleneck"].get("ecn", False) == (ecn is not None)
    assert written["sweep"]["traffic.0.flows"] == [5, 10]
    # What counts classic flows by L4S flows beside them has no model of these.
    assert (candidates.space("dualpi2", ranges) is None) == (tcp == "prague")


@pytest.mark.parametrize("law", ["pi", "stpi"])
def test_search_keeps_the_margins(law: str, narrow: LinkRange) -> None:
    """By the exact margins of the loop, which the search does not use."""
    space = candidates.space(law, narrow)
    assert space is not None
    found = search.search(space, GOALS["balance"], narrow, seed=1)
    assert found.keeps
    for local in found.local:
        assert local is not None
        assert local.loop.stable
        assert local.loop.margins.sensitivity <= 1.03 * candidates.SENSITIVITY
        assert local.idle <= GOALS["balance"].give_up


def test_more_gain_than_found_breaks_the_margins(narrow: LinkRange) -> None:
    space = candidates.space("pi", narrow)
    assert space is not None
    goal = GOALS["throughput"]
    found = search.search(space, goal, narrow, seed=1)
    high = space.local({**found.point, "k_p": 10 * found.point["k_p"]}, narrow, narrow.conditions)
    assert search.loss(found.local, goal) < search.BROKEN <= search.loss(high, goal)


def test_packets_run_with_keys_of_the_caller() -> None:
    """Marks in place of drops, and other laws with designed gains: what is tested says so."""
    marked = {"bottleneck.ecn": True, "traffic.0.ecn": True}
    result = tune(
        LinkRange(RATE, RTT, flows=FLOWS), laws=["pi"], seeds=2, overrides=marked, gains="auto"
    )
    assert result.chosen is not None
    beside = {one.candidate.label: dict(one.candidate.params) for one in result.tested[1:]}
    wanted = fitted_gains.OperatingRange(20_000_000, 1000, (0.1, 0.1), 250, (5, 10))
    assert beside["pi (auto)"] == dict(fitted_gains.fit("pi", wanted).params)
    # A mark is an early signal that loses nothing: a full buffer alone does.
    plain = check.check([result.chosen.candidate], result.ranges, 1).checked[0]
    dropped = check.check([result.chosen.candidate], LinkRange(RATE, RTT, flows=FLOWS), 1)
    assert not np.array_equal(plain.deviation_s, dropped.checked[0].deviation_s)
    commands = recommendation.commands(result, Path("out"))
    assert all("--set bottleneck.ecn=true --set traffic.0.ecn=true" in one for one in commands)
    assert "gains that are designed for the ranges" in " ".join(result.reasons())


def test_every_space_gives_parameters_that_the_law_takes(narrow: LinkRange) -> None:
    spaces = {law: candidates.space(law, narrow) for law in candidates.known([])}
    assert any(spaces.values())
    for law, space in spaces.items():
        if space is None:
            continue
        middle = {axis.name: math.sqrt(axis.low * axis.high) for axis in space.axes}
        one = Candidate(law, law, space.params(middle), "tuned")
        assert not check.runnable(one, narrow), law
        assert len(space.local(middle, narrow, narrow.conditions)) == len(narrow.conditions)


def made_up(name: str, deviation_ms: float, goodput: float, keeps: bool = True) -> check.Checked:
    seen = np.full((2, 3), 1e-3 * deviation_ms)
    share = np.full((2, 3), goodput)
    one = Candidate("pi", name, (), "tuned", keeps=keeps)
    return check.Checked(one, seen, seen, 3 * seen, share, share)


def test_choice_is_the_least_deviation_that_keeps_margins_and_goodput(narrow: LinkRange) -> None:
    result = tuning.Tuning(narrow, GOALS["balance"], ["pi"], 1)
    result.screened = [
        made_up("idle", 1, 0.5),
        made_up("swings", 2, 1.0, keeps=False),
        made_up("good", 3, 0.95),
        made_up("slow", 9, 1.0),
    ]
    tuning._choose(result)
    assert result.chosen is not None
    assert result.chosen.candidate.label == "good"
    assert result.meets_goal
    result.screened = result.screened[:2]
    tuning._choose(result)
    assert result.chosen.candidate.label == "idle"
    assert not result.meets_goal


def test_a_goodput_at_the_limit_is_not_enough(narrow: LinkRange) -> None:
    """With two seeds it is below it with others as often as not."""

    def one(name: str, deviation_ms: float, goodput: float) -> check.Checked:
        made = made_up(name, deviation_ms, goodput)
        made.goodput = made.goodput[:, :2] + np.array([[-0.003, 0.003], [0.002, -0.002]])
        return made

    result = tuning.Tuning(narrow, GOALS["balance"], ["pi"], 1)
    result.screened = [one("edge", 1, 0.901), one("room", 2, 0.93), one("full", 3, 1.0)]
    tuning._choose(result)
    assert result.chosen is not None
    assert result.chosen.candidate.label == "room"
    assert result.sure
    # Where nothing has room, the limit itself counts.
    result.goal = candidates.Goal("strict", 0.001, "deviation_s")
    tuning._choose(result)
    assert result.chosen.candidate.label == "full"
    assert result.meets_goal
    assert not result.sure


def test_laws_with_goodput_to_spare_get_lower_set_points(narrow: LinkRange) -> None:
    """Though a law without a model is best so far, which has no set-point to move."""

    def one(
        law: str, deviation_ms: float, goodput: float, point: dict[str, float]
    ) -> check.Checked:
        made = made_up(law, deviation_ms, goodput)
        candidate = Candidate(law, law, (), "tuned" if point else "listed", point, keeps=True)
        return replace(made, candidate=candidate)

    point = {"target": 50.0}
    result = tuning.Tuning(narrow, GOALS["balance"], ["pi", "cobalt"], 1)
    result.screened = [
        one("cobalt", 1, 0.95, {}),
        one("rem", 2, 0.91, point),
        one("pi2", 5, 0.99, point),
        one("pi", 4, 0.99, point),
        one("pi", 3, 0.98, point),
        one("stpi", 9, 1.0, point),
    ]
    tuning._choose(result)
    assert result.chosen is result.screened[0]
    assert [each.candidate.law for each in tuning._next(result)] == ["pi", "pi2"]
    assert tuning._next(result)[0] is result.screened[4]


def test_set_points_that_round_alike_have_labels_of_their_own(narrow: LinkRange) -> None:
    """0.7 times 0.7 and 1.4 times 0.35, of a law with two choices: both are at 0.49."""
    region = search.region_of("pi", narrow)
    assert region is not None
    result = tuning.Tuning(narrow, GOALS["balance"], ["pi"], 1)
    first = region.best(GOALS["balance"])
    assert first is not None
    (low,) = tuning._moved(result, first, (0.7,), [])[:1]
    (high,) = tuning._moved(result, first, (1.4,), [])[:1]
    high = replace(high, point={**high.point, "k_i": 0.9 * high.point["k_i"]})
    tried = [one for one in tuning._moved(result, low, (0.7,), []) if not one.fastest]
    tried += [one for one in tuning._moved(result, high, (0.35,), tried) if not one.fastest]
    assert [one.share for one in tried] == [0.49, 0.49]
    assert tried[0].params != tried[1].params
    assert [one.label for one in tried] == ["pi for balance at 0.49", "pi for balance at 0.49 #2"]
    # A scenario refuses labels that are the same.
    assert all(one.complete for one in check.check(tried, narrow.only(narrow.middle), 1).checked)


def test_finished_candidates_survive_a_later_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = stores.at(tmp_path / "store")
    given: dict[str, Any] = {"laws": ["pi"], "seeds": 1, "store": store}

    def breaks(*_arguments: object, **_more: object) -> None:
        raise RuntimeError("the end of the world")

    with monkeypatch.context() as broken:
        broken.setattr(tuning._Search, "_test", breaks)
        with pytest.warns(UserWarning, match="RuntimeError: the end of the world; the tuning"):
            found = tune(LinkRange(RATE, RTT, flows=FLOWS), **given)
    assert found.faults == ["RuntimeError: the end of the world"]
    assert found.chosen is not None
    told = found.findings()
    assert told["partial"] and told["law"] == "pi" and len(told["candidates"]) > 5
    recommendation.write_files(found, told, tmp_path / "out", "forebay tune")
    assert "the end of the world" in (tmp_path / "out" / "tune.html").read_text()

    # Before the first run there is nothing but the searches, which need not be made again.
    with monkeypatch.context() as broken:
        broken.setattr(tuning, "check", breaks)
        with pytest.raises(RuntimeError, match="the end of the world"):
            tune(LinkRange("10Mbit/s", RTT, flows=FLOWS), **given)
    with monkeypatch.context() as broken:
        broken.setattr(search, "best_candidate", breaks)
        again = tune(LinkRange("10Mbit/s", RTT, flows=FLOWS), **given, threads=1)
    assert again.chosen is not None
    without = tune(LinkRange("10Mbit/s", RTT, flows=FLOWS), laws=["pi"], seeds=1)
    assert again.to_dict() == without.to_dict()


def test_numbers_are_written_before_any_sentence_is_printed(tmp_path: Path) -> None:
    """Where its own sentences fail, say."""
    program = (
        "import sys; from forebay.report import templates; "
        "templates.paragraphs = lambda *a, **k: 1 / 0; "
        "from forebay.cli.main import main; main()"
    )
    words = ["tune", *OPTIONS, "--law", "pi", "--seeds", "1", "--out", "tuned", "--no-store"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    found = json.loads((tmp_path / "tuned" / "tune.json").read_text())
    assert found["law"] == "pi"
    assert found["against"]


def test_settings_that_are_the_same_are_tried_once() -> None:
    """On one RTT those of the shortest, the middle and the longest are one."""
    for law in ("codel", "fq-codel"):
        found = candidates.listed(
            law, LinkRange("1Gbit/s", "10ms", flows="2..2000", packet="1500B")
        )
        assert len({one.params for one in found}) == len(found)


def test_against_pairs_the_seeds_and_adjusts_by_holm(narrow: LinkRange) -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(20, 4, (1, 10))

    def one(label: str, more_ms: float) -> check.Checked:
        made = made_up(label, 0, 1.0)
        seen = 1e-3 * (common + more_ms + rng.normal(0, 0.5, (1, 10)))
        return check.Checked(made.candidate, seen, seen, seen, seen, seen)

    result = tuning.Tuning(narrow, GOALS["balance"], ["pi"], 1)
    result.tested = [one("mine", 0), one("much", 1.0), one("little", 0.3)]
    rows = result.against()
    mine, *others = (checked.worst_s for checked in result.tested)
    p = [float(scipy_stats.ttest_rel(other, mine).pvalue) for other in others]
    assert [row.p for row in rows] == pytest.approx(statistics.holm(p))
    assert rows[0].significant
    assert rows[0].difference_s == pytest.approx(float((others[0] - mine).mean()))
    assert all(row.seeds == 10 for row in rows)


def test_tuned_law_moves_less_than_droptail(tuned: tuning.Tuning) -> None:
    assert tuned.chosen is not None
    assert tuned.chosen.candidate.law == "pi"
    droptail = next(row for row in tuned.against() if row.rival.candidate.law == "droptail")
    assert droptail.difference_s > 0
    assert tuned.seeds == 2
    text = " ".join(tuned.reasons())
    assert "The margins are smallest at" in text
    assert "DropTail has" in text


def test_a_tuning_shows_its_choice(tuned: tuning.Tuning) -> None:
    assert len(repr(tuned)) < 300
    assert repr(tuned).startswith(f"<Tuning for {tuned.ranges}: {tuned.chosen.candidate.law} with ")  # type: ignore[union-attr]


def test_threads_do_not_change_the_result(tuned: tuning.Tuning) -> None:
    alone = tune(LinkRange(RATE, RTT, flows=FLOWS), laws=["pi", "avq"], seeds=2, threads=1)
    assert alone.to_dict() == tuned.to_dict()


@pytest.fixture(scope="module")
def for_router() -> tuple[tuning.Tuning, list[TuningEstimate]]:
    """A choice for a router, and what was announced before it."""
    announced: list[TuningEstimate] = []
    chosen = tune(
        LinkRange(RATE, RTT, flows=FLOWS, packet="1500B"),
        laws=["pie", "codel", "red", "dualpi2"],
        seeds=2,
        router="linux",
        announce=announced.append,
    )
    return chosen, announced


def test_a_router_gets_parameters_that_its_qdisc_has(
    for_router: tuple[tuning.Tuning, list[TuningEstimate]],
) -> None:
    """Linux's RED has no `gentle`, its PIE has gains in sixteenths: what the packets judged is what
    the qdisc does."""
    told = for_router[0].findings()
    assert told["law"] in ("pie", "codel", "red", "dualpi2")
    commands = [line for line in told["router"] if not line.startswith("#")]
    assert commands[-1].startswith("tc qdisc replace dev eth0")
    assert told["attach"].startswith(f"sudo forebay attach eth0 {told['law']} --rate 20Mbit/s")
    laws = {row["law"] for row in told["candidates"]}
    assert laws == {"pie", "codel", "red", "dualpi2", "droptail"}
    for row in told["candidates"]:
        words = router.lines(
            row["law"], list(row["params"].items()), rate_bps=20_000_000, packet_bytes=1500,
            buffer_pkts=for_router[0].ranges.buffer_pkts,
        )  # fmt: skip
        # RED's buffer is in bytes, and tbf counts frames.
        remarks = [line for line in words if line[0] == "#"]
        assert all("buffer" in line or "tbf counts" in line for line in remarks), row
    (red,) = (row for row in told["candidates"] if row["label"] == "red (default)")
    assert red["params"]["gentle"] == "false"
    # A law with a linear model has margins or breaks them, also as the kernel has it unasked.
    usual = {
        row["law"]: row["keeps_margins"] for row in told["candidates"] if row["origin"] == "default"
    }
    assert usual["codel"] is None and isinstance(usual["pie"], bool)


def test_an_estimate_comes_before_the_long_part(
    for_router: tuple[tuning.Tuning, list[TuningEstimate]],
) -> None:
    (expected,) = for_router[1]
    assert expected.searches == 3  # of PIE, RED and DualPI2, for the goal that was asked for
    assert expected.laws == 5
    assert expected.runs > 100
    assert 0 < expected.total_s < 3600


def test_the_time_left_is_that_of_all_stages() -> None:
    heard: list[tuple[str, float]] = []
    course = Course(lambda what, now: heard.append((what, now.fraction)))
    course.ahead_s = {"searches": 30.0, "screening runs": 60.0, "test runs": 10.0}
    course.stage("searches")(Progress(0.5, 1, 2, 1.0))
    course.stage("screening runs")(Progress(0.5, 1, 2, 1.0))
    # More is known of it by now.
    course.stage("test runs", 30.0)(Progress(1.0, 2, 2, 1.0))
    assert heard == [("searches", 0.15), ("screening runs", 0.6), ("test runs", 1.0)]


def test_no_margins_are_claimed_without_a_linear_model(narrow: LinkRange) -> None:
    """AVQ was chosen "among the candidates that keep their margins"."""
    result = tuning.Tuning(narrow, GOALS["balance"], ["avq", "pi"], 1)
    without = Candidate("avq", "avq 1", (("gamma", "0.98"),), "listed")
    shape = (len(narrow.places), 3)
    for candidate, deviation_s in (
        (without, 0.001),
        (Candidate("pi", "good", (), "tuned", keeps=True), 0.003),
    ):
        seen, share = np.full(shape, deviation_s), np.ones(shape)
        result.screened.append(check.Checked(candidate, seen, seen, seen, share, share))
    tuning._choose(result)
    assert result.chosen is result.screened[0]
    told = result.findings()
    assert told["keeps_margins"] is None
    text = " ".join(told["reasons"])
    assert "no linear model, so its stability margins are unknown" in text
    assert "keep their margins and" not in text


def test_insignificant_differences_are_one_sentence(narrow: LinkRange) -> None:
    rng = np.random.default_rng(1)
    result = tuning.Tuning(narrow, GOALS["balance"], ["pi", "avq", "red", "rem"], 1)
    shape = (len(narrow.places), 10)
    for law in ("pi", "droptail", "avq", "red", "rem"):
        seen = 1e-3 * rng.normal(20, 4, shape)
        share = np.ones(shape)
        origin = "tuned" if law == "pi" else "default"
        one = Candidate(law, f"{law} (papers)", (), origin, keeps=law == "pi")
        result.tested.append(check.Checked(one, seen, seen, seen, share, share))
    result.screened = list(result.tested)
    tuning._choose(result)
    text = " ".join(result.reasons())
    assert text.count("may be chance") <= 2  # DropTail has a sentence of its own
    assert "The difference from AVQ, RED and REM may be chance." in text


def test_page_pictures_and_scenarios(cli: Cli, tmp_path: Path) -> None:
    done = cli("tune", *OPTIONS, "--law", "pi", "--seeds", 1, "--json", "--out", "tuned")
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    out = tmp_path / "tuned"
    written = json.loads((out / "tune.json").read_text())
    # The command and the digest decide whether another result may replace it.
    assert len(written.pop("digest")) == 32
    assert written.pop("command").startswith("forebay tune --rate 20Mbit/s")
    assert printed == written
    assert printed["law"] == "pi"
    # Both ends of the range and its middle, and from each end to the other.
    assert [place["flows"] for place in printed["places"]] == [5, 10, 7, 5, 10]
    steps = [place["before"] for place in printed["places"]]
    assert steps == [None] * 3 + [{"rate_bps": 20e6, "flows": n} for n in (10, 5)]
    report = (out / "tune.html").read_text()
    assert len(set(pages.check(report))) == 3
    assert "http" not in report.split("<svg")[0]
    # As they are printed, from where `forebay tune` ran.
    assert "forebay run tuned/tuned.toml\nforebay run tuned/corners.toml --seeds 3" in report
    titles = re.findall("<h[23][^>]*>([^<]+)</h", report)
    assert len(titles) == len(set(titles)) == 10, titles
    # What is chosen between, and what its names say.
    (target,) = (row["set_point"] for row in printed["candidates"] if row["chosen"])
    assert target == printed["params"]["target"] and f"<td>{quantity(target)}</td>" in report
    assert "is named after the goal of its search" in report
    # It answers first: the choice, a picture, and then the reasons.
    assert report.index("(chosen)") < report.index("<svg") < report.index("take PI with")
    assert report.index("take PI with") < report.index("Every operating point in numbers")
    for name in ("trade", "places", "defaults"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    again = cli("run", "tuned/tuned.toml", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["law"] == "pi (tuned)"
    corners = cli("run", "tuned/corners.toml", "--law", "pi (tuned)", "--json")
    assert len(corners.stdout.splitlines()) == 2, corners.stderr


def test_searches_are_the_same_in_any_number_of_processes() -> None:
    ranges = LinkRange("20Mbit/s", "100ms", flows="5")
    tasks = [("pi", "balance"), ("pi", "delay")]

    def told(processes: int) -> list[tuple[Any, ...]]:
        found = sorted(search.search_all(tasks, ranges, 1, processes))
        return [
            (
                number,
                *(one.law, one.label, one.params, one.point, one.keeps),
                [local and (local.gain_db, local.noise_pkts) for local in one.local],
            )
            for number, one in found
        ]

    alone = told(1)
    assert [entry[0] for entry in alone] == [0, 1]
    assert told(2) == alone


def test_interrupted_while_searching_leaves_no_process(tmp_path: Path) -> None:
    arguments = ["tune", *OPTIONS, "--law", "red", "--law", "rem", "--threads", 2]
    process = subprocess.Popen(
        command(*arguments), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )

    def searching() -> list[str]:
        """Processes that this one has begun, by what they run."""
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        each = children.read_text().split() if children.exists() else []
        return [
            pid
            for pid in each
            if b"forebay.tuning.search" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]

    deadline = time.monotonic() + 120
    while len(begun := searching()) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(begun) == 2
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    assert not [pid for pid in begun if Path(f"/proc/{pid}").exists()]


def test_a_second_search_is_not_waited_for(tmp_path: Path) -> None:
    """Keeping the first loads polars, whose handler had Ctrl-C heard when the next one ended."""
    asks = """
import sys
from forebay.experiment import store as stores
from forebay.tuning import search
from forebay.tuning.ranges import LinkRange

store = stores.store(sys.argv[1])
ranges = LinkRange("5..50Mbit/s", "20..100ms", flows="10..100", senders="cubic")
tasks = [("pi", "balance"), ("red", "balance")]
for number, _ in search.search_all(tasks, ranges, 1, 2, store):
    print(number, "polars" in sys.modules, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", asks, str(tmp_path / "store")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "0 True\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    # It would take twenty seconds of a processor.
    out, errors = process.communicate(timeout=10)
    assert "KeyboardInterrupt" in errors
    assert out == ""


def test_an_interrupted_tuning_keeps_finished_tests(tmp_path: Path) -> None:
    arguments = ["tune", *OPTIONS, "--law", "pi", "--seeds", 900, "--out", tmp_path / "tuned"]
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "test runs" in line:
            process.send_signal(signal.SIGINT)
            break
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted: " in errors
    assert "Partial result" in (tmp_path / "tuned" / "tune.html").read_text()
    assert json.loads((tmp_path / "tuned" / "tune.json").read_text())["partial"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"rate": "50..5Mbit/s"}, 'rate: "50..5Mbit/s" is not valid; expected from less to more'),
        ({"rtt": "20"}, 'rtt: "20" is not valid; expected a time'),
        ({"flows": "1.5"}, 'flows: "1.5" is not valid; expected whole numbers'),
        ({"flows": "0..5"}, 'flows: "0..5" is not valid; expected from less to more, above zero'),
        ({"rate": ".."}, 'rate: ".." is not valid; expected a value, or a range'),
        ({"goal": "speed"}, 'goal: "speed" is not valid; expected one of delay, balance, t'),
        ({"laws": ["pike"]}, 'laws: "pike" is not valid; expected one of dr'),
        (
            {"laws": ["droptail"]},
            'laws: "droptail" is not valid; expected a law with something to tune',
        ),
        ({"senders": "bbr"}, 'senders: "bbr" is not valid; expected one of reno, linux-reno'),
        ({"senders": "prague", "laws": ["dualpi2"]}, 'senders: "prague": dualpi2 signals these'),
        (
            {"overrides": {"law.0.a": 1}},
            'overrides: "law.0.a" is not valid; expected a key of the packet runs',
        ),
        ({"overrides": ["bottleneck.rate=1Mbit/s"]}, 'overrides: "bottleneck.rate" is not'),
        (
            {"overrides": ["bottleneck.colour=1"]},
            "bottleneck.colour: unknown key; expected one of rate, ",
        ),
        ({"gains": "rule"}, 'gains: "rule" is not valid; expected one of paper, auto'),
        ({"seeds": 0}, "seeds: 0 is not valid; expected"),
        ({"buffer": "2p"}, 'buffer: "2p" is not valid; expected at least "10p"'),
        ({"packet": "20B"}, 'traffic.0.packet: "20B" is not valid; expected a value from 40B'),
    ],
)
def test_bad_input_is_one_line(options: dict[str, object], found: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        values: dict[str, Any] = {"rate": RATE, "rtt": RTT, "flows": FLOWS} | options
        own = ("rate", "rtt", "flows", "senders", "buffer", "packet")
        ranges = LinkRange(**{name: values.pop(name) for name in own if name in values})
        tune(ranges, **values)
    assert str(caught.value).startswith(found)
    assert "\n" not in str(caught.value)


def test_bad_input_exits_with_2_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("tune", "--rate", "5Mbit/s", "--rtt", "20ms", "--flows", "x", "--out", "tuned")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "tuned").exists()
