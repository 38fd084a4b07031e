"""Packets under PIE, whose gains step with its probability (RFC 8033 section 4.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import forebay
from forebay.control import fitted_gains
from forebay.control.design import design
from forebay.control.link import Link


def test_packets_of_prague_hold_the_set_point_beside_a_step(tmp_path: Path) -> None:
    """258 packets for 215, with gains that only a calm loop bounded."""
    (metrics,) = _run(tmp_path, "278Mbit/s", "prague", 23, "17ms", 215, '"l4s"', packet="687B")
    assert abs(metrics["queue_mean_pkts"] - 215) < 0.05 * 215


def test_packets_of_reno_beside_a_step_hold_more_than_the_set_point(tmp_path: Path) -> None:
    """A fast loop holds 93 packets for 62 next to a step. PI2 holds 62, and so do the gains that
    the design prefers because Linux's pie can have them."""
    place = fitted_gains.OperatingRange(
        50_000_000, 1000, (0.04, 0.04), 248.0, (16.0, 16.0), tcp="linux-reno"
    )
    line = fitted_gains.fit("pie", place, {"target": "62p"}).line
    assert "schedule switches within" in line and "consider pi2" in line
    made = fitted_gains.fit("pie", place, {"target": "62p"}).design
    assert made is not None and made.gains
    gains = f"alpha = {made.gains['alpha']}\nbeta = {made.gains['beta']}"
    link = (tmp_path, "50Mbit/s", "linux-reno", 16, "40ms", 62, "true")
    (slow,), (pi2,) = _run(*link, gains=gains), _run(*link, law="pi2")
    (fast,) = _run(*link, gains="alpha = 0.2139\nbeta = 9.514")
    assert fast["queue_mean_pkts"] > 1.25 * 62
    assert abs(slow["queue_mean_pkts"] - 62) < 0.06 * 62
    assert abs(pi2["queue_mean_pkts"] - 62) < 0.06 * 62


def test_automatic_gains_of_pie_leave_room_before_a_step(tmp_path: Path) -> None:
    """By gains without that room 60 flows had 79.5 packets for 56.25 (docs/evidence/gains.md)."""
    place = fitted_gains.OperatingRange(15_000_000, 500, (0.2, 0.2), 800.0, (60.0, 60.0))
    made = fitted_gains.fit("pie", place).design
    assert made is not None and made.loop is not None
    plain = design("pie", Link("15Mbit/s", "200ms", flows=60, packet="500B"), target="15ms")
    assert plain.loop is not None
    assert made.loop.model["proportional"] < 0.9 * plain.loop.model["proportional"]
    assert made.headroom is not None
    (metrics,) = _run(
        tmp_path, "15Mbit/s", "reno", 60, "200ms", 56, "false", packet="500B", seconds=120
    )
    assert abs(metrics["queue_mean_pkts"] - 56) < 0.08 * 56


def _run(
    folder: Path,
    rate: str,
    tcp: str,
    flows: int,
    rtt: str,
    target_pkts: int,
    ecn: str,
    *,
    gains: str = 'gains = "auto"',
    packet: str = "1000B",
    law: str = "pie",
    seconds: int = 60,
) -> list[dict[str, Any]]:
    marks = "restart_at_mark = true\nmark_up_to = 1\n" if law == "pie" else ""
    file = folder / f"{law}.toml"
    file.write_text(f"""
duration = "{seconds}s"
measure = ["{seconds // 3}s", "{seconds}s"]
[bottleneck]
rate = "{rate}"
delay = "2ms"
buffer = "{max(4 * target_pkts, 2000)}p"
ecn = true
[[traffic]]
kind = "ftp"
flows = {flows}
tcp = "{tcp}"
ecn = {ecn}
rtt = "{rtt}"
packet = "{packet}"
start = {{ uniform = ["0s", "2s"] }}
[[law]]
kind = "{law}"
target = "{target_pkts}p"
{gains}
{marks}""")
    return forebay.run(file, seeds=1).metrics.to_dicts()
