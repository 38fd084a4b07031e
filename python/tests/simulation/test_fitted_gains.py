"""Numbers that fit a link by themselves: `forebay.control.fitted_gains`, and who asks it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import one_bottleneck
from scipy.linalg import expm

import forebay
from forebay import _native
from forebay.control.fitted_gains import MOST_OF_BUFFER, OperatingRange, fit, unwinding_s
from forebay.experiment import experiment
from forebay.linux import link_settings
from forebay.linux.link_settings import designed, settings
from forebay.linux.link_settings import words as words_of
from forebay.report import designs
from forebay.scenario.builder import Law

#: Unlike links: rate in bit/s, packet, RTT in s, buffer in packets, flows.
LINKS = [
    (64_000, 576, 0.6, 100.0, 1.0),
    (1_000_000, 1500, 0.1, 100.0, 3.0),
    (10_000_000, 1500, 0.02, 100.0, None),
    (15_000_000, 500, 0.2, 800.0, 60.0),
    (1_000_000_000, 1500, 0.001, 1000.0, 20.0),
    (10_000_000_000, 1500, 0.02, 50_000.0, 500.0),
]


def place(link: tuple[int, int, float, float, float | None]) -> OperatingRange:
    rate_bps, packet, rtt_s, room, flows = link
    return OperatingRange(
        rate_bps, packet, (rtt_s, rtt_s), room, None if flows is None else (flows, flows)
    )


BOTH_WAYS = {"pd-red"}
LAWS = [entry["name"] for entry in _native.laws()]


@pytest.mark.parametrize("law", LAWS)
def test_every_law_fits_every_link(law: str) -> None:
    # A loop that acts both ways takes seconds.
    links = LINKS[3:4] if law in BOTH_WAYS else LINKS
    for link in links:
        there = place(link)
        found = fit(law, there)
        # It can be built there: a set-point or threshold beyond the buffer is refused.
        rate_bps, packet, rtt_s, room, _ = link
        model = _native.LawModel(law, found.params, rate_bps, packet, room)
        assert found.line.startswith(law)
        if found.design is None or found.design.loop is None:
            continue
        assert found.design.stable, found.line
        assert found.sensitivity is not None
        calm = found.sensitivity <= 2.0
        assert calm or "above 2" in found.line
        # A law that holds a queue holds one that leaves room.
        if found.design.loop.model["integrates"]:
            assert found.design.target_pkts <= MOST_OF_BUFFER * room + 1
            operated = model.operate((found.flows or (1.0,))[0], rtt_s)
            assert operated is not None
        if law == "pi":
            assert calm


def test_given_numbers_stay() -> None:
    there = place(LINKS[2])
    assert fit("pi", there) == fit("pi", there)
    whole = dict(fit("pi", there).params)
    assert set(whole) == {"target", "a", "b", "interval"}
    part = dict(fit("pi", there, {"target": "30p", "interval": "2ms"}).params)
    assert set(part) == {"a", "b"}
    # The gains are those for what was given.
    assert part["a"] != whole["a"]
    assert fit("pi", there, {"target": "30p", **part, "interval": "2ms"}).params == ()
    with pytest.raises(forebay.ScenarioError, match="targt"):
        fit("pi", there, {"targt": "30p"})


def test_laws_without_a_rule_get_what_their_authors_advise() -> None:
    slow, usual, far = (
        OperatingRange(rate, 1500, (rtt, rtt), 1000.0)
        for rate, rtt in [(256_000, 0.05), (10_000_000, 0.02), (100_000_000, 0.6)]
    )
    assert fit("codel", usual).params == ()
    # One and a half packets of 46.9 ms (RFC 8290 section 5.2.1).
    assert dict(fit("codel", slow).params)["target"] == "70.3ms"
    assert dict(fit("codel", far).params)["interval"] == "605ms"
    assert dict(fit("blue", far).params) == {"freeze_time": "600ms"}
    assert "no design rule" in fit("codel", slow).line
    # A law in each of many queues has many loops.
    apart = OperatingRange(10_000_000, 1500, (0.02, 0.02), 100.0, one_loop=False)
    assert "a queue for each flow, for which there is no design rule" in fit("pi", apart).line
    assert dict(fit("pi", apart).params) == {"target": "50p"}


@pytest.mark.parametrize("link", LINKS[1:4])
def test_packets_settle_where_the_design_says(
    link: tuple[int, int, float, float, float | None],
) -> None:
    there, law = place(link), "pi"
    found = fit(law, there)
    rate_bps, packet, rtt_s, room, flows = link
    result = forebay.run(
        {
            "duration": "60s",
            "measure": ["20s", "60s"],
            "bottleneck": {
                "rate": f"{rate_bps}bit/s",
                "delay": f"{250 * rtt_s}ms",
                "buffer": f"{room:g}p",
            },
            "traffic": [
                {
                    "kind": "ftp",
                    "flows": int(flows or 4),
                    "packet": f"{packet}B",
                    "rtt": f"{1000 * rtt_s:g}ms",
                    "access": "1Gbit/s",
                    "start": "0s",
                }
            ],
            "law": [Law(law, found.params).table()],
        }
    )
    metrics = result.runs[0].metrics
    assert found.target_pkts is not None
    error = abs(metrics["queue_mean_pkts"] - found.target_pkts)
    assert error < max(0.15 * found.target_pkts, 1.0)
    assert metrics["utilisation"] > 0.93


def test_a_link_designs_its_laws() -> None:
    wanted, lines = designed("10Mbit/s", "10ms", "100p", "pi")
    assert len(lines) == 1
    assert "4 flows or more (assumed)" in lines[0]
    assert wanted.down.params == wanted.up.params
    assert {name for name, _ in wanted.down.params} == {"target", "a", "b", "interval"}
    # The command that it says designs the same.
    assert "--set" in words_of(wanted)
    again = settings(
        **{"params" if key == "set" else key: value for key, value in wanted.given.items()}
    )
    assert again.given == wanted.given
    with pytest.raises(
        forebay.ScenarioError,
        match=r'"200p" .the default. is not valid; expected at most the buffer, "100p"',
    ):
        settings("10Mbit/s", "10ms", "100p", "pi", gains="paper")
    with pytest.raises(forebay.ScenarioError, match="flows"):
        settings("10Mbit/s", aqm="pi", flows="0")
    with pytest.raises(forebay.ScenarioError, match="tarqet"):
        settings("10Mbit/s", aqm="pi", params={"tarqet": "20p"})
    own = settings("10Mbit/s", "10ms", "100p", "pi", {"target": "20p"}, flows="10..40")
    assert dict(own.down.params)["target"] == "20p"
    assert dict(own.down.params)["a"] != dict(wanted.down.params)["a"]
    assert settings("10Mbit/s", "10ms").down.params == []


def test_each_direction_has_its_own() -> None:
    wanted, lines = designed("10Mbit/s", "10ms", "100p", "pi", rate_up="1Mbit/s")
    assert [line.split(":")[0] for line in lines] == ["down", "up"]
    assert wanted.up.params != wanted.down.params
    wanted, _ = designed("10Mbit/s", "10ms", "100p", "pi", aqm_up="droptail")
    assert wanted.up.params == []
    assert wanted.down.params
    wanted, lines = designed("10Mbit/s", "10ms", "100p", aqm_up="rem")
    assert wanted.down.params == []
    assert dict(wanted.up.params).keys() >= {"gamma", "alpha", "target"}


def test_another_process_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    here = designed("10Mbit/s", "10ms", "100p", "pi")[1]
    import sys

    monkeypatch.delitem(sys.modules, "numpy")
    assert designed("10Mbit/s", "10ms", "100p", "pi")[1] == here
    assert link_settings.with_gains({"rate": "10Mbit/s"}, []) == ({"rate": "10Mbit/s"}, [])


AUTO = """\
title = "Auto"
duration = "10s"
bottleneck = { rate = "10Mbit/s", delay = "5ms", buffer = "100p" }
traffic = [{ kind = "ftp", flows = 8, packet = "1500B", rtt = "20ms" }]
[[law]]
kind = "pi"
gains = "auto"
interval = "2ms"
[[law]]
label = "old"
kind = "red"
gains = "paper"
"""


def params(read: experiment.Experiment, law: int = 0) -> dict[str, object]:
    return dict(read.plan.points[0].laws[law].params)


def test_a_scenario_is_resolved_before_it_runs(tmp_path: Path) -> None:
    file = tmp_path / "auto.toml"
    file.write_text(AUTO)
    read = experiment.read(file)
    there = OperatingRange(10_000_000, 1500, (0.02, 0.02), 100.0, (8.0, 8.0))
    found = fit("pi", there, {"interval": "2ms"})
    assert read.designed == [found.line]
    assert "auto" not in read.text.replace("auto.toml", "")
    assert found.line in read.text
    mine = params(read)
    assert {name: str(mine[name]) for name in ("a", "b")} == {
        name: str(float(value)) for name, value in found.params if name in {"a", "b"}
    }
    assert mine["interval"] == "2ms"
    assert params(read, 1)["min_th"] == "5p"
    # What it became is a scenario as any other.
    assert params(experiment.read(read.text)) == mine
    assert params(experiment.read(file, overrides=["law.pi.target=30p"]))["target"] == "30p"
    other = experiment.read(file, overrides=["law.old.gains=auto"])
    assert len(other.designed) == 2
    assert params(other, 1)["min_th"] != "5p"
    named = experiment.read(file, laws=["pi2"], overrides=["law.pi2.gains=auto"])
    assert named.plan.laws == ["pi2"]
    assert params(named)["alpha"] != params(experiment.read(file, laws=["pi2"]))["alpha"]


def test_a_scenario_is_designed_for_its_sender(tmp_path: Path) -> None:
    file = tmp_path / "auto.toml"
    file.write_text(AUTO.replace('rtt = "20ms"', 'rtt = "20ms", tcp = "linux-cubic"'))
    read = experiment.read(file)
    there = OperatingRange(10_000_000, 1500, (0.02, 0.02), 100.0, (8.0, 8.0), tcp="cubic")
    assert read.designed == [fit("pi", there, {"interval": "2ms"}).line]
    assert "8 flows of cubic" in read.designed[0]
    # Flows of L4S count as before under a law that tells them apart.
    assert (
        fit("dualpi2", replace(there, tcp="prague")).params
        == fit("dualpi2", replace(there, tcp="reno")).params
    )


def test_each_point_of_a_sweep_is_a_link_of_its_own(tmp_path: Path) -> None:
    swept = AUTO.replace('interval = "2ms"\n', "")
    swept += '[sweep]\n"traffic.0.flows" = [6, 8]\n"law.old.max_p" = [0.1, 0.2]\n'
    read = experiment.read(swept)
    at = [OperatingRange(10_000_000, 1500, (0.02, 0.02), 100.0, (n, n)) for n in (6.0, 8.0)]
    few, many = (fit("pi", there) for there in at)
    assert read.designed == [
        f"traffic.0.flows = 6, law.old.max_p = 0.1 and 1 more: {few.line}",
        f"traffic.0.flows = 8, law.old.max_p = 0.1 and 1 more: {many.line}",
    ]
    # Two designs have no one place in the file, so it says that there are two.
    assert "[[law]] # 2 designs, for the points of the sweep" in read.text
    assert experiment.read(read.text).designed == read.designed
    result = forebay.run(swept, overrides=["duration=2s", 'measure=["1s", "2s"]'])
    of_pi = result.metrics.filter(pl.col("law") == "pi").sort("traffic.0.flows")
    numbers = [json.loads(text)["a"] for text in of_pi["parameters"]]
    assert numbers == pytest.approx([float(dict(it.params)["a"]) for it in (few, few, many, many)])
    result.report(tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Each point has its own link and load" in page
    # Timed changes are of one point, so its design holds over all of them.
    changed = AUTO + '[[at]]\ntime = "1s"\nset = { "traffic.0.flows" = 80 }\n'
    assert "8 to 80 flows" in experiment.read(changed).designed[0]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            AUTO.replace('"auto"', '"best"'),
            'gains: "best" is not valid; expected one of auto, paper',
        ),
        (AUTO.replace('"pi"', '"pike"'), 'kind: "pike" is not valid; expected one of droptail, '),
        (AUTO.replace('interval = "2ms"', 'intervall = "2ms"'), "intervall"),
        (AUTO.replace('rate = "10Mbit/s"', 'rate = "fast"'), "rate"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, wrong: str) -> None:
    with pytest.raises(forebay.ScenarioError, match=wrong) as found:
        experiment.read(text)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("law", ["pi", "rem", "pi2", "dualpi2"])
def test_a_path_far_shorter_than_the_laws_interval_gets_another(law: str) -> None:
    """10 Gbit/s over 0.1 ms: PI's rule has no gains at 6.25 ms (b would be below zero), and PI2
    takes no interval below 0.1 ms. The loop is held against its eigenvalues, computed apart."""
    found = fit(law, OperatingRange(10**10, 1500, (1e-4, 1e-4), 100)).design
    assert found is not None and found.stable and found.loop is not None
    if law == "pi":
        assert found.impossible_s == 0.00625
        assert "no gains for the law's usual interval of 6.25 ms" in designs.paragraph(found)
    model, point = found.loop.model, found.point
    sampled = model["sampled"]
    assert sampled is not None
    interval_s, numerator, _ = sampled
    assert interval_s <= 1.0001e-4
    capacity = 10**10 / 12000
    rtt_s = 1e-4 + model["queue_pkts"] / capacity
    poles = (8 / (rtt_s**2 * capacity), 1 / rtt_s)
    # The plant by its matrix exponential, in pieces so short that the delay is whole ones of them.
    pieces = 20
    short_s = interval_s / pieces
    late = round(rtt_s / short_s)
    motion = np.zeros((3, 3))
    motion[0, 0], motion[1, 1], motion[1, 0], motion[0, 2] = -poles[0], -poles[1], 1, 1
    step = expm(motion * short_s)
    size = 2 + late + len(numerator)  # both states, what is under way, p and older queues

    def after(state: np.ndarray) -> np.ndarray:
        (window, queue), way = state[:2], list(state[2 : 2 + late])
        p, old = state[2 + late], list(state[3 + late :])
        gain = capacity**2 / 8
        seen = [gain * queue, *old]
        p = p + sum(n * q for n, q in zip(numerator, seen, strict=True))
        for _ in range(pieces):
            way.append(-p)
            window, queue = step[:2, :2] @ (window, queue) + step[:2, 2] * way.pop(0)
        return np.array([window, queue, *way, p, *seen[: len(old)]])

    period = np.array([after(column) for column in np.eye(size)]).T
    assert abs(np.linalg.eigvals(period)).max() < 1
    assert math.isclose(point.rtt_s, rtt_s)


def test_a_line_has_four_digits_and_one_flow() -> None:
    line = fit("pd-red", OperatingRange(64_000, 1500, (0.1, 0.1), 3)).line
    assert "1 flow or more (assumed)" in line
    assert "min_th=0.05625p" in line


def designed_for(start: str, buffer: str, flows: str, law: str = "pi", changes: str = "") -> str:
    """A minute under a law whose gains are designed; `flows` are long, and others beside them."""
    designed = f'[[law]]\nkind = "{law}"\ngains = "auto"\n{changes}'
    more = f'[[traffic]]\nkind = "ftp"\n{flows}\n{designed}'
    return one_bottleneck((start, "60s"), "20Mbit/s", buffer, more, delay="0s")


def mixed(others: str) -> str:
    return designed_for("20s", "150ms", f'flows = 5\nrtt = ["40ms", "80ms", "120ms"]\n{others}')


MICE = '[[traffic]]\nkind = "mice"\nflows = 40\nrtt = "60ms"\n'


@pytest.mark.parametrize(
    ("others", "short_flows", "other_bps"),
    [
        ("", 0, 0),
        (MICE, 20, 0),
        (MICE + 'on = "1s"\noff = "3s"\n', 10, 0),
        # Those that come later, or go, are not always there.
        (MICE + 'start = "30s"\n', 0, 0),
        (MICE + 'stop = "50s"\n', 0, 0),
        ('[[traffic]]\nkind = "cbr"\nflows = 3\nrate = "2Mbit/s"\nrtt = "60ms"\n', 0, 6e6),
        # 3 sessions, 2 objects a second of 10 kB in packets of 1000 bytes and half a packet.
        (
            '[[traffic]]\nkind = "web"\nflows = 3\nrequests = 2\nshape = 2\nscale = "9600B"\n'
            'rtt = "60ms"\n',
            0,
            3 * 2 * 8 * 1000 * (9600 / 960 + 0.5),
        ),
        # A call speaks for 1.004 of 2.591 s, 200 bytes each 20 ms.
        (
            '[[traffic]]\nkind = "voice"\nflows = 10\nrtt = "60ms"\ntalk = "1.004s"\n'
            'pause = "1.587s"\n',
            0,
            10 * 80_000 * 1.004 / 2.591,
        ),
        (
            '[[traffic]]\nkind = "onoff"\nflows = 2\nrate = "4Mbit/s"\nrtt = "60ms"\n'
            'on = "1s"\noff = "3s"\n',
            0,
            2e6,
        ),
    ],
)
def test_a_design_counts_what_is_beside_the_long_flows(
    others: str, short_flows: float, other_bps: float
) -> None:
    text = mixed(others.replace('kind = "web"', 'kind = "web"\nheader = "40B"'))
    sweep = _native.Sweep(text.encode(), "mixed.toml")
    (request,) = sweep.gains_requests(sweep.row(0))
    assert request.flows == (5, 5)
    assert request.short_flows == pytest.approx(short_flows)
    assert request.other_bps == pytest.approx(other_bps)


def test_a_law_designed_beside_short_flows_holds_its_set_point(tmp_path: Path) -> None:
    """Forty short flows hold five sixths of this link: 210 packets where 75 were asked for."""
    file = tmp_path / "mixed.toml"
    file.write_text(mixed(MICE))
    result = forebay.run(file, seeds=2)
    (law,) = result.plan.designed
    assert "5 flows and 20 short flows at a time: target=75p" in law.line
    for run in result.runs:
        assert run.metrics["queue_mean_pkts"] == pytest.approx(75, rel=0.15)


def test_windows_beside_what_does_not_listen_are_those_of_the_design() -> None:
    """W = R(C − u)/N, with the pole of TCP 2/(R·W)."""
    place = OperatingRange(
        10_000_000, 1000, (0.1, 0.1), 200, (4, 4), short_flows=1, other_bps=6_000_000
    )
    found = fit("pi", place)
    assert found.design is not None and found.design.loop is not None
    point = found.design.loop.point
    free_pkts_s = 0.4 * place.capacity_pkts_per_s
    window_pkts = point.rtt_s * free_pkts_s / 5
    assert point.window_pkts == pytest.approx(window_pkts, rel=0.02)
    assert point.tcp_pole == pytest.approx(2 / (point.rtt_s * window_pkts), rel=0.02)
    assert found.line.startswith(
        "pi designed for 10Mbit/s, 100ms, 4 flows and 1 short flow at a time and 6Mbit/s of other"
    )


LEAVE = '[[at]]\ntime = "40s"\nset = { "traffic.0.flows" = 5 }\n'


@pytest.mark.parametrize(
    ("law", "within", "least"), [("pi2", True, 0.95), ("pie", True, 0.95), ("pi", False, 0.6)]
)
def test_a_design_follows_a_load_that_moves(
    tmp_path: Path, law: str, within: bool, least: float
) -> None:
    """10 s after most flows have left the link is in use again: PI2's had 70 %, PI's 23 %."""
    file = tmp_path / "leaving.toml"
    file.write_text(designed_for("50s", "400p", 'flows = 50\nrtt = "120ms"', law, LEAVE))
    result = forebay.run(file, seeds=2)
    (designed_law,) = result.plan.designed
    assert "after 45 flows have left" in designed_law.line
    assert ("more than 10 s" in designed_law.line) == (not within)
    for run in result.runs:
        assert run.metrics["utilisation"] > least


def test_the_probability_of_most_flows_is_given_back_in_the_time_that_is_said() -> None:
    """With an empty queue an integral falls by K_i times the set-point: PI's own arithmetic."""
    place = OperatingRange(20_000_000, 1000, (0.12, 0.12), 400, (5, 50))
    found = fit("pi", place)
    assert found.design is not None and found.design.loop is not None
    params = {name: float(text.rstrip("pms")) for name, text in found.design.params}
    per_s = (params["a"] - params["b"]) * params["target"] / (1e-3 * params["interval"])
    few, many = (2 / (2500 * (0.12 + params["target"] / 2500) / n) ** 2 for n in (5, 50))
    assert unwinding_s(found.design, 50) == pytest.approx((many - few) / per_s, rel=0.01)
    # Of one load nothing has to be given back, and its rule stays.
    alone = fit("pi", replace(place, flows=(5, 5)))
    assert "have left" not in alone.line
