"""`forebay.run`, and the tables of its result."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy import stats

import forebay
from forebay.base import progress
from forebay.results.result import Result
from forebay.runs import execution, experiment


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
    result = forebay.run(scenario, laws=["pi"], sets={"traffic.0.flows": 5}, seeds=4)
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


def test_what_is_set(scenario: Path) -> None:
    by_map = forebay.run(scenario, sets={"traffic.0.flows": 3, "law.pi.target": "30p"}, seeds=1)
    by_text = forebay.run(scenario, sets=["traffic.0.flows=3", "law.pi.target=30p"], seeds=1)
    assert by_map.plan.points[0].traffic[0].flows == 3
    assert dict(by_map.plan.points[0].laws[0].params)["target"] == "30p"
    assert_frame_equal(by_map.samples, by_text.samples, check_exact=True)


def test_a_sweep_may_mix_lists_and_texts(scenario: Path) -> None:
    text = scenario.read_text().split("[sweep]")[0]
    scenario.write_text(f'{text}[sweep]\n"traffic.0.rtt" = ["40ms", ["40ms", "80ms"]]\n')
    result = forebay.run(scenario, laws=["pi"], seeds=1)
    assert result.metrics["traffic.0.rtt"].to_list() == ["40ms", '["40ms", "80ms"]']


def test_a_wrong_scenario_raises(scenario: Path) -> None:
    with pytest.raises(forebay.ScenarioError, match=r"bottleneck\.rate: found"):
        forebay.run(scenario, sets={"bottleneck.rate": 5})
    assert issubclass(forebay.ScenarioError, ValueError)


def test_a_notebook_shows_the_summary(scenario: Path) -> None:
    result = forebay.run(scenario, sets={"title": "<b>bold</b> & co"})
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


def test_functions_keep_their_names_whatever_is_loaded() -> None:
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
    assert done.stdout == "forebay.engines.run forebay.links.net\n[]\n"


def test_a_scenario_may_be_a_text_or_tables(scenario: Path) -> None:
    text = scenario.read_text()
    by_file = forebay.run(scenario, seeds=1)
    by_text = forebay.run(text, seeds=1)
    by_tables = forebay.run(tomllib.loads(text), seeds=1)
    for other in (by_text, by_tables):
        assert_frame_equal(by_file.samples, other.samples, check_exact=True)
    with pytest.raises(forebay.ScenarioError, match=r"^scenario:\d+: bottleneck.rate: found"):
        forebay.run(text.replace("10Mbit/s", "-1Mbit/s"))
    with pytest.raises(forebay.ScenarioError, match=r"^scenario: found "):
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
        forebay.run(scenario, sets={"duration": "400s"})
    errors = capsys.readouterr().err
    assert re.search(r"\r\d of 8 runs, \d+ %", errors)
    # The line is wiped at the end.
    assert errors.endswith("\r") and errors.split("\r")[-2].strip() == ""
    assert "\n" not in errors
    assert "ipywidgets" not in sys.modules
