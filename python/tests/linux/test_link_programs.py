"""Unmodified programs over a link in real time. Nothing here asserts how punctual a machine is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
from conftest import one_bottleneck, started, table
from links import (
    commands_with,
    in_real_time,
    marked,
    needs_iperf3,
    needs_link,
    nothing_stays,
    wait_until,
)

import forebay
from forebay._base.errors import RunError
from forebay._base.temporary import own_prefix
from forebay._native import ScenarioError
from forebay.experiment import descriptions, experiment
from forebay.linux import link_outcome
from forebay.linux.flow_mapping import link_plans
from forebay.linux.link_engine import Limits, LinkEngine

__all__ = ["marked", "nothing_stays"]

#: However late a busy machine is, these runs are sound.
ENGINE = LinkEngine(limits=Limits(attempts=1, void_lateness="10s", void_rate="100%"))
TOP = one_bottleneck(("1s", "4s"), "10Mbit/s", "100p", delay="0ms", seeds=1)
TOP += table("law", kind="codel")
PROGRAM = table("traffic", kind="program", flows=1, packet="1500B", rtt="20ms")
FTP = table("traffic", kind="ftp", tcp="linux-cubic", flows=1, packet="1500B", rtt="20ms")


def told(result: forebay.Result, out: Path) -> list[dict[str, object]]:
    """What a written result says of its programs, with what each wrote."""
    result.report(out)
    programs = json.loads((out / "metrics.json").read_text())["programs"]
    return [one | {"said": (out / one["output"]).read_text()} for one in programs]


def test_programs_are_planned_as_the_scenario_has_them(tmp_path: Path) -> None:
    more = (
        'client = "two"\nserver = "one"\nfiles = ["bin/x"]\necn = true\nstop = "3s"\nlabel = "p"\n'
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/x").write_text("")
    file = tmp_path / "plan.toml"
    file.write_text(TOP + FTP + PROGRAM.replace("flows = 1", "flows = 2") + more)
    (plan,) = link_plans(experiment.read(file, engine=ENGINE))
    one, two = plan.programs(1)
    assert one == two
    assert (one.client, one.server, one.files) == ("two", "one", ["bin/x"])
    assert ("net.ipv4.tcp_ecn", "1") in one.sysctls
    assert (one.start_s, one.stop_s) == (0, (3, 3))
    assert plan.folder == tmp_path
    assert plan.apart() == (2, [1, 1], [(5201, 0)])
    # The link's own senders do not ask for it.
    assert "echo 0 > /proc/sys/net/ipv4/tcp_ecn" in plan.command(1)[-1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            TOP + PROGRAM.replace("flows = 1", "flows = 251") + 'client = "true"\n',
            "traffic.flows: 251 programs is not possible with real flows",
        ),
        (
            TOP + FTP + PROGRAM.replace("20ms", "40ms") + 'client = "true"\n',
            "rtt: 20ms, 40ms is not possible with real flows",
        ),
        (
            TOP + PROGRAM + 'client = "true"\nfiles = "not here"\n',
            'traffic.0.files: "not here" is not valid; expected a readable file, ',
        ),
    ],
)
def test_what_a_link_cannot_run_is_a_line(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        forebay.run(text, engine="link")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@in_real_time
@needs_iperf3
def test_iperf3_and_a_web_server_run_as_they_are(tmp_path: Path) -> None:
    """Each on hosts of its own: two servers have the same port, and a third that of iperf3's."""
    (tmp_path / "page").write_bytes(os.urandom(300_000))
    fetch = "import os, urllib.request as u\n"
    fetch += "print(len(u.urlopen('http://%s:8000/page' % os.environ['FOREBAY_SERVER']).read()))\n"
    (tmp_path / "fetch.py").write_text(fetch)
    web = f'client = "{sys.executable} fetch.py"\nserver = "{sys.executable} -m http.server 8000"\n'
    web += 'files = ["page", "fetch.py"]\nlabel = "web"\nstart = "1s"\n'
    iperf3 = 'client = "iperf3 -R -c $FOREBAY_SERVER -t 30"\nserver = "iperf3 -s"\nstart = "0.5s"\n'
    file = tmp_path / "both.toml"
    kept = "\n[kernel]\npcap = true\n"
    pages = PROGRAM.replace("flows = 1", "flows = 2")
    # Two interpreters take a while to load on a machine with two cores.
    top = TOP.replace('"4s"', '"8s"')
    file.write_text(top + pages + web + FTP + PROGRAM + iperf3 + kept)
    result = forebay.run(file, engine=ENGINE)
    ended = told(result, tmp_path / "out")
    clients = [one for one in ended if one["end"] == "client"]
    assert [one["traffic"] for one in clients] == [0, 0, 2]
    for one in clients[:2]:
        assert (one["status"], one["said"]) == (0, "300000\n"), one
    # It never ends: it is stopped at the scenario's end.
    assert clients[2]["status"] is None
    assert "iperf3: interrupt - the client has terminated" in str(clients[2]["said"])
    assert all(one["status"] is None for one in ended if one["end"] == "server")
    # A machine whose default hardly follows a law is told of: iperf3 has it here.
    default = link_outcome.default_congestion_control()
    warned = " ".join(text for text, _ in descriptions.warnings(result))
    assert (f"congestion control of programs is {default}" in warned) == bool(
        link_outcome.congestion_warning(default)
    )
    # Who gets what, by traffic: 2 · 300 kB in 7 s, and something for each of the others.
    got = dict(result.traffic.select("label", "goodput_bps").iter_rows())
    assert got["web"] == pytest.approx(2 * 8 * 300e3 / 7, rel=0.05)
    assert all(each > 1e5 for each in got.values()) and len(got) == 3
    assert sum(got.values()) == pytest.approx(result.metrics["goodput_bps"][0], rel=0.02)
    # Every packet at the bottleneck is in the capture, on the scenario's clock.
    again = tmp_path / "again.toml"
    came = '\n[[traffic]]\nkind = "arrivals"\nfile = "out/pcap/codel-1.pcapng"\n'
    again.write_text(top + came)
    replayed = forebay.run(again).samples["arrivals"].sum()
    assert replayed == pytest.approx(result.samples["arrivals"].sum(), abs=110)


@needs_link
def test_what_programs_say_and_how_they_end_is_in_the_result(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("of a file\n")
    (tmp_path / "hidden").write_text("")
    client = "cat words; ls; echo bad >&2; exit 7"
    file = tmp_path / "said.toml"
    file.write_text(TOP + PROGRAM + f'client = "{client}"\nfiles = "words"\n')
    result = forebay.run(file, engine=ENGINE)
    (one,) = told(result, tmp_path / "out")
    assert (one["status"], one["end"], one["seed"]) == (7, "client", 1)
    assert one["said"] == "of a file\nwords\nbad\n"
    assert one["output"] == "programs/codel-1-0.txt"
    warned = [text for text, _ in descriptions.warnings(result)]
    assert f"CoDel: 1 of 1 runs: `{client}` of client ended with status 7: bad" in warned[0]


@in_real_time
def test_a_program_that_is_not_there_is_a_line_and_is_not_tried_again(tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    file.write_text(TOP + PROGRAM + 'client = "./nowhere"\n')
    began_s = time.monotonic()
    with pytest.raises(RunError, match=r"`./nowhere` of client ended with status 127.*not found"):
        forebay.run(file, engine="link")
    # One attempt of 5 s, and what a busy machine takes besides.
    assert time.monotonic() - began_s < 12


@in_real_time
def test_a_program_stops_when_it_is_to_stop_with_all_that_it_started(tmp_path: Path) -> None:
    """It counts, in a shell below a shell, and takes no notice of being asked to end."""
    count = "trap '' TERM; (for i in $(seq 600); do echo $i; sleep 0.1; done)"
    file = tmp_path / "stop.toml"
    more = f'client = "{count}"\nstart = "1s"\nstop = "2s"\n'
    file.write_text(TOP + PROGRAM + more)
    (one,) = told(forebay.run(file, engine=ENGINE), tmp_path / "out")
    assert one["status"] is None
    assert 5 <= len(str(one["said"]).splitlines()) <= 13


@needs_link
@pytest.mark.parametrize("asks", [True, False])
def test_hosts_of_programs_ask_for_ecn_where_the_scenario_says_so(
    asks: bool, tmp_path: Path
) -> None:
    file = tmp_path / "ecn.toml"
    client = "cat /proc/sys/net/ipv4/tcp_ecn"
    ecn = f'client = "{client}"\nserver = "{client}"\necn = {str(asks).lower()}\n'
    file.write_text(TOP + PROGRAM + ecn)
    ended = told(forebay.run(file, engine=ENGINE), tmp_path / "out")
    assert [one["said"] for one in ended] == [f"{int(asks)}\n"] * 2


@needs_link
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_programs_that_were_interrupted(
    how: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "long.toml"
    # It leaves its parent and its session.
    client = "setsid sh -c 'while :; do sleep 1; done' & exec sleep 1000"
    more = f'client = "{client}"\nserver = "sleep 1000"\n'
    file.write_text(TOP.replace('"4s"', '"600s"') + PROGRAM + more)
    mark = f"PYTEST_PROGRAMS={tmp_path}"
    words = ("run", "long.toml", "--engine", "link", "--out", "out")
    process = started(tmp_path, *words, env=os.environ | dict([mark.split("=", 1)]))
    try:
        wait_until(mark, runs="while :")
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
        wait_until(mark, runs=None)
        assert commands_with(mark) == []
        if how == signal.SIGINT:
            assert process.returncode == 130, errors
            assert "interrupted: 0 of 1 run had finished" in errors
            assert not list(
                Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{own_prefix(process.pid)}*")
            )
    finally:
        process.kill()
        process.wait()
        for folder in Path(os.environ.get("TMPDIR", "/tmp")).glob(f"{own_prefix(process.pid)}*"):
            shutil.rmtree(folder, ignore_errors=True)
    assert not (tmp_path / "out" / "metrics.json").exists()
