"""One scenario simulated and with real flows. How close they are is docs/reality.md's to say:
nothing here asserts it of a machine that may be busy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Cli, command

from forebay import emulator, experiment, validate
from forebay._native import ScenarioError
from forebay.emulator import LinkError, settings
from forebay.validate.comparison import Row, Side
from forebay.validate.mapping import LEAD_S, RETURN_RATE

SCENARIO = """\
title    = "Three flows"
duration = "4s"
measure  = ["2s", "4s"]
seeds    = 2
[bottleneck]
rate   = "15Mbit/s"
buffer = "100p"
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
        emulator.run(settings("10Mbit/s"), ["true"], timeout_s=60)
    except LinkError as error:
        return str(error)
    return ""


def read(folder: Path, text: str = SCENARIO) -> experiment.Experiment:
    path = folder / "flows.toml"
    path.write_text(text)
    return experiment.read(path)


def test_the_link_is_the_scenarios(tmp_path: Path) -> None:
    (plan,) = validate.link_plans(read(tmp_path))
    wanted = plan.settings(7, "1ms", "0.1%")
    up, down = wanted.check()
    assert wanted.up.aqm == "pi"
    assert dict(up.law.params)["a"] == "0.00355"
    assert up.rate_bps == 15_000_000
    assert down.law.title.startswith("DropTail")
    assert wanted.down.rate == RETURN_RATE
    # Half the RTT each way, and the window later by what the servers take to come up.
    assert {wanted.up.delay, wanted.down.delay} == {"15000000ns"}
    assert wanted.measure == f"{round(1e9 * (LEAD_S + 2))}ns..{round(1e9 * (LEAD_S + 4))}ns"
    script = plan.command(7)[-1]
    assert script.count("-C reno") == 3
    assert script == plan.command(7)[-1] != plan.command(8)[-1]


def test_cubic_is_the_kernels_cubic_and_ecn_is_asked_for(tmp_path: Path) -> None:
    text = SCENARIO.replace('tcp    = "sack"', 'tcp = "cubic"\necn = true')
    (plan,) = validate.link_plans(read(tmp_path, text))
    script = plan.command(1)[-1]
    assert script.count("-C cubic") == 3
    assert "tcp_ecn" in script


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('"30ms"', '["30ms", "60ms"]', "rtt: found 30ms, 60ms"),
        ('"ftp"', '"mice"', "traffic.0.kind: found mice"),
        ('tcp    = "sack"', 'access = "20Mbit/s"', "traffic.0.access: found 20Mbit/s"),
        ('tcp    = "sack"', 'stop = "3s"', "traffic.0.stop: found 3s"),
        ('"1500B"', '"500B"', "packet: found 500B"),
    ],
)
def test_what_real_flows_cannot_do_is_refused_in_a_line(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        validate.link_plans(read(tmp_path, SCENARIO.replace(old, new)))
    message = str(caught.value)
    assert "flows.toml: " + says in message
    assert "allowed for real flows: " in message
    assert "\n" not in message


def row(simulated: dict[str, float], real: dict[str, float]) -> Row:
    whole = {"mark_rate": 0.0}
    return Row("", "pi", Side([simulated | whole]), Side([real | whole]), 0, 1, 0, [])


@pytest.mark.parametrize(
    ("simulated", "real", "says"),
    [
        ((0.040, 0.010), (0.0439, 0.012), "agrees"),
        # 1 ms is wider than a tenth of 5 ms.
        ((0.005, 0.010), (0.0059, 0.010), "agrees"),
        ((0.040, 0.010), (0.050, 0.010), "real delay +10.0 ms"),
        ((0.040, 0.010), (0.040, 0.008), "real loss -25 %"),
        ((0.040, 0.010), (0.040, 0.0), "real loss -inf %"),
        ((0.040, 0.0), (0.040, 0.0), "agrees"),
    ],
)
def test_a_law_agrees_within_a_tenth_of_the_delay_and_a_fifth_of_the_loss(
    simulated: tuple[float, float], real: tuple[float, float], says: str
) -> None:
    sides = [{"delay_mean_s": delay, "drop_rate": loss} for delay, loss in (simulated, real)]
    assert row(*sides).verdict() == says


def test_real_flows_stand_beside_simulated_ones(tmp_path: Path, cli: Cli) -> None:
    why_not = usable()
    if why_not:
        pytest.skip(why_not)
    (tmp_path / "flows.toml").write_text(SCENARIO)
    done = cli(
        *("validate", "flows.toml", "--repeats", "1", "--attempts", "1", "--json"),
        *("--page", "reality.md"),
    )
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert (line["law"], line["repeats"]) == ("mine", 1)
    assert len(line["simulated"]) == 2
    (real,) = line["real"]
    # The law was reached by real packets, whatever the machine made of their times.
    assert real["forwarded_packets"] > 1000
    assert real["utilisation"] > 0.5
    page = (tmp_path / "reality.md").read_text()
    assert "| mine | simulated |" in page
    assert ("stayed void" in page) == (line["void"] == 1)


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    why_not = usable()
    if why_not:
        pytest.skip(why_not)
    (tmp_path / "flows.toml").write_text(
        SCENARIO.replace('"4s"]', '"60s"]').replace('"4s"', '"60s"')
    )
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
        command("validate", "flows.toml", "--links", "2"),
        cwd=tmp_path,
        env=os.environ | dict([mark.split("=", 1)]),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert "iperf3" in until(lambda found: "iperf3" in found)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert until(lambda found: not found) == []
    finally:
        process.kill()
        process.wait()


def test_a_page_that_cannot_be_written_is_refused_first(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "flows.toml").write_text(SCENARIO)
    done = cli("validate", "flows.toml", "--page", "nowhere/reality.md")
    assert done.returncode == 2
    assert done.stderr.startswith("--page: found nowhere/reality.md")
