"""`forebay init` for a router: a home line with both directions, and lines for every law."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest
from conftest import Cli

from forebay import ScenarioError
from forebay._base import quantities, registries
from forebay.experiment import experiment
from forebay.guide import starter
from forebay.scenario import qdiscs, router

LINES = tomllib.loads(resources.files("forebay.guide").joinpath("lines.toml").read_text())


def commands(text: str, device: str = "") -> list[str]:
    """The commands in the comments of a scenario; of one device."""
    lines = [line.removeprefix("#   ") for line in text.splitlines()]
    found = [line for line in lines if line.startswith(("tc ", "ip ", "sudo "))]
    return [line for line in found if not device or f" dev {device} " in f"{line} "]


def test_a_home_line_has_both_directions(cli: Cli) -> None:
    done = cli("init", "-", "--line", "vdsl2-pppoe", "--down", "100Mbit/s", "--up", "20Mbit/s")
    assert done.returncode == 0, done.stderr
    written = tomllib.loads(done.stdout)
    # 1492 + 30 bytes, and one more for each 64 begun.
    assert written["bottleneck"]["rate"] == quantities.rate(round(1e8 * 1492 / 1546))
    (up,) = written["link"]
    assert (up["name"], up["from"], up["to"]) == ("up", "right", "left")
    assert up["law"]["bandwidth"] == "20Mbit/s"
    assert [traffic["packet"] for traffic in written["traffic"]] == ["1492B", "1492B"]
    cake = written["law"][0]
    assert (cake["bandwidth"], cake["overhead"], cake["framing"]) == ("100Mbit/s", "30B", "ptm")
    found = commands(done.stdout)
    leaves, into = found[0], found[1:6]
    assert "dev pppoe-wan root cake" in leaves and leaves.endswith(" nat")
    assert " bandwidth 20000000bit " in leaves and " overhead 30 mpu 0 ptm " in leaves
    assert into[0] == "ip link add name ifb4pppoe-wan type ifb"
    assert into[2] == "tc qdisc replace dev pppoe-wan handle ffff: ingress"
    assert into[3].endswith("action mirred egress redirect dev ifb4pppoe-wan")
    assert "dev ifb4pppoe-wan root cake" in into[4] and into[4].endswith(" nat ingress")
    assert "an IP packet of 1492 bytes takes 1546 bytes of the line" in done.stderr
    up_tested = starter.for_line("x", "docsis", "100Mbit", "20mbit", direction="up", device="wan")
    written = tomllib.loads(up_tested.text)
    assert written["bottleneck"]["rate"] == quantities.rate(round(2e7 * 1500 / 1518))
    assert written["law"][0]["isolation"] == "dual-srchost"
    assert len(commands(up_tested.text, "wan")) > 3


@pytest.mark.parametrize("kind", LINES)
def test_the_commands_of_a_line_carry_its_packets(kind: str) -> None:
    """What is printed, read again, lets the line's packets through at the line's rate."""
    made = starter.for_line("x.toml", kind, "16Mbit/s", "1Mbit/s", laws=["cake", "codel"])
    assert experiment.read(made.text)
    line = starter.home_line(kind, "16Mbit/s", "1Mbit/s", "down", None)
    laws = made.text.split("[[law]]")
    for device, direction in ((line.device, "up"), (router.ifb_of(line.device), "down")):
        found = [line for line in commands(laws[2], device) if "parent ffff" not in line]
        lines = "\n".join(line for line in found if " ingress" not in line and "type" not in line)
        rate_bps = qdiscs.read(lines, line.packet_bytes).rate_bps
        wanted = line.packets_bps(direction)
        # A size table rounds packets up to its slots of 4 bytes; their cells hide that.
        assert rate_bps == pytest.approx(wanted, rel=2e-6 if line.framing.cells != "none" else 3e-3)
        cake = [line for line in commands(laws[1], device) if " cake " in line]
        law = qdiscs.read("\n".join(cake), line.packet_bytes).law.table()
        assert law.get("overhead", "0B") == f"{line.framing.overhead_bytes}B"
        assert law.get("framing", "none") == line.framing.cells


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--line", "vdsl", "--down", "9Mbit/s", "--up", "9Mbit/s"),
            '--line: "vdsl" is not valid; expected one of ',
        ),
        (("--line", "docsis", "--down", "9Mbit/s"), "--up: the rate is missing, which --line"),
        (
            ("--line", "docsis", "--down", "9", "--up", "9Mbit/s"),
            '--down: "9" is not valid; expected a rate with its unit, such as "45Mbit/s" (',
        ),
        (("--line", "docsis", "--rate", "9Mbit/s"), "--rate cannot be combined with --line"),
        (("--down", "9Mbit/s"), "--down requires --line"),
        (
            ("--line", "docsis", "--down", "9Mbit/s", "--up", "9Mbit/s", "--direction", "back"),
            '--direction: "back" is neither down nor up',
        ),
        (("--rtt", "100ms..10ms"), '--rtt: "100ms..10ms" begins with its longer end'),
        (("--tc", "tc qdisc add dev eth0 root foo"), "--tc: foo: this qdisc is not simulated"),
    ],
)
def test_a_wrong_option_of_a_line_is_one_line(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = cli("init", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}"), done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_round_trips_are_values_ranges_and_lists() -> None:
    assert starter.round_trips(["10ms,100ms"]) == ["10ms", "100ms"]
    assert starter.round_trips(["10ms..100ms"]) == ["10ms", "32.5ms", "55ms", "77.5ms", "100ms"]
    assert starter.round_trips(["10..50ms", "1s"]) == ["10ms", "20ms", "30ms", "40ms", "50ms", "1s"]
    written = tomllib.loads(starter.scenario("x.toml", rtts=["20ms..100ms"]).text)
    assert written["traffic"][0]["rtt"] == ["20ms", "40ms", "60ms", "80ms", "100ms"]
    with pytest.raises(ScenarioError, match="--rtt"):
        starter.round_trips(["soon"])


def test_every_law_has_lines_or_a_reason() -> None:
    laws = list(registries.laws())
    text = starter.scenario("x.toml", laws=laws).text
    sections = dict(zip(laws, text.split("[[law]]")[1:], strict=True))
    qdisc = {law for law in laws if any(" root " in line for line in commands(sections[law]))}
    assert {"droptail", "codel", "fq-codel", "pie", "fq-pie", "dualpi2", "cake"} <= qdisc
    for law in set(laws) - qdisc:
        assert "No" in sections[law].split("On a router with Linux:")[1], law
    assert 'inside its qdisc dualpi2 alone; the law\'s key queue = "dualpi2"' in sections["pi2"]
    assert "inside its qdisc cake alone" in sections["cobalt"]
    assert "gentle" in sections["red"] and "gentle" in sections["ared"]
    (attach,) = commands(sections["pi"])
    assert attach == "sudo forebay attach eth0 pi --rate 20Mbit/s --design flows=20,rtt=40ms..80ms"


def test_flow_queues_have_linuxs_limit() -> None:
    made = starter.scenario("x.toml", laws=["codel", "fq-codel", "fq-pie", "cake"])
    laws = {law["kind"]: law for law in tomllib.loads(made.text)["law"]}
    assert laws["fq-codel"]["limit"] == laws["fq-pie"]["limit"] == "10240p"
    # 4 MiB of 2304 bytes a packet.
    assert laws["cake"]["limit"] == "1820p"
    found = commands(made.text)
    assert sum(" limit 10241 " in line for line in found) == 2
    assert any("memlimit 4193280" in line for line in found)
    assert any("codel limit 134 " in line for line in found)
    given = starter.scenario("x.toml", buffer="50p", laws=["fq-codel"]).text
    assert "fq_codel limit 51 " in given and "10240" not in given


def test_the_devices_name_stays() -> None:
    line = "tc qdisc add dev wan root cake bandwidth 10mbit overhead 18 nat no-split-gso"
    made = starter.scenario("x.toml", tc=line)
    assert all(" dev wan " in command for command in commands(made.text))
    assert (
        "#   These words do not change the simulation: nat (hosts have addresses of their own),"
        in (made.text)
    )
    assert any("no-split-gso" in note for note in made.notes)
    on_ppp = starter.scenario("x.toml", "15Mbit/s", tc="qdisc codel 1: dev ppp0 root limit 99p")
    assert "tc qdisc replace dev ppp0 root handle 1: tbf rate 15000000bit" in on_ppp.text


#: Sends frames of 1500 bytes of IP through a device for some seconds, and says at which rate their
#: bits of IP leave the first qdisc of another one.
SENDER = """
import json, socket, subprocess, sys, time
through, counted, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((through, 0))
link.setblocking(False)
frame = bytes(12) + b"\\x08\\x00\\x45" + bytes(1499)
def packets():
    words = ["tc", "-s", "-j", "qdisc", "show", "dev", counted, "root"]
    return json.loads(subprocess.check_output(words))[0]["packets"], time.monotonic()
end, first = time.monotonic() + seconds, None
while time.monotonic() < end:
    try:
        for _ in range(8):
            link.send(frame)
    except (BlockingIOError, OSError):
        pass
    if first is None and time.monotonic() > end - seconds + 0.5:
        first = packets()
    time.sleep(0.002)
last = packets()
print((last[0] - first[0]) * 12000 / (last[1] - first[1]))
"""


@pytest.mark.linux
@pytest.mark.realtime
@pytest.mark.parametrize("kind", ["adsl-bridged", "ethernet", "vdsl2-ptm", "lte"])
def test_linux_shapes_both_directions_as_printed(kind: str, tmp_path: Path) -> None:
    """In a namespace of its own, with veth and ifb: IP packets leave at the scenario's rate."""
    if os.geteuid() != 0 or not (shutil.which("tc") and shutil.which("unshare")):
        pytest.skip("needs root, tc and unshare")
    made = starter.for_line("x", kind, "3Mbit/s", "1Mbit/s", device="v0", laws=["droptail"])
    line = starter.home_line(kind, "3Mbit/s", "1Mbit/s", "down", "v0")
    sender = tmp_path / "sender.py"
    sender.write_text(SENDER)
    script = "\n".join(
        [
            "set -e",
            "ip link add v0 type veth peer name v1 || exit 77",
            "ip link set v0 up; ip link set v1 up",
            *commands(made.text),
            # Both at the same time: the directions share nothing.
            f"{sys.executable} {sender} v1 ifb4v0 4 > {tmp_path}/down & down=$!",
            f"{sys.executable} {sender} v0 v0 4",
            f"wait $down; cat {tmp_path}/down",
        ]
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    unknown = ("qdisc kind is unknown", "Unknown device type", "not supported", "not found")
    if done.returncode == 77 or any(text in done.stderr for text in unknown):
        pytest.skip(f"needs veth, ifb, tbf, u32 and mirred: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    up_bps, down_bps = map(float, done.stdout.split())
    assert up_bps == pytest.approx(line.packets_bps("up"), rel=0.03)
    assert down_bps == pytest.approx(line.packets_bps("down"), rel=0.03)
