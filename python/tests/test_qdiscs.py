"""Lines of tc(8) as a law, its queue and its link."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from conftest import Cli

from forebay import ScenarioError
from forebay.base import registries
from forebay.scenarios import qdiscs, router

LINK: dict[str, Any] = {"rate_bps": 15_000_000, "packet_bytes": 1500}

#: What the kernel's has otherwise than our defaults, and another value for what it can vary.
OTHERS: dict[str, list[tuple[str, Any]]] = {
    "red": [("gentle", False), ("wait", False), ("queue_in_bytes", True), ("w_q", 2**-7)],
    "codel": [("target", "8ms"), ("interval", "150ms"), ("ce_threshold", "1ms")],
    "fq-codel": [("queues", 64), ("quantum", "300B"), ("drop_batch", 16)],
    "pie": [("target", "20ms"), ("by_bytes", True), ("estimator", "linux-departure-rate")],
    "fq-pie": [("alpha", 0.25), ("beta", 1.5), ("mark_up_to", 0.2)],
    "dualpi2": [("alpha", 0.1), ("beta", 2.0), ("step", "2ms"), ("any_ect", True)],
    "cake": [("tins", "diffserv4"), ("overhead", "44B"), ("framing", "atm"), ("wash", True)],
}


def found(law: str, params: list[tuple[str, Any]], **buffer: Any) -> list[str]:
    buffers = {"buffer_pkts": None, "buffer_bytes": None, **buffer}
    given = router.settings(law, params, **LINK, **buffers)
    return [] if given is None else given.tc


def again(read: qdiscs.Qdisc) -> list[str]:
    size = int(read.buffer[:-1])
    buffer = {"buffer_pkts" if read.buffer.endswith("p") else "buffer_bytes": size}
    params = [(key, value) for key, value in read.law.table().items() if key != "kind"]
    return found(read.law.kind, params, **buffer)


@pytest.mark.parametrize("others", [False, True], ids=["defaults", "others"])
def test_what_is_printed_is_read(others: bool) -> None:
    """For every law that the kernel has: the same law, rate and buffer, and the same lines."""
    seen = set()
    for law in registries.laws():
        params = OTHERS.get(law, []) if others or law == "red" else []
        buffers = [{"buffer_pkts": 300}]
        if law == "droptail":
            buffers.append({"buffer_bytes": 450_000})
        for buffer in buffers:
            lines = found(law, params, **buffer)
            if not lines:
                continue
            seen.add(law)
            read = qdiscs.read("\n".join(lines), 1500)
            assert read.law.kind == law
            assert (read.rate_bps, read.ecn) == (15_000_000, law != "droptail")
            assert read.buffer in ("300p", "450000B")
            assert again(read) == lines
            kept = read.law.table()
            if law != "dualpi2":  # the kernel's parts of its gains
                assert {key: kept[key] for key, _ in params} == dict(params)
    assert seen == {"droptail", *OTHERS}


def test_what_people_have_is_read() -> None:
    """As `tc -d -s qdisc show` prints it, with its statistics and what else is there."""
    shown = "qdisc noqueue 0: dev lo root refcnt 2"
    with pytest.raises(ScenarioError, match=r'^--tc: found "noqueue", allowed: pfifo, '):
        qdiscs.read(shown, 1500)
    leaf = (
        "limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 4Mb ecn "
        "drop_batch 64"
    )
    shown = f"""
qdisc mq 0: dev eth0 root
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
qdisc fq_codel 0: dev eth0 parent :2 {leaf}
  maxpacket 0 drop_overlimit 0 new_flow_count 0 ecn_mark 0
qdisc fq_codel 0: dev eth0 parent :1 {leaf}
"""
    read = qdiscs.read(shown, 1500)
    assert (read.kind, read.rate_bps, read.ecn) == ("fq_codel", None, True)
    # 4 MB of memory are full first: 2304 bytes a packet.
    assert read.buffer == "1820p"
    red = (
        "qdisc tbf 1: dev eth0 root refcnt 2 rate 15140Kbit burst 3028b lat 50ms\n"
        "qdisc red 8002: dev eth0 parent 1:1 limit 454200b min 30280b max 90840b ecn harddrop "
        "ewma 5 probability 0.02 Scell_log 9\n"
    )
    read = qdiscs.read(red, 1500)
    assert (read.rate_bps, read.burst_bytes, read.buffer) == (15_000_000, 3000, "299p")
    law = read.law.table()
    assert (law["min_th"], law["max_th"], law["w_q"], law["max_p"]) == ("19p", "59p", 2**-5, 0.02)
    assert law["mark_above"] is False
    with pytest.raises(ScenarioError, match="no burst or ewma, allowed: what `tc -d qdisc show`"):
        qdiscs.read("red limit 300000 min 30000 max 90000 probability 0.1", 1500)


def test_a_shaper_counts_as_tc_does() -> None:
    htb = (
        "tc qdisc add dev eth0 root handle 1: htb default 1\n"
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 15140kbit burst 3028\n"
        "tc qdisc add dev eth0 parent 1:1 pie limit 100p target 20ms\n"
    )
    read = qdiscs.read(htb, 1500)
    # htb does not leave the packet that it sends in the qdisc; tbf does.
    assert (read.buffer, read.rate_bps) == ("100p", 15_000_000)
    assert "least_backlog" not in read.law.table()
    bucket = "tc qdisc add dev eth0 root tbf rate 1514kbit burst 3028 latency 400ms"
    lone = qdiscs.read(bucket, 1500)
    assert (lone.kind, lone.buffer) == ("bfifo", f"{round(1_514_000 / 8 * 0.4) + 3028 - 1514}B")
    docsis = qdiscs.read("cake bandwidth 20Mbit docsis rtt 50ms ack-filter", 1500)
    assert docsis.law.table() == {
        "kind": "cake",
        "framing": "none",
        "mpu": "64B",
        "overhead": "18B",
        "ack_filter": "filter",
        "bandwidth": "20000000bit/s",
        "interval": "50ms",
        "target": "2.5ms",
    }
    # Bytes a second, as tc has them.
    assert qdiscs.read("cake bandwidth 1mbps", 1500).rate_bps == 8_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "--tc: found nothing, allowed: pfifo, "),
        ("codel limit", "--tc: codel: found limit without a value, allowed: limit VALUE"),
        ("codel flows 3", '--tc: codel: found "flows", allowed: limit, target'),
        ("codel target soon", '--tc: target: found "soon", allowed: a time such as 5ms'),
        ("qdisc codel 1: dev a root\nqdisc codel 1: dev b root", "found devices a, b, allowed"),
        ("qdisc codel 1: dev a\nqdisc pie 2: dev a", "found codel and pie, allowed: one of"),
        ("tc qdisc add dev a root tbf rate 1mbit", "neither limit nor latency, allowed"),
    ],
)
def test_a_wrong_line_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        qdiscs.read(text, 1500)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_init_writes_what_the_line_says(cli: Cli) -> None:
    lines = found("codel", [("target", "8ms")], buffer_pkts=300)
    given = [it for line in lines for it in ("--tc", line)]
    done = cli("init", "-", *given)
    assert done.returncode == 0, done.stderr
    written = tomllib.loads(done.stdout)
    assert written["bottleneck"] == {
        "rate": "15Mbit/s",
        "delay": "5ms",
        "buffer": "300p",
        "burst": "3000B",
        "ecn": True,
    }
    assert written["law"] == [{"kind": "codel", "target": "8ms", "interval": "100ms"}]
    # It prints the same lines, and reads them from its own comments.
    assert all(f"#   {line}" in done.stdout for line in lines)
    comments = [line for line in done.stdout.splitlines() if line.startswith("#   tc ")]
    again = cli("init", "-", "--tc", "\n".join(comments))
    assert tomllib.loads(again.stdout) == written
    refused = cli("init", "-", *given, "--law", "pie")
    assert refused.returncode == 2
    assert refused.stderr.strip() == "--law: found beside --tc, allowed: nothing; tc says it"
