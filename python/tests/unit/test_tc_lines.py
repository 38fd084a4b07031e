"""Lines of tc(8) as a law, its queue and its link."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli

from forebay import ScenarioError, _native
from forebay._base import registries
from forebay.experiment import experiment
from forebay.guide import starter
from forebay.scenario import qdiscs, router, tc_text

LINK: dict[str, Any] = {"rate_bps": 15_000_000, "packet_bytes": 1500}

#: What the kernel's has otherwise than our defaults, and another value for what it can vary.
OTHERS: dict[str, list[tuple[str, Any]]] = {
    "red": [("gentle", False), ("wait", False), ("queue_in_bytes", True), ("w_q", 2**-7)],
    "ared": [
        *(("gentle", False), ("wait", False), ("queue_in_bytes", True), ("w_q", 2**-7)),
        *(("min_th", "20p"), ("max_th", "60p"), ("bottom", 0.01), ("mark_above", True)),
    ],
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
def test_printed_lines_are_read_as_the_same_law(others: bool) -> None:
    """For every law that the kernel has: the same law, rate and buffer, and the same lines."""
    seen = set()
    for law in registries.laws():
        params = OTHERS.get(law, []) if others or law in ("red", "ared") else []
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


PUBLISHED = tomllib.loads(Path(__file__).with_name("published_lines.toml").read_text())


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_lines_are_read_as_linux_interprets_them(name: str) -> None:
    expected = dict(PUBLISHED[name])
    qdisc = qdiscs.read(expected.pop("text"), 1500)
    law = qdisc.law.table()
    assert expected.pop("source")
    for key, value in expected.pop("law", {}).items():
        assert law[key] == value, key
    for key, value in expected.items():
        assert getattr(qdisc, key) == value, key


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_lines_become_scenarios(name: str) -> None:
    """A rate is given in addition where the lines have none."""
    text = PUBLISHED[name]["text"]
    rate = None if qdiscs.read(text, 1500).rate_bps else "20Mbit"
    made = starter.scenario("x.toml", rate, tc=text)
    written = tomllib.loads(made.text)
    assert experiment.read(made.text)
    if "rate_bps" in PUBLISHED[name]:
        (found, _) = _native.number_and_unit(written["bottleneck"]["rate"]) or (0, "")
        assert found == pytest.approx(PUBLISHED[name]["rate_bps"], abs=1)
    assert written["bottleneck"].get("ecn") == qdiscs.read(text, 1500).ecn


def test_every_qdisc_of_a_multi_queue_device_is_one_queue() -> None:
    """As `tc -d -s qdisc show` prints it, with its statistics and what else is there."""
    leaf = (
        "limit 10240p flows 1024 quantum 1514 target 5ms interval 100ms memory_limit 4Mb ecn "
        "drop_batch 64"
    )
    shown = f"""
qdisc noqueue 0: dev lo root refcnt 2
qdisc mq 0: dev eth0 root
 Sent 0 bytes 0 pkt (dropped 0, overlimits 0 requeues 0)
 backlog 0b 0p requeues 0
qdisc fq_codel 0: dev eth0 parent :2 {leaf}
  maxpacket 0 drop_overlimit 0 new_flow_count 0 ecn_mark 0
qdisc fq_codel 0: dev eth0 parent :1 {leaf}
"""
    qdisc = qdiscs.read(shown, 1500)
    assert (qdisc.kind, qdisc.rate_bps, qdisc.ecn) == ("fq_codel", None, True)
    # 4 MB of memory are full first: 2304 bytes a packet.
    assert qdisc.buffer == "1820p"
    assert qdisc.notes == ["Left out: lo, which has no queue."]


def test_shown_red_is_read_with_its_weight() -> None:
    red = (
        "qdisc tbf 1: dev eth0 root refcnt 2 rate 15140Kbit burst 3028b lat 50ms\n"
        "qdisc red 8002: dev eth0 parent 1:1 limit 454200b min 30280b max 90840b ecn harddrop "
        "ewma 5 probability 0.02 Scell_log 9\n"
    )
    qdisc = qdiscs.read(red, 1500)
    assert (qdisc.rate_bps, qdisc.burst_bytes, qdisc.buffer) == (15_000_000, 3000, "299p")
    law = qdisc.law.table()
    assert (law["min_th"], law["max_th"], law["w_q"], law["max_p"]) == ("19p", "59p", 2**-5, 0.02)
    assert law["mark_above"] is False
    with pytest.raises(ScenarioError, match=r"^red: ewma is missing; `tc -d qdisc show` prints it"):
        qdiscs.read("qdisc red 8002: dev eth0 root limit 300Kb min 30Kb max 90Kb", 1500)


def test_a_shaper_counts_as_tc_does() -> None:
    htb = (
        "tc qdisc add dev eth0 root handle 1: htb default 1\n"
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 15140kbit burst 3028\n"
        "tc qdisc add dev eth0 parent 1:1 pie limit 100p target 20ms\n"
    )
    qdisc = qdiscs.read(htb, 1500)
    # htb does not leave the packet that it sends in the qdisc; tbf does.
    assert (qdisc.buffer, qdisc.rate_bps) == ("100p", 15_000_000)
    assert "least_backlog" not in qdisc.law.table()
    bucket = "tc qdisc add dev eth0 root tbf rate 1514kbit burst 3028 latency 400ms"
    lone = qdiscs.read(bucket, 1500)
    # The limit in bytes counts headers, the scenario's buffer does not.
    counted = round(1_514_000 / 8 * 0.4) + 3028
    assert (lone.kind, lone.buffer) == ("bfifo", f"{round((counted / 1514 - 1) * 1500)}B")
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the lines have no qdisc; paste those of `tc -d qdisc show dev DEVICE`"),
        ("qdisc noqueue 0: dev lo root refcnt 2", "lo: noqueue has no queue to simulate"),
        ("qdisc ingress ffff: dev eth0 parent ffff:fff1 ----", "the lines have ingress alone"),
        ("codel limit", "codel: limit: the value is missing"),
        ("codel flows 3", 'codel: "flows" is not a word of it; tc has limit, target'),
        ("codel target soon", 'codel: target: "soon" is not a time; tc takes for example 5ms'),
        ("codel target -5ms", 'codel: target: "-5ms" is negative, which tc refuses'),
        ("cake bandwidth 10furlong", 'cake: bandwidth: "10furlong" is not a rate'),
        ("cake bandwidth ${UP}kbit", '"${UP}kbit" has a variable of a script; write its value'),
        ("cake bandwidth 50%", "is a share of the device's speed"),
        ("cake overhead 300", 'cake: overhead: "300" is out of range; tc takes -64 to 256'),
        ("cake diffserv8", "cake: diffserv8: the simulation has besteffort"),
        ("qdisc codel 1: dev a root\nqdisc codel 1: dev b root", "several devices, a, b"),
        ("qdisc codel 1: dev a root\nqdisc pie 2: dev a root", "several queues, codel and pie"),
        ("tc qdisc add dev a root netem delay 10ms", "netem is a path and not a queue"),
        (
            "tc qdisc add dev a root sfq perturb 10",
            "sfq: this qdisc is not simulated; Forebay has pfifo_fast",
        ),
        ("tc qdisc add dev a root tbf rate 1mbit", "tbf: burst is missing, which tc requires"),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 4kb",
            "tbf: limit and latency are both missing",
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 4kb latency 50ms limit 10kb",
            "tbf: limit and latency are both given",
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit rate 2mbit burst 4kb latency 50ms",
            'tbf: rate: it is given twice, as "1mbit" and "2mbit"',
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 4kb latency 50ms peakrate 2mbit",
            "tbf: peakrate: mtu is missing, which tc requires with it",
        ),
        (
            "tc qdisc add dev a root tbf rate 2mbit burst 4kb latency 50ms peakrate 1mbit mtu 1540",
            'tbf: peakrate: "1mbit" is not above the rate, "2mbit"',
        ),
        (
            "tc qdisc add dev a root tbf rate 1mbit burst 4kb latency 50ms overhead -4",
            "a size table takes it: `stab overhead -4` before the word tbf",
        ),
        ("tc qdisc add dev eth0 root red limit 400000 min 30000", "red: avpkt is missing"),
        (
            "tc qdisc add dev eth0 root red limit 400000 min 30000 avpkt 1000 burst 5",
            'red: burst: "5" is too small; tc takes 31 or more',
        ),
        ("tc qdisc add dev eth0 root", "the kind of the qdisc is missing"),
        ("tc qdisc add dev eth0 root handle", "the value of handle is missing"),
        ('[{"kind":"fq_codel","handle":"0:"}]', "this is tc's JSON"),
        (
            "qdisc tbf 1: dev a root rate 1Mbit burst 4Kb lat 50ms\n linklayer atm cells 3 mtu 99",
            'stab: "cells" is not a word of it; tc has mtu, mpu, overhead, tsize, linklayer',
        ),
        (
            "tc qdisc add dev a root handle 1: netem delay 9ms loss 1%\n"
            "tc qdisc add dev a parent 1: codel",
            "netem: loss: Forebay simulates of netem the delay alone",
        ),
        (
            "tc qdisc add dev a root handle 1: tbf rate 1mbit burst 4kb latency 50ms\n"
            "tc qdisc add dev a parent 1:1 handle 1: tbf rate 1mbit burst 4kb latency 50ms\n"
            "tc qdisc add dev a parent 1:2 handle 1: tbf rate 1mbit burst 4kb latency 50ms",
            "tbf: the lines put it below itself",
        ),
        ("dualpi2 step_thresh 5p", 'dualpi2: step_thresh: "5p" counts packets'),
        (
            "tc qdisc add dev eth0 root stab overhead 4 cake",
            "cake: stab: cake counts what the line",
        ),
    ],
)
def test_a_wrong_line_is_one_line(text: str, message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        qdiscs.read(text, 1500)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


HTB_OF_SQM = """
qdisc htb 1: dev eth0 root refcnt 2 r2q 10 default 0x12 direct_packets_stat 0 direct_qlen 1000
qdisc fq_codel 110: dev eth0 parent 1:11 limit 1001p flows 1024 quantum 300 target 5ms
qdisc fq_codel 120: dev eth0 parent 1:12 limit 1001p flows 1024 quantum 300 target 5ms
qdisc fq_codel 130: dev eth0 parent 1:13 limit 1001p flows 1024 quantum 300 target 5ms
class htb 1:1 root rate 20Mbit ceil 20Mbit burst 1600b cburst 1600b
class htb 1:11 parent 1:1 leaf 110: prio 1 rate 128Kbit ceil 6666Kbit burst 1600b cburst 1599b
class htb 1:12 parent 1:1 leaf 120: prio 2 rate 3333Kbit ceil 19984Kbit burst 1600b cburst 1600b
class htb 1:13 parent 1:1 leaf 130: prio 3 rate 3333Kbit ceil 19984Kbit burst 1600b cburst 1600b
"""


def test_htb_has_the_default_class_up_to_its_ceil_in_any_order() -> None:
    lines = HTB_OF_SQM.strip().splitlines()
    orders = [lines, lines[::-1], lines[4:] + lines[:4], lines[::2] + lines[1::2]]
    rates = {qdiscs.read("\n".join(order), 1500).rate_bps for order in orders}
    assert rates == {round(19_984_000 * 1500 / 1514)}
    qdisc = qdiscs.read(HTB_OF_SQM, 1500)
    assert (
        "htb: the queue is that of class 1:12, the default; classes 1:11, 1:13 are taken as idle."
        in qdisc.notes
    )
    # The classes alone, and the classes with another default.
    alone = "\n".join(line for line in lines if line.startswith("class"))
    with pytest.raises(ScenarioError, match=r"classes 1:11, 1:12, 1:13 all have queues"):
        qdiscs.read(alone, 1500)
    other = qdiscs.read(HTB_OF_SQM.replace("default 0x12", "default 0x11"), 1500)
    assert other.rate_bps == round(6_666_000 * 1500 / 1514)
    with pytest.raises(ScenarioError, match=r"default class 1:40 is not among the lines"):
        qdiscs.read(HTB_OF_SQM.replace("default 0x12", "default 0x40"), 1500)


def test_htb_borrows_no_more_than_its_ancestors_have() -> None:
    tree = (
        "tc qdisc replace dev eth0 root handle 1: htb default 30\n"
        "tc class add dev eth0 parent 1: classid 1:1 htb rate 6mbit\n"
        "tc class add dev eth0 parent 1:1 classid 1:2 htb rate 2mbit ceil 5mbit\n"
        "tc class add dev eth0 parent 1:2 classid 1:30 htb rate 1mbit ceil 8mbit\n"
        "tc qdisc add dev eth0 parent 1:30 handle 30: fq_codel\n"
    )
    assert qdiscs.read(tree, 1500).rate_bps == round(5_000_000 * 1500 / 1514)
    without = tree.replace("tc qdisc add dev eth0 parent 1:30 handle 30: fq_codel\n", "")
    qdisc = qdiscs.read(without, 1500)
    assert (qdisc.kind, qdisc.buffer) == ("pfifo", "1000p")
    assert any("class 1:30 has no qdisc in the lines" in note for note in qdisc.notes)
    # Without its classes htb has no rate that a line gives.
    rateless = qdiscs.read("\n".join(HTB_OF_SQM.strip().splitlines()[:2]), 1500)
    assert rateless.rate_bps is None
    assert any("`tc class show dev eth0` prints them" in note for note in rateless.notes)


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        # 1514 − 4 = 1510 bytes are 32 cells of 53.
        ("stab linklayer atm overhead -4 tbf rate 808kbit burst 1695 latency 300ms", 1696),
        (
            "stab mtu 2047 tsize 128 linklayer adsl overhead -4 tbf rate 808kbit burst 2k lat 1s",
            1696,
        ),
        ("stab overhead 20 tbf rate 808kbit burst 1695 latency 300ms", 1534),
        ("stab mpu 2000 tbf rate 808kbit burst 1695 latency 300ms", 2000),
        ("tbf rate 808kbit burst 1695 latency 300ms linklayer atm overhead 10", 32 * 53),
        ("tbf rate 808kbit burst 1695 latency 300ms mpu 1600", 1600),
        ("tbf rate 808kbit burst 1695 latency 300ms overhead 24", 1538),
        ("tbf rate 808kbit burst 1695 latency 300ms", 1514),
    ],
)
def test_the_rate_accounts_for_the_bytes_that_a_shaper_counts(text: str, bps: int) -> None:
    qdisc = qdiscs.read(f"tc qdisc add dev eth0 root handle 1: {text}", 1500)
    assert qdisc.rate_bps == round(808_000 * 1500 / bps)


def test_a_large_packet_counts_as_the_size_table_makes_it() -> None:
    table = tc_text.SizeTable(overhead=-4, cells="atm")
    # Slots of 4 bytes: 56 bytes of an ACK with its header are two cells.
    assert (table.counted_bytes(66), table.counted_bytes(1514)) == (106, 1696)
    # Beyond the table: its last entry for each of its lengths.
    assert table.counted_bytes(9014) == 43 * 53 * 4 + 18 * 53


@pytest.mark.parametrize(
    ("device", "header"),
    [
        *((name, 14) for name in ("eth0", "eth0.7", "enp2s0", "br-lan", "wlan0", "ifb4eth0")),
        *((name, 14) for name in ("veth1", "bond0", "tap0", "mapper", "wanuplink", "pppd-bridge")),
        *((name, 0) for name in ("ppp0", "pppoe-wan", "pppoa-wan", "wg0", "wg-home", "tun0")),
        *((name, 0) for name in ("ifb4ppp0", "3g-wan", "wwan0", "sit1", "6in4-wan", "tailscale0")),
    ],
)
def test_a_device_has_the_header_of_its_kind(device: str, header: int) -> None:
    assert router.device_header_bytes(device) == header
    qdisc = qdiscs.read(f"qdisc cake 1: dev {device} root bandwidth 10Mbit raw overhead 0", 1500)
    assert qdisc.law.table().get("overhead", "0B") == f"{header}B"
    tbf = f"tc qdisc add dev {device} root tbf rate 10mbit burst 4kb latency 50ms"
    assert qdiscs.read(tbf, 1500).rate_bps == round(1e7 * 1500 / (1500 + header))


@pytest.mark.parametrize(
    ("words", "overhead", "rest"),
    [
        ("", "14B", {}),
        ("raw", "14B", {"framing": "none"}),
        ("overhead 0 noatm", "0B", {"framing": "none"}),
        ("overhead 18 mpu 64 noatm", "18B", {"framing": "none", "mpu": "64B"}),
        ("raw overhead -4", "10B", {"framing": "none"}),
        ("atm", "14B", {"framing": "atm"}),
        ("pppoe-ptm ether-vlan", "34B", {"framing": "ptm"}),
        ("ether-vlan pppoe-ptm ether-vlan", "38B", {"framing": "ptm"}),
        ("bridged-ptm", "22B", {"framing": "ptm"}),
        ("docsis ether-vlan", "22B", {"framing": "none", "mpu": "64B"}),
        ("ethernet ether-vlan", "42B", {"mpu": "84B"}),
        ("conservative", "48B", {"framing": "atm"}),
        ("pppoe-llcsnap overhead 44", "44B", {"framing": "atm"}),
        ("via-ethernet overhead 44 atm", "44B", {"framing": "atm"}),
    ],
)
def test_the_words_of_cake_set_its_overhead(
    words: str, overhead: str, rest: dict[str, str]
) -> None:
    law = qdiscs.read(f"tc qdisc add dev eth0 root cake bandwidth 10mbit {words}", 1500).law.table()
    assert law.get("overhead", "0B") == overhead
    assert {key: law[key] for key in ("framing", "mpu") if key in law} == rest


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, 1e6) for text in ("1mbit", "1Mbit", "1000kbit", "1000000", "1e6", "1000000bit")),
        *((text, 8e6) for text in ("1mbps", "1MBps", "1000KBps", "1e6bps")),
        *((text, 2**20) for text in ("1mibit", "1024Kibit")),
        ("2gbit", 2e9),
        ("0.5Gbit", 5e8),
    ],
)
def test_rates_have_the_units_of_tc(text: str, value: float) -> None:
    assert qdiscs.read(f"cake bandwidth {text}", 1500).rate_bps == round(value)


def test_times_and_sizes_have_the_units_of_tc() -> None:
    for text in ("5ms", "5msec", "5msecs", "5000", "5000us", "5000usec", "0.005s", "0.005SECS"):
        assert qdiscs.read(f"codel target {text}", 1500).law.table()["target"] == "5ms"
    line = "tc qdisc add dev ppp0 root tbf rate 1mbit latency 1s burst {}"
    for text, value in {
        **{"4096": 4096, "4k": 4096, "4kb": 4096, "32kbit": 4096, "4096b": 4096, "4kb/8": 4096},
        **{"1mbit": 131_072, "1mb": 1_048_576, "1M": 1_048_576},
    }.items():
        assert qdiscs.read(line.format(text), 1500).burst_bytes == value
    assert qdiscs.read("fq_codel flows 0x100 limit 0x400", 1500).law.table()["queues"] == 256


def test_words_of_tbf_and_htb_may_be_abbreviated() -> None:
    tbf = qdiscs.read("tc qdisc a dev ppp0 root tbf rate 1mbit bu 4kb la 50ms", 1500)
    assert (tbf.rate_bps, tbf.burst_bytes) == (1_000_000, 4096)
    htb = qdiscs.read(
        "tc q add dev ppp0 root handle 1: htb def 1\n"
        "tc c add dev ppp0 parent 1: classid 1:1 htb rate 1mbit ov 10 linkl atm\n"
        "tc q add dev ppp0 parent 1:1 fq_codel",
        1500,
    )
    assert htb.rate_bps == round(1e6 * 1500 / (32 * 53))


PASTED = [
    "root@OpenWrt:~# tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "[root@router ~]# tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "user@host:~/sqm$ sudo tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "$ sudo -n /usr/sbin/tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "~ # /sbin/tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "# tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "> doas tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "(venv) root@x:/tmp# /usr/libexec/tc-full qdisc add dev eth0 root cake bandwidth 10mbit",
    "+ tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "\x1b[1mtc\x1b[0m qdisc add\xa0dev eth0 root cake bandwidth 10mbit",
    "ip netns exec router tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "sudo ip netns exec router tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "nsenter -t 4711 -n tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "tc -n router qdisc add dev eth0 root cake bandwidth 10mbit",
    "tc -s -netns router qdisc add dev eth0 root cake bandwidth 10mbit",
    "$TC qdisc add dev eth0 root cake bandwidth 10mbit",
    "${TC} qdisc add dev 'eth0' root cake bandwidth \"10mbit\"",
    "qdisc add dev eth0 root cake bandwidth 10mbit",
    "tc qdisc add dev eth0 root \\\n  cake \\\n bandwidth 10mbit",
    "tc qdisc add dev eth0 root cake bandwidth 10mbit   # the shaper",
    "tc qdisc del dev eth0 root 2>/dev/null; tc qdisc add dev eth0 root cake bandwidth 10mbit",
    "tc qdisc add dev eth0 root fq_codel && tc qdisc replace dev eth0 root cake bandwidth 10mbit",
    "tc qdisc add dev eth0 root cake bandwidth 5mbit\ntc qdisc change dev eth0 root cake bandwidth "
    "10mbit",
    "tc qdisc add dev eth0 root cake bandwidth 10mbit\ntc -s qdisc show dev eth0",
    "`tc qdisc add dev eth0 root cake bandwidth 10mbit`",
    "tc qdisc add dev eth0 root cake\nbandwidth 10mbit",
    "tc qdisc add root dev eth0 handle 8001: cake bandwidth 10mbit",
    "\r\n  tc qdisc add dev eth0 root cake bandwidth 10mbit\r\n",
]


@pytest.mark.parametrize("text", PASTED)
def test_lines_are_read_as_they_are_pasted(text: str) -> None:
    qdisc = qdiscs.read(text, 1500)
    assert (qdisc.kind, qdisc.rate_bps, qdisc.device) == ("cake", 10_000_000, "eth0")
    assert not any("Passed over" in note for note in qdisc.notes)


def test_lines_about_something_else_are_counted() -> None:
    script = """#!/bin/sh
ip link add ifb0 type ifb
tc qdisc add dev eth0 handle ffff: ingress
tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev ifb0
tc qdisc add dev eth0 root cake bandwidth 10mbit nat no-split-gso autorate-ingress fwmark 0xff
"""
    qdisc = qdiscs.read(script, 1500)
    assert [note for note in qdisc.notes if "Passed" in note] == [
        "Passed over 3 lines that set no qdisc or class: "
        '"#!/bin/sh", "ip link add ifb0 type ifb", "tc filter add dev eth0 parent ffff: mat…".'
    ]
    assert "Left out: ingress, which holds no packets that leave." in qdisc.notes
    words = [word.split(" (")[0] for word in qdisc.without_effect]
    assert words == ["nat", "no-split-gso", "autorate-ingress", "fwmark 0xff"]


CAKE_WITH_COUNTERS = """
qdisc cake 8021: dev eth0 root refcnt 2 bandwidth 20Mbit diffserv4 dual-srchost nat nowash \
no-ack-filter split-gso rtt 100ms ptm overhead 30 memlimit 32Mb
 Sent 67508463 bytes 205121 pkt (dropped 92, overlimits 236414 requeues 0)
 backlog 0b 0p requeues 0
 memory used: 243Kb of 32Mb
 capacity estimate: 20Mbit
 min/max network layer size:           28 /    1492
 min/max overhead-adjusted size:       59 /    1546
 average network hdr offset:            0

                   Bulk  Best Effort        Video        Voice
  thresh       1250Kbit       20Mbit       10Mbit        5Mbit
  target         14.5ms          5ms          5ms          5ms
  interval        110ms        100ms        100ms        100ms
  pk_delay          0us        213us          0us         28us
  av_delay          0us         12us          0us          1us
  sp_delay          0us          5us          0us          1us
  backlog            0b           0b           0b           0b
  pkts                0       204127            0         1086
  bytes               0     67502019            0       142204
  way_inds            0         4893            0            0
  drops               0           92            0            0
  ack_drop            0            0            0            0
  sp_flows            0            2            0            1
  max_len             0        12212            0          342
  quantum           300          610          305          300
"""


def test_counters_are_not_words() -> None:
    qdisc = qdiscs.read(CAKE_WITH_COUNTERS, 1500)
    law = qdisc.law.table()
    assert (law["bandwidth"], law["overhead"], law["framing"]) == ("20000000bit/s", "30B", "ptm")
    assert (law["target"], law["interval"]) == ("5ms", "100ms")
    assert not any("Passed" in note for note in qdisc.notes)
    fq_codel = """qdisc fq_codel 0: dev eth0 root refcnt 2 limit 10240p flows 1024 quantum 1514
 target 5ms interval 100ms memory_limit 32Mb ecn drop_batch 64
 Sent 3021 bytes 21 pkt (dropped 0, overlimits 0 requeues 0)
 rate 0bit 0pps backlog 0b 0p requeues 0
  maxpacket 0 drop_overlimit 0 new_flow_count 0 ecn_mark 0
  new_flows_len 0 old_flows_len 0
"""
    qdisc = qdiscs.read(fq_codel, 1500)
    # A line that a terminal has wrapped is one.
    assert (qdisc.ecn, qdisc.law.table()["interval"], qdisc.buffer) == (True, "100ms", "10240p")
    assert not any("Passed" in note for note in qdisc.notes)


def test_an_option_that_show_omits_is_off() -> None:
    shown = "qdisc fq_codel 110: dev eth0 parent 1:10 limit 1001p flows 1024 target 5ms"
    assert not qdiscs.read(shown, 1500).ecn
    assert not qdiscs.read("fq_codel limit 1001p flows 1024 target 5ms", 1500).ecn
    assert qdiscs.read(shown + " ecn", 1500).ecn
    assert qdiscs.read("tc qdisc add dev eth0 root fq_codel", 1500).ecn
    assert not qdiscs.read("tc qdisc add dev eth0 root fq_codel noecn", 1500).ecn
    for kind in ("codel", "pie", "fq_pie"):
        assert not qdiscs.read(f"tc qdisc add dev eth0 root {kind}", 1500).ecn
    for kind in ("cake", "dualpi2"):
        assert qdiscs.read(f"qdisc {kind} 1: dev eth0 root refcnt 2", 1500).ecn


def test_dualpi2_is_read_as_its_kernel_shows_it() -> None:
    shown = (
        "qdisc dualpi2 1: dev eth0 root refcnt 2 limit 10000p memlimit 20000000B target 15ms "
        "tupdate 16ms alpha 0.160156 beta 3.199219 step_thresh 1ms min_qlen_step 0p "
        "coupling_factor 2 drop_on_overload drop_dequeue classic_protection 10% l4s_ect split_gso"
    )
    qdisc = qdiscs.read(shown, 1500)
    law = qdisc.law.table()
    # 20 MB of memory are full first: 2304 bytes a packet. The gains are the kernel's defaults.
    assert qdisc.buffer == "8680p"
    assert law["beta"] == pytest.approx(3.197783)
    assert law["alpha"] == pytest.approx(0.160071)
    configured = qdiscs.read(
        "tc qdisc add dev eth0 root dualpi2 max_rtt 150ms typical_rtt 30ms", 1500
    )
    law = configured.law.table()
    assert (law["target"], law["interval"]) == ("30ms", "30ms")
    # 0.1·30 ms/(150 ms)² and 0.3/150 ms, in parts of 256.
    assert law["alpha"] == pytest.approx(0.1333, rel=0.03)
    assert law["beta"] == pytest.approx(2.0, rel=0.003)


def test_red_has_the_defaults_of_tc() -> None:
    """tc-red(8): max of a quarter of the limit, min of a third of max, and a burst from both."""
    whole = "tc qdisc add dev eth0 root red limit 400000 min 30000 max 90000 avpkt 1000 burst 50 "
    shorter = ["limit 400000 min 30000 avpkt 1000", "limit 400000 max 90000 avpkt 1000"]
    law = qdiscs.read(whole + "probability 0.02 ecn", 1500).law
    for words in [*shorter, "limit 360000 avpkt 1000"]:
        qdisc = qdiscs.read(f"tc qdisc add dev eth0 root red {words} ecn", 1500)
        assert qdisc.law.table() == law.table()
    adaptive = qdiscs.read(whole + "adaptive", 1500).law.table()
    assert (adaptive["kind"], adaptive["max_p"], adaptive["bottom"]) == ("ared", 0.02, 0.01)
    with pytest.raises(ScenarioError, match="red: nodrop: the simulation's red drops"):
        qdiscs.read(whole + "nodrop ecn", 1500)


def test_a_threshold_of_l4s_does_not_mark_other_flows() -> None:
    line = (
        "qdisc fq_codel 0: dev eth0 root limit 10240p ce_threshold 1ms ce_threshold_selector {} ecn"
    )
    assert "ce_threshold" not in qdiscs.read(line.format("0x1/0x1"), 1500).law.table()
    assert qdiscs.read(line.format("0/0"), 1500).law.table()["ce_threshold"] == "1ms"


def test_a_limit_beyond_any_buffer_is_none() -> None:
    shown = "qdisc codel 8002: dev d0 root refcnt 2 limit 4294967294p target 5.0ms interval 100.0ms"
    qdisc = qdiscs.read(shown, 1500)
    assert qdisc.buffer == "1000000000p"
    assert "4294967294" in qdisc.notes[0]


def test_cake_is_no_faster_than_the_class_above_it() -> None:
    lines = (
        "tc qdisc add dev ppp0 root handle 1: htb default 1\n"
        "tc class add dev ppp0 parent 1: classid 1:1 htb rate {}mbit\n"
        "tc qdisc add dev ppp0 parent 1:1 cake bandwidth 20mbit\n"
    )
    rates = [qdiscs.read(lines.format(rate), 1500).rate_bps for rate in (10, 30)]
    assert rates == [10_000_000, 20_000_000]


def test_a_device_of_several_queues_has_one_cake() -> None:
    shown = (
        "qdisc cake_mq 1: dev eth0 root refcnt 5 bandwidth 1Gbit diffserv3 raw overhead 0\n"
        "qdisc cake 0: dev eth0 parent 1:1 bandwidth 1Gbit diffserv3 raw overhead 0\n"
        "qdisc cake 0: dev eth0 parent 1:2 bandwidth 1Gbit diffserv3 raw overhead 0\n"
    )
    qdisc = qdiscs.read(shown, 1500)
    assert (qdisc.kind, qdisc.rate_bps) == ("cake", 1_000_000_000)


def test_the_fifo_of_a_device_is_a_queue() -> None:
    shown = (
        "qdisc pfifo_fast 0: dev eth0 root refcnt 2 bands 3 priomap 1 2 2 2 1 2 0 0 1 1 1 1 1 1 1 1"
    )
    qdisc = qdiscs.read(shown, 1500)
    assert (qdisc.law.kind, qdisc.buffer) == ("droptail", "1000p")


def test_init_writes_the_law_and_link_of_a_line(cli: Cli) -> None:
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
    assert refused.stderr.strip() == (
        "error: --law: the lines of --tc already give the law, codel; leave it out"
    )
