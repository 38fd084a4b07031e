"""Studies: made once, whatever stops them, and the same frame from whatever made it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from conftest import Cli, command
from studies import GRID, SMALL, run

import forebay
from forebay import ScenarioError
from forebay._base import quantities, statistics
from forebay.campaign import runner
from forebay.campaign.cluster import Batches
from forebay.campaign.run_study import DESIGNED, estimate
from forebay.campaign.runner import StudyProgress, Threads
from forebay.campaign.study import Study, effects
from forebay.campaign.study_page import html
from forebay.campaign.study_points import Gains, PointGains, Points
from forebay.cli.invocation import Invocation
from forebay.cli.study import end
from forebay.control import fitted_gains
from forebay.experiment import descriptions, experiment
from forebay.experiment import run_rows as rows
from forebay.experiment import store as designs
from forebay.experiment import store as stores
from forebay.experiment.store import Designs
from forebay.scenario import python_laws

#: Of 4 × 2 × 2 points, droptail is alike at the values of max_p.
CONFIGS, SEEDS = 4 * 2 * 2 + 4 * 2, 2


def sweep(text: str) -> str:
    return f"{SMALL}[sweep]\n{text}"


def labels(text: str) -> list[dict[str, object]]:
    return [point.settings for point in experiment.read(sweep(text)).plan.points]


def made(at: Path, text: str = SMALL + GRID, **options: object) -> tuple[Study, StudyProgress]:
    points, store = Points(text), stores.at(at)
    limits = runner.StudyLimits(**options)  # type: ignore[arg-type]
    done = runner.make(points, store, Threads(2), limits, seeds=points.seeds)
    return Study(points, store, points.seeds), done


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return made(tmp_path_factory.mktemp("whole") / "store")[0]


def test_ranges_are_the_lists_that_they_stand_for() -> None:
    for written, meant in [
        ('"traffic.0.flows" = "1..1000 log 4"', [1, 10, 100, 1000]),
        ('"traffic.0.flows" = "1..3 lin 9"', [1, 2, 3]),
        ('"traffic.0.rtt" = "20..80ms lin 4"', ["20ms", "40ms", "60ms", "80ms"]),
        ('"bottleneck.rate" = "500kbit/s..50Mbit/s log 3"', ["0.5Mbit/s", "5Mbit/s", "50Mbit/s"]),
        ('"law.red.w_q" = "0.001..0.1 log 3"', [0.001, 0.01, 0.1]),
    ]:
        (key,) = experiment.read(sweep(written)).plan.points[0].settings
        assert [point[key] for point in labels(written)] == meant
    crossed = labels('"traffic.0.flows" = "1..4 log 3"\n"bottleneck.rate" = ["2Mbit/s", "8Mbit/s"]')
    assert len(crossed) == 6


@pytest.mark.parametrize("method", ["sobol 16 seed 3", "latin 16 seed 3"])
def test_samples_fill_the_ranges_evenly(method: str) -> None:
    text = (
        f'points = "{method}"\n"bottleneck.rate" = "1..100Mbit/s log"\n'
        '"traffic.0.rtt" = "10..90ms"\n"traffic.0.flows" = [2, 3]'
    )
    points = labels(text)
    assert labels(text) == points
    assert labels(text.replace("seed 3", "seed 4")) != points
    assert len(points) == 32
    # Each sixteenth of an axis has one of sixteen points.
    rate = [float(str(one["bottleneck.rate"]).removesuffix("Mbit/s")) for one in points[:16]]
    assert sorted(np.floor(8 * np.log10(rate)).astype(int)) == list(range(16))
    rtt = [float(str(one["traffic.0.rtt"]).removesuffix("ms")) for one in points[:16]]
    assert sorted(np.floor((np.array(rtt) - 10) / 5).astype(int)) == list(range(16))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '"bottleneck.rate" = "9..1Mbit/s log 3"',
            'sweep.bottleneck.rate: "9..1Mbit/s log 3" is empty; expected a range whose lower end ',
        ),
        (
            '"bottleneck.rate" = "1..1Mbit/s log 3"',
            'sweep.bottleneck.rate: "1..1Mbit/s log 3" is empty; expected a range whose lower end ',
        ),
        (
            '"bottleneck.rate" = "1..9Mbit/s log"',
            'sweep.bottleneck.rate: "1..9Mbit/s log" is not valid; expected a number of steps ',
        ),
        (
            '"bottleneck.rate" = "1..9Mbit/s log 1"',
            'sweep.bottleneck.rate: "1..9Mbit/s log 1" is not valid; expected a number of steps ',
        ),
        (
            '"bottleneck.rate" = "0..9Mbit/s log 3"',
            'sweep.bottleneck.rate: "0..9Mbit/s log 3" is not valid; expected a lower end above ',
        ),
        (
            '"bottleneck.rate" = "1ms..9Mbit/s log 3"',
            'sweep.bottleneck.rate: "1ms..9Mbit/s log 3" is not valid; expected two ends whose ',
        ),
        (
            '"bottleneck.rate" = "fast"',
            'sweep.bottleneck.rate: "fast" is not valid; expected a list, or a range such as ',
        ),
        (
            '"bottleneck.speed" = "1..9Mbit/s log 3"',
            "bottleneck.speed: unknown key; expected one of rate, burst, ",
        ),
        (
            'points = "sobol 7"\n"bottleneck.rate" = "1..9Mbit/s"',
            'sweep.points: "sobol 7" is not valid; expected 1 to 1048576 points, and a power of 2 ',
        ),
        (
            'points = "dice 8"\n"bottleneck.rate" = "1..9Mbit/s"',
            'sweep.points: "dice 8" is not valid; expected a method with a number of ',
        ),
        (
            'points = "latin 7"\n"bottleneck.rate" = ["1Mbit/s"]',
            'sweep.points: "latin 7" requires a range to sample; expected a range without steps ',
        ),
    ],
)
def test_a_wrong_sweep_is_one_line(text: str, says: str) -> None:
    for read in (experiment.read, Points):
        with pytest.raises(ScenarioError, match=r"sweep|bottleneck") as error:
            read(sweep(text))
        assert says in str(error.value)
        assert "\n" not in str(error.value)


def test_wrong_options_are_one_line(tmp_path: Path) -> None:
    for words, says in [
        (["--until", "2%"], "ci95=2%"),
        (["--until", "ci95=2%,speed"], "speed"),
        (["--budget", "ten"], "a time with its unit"),
        (["--on", "moon"], "tls://host:8786"),
        (["--on", "tcp://127.0.0.1:1"], "no Dask scheduler answers at"),
        (["--law", "nope"], "nope"),
    ]:
        done = run(tmp_path, *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert says in done.stderr
        assert done.stdout == ""


def test_a_sample_may_be_set_to_another_size() -> None:
    text = sweep('points = "sobol 64"\n"bottleneck.rate" = "1..100Mbit/s log"')
    few = Points(text, overrides=["sweep.points=sobol 8"])
    assert (len(few), len(Points(text))) == (8, 64)
    # Sobol's first points are the same whatever their number, and so are their runs.
    assert [few.sweep.row(i) for i in range(8)] == [Points(text).sweep.row(i) for i in range(8)]
    with pytest.raises(ScenarioError, match="1 to 1048576 points, and a power of 2 with sobol"):
        Points(text, overrides=["sweep.points=sobol 7"])
    with pytest.raises(ScenarioError, match="requires a range to sample; expected a range "):
        Points(SMALL, overrides=["sweep.points=sobol 8"])


def test_a_key_that_is_set_is_not_varied() -> None:
    points = Points(SMALL + GRID, overrides=["traffic.0.flows=3"])
    assert (len(points), points.keys) == (4, ["bottleneck.rate", "law.red.max_p"])
    # As in a run, the keys beside it still vary.
    zipped = sweep('"traffic.0.flows, bottleneck.rate" = [[1, "2Mbit/s"], [2, "4Mbit/s"]]')
    points = Points(zipped, overrides=["traffic.0.flows=3"])
    assert [points.sweep.row(i) for i in range(len(points))] == [["2Mbit/s"], ["4Mbit/s"]]
    run = experiment.read(zipped, overrides=["traffic.0.flows=3"]).plan
    assert [list(point.settings.values()) for point in run.points] == [["2Mbit/s"], ["4Mbit/s"]]


def test_the_frame_is_that_of_single_runs(whole: Study) -> None:
    frame = whole.frame()
    # Droptail has a row at each point, though it is run once for both values of max_p.
    assert frame.height == 16 * 2 * SEEDS
    assert whole.store.scan().collect().height == CONFIGS * SEEDS
    one = forebay.run(SMALL, overrides={"traffic.0.flows": 10, "bottleneck.rate": "8Mbit/s"})
    at = (pl.col("traffic.0.flows") == 10) & (pl.col("bottleneck.rate") == 8e6)
    for law in ("red", "droptail"):
        here = frame.filter(at & (pl.col("law") == law) & (pl.col("law.red.max_p") == 0.1))
        want = one.metrics.filter(pl.col("law") == law)
        if law == "red":
            continue
        assert here["goodput_bps"].to_list() == want["goodput_bps"].to_list()


def test_a_killed_study_goes_on_and_ends_with_the_same_frame(whole: Study, tmp_path: Path) -> None:
    """Killed again and again at random, each run is there once, and the frame is the same."""
    (tmp_path / "s.toml").write_text(SMALL + GRID)
    words = command("study", "s.toml", "--no-report", "--store", "killed", "--threads", 1)
    chance = random.Random(5)
    for _ in range(4):
        process = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.6, 1.6))
        process.kill()
        process.wait()
    assert subprocess.run(words, cwd=tmp_path, check=False).returncode == 0
    frame = pl.read_parquet(tmp_path / "results/study-s/frame.parquet")
    assert frame.equals(whole.frame())
    table = stores.at(tmp_path / "killed").scan().collect()
    assert table.height == table.unique(rows.KEY).height == CONFIGS * SEEDS


def test_a_study_makes_only_missing_runs(tmp_path: Path) -> None:
    at = tmp_path / "store"
    assert made(at)[1].finished == CONFIGS * SEEDS
    _, again = made(at)
    assert (again.finished, again.stored) == (0, CONFIGS * SEEDS)
    more = (
        (SMALL + GRID).replace("[0.1, 0.2]", "[0.1, 0.2, 0.3]").replace("seeds    = 2", "seeds = 3")
    )
    _, new = made(at, more)
    assert (new.finished, new.stored) == (CONFIGS + 3 * 8, CONFIGS * SEEDS)


def test_the_budget_ends_it_and_the_same_command_goes_on(whole: Study, tmp_path: Path) -> None:
    study, done = made(tmp_path / "store", budget_s=0.0)
    assert done.spent and done.finished < CONFIGS * SEEDS
    study, done = made(tmp_path / "store")
    assert not done.spent
    assert study.frame().equals(whole.frame())


def test_seeds_are_added_where_an_interval_is_too_wide_and_only_there(tmp_path: Path) -> None:
    points, store = Points(SMALL + GRID), stores.at(tmp_path / "store")
    until = runner.Until.read("ci95=20%,goodput_bps", 12)
    grown = runner.grow(points, store, Threads(2), until=until)
    assert isinstance(grown.seeds, dict)
    counts = set(grown.seeds.values())
    assert min(counts) == 2 < max(counts) <= 12
    wide = 0
    for (config,), some in store.scan().collect().group_by("config"):
        values = some.sort("seed")["goodput_bps"]
        assert len(values) == grown.seeds[str(config)]
        mean, half = statistics.mean_and_interval(values.to_list())
        wide += half > 0.2 * mean
        assert half <= 0.2 * mean or len(values) == 12
    assert grown.wide == wide
    again = runner.grow(points, store, Threads(2), until=until)
    assert (again.finished, again.seeds) == (0, grown.seeds)


def test_a_failed_run_is_stored_with_its_reason_and_the_study_continues(tmp_path: Path) -> None:
    long = SMALL.replace('"2s"', '"40000s"') + '[sweep]\n"traffic.0.flows" = [1, 2]\n'
    done = run(tmp_path, "--limit", "0.2s", "--no-report", text=long)
    assert done.returncode == 1
    assert "took longer than 0.2 s" in done.stderr
    _, short = made(tmp_path / "results/.store", long)
    # They stay failed, until they are asked for again.
    assert (short.finished, short.failed, short.stored) == (0, 0, 8)
    failures = Study(Points(long), stores.at(tmp_path / "results/.store"), 2).failures()
    assert failures.height == 8
    _, again = made(tmp_path / "results/.store", long, limit_s=0.2, retry=True)
    assert again.failed == 8


def test_a_cluster_makes_the_same_runs(whole: Study, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    # A file of its own: workers are new processes, which begin with the file that was started.
    script = (
        "import forebay, sys\n"
        "if __name__ == '__main__':\n"
        "    study = forebay.study('s.toml', store='dask', on='dask', threads=2)\n"
        "    study.frame().write_parquet('dask.parquet')\n"
    )
    (tmp_path / "go.py").write_text(script)
    (tmp_path / "s.toml").write_text(SMALL + GRID)
    subprocess.run([sys.executable, "go.py"], cwd=tmp_path, check=True)
    assert pl.read_parquet(tmp_path / "dask.parquet").equals(whole.frame())


def test_without_dask_one_line_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from forebay.campaign.run_study import workers

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ScenarioError, match=r"pip install dask distributed cryptography"):
        workers("dask", None).__enter__()


def test_a_plan_of_a_million_points_is_a_matter_of_moments(tmp_path: Path) -> None:
    axes = ("traffic.0.flows", "bottleneck.rate", "traffic.0.rtt", "law.red.max_p")
    ends = ("1..1000 log 32", "1..99Mbit/s log 32", "20..300ms log 32", "0.01..0.5 log 32")
    lines = "\n".join(f'"{key}" = "{value}"' for key, value in zip(axes, ends, strict=True))
    done = run(tmp_path, "--dry-run", text=sweep(lines))
    assert done.returncode == 0, done.stderr
    points = 28 * 32**3  # of 32 whole numbers, four come twice
    found = Points(sweep(lines))
    assert len(found) % 32**3 == 0
    assert points // 2 < len(found) <= 32**4
    assert f"{len(found):,} points × 2 laws × 2 seeds" in done.stdout
    assert not (tmp_path / "results").exists()


def test_an_estimate_counts_stored_runs(whole: Study) -> None:
    found = estimate(whole.points, whole.store, 2)
    assert (found.runs, found.stored, found.measured) == (16 * 2 * 2, 16 * 2 * 2, True)
    assert found.elapsed_s(2) == 0


def test_shares_of_variance_are_those_of_a_known_function(
    whole: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """y = a + 2·b + 0·c over a grid: 1/5 and 4/5 of the variance where a and b vary alike."""
    a, b = "bottleneck.rate", "law.red.max_p"
    place = {
        key: {v: i for i, v in enumerate(whole.points.settings[key].unique().sort())}
        for key in (a, b)
    }

    def cells(self: Study, metric: str, *axes: str) -> pl.DataFrame:
        table = whole.points.settings.select(axes).unique(maintain_order=True)
        of = pl.col(a).replace_strict(place[a]) + 2 * pl.col(b).replace_strict(place[b])
        return table.select(pl.lit("red").alias("law"), *axes, of.cast(pl.Float64).alias("mean"))

    monkeypatch.setattr(Study, "cells", cells)
    found = {one.axis: one for one in effects(whole, "goodput_bps") if one.law == "red"}
    assert found[a].first == pytest.approx(0.2)
    assert found[b].first == pytest.approx(0.8)
    assert found["traffic.0.flows"].total == pytest.approx(0)
    assert found[b].total == pytest.approx(0.8)


def test_a_tie_is_called_one(whole: Study) -> None:
    found = whole.best("goodput_bps", "traffic.0.flows", more=True)
    assert set(found["law"]) <= {"red", "droptail"}
    for row in found.iter_rows(named=True):
        of = (
            whole.table("goodput_bps", binned=True)
            .values("goodput_bps", "traffic.0.flows")
            .filter(pl.col("traffic.0.flows") == row["traffic.0.flows"])
        )
        means = dict(of.group_by("law").agg(pl.col("goodput_bps").mean()).iter_rows())
        assert row["mean"] == pytest.approx(max(means.values()))
        assert row["ties"] == ([row["next"]] if row["p"] >= 0.05 else [])


def test_a_page_describes_the_runs_and_the_command_that_repeats_them(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "results/study-s"
    page = (out / "study.html").read_text()
    assert "forebay study s.toml" in page
    assert "64 runs at 16 points under RED and DropTail" in page
    # It answers first; what was run folds below.
    first = ['<ul class="answers">', "<table", "forebay study s.toml", "<svg"]
    assert [page.index(part) for part in first] == sorted(page.index(part) for part in first)
    # A curve over each axis, and maps over each pair.
    assert page.count("<svg") == 3 * (1 + 3 + 3 + 1)
    assert "may be chance" in page
    facts = json.loads((out / "study.json").read_text())
    assert (facts["runs"], facts["partial"], facts["failures"]) == (64, False, [])
    assert len((out / "frame.csv").read_text().splitlines()) == 65


def test_the_list_of_a_study_is_read_again(whole: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a point was read")

    monkeypatch.setattr(Points, "part", refuse)
    assert Points(SMALL + GRID).list_runs(whole.store).height == 32
    assert runner.make(Points(SMALL + GRID), whole.store, Threads(1), seeds=2).stored == CONFIGS * 2


def test_each_point_has_gains_for_its_own_link(tmp_path: Path) -> None:
    """A sweep of `forebay run` has one design for all of its points; a study one for each."""
    file = tmp_path / "auto.toml"
    laws = SMALL.replace('kind   = "red"', 'kind   = "pi"\ngains  = "auto"')
    file.write_text(f'{laws}[sweep]\n"bottleneck.rate" = "2..200Mbit/s log 3"\n')
    found = forebay.study(file, store=tmp_path / "store").frame()
    assert found.height == 3 * 2 * 2
    for point, rate in enumerate(["2Mbit/s", "20Mbit/s", "200Mbit/s"]):
        alone = forebay.run(laws.replace("10Mbit/s", rate), laws=["pi"])
        wanted = [run.metrics["queue_mean_pkts"] for run in alone.runs]
        of_point = found.filter(point=point, law="pi").sort("seed")
        assert of_point["queue_mean_pkts"].to_list() == wanted
    again = Points(file)
    assert again.gains.of_point(0) == Points(file).gains.of_point(0)
    assert len({str(again.gains.of_point(i)) for i in range(3)}) == 3


def test_batches_are_seconds_long_and_shrink_towards_the_end(whole: Study, tmp_path: Path) -> None:
    """So that no worker waits for messages, nor for the last of another's runs."""
    tasks = runner.Tasks(whole.points, stores.at(tmp_path / "store"), 100, StudyProgress())
    (task,) = tasks
    batches = Batches(iter([task]))
    sizes, runs = [], set[tuple[object, ...]]()
    while (batch := batches.next(2)) is not None:
        sizes.append(len(batch.runs))
        batches.took([0.01] * len(batch.runs))
        runs |= {(*batch.points[point], law, seed) for point, law, seed in batch.runs}
    assert batches.ended
    assert len(runs) == sum(sizes) == len(task.runs) == CONFIGS * 100
    # Two seconds of 10 ms are 200 runs; what is left at the end is spread over both workers.
    assert sizes[1] == 200
    assert max(sizes[-4:]) < 50


AUTO = SMALL.replace('kind   = "red"', 'kind   = "pi"\ngains  = "auto"\ntarget = "20p"')
LOADS = '[sweep]\n"traffic.0.flows" = [5, 20]\n'


@pytest.mark.parametrize(
    ("words", "axis", "asking"),
    [
        (["--law", "codel"], "", []),
        (["--set", "law.0.gains=paper"], "", []),
        (["--law", "pi"], "", ["pi"]),
        ([], '"law.pi.gains" = ["paper", "auto"]\n', ["pi"]),
    ],
    ids=["another law", "the paper's", "that law", "both"],
)
def test_only_laws_that_ask_are_designed(
    tmp_path: Path, words: list[str], axis: str, asking: list[str]
) -> None:
    text = AUTO + LOADS + axis
    done = run(tmp_path, *words, "--no-report", text=text)
    assert (done.returncode, done.stderr) == (0, "")
    options = {words[0].removeprefix("--"): words[1]} if words else {}
    laws = [options["law"]] if "law" in options else []
    overrides = [options["set"]] if "set" in options else []
    assert Points(text, laws=laws, overrides=overrides).gains.laws == asking


def test_a_run_and_a_study_have_the_same_gains(tmp_path: Path) -> None:
    result = forebay.run(AUTO + LOADS, seeds=1)
    study = forebay.study(AUTO + LOADS, seeds=1, store=tmp_path / "store")
    shown = ["law", "seed", "traffic.0.flows", "parameters", "queue_mean_pkts"]
    both = [
        frame.select(shown)
        .with_columns(pl.col("law").cast(pl.String), pl.col("traffic.0.flows").cast(pl.Float64))
        .sort(shown)
        for frame in (result.metrics, study.frame())
    ]
    assert both[0].equals(both[1])
    of_pi = study.frame().filter(pl.col("law") == "pi")
    assert of_pi["parameters"].n_unique() == 2
    page = html(study, "")
    for text in of_pi["parameters"]:
        assert f"a = {quantities.plain(json.loads(text)['a'])}" in page


def test_a_law_in_python_is_found_by_its_file(tmp_path: Path, prototypes: Path) -> None:
    text, law = SMALL + LOADS, f"{prototypes}:PythonPi"
    first = run(tmp_path, "--law", law, "--law", "droptail", "--no-report", text=text)
    assert (first.returncode, first.stderr) == (0, "")
    assert "8 of 8 runs: 8 new, 0 from the store" in first.stdout
    again = run(tmp_path, "--law", law, "--law", "droptail", "--no-report", text=text)
    assert "8 of 8 runs: 0 new, 8 from the store" in again.stdout
    # As `forebay run` has it, at each point and seed.
    keys = ["law", "seed", "queue_mean_pkts"]
    frame = pl.read_parquet(tmp_path / "results" / "study-s" / "frame.parquet")
    made_once = forebay.run(text, laws=[python_laws.load(law), "droptail"]).metrics
    both = [
        table.select(pl.col("law").cast(pl.String), *keys[1:]).sort(keys)
        for table in (frame, made_once)
    ]
    assert both[0].equals(both[1])
    prototypes.write_text(prototypes.read_text().replace("target = 40", "target = 20"))
    changed = run(tmp_path, "--law", law, "--law", "droptail", "--no-report", text=text)
    assert "8 of 8 runs: 4 new, 4 from the store" in changed.stdout
    of_class = forebay.study(text, laws=[python_laws.load(law)], store=tmp_path / "results/.store")
    assert of_class.frame().height == 4

    typed_in = type("TypedIn", (), {"interval": 0.01, "sample": lambda self, queue: 0.0})
    typed_in.__module__ = "nowhere"
    with pytest.raises(ScenarioError, match=r"^law: a law in Python needs a file"):
        forebay.study(text, laws=[typed_in], store=tmp_path / "other")


def test_a_study_warns_as_a_run_does(tmp_path: Path) -> None:
    """PI with the paper's gains, which are for another link."""
    text = SMALL.replace('kind   = "red"', 'kind   = "pi"\ntarget = "20p"')
    done = run(tmp_path, text=text + LOADS)
    said = done.stdout.replace("\N{NO-BREAK SPACE}", " ")
    assert "warning: PI at 5 ftp flows: the loop settles in" in said
    study = forebay.study(text + LOADS, store=tmp_path / "results" / ".store")
    of_run = [line for line, _ in descriptions.warnings(forebay.run(text + LOADS))]
    told = [line for line in of_run if "not in steady state" not in line]
    assert told and [line for line, _ in study.warnings] == told
    assert told[0] in (tmp_path / "results" / "study-s" / "study.html").read_text()


def test_names_that_are_not_there_are_refused_in_a_line(whole: Study) -> None:
    shown = forebay.study(SMALL + GRID, store=whole.store.address)
    for call in (
        lambda: whole.cells("delay_p95"),
        lambda: whole.best("delay_p95", more=False),
        lambda: whole.means(["delay_p95"]),
        lambda: shown.plot(metric="delay_p95", axes="traffic.0.flows"),
        lambda: forebay.run(SMALL).cell_at(0, 0, "delay_p95"),
    ):
        with pytest.raises(
            ScenarioError, match=r'^metric: "delay_p95" is not valid; expected .*did you'
        ):
            call()
    with pytest.raises(ScenarioError, match=r'^axis: "flows" is not valid; expected one of traf'):
        whole.cells("jain", "flows")
    with pytest.raises(ScenarioError, match='"voice_loss": no run has a value of it'):
        shown.plot(metric="voice_loss", axes="traffic.0.flows")
    with pytest.raises(ScenarioError, match='"voice_loss": no run has a value of it'):
        shown.plot("heat", metric="voice_loss", axes=["traffic.0.flows", "bottleneck.rate"])


def test_a_study_shows_itself(whole: Study, tmp_path: Path) -> None:
    shown = forebay.study(SMALL + GRID, store=whole.store.address)
    answer, *lines = str(shown).splitlines()
    assert answer.startswith("RED has the lowest delay")
    title = lines.index("A small study")
    assert lines[title + 1] == "16 points under 2 laws, 64 runs; means over all points"
    lines = lines[title:]
    assert [line.split()[0] for line in lines if "±" in line][:2] == ["red", "droptail"]
    cell = whole.means(["goodput_bps"])["goodput_bps", "red"]
    assert cell.mean == pytest.approx(whole.cells("goodput_bps")["mean"][0])
    assert f"{1e-6 * cell.mean:.1f}" in str(shown)
    page = shown._repr_html_()
    assert "<td>droptail</td>" in page and "data:image/png;base64" in page


def test_metrics_can_be_chosen_and_fewer_seeds_are_reported(tmp_path: Path) -> None:
    first = run(tmp_path, "--add-seeds", 1, "--metric", "jain,queue_mean_pkts", text=SMALL)
    assert first.returncode == 0, first.stderr
    assert "Jain" in first.stdout and "Queue" in first.stdout and "Goodput" not in first.stdout
    page = (tmp_path / "results/study-s/study.html").read_text()
    assert "<h2>Jain" in page and "<h2>Goodput" not in page
    second = run(tmp_path, text=SMALL)
    assert "results/study-s had 3 seeds of each law and now has 2" in second.stderr
    third = run(tmp_path, "--json", text=SMALL)
    assert len(third.stdout.splitlines()) == 4 and third.stdout.startswith('{"law": "red"')
    wrong = run(tmp_path, "--metric", "delay", text=SMALL)
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert '--metric: "delay" is not valid' in wrong.stderr and wrong.stderr.count("\n") == 1


def test_a_plan_designs_for_the_points_that_it_tries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laws = SMALL.replace('kind   = "red"', 'kind   = "pi"\ngains  = "auto"')
    axis = '"bottleneck.rate" = "1..1000Mbit/s log"'
    text = f'{laws}[sweep]\npoints = "sobol 256"\n{axis}\n'
    designed = []
    of_point = PointGains.of_point

    def counted(self: PointGains, index: int) -> Gains:
        designed.append(index)
        return of_point(self, index)

    monkeypatch.setattr(PointGains, "of_point", counted)
    found = estimate(Points(text), stores.at(tmp_path / "store"), 2)
    assert (found.points, found.looked, found.runs) == (256, DESIGNED, 256 * 2 * 2)
    assert len(set(designed)) <= DESIGNED + 1
    assert found.designs_s > 0
    # Nor for any where the list of the study is there.
    few = Points(text, overrides=["sweep.points=sobol 2"])
    made = runner.make(few, stores.at(tmp_path / "few"), Threads(2), seeds=few.seeds)
    assert made.finished == 2 * 2 * 2
    assert estimate(few, stores.at(tmp_path / "few"), 2).design_s == 0


def test_after_an_interruption_no_point_is_read(
    whole: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The designs of points that were not reached may take minutes."""

    def refuse(*_: object) -> None:
        raise AssertionError("the list of the study was asked for")

    monkeypatch.setattr(Points, "list_runs", refuse)
    ended = StudyProgress(
        total=9, finished=3, failed=1, interrupted=True, faults={"too long": 1}, seeds=1
    )
    with pytest.raises(typer.Exit):
        call = Invocation(tmp_path, as_json=False)
        end(whole.points, whole.store, ended, call, metrics=[], report=False)
    said = capsys.readouterr().err
    assert "interrupted: 3 of 9 runs" in said and "1 failed: too long" in said


def test_senders_that_are_compared_meet_one_law(tmp_path: Path) -> None:
    """A queue does not know who sends; where one sender is given, its design is for that one."""
    laws = SMALL.replace('kind   = "red"', 'kind   = "pi"\ngains  = "auto"')
    both = Points(f'{laws}[sweep]\n"traffic.0.tcp" = ["linux-reno", "linux-cubic"]\n')
    assert [both.sweep.row(i) for i in range(2)] == [["linux-reno"], ["linux-cubic"]]
    assert both.gains.of_point(0) == both.gains.of_point(1)
    alone = Points(laws, overrides=["traffic.0.tcp=linux-cubic"])
    assert alone.gains.of_point(0) != both.gains.of_point(1)


def designed(counts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the designs of laws that are made."""
    real = fitted_gains.fit

    def counted(law: str, *rest: object) -> fitted_gains.Fitted:
        counts.append(law)
        return real(law, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fitted_gains, "fit", counted)


def test_no_design_is_made_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that is stopped keeps what it has designed; a law or a point more is designed alone,
    and another link anew."""
    laws = SMALL.replace('kind   = "red"', 'kind   = "pi"\ngains  = "auto"')
    text = f'{laws}[sweep]\n"bottleneck.rate" = "2..200Mbit/s log 12"\n'
    store, counts = stores.at(tmp_path / "store"), list[str]()
    designed(counts, monkeypatch)

    def study(text: str, budget_s: float | None = None) -> tuple[Points, StudyProgress]:
        points = Points(text, designs=Designs(store))
        limits = runner.StudyLimits(budget_s=budget_s)
        return points, runner.make(points, store, Threads(2), limits, seeds=1)

    # The first part of its points is designed, and nothing is run.
    points, stopped = study(text, budget_s=1e-9)
    assert (stopped.finished, stopped.spent) == (0, True)
    first = list(counts)
    partial = Study(points, store, 1, partial=True)
    assert partial.frame().is_empty()
    assert counts == first
    points, whole = study(text)
    assert whole.finished == 24
    assert counts == ["pi"] * 12
    # Where the code is the same, so are the numbers.
    fresh = Points(text)
    assert [points.gains.of_point(i) for i in range(12)] == [
        fresh.gains.of_point(i) for i in range(12)
    ]
    counts.clear()
    study(text.replace("A small study", "Another title").replace("seeds    = 2", "seeds    = 9"))
    study(text.replace("log 12", "log 2"))
    assert counts == []
    study(text.replace('"droptail"', '"pie"\ngains  = "auto"').replace("log 12", "log 2"))
    assert "pie" in counts
    counts.clear()
    study(text.replace('buffer = "100p"', 'buffer = "90p"').replace("log 12", "log 2"))
    assert counts == ["pi"] * 2
    monkeypatch.setattr(designs, "designs_version", lambda: "of other code")
    study(text.replace("log 12", "log 2"))
    assert counts == ["pi"] * 4


def test_a_stored_design_depends_only_on_link_and_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link and the load, and not the text, the sampling or the recording of the link."""
    laws = SMALL.replace('kind   = "red"', 'kind   = "pi"\ngains  = "auto"')
    file, trace = tmp_path / "auto.toml", tmp_path / "link.trace"
    text = laws.replace("{ rate =", '{ rate_trace = "link.trace", rate =')
    store, counts = stores.at(tmp_path / "store"), list[str]()
    designed(counts, monkeypatch)

    def gains(text: str, packets: int) -> object:
        file.write_text(text)
        trace.write_text("".join(f"{i}\n" * packets for i in range(1, 101)))
        kept = Designs(store)
        found = Points(file, designs=kept).gains.of_point(0)
        kept.flush()
        # A design that was kept is the one that would be made.
        assert found == Points(file).gains.of_point(0)
        counts.pop()
        return found

    first = gains(text, 1)
    assert gains(text, 10) == gains(f'sample = "20ms"\n{text}', 10) == first
    assert len(counts) == 1
    assert gains(text.replace("flows = 5", "flows = 6"), 1) != first
    assert gains(text.replace('gains  = "auto"', 'gains  = "auto"\ntarget = "30p"'), 1) != first
    assert len(counts) == 3


def test_the_code_that_designs_is_in_the_version() -> None:
    names = {path.name for path in designs.design_sources()}
    assert {"fitted_gains.py", "designed_law.py", "automatic_gains.py"} <= names
    assert any(name.startswith("_native") for name in names)


def test_json_has_the_lines_of_a_run(cli: Cli, tmp_path: Path) -> None:
    """A line for each run, and the numbers of `forebay run` for the same question."""
    text = SMALL.replace('kind   = "red"', 'kind   = "pi"\ntarget = "20p"\nqueue = "priority"')
    other = '[[link]]\nname = "far"\nfrom = "right"\nto = "far"\nrate = "9Mbit/s"\nbuffer = "50p"\n'
    path = 'path = ["left", "right", "far"]\n'
    text = text.replace("rtt    =", f"{path}rtt    =").replace("[[law]]", f"{other}[[law]]", 1)
    file = tmp_path / "lines.toml"
    file.write_text(f'{text}[sweep]\n"traffic.0.flows" = "2..8 log 3"\n')
    overrides = ["--set", "bottleneck.rate=3Mbit/s", "--seeds", "2"]
    store = ["--store", str(tmp_path / "store")]

    def lines(command: str, *more: str) -> list[dict[str, object]]:
        done = cli(command, str(file), *overrides, "--json", *more)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) | {"costs": None} for line in done.stdout.splitlines()]

    found = lines("study", *store)
    assert found == lines("run", "--no-store")
    assert len(found) == 3 * 2 * 2
    assert {"metrics", "classes", "links", "link_classes"} <= set(found[0])
    assert not (tmp_path / "results").exists()


def test_stored_runs_count_as_done_and_take_no_time() -> None:
    """One more seed tomorrow: the share is of all runs, what is left is told by those made now."""
    done = StudyProgress(stored=18, finished=9, elapsed_s=30.0)
    now = done.progress(36)
    assert (now.ended_runs, now.runs, now.fraction) == (27, 36, 0.75)
    assert now.left_s == pytest.approx(30.0)
    assert StudyProgress(stored=36).progress(36).left_s is None
