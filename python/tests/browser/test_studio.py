"""The studio: its state and scenarios, its door, and its page in a real browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import random
import socket as plain_socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest
from chromium import browser, faults, needs_chromium, opened, settled, studio
from conftest import SCENARIO, Cli
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

import forebay
from forebay import _native
from forebay._base import registries
from forebay.guide import starter
from forebay.studio import packets, scenario, session, state, theory
from forebay.studio import server as studio_server
from forebay.studio.packets import Outdated
from forebay.studio.scenario import BaseScenario
from forebay.studio.server import REQUEST_S
from forebay.studio.session import TheoryProcess

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser", "faults"]  # fixtures that are in force here

EXPERIMENTS = Path(__file__).parents[3] / "experiments"


# --- the state ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def base() -> BaseScenario:
    return BaseScenario.from_source(None)


def params(now: state.State) -> dict[str, state.Params]:
    return {side: of.params for side, of in state.all_gains(now).items()}


def test_an_address_holds_only_the_changes(base: BaseScenario) -> None:
    start = base.start
    assert start.address(start) == ""
    texts = {"rate": "30Mbit/s", "a.target": "40p", "b": "red", "b.max_p": "0.02", "b.by": "hand"}
    now = state.parse(start.texts() | texts, start)
    address = now.address(start)
    assert state.parse(dict(parse_qsl(address, keep_blank_values=True)), start) == now
    assert "buffer" not in address and "rate=30Mbit/s" in address
    assert state.parse(now.texts(), start) == now


@pytest.mark.parametrize(
    ("texts", "line"),
    [
        ({"rate": "40furlongs"}, 'rate: "40furlongs" is not valid; expected a rate'),
        ({"rate": "1kbit/s"}, 'rate: "1kbit/s" is not valid; expected 100kbit/s to 10Gbit/s'),
        ({"flows": "2.5"}, 'flows: "2.5" is not valid; expected a whole number'),
        ({"flows": "nan"}, 'flows: "nan" is not valid; expected a whole number'),
        ({"spread": "-1"}, 'spread: "-1" is not valid; expected 0 to 0.95'),
        ({"tcp": "vegas"}, 'tcp: "vegas" is not valid; expected reno'),
        ({"ecn": "maybe"}, 'ecn: "maybe" is not valid; expected true or false'),
        ({"a": "magic"}, 'a: "magic" is not valid; expected one of droptail, red, pi'),
        ({"a": ""}, 'a: "" is not valid; expected a law'),
        ({"a": "pi", "a.gain": "1"}, "a.gain: unknown key; expected one of "),
        ({"a": "pi", "a.a": "5"}, "a.a: 5 is not valid; expected a value from 0 to 1"),
        ({"b.max_p": "1"}, "b.max_p: side b has no law"),
        ({"colour": "red"}, 'state: "colour" is not valid; expected rate'),
        ({"rate": "10Gbit/s", "duration": "3600s"}, 'duration: "3600s": it is'),
        ({"rate": 5}, "rate: expected a text"),
        ([], "state: expected texts by key"),
    ],
)
def test_a_state_that_cannot_be_gives_one_line(base: BaseScenario, texts: Any, line: str) -> None:
    with pytest.raises(forebay.ScenarioError) as error:
        state.parse(texts, base.start)
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", [entry["name"] for entry in forebay.laws()])
def test_every_law_can_be_chosen(base: BaseScenario, kind: str) -> None:
    """It runs, its declared parameters are read, and theory has a picture or a reason."""
    now = state.parse({"duration": "3s", "a": kind}, base.start)
    settled = state.all_gains(now)
    plan = base.plan(now, params(now))
    (run,) = packets.run(plan, 1, lambda: False)
    drawn = packets.curves(plan, [run], ["a"], 100)["laws"]["a"]
    assert max(drawn["queue_pkts"]) <= now.buffer + 1
    of = theory.loops(now, settled)["laws"]["a"]
    assert of.get("reason") or of["margins"]["phase_deg"] is not None
    entry = registries.law(kind)
    if not entry["baseline"]:
        assert now.a.designed == entry["has_rule"]


def test_the_queue_is_that_of_forebay_run(base: BaseScenario, tmp_path: Path) -> None:
    """Bit for bit, from the file that is saved; and each bin shows its extremes."""
    texts = {"duration": "20s", "rate": "10Mbit/s", "b": "red", "event": "more-flows", "mice": "3"}
    now = state.parse(texts, base.start)
    plan = base.plan(now, params(now))
    runs = packets.run(plan, 1, lambda: False)
    (tmp_path / "saved.toml").write_text(base.toml(now, params(now)))
    result = forebay.run(tmp_path / "saved.toml")
    for mine, theirs in zip(runs, result.runs, strict=True):
        assert np.array_equal(mine.samples["queue_pkts"], theirs.samples["queue_pkts"])
        queue = packets.extremes(mine.samples["queue_pkts"], 200)
        assert queue.max() == mine.samples["queue_pkts"].max()
        assert queue.min() == mine.samples["queue_pkts"].min()


def test_it_warns_as_forebay_run_does(base: BaseScenario, tmp_path: Path) -> None:
    slow = {"a": "pi", "a.by": "hand", "a.target": "50p", "duration": "30s"}
    now = state.parse(slow, base.start)
    plan = base.plan(now, params(now))
    mine = packets.warnings(plan, packets.run(plan, 1, lambda: False))
    theirs = forebay.run(base.toml(now, params(now))).warnings
    assert mine == [f"{registries.title_of(found.law)}: {found.text}" for found, _ in theirs]
    assert mine


def test_an_outdated_run_ends_early(base: BaseScenario) -> None:
    long = state.parse({"rate": "100Mbit/s", "duration": "600s", "buffer": "800p"}, base.start)
    with pytest.raises(packets.Outdated):
        packets.run(base.plan(long, {}), 1, lambda: True)


def test_an_outdated_analysis_ends_early(
    base: BaseScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its time constants are far apart: this loop takes half a second.
    monkeypatch.setattr(session, "OUTDATED_S", 0.05)
    slow = {"a": "stred", "a.by": "hand", "a.rtt": "2671ms", "a.crossover": "0.153"}
    slow |= {"packet": "208B", "buffer": "3563p"}
    now = state.parse(slow, base.start)
    process, start = TheoryProcess(), base.start
    try:
        process.ask("loops", start, state.all_gains(start), outdated=lambda: False)
        with pytest.raises(Outdated):
            process.ask("loops", now, state.all_gains(now), outdated=lambda: True)
        answer = process.ask("loops", start, state.all_gains(start), outdated=lambda: False)
        assert answer == theory.loops(start, state.all_gains(start))
    finally:
        process.close()
    with pytest.raises(Outdated):
        process.ask("loops", start, {}, outdated=lambda: False)


def test_another_seed_is_the_same_run_as_that_seed_of_forebay_run(
    base: BaseScenario, tmp_path: Path
) -> None:
    now = state.parse({"duration": "5s", "seed": "3"}, base.start)
    (run,) = packets.run(base.plan(now, {}), now.seed, lambda: False)
    (tmp_path / "saved.toml").write_text(base.toml(now, {}))
    third = forebay.run(tmp_path / "saved.toml").runs[2]
    assert (run.seed, run.metrics["forwarded_packets"]) == (3, third.metrics["forwarded_packets"])


@pytest.mark.parametrize(
    "file",
    ["pi-pd/load.toml", "fluid/load-step.toml", "reality/cubic.toml", "rfc7928/9-1-mix.toml"],
)
def test_a_scenario_file_is_unchanged_until_a_control_moves(file: str) -> None:
    base = BaseScenario.from_source(EXPERIMENTS / file)
    text = base.toml(base.start, {})
    saved = _native.plan(text.encode(), "saved", read=lambda _: None)
    mine = base.plan(base.start, {}).points[0]
    theirs = _native.plan((EXPERIMENTS / file).read_bytes(), file).points[0]
    for point in (saved.points[0], mine):
        assert [it.flows for it in point.traffic] == [it.flows for it in theirs.traffic]
        assert [it.rtts_s for it in point.traffic] == [it.rtts_s for it in theirs.traffic]
        assert point.links[0].rate_bps == theirs.links[0].rate_bps
        assert [law.params for law in point.laws] == [law.params for law in theirs.laws[:2]]
    assert state.parse(base.start.texts(), base.start) == base.start
    # Comments are the author's.
    assert text.count("#") > 0


def test_a_design_follows_the_link_and_says_why_not(base: BaseScenario) -> None:
    slow, fast = (
        state.parse({"a": "pi", "a.target": "50p", "rate": rate}, base.start)
        for rate in ("15Mbit/s", "60Mbit/s")
    )
    a_slow, a_fast = (dict(state.gains_for(it.a, it).params)["a"] for it in (slow, fast))
    assert float(a_fast) < float(a_slow)
    crowded = state.parse({"a": "pi", "a.target": "5p", "flows": "5000"}, base.start)
    assert "expected at most" in state.gains_for(crowded.a, crowded).reason
    loops = theory.loops(crowded, state.all_gains(crowded))["laws"]["a"]
    assert "probability of 1 or more" in loops["reason"]


def test_the_loop_is_that_of_forebay_design(base: BaseScenario) -> None:
    from forebay.control.design import design
    from forebay.control.link import Link

    texts = {"spread": "0", "a": "pi", "a.target": "50p", "a.goal.beta": "0.25"}
    now = state.parse(texts, base.start)
    found = theory.loops(now, state.all_gains(now))["laws"]["a"]["margins"]
    theirs = design(
        "pi",
        Link("15Mbit/s", "80ms", flows=20, packet="1000B", buffer="200p"),
        target="50p",
        overrides={"beta": 0.25},
    ).margins
    assert theirs
    assert found["phase_deg"] == pytest.approx(theirs.phase_deg)
    assert found["gain_db"] == pytest.approx(theirs.gain_db)


@pytest.mark.parametrize("tcp", ["linux-cubic", "dctcp"])
def test_theory_is_of_the_flows_sender(base: BaseScenario, tcp: str) -> None:
    """Design, loop and map have its plant, and the fluid its windows."""
    texts = {"a": "pi", "a.target": "50p", "tcp": tcp, "ecn": "true", "spread": "0"}
    now = state.parse(texts, base.start)
    settled_gains = state.all_gains(now)
    name = {"linux-cubic": "cubic"}.get(tcp, tcp)
    theirs = forebay.design(
        "pi",
        forebay.Link("15Mbit/s", "80ms", flows=20, packet="1000B", buffer="200p", senders=name),
        target="50p",
    )
    assert theirs.margins and theirs.senders
    assert dict(settled_gains["a"].params) == dict(theirs.params)
    found = theory.loops(now, settled_gains)["laws"]["a"]["margins"]
    assert found["phase_deg"] == pytest.approx(theirs.margins.phase_deg)
    assert found["window_pkts"] == pytest.approx(theirs.senders.classes[0].window_pkts)
    drawn = theory.maps(now, settled_gains)["laws"]["a"]
    assert isinstance(drawn, dict)
    assert len(drawn["gain_margin_db"]) == drawn["cells"] ** 2
    alone = base.alone(now, params(now))
    (trace,) = forebay.fluid.scenario(alone["a"].decode(), sawtooth=True)
    queue = theory.fluid(alone, now.tcp, now.duration, 100)["laws"]["a"]["queue_pkts"]
    assert queue[-1] == pytest.approx(trace.queue_pkts[0][-1], abs=1)


def test_a_file_of_several_seeds_has_a_curve_of_the_fluid(tmp_path: Path) -> None:
    """As `forebay init` writes them; it said that the curve failed."""
    file = tmp_path / "mine.toml"
    file.write_text("seeds = 3\n" + (scenario.START).read_text())
    base = BaseScenario.from_source(file)
    now = base.start
    found = theory.fluid(base.alone(now, params(now)), now.tcp, now.duration, 100)["laws"]
    assert max(found["a"]["queue_pkts"]) > 10


def test_pages_are_counted_while_the_first_one_loads(
    base: BaseScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the most could come before the first session had loaded."""
    loads, ended = threading.Event(), []

    class Waiting:
        def __init__(self, *_: object) -> None:
            pass

        async def serve(self) -> None:
            ended.append(True)

    def load() -> type[Waiting]:
        assert loads.wait(60)
        return Waiting

    monkeypatch.setattr(studio_server, "_session", load)
    app = studio_server.application(base, 1, "token", None)
    sockets = [FakeSocket() for _ in range(studio_server.MOST_PAGES + 4)]

    async def come() -> None:
        tasks = [asyncio.ensure_future(app(*one.as_asgi())) for one in sockets]
        while sum(one.closed is not None for one in sockets) < 4:
            await asyncio.sleep(0.01)
        loads.set()
        await asyncio.gather(*tasks)

    asyncio.run(asyncio.wait_for(come(), 60))
    assert [one.closed for one in sockets].count(1013) == 4
    assert len(ended) == studio_server.MOST_PAGES


class FakeSocket:
    """A page's socket, as a server hands it to the application."""

    def __init__(self) -> None:
        self.closed: int | None = None

    def as_asgi(self) -> tuple[dict[str, Any], Any, Any]:
        headers = [(b"host", b"127.0.0.1:1"), (b"origin", b"http://127.0.0.1:1")]
        scope = {
            "type": "websocket",
            "path": "/token/socket",
            "raw_path": b"/token/socket",
            "root_path": "",
            "headers": headers,
            "query_string": b"",
            "subprotocols": [],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "websocket.close":
                self.closed = message["code"]

        return scope, receive, send


def test_a_sender_without_a_model_has_a_reason_instead_of_theory(base: BaseScenario) -> None:
    now = state.parse({"tcp": "bbr"}, base.start)
    settled_gains = state.all_gains(now)
    said = "Theory has no model of flows of bbr."
    assert theory.loops(now, settled_gains)["laws"]["a"] == {"reason": said}
    assert theory.maps(now, settled_gains)["laws"]["a"] == said


# --- the door ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    with studio(tmp_path_factory.mktemp("studio")) as (address, process):
        yield address, process.pid


def get(address: str, path: str | None = None, **headers: str) -> tuple[int, str]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc)
    connection.request("GET", path or parts.path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_half_open_connections_do_not_stop_the_studio(server: tuple[str, int]) -> None:
    """Others on this machine may open many, and say nothing or a byte now and then."""
    address, pid = server
    place = urlsplit(address)
    assert place.hostname and place.port
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    half_open: list[plain_socket.socket] = []
    try:
        # More than the files that a process may have as a rule.
        for number in range(1200):
            half_open.append(plain_socket.create_connection((place.hostname, place.port), 10))
            if number % 2:
                half_open[-1].send(b"GET / HTTP/1.1\r\nHost:")
        assert get(address)[0] == 200
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < files + 200
        # One that drips is closed, too.
        slow = plain_socket.create_connection((place.hostname, place.port), 10)
        half_open.append(slow)
        start_s = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - start_s < 4 * REQUEST_S:
                slow.send(b"G")
                time.sleep(0.1)
        assert time.monotonic() - start_s < 3 * REQUEST_S
    finally:
        for one in half_open:
            one.close()
    assert get(address)[0] == 200


def test_a_connection_takes_several_requests(server: tuple[str, int]) -> None:
    address, _ = server
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc)
    for _ in range(3):
        connection.request("GET", parts.path)
        answer = connection.getresponse()
        assert (answer.status, len(answer.read()) > 100) == (200, True)
        time.sleep(0.2)
    connection.close()


def socket(address: str, origin: str | None = "own", **options: Any) -> ClientConnection:
    parts = urlsplit(address)
    own = f"http://{parts.netloc}"
    return connect(
        f"ws://{parts.netloc}{parts.path}socket",
        origin=own if origin == "own" else origin,  # type: ignore[arg-type]
        **options,
    )


def test_the_page_is_for_the_one_with_its_address(server: tuple[str, int]) -> None:
    address, _ = server
    status, page = get(address)
    assert status == 200 and "Forebay studio" in page
    parts = urlsplit(address)
    token = parts.path.strip("/")
    for path in ["/", "/socket", "/studio.js", f"/{token[:-1]}/", f"/{token}x/", "/%00/"]:
        assert get(address, path)[0] == 403, path
    for host in ["example.com", f"example.com:{parts.port}", f"127.0.0.1.example.com:{parts.port}"]:
        assert get(address, Host=host)[0] == 403
    for origin in ["http://example.com", "null", f"https://{parts.netloc}", "http://127.0.0.1:1"]:
        assert get(address, Origin=origin)[0] == 403
    # Nothing above the page's folder.
    assert get(address, f"{parts.path}../__init__.py")[0] == 404
    assert get(address, f"{parts.path}%2e%2e/__init__.py")[0] == 404


def test_the_socket_is_for_the_page(server: tuple[str, int]) -> None:
    address, _ = server
    for origin in [None, "http://example.com", "null"]:
        with pytest.raises(InvalidStatus) as refused:
            socket(address, origin)
        assert refused.value.response.status_code == 403
    parts = urlsplit(address)
    with pytest.raises(InvalidStatus):
        socket(f"http://{parts.netloc}/")
    with socket(address) as page:
        assert json.loads(page.recv())["kind"] == "hello"


def test_only_loopback_listens(server: tuple[str, int]) -> None:
    port = f":{urlsplit(server[0]).port:04X}"
    rows = [
        row.split()
        for file in ("/proc/net/tcp", "/proc/net/tcp6")
        if Path(file).exists()
        for row in Path(file).read_text().splitlines()[1:]
    ]
    listening = [row[1] for row in rows if row[1].endswith(port) and row[3] == "0A"]
    assert listening == [f"0100007F{port}"]


GARBAGE = [
    "",
    "garbage",
    "[]",
    "{}",
    "null",
    '{"n": 1}',
    '{"n": "1", "state": {}}',
    '{"n": 1, "state": []}',
    '{"n": 1, "state": {"rate": 5}}',
    '{"n": 1, "state": {"rate": "\\u0000"}}',
    '{"n": 1, "state": {"rate": "1e999Mbit/s"}}',
    '{"n": 1e400, "state": {}}',
    "[" * 20_000,
]


def test_garbage_gets_an_error_each_and_the_socket_goes_on(server: tuple[str, int]) -> None:
    with socket(server[0]) as page:
        json.loads(page.recv())
        for text in GARBAGE:
            page.send(text)
            answer = json.loads(page.recv(timeout=20))
            assert answer["kind"] == "error", text[:40]
            assert "\n" not in answer["message"]
        page.send(json.dumps({"n": 2, "state": {"duration": "1s"}, "width": -5}))
        kinds = [json.loads(page.recv(timeout=20))["kind"] for _ in range(2)]
        assert kinds == ["state", "packets"]


def test_an_invalid_message_closes_only_its_socket(server: tuple[str, int]) -> None:
    messages: list[str | bytes] = ["x" * 100_000, b"\x00\xff"]
    for message in messages:
        with socket(server[0]) as page:
            page.recv()
            with pytest.raises(ConnectionClosed):
                page.send(message)
                while True:
                    page.recv(timeout=20)
    with socket(server[0]) as page:
        assert json.loads(page.recv())["kind"] == "hello"


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def test_two_hundred_quick_moves_leave_neither_backlog_nor_memory(
    server: tuple[str, int],
) -> None:
    address, pid = server
    draw = random.Random(1)
    with socket(address) as page:
        page.recv()

        def storm(first: int) -> list[dict[str, Any]]:
            for n in range(first, first + 200):
                moved = {"rate": f"{draw.randint(5, 40)}Mbit/s", "b": "red"}
                page.send(json.dumps({"n": n, "state": moved, "width": 900}))
            answers: list[dict[str, Any]] = []
            while not answers or (answers[-1]["kind"], answers[-1]["n"]) != ("done", first + 199):
                answers.append(json.loads(page.recv(timeout=60)))
            return answers

        storm(0)
        before = resident_mb(pid)
        for round_ in range(1, 4):
            answers = storm(200 * round_)
            drawn = [it["n"] for it in answers if it["kind"] == "packets"]
            print(f"{len(drawn)} of 200 states were drawn")
            # The newest at the end, and in order: what was outdated is left out.
            assert drawn == sorted(drawn) and drawn[-1] == 200 * round_ + 199
            assert len(drawn) < 150
        grown = resident_mb(pid) - before
        print(f"memory: {before:.0f} MB, and {grown:+.1f} MB after 600 moves")
        assert grown < 40


# --- the command -------------------------------------------------------------------------------


def test_a_wrong_file_or_port_is_one_line(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(SCENARIO.replace("10Mbit/s", "10furlongs"))
    done = cli("studio", "--no-open", str(path))
    assert done.returncode == 2 and "furlongs" in done.stderr and done.stderr.count("\n") == 1
    with studio(tmp_path) as (address, _):
        port = str(urlsplit(address).port)
        done = cli("studio", "--no-open", "--port", port)
        assert done.returncode == 2
        assert done.stderr.startswith(f"error: --port: {port}: address already in use")


# --- the page ----------------------------------------------------------------------------------


@needs_chromium
def test_a_slider_brings_a_new_curve(
    browser: Browser, server: tuple[str, int], faults: list[str]
) -> None:
    page = opened(browser, server[0], faults)
    first_ms = page.evaluate("performance.getEntriesByName('first-picture')[0].startTime")
    queue = page.get_by_label("Queue over time.")
    before = queue.get_attribute("aria-label")
    slider = page.get_by_label("Rate, slider")
    slider.focus()
    for _ in range(6):
        slider.press("ArrowLeft")
        settled(page)
    assert queue.get_attribute("aria-label") != before
    assert "rate=" in page.evaluate("location.hash")
    latencies = sorted(page.evaluate("window.studio.latencies"))
    middle = latencies[len(latencies) // 2]
    print(
        f"first picture {first_ms:.0f} ms after the page was asked for; from a move to the curve "
        f"{middle:.0f} ms (median of {len(latencies)}, most {latencies[-1]:.0f})"
    )
    # Back undoes, and a reload comes back to the same state.
    page.reload()
    settled(page)
    assert page.get_by_label("Rate", exact=True).input_value() != "15Mbit/s"
    page.keyboard.press("0")
    settled(page)
    assert page.get_by_label("Rate", exact=True).input_value() == "15Mbit/s"
    assert queue.get_attribute("aria-label") == before
    assert faults == []


#: A hand that moves a slider at every frame, and rests.
DRAG = """async (moves) => {
  const slider = document.querySelector("[data-key=rate]");
  for (let i = 1; i <= moves; i++) {
    slider.value = 300 + i;
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(requestAnimationFrame);
  }
}"""


@needs_chromium
def test_a_quick_hand_sees_curves_on_the_way_and_the_last_state_at_the_end(
    browser: Browser, server: tuple[str, int], faults: list[str]
) -> None:
    page = opened(browser, server[0], faults)
    before = len(page.evaluate("window.studio.latencies"))
    page.evaluate(DRAG, 200)
    settled(page)
    rate = page.get_by_label("Rate", exact=True).input_value()
    assert page.evaluate("window.studio.state().rate") == rate
    assert page.locator("html").get_attribute("data-shown") == str(
        page.evaluate("window.studio.sent()")
    )
    latencies = sorted(page.evaluate("window.studio.latencies")[before:])
    assert len(latencies) > 3
    print(
        f"{len(latencies)} curves during 200 moves, after {latencies[len(latencies) // 2]:.0f} ms "
        f"(median; most {latencies[-1]:.0f} ms)"
    )
    assert faults == []


@needs_chromium
def test_saved_and_copied_scenarios_run(
    browser: Browser, server: tuple[str, int], faults: list[str], cli: Cli, tmp_path: Path
) -> None:
    page = opened(browser, server[0] + "#duration=8s&b=codel&flows=9", faults)
    with page.expect_download() as saved:
        page.keyboard.press("s")
    saved.value.save_as(tmp_path / "studio.toml")
    done = cli("run", "studio.toml", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["law"] for line in lines] == ["pi", "codel"]
    shown = page.locator("#numbers td").first.text_content()
    assert shown is not None
    assert float(shown) == pytest.approx(1e-6 * lines[0]["metrics"]["goodput_bps"], abs=0.05)
    page.get_by_role("button", name="Copy as Python").click()
    page.wait_for_timeout(300)
    snippet = page.evaluate("window.studio.copied")
    done = subprocess.run(
        [sys.executable, "-c", snippet], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "codel" in done.stdout and (tmp_path / "queue.png").stat().st_size > 10_000


@needs_chromium
def test_each_law_has_a_row_of_numbers(
    browser: Browser, server: tuple[str, int], faults: list[str]
) -> None:
    """Where the page is wide; where it is narrow, a column beside the names of the numbers."""
    page = opened(browser, server[0] + "#duration=10s", faults)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.get_by_label("Law B").select_option("codel")
    settled(page)
    rows = page.locator("#numbers tbody tr")
    assert rows.count() == 2
    assert [rows.nth(i).locator("th").text_content() for i in (0, 1)] == ["PI", "CoDel"]
    heads = page.locator("#numbers thead th").all_text_contents()
    cells = [rows.nth(i).locator("td").all_text_contents() for i in (0, 1)]
    assert [len(of) for of in cells] == [len(heads) - 1] * 2
    assert cells[0] != cells[1] and "" not in cells[0] + cells[1]
    page.set_viewport_size({"width": 400, "height": 900})
    page.wait_for_selector("#numbers table.narrow")
    columns = page.locator("#numbers thead th").all_text_contents()
    assert columns == ["", "PI", "CoDel"]
    assert page.locator("#numbers tbody tr").count() == len(heads) - 1
    assert faults == []


@needs_chromium
def test_compare_design_and_reasons(
    browser: Browser, server: tuple[str, int], faults: list[str]
) -> None:
    page = opened(browser, server[0] + "#duration=10s", faults)
    page.get_by_label("Law B").select_option("codel")
    settled(page)
    assert page.locator("#w-bode").get_by_text("no linear model").count() == 1
    assert page.locator("#p-map").get_by_text("no linear model").count() == 1
    # By design the gains follow the link.
    page.locator("#by-a-design").check()
    settled(page)
    gain = page.locator("#c-a-a")
    before = gain.input_value()
    page.get_by_label("Rate", exact=True).fill("45Mbit/s")
    settled(page)
    after = gain.input_value()
    assert float(after) < float(before)
    # A gain that is moved by hand is the reader's; the others stay as the design had them.
    other = page.locator("#c-a-b").input_value()
    gain.fill("0.0001")
    settled(page)
    assert page.locator("#by-a-hand").is_checked()
    assert page.locator("#c-a-b").input_value() == other
    assert gain.input_value() == "0.0001"
    # An error names its field, and goes with it.
    gain.fill("7")
    page.wait_for_selector("#c-a-a[aria-invalid=true]")
    assert "expected a value from 0 to 1" in (page.locator("#told").text_content() or "")
    gain.fill("0.0002")
    settled(page)
    assert page.locator("#told").text_content() == ""
    # A click into the map moves the flows and the round trip.
    page.locator("#p-map canvas").first.click(position={"x": 150, "y": 60})
    settled(page)
    assert page.get_by_label("Long flows", exact=True).input_value() != "20"
    assert faults == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_button_switches_between_light_and_dark(
    browser: Browser, server: tuple[str, int], faults: list[str], scheme: str
) -> None:
    page = opened(browser, server[0] + "#duration=5s", faults, 900, scheme)
    dark = "getComputedStyle(document.body).backgroundColor === 'rgb(18, 23, 28)'"
    for now in (scheme == "dark", scheme != "dark", scheme == "dark"):
        assert page.evaluate(dark) == now
        page.click("#theme")
    assert faults == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 900, 1440])
def test_it_fits_and_axe_finds_nothing_serious(
    browser: Browser,
    server: tuple[str, int],
    faults: list[str],
    tmp_path: Path,
    width: int,
    scheme: str,
) -> None:
    from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

    page = opened(browser, server[0] + "#duration=20s&b=red", faults, width, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    serious = [
        (it["id"], it["nodes"][0]["html"])
        for it in found.response["violations"]
        if it["impact"] in ("serious", "critical")
    ]
    assert serious == []
    picture = tmp_path / f"studio-{width}-{scheme}.png"
    page.screenshot(path=picture, full_page=True)
    print(picture)
    assert picture.stat().st_size > 30_000
    assert faults == []


def test_a_file_with_designed_gains_and_ranges_opens(tmp_path: Path) -> None:
    text = starter.scenario("x.toml").text.replace("# [sweep]", "[sweep]")
    file = tmp_path / "x.toml"
    file.write_text(
        text.replace('# "traffic.ftp.flows" = [5, 20, 80]', '"traffic.ftp.flows" = "5..80 log 3"')
    )
    base = BaseScenario.from_source(file)
    start = base.start
    assert (start.a.kind, start.a.designed, start.flows) == ("pi", True, 5)
    assert "2 points" in base.remark
    saved = base.toml(start, {"a": [], "b": []})
    assert "auto" not in saved and "sweep" not in saved.split()
