"""`forebay suite`: its scenarios, its links, its runs and its pages."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import numpy as np
import pages
import pytest
from conftest import Cli, command

import forebay
from forebay import ScenarioError
from forebay.campaign import suite as advice
from forebay.campaign import suite_scenarios as scenarios
from forebay.campaign.suite import Case, Suite
from forebay.experiment import experiment

SETTINGS = scenarios.find("rfc7928")
FILES = SETTINGS.scenarios()
ONE = ["suite", "rfc7928", "--scenario", "7-1-web", "--law", "pi", "--seeds", 1]


def test_it_has_every_section_of_the_rfc() -> None:
    assert {path.stem[0] for path in FILES} == {"4", "5", "6", "7", "8", "9"}
    assert set(SETTINGS.fairness) <= {path.stem for path in FILES}
    assert len(SETTINGS.laws) == 10


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_scenario_can_be_run_alone(path: Path) -> None:
    plan = experiment.read(path).plan
    assert plan.title
    assert plan.source.startswith("RFC 7928, section " + path.stem[0])


@pytest.mark.parametrize("link", ["1Mbit/s,5ms", "200Mbit/s,150ms"])
def test_every_scenario_fits_other_links(link: str) -> None:
    at = scenarios.link(link)
    for one in scenarios.plan(SETTINGS, FILES, ["pi"], at, 1):
        for point in one.experiment.plan.points:
            place = point.links[0]
            assert place.rate_bps == at.rate_bps
            longest_s = max(rtt for traffic in point.traffic for rtt in traffic.rtts_s)
            product = at.rate_bps * max(at.rtt_s, longest_s) / 12_000
            assert place.buffer_pkts == max(4, round(product))


def test_its_own_link_changes_nothing() -> None:
    for path, one in zip(
        FILES, scenarios.plan(SETTINGS, FILES, ["droptail"], SETTINGS.link, 1), strict=True
    ):
        alone, of_suite = experiment.read(path).plan, one.experiment.plan
        points = range(len(alone.points))
        assert [alone.resolved(i) for i in points] == [of_suite.resolved(i) for i in points], path


def test_a_suite_accepts_the_overrides_of_run() -> None:
    overrides = [
        "duration=9s",
        'measure=["3s", "9s"]',
        "law.pi.target=7p",
        "traffic.0.flows=2..4 3",
    ]
    with pytest.raises(
        ScenarioError, match=r'traffic\.0\.flows: "2\.\.4 3" is not valid; expected a '
    ):
        scenarios.plan(SETTINGS, FILES[:1], ["pi"], SETTINGS.link, 1, overrides)
    at = scenarios.link("20Mbit/s,50ms")
    (one,) = scenarios.plan(SETTINGS, FILES[:1], ["pi", "codel"], at, 1, overrides[:3])
    point = one.experiment.plan.points[0]
    assert (point.duration_s, point.links[0].rate_bps) == (9.0, 20_000_000)
    # What is set wins over what the suite designs.
    assert dict(point.laws[0].params)["target"] == "7p"
    (designed,) = scenarios.plan(SETTINGS, FILES[:1], ["pie"], at, 1, {"law.pie.gains": "auto"})
    (law,) = designed.experiment.plan.designed
    assert law.line.startswith("pie designed for 20Mbit/s, 100ms, ")


def test_the_buffers_of_the_files_are_the_bandwidth_delay_product() -> None:
    for path in FILES:
        for point in experiment.read(path).plan.points:
            longest_s = max(0.1, *(rtt for t in point.traffic for rtt in t.rtts_s))
            for link in point.links:
                assert link.buffer_pkts == round(1e7 * longest_s / 12_000), path


def test_laws_made_for_a_link_are_designed_for_it() -> None:
    def params(link: str) -> dict[str, object]:
        planned = scenarios.plan(SETTINGS, FILES[:1], ["pi"], scenarios.link(link), 1)
        return dict(planned[0].experiment.plan.points[0].laws[0].params)

    here, there = params("10Mbit/s,50ms"), params("100Mbit/s,50ms")
    assert here["a"] != there["a"]
    assert here["target"] == "12.5p"


def test_a_law_whose_rule_does_not_suit_the_link_keeps_its_default_gains() -> None:
    at = scenarios.link("10Mbit/s,50ms")
    made = scenarios.designs(SETTINGS, ["pi", "pd-avg", "codel"], at)
    assert made["pi"]
    assert made["pd-avg"] is None
    assert "codel" not in made
    (law,) = scenarios.laws(SETTINGS, ["pd-avg"], at)
    assert law.params == [("target", SETTINGS.target)]


def test_from_python_it_has_the_same_cases(cli: Cli) -> None:
    lines = cli(*ONE, "--json").stdout.splitlines()
    assert len(lines) == 1
    found = forebay.suite("rfc7928", ["pi"], only=["7-1-web"], seeds=1)
    assert (found.finished, found.total, found.faults) == (1, 1, [])
    assert [json.loads(json.dumps(line)) for line in found.lines()] == [json.loads(lines[0])]
    with pytest.raises(forebay.ScenarioError, match='SUITE: "rfc7929" is not valid'):
        forebay.suite("rfc7929")


def test_one_law_one_scenario_one_seed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "experiments").symlink_to(SETTINGS.folder.parent.absolute())
    done = cli(*ONE, "--page", "page.md", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert not written["partial"]
    (case,) = written["cases"]
    assert (case["law"], case["scenario"], case["seeds"]) == ("pi", "7-1-web", 1)
    assert case["metrics"]["flow_completion_p50_s"]["mean"] > 0.1
    assert case["metrics"]["jain"]["mean"] is None
    page = (tmp_path / "out" / "report.html").read_text()
    assert len(set(pages.check(page))) == 2
    assert "one seed" in page
    assert sorted(path.name for path in (tmp_path / "out" / "figures").iterdir()) == [
        "01-7-1-web.png",
        "overview.png",
    ]
    text = (tmp_path / "page.md").read_text()
    assert "## Section 7: Burst absorption" in text
    assert "nan" not in text


def test_json_has_a_line_for_each_law_and_case_and_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli(*ONE, "--law", "droptail", "--link", "2Mbit/s,20ms", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["law"] for line in lines] == ["pi", "droptail"]
    assert 0 < lines[0]["metrics"]["goodput_bps"]["mean"] < 2e6
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rfc7929"], ["SUITE", "rfc7929", "rfc7928"]),
        (["rfc7928", "--law", "pye"], ["--law", "pye", "did you mean"]),
        (["rfc7928", "--scenario", "7-1"], ["--scenario", "7-1", "7-1-web"]),
        (["rfc7928", "--link", "10Mbit/s"], ["--link", "10Mbit/s,50ms"]),
        (["rfc7928", "--link", "10,50ms"], ["--link", "10", "Mbit/s"]),
        (["rfc7928", "--link", "10Mbit/s,0ms"], ["--link", "0ms", "above zero"]),
        (["rfc7928", "--seeds", "0"], ["--seeds", "0"]),
        (["rfc7928", "--page", "no/such/page.md"], ["--page", "page.md"]),
        (["rfc7928", "--out", "/proc/x"], ["--out", "/proc/x"]),
    ],
)
def test_bad_input_is_one_line(
    cli: Cli, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    done = cli("suite", *arguments)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert all(word in line for word in words), line
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_suite_keeps_finished_runs(tmp_path: Path) -> None:
    words = command("suite", "rfc7928", "--law", "pi", "--seeds", 300, "--threads", 1)
    with subprocess.Popen(
        words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if int(line.split()[0]) >= 1)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "interrupted: " in errors
    assert "Traceback" not in errors
    assert "Report: results/rfc7928/report.html" in out
    written = json.loads((tmp_path / "results" / "rfc7928" / "metrics.json").read_text())
    assert written["partial"] is True
    assert written["cases"]


def _suite(delays: dict[str, list[float]]) -> Suite:
    case = Case(
        "5-1",
        "Title",
        "Source",
        "",
        fairness=True,
        measured={"delay_mean_s", "delay_p95_s", "goodput_bps", "drop_rate"},
    )
    for law, values in delays.items():
        case.runs[law] = {
            seed: {
                "delay_mean_s": v,
                "delay_p95_s": v,
                "goodput_bps": 1e6,
                "drop_rate": v,
                "jain": v,
            }
            for seed, v in enumerate(values, 1)
        }
    return Suite(SETTINGS, SETTINGS.link, list(delays), {"a"}, [1, 2, 3, 4, 5], [case])


def test_advice_says_when_a_difference_may_be_chance() -> None:
    rng = np.random.default_rng(1)
    noise = [rng.normal(0, 1e-3, 5) for _ in range(3)]
    suite = _suite(
        {
            "a": list(0.010 + noise[0]),
            "b": list(0.0101 + noise[1]),
            "c": list(0.050 + noise[2]),
        }
    )
    waits = advice.advice(suite)[0]
    assert waits.best.law in ("a", "b")
    assert waits.best.ties == [{"a": "b", "b": "a"}[waits.best.law]]
    assert waits.best.behind == "c"
    assert "may be chance; next is c (4" in waits.text
    share = next(one for one in advice.advice(suite) if one.metric == "jain")
    assert share.best.law == "c"
    assert advice.advice(suite)[0].single is None or waits.best.law == "a"


def test_a_law_that_leaves_the_link_idle_is_no_answer_to_long_waits() -> None:
    suite = _suite({"idle": [0.001] * 5, "good": [0.010] * 5, "full": [0.1] * 5, "bad": [0.2] * 5})
    (case,) = suite.cases
    for law, goodput_bps in [("idle", 5e6), ("good", 9e6), ("full", 9.5e6), ("bad", 9e6)]:
        for run in case.runs[law].values():
            run["goodput_bps"] = goodput_bps
    assert advice.advice(suite)[0].best.law == "good"
    assert advice.unbeaten(suite) == ["idle", "good", "full"]


def test_a_law_without_every_seed_is_in_no_average() -> None:
    suite = _suite({"a": [0.01] * 5, "b": [0.02] * 5})
    assert len(suite.complete()) == 1
    del suite.cases[0].runs["b"][3]
    assert suite.complete() == []
    assert np.isnan(suite.average("a", "delay_mean_s").mean)
    assert advice.advice(suite) == []
