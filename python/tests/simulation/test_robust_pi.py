"""One PI for a range: its set of stabilising gains against the exact count, and its choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forebay
from forebay.control import frequency_response, margins, pi_stabilising_set
from forebay.control.frequency_response import Terms
from forebay.control.link import Link

LINK = Link("5Mbit/s", "40ms", flows=10)
RANGE: dict[str, Any] = {
    "rate": ("5Mbit/s", "50Mbit/s"),
    "rtt": ("40ms", "200ms"),
    "flows": (10.0, 40.0),
}


@pytest.mark.parametrize(
    ("law", "asked"),
    [
        ("pi", {"senders": "cubic"}),
        ("pie", {"senders": "dctcp"}),
        ("pi", {"senders": "prague", "rtt": ("6ms", "60ms"), "flows": (5, 10)}),
        ("pi", {"senders": "cubic,reno", "rtt": "20ms,80ms"}),
        ("dualpi2", {"l4s_flows": 8.0}),
    ],
)
def test_a_range_may_have_any_flows(law: str, asked: dict[str, Any]) -> None:
    """Every corner is calm, by the loop of its own flows, and one of them just so."""
    values: dict[str, Any] = {"rtt": ("20ms", "80ms"), "flows": (10, 40)} | asked
    rtt, flows = values.pop("rtt"), values.pop("flows")
    first = rtt[0] if isinstance(rtt, tuple) else rtt
    base = Link("20Mbit/s", first, flows=flows[0], packet="1500B", **values)
    rates = ("20Mbit/s", "60Mbit/s")
    rtts = rtt if isinstance(rtt, tuple) else None
    found = pi_stabilising_set.design_for_range(
        law, base, rate=rates, rtt=rtts, flows=flows, target="20ms"
    )
    assert len(found.loops) >= 3
    assert max(loop.peak for loop in found.loops) == pytest.approx(2, abs=0.03)
    assert all(loop.roots[0].real < 0 for loop in [*found.loops, *found.inside])
    link = found.corners[0].place
    assert isinstance(link, Link)
    assert link.senders == asked.get("senders", "reno")


def counted(one: pi_stabilising_set.Corner, k_p: float, k_i: float, interval_s: float) -> bool:
    """By Nyquist's count of the same loop."""
    point, half = one.point, 0.5 * k_i * interval_s
    return margins.stable(
        Terms(
            point.plant_gain,
            frequency_response.separate_repeated_poles((point.tcp_pole, point.queue_pole)),
            point.rtt_s,
            0.0,
            interval_s,
            (k_p + half, half - k_p),
            (1.0, -1.0),
        )
    )


def test_the_set_is_that_of_the_exact_count() -> None:
    found = pi_stabilising_set.design_for_range("pi", LINK, **RANGE, target="30p")
    interval_s = found.gains.interval_s
    cells = 0
    for one in found.corners:
        shares = np.array([0.02, 0.3, 0.7, 0.95, 1.05])
        k_p = shares * one.most_k_p()
        for p, limit in zip(k_p, one.most_k_i(k_p), strict=True):
            assert (limit > 0) == (p < one.most_k_p())
            for share in (0.3, 0.97, 1.03, 2.0):
                k_i = share * (limit if limit > 0 else 1e-3 * p)
                assert counted(one, p, k_i, interval_s) == (limit > 0 and share < 1)
                cells += 1
    assert cells == 20 * len(found.corners)


def test_the_chosen_gains_are_robust_at_every_corner_and_the_largest() -> None:
    found = pi_stabilising_set.design_for_range("pi", LINK, **RANGE, target="30p")
    peaks = [loop.peak for loop in found.loops]
    assert all(loop.stable for loop in found.loops)
    assert max(peaks) == pytest.approx(2.0, abs=0.01)
    # A tenth more of the integral breaks it, whichever K_p stands beside it.
    k_p = np.geomspace(1e-3, 1, 400) * min(one.most_k_p() for one in found.corners)
    calm = np.min([one.robust_k_i(k_p) for one in found.corners], axis=0)
    assert calm.max() < 1.01 * found.gains.k_i / 0.999
    # And inside every set.
    for one in found.corners:
        assert found.gains.k_i < one.most_k_i(np.array([found.gains.k_p]))[0]


def test_a_range_on_the_command_line(cli, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    words = ["design", "pi", "--rate", "5..50Mbit/s", "--rtt", "20..200ms", "--flows", "10..400"]
    done = cli(*words, "--out", "range")
    assert done.returncode == 0, done.stderr
    assert "One set of gains is slow for this range" in done.stdout
    assert "corner left out: 5Mbit/s, 20ms, 400 flows" in done.stdout
    folder = tmp_path / "range"
    assert (folder / "gains.png").stat().st_size > 10_000
    assert 'kind = "pi"' in (folder / "law.toml").read_text()
    table = json.loads(cli(*words, "--json").stdout)
    assert not table["suffices"]
    assert all(corner["sensitivity_peak"] < 2.01 for corner in table["corners"])


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["red", "--rtt", "20..200ms", "--flows", "10"], 'law: "red": a range requires a PI'),
        (["pi", "--rtt", "20..200ms", "--flows", "ten"], "--flows"),
        (
            ["pi", "--rtt", "20..200ms", "--flows", "10", "--set", "beta=0.3"],
            '--set: "beta" cannot be',
        ),
        (
            ["pi", "--rtt", "20ms", "--flows", "ten"],
            '--flows: "ten" is not valid; expected a number',
        ),
    ],
)
def test_a_wrong_range_is_refused_in_one_line(words: list[str], wrong: str, cli) -> None:  # type: ignore[no-untyped-def]
    done = cli("design", words[0], "--rate", "10Mbit/s", *words[1:])
    assert done.returncode == 2
    assert wrong in done.stderr and done.stderr.count("\n") == 1


def test_too_many_flows_for_every_corner() -> None:
    with pytest.raises(forebay.ScenarioError, match="no corner of the ranges has an equilibrium"):
        link = Link("1Mbit/s", "20ms", flows=4000)
        rtts = ("20ms", "40ms")
        pi_stabilising_set.design_for_range("pi", link, rtt=rtts, target="5p")
