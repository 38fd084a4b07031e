"""Replaying the papers: claims, verdicts, what is kept between calls, and the papers' files."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import tomllib
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pages
import pytest
from conftest import SCENARIO, command

import forebay
from forebay._base import statistics
from forebay._native import ScenarioError, laws
from forebay.campaign import claims
from forebay.campaign import replay as replays
from forebay.experiment import execution, experiment
from forebay.experiment import run_rows as rows
from forebay.experiment import store as stores
from forebay.experiment.result import Result

EXPERIMENTS = Path(__file__).parents[3] / "experiments"
SCENARIOS = sorted(
    path
    for path in EXPERIMENTS.glob("*/*.toml")
    if not path.name.endswith((claims.SUFFIX, "suite.toml"))
)

CLAIMS = """\
[points]
few = { "traffic.0.flows" = 5 }
many = { "traffic.0.flows" = 20 }

[[variant]]
name = "slow"
says = "a fifth of the rate"
sets = { "bottleneck.rate" = "2Mbit/s" }
laws = ["pi", "droptail"]

[[claim]]
id = "swings"
where = "Figure 1"
says = "DropTail's queue swings more than PI's"
value = "std('droptail') / std('pi')"
point = "few"
published = "> 1"
variants = ["slow"]
note = "At a fifth of the rate {slow}."

[[claim]]
id = "number"
where = "Table 1"
says = "a number that is far off"
value = "mean('droptail', point='many')"
published = 1000
tolerance = 0.1
direction = "std('pi') < std('droptail')"
point = "few"

[[figure]]
where = "Figure 1"
title = "queue"
kind = "queue"
points = ["few", "many"]
window = ["1s", "3s"]

[[figure]]
where = "Figure 2"
title = "loss"
kind = "measure"
measure = "drop_rate"
points = ["few", "many"]

[[figure]]
where = "Figure 3"
title = "what PI sends"
kind = "series"
columns = ["p", "sent"]
laws = ["pi"]
variant = "slow"
"""


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    folder = tmp_path / "experiments" / "mine"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# A paper of mine\n\nNothing else.\n")
    (folder / "two.toml").write_text(SCENARIO)
    (folder / "two.claims.toml").write_text(CLAIMS)
    return tmp_path / "experiments"


def replay(tmp_path: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("replay", *arguments),
        cwd=tmp_path,
        env={
            **os.environ,
            "FOREBAY_STORE": str(tmp_path / "store"),
            "MPLCONFIGDIR": mpl.get_cachedir(),  # or it would look for fonts anew
        },
        capture_output=True,
        text=True,
        check=False,
    )


def kept(tmp_path: Path) -> dict[str, int]:
    return {
        path.name: path.stat().st_mtime_ns
        for path in (tmp_path / "store" / "samples").glob("**/*.parquet")
    }


def test_a_claim_per_line_and_a_page(tmp_path: Path, papers: Path) -> None:
    done = replay(tmp_path, "mine", "--json", "--seeds", 8, "--out", "pages")
    assert done.returncode == 0, done.stderr
    swings, number = map(json.loads, done.stdout.splitlines())
    assert list(swings) == [
        "paper",
        "experiment",
        "claim",
        "published",
        "ours",
        "ci95",
        "ns2",
        "verdict",
        "why",
    ]
    assert (swings["paper"], swings["experiment"]) == ("mine", "two")
    assert (swings["published"], swings["verdict"]) == ("> 1", "reproduced")
    assert swings["ours"] > 1 and swings["ci95"] > 0
    assert re.fullmatch(r"At a fifth of the rate [\d.]+ ± [\d.]+\.", swings["why"])
    assert (number["published"], number["verdict"]) == (1000, "reproduced in direction")
    page = (tmp_path / "pages" / "mine.html").read_text()
    assert len(set(pages.check(page))) == 4
    assert "A paper of mine" in page and "{slow}" not in page
    # The line that makes the page again has what was asked for.
    assert "forebay replay mine --seeds 8" in page


def test_from_python_it_gives_the_same_verdicts(tmp_path: Path, papers: Path) -> None:
    lines = replay(tmp_path, "mine", "--json", "--seeds", 2).stdout.splitlines()
    wanted = replays.plan("mine", seeds=2, experiments=papers)
    (found,) = wanted.run(stores.at(tmp_path / "store"))
    assert [verdict.line() for verdict in found.verdicts] == lines
    with pytest.raises(forebay.ScenarioError, match=r'PAPER: "yours" is not valid; expected .*all'):
        forebay.replay("yours")


@pytest.mark.parametrize("columns", [80, 40])
def test_the_table_of_claims_fits_the_terminal(
    tmp_path: Path, papers: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = replay(tmp_path, "mine", "--seeds", 1)
    assert done.returncode == 0, done.stderr
    table, _, where = done.stdout.partition("Page: ")
    assert where == "results/replay/mine.html\n"
    assert max(map(len, table.splitlines())) <= columns
    # One seed gives no interval, and so proves no bound.
    assert "in direction" in table and "one seed" in " ".join(table.split())


def test_a_second_call_makes_nothing_anew(tmp_path: Path, papers: Path) -> None:
    first = replay(tmp_path, "mine", "--json", "--seeds", 1)
    stored = kept(tmp_path)
    assert len(stored) == 2 * 2 * 2  # readings, points, laws
    again = replay(tmp_path, "mine", "--json", "--seeds", 1)
    assert (again.stdout, kept(tmp_path)) == (first.stdout, stored)
    # Prose changes no run, and another seed only adds.
    scenario = papers / "mine" / "two.toml"
    scenario.write_text("# a comment\n" + SCENARIO.replace("Two laws", "Two of the laws"))
    replay(tmp_path, "mine", "--json", "--seeds", 2)
    assert stored.items() <= kept(tmp_path).items()
    assert len(kept(tmp_path)) == 2 * len(stored)
    scenario.write_text(SCENARIO.replace('rate   = "10Mbit/s"', 'rate   = "11Mbit/s"'))
    replay(tmp_path, "mine", "--json", "--seeds", 1)
    # The variant sets the rate: only the other reading is new.
    assert len(kept(tmp_path)) == 2 * len(stored) + len(stored) // 2


def test_stored_runs_are_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    read = experiment.read(path)
    store = stores.at(tmp_path / "store")
    assert execution.execute(read, 2, store=store).from_store == 0
    stored = Result(read, execution.execute(read, 2, store=store))
    assert stored.from_store == len(stored.runs)
    made = forebay.run(path)
    columns = made.metrics.columns
    assert stored.metrics.select(columns).equals(made.metrics.select(columns))
    assert stored.samples.equals(made.samples)
    assert stored.delays.equals(made.delays)
    assert stored.flows.equals(made.flows)


def test_another_recording_makes_other_runs(tmp_path: Path) -> None:
    path, recording = tmp_path / "two.toml", tmp_path / "link.down"
    path.write_text(
        SCENARIO.replace('rate   = "10Mbit/s"', 'rate = "10Mbit/s"\nrate_trace = "link.down"')
    )

    def places() -> list[str]:
        plan = experiment.read(path).plan
        points = range(len(plan.points))
        return [config for point in points for config in rows.configs(plan, point) if config]

    recording.write_text("1\n2\n3\n")
    first = places()
    assert places() == first
    recording.write_text("1\n2\n4\n")
    assert not set(places()) & set(first)


def test_measures_are_the_metrics(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    result = forebay.run(path, seeds=2)
    measured = replays.Measured(result, {"many": {"traffic.0.flows": 20}})
    for name, metric in {
        "mean": "queue_mean_pkts",
        "std": "queue_std_pkts",
        "qacd": "qacd_pkts",
        "drop_rate": "drop_rate",
        "utilisation": "utilisation",
    }.items():
        want = [run.metrics[metric] for run in result.runs_of(1, 0)]
        np.testing.assert_allclose(measured.values(name, "pi", "many", None), want, rtol=1e-9)
    ours = measured.evaluate("-(2 * mean('pi') - 1) / mean('pi', window=(2, 3))", "many", None)
    means = measured.values("mean", "pi", "many", None)
    parts = measured.values("mean", "pi", "many", (2.0, 3.0))
    np.testing.assert_allclose(ours, -(2 * means - 1) / parts)
    for wrong in ("mean('nobody')", "nothing('pi')", "__import__('os')", "mean('pi').real"):
        with pytest.raises((ScenarioError, ValueError)):
            measured.evaluate(wrong, "", None)


def claim(published: float | str, **more: object) -> claims.Claim:
    values = {"id": "x", "where": "", "says": "", "value": "0", "tolerance": 0.1, **more}
    return claims.Claim(published=published, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("published", "unit", "text"),
    [(419.0, "packets", "419 packets"), ("< 1", "", "< 1"), ("> 0", "s", "> 0 s")],
)
def test_a_published_value_has_its_unit(published: float | str, unit: str, text: str) -> None:
    one = claim(published, unit=unit)
    verdict = replays.Verdict("mine", "two", one, 1.0, 0.1, replays.REPRODUCED, "")
    assert verdict.published() == text


@pytest.mark.parametrize(
    ("published", "ours", "ci95", "verdict"),
    [
        (100.0, 109.0, 30.0, replays.REPRODUCED),
        (100.0, 111.0, 30.0, replays.NOT_REPRODUCED),
        ("< 1", 0.8, 0.1, replays.REPRODUCED),
        ("< 1", 0.8, float("nan"), replays.REPRODUCED),
        ("< 1", 0.8, 0.3, replays.IN_DIRECTION),
        ("< 1", 1.1, 0.3, replays.NOT_REPRODUCED),
        ("> 1", 1.1, 0.05, replays.REPRODUCED),
        ("> 1", float("nan"), 0.0, replays.NOT_REPRODUCED),
    ],
)
def test_verdicts(published: float | str, ours: float, ci95: float, verdict: str) -> None:
    nothing: replays.Measured = None  # type: ignore[assignment]
    found = replays._verdict(claim(published), ours, ci95, nothing, one_seed=False)
    assert found == verdict


def test_one_seed_reproduces_no_bound() -> None:
    nothing: replays.Measured = None  # type: ignore[assignment]
    one = claim("< 1")
    assert replays._verdict(one, 0.8, math.nan, nothing, one_seed=True) == replays.IN_DIRECTION
    assert "one seed has no interval" in replays._why(one, replays.IN_DIRECTION, one_seed=True)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ('id = "number"', 'id = "swings"', "claim swings: another claim has the same id"),
        ('"> 1"', '"about 1"', 'published: "about 1" is neither a number nor a bound'),
        ("tolerance = 0.1", "", "claim number: a number needs a tolerance"),
        ('point = "few"', 'point = "none"', 'point: "none" is not in [points]; it has few, many'),
        (
            'variants = ["slow"]',
            'variants = ["fast"]',
            'variants: "fast" is not in [[variant]]',
        ),
        ("published = 1000", "publisht = 1000", "publisht: unknown key; known keys: id, where, "),
        ("published = 1000", "published = true", "published: true is not a number or a text"),
        ('window = ["1s", "3s"]', 'window = "1s"', 'window: "1s" is not two times'),
        ("[points]", "[points", "two.claims.toml"),
        (
            "mean('droptail', point",
            "queue('droptail', point",
            'measure: "queue" is not valid; expected one of ',
        ),
    ],
)
def test_wrong_claims(tmp_path: Path, papers: Path, old: str, new: str, line: str) -> None:
    path = papers / "mine" / "two.claims.toml"
    path.write_text(CLAIMS.replace(old, new, 1))
    done = replay(tmp_path, "mine", "--json", "--seeds", 1)
    assert done.returncode == 2
    assert line in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_an_unknown_paper(tmp_path: Path, papers: Path) -> None:
    done = replay(tmp_path, "yours")
    # Those of this folder, and those that come with Forebay.
    assert done.returncode == 2
    assert re.search(
        r'PAPER: "yours" is not valid; expected .*mine, pd-red, .*, all\n', done.stderr
    )


def test_every_claim_of_the_papers_can_be_read(tmp_path: Path) -> None:
    found = claims.papers(EXPERIMENTS)
    assert [paper.name for paper in found] == ["bigdeli", "e-avq", "pd-red", "pi-pd", "staqm"]
    for paper in found:
        for planned in replays.plan_readings(paper, seeds=1):
            for name, reading in planned.readings.items():
                nothing = execution.Execution([], [], False, 0.0)
                result = Result(reading, nothing)
                measured = replays.Measured(result, planned.of.points)
                for one in planned.of.claims:
                    if name == "" or name in one.variants:
                        # Without runs it is of no value, but every name in it must be right.
                        measured.evaluate(one.value, one.point, one.window)
                    if name == "" and one.direction:
                        measured.difference(one.direction, one.point, one.window)


#: Of laws whose defaults are for longer buffers than some experiments have.
SHORT = {"target": "40p", "max_th": "60p"}


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_law_runs_in_every_experiment(tmp_path: Path, path: Path) -> None:
    document = tomllib.loads(path.read_text())
    own = {law["kind"] for law in document["law"]}
    others = [law for law in laws() if law["name"] not in own]
    # What happens later than the shortened run must come sooner, and no law is swept.
    text = re.sub(r'^(time = )"\w+"', r'\1"100ms"', path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"^start .*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r'^\[sweep\]\n"law.*\n', "", text, flags=re.MULTILINE)
    # A study has more points than can be tried here.
    text = re.sub(r'^(points *= "sobol) \d+', r"\1 2", text, flags=re.MULTILINE)
    for law in others:
        names = [param["name"] for param in law["params"]]
        keys = "".join(f'{key} = "{value}"\n' for key, value in SHORT.items() if key in names)
        text += f'\n[[law]]\nkind = "{law["name"]}"\n{keys}'
    short = tmp_path / path.name
    short.write_text(text)
    # Captures and recorded links that it names.
    for file in path.parent.iterdir():
        if file.suffix != ".toml":
            (tmp_path / file.name).symlink_to(file.absolute())
    overrides = {"duration": "300ms", "measure": ["100ms", "300ms"], "sample": "10ms"}
    result = forebay.run(short, overrides=overrides, seeds=1)
    assert not result.partial
    assert {law["name"] for law in laws()} <= set(result.plan.laws) | own
    assert (result.metrics["forwarded_packets"] > 0).all()


def test_analysis_of_variance_of_identical_laws(tmp_path: Path) -> None:
    """Runs that differ by their seeds alone must look different in one test of twenty."""
    path = tmp_path / "one.toml"
    path.write_text(SCENARIO[: SCENARIO.index("[sweep]")])
    overrides = {"duration": "2s", "measure": ["1s", "2s"]}
    tests, groups, size = 120, 3, 5
    result = forebay.run(path, laws=["pi"], overrides=overrides, seeds=tests * groups * size)
    qacd = result.metrics["qacd_pkts"].to_numpy().reshape(tests, groups, size)
    p = [replays.one_way(list(one))[1] for one in qacd]
    # Binomial(120, 0.05): outside this with a probability of 1 in 1000.
    assert 1 <= sum(value < 1 - statistics.LEVEL for value in p) <= 15
