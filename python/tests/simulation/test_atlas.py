"""The atlas: its study has a place for every law, and its page says what the runs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from forebay import _native
from forebay._base.registries import title_of
from forebay.campaign import runner
from forebay.campaign.runner import Threads
from forebay.campaign.study import Study
from forebay.campaign.study_points import Points
from forebay.experiment import experiment
from forebay.experiment import store as stores
from forebay.experiment.store import Store
from tools.atlas import maps, page, places, runs
from tools.atlas.places import Axis

ROOT = Path(__file__).parents[3]
SCENARIO = "studies/atlas"
LAWS = ("droptail", "pi", "codel", "fq-codel", "pi2", "dualpi2")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Points, Store]:
    """The study on slow links, in little time, under a few laws."""
    text = experiment.text_of(SCENARIO)[1].decode()
    for old, new in [
        ('"20s"', '"4s"'),
        ('["8s", "4s"]', '["1s", "4s"]'),
        ("1..1000Mbit/s", "1..5Mbit/s"),
        ("sobol 1024", "sobol 4"),
    ]:
        assert old in text
        text = text.replace(old, new)
    points = Points(text, laws=LAWS)
    store = stores.at(tmp_path_factory.mktemp("atlas") / "store")
    done = runner.make(points, store, Threads(2), seeds=1)
    assert done.finished == 4 * 2 * len(LAWS)
    return points, store


def test_the_study_has_every_law_and_enough_runs() -> None:
    """A law of the registry without a place in the atlas fails here."""
    points = Points(SCENARIO)
    assert sorted(points.laws) == sorted(entry["name"] for entry in _native.laws())
    assert points.configs * points.seeds >= 50_000
    ranges = {key: (low, high, unit) for key, low, high, unit in points.sweep.ranges}
    assert ranges == {
        "bottleneck.rate": (1, 1000, "Mbit/s"),
        "traffic.0.rtt": (5, 300, "ms"),
        "traffic.0.flows": (1, 1000, ""),
    }
    assert points.settings["traffic.0.tcp"].unique().sort().to_list() == [
        "linux-cubic",
        "linux-reno",
    ]
    # What is in packets, or made for one link, is designed for each.
    in_packets = {
        entry["name"]
        for entry in _native.laws()
        for param in entry["params"]
        if param["name"] == entry["set_point"] and str(param["default_text"]).endswith("p")
    }
    assert in_packets <= set(points.gains.laws)


def test_a_table_of_the_runs(small: tuple[Points, Store]) -> None:
    found = runs.read(*small)
    assert (found.points, found.table.height, found.failed) == (8, 8 * len(LAWS), {})
    assert found.per_flow == ["fq-codel"]
    assert found.designed == ["pi"]
    assert found.cpu_s > 0
    frame = Study(*small, 1).frame()
    for row in found.table.rows(named=True):
        there = frame.filter(point=row["point"], law=row["law"])
        assert there["delay_p95_s"].item() == row["delay_p95_s"]
        rate, rtt = there["bottleneck.rate"].item(), there["traffic.0.rtt"].item()
        flows = there["traffic.0.flows"].item()
        assert row["window_pkts"] == pytest.approx(rate * rtt / (12000 * flows))
        assert row["goodput"] == there["goodput_bps"].item() / rate
        best = frame.filter(point=row["point"])["goodput_bps"].max()
        assert row["kept"] == there["goodput_bps"].item() / best
        # Others rest where they rest by design.
        assert (row["missed"] is None) == (row["law"] not in found.integrating)


def table(**laws: list[tuple[float, float]]) -> pl.DataFrame:
    """Delay in ms and kept goodput of each law, point by point."""
    return pl.DataFrame(
        [
            (point, law, delay_ms / 1e3, kept)
            for law, values in laws.items()
            for point, (delay_ms, kept) in enumerate(values)
        ],
        ["point", "law", "delay_p95_s", "kept"],
        orient="row",
    )


def test_the_best_law_is_the_shortest_wait_of_those_that_keep_up() -> None:
    found = places.best(
        table(
            idle=[(1, 0.5), (1, 0.6), (1, 0.5), (1, 0.4)],
            short=[(5, 0.99), (9, 1.0), (20, 0.98), (50, 1.0)],
            alike=[(6, 1.0), (8, 1.0), (18, 1.0), (58, 1.0)],
            long=[(50, 1.0), (91, 1.0), (205, 1.0), (490, 1.0)],
        )
    )
    assert (found.law, found.alike, found.behind, found.points) == ("short", ("alike",), "long", 4)
    assert found.delay_s == pytest.approx((5 * 9 * 20 * 50) ** 0.25 / 1e3)
    # Below a millisecond nobody is better.
    quick = places.best(table(a=[(0.01, 1.0)] * 3, b=[(0.9, 1.0)] * 3))
    assert (quick.law, quick.alike) == ("a", ("b",))
    assert quick.delay_s == pytest.approx(1e-3)
    assert places.best(table(a=[(1, 1.0)] * 2)).law is None


def test_shares_of_points_near_the_best() -> None:
    shares = places.near(table(a=[(5, 1), (30, 1), (5, 0.9)], b=[(9, 1), (10, 1), (9, 1)]), 2.0)
    assert {law: (up, near, best) for law, up, near, best in shares.rows()} == {
        "a": (pytest.approx(2 / 3), pytest.approx(1 / 3), pytest.approx(1 / 3)),
        "b": (1, 1, pytest.approx(2 / 3)),
    }


def test_cells_are_even_and_hold_the_ends() -> None:
    axis = Axis("x", "x", "", 1, tuple(np.geomspace(1, 1000, 7)))
    assert axis.index(pl.Series([1.0, 3.0, 3.2, 999.0, 1000.0])).tolist() == [0, 0, 1, 5, 5]
    assert axis.thirds().edges == pytest.approx((1, 10, 100, 1000))
    assert axis.part(0) == "1 to 3.2"


def test_the_page_agrees_with_the_runs(small: tuple[Points, Store], tmp_path: Path) -> None:
    written = page.write(*small, tmp_path, "make atlas")
    text = (tmp_path / "atlas.md").read_text()
    assert written[0].name == "atlas.md"
    for name in re.findall(r"\]\((images/[\w-]+\.png)\)", text):
        assert (tmp_path / name) in written
    assert len(written) == 5
    assert f"{8 * len(LAWS)} runs: {len(LAWS)} laws on 4 links" in text
    assert "DualPI2 gave the same results as PI2 to the bit at every point" in text
    shares = places.near(runs.read(*small).table, page.NEAR).sort(
        "near", "law", descending=[True, False]
    )
    assert (
        f"**{title_of(shares['law'][0])}**, near the best at {100 * shares['near'][0]:.0f} % of"
        in text
    )
    assert "nan" not in text
    assert "None" not in text
    # The same runs give the same page and the same pictures.
    again = page.write(*small, tmp_path / "again", "make atlas")
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in again]


def test_a_map_shows_each_cell_that_has_points(small: tuple[Points, Store]) -> None:
    found = runs.read(*small)
    axes = maps.axes_of(found, "atlas-rate-flows")
    # Few links: in thirds.
    assert axes[0].edges == pytest.approx((1e6, 1e7, 1e8, 1e9))
    cells = maps.cells(found, *axes)
    assert sum(one.points for panel in cells.values() for one in panel.values()) == found.points
    figure = maps.winners(cells, *axes, maps.colours({"a": cells}))
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles[0] == "linux-reno, 5 to 20 ms"
    assert figure.get_supxlabel() == "rate [Mbit/s]"


def test_without_runs_one_line(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tools.atlas", "--points", "sobol 1", "out"]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert (
        done.stderr == "studies/atlas: none of its runs is in the store; forebay study makes them\n"
    )
    assert list(tmp_path.iterdir()) == []
