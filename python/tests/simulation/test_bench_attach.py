"""The simulator beside a law in the kernel: both must have the same path."""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import socket
import subprocess
import time
import tomllib
from pathlib import Path

import pytest

from bench import attach, attach_table
from forebay.comparison.compare import Agreement, prediction_half_width
from tools import reality

SCENARIO = Path(attach.__file__).with_name("attach.toml")
TABLE = SCENARIO.parents[1] / "experiments" / "reality" / "attached.csv"


def runs(rtt: str) -> list[attach.Measured]:
    given = argparse.Namespace(scenario=SCENARIO, set=[f"traffic.0.rtt={rtt}"], seeds=1)
    return attach.simulated(given)["avq"]


def test_without_netem_the_simulator_has_the_namespaces_rtt() -> None:
    assert runs("50us") == runs("100us")
    assert runs("100us") != runs("1ms")


def test_the_settling_time_is_that_of_means_over_a_second() -> None:
    still = attach.Measured("pi", 0.0, 0.0, 0.0, 0.0, 1.0)
    looks = [50.0, 100.0, 90.0, *[60.0] * 5, *[50.0] * 12]
    # The second from 1 s on has 75 packets; that from 1.5 s on 60, which is near 50.
    one = attach.stepped(still, looks)
    assert (one.settling_s, one.peak_pkts) == (1.5, 95.0)
    assert attach.stepped(still, [50.0] * 20).settling_s == 0.0


def test_a_rate_step_is_simulated_at_the_new_rate() -> None:
    path = SCENARIO.with_name("attach_rate.toml")
    given = argparse.Namespace(scenario=path, set=[], seeds=1)
    (pi,) = attach.simulated(given)["pi"]
    # 50 packets of 1500 bytes at 7.5 Mbit/s.
    assert 0.9 * 80e-3 < pi.delay_s < 1.1 * 80e-3
    assert pi.settling_s is not None


def test_flows_start_when_the_scenario_says() -> None:
    """And not when all have connected, one after the other."""
    if shutil.which("cc") is None:
        pytest.skip("a C compiler is not here")
    with attach.flows_program() as program, socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        base_s = time.monotonic() + 0.3
        client = subprocess.Popen(
            [program, "send", "127.0.0.1", str(port), "reno", str(round(1e9 * base_s))],
            stdin=subprocess.PIPE,
        )
        late_s, flows = [], []
        assert client.stdin is not None
        try:
            client.stdin.write(b"0\n200500000\n400000000\n")
            client.stdin.close()
            server.settimeout(20)
            for offset_s in (0.0, 0.2005, 0.4):
                flow, _ = server.accept()
                flows.append(flow)
                # Its data comes with it, though not all flows are there.
                flow.recv(1)
                late_s.append(time.monotonic() - base_s - offset_s)
        finally:
            client.kill()
            client.wait()
            for flow in flows:
                flow.close()
    # A busy machine is late, and none is early.
    assert all(0 <= late < 1 for late in late_s)


def test_starts_are_within_the_scenarios_interval() -> None:
    link = attach.case(SCENARIO, [])
    first, again, other = (link.starts_s(10, 2.0, random.Random(seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert all(2.0 <= at_s <= 2.001 for at_s in first)


def at_points() -> list[attach_table.Place]:
    """The study of docs/evidence/reality-attached.md, without designs."""
    study = TABLE.with_suffix(".toml").read_text()
    ((keys, rows),) = tomllib.loads(study)["sweep"].items()
    overrides = [dict(zip(keys.split(", "), row, strict=True)) for row in rows]
    return [attach_table.Place(n, attach_table.at(study, row)) for n, row in enumerate(overrides)]


def test_the_first_runs_have_every_pair_of_values() -> None:
    found = at_points()
    for first in (0, 16):
        groups = list(attach_table.order(found))[first : first + 8]
        cells = [(law, *place.axes.values()) for place, laws in groups for law in laws]
        assert len(cells) == 32
        for one, other in itertools.combinations(zip(*cells, strict=True), 2):
            assert len(set(zip(one, other, strict=True))) == len(set(one)) * len(set(other))
    whole = [(place.number, law) for place, laws in attach_table.order(found) for law in laws]
    assert len(whole) == len(set(whole)) == 8 * 16


def test_measured_runs_are_of_the_study_and_on_its_page() -> None:
    cells = {tuple(place.row("", law).values()) for place in at_points() for law in place.laws}
    rows = attach_table.kept(TABLE).read().to_dicts()
    measured = {tuple({**row, "engine": ""}[key] for key in attach_table.KEY) for row in rows}
    assert measured and measured <= cells
    attached = [row for row in rows if row["engine"] == attach_table.ATTACHED]
    page = TABLE.parents[2] / "docs" / "evidence" / "reality-attached.md"
    lines = page.read_text().split("## Cells")[1].splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(attached) + 2


def test_a_miss_is_beyond_chance_where_no_simulated_run_comes_to_it() -> None:
    deviation = reality.TOLERANCES[1]

    def beyond(difference: float, half_width: float) -> bool:
        """Whether it is with three simulated runs of such a spread and one that was attached."""
        spread = half_width / prediction_half_width([-1.0, 0.0, 1.0])
        tested = [10.0 + difference + by * spread for by in (-1, 0, 1)]
        figure = Agreement(deviation, tested, [10.0])
        assert figure.half_width == pytest.approx(half_width)
        return attach_table.beyond_chance(figure)

    # Of a deviation of 10 packets 1 is allowed.
    assert not beyond(0.9, 0.1)
    assert not beyond(1.5, 2.0)
    assert beyond(1.5, 1.2) and beyond(-1.5, 1.2)


def test_the_simulated_link_is_that_of_the_guest() -> None:
    place = at_points()[0].as_attached()
    link = place.tables["bottleneck"]
    # Two packets of tbf, and ACKs that wait for no line.
    assert (link["burst"], link["rate_back"]) == ("3000B", "1Tbit/s")
    assert attach_table.of_engine(place, ["red"], "packets", 1)[0]["utilisation"] > 0.95


def test_a_mean_that_further_simulated_runs_would_have_is_chance() -> None:
    def one(delay_s: float) -> attach.Measured:
        return attach.Measured("blue", delay_s, 0.01, 0.01, 0.01, 1.0)

    told = {"blue": [one(delay_s) for delay_s in (0.030, 0.036, 0.042)]}
    (_, _, near) = attach.table({"blue": [one(0.028)]}, told)
    (_, _, far) = attach.table({"blue": [one(0.005)]}, told)
    assert near.endswith("| delay (chance) |")
    assert far.endswith("| delay |")
    # Of many runs less is chance.
    assert prediction_half_width([1.0, 2.0, 3.0], 9) < prediction_half_width([1.0, 2.0, 3.0], 1)
