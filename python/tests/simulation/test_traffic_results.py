"""Who gets what: goodput, share, RTT, delay and what is sent again, by the label of a traffic."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from conftest import one_bottleneck, table, two_laws
from rich.console import Console

import forebay
from forebay._base.metrics import TRAFFIC_METRICS
from forebay.report import tables


def flows(label: str, count: int, rtt: str | list[str]) -> str:
    return table(
        "traffic", kind="ftp", label=label, flows=count, rtt=rtt, packet="1500B", tcp="linux-cubic"
    )


LINK = one_bottleneck(("4s", "12s"), "20Mbit/s", "200p", seeds=2)
NEAR = flows("near", 1, "20ms")
LAWS = two_laws("codel", "droptail")
SCENARIO = LINK + NEAR + flows("far", 3, ["60ms", "100ms"]) + LAWS


@pytest.fixture(scope="module")
def result() -> forebay.Result:
    return forebay.run(SCENARIO)


def test_the_parts_make_up_the_whole(result: forebay.Result) -> None:
    for run in result.runs:
        near, far = run.traffic
        assert (near.traffic, far.traffic) == (0, 1)
        whole = run.metrics["goodput_bps"]
        assert near.metrics["goodput_bps"] + far.metrics["goodput_bps"] == pytest.approx(whole)
        assert near.metrics["share"] + far.metrics["share"] == pytest.approx(1)
        flows = [it.metrics["flow_goodput_bps"] for it in (near, far)]
        assert flows[1] == pytest.approx(far.metrics["goodput_bps"] / 3)
        ratios = [it.metrics["ratio"] for it in (near, far)]
        assert ratios == pytest.approx([flow / min(flows) for flow in flows])
        # Whoever is nearer gets more; each waits as all packets do together.
        assert ratios[0] > ratios[1] == 1
        waits = [it.metrics["delay_mean_s"] for it in (near, far)]
        assert min(waits) <= run.metrics["delay_mean_s"] <= max(waits)
        # Three flows over round trips of 60, 100 and 60 ms.
        for it, propagation_s in ((near, 0.020), (far, 0.220 / 3)):
            rtt_s = propagation_s + it.metrics["delay_mean_s"]
            assert it.metrics["rtt_s"] == pytest.approx(rtt_s)
            # What was dropped is sent again, but for what is under way at the window's ends.
            lost = it.metrics["drop_rate"]
            assert lost > 0
            assert it.metrics["resent_rate"] == pytest.approx(lost, rel=0.5)


def test_a_single_traffic_has_no_traffic_results() -> None:
    result = forebay.run(LINK + NEAR + LAWS, seeds=1)
    assert all(run.traffic == [] for run in result.runs)
    assert result.traffic.is_empty()
    assert "Results by traffic" not in str(result)


def test_a_source_without_tcp_sends_nothing_again() -> None:
    calls = table("traffic", kind="cbr", label="calls", flows=2, rate="2Mbit/s", rtt="60ms")
    for run in forebay.run(LINK + NEAR + calls + LAWS, seeds=1).runs:
        metrics = run.traffic[1].metrics
        assert metrics["resent_rate"] != metrics["resent_rate"]
        assert metrics["goodput_bps"] == pytest.approx(4e6, rel=0.1)


def test_tables_frames_and_files_have_it(result: forebay.Result, tmp_path: Path) -> None:
    frame = result.traffic
    assert frame.height == 2 * len(result.runs)
    assert list(frame["label"].unique(maintain_order=True)) == ["near", "far"]
    near = frame.filter((pl.col("label") == "near") & (pl.col("law") == "codel"))
    mean = near["share"].mean()
    assert result.traffic_cell(0, 0, "near", "share").mean == pytest.approx(mean)
    table = tables.traffic_table(result, 0, 0)
    assert [row[:2] for row in table.rows] == [
        [law, label] for law in ("codel", "droptail") for label in ("near", "far")
    ]
    # Nothing is marked, so there is no column of it.
    marks = TRAFFIC_METRICS["mark_rate"].heading
    shown = [metric.heading for metric in TRAFFIC_METRICS.values() if metric.heading != marks]
    assert list(table.heads) == ["Law", "Traffic", *shown]
    assert "Results by traffic" in str(result)
    result.report(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<h3>Results by traffic</h3>" in page
    written = pl.read_parquet(tmp_path / "traffic.parquet")
    assert written.select(*TRAFFIC_METRICS).equals(frame.select(*TRAFFIC_METRICS))
    told = json.loads((tmp_path / "metrics.json").read_text())["runs"][0]["traffic"]
    assert told["far"] == pytest.approx(result.runs[0].traffic[1].metrics)


def test_eighty_columns_have_every_column(result: forebay.Result) -> None:
    """What has no room beside the others stands below, under the same names."""
    screen = Console(width=80, highlight=False)
    with screen.capture() as captured:
        tables.show_traffic(screen, result)
    shown = captured.get()
    assert max(map(len, shown.splitlines())) <= 80 and "No room" not in shown
    heads = [metric.title for metric in TRAFFIC_METRICS.values() if metric.name != "mark_rate"]
    words = " ".join(shown.split())
    for head in heads:
        assert head in words or set(head.split()) <= set(words.split()), head
    assert shown.count("near") == shown.count("far") > 2


def test_the_store_and_a_study_keep_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = f'{SCENARIO}[sweep]\n"bottleneck.buffer" = ["100p", "200p"]\n'
    study = forebay.study(text)
    frame = study.traffic()
    assert frame.height == 2 * 2 * 2 * 2
    run = next(run for run in forebay.run(text).runs if (run.point, run.law, run.seed) == (1, 0, 2))
    kept = frame.filter((pl.col("point") == 1) & (pl.col("law") == "codel") & (pl.col("seed") == 2))
    assert list(kept["traffic"]) == ["near", "far"]
    for row, it in zip(kept.iter_rows(named=True), run.traffic, strict=True):
        assert {name: row[name] for name in TRAFFIC_METRICS} == pytest.approx(it.metrics)
