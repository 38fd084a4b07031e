"""A law as settings of a router."""

from __future__ import annotations

from typing import Any

import pytest

from forebay import ScenarioError
from forebay.scenario import router

LINK: dict[str, Any] = {"rate_bps": 15_000_000, "packet_bytes": 1500, "buffer_pkts": 300}


def test_a_qdisc_without_a_rate_stands_below_one_that_has_it() -> None:
    found = router.settings("codel", [("target", "10ms")], **LINK)
    assert found is not None
    # 15 Mbit/s of IP packets are 1514/1500 of that with Ethernet's headers, and tbf holds one more.
    assert found.tc == [
        "tc qdisc replace dev eth0 root handle 1: tbf rate 15140000bit burst 3028 latency 1s",
        "tc qdisc replace dev eth0 parent 1:1 codel limit 301 target 10ms interval 100ms ecn",
    ]
    assert "    option upload '15140'" in found.sqm
    assert "    option script 'simplest_tbf.qos'" in found.sqm
    assert "    option eqdisc_opts 'limit 301 target 10ms interval 100ms ecn'" in found.sqm


def test_a_queue_with_a_shaper_holds_itself_to_the_rate() -> None:
    found = router.settings(
        "cake", [("tins", "besteffort"), ("overhead", "44B"), ("framing", "atm")], **LINK
    )
    assert found is not None
    assert found.tc == [
        "tc qdisc replace dev eth0 root cake rtt 100ms bandwidth 15000000bit besteffort "
        "triple-isolate nowash no-ack-filter overhead 44 mpu 0 atm memlimit 691200"
    ]
    (options,) = [line for line in found.sqm if "eqdisc_opts" in line]
    assert "bandwidth" not in options and "overhead 44" in options
    assert "    option upload '15000'" in found.sqm
    assert "    option script 'piece_of_cake.qos'" in found.sqm


def test_a_rounded_parameter_has_a_comment() -> None:
    lines = list(router.lines("pie", [("alpha", 0.1)], **LINK))
    assert (
        lines[1]
        .split("parent 1:1 ")[1]
        .startswith("pie limit 301 target 15ms tupdate 15ms alpha 2 ")
    )
    assert lines[2] == "# alpha is 0.125 there, for 0.1"


def test_a_law_without_a_qdisc_has_no_lines() -> None:
    assert list(router.lines("pi", [("target", "20p")], **LINK)) == []
    with pytest.raises(ScenarioError, match=r"^red: gentle"):
        router.settings("red", [], **LINK)
    (why,) = router.lines("red", [], **LINK)
    assert why.startswith(
        "# Linux's qdisc does not take these parameters: red: gentle: true is not valid; "
        "expected false, "
    )
