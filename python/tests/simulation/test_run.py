"""`forebay.run`, and the tables of its result."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from conftest import Cli
from polars.testing import assert_frame_equal
from scipy import stats

import forebay
from forebay import ScenarioError
from forebay._base import progress
from forebay.experiment import execution, experiment
from forebay.experiment.result import Result


def test_tables(scenario: Path) -> None:
    result = forebay.run(scenario)
    assert not result.partial
    metrics = result.metrics
    assert metrics.columns[:5] == ["law", "point", "traffic.0.flows", "seed", "link"]
    assert set(metrics["link"]) == {"bottleneck"}
    assert metrics["traffic.0.flows"].to_list() == [5] * 4 + [20] * 4
    # In the order of the file, not of the alphabet.
    assert metrics["law"].to_list() == ["pi", "pi", "droptail", "droptail"] * 2
    assert metrics.sort("law")["law"][0] == "pi"

    samples = result.samples
    assert samples.filter(pl.col("law") == "droptail")["p"].null_count() == 400 * 4
    assert samples.filter(pl.col("law") == "pi")["p"].null_count() == 0
    first = samples.filter(law="pi", point="traffic.0.flows = 5", seed=1)
    assert first["time_s"].to_list() == pytest.approx([0.01 * (i + 1) for i in range(400)])
    measured = first.filter(pl.col("time_s") > 2)
    drops = measured.select(
        pl.sum("early_drops", "forced_drops", "overflow_drops")
    ).sum_horizontal()
    row = metrics.row(0, named=True)
    assert row["queue_mean_pkts"] == pytest.approx(measured["queue_pkts"].mean())
    assert row["drop_rate"] == pytest.approx(drops[0] / measured["arrivals"].sum())

    flows = result.flows.filter(law="pi", point="traffic.0.flows = 20", seed=2)
    same = metrics.filter(law="pi", point="traffic.0.flows = 20", seed=2)
    assert len(flows) == 20
    assert flows["goodput_bps"].sum() == pytest.approx(same["goodput_bps"][0])
    delays = result.delays.filter(law="pi", point="traffic.0.flows = 5", seed=1)
    mean = np.average(delays["delay_s"], weights=delays["packets"])
    assert mean == pytest.approx(row["delay_mean_s"], rel=2e-3)


def test_summary_is_students_interval(scenario: Path) -> None:
    result = forebay.run(scenario, laws=["pi"], overrides={"traffic.0.flows": 5}, seeds=4)
    drops = result.metrics["drop_rate"].to_numpy()
    row = result.summary().filter(metric="drop_rate").row(0, named=True)
    assert all(text in str(result) for text in ["pi", "±", "over 4 seeds"])
    low, high = stats.t.interval(0.95, 3, drops.mean(), stats.sem(drops))
    assert row["mean"] == pytest.approx(drops.mean())
    assert row["ci95"] == pytest.approx((high - low) / 2)
    assert (row["law"], row["point"], row["seeds"]) == ("pi", "", 4)


def test_the_same_on_any_number_of_threads_and_again(scenario: Path) -> None:
    def tables(threads: int) -> list[pl.DataFrame]:
        result = forebay.run(scenario, threads=threads)
        return [result.metrics, result.samples, result.delays, result.flows]

    first = tables(1)
    for other in (tables(2), tables(2)):
        for a, b in zip(first, other, strict=True):
            assert_frame_equal(a, b, check_exact=True)
    seeds = first[1].partition_by("seed", include_key=False)
    assert not seeds[0].equals(seeds[1])


def test_overrides_may_be_a_mapping_or_texts(scenario: Path) -> None:
    by_map = forebay.run(
        scenario, overrides={"traffic.0.flows": 3, "law.pi.target": "30p"}, seeds=1
    )
    by_text = forebay.run(scenario, overrides=["traffic.0.flows=3", "law.pi.target=30p"], seeds=1)
    assert by_map.plan.points[0].traffic[0].flows == 3
    assert dict(by_map.plan.points[0].laws[0].params)["target"] == "30p"
    assert_frame_equal(by_map.samples, by_text.samples, check_exact=True)


def test_a_sweep_may_mix_lists_and_texts(scenario: Path) -> None:
    text = scenario.read_text().split("[sweep]")[0]
    scenario.write_text(f'{text}[sweep]\n"traffic.0.rtt" = ["40ms", ["40ms", "80ms"]]\n')
    result = forebay.run(scenario, laws=["pi"], seeds=1)
    assert result.metrics["traffic.0.rtt"].to_list() == ["40ms", '["40ms", "80ms"]']


def test_a_wrong_scenario_raises(scenario: Path) -> None:
    with pytest.raises(forebay.ScenarioError, match=r'bottleneck\.rate: .*"-5bit/s"'):
        forebay.run(scenario, overrides={"bottleneck.rate": -5})
    assert issubclass(forebay.ScenarioError, ValueError)


def test_an_error_carries_its_facts(scenario: Path, tmp_path: Path) -> None:
    names = {name for name in forebay.__all__ if name.endswith("Error")}
    assert names >= {"ForebayError", "ParameterError", "RunError", "LinkError", "StoreError"}
    for name in names:
        assert issubclass(getattr(forebay, name), forebay.ForebayError)
    with pytest.raises(forebay.ForebayError) as caught:
        forebay.run(scenario, overrides={"bottleneck.rate": "5"})
    wrong = caught.value
    assert isinstance(wrong, ScenarioError)
    assert (wrong.file, wrong.key) == (str(scenario), "bottleneck.rate")
    assert "Mbit/s" in wrong.expected
    with pytest.raises(forebay.ParameterError) as refused:
        forebay.run(scenario, seeds=-1)
    assert (refused.value.name, refused.value.value) == ("seeds", -1)
    assert str(refused.value).startswith("seeds: -1 is not valid")
    with pytest.raises(forebay.ParameterError, match=r'^engine: "fluids" is not valid'):
        forebay.run(scenario, engine="fluids")


def test_importing_the_package_changes_no_signal_handler() -> None:
    look = (
        "import signal\n"
        "before = [signal.getsignal(number) for number in (2, 15)]\n"
        "import sys, forebay\n"
        "assert 'forebay._native' not in sys.modules\n"
        "forebay.laws(), forebay.run, forebay.design\n"
        "assert before == [signal.getsignal(number) for number in (2, 15)]\n"
    )
    subprocess.run([sys.executable, "-c", look], check=True)


def test_a_notebook_shows_the_summary(scenario: Path) -> None:
    result = forebay.run(scenario, overrides={"title": "<b>bold</b> & co"})
    shown = result._repr_html_()
    assert "&lt;b&gt;bold&lt;/b&gt; &amp; co" in shown
    assert shown.count("<table>") == 2
    assert "±" in shown
    assert result.plot()._repr_png_().startswith(b"\x89PNG")


def test_a_metric_that_does_not_apply_is_nan(scenario: Path) -> None:
    result = forebay.run(scenario, laws=["droptail"], seeds=1)
    assert all(math.isnan(value) for value in result.metrics["qacd_pkts"])
    assert "qacd_pkts" not in result.compared()


class Interrupting(Result):
    """Is interrupted while its tables are written."""

    @property
    def flows(self) -> pl.DataFrame:
        raise KeyboardInterrupt


def test_an_interrupted_report_leaves_nothing(scenario: Path) -> None:
    read = experiment.read(scenario, laws=["pi"], seeds=1)
    result = Interrupting(read, execution.execute(read))
    with pytest.raises(KeyboardInterrupt):
        result.report(scenario.parent / "a" / "b" / "c")
    assert [path.name for path in scenario.parent.iterdir()] == ["two.toml"]


def test_loading_a_module_hides_no_public_function() -> None:
    """Folders are called `run` and `link` too; loading one must not hide the function."""
    look = (
        "import importlib, pkgutil, forebay\n"
        "for module in pkgutil.walk_packages(forebay.__path__, 'forebay.'):\n"
        "    if not module.name.endswith(('__main__', '.child', '.enter')):\n"
        "        importlib.import_module(module.name)\n"
        "print(forebay.run.__module__, forebay.link.__module__)\n"
        "print(sorted(set(forebay.__all__) - set(dir(forebay))))\n"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "forebay.experiment.result forebay.linux.link_process\n[]\n"


def test_a_scenario_may_be_a_text_or_tables(scenario: Path) -> None:
    text = scenario.read_text()
    by_file = forebay.run(scenario, seeds=1)
    by_text = forebay.run(text, seeds=1)
    by_tables = forebay.run(tomllib.loads(text), seeds=1)
    for other in (by_text, by_tables):
        assert_frame_equal(by_file.samples, other.samples, check_exact=True)
    with pytest.raises(
        forebay.ScenarioError, match=r'^scenario:\d+: bottleneck.rate: .*"-1Mbit/s"'
    ):
        forebay.run(text.replace("10Mbit/s", "-1Mbit/s"))
    with pytest.raises(forebay.ScenarioError, match=r"^scenario: TOML cannot hold"):
        forebay.run({"duration": object()})


def test_tab_completion_finds_every_name() -> None:
    look = "import forebay; print(sorted({'run', 'link', 'Result'} - set(dir(forebay))))"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_notebook_shows_a_line_and_needs_no_widgets(
    scenario: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setattr(progress, "NOTEBOOK_EVERY_S", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Long enough that it is not over at the first look.
        forebay.run(scenario, overrides={"duration": "400s"})
    errors = capsys.readouterr().err
    assert re.search(r"\r\d of 8 runs, \d+ %", errors)
    # The line is wiped at the end.
    assert errors.endswith("\r") and errors.split("\r")[-2].strip() == ""
    assert "\n" not in errors
    assert "ipywidgets" not in sys.modules


def test_one_name_is_as_good_as_a_list_of_one(tmp_path: Path) -> None:
    """A text, a path and a class are one thing, wherever several may be given."""
    file = tmp_path / "a.toml"
    file.write_text(
        'duration = "2s"\nseeds = 2\nbottleneck = { rate = "5Mbit/s", buffer = "400p" }\n'
        '[[traffic]]\nkind = "ftp"\nflows = 2\nrtt = "30ms"\npacket = "1500B"\n'
        '[[law]]\nkind = "droptail"\n'
    )
    assert forebay.run(file, laws="pi", overrides="bottleneck.buffer=400p").plan.laws == ["pi"]
    both = ["packets", "fluid"]
    for scenarios in (str(file), file, [file]):
        made = forebay.validate(
            scenarios, laws="pi", overrides="bottleneck.buffer=400p", engines=both
        )
        assert [row.law for row in made.comparisons[0].rows] == ["pi"]
    with pytest.raises(ScenarioError, match="two or more that differ"):
        forebay.validate(file, engines="packets")
    store = tmp_path / "store"
    grown = forebay.study(file, laws="pi", overrides={"duration": "3s"}, seeds=2, store=store)
    assert grown.points.laws == ["pi"]
    assert {name for name, _ in grown.means("jain")} == {"jain"}
    short = {"duration": "4s", "measure": ["2s", "4s"]}
    small = forebay.suite("rfc7928", laws="droptail", only="5-1-friendly", seeds=1, overrides=short)
    assert small.laws == ["droptail"]
    for name in ("a", "b"):
        forebay.run(file, laws="pi").report(tmp_path / name)
    found = forebay.compare(tmp_path / "a", tmp_path / "b", metrics="jain")
    assert {line.metric for line in found.differences} == {"jain"}
    with pytest.raises(ScenarioError, match=r'laws: "droptail"'):
        forebay.tune(forebay.LinkRange("5Mbit/s", "30ms", flows="5"), laws="droptail")


@pytest.mark.parametrize("seeds", [[1, 2], "5", 2.5, True])
def test_an_invalid_number_of_seeds_is_refused_in_one_line(scenario: Path, seeds: Any) -> None:
    for call in (
        lambda: forebay.run(scenario, seeds=seeds),
        lambda: forebay.study(scenario, seeds=seeds),
        lambda: forebay.suite("rfc7928", seeds=seeds),
        lambda: forebay.validate(scenario, seeds=seeds, engines=["packets", "fluid"]),
        lambda: forebay.tune(forebay.LinkRange("5Mbit/s", "30ms", flows="5"), seeds=seeds),
    ):
        with pytest.raises(ScenarioError, match=r"^seeds: .*; expected a whole number"):
            call()


#: A download, calls and pages behind one queue.
OFFICE = """
duration = "8s"
measure  = ["3s", "8s"]
seeds    = 2
bottleneck = { rate = "10Mbit/s", buffer = "100ms" }
[[traffic]]
label  = "downloads"
kind   = "ftp"
flows  = 5
rtt    = ["20ms", "60ms"]
pairs  = 3
packet = "1500B"
[[traffic]]
label = "calls"
kind  = "voice"
flows = 2
rtt   = "30ms"
[[traffic]]
label    = "pages"
kind     = "web"
flows    = 2
requests = 3
rtt      = "30ms"
[[law]]
kind = "droptail"
[[law]]
kind = "fq-codel"
"""


@pytest.fixture(scope="module")
def office() -> Result:
    return forebay.run(OFFICE)


def test_flows_have_their_number_and_their_round_trip(office: Result) -> None:
    flows = office.flows.filter(law="droptail", seed=1)
    assert flows.columns == [
        "law",
        "point",
        "seed",
        "link",
        "traffic",
        "flow",
        "rtt_s",
        "goodput_bps",
    ]
    # Three pairs take the list in turn, and five flows the pairs.
    downloads = flows.filter(traffic=0)
    assert downloads["flow"].to_list() == [0, 1, 2, 3, 4]
    assert downloads["rtt_s"].to_list() == [0.02, 0.06, 0.02, 0.02, 0.06]
    assert flows.filter(traffic=1)["flow"].to_list() == [0, 1]
    assert set(flows.filter(traffic=1)["rtt_s"]) == {0.03}


def test_tables_show_the_metrics_of_applications(office: Result) -> None:
    shown = office.compared()
    assert shown[2:5] == ["voice_delay_s", "voice_loss", "flow_completion_p50_s"]
    assert "video_stalled" not in shown
    text = str(office)
    assert "Voice delay" in text and "Voice loss" in text
    # A traffic has the delay that 95 % of its packets do not exceed.
    rows = office.traffic.filter(pl.col("link") == "bottleneck")
    assert (rows["delay_p95_s"] >= rows["delay_mean_s"]).all()
    calls, downloads = (
        rows.filter(law="fq-codel", label=label)["delay_p95_s"].to_numpy().mean()
        for label in ("calls", "downloads")
    )
    assert calls < downloads / 2
    # The tail of all packets lies between the tails of its parts.
    for key, of_run in rows.filter(law="droptail").group_by("seed"):
        whole = office.metrics.filter(law="droptail", seed=key[0])["delay_p95_s"][0]
        assert of_run["delay_p95_s"].min() <= whole <= of_run["delay_p95_s"].max()


def test_a_result_becomes_frames_of_pandas_without_pyarrow(
    office: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    metrics = office.to_pandas()
    assert isinstance(metrics, pandas.DataFrame)
    assert list(metrics.columns) == office.metrics.columns
    assert metrics["law"].cat.categories.to_list() == ["droptail", "fq-codel"]
    np.testing.assert_array_equal(metrics["goodput_bps"], office.metrics["goodput_bps"])
    for name in ("summary", "flows", "traffic", "goodput", "transfers", "samples", "delays"):
        assert len(office.to_pandas(name)) > 0, name
    with pytest.raises(ScenarioError, match=r'^table: "flow" .* \(did you mean "flows'):
        office.to_pandas("flow")  # type: ignore[arg-type]


def test_chosen_metrics_are_those_of_table_page_and_json(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "office.toml").write_text(OFFICE)
    words = ("run", "office.toml", "--metric", "voice_jitter_s,jain")
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    assert "Voice jitter" in done.stdout and "Jain" in done.stdout
    assert "Goodput" not in done.stdout.partition("Results by traffic")[0]
    folder = tmp_path / "results" / "office"
    page = (folder / "report.html").read_text()
    assert '<th scope="col">Voice jitter<span>ms</span></th>' in page
    differences = pl.read_csv(folder / "differences.csv")
    assert set(differences["metric"]) == {"voice_jitter_s", "jain"}
    # The numbers of the result are whole, for `forebay compare`.
    assert "utilisation" in json.loads((folder / "metrics.json").read_text())["runs"][0]["metrics"]
    lines = cli(*words, "--json").stdout.splitlines()
    assert set(json.loads(lines[0])["metrics"]) == {"voice_jitter_s", "jain"}
    # The same result with other metrics is the same result, drawn again.
    again = cli("run", "office.toml", "--metric", "utilisation")
    assert again.returncode == 0, again.stderr
    assert "Voice jitter<span>" not in (folder / "report.html").read_text()
    wrong = cli("run", "office.toml", "--metric", "jian")
    assert wrong.returncode == 2
    assert '--metric: "jian" is not valid; expected one of queue_mean_pkts, ' in wrong.stderr
    assert wrong.stderr.endswith('(did you mean "jain"?)\n')
