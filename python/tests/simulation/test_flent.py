"""Data files of flent: out of runs, and into a comparison."""

from __future__ import annotations

import bz2
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli

import forebay
from forebay import ScenarioError
from forebay.experiment import flent

LINK = """\
title    = "A link"
duration = "10s"
measure  = ["4s", "10s"]
bottleneck = { rate = "10Mbit/s", delay = "5ms", buffer = "100p" }
traffic = [{ kind = "ftp", flows = 3, rtt = "40ms", start = { uniform = ["0s", "1s"] } }]
law = [{ kind = "codel" }, { kind = "droptail" }]
"""


def test_a_run_comes_back_as_it_was(tmp_path: Path) -> None:
    """The same flows, goodput to a per cent, and the delay of the queue."""
    result = forebay.run(LINK, seeds=2)
    files = flent.write(result, tmp_path / "flent")
    assert sorted(file.name for file in files) == [
        f"{law}-seed{seed}.flent.gz" for law in ("codel", "droptail") for seed in (1, 2)
    ]
    for run, file in zip(result.runs, files, strict=True):
        read = flent.read(file)
        assert (read.law, read.seed) == (result.plan.laws[run.law], run.seed)
        assert read.flows_bps == pytest.approx(run.flow_goodput_bps, rel=0.01)
        assert read.goodput_bps == pytest.approx(run.metrics["goodput_bps"], rel=0.01)
        # Of times and not of packets, so not to the last figure.
        mean_s = run.metrics["delay_mean_s"]
        assert float(read.delays_s.mean()) == pytest.approx(mean_s, rel=0.1, abs=1e-3)
    result.report(tmp_path / "ours")
    metrics = ["goodput_bps", "delay_p95_s", "jain"]
    found = forebay.compare(tmp_path / "ours", tmp_path / "flent", metrics=metrics)
    assert [line.seeds for line in found.differences] == [2] * 6
    assert all(abs(line.share) < 0.01 for line in found.differences if line.metric == "goodput_bps")


def test_a_written_file_has_the_format_that_flent_reads(tmp_path: Path) -> None:
    """As `ResultSet.unserialise` wants it: each series on the grid of times, and raw values."""
    result = forebay.run(LINK, laws=["codel"], seeds=1)
    (file,) = flent.write(result, tmp_path)
    told = json.loads(gzip.decompress(file.read_bytes()))
    assert told["version"] == 4
    assert told["x_values"][:2] == [0.1, 0.2] and told["x_values"][-1] == 10
    assert set(told["results"]) == {
        "Ping (ms) ICMP",
        "TCP download sum",
        "TCP download avg",
        *(f"TCP download::{i}" for i in (1, 2, 3)),
    }
    for name, series in told["results"].items():
        assert len(series) == len(told["x_values"]), name
        assert [it["val"] for it in told["raw_values"][name]] == series
        assert told["metadata"]["SERIES_META"][name]["UNITS"] in ("ms", "Mbits/s")
    # The round trip without a queue is in the ping.
    assert min(told["results"]["Ping (ms) ICMP"]) >= 40
    assert told["metadata"]["NAME"] == "tcp_ndown"
    (again,) = flent.write(result, tmp_path / "again")
    assert again.read_bytes() == file.read_bytes()


def test_many_flows_have_their_sum(tmp_path: Path) -> None:
    result = forebay.run(LINK, laws=["codel"], seeds=1, overrides={"traffic.0.flows": 200})
    (file,) = flent.write(result, tmp_path)
    read = flent.read(file)
    assert read.flows_bps == []
    assert read.goodput_bps == pytest.approx(result.runs[0].metrics["goodput_bps"], rel=0.02)


def theirs(ping_ms: list[float | None], flow: list[float | None]) -> dict[str, Any]:
    """A file as flent writes it: five seconds of pings alone before and after the load."""
    count = len(ping_ms)
    results: dict[str, list[float | None]] = {
        "Ping (ms) ICMP": ping_ms,
        "TCP upload::1": flow,
        "TCP upload::2": flow,
        "TCP upload::1::tcp_cwnd": [99.0] * count,
        "TCP upload avg": flow,
        "TCP upload sum": [2 * it if it is not None else None for it in flow],
        "TCP upload fairness": [1.0] * count,
    }
    return {
        "version": 4,
        "x_values": [float(i) for i in range(count)],
        "results": results,
        "raw_values": {},
        "metadata": {
            "NAME": "tcp_nup",
            "TITLE": "home",
            "LENGTH": count - 11,
            "TOTAL_LENGTH": count - 1,
        },
    }


def save(file: Path, told: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(gzip.compress(json.dumps(told).encode()))
    return file


def test_a_file_of_flent_is_read_while_the_load_lasts(tmp_path: Path) -> None:
    before: list[float | None] = [200.0] * 6
    ping = [*before, None, 20.0, *([40.0] * 18), *([300.0] * 5)]
    flow = [*([None] * 6), *([4.0] * 20), *([None] * 5)]
    read = flent.read(save(tmp_path / "home.flent.gz", theirs(ping, flow)))
    assert read.flows_bps == [4e6, 4e6] and read.goodput_bps == 8e6
    # The round trip without a queue cannot be longer than a ping, and the reader hears of it.
    assert sorted(read.delays_s) == pytest.approx([0.0, *([0.02] * 18)])
    assert [remark.partition(" (")[0] for remark in read.remarks] == [
        "Pings within the load are shorter than all outside it"
    ]
    assert (read.law, read.seed) == ("home", None)


TIMES = [round(0.2 * i, 3) for i in range(351)]


def under_load(value: float, start_s: float = 5, end_s: float = 65) -> list[float | None]:
    return [value if start_s < t <= end_s else None for t in TIMES]


def pings(base_ms: float, queue_ms: float, start_s: float = 5, end_s: float = 65) -> list[float]:
    return [base_ms + (queue_ms if start_s < t <= end_s else 0.0) for t in TIMES]


def record(results: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A file of 70 s with 60 s of load between."""
    known = {"NAME": "tcp_nup", "TITLE": "home", "LENGTH": 60, "TOTAL_LENGTH": 70, "STEP_SIZE": 0.2}
    known = {key: it for key, it in {**known, **metadata}.items() if it is not None}
    return {
        "version": 4,
        "x_values": TIMES,
        "results": results,
        "raw_values": {},
        "metadata": known,
    }


def delays_ms(file: Path) -> tuple[float, float]:
    read = flent.read(file)
    return 1e3 * float(read.delays_s.min()), 1e3 * float(read.delays_s.max())


@pytest.mark.parametrize("metadata", [{}, {"LENGTH": None, "TOTAL_LENGTH": None}, {"LENGTH": 70}])
def test_a_standing_queue_is_counted(tmp_path: Path, metadata: dict[str, Any]) -> None:
    """The pings before and after the load know the round trip without a queue; where the lengths
    are missing or wrong, the flows say when the load was there."""
    told = record({"Ping (ms) ICMP": pings(20, 200), "TCP upload::1": under_load(8)}, **metadata)
    assert delays_ms(save(tmp_path / "a.flent.gz", told)) == pytest.approx((200, 200))
    assert flent.read(tmp_path / "a.flent.gz").remarks == []


def test_a_file_without_pings_outside_the_load_has_a_remark(tmp_path: Path, cli: Cli) -> None:
    ping = [220.0 if 5 < t <= 65 else None for t in TIMES]
    told = record({"Ping (ms) ICMP": ping, "TCP upload::1": under_load(8)})
    file = save(tmp_path / "a" / "0.flent.gz", told)
    assert delays_ms(file) == (0, 0)
    done = cli("compare", "a", "a", "--metric", "goodput_bps", "--out", "out")
    assert done.returncode == 0, done.stderr
    assert "A: There are no pings outside the load (Ping (ms) ICMP): delays are" in done.stdout
    told = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert "no pings outside the load" in told["A"]["remarks"][0]
    assert "no pings outside the load" in (tmp_path / "out" / "compare.html").read_text()


def test_each_host_has_its_own_round_trip(tmp_path: Path) -> None:
    series = {
        "Ping (ms) ICMP": pings(100, 6),
        "Ping (ms) ICMP 1.1.1.1 (extra)": pings(25, 6),
        "Ping (ms) UDP BE": pings(101, 6),
        # A mean of hosts is no host, and a host may be called so.
        "Ping (ms) avg": pings(75, 60),
        "Ping (ms) ICMP avg-host.example": pings(300, 6),
        "TCP upload::1": under_load(8),
    }
    read = flent.read(save(tmp_path / "a.flent.gz", record(series)))
    assert read.delays_s == pytest.approx(np.full(4 * 300, 6e-3))


def test_staged_flows_are_summed_at_each_time(tmp_path: Path) -> None:
    """A flow that is there for half of the time has half of its rate in the mean of all, as the
    series of sums says."""
    sparse = under_load(6)
    sparse[40:300] = [it if i % 7 == 0 else None for i, it in enumerate(sparse[40:300])]
    series = {
        "TCP download BE": under_load(8),
        "TCP download BK": under_load(4, 35),
        # netperf reports slow flows less often than the grid has times.
        "TCP download::3": sparse,
        "TCP download::3::tcp_cwnd": under_load(99),
        "TCP download sum": under_load(1000),
        "TCP totals": under_load(1000),
    }
    read = flent.read(save(tmp_path / "a.flent.gz", record(series)))
    assert read.goodput_bps == pytest.approx(16e6)
    assert read.flows_bps == pytest.approx([8e6, 2e6, 6e6])
    assert len(read.delays_s) == 0


def test_units_are_those_of_the_series(tmp_path: Path) -> None:
    series = {
        "Ping (ms) ICMP": [1e-3 * it for it in pings(20, 30)],
        "TCP upload": under_load(8e3),
        "TCP upload BK": under_load(1),
        "UDP upload": under_load(5e6),
    }
    units = {"Ping (ms) ICMP": "s", "TCP upload": "Kbits/s", "TCP upload BK": "furlongs"}
    described = {name: {"UNITS": unit} for name, unit in units.items()}
    file = save(tmp_path / "a.flent.gz", record(series, SERIES_META=described))
    read = flent.read(file)
    assert read.goodput_bps == pytest.approx(8e6)
    assert read.delays_s == pytest.approx(np.full(300, 0.03))
    assert read.remarks == [
        "TCP upload BK is left out: its unit 'furlongs' is not known.",
        "Not in the goodput: UDP upload.",
    ]


def test_every_name_that_flent_writes_is_read(tmp_path: Path, cli: Cli) -> None:
    told = json.dumps(record({"Ping (ms) ICMP": pings(20, 30), "TCP upload": under_load(8)}))
    data = told.encode()
    for name, packed in {
        "0.flent": data,
        "1.flent.gz": gzip.compress(data),
        "2.flent.bz2": bz2.compress(data),
        "3.flnt": bz2.compress(data),
    }.items():
        (tmp_path / "theirs").mkdir(exist_ok=True)
        (tmp_path / "theirs" / name).write_bytes(packed)
    done = cli("compare", "theirs", "theirs/0.flent", "--metric", "delay_mean_s", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)["differences"]
    assert (line["a"], line["b"]) == pytest.approx((0.03, 0.03))
    # Each file is a repetition, and one is common.
    assert line["seeds"] == 1
    assert len(forebay.compare(tmp_path / "theirs", tmp_path / "theirs").a.rows) == 4


def test_two_files_of_one_run_are_refused(tmp_path: Path) -> None:
    result = forebay.run(LINK, laws=["codel"], seeds=1)
    (file,) = flent.write(result, tmp_path)
    file.with_name("copy.flent.gz").write_bytes(file.read_bytes())
    with pytest.raises(ScenarioError, match=r"has two files of the same run: codel, seed 1$"):
        forebay.compare(tmp_path, tmp_path)


def test_files_of_flent_are_compared_with_a_law(tmp_path: Path, cli: Cli) -> None:
    ping: list[float | None] = [40.0] * 31
    for i in range(3):
        flow: list[float | None] = [4.0 + i] * 31
        save(tmp_path / "theirs" / f"{i}.flent.gz", theirs(ping, flow))
    run = cli("run", write(tmp_path), "--law", "codel", "--seeds", 3, "--flent", "ours", "--json")
    assert run.returncode == 0, run.stderr
    done = cli("compare", "theirs", "ours", "--metric", "goodput_bps", "--json")
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)["differences"]
    assert line["laws"] == ["home", "codel"] and line["seeds"] == 3
    assert line["a"] == pytest.approx(10e6)


def write(folder: Path) -> Path:
    file = folder / "link.toml"
    file.write_text(LINK)
    return file


@pytest.mark.parametrize("told", [[], {"metadata": {}}, {**theirs([1.0] * 20, []), "results": {}}])
def test_a_file_that_is_not_of_flent_is_refused_in_one_line(tmp_path: Path, told: Any) -> None:
    file = save(tmp_path / "x.flent.gz", told)
    with pytest.raises(ScenarioError, match="is not a data file of flent with pings or goodput: "):
        flent.read(file)


def test_the_directions_of_a_link_are_never_averaged(tmp_path: Path, cli: Cli) -> None:
    """Nor are they two runs: a download beside its own ACKs would be half a download."""
    link = LINK.replace('law = [{ kind = "codel" }', 'law = [{ kind = "pie" }')
    for name, text in (("a", LINK), ("b", link)):
        result = forebay.run(text, laws=["droptail"], seeds=1)
        (file,) = flent.write(result, tmp_path / name)
        told = json.loads(gzip.decompress(file.read_bytes()))
        for way, share in (("up", 1.0), ("down", 0.0)):
            told["metadata"]["FOREBAY"] |= {"settings": {}, "point": f"{way} (to the other)"}
            told["results"] |= {
                series: [share * value for value in values]
                for series, values in told["results"].items()
                if series.startswith("TCP")
            }
            save(tmp_path / name / f"{way}.flent.gz", told)
        file.unlink()
    done = cli("compare", "a", "b", "--metric", "goodput_bps", "--json")
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["differences"]
    found = {line["point"].split()[0]: line["a"] > 5e6 for line in lines}
    assert len(lines) == 2 and found == {"up": True, "down": False}
    shown = cli("compare", "a", "b", "--metric", "goodput_bps").stdout
    assert "A  a  A link\n" in shown and "No room" not in shown
    assert len(re.findall(r"^Goodput \[Mbit/s\]  (?:up|down) +droptail ", shown, re.M)) == 2
