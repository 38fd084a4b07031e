"""Classes of a queue, goodput over time and completion times: tables, files, figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import forebay
from forebay._native import class_metrics
from forebay.experiment.result import Result

CLASSES = """
title = "Two kinds of sender"
duration = "10s"
measure = ["4s", "10s"]
seeds = 2
windows = true

[bottleneck]
rate = "20Mbit/s"
buffer = "1000p"
ecn = true

[[traffic]]
kind = "ftp"
start = "0s"
flows = 2
tcp = "linux-cubic"
rtt = "20ms"

[[traffic]]
kind = "ftp"
start = "0s"
flows = 30
tcp = "prague"
ecn = "l4s"
rtt = "20ms"

[[traffic]]
kind = "web"
flows = 5
rtt = "20ms"

[[law]]
kind = "dualpi2"

[[law]]
kind = "pie"
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    path = tmp_path_factory.mktemp("details") / "kinds.toml"
    path.write_text(CLASSES)
    return forebay.run(path)


def text_of(result: Result, kind: Any) -> str:
    return " ".join(re.findall(r">([^<>]+)</text>", result.plot(kind).svg()))


def test_classes_add_up_to_their_queue(result: Result) -> None:
    dual, pie = result.runs_of(0, 0), result.runs_of(0, 1)
    assert all(not run.classes for run in pie)
    for run in dual:
        assert [one.name for one in run.classes] == ["l4s", "classic"]
        assert all(
            list(one.metrics) == [it["name"] for it in class_metrics()] for one in run.classes
        )
        low, classic = run.classes
        assert sum(one.metrics["packet_share"] for one in run.classes) == pytest.approx(1)
        both = sum(int(one.delay_packets.sum()) for one in run.classes)
        assert both == run.delay_packets.sum()
        mean_s = sum(
            one.metrics["packet_share"] * one.metrics["delay_mean_s"] for one in run.classes
        )
        assert mean_s == pytest.approx(run.metrics["delay_mean_s"], rel=0.01)
        assert low.metrics["delay_p99_s"] < classic.metrics["delay_p50_s"]
        # Senders of the classic queue here are not ECN-capable.
        assert low.metrics["mark_rate"] > 0 == classic.metrics["mark_rate"]


def test_files_have_the_details(result: Result, out: Path) -> None:
    runs = json.loads((out / "metrics.json").read_text())["runs"]
    assert list(runs[0]["classes"]) == ["l4s", "classic"]
    assert runs[0]["classes"]["l4s"] == result.runs_of(0, 0)[0].classes[0].metrics
    assert all("classes" not in run for run in runs if run["law"] == "pie")
    classes = pl.read_parquet(out / "classes.parquet")
    assert classes.height == 4
    assert set(classes["law"].cast(pl.String)) == {"dualpi2"}
    delays = pl.read_parquet(out / "class_delays.parquet")
    all_delays = pl.read_parquet(out / "delays.parquet").filter(law="dualpi2")
    assert delays["packets"].sum() == all_delays["packets"].sum()
    transfers = pl.read_parquet(out / "transfers.parquet")
    assert set(transfers["traffic"]) == {2}
    run = result.runs_of(0, 1)[0]
    took = transfers.filter(law="pie", seed=run.seed)["took_s"]
    assert np.quantile(took, 0.5, method="inverted_cdf") == run.metrics["flow_completion_p50_s"]


def test_goodput_over_time_is_that_of_the_flows(result: Result, out: Path) -> None:
    goodput = pl.read_parquet(out / "goodput.parquet").filter(law="pie", seed=1)
    few, many = (goodput.filter(traffic=i) for i in (0, 1))
    assert set(few["flow"]) == {0, 1}
    assert few["quantile"].is_null().all() and many["flow"].is_null().all()
    assert sorted(set(many["quantile"])) == [0.05, 0.25, 0.5, 0.75, 0.95]
    assert goodput["time_s"].max() == pytest.approx(10)
    # A row ends at the time that it has, up to the packets on their way.
    run = result.runs_of(0, 1)[0]
    measured = few.filter(pl.col("time_s") > 4.0001).group_by("flow").agg(pl.mean("goodput_bps"))
    for flow, mean_bps in measured.iter_rows():
        assert mean_bps == pytest.approx(run.flow_goodput_bps[flow], rel=0.05)


def test_figures_show_classes_flows_and_transfers(result: Result, out: Path) -> None:
    expected = {
        "classes": ["l4s", "classic", "DualPI2", "Queuing delay [ms]"],
        "flows": [
            "Goodput of a flow [Mbit/s]",
            "median of 30",
            "(2 curves)",
            "not measured",
        ],
        "windows": ["In flight [packets]", "not measured"],
        "completion": ["Completion time [s]", "DualPI2", "PIE", "web"],
    }
    names = [path.name for path in (out / "figures").iterdir()]
    for kind, texts in expected.items():
        text = text_of(result, kind)
        assert all(one in text for one in texts), (kind, text)
        assert f"{kind}.png" in names
    # A panel for a law with classes, and none for one without.
    assert len([axes for axes in result.plot("classes").axes if axes.get_visible()]) == 1
    page = (out / "report.html").read_text()
    assert page.count("<svg") == len(names)
    for one in ["Queuing delay by class", ">l4s</td>", "packet_share"]:
        assert one in page


def test_without_classes_there_is_no_word_of_them(scenario: Path) -> None:
    result = forebay.run(scenario, seeds=1)
    result.report(scenario.parent / "out")
    names = {path.name for path in (scenario.parent / "out").iterdir()}
    assert not names & {"classes.parquet", "class_delays.parquet", "transfers.parquet"}
    page = (scenario.parent / "out" / "report.html").read_text()
    assert not re.search("Classes|[Bb]y class|packet_share", page)
    # Asked for by name, it is an empty figure.
    assert result.plot("classes").png()
    assert result.plot("completion").png()
    with pytest.raises(ValueError, match="windows = true"):
        result.plot("windows")
