"""A network for tests of a transport: `forebay.Network`, and the scenarios of RFC 7928 for it."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import forebay
from forebay.env.network import Delivered, Lost
from tools import external_suite, template_copy

ROOT = Path(__file__).parents[3]

#: That of the tests in Rust.
ALONE = (ROOT / "crates" / "forebay-net" / "tests" / "alone.toml").read_text()

CUBIC = """
[[traffic]]
kind = "ftp"
label = "cubic"
flows = 5
rtt = "40ms"
tcp = "linux-cubic"
"""


def test_packets_and_timers_come_in_order_of_time() -> None:
    network = forebay.Network(ALONE)
    assert (network.flows, network.end_s, network.most_bytes(0)) == (2, 10, 1472)
    seen: list[tuple[float, object]] = []

    def delivered(packet: Delivered) -> None:
        assert packet.time_s == network.now_s
        seen.append((packet.time_s, packet.payload))
        if packet.end == "sink":
            network.send(packet.flow, "sink", "an answer", length=972)

    network.on_delivered = delivered
    network.call_at(1.0, lambda: network.send(1, "source", b"x" * 972, ecn="ect0"))
    # As the packet arrives, and after it.
    network.call_at(1.0212, lambda: seen.append((network.now_s, "timer")))
    never = network.call_later(0.5, lambda: seen.append((0, "never")))
    never.cancel()
    network.run(until_s=2)
    assert seen == [(1.0212, b"x" * 972), (1.0212, "timer"), (1.0424, "an answer")]
    assert network.now_s == 2
    network.run()
    assert network.now_s == network.end_s


def test_a_lost_packet_is_reported_with_the_reason() -> None:
    network = forebay.Network(ALONE)
    lost: list[Lost] = []
    network.on_lost = lost.append
    for number in range(30):
        network.send(0, "source", number, length=972)
    network.run()
    assert [packet.payload for packet in lost][:3] == [12, 13, 14]
    assert {(packet.why, packet.end, packet.flow) for packet in lost} == {("overflow", "source", 0)}


def sender(
    scenario: str, law: str, seed: int
) -> tuple[list[tuple[float, str, str]], dict[str, float]]:
    """A window that grows by one a round trip, and is halved; what came of it."""
    network = forebay.Network(
        scenario + CUBIC, law=law, seed=seed, overrides={"bottleneck.buffer": "80p"}
    )
    seen: list[tuple[float, str, str]] = []
    window, under_way = 2.0, 0

    def fill() -> None:
        nonlocal under_way
        while under_way < window:
            network.send(0, "source", 1200, ecn="ect0")
            under_way += 1

    def delivered(packet: Delivered) -> None:
        nonlocal window, under_way
        seen.append((packet.time_s, packet.end, packet.ecn))
        if packet.end == "sink":
            network.send(0, "sink", packet.ecn, length=40)
            return
        under_way -= 1
        window = max(2.0, window / 2) if packet.payload == "ce" else window + 1 / window
        fill()

    def lost(packet: Lost) -> None:
        nonlocal window, under_way
        seen.append((packet.time_s, packet.end, packet.why))
        window, under_way = max(2.0, window / 2), under_way - 1
        network.call_later(0.1, fill)

    network.on_delivered, network.on_lost = delivered, lost
    network.call_at(0, fill)
    network.run()
    observed = network.finish()
    [mine] = [it for it in observed.traffic if it.traffic == 0]
    return seen, observed.metrics | {f"mine_{name}": it for name, it in mine.metrics.items()}


@pytest.mark.parametrize("law", ["fq-codel", "pie"])
def test_a_transport_with_cross_traffic_repeats_bit_by_bit(law: str) -> None:
    first, again, other = sender(ALONE, law, 1), sender(ALONE, law, 1), sender(ALONE, law, 2)
    assert repr(first) == repr(again)
    assert first[0] != other[0]
    seen, metrics = first
    assert metrics["mine_goodput_bps"] > 0.2e6
    assert metrics["utilisation"] > 0.9
    arrived = sum(end == "sink" and ecn in {"ect0", "ce"} for _, end, ecn in seen)
    assert metrics["mine_goodput_bps"] == pytest.approx(8 * 1200 * arrived / 10, rel=0.2)


def test_stop_ends_a_run_which_goes_on_later() -> None:
    network = forebay.Network(ALONE)
    network.call_at(1, network.stop)
    network.run()
    assert network.now_s == 1
    network.run()
    assert network.now_s == 10


def test_a_law_in_python_may_be_its_queue() -> None:
    class DropAll(forebay.Controller):
        interval = "1ms"

        def sample(self, queue: forebay.Queue) -> float:
            return 1.0

    network = forebay.Network(ALONE, law=DropAll)
    lost: list[Lost] = []
    network.on_lost = lost.append
    network.call_at(1, lambda: network.send(0, "source", 100))
    network.run()
    assert [it.why for it in lost] == ["early"]


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (
            lambda it: it.send(9, "source", 1),
            "flow: 9 is not valid; expected the number of a flow, below 2",
        ),
        (
            lambda it: it.send(0, "left", 1),
            'end: "left" is not valid; expected one of source, sink',
        ),
        (
            lambda it: it.send(0, "sink", 1, ecn="no"),
            'ecn: "no" is not valid; expected one of not-ect, ect0, ect1, ce',
        ),
        (
            lambda it: it.send(0, "sink", 1473),
            "packet: 1501 B is not valid; expected a size from 1 B to 1500 B",
        ),
        (lambda it: it.send(0, "sink", -1), "length: -1 is negative; give a number of bytes"),
        (lambda it: it.send(0, "sink", 1.5), "length: missing; a float needs its length in bytes"),
    ],
)
def test_a_wrong_call_is_a_line(call: object, line: str) -> None:
    network = forebay.Network(ALONE)
    with pytest.raises(forebay.ScenarioError, match=re.escape(line)):
        call(network)  # type: ignore[operator]
    network.run(until_s=1)


def test_a_wrong_scenario_is_a_line() -> None:
    two = ALONE + '[[law]]\nkind = "pie"\n'
    with pytest.raises(forebay.ScenarioError, match="law: a network has one, and this has 2"):
        forebay.Network(two)
    forebay.Network(two, law="pie")
    alone = ALONE.replace('"external"', '"ftp"').replace("[[law]]", "[[law]]")
    with pytest.raises(
        forebay.ScenarioError, match="traffic: the caller has no packets to send; expected a "
    ):
        forebay.Network(alone)
    with pytest.raises(
        forebay.ScenarioError, match='"external" is sent by a program; expected a kind '
    ):
        forebay.run(ALONE)


def test_the_scenarios_of_rfc_7928_are_those_of_the_suite() -> None:
    """`python -m tools.external_suite` writes them."""
    files = {path.stem: path.read_text() for path in external_suite.FOLDER.glob("*.toml")}
    assert files == external_suite.scenarios()
    listed = (external_suite.FOLDER.parent / "src" / "rfc7928.rs").read_text()
    assert sorted(re.findall(r'scenario!\("(.+)"\)', listed)) == sorted(files)
    suite = {path.stem for path in external_suite.SUITE.glob("*.toml")}
    assert suite >= external_suite.LEFT_OUT
    for text in files.values():
        assert forebay.Network(text).flows >= 1


def test_capture_and_log_record_the_fate_of_packets(tmp_path: Path) -> None:
    capture, events = tmp_path / "a.pcapng", tmp_path / "a.jsonl"
    network = forebay.Network(ALONE, law="codel", capture=capture, events=events)
    lost: list[Lost] = []
    marked: list[Delivered] = []
    network.on_lost = lost.append
    network.on_delivered = lambda it: marked.append(it) if it.ecn == "ce" else None
    for number in range(2000):
        at_s, ecn = 0.5 + 0.001 * number, ("ect0", "not-ect")[number % 2]
        network.call_at(
            at_s,
            lambda ecn=ecn: network.send(0, "source", b"x" * 1400, ecn=ecn),  # type: ignore[misc]
        )
    network.run()
    network.finish()
    rows = [json.loads(line) for line in events.read_text().splitlines()]
    by_event = Counter(row["event"] for row in rows)
    assert by_event["enqueue"] == by_event["dequeue"] + by_event["drop"] - sum(
        row["event"] == "drop" and row["reason"] == "overflow" for row in rows
    )
    assert by_event["mark"] == len(marked) > 0
    drops = Counter(row["reason"] for row in rows if row["event"] == "drop")
    assert drops == Counter(it.why for it in lost)
    assert {row["packet"] for row in rows} == set(range(2000))
    # A section, an interface, and packets with 28 bytes of headers before theirs.
    assert capture.read_bytes()[:4] == b"\x0a\x0d\x0d\x0a"
    assert capture.read_bytes().count(b"x" * 1400) == by_event["dequeue"] + by_event["drop"]

    with pytest.raises(OSError, match="No such file"):
        forebay.Network(ALONE, events=tmp_path / "nowhere" / "a.jsonl")


@pytest.mark.parametrize("language", ["c", "rust"])
def test_the_workflow_of_a_template_pins_every_action(language: str) -> None:
    folder = ROOT / "templates" / language / ".github" / "workflows"
    [workflow] = folder.glob("*.yml")
    text = workflow.read_text()
    used = re.findall(r"uses: (\S+)", text)
    assert used
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in used)
    assert "FOREBAY_RESULTS: results" in text
    assert "permissions:\n  contents: read" in text


@pytest.mark.parametrize("time_s", [float("nan"), float("inf")])
def test_a_timer_needs_a_time(time_s: float) -> None:
    with pytest.raises(forebay.ScenarioError, match=r"time_s: .* is not a time"):
        forebay.Network(ALONE).call_at(time_s, lambda: None)


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
def test_a_copy_of_the_template_stands_alone(tmp_path: Path) -> None:
    """The commands of docs/howto/your-stack.md run in the clone that `make template` builds.

    One law is enough.
    """
    done = template_copy.main(["fq_codel"], FOREBAY_RESULTS=str(tmp_path / "results"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    [first, *_] = [number for number, line in enumerate(lines) if "fq-codel  its share" in line]
    # In one piece.
    assert all("fq-codel  its share" in line for line in lines[first : first + 21])
    rows = json.loads((tmp_path / "results" / "fq-codel.json").read_text())
    assert len(rows) == 21
    assert all(row["passed"] and row["metrics"]["utilisation"] > 0.3 for row in rows)
    suite = ElementTree.parse(tmp_path / "results" / "fq-codel.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("21", "0")
