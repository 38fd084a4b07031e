"""Two saved results side by side: which differences are there, and which may be chance."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pages
import pytest
from conftest import Cli
from scipy.stats import ttest_rel

import forebay
from forebay import ScenarioError
from forebay._base.statistics import holm

LINK = """\
title    = "A link"
duration = "4s"
measure  = ["1s", "4s"]
bottleneck = { rate = "10Mbit/s", delay = "5ms", buffer = "100p" }
traffic = [{ kind = "ftp", flows = 8, rtt = ["40ms", "60ms"], start = { uniform = ["0s", "1s"] } }]
law = [{ kind = "pi", target = "30p" }, { kind = "droptail" }]
"""
SWEPT = f'{LINK}[sweep]\n"bottleneck.delay" = ["5ms", "0.02s"]\n'


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs with two buffers, one law each, and the same sweep as a run and as a study."""
    folder = tmp_path_factory.mktemp("saved")
    results = {
        "large": forebay.run(LINK, seeds=5),
        "small": forebay.run(LINK, seeds=4, overrides={"bottleneck.buffer": "40p"}),
        "pi": forebay.run(LINK, laws=["pi"], seeds=3),
        "codel": forebay.run(LINK, laws=["codel"], seeds=3),
        "one": forebay.run(LINK, laws=["pi"], seeds=1),
        "swept": forebay.run(SWEPT, seeds=2),
    }
    for name, result in results.items():
        result.report(folder / name)
    return folder


def test_each_difference_is_tested_over_the_common_seeds(saved: Path) -> None:
    found = forebay.compare(
        saved / "large", saved / "small", metrics=["queue_mean_pkts", "mark_rate"]
    )
    # Nothing is marked without ECN, so nothing is said of marks.
    assert [(line.metric, line.laws[0]) for line in found.differences] == [
        ("queue_mean_pkts", "pi"),
        ("queue_mean_pkts", "droptail"),
    ]
    alone = {}
    for line in found.differences:
        seeds = [
            {
                run["seed"]: run["metrics"]["queue_mean_pkts"]
                for run in json.loads((saved / name / "metrics.json").read_text())["runs"]
                if run["law"] == line.laws[0]
            }
            for name in ("large", "small")
        ]
        a, b = ([of[seed] for seed in range(1, 5)] for of in seeds)
        assert line.seeds == 4
        assert line.difference == pytest.approx(sum(b) / 4 - sum(a) / 4)
        # The mean of A is that of the runs which have a partner.
        assert line.a.mean == pytest.approx(sum(a) / 4) != sum(seeds[0].values()) / 5
        assert (line.a.seeds, line.unpaired) == (4, (1, 0))
        assert line.b.mean - line.a.mean == pytest.approx(line.difference)
        test = ttest_rel(b, a)
        interval = test.confidence_interval(0.95)
        assert line.half_width == pytest.approx((interval.high - interval.low) / 2)
        alone[line.laws[0]] = float(test.pvalue)
    adjusted = holm([alone[line.laws[0]] for line in found.differences])
    assert [line.p for line in found.differences] == pytest.approx(adjusted)
    tail = next(line for line in found.differences if line.laws[0] == "droptail")
    assert tail.significant and tail.difference < -30
    assert tail.share == pytest.approx(tail.difference / tail.a.mean)
    said = re.search(
        r"DropTail: Queue ([\d.]+) ± [\d.]+ packets lower in B \(", " ".join(str(found).split())
    )
    assert said and float(said[1]) == pytest.approx(-tail.difference, rel=1e-2)


def test_eighty_columns_have_the_difference_and_its_p(saved: Path, cli: Cli) -> None:
    out = cli("compare", str(saved / "large"), str(saved / "small")).stdout
    (head,) = re.findall(r"^Metric +Law +A +B +B − A +p\b", out, re.MULTILINE)
    assert len(head) <= 80
    # What was run tells what the scenarios differ in.
    assert out.count("   forebay run ") == 2
    # Of a share, points are not per cent of it.
    assert not re.search(r"Drops: [\d.]+ ± [\d.]+ %", out)


def test_runs_without_a_partner_are_counted(saved: Path) -> None:
    text = str(forebay.compare(saved / "large", saved / "small"))
    assert "1 run of A has no partner with the same point and seed" in " ".join(text.split())
    same = forebay.compare(saved / "pi", saved / "large", metrics=["queue_mean_pkts"])
    (line,) = same.differences
    # Three seeds against five of the same: one mean, and no difference.
    assert line.a.mean == line.b.mean
    assert (line.difference, line.seeds, line.unpaired) == (0.0, 3, (0, 2))
    assert line.alike and line.p != line.p
    assert "Both results have the same numbers." in str(same)
    alone = forebay.compare(saved / "one", saved / "large", metrics=["queue_mean_pkts"])
    assert alone.differences[0].a.mean == alone.differences[0].b.mean


#: DropTail and a sender that draws nothing: every seed gives the same run.
FIXED = LINK.replace('start = { uniform = ["0s", "1s"] }', 'start = "0s", tcp = "linux-cubic"')


def test_seeds_that_change_nothing_are_no_evidence(tmp_path: Path, cli: Cli) -> None:
    assert FIXED != LINK
    for name, buffer in (("a", "100p"), ("b", "101p")):
        overrides = {"bottleneck.buffer": buffer}
        forebay.run(FIXED, laws="droptail", seeds=4, overrides=overrides).report(tmp_path / name)
    found = forebay.compare(tmp_path / "a", tmp_path / "b")
    assert any(line.difference for line in found.differences)
    assert not any(line.significant for line in found.differences)
    assert all(line.alike and line.p != line.p for line in found.differences)
    text = str(found)
    assert "± 0.0" not in text and "no test" in text
    assert "all seeds gave the same" in text
    told = json.loads(cli("compare", tmp_path / "a", tmp_path / "b", "--json").stdout)
    assert {(row["p"], row["ci95"], row["alike"]) for row in told["differences"]} == {
        (None, None, True)
    }


def test_a_result_is_the_same_as_itself(saved: Path) -> None:
    found = forebay.compare(saved / "large", saved / "large")
    assert {line.difference for line in found.differences} == {0.0}
    assert "Both results have the same numbers." in str(found)


def test_the_only_law_of_each_is_compared_with_the_other(saved: Path) -> None:
    found = forebay.compare(saved / "pi", saved / "codel", metrics=["delay_p95_s"])
    (line,) = found.differences
    assert line.laws == ("pi", "codel")
    assert "pi → codel" in str(found)
    # One seed tests nothing.
    alone = forebay.compare(saved / "one", saved / "codel", metrics=["delay_p95_s"])
    assert alone.differences[0].p != alone.differences[0].p
    assert "fewer than two seeds in common" in " ".join(str(alone).split())


def test_a_run_and_a_study_of_the_same_points(saved: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "s.toml").write_text(SWEPT)
    words = ("--seeds", 2, "--store", tmp_path / "store", "--no-report")
    done = cli("study", "s.toml", *words, "--out", "study")
    assert done.returncode == 0, done.stderr
    found = forebay.compare(saved / "swept", tmp_path / "study")
    assert len(found.points) == 2
    assert {line.difference for line in found.differences + found.at_points} == {0.0}
    assert {line.point for line in found.differences} == {"all points"}
    assert {line.point for line in found.at_points} == {
        "bottleneck.delay = 5ms",
        "bottleneck.delay = 0.02s",
    }


def test_the_command_writes_one_page(saved: Path, tmp_path: Path, cli: Cli) -> None:
    done = cli("compare", saved / "large", saved / "small", "--metric", "jain,queue_mean_pkts")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Page: results/compare-large-small/compare.html" in done.stdout
    folder = tmp_path / "results" / "compare-large-small"
    page = (folder / "compare.html").read_text()
    assert pages.check(page) == ["A compared with B"]
    assert "DropTail: Queue " in page and "forebay compare" in page
    told = json.loads((folder / "compare.json").read_text())
    assert told["A"]["folder"] == str(saved / "large")
    assert {line["metric"] for line in told["differences"]} == {"jain", "queue_mean_pkts"}
    as_json = cli("compare", saved / "large", saved / "small", "--json")
    assert json.loads(as_json.stdout)["differences"][0]["seeds"] == 4
    html = forebay.compare(saved / "large", saved / "small", metrics=["jain"])._repr_html_()
    assert "<th>B − A</th>" in html and "data:image/png" in html


def test_what_cannot_be_compared_is_one_line(saved: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "metrics.json").write_text("{}")
    for words, wrong in [
        (
            (saved / "large", tmp_path),
            "is not a result of forebay run, or is damaged (metrics.json)",
        ),
        ((saved / "large", tmp_path / "none"), "has no result; expected a folder that forebay run"),
        ((saved / "swept", saved / "large"), "no point in common"),
        ((saved / "large", saved / "codel"), "compare: the results have no law in common: "),
        ((saved / "large", saved / "small", "--metric", "delay"), '--metric: "delay" is not valid'),
    ]:
        done = cli("compare", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert wrong in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()
    with pytest.raises(ScenarioError, match=r'^metric: "delay" is not valid'):
        forebay.compare(saved / "large", saved / "small", metrics=["delay"])
