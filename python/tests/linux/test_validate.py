"""`forebay validate`: one scenario simulated and with real flows.

No test asserts how close the two are, because the machine may be busy. docs/evidence/reality.md
states it.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pages
import polars as pl
import pytest
from conftest import Cli, command

import forebay
from forebay._base import quantities
from forebay._native import ScenarioError
from forebay.comparison import validate as validation
from forebay.comparison import validation_page as page
from forebay.comparison.validate import METRICS, Row, Side, ValidatedScenario, compare_engines
from forebay.experiment import execution, experiment
from forebay.experiment.engines import Remark
from forebay.experiment.result import Result
from forebay.linux import LinkError, link_engine, settings, transfers
from forebay.linux import run as run_link
from forebay.linux.flow_mapping import LEAD_S, RETURN_RATE, link_plans
from forebay.linux.link_engine import LinkEngine
from forebay.linux.transfers import Mice, Web
from tools.docs import files

LATE = Remark("void", "too late")
SCENARIO = """\
title    = "Three flows"
duration = "4s"
measure  = ["2s", "4s"]
seeds    = 2
bottleneck = { rate = "15Mbit/s", buffer = "100p" }
[[traffic]]
kind   = "ftp"
flows  = 3
packet = "1500B"
rtt    = "30ms"
start  = { uniform = ["0s", "500ms"] }
tcp    = "sack"
[[law]]
kind   = "pi"
label  = "mine"
target = "40p"
a      = 0.00355
b      = 0.00335
"""


def usable() -> str:
    """Why no real flow can run here; empty where one can."""
    if shutil.which("iperf3") is None:
        return "iperf3 is not here: apt-get install iperf3"
    try:
        run_link(settings("10Mbit/s"), ["true"], timeout_s=60)
    except LinkError as error:
        return str(error)
    return ""


def read(folder: Path, text: str = SCENARIO) -> experiment.Experiment:
    path = folder / "flows.toml"
    path.write_text(text)
    return experiment.read(path)


def test_the_link_is_the_scenarios(tmp_path: Path) -> None:
    (plan,) = link_plans(read(tmp_path))
    wanted = plan.settings(7, "1ms", "0.1%")
    up, down = wanted.up, wanted.down
    assert wanted.up.aqm == "pi"
    assert dict(up.law.params)["a"] == 0.00355
    assert up.link.rate_bps == 15_000_000
    assert down.law.title.startswith("DropTail")
    assert quantities.rate(wanted.down.link.rate_bps) == RETURN_RATE
    # Half the RTT each way, and the window later by what the servers take to come up.
    assert {wanted.up.link.delay_s, wanted.down.link.delay_s} == {(0.015, 0.015)}
    assert wanted.measure == f"{LEAD_S + 2:g}s..{LEAD_S + 4:g}s"
    script = plan.command(7)[-1]
    assert script.count("-C reno") == 3
    assert script == plan.command(7)[-1] != plan.command(8)[-1]


def test_real_flows_start_when_the_simulated_ones_do(tmp_path: Path) -> None:
    mice = SHORT.replace('"500ms"', '{ uniform = ["1s", "2s"] }')
    text = SCENARIO.replace('start  = { uniform = ["0s", "500ms"] }\n', "").replace(
        "[[law]]", mice + "[[law]]"
    )
    assert text.count("start ") == 1
    one = read(tmp_path, text)
    (plan,) = link_plans(one)
    (simulated,) = execution.execute(one).runs[:1]
    starts_s = one.plan.starts_s(0, 0, 1)
    # The first data come a handshake and half a round trip later, and the queue is short.
    series = simulated.goodput[0]
    for start_s, column in zip(starts_s, series.columns, strict=True):
        first = int(np.flatnonzero(column)[0])
        assert (
            int((start_s + 0.045) / series.interval_s)
            <= first
            <= int((start_s + 0.1) / series.interval_s)
        )
    assert [flow.start_s for flow in plan.flows(1)] == starts_s
    assert len(set(starts_s)) == 3 and all(0 <= start_s <= 0.4 for start_s in starts_s)
    assert one.plan.starts_s(0, 0, 2) != starts_s
    (mice_s, _) = plan.sources(1)
    assert mice_s.starts_s == tuple(LEAD_S + time_s for time_s in one.plan.starts_s(0, 1, 1))
    script = plan.command(1)[-1]
    assert all(f"sleep {LEAD_S + start_s:.4f}; exec iperf3" in script for start_s in starts_s)


def test_the_link_has_the_queue_and_the_tokens_of_the_scenario(tmp_path: Path) -> None:
    text = SCENARIO.replace("[[law]]", '[[law]]\nqueue = { kind = "fq", queues = 16 }', 1)
    text = text.replace("bottleneck = { ", 'bottleneck = { burst = "3000B", ', 1)
    (plan,) = link_plans(read(tmp_path, text))
    up = plan.settings(7, "1ms", "0.1%").up
    assert up.law.queue == read(tmp_path, text).plan.points[0].laws[0].queue
    assert up.law.queue is not None and "16" in up.law.queue
    assert up.link.burst_bytes == 3000


def test_cubic_is_the_kernels_cubic_and_ecn_is_asked_for(tmp_path: Path) -> None:
    text = SCENARIO.replace('tcp    = "sack"', 'tcp = "cubic"\necn = true')
    (plan,) = link_plans(read(tmp_path, text))
    script = plan.command(1)[-1]
    assert script.count("-C cubic") == 3
    assert "echo 1 > /proc/sys/net/ipv4/tcp_ecn" in script


SHORT = """\
[[traffic]]
kind   = "mice"
flows  = 6
packet = "1500B"
rtt    = "30ms"
start  = "500ms"
on     = "400ms"
off    = "200ms"
tcp    = "cubic"
[[traffic]]
kind        = "web"
flows       = 2
packet      = "1500B"
rtt         = "30ms"
requests    = 4
connections = 50
shape       = 1.5
scale       = "6kB"
"""


def test_short_transfers_are_the_scenarios(tmp_path: Path) -> None:
    (plan,) = link_plans(read(tmp_path, SCENARIO.replace("[[law]]", SHORT + "[[law]]")))
    assert plan.sources(7) == [
        Mice("cubic", (LEAD_S + 0.5,) * 6, on_s=0.4, off_s=0.2, port=5200),
        Web(
            congestion_control="reno",
            starts_s=(LEAD_S, LEAD_S),
            requests_per_s=4,
            connections=50,
            shape=1.5,
            scale_bytes=6000,
            payload_bytes=1460,
            port=5199,
        ),
    ]
    # Long flows go to ports of their own, and each traffic's short ones to another.
    assert plan.apart() == (3, [], [(5201, 0), (5202, 0), (5203, 0), (5200, 1), (5199, 2)])
    assert len(plan.flows(7)) == plan.long_flows == 3
    script = plan.command(7)[-1]
    (words,) = [line for line in script.splitlines() if " send " in line]
    wanted = transfers.ClientTask.from_text(shlex.split(words)[4])
    assert wanted.seed == 7
    assert wanted.measure_s == (LEAD_S + 2, LEAD_S + 4)
    assert wanted.sources == plan.sources(7)


def test_sizes_are_paretos_in_whole_packets() -> None:
    web = Web("reno", (0,), 1, 1, shape=1.2, scale_bytes=1000, payload_bytes=1000, port=1)
    draw, count = random.Random(1), 20_000
    sizes = [transfers.packets(draw, web) for _ in range(count)]
    # P(more than n packets) = (1 + n)^-1.2, each within four standard errors.
    for n in (1, 2, 5, 20):
        share = (1 + n) ** -1.2
        seen = sum(size > n for size in sizes) / count
        assert abs(seen - share) < 4 * (share * (1 - share) / count) ** 0.5


@pytest.mark.realtime
def test_a_session_makes_its_transfers() -> None:
    """Over the loopback device, which limits nothing."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # One packet each, as large as the loopback device makes it.
    web = Web("reno", (0.0,) * 5, 20, 100, shape=50, scale_bytes=1, payload_bytes=1000, port=port)
    plan = transfers.ClientTask(3, 3.0, (0.5, 2.5), [web])
    module = [sys.executable, "-m", transfers.__name__]
    server = subprocess.Popen([*module, "serve", str(port)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        done = subprocess.run(
            [*module, "send", plan.text(), str(time.time() + 0.5)],
            env=os.environ | {"FOREBAY_SERVER": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        server.kill()
        server.wait()
    found = json.loads(done.stdout)
    # 100 requests a second for 2 s, within four standard deviations.
    assert 200 - 57 < found["transfers"] < 200 + 57
    # What their receivers acknowledged is what was sent, with the SYN and the FIN.
    packet_bits = found["short_goodput_bps"] * 2.0 / found["transfers"]
    assert 8 * 30_000 < packet_bits < 8 * 70_000


def test_a_server_that_is_not_there_is_a_failure_in_a_line() -> None:
    plan = transfers.ClientTask(1, 1.0, (0.2, 1.0), [Mice("reno", (0.0,) * 3, 0.1, 0.1, 9)])
    done = subprocess.run(
        [sys.executable, "-m", transfers.__name__, "send", plan.text(), str(time.time())],
        env=os.environ | {"FOREBAY_SERVER": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("short transfers: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"30ms"', '["30ms", "60ms"]', "rtt: 30ms, 60ms"),
        ('"ftp"', '"pages"', "traffic.0.kind: pages"),
        ('tcp    = "sack"', 'access = "20Mbit/s"', "traffic.0.access: 20Mbit/s"),
        ('tcp    = "sack"', 'stop = "3s"', "traffic.0.stop: 3s"),
        ('"1500B"', '"500B"', "packet: 500B"),
    ],
)
def test_what_real_flows_cannot_do_is_refused_in_a_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        link_plans(read(tmp_path, SCENARIO.replace(old, new)))
    message = str(caught.value)
    assert "flows.toml: " + says in message
    assert "is not possible with real flows" in message
    assert "\n" not in message


def row(simulated: list[dict[str, float]], real: list[dict[str, float]]) -> Row:
    sides = [Side([run | {"mark_rate": 0.0} for run in runs]) for runs in (simulated, real)]
    return Row("", "pi", sides[0], sides[1], 0, len(real), 0, [])


@pytest.mark.parametrize(
    ("simulated", "real", "says"),
    [
        ((0.040, 0.010), (0.0439, 0.012), "agrees"),
        # 1 ms is wider than a tenth of 5 ms.
        ((0.005, 0.010), (0.0059, 0.010), "agrees"),
        ((0.040, 0.010), (0.050, 0.010), "differs: real delay +10.0 ms"),
        ((0.040, 0.010), (0.040, 0.008), "differs: real loss -20 %"),
        ((0.040, 0.010), (0.050, 0.008), "differs: real delay +10.0 ms, loss -20 %"),
        ((0.040, 0.010), (0.040, 0.0), "differs: real no loss"),
        ((0.040, 0.0), (0.040, 0.0), "agrees"),
    ],
)
def test_a_law_agrees_within_a_tenth_of_the_delay_and_a_fifth_of_the_loss(
    simulated: tuple[float, float], real: tuple[float, float], says: str
) -> None:
    # Runs that hardly differ leave no doubt; one alone leaves every, and so do runs that are all
    # the same, which are one run.
    sides = [{"delay_mean_s": delay, "drop_rate": loss} for delay, loss in (simulated, real)]
    near = [
        [{name: by * value for name, value in side.items()} for by in (0.9999, 1, 1.0001)]
        for side in sides
    ]
    assert row(*near).verdict == says
    assert row(*([side] for side in sides)).verdict == f"{says} (unsure)"
    assert row(*([side] * 3 for side in sides)).verdict == f"{says} (unsure)"


@pytest.mark.parametrize(
    ("delays_ms", "says"),
    [
        # Welch's half width of a difference to runs that do not differ is that of the real mean:
        # 4.302653 s/sqrt(3) for three.
        ([40.0, 41.0, 42.0], "agrees"),
        ([40.0, 43.0, 46.0], "agrees (unsure)"),
        ([40.0, 46.0, 52.0], "differs: real delay +6.0 ms (may be chance)"),
        ([44.0, 46.0, 48.0], "differs: real delay +6.0 ms (unsure)"),
        ([49.0, 50.0, 51.0], "differs: real delay +10.0 ms"),
    ],
)
def test_a_verdict_says_whether_the_runs_are_enough_for_it(
    delays_ms: list[float], says: str
) -> None:
    real = [
        {"delay_mean_s": delay / 1e3, "drop_rate": 0.01 + 1e-6 * i}
        for i, delay in enumerate(delays_ms)
    ]
    assert row([{"delay_mean_s": 0.040, "drop_rate": 0.01}] * 10, real).verdict == says


def both_ways(
    folder: Path, text: str, goodput: float = 1.0, void: Sequence[Remark] = ()
) -> ValidatedScenario:
    """The simulator beside itself, with a share of the goodput as if it were measured."""
    one = read(folder, text)
    simulated, real = (execution.execute(one) for _ in range(2))
    for run in real.runs:
        run.metrics.update(
            lateness_p99_s=1e-5, goodput_bps=goodput * run.metrics["goodput_bps"], made_again=0
        )
    if void:
        remarks = {(run.point, run.law, run.seed): list(void) for run in real.runs}
        real = replace(real, remarks=remarks)
    link = replace(one, engine=LinkEngine())
    return compare_engines(Result(one, simulated), Result(link, real))


def simulated_attempts(
    monkeypatch: pytest.MonkeyPatch, one: experiment.Experiment, first: list[str]
) -> None:
    """Real runs that are simulated ones; the first attempt of each seed is void for `first`."""
    asked: list[int] = []

    def once(_plan: object, seed: int, *_more: object) -> link_engine.Attempt:
        asked.append(seed)
        observed = execution.execute(one).runs[0]
        observed.metrics["lateness_p99_s"] = 1e-5
        return link_engine.Attempt(observed, first if asked.count(seed) == 1 else [])

    monkeypatch.setattr(link_engine, "once", once)


def test_void_runs_that_are_made_again_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = read(tmp_path)
    simulated_attempts(monkeypatch, one, ["1.2 ms late"])
    (plan,) = link_plans(one)
    runs = link_engine.RealRuns({(0, 0): plan}, [(0, 0, 1), (0, 0, 2)])
    told = [runs.more]
    while not runs.done:
        told.append(runs.more)
        time.sleep(0.001)
    told.append(runs.more)
    done, faults = runs.take()
    assert faults == []
    assert runs.progress() == 1
    assert [each.metrics[link_engine.MADE_AGAIN] for each in done] == [1, 1]
    assert runs.remarks == {}
    assert "; 1 attempt void and repeated, last: mine, seed 1, 1.2 ms late" in told
    assert told[-1] == "; 2 attempts void and repeated, last: mine, seed 2, 1.2 ms late"


def test_a_fault_loses_no_scenario_that_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated_attempts(monkeypatch, read(tmp_path), [])
    monkeypatch.setattr(shutil, "which", lambda _: "iperf3")
    compared: list[object] = []

    def compare_once(*both: Any) -> ValidatedScenario:
        if compared:
            raise ZeroDivisionError("by zero")
        compared.append(both)
        return compare_engines(*both)

    monkeypatch.setattr(validation, "compare_engines", compare_once)
    made = forebay.validate([tmp_path / "flows.toml"] * 2, repeats=1)
    assert len(made.comparisons) == 1
    assert made.failure.endswith("flows.toml: ZeroDivisionError: by zero")


def test_from_python_it_refuses_in_a_line_what_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(forebay.ScenarioError, match=r"missing\.toml"):
        forebay.validate([tmp_path / "missing.toml"])


def test_the_page_has_the_causes_that_apply(tmp_path: Path) -> None:
    same = both_ways(tmp_path, SCENARIO)
    assert [row.verdict for row in same.rows] == ["agrees (unsure)"]
    text = page.markdown([same], "forebay validate …", "1ms", "0.1%")
    assert "**1 of 1 laws agree" in text
    assert "None of the 2 real runs was void." in text
    assert ": 2 simulated runs, 2 real runs of each law." in text
    for title in ("Headers", "Lateness", "CUBIC", "Short transfers"):
        assert f"**{title}" not in text
    assert "**Growth under delayed ACKs**" in text

    cubic = SCENARIO.replace('"sack"', '"cubic"')
    other = both_ways(tmp_path, cubic, goodput=1448 / 1500, void=[LATE])
    text = page.markdown([other], "forebay validate …", "1ms", "0.1%")
    assert "**CUBIC above its last window**" in text
    assert "**Growth under delayed ACKs**" not in text
    assert "the real goodput is 3.5 % less in the median" in text
    assert "2 of the runs shown are void." in text


def test_what_a_program_did_makes_no_run_void(tmp_path: Path) -> None:
    said = Remark("program", "`client` of client ended with status 1: no")
    same = both_ways(tmp_path, SCENARIO, void=[said])
    assert [(row.void, row.reasons) for row in same.rows] == [(0, [])]
    both = both_ways(tmp_path, SCENARIO, void=[said, LATE])
    assert [(row.void, row.reasons) for row in both.rows] == [(2, ["void, too late"])]


def test_one_run_is_singular(tmp_path: Path) -> None:
    one = both_ways(tmp_path, SCENARIO.replace("seeds    = 2", "seeds    = 1"), void=[LATE])
    one.rows[0] = replace(one.rows[0], again=1)
    text = page.markdown([one], "forebay validate …", "1ms", "0.1%")
    assert ": 1 simulated run, 1 real run of each law." in text
    assert "Of 1 real run 1 is void, after 1 void run was repeated." in text
    assert "1 of the runs shown is void." in text


@pytest.mark.realtime
def test_real_flows_stand_beside_simulated_ones(tmp_path: Path, cli: Cli) -> None:
    """Long flows and short transfers, with everything that is written of them."""
    why_not = usable()
    if why_not:
        pytest.skip(why_not)
    text = SCENARIO.replace("[[law]]", SHORT + "[[law]]") + '[[law]]\nkind = "droptail"\n'
    (tmp_path / "flows.toml").write_text(text)
    done = cli(
        *("validate", "flows.toml", "--repeats", "1", "--attempts", "1", "--links", "2"),
        *("--json", "--page", "reality.md", "--out", "out"),
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["law"] for line in lines] == ["mine", "droptail"]
    for line in lines:
        assert len(line["simulated"]) == 2
        (real,) = line["real"]
        # The law was reached by real packets, whatever the machine made of their times.
        assert real["forwarded_packets"] > 1000
        assert real["utilisation"] > 0.5
        # 6 mice, and 2 sessions with 4 requests a second, in 2 s; two runs would differ widely.
        assert real["transfers"] >= 5
        assert 0 < real["short_goodput_bps"] < 15e6
        assert all(0 < run["short_goodput_bps"] < 15e6 for run in line["simulated"])
        assert line["differences"]["delay"]["half_width"] is None

    text = (tmp_path / "reality.md").read_text()
    assert "| mine | simulated |" in text
    assert "Goodput, short" in text
    void = re.search(r"Of \d+ real runs? \d+ (is|are) void", text)
    assert bool(void) == any(line["void"] for line in lines)

    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == [
        "agreement-1.png",
        "delays-1.png",
        "delays.parquet",
        "metrics.json",
        "metrics.parquet",
        "report.html",
    ]
    written = json.loads((out / "metrics.json").read_text())
    (scenario,) = written["scenarios"]
    assert [run["side"] for run in scenario["runs"]] == ["simulated", "simulated", "real"] * 2
    runs = pl.read_parquet(out / "metrics.parquet")
    assert runs.height == 6
    wanted = {run["metrics"]["delay_mean_s"] for run in scenario["runs"]}
    assert set(runs["delay_mean_s"]) == wanted
    delays = pl.read_parquet(out / "delays.parquet")
    # docs/reference/metrics.md lists them.
    of_runs, of_delays = ([name for name, _, _ in it.columns] for it in files.VALIDATE)
    assert runs.columns == [*of_runs, *METRICS]
    assert delays.columns == of_delays
    real = delays.filter((pl.col("law") == "mine") & (pl.col("side") == "real"))
    mean_s = np.average(real["delay_s"].to_numpy(), weights=real["packets"].to_numpy())
    # Bins are 2 % wide or finer.
    assert mean_s == pytest.approx(lines[0]["real"][0]["delay_mean_s"], rel=0.05)
    report = (out / "report.html").read_text()
    assert len(set(pages.check(report))) == 2
    assert "http-equiv" not in report
    assert lines[0]["verdict"] in report


@pytest.mark.realtime
def test_ecn_flows_are_marked_and_not_dropped(tmp_path: Path, cli: Cli) -> None:
    why_not = usable()
    if why_not:
        pytest.skip(why_not)
    # A shorter queue than the buffer, so that nothing overflows. All flows start while the queue is
    # empty: a SYN is not ECN-capable, and one that the law drops is sent again without ECN (RFC
    # 3168, section 6.1.1.1), so that the law drops packets of that flow for as long as it lasts.
    text = SCENARIO.replace('tcp    = "sack"', "ecn = true").replace('"100p"', '"300p"')
    text = text.replace('"4s"', '"5s"').replace('{ uniform = ["0s", "500ms"] }', '"0s"')
    assert 'start  = "0s"' in text
    (tmp_path / "flows.toml").write_text(text)
    done = cli("validate", "flows.toml", "--repeats", "1", "--attempts", "1", "--json")
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    for metrics in [*line["simulated"], *line["real"]]:
        assert metrics["mark_rate"] > 0
        assert metrics["drop_rate"] < metrics["mark_rate"] / 20


@pytest.mark.link
def test_an_interruption_keeps_what_finished_and_leaves_nothing_behind(tmp_path: Path) -> None:
    why_not = usable()
    if why_not:
        pytest.skip(why_not)
    text = SCENARIO.replace('["2s", "4s"]', '["1s", "2s"]').replace('"4s"', '"2s"')
    (tmp_path / "flows.toml").write_text(text)
    mark = f"PYTEST_VALIDATE={tmp_path}"

    def marked() -> list[str]:
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                    found.append((entry / "comm").read_text().strip())
            except OSError:
                continue
        return found

    def until(wanted: Callable[[list[str]], bool]) -> list[str]:
        deadline = time.monotonic() + 60
        while not wanted(found := marked()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    process = subprocess.Popen(
        command(
            *("validate", "flows.toml", "--links", "2", "--repeats", "1000", "--attempts", "1"),
            *("--page", "page.md", "--out", "out"),
        ),
        cwd=tmp_path,
        env=os.environ | dict([mark.split("=", 1)]),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        # "1 of 1000 real runs, …", which some lines with none precede.
        while int(process.stderr.readline().split()[0]) < 1:
            pass
        assert "iperf3" in until(lambda found: "iperf3" in found)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 130, errors
        assert until(lambda found: not found) == []
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in errors
    written = json.loads((tmp_path / "out" / "metrics.json").read_text())["scenarios"][0]
    assert written["partial"] is True
    count = sum(run["side"] == "real" for run in written["runs"])
    assert 1 <= count < 1000
    assert f"interrupted: {count} of 1000 real runs had finished and are reported" in errors
    partial = f"Partial result: {count} of 1000 real runs"
    assert partial in (tmp_path / "page.md").read_text()
    assert partial in (tmp_path / "out" / "report.html").read_text()


def test_a_page_that_cannot_be_written_is_refused_first(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "flows.toml").write_text(SCENARIO)
    (tmp_path / "folder").mkdir()
    # To root every file on a disk may be written.
    for wrong in ("nowhere/reality.md", "folder", "/proc/reality.md", "/proc/version"):
        done = cli("validate", "flows.toml", "--page", wrong)
        assert done.returncode == 2
        assert done.stderr.startswith(f'error: --page: "{wrong}"')
        assert done.stderr.count("\n") == 1
    # One that can be is left as it was until there is something to write.
    (tmp_path / "old.md").write_text("old")
    for right in ("new.md", "old.md"):
        done = cli("validate", "flows.toml", "--page", right, "--out", "flows.toml")
        assert done.stderr.startswith("error: --out: ")
    assert not (tmp_path / "new.md").exists()
    assert (tmp_path / "old.md").read_text() == "old"
