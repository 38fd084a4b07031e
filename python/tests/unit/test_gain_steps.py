"""PIE's gains step with its probability (RFC 8033 section 4.2): what that does to the queue, and
what a design makes of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.control import fitted_gains
from forebay.control.design import design
from forebay.report import designs

#: Signals per packet where PIE's own probability is 0.01: its sum passes 0.85 first (RFC 8033
#: section 5.4).
AT_ONE_PERCENT = 0.01 / (1.85 - 0.5 * 0.01)


def test_a_step_stands_where_rfc_8033_has_it() -> None:
    made = design("pie", "30Mbit/s", 80, "200ms")
    p0 = made.point.probability
    assert p0 > AT_ONE_PERCENT
    slow = design("pie", "30Mbit/s", 60, "200ms", overrides={"crossover": "0.5"})
    found = slow.gain_step
    assert found is not None
    assert math.isclose(found.probability, AT_ONE_PERCENT, rel_tol=1e-3)
    assert abs(found.factor / 4 - 1) < 0.02
    # Of the two plants the nearer one: packets need less than 2/W².
    assert slow.sawtooth is not None and slow.loop is not None
    p = slow.sawtooth.point.probability
    gain = slow.sawtooth.model["proportional"]
    assert math.isclose(found.headroom_pkts, (p - AT_ONE_PERCENT) / gain, rel_tol=0.02)


@pytest.mark.parametrize("law", ["pi", "pi2", "rem", "stpi"])
def test_laws_with_smooth_gains_have_no_steps(law: str) -> None:
    for flows in (12, 30, 60):
        assert design(law, "30Mbit/s", flows, "200ms").gain_step is None


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0])
def test_a_change_that_crosses_a_step_loses_a_share_of_its_square(factor: float) -> None:
    """By the sampled law alone, of a queue that moves at random around its set-point: what p loses
    at a step, as the module's text has it."""
    rng = np.random.default_rng(7)
    step, moves, runs = 0.1, 0.02, 4000
    # u is what p would be with the gains below the step; a queue without memory.
    u = rng.normal(0.0, 4 * moves, (runs, 2))
    p = np.where(u[:, 0] < 0, step + u[:, 0], step + factor * u[:, 0])
    change = u[:, 1] - u[:, 0]
    after = p + np.where(p < step, 1.0, factor) * change
    back = np.where(after < step, after - step, (after - step) / factor)
    lost = float(np.mean(u[:, 1] - back))
    # Var(change)·density at the step·(g2/g1 − g1/g2)/4; both u are as wide as the changes here, so
    # that the density over a change is not one number: within a third.
    told = (factor - 1 / factor) / 4 * float(np.var(change)) / (4 * moves * math.sqrt(2 * math.pi))
    assert abs(lost - told) < 0.35 * told + 0.002


def test_a_design_for_prague_stays_within_a_step() -> None:
    made = design("pie", "278Mbit/s", 23, "17ms", packet="687B", target="215p", tcp="prague")
    assert made.stable and made.gain_step is None
    assert "within one step of the law's gains" in designs.paragraph(made)


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
    assert "gains step" in line and "take pi2" in line
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
    """By gains without that room 60 flows had 79.5 packets for 56.25 (docs/gains.md)."""
    place = fitted_gains.OperatingRange(15_000_000, 500, (0.2, 0.2), 800.0, (60.0, 60.0))
    made = fitted_gains.fit("pie", place).design
    assert made is not None and made.loop is not None
    plain = design("pie", "15Mbit/s", 60, "200ms", packet="500B", target="15ms")
    assert plain.loop is not None
    assert made.loop.model["proportional"] < 0.9 * plain.loop.model["proportional"]
    assert made.headroom is not None
    (metrics,) = _run(
        tmp_path, "15Mbit/s", "reno", 60, "200ms", 56, "false", packet="500B", seconds=120
    )
    assert abs(metrics["queue_mean_pkts"] - 56) < 0.08 * 56


def test_a_design_says_what_a_step_does() -> None:
    text = designs.paragraph(design("pie", "30Mbit/s", 60, "200ms"))
    assert "will stand above the set-point" in text and "PI2 has no such steps" in text
    assert "above the set-point" not in designs.paragraph(design("pi2", "30Mbit/s", 60, "200ms"))


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
