"""Sweeps: axes of numbers, curves, maps, and one table over all points."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import forebay
from forebay._base import quantities
from forebay.experiment.result import Result
from forebay.report import pages
from forebay.report.parts import Grid
from forebay.report.plot import Plot
from forebay.scenario.axes import sweep_axes

SCENARIO = """\
title    = "A sweep"
duration = "2s"
measure  = ["1s", "2s"]

bottleneck = { rate = "5Mbit/s", buffer = "100p" }
traffic    = [{ kind = "ftp", flows = 5, rtt = "40ms" }]

law        = [{ kind = "pi", target = "40p" }, { kind = "droptail" }]

[sweep]
"""
TIMES = ["100ms", "150ms", "200ms", "20ms"]


def swept(lines: str, seeds: int = 1) -> Result:
    return forebay.run(SCENARIO + lines, seeds=seeds)


@pytest.fixture(scope="module")
def curve() -> Result:
    return swept(f'"traffic.0.rtt" = {TIMES!r}', seeds=2)


@pytest.fixture(scope="module")
def square() -> Result:
    flows = '"traffic.0.flows" = [20, 3, 10, 5, 40]\n'
    return swept(flows + '"traffic.0.rtt" = ["0.1s", "20ms", "50ms", "150ms", "200ms"]')


def test_times_sort_by_their_length(curve: Result) -> None:
    column = curve.metrics.sort("traffic.0.rtt")["traffic.0.rtt"].unique(maintain_order=True)
    assert column.to_list() == ["20ms", "100ms", "150ms", "200ms"]
    rows = re.findall(r"^ *(\d+)  pi ", str(curve), re.MULTILINE)
    assert rows == ["20", "100", "150", "200"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, (5.0, "")),
        ("1.5ms", (0.0015, "s")),
        ("15 Mbit/s", (15e6, "bit/s")),
        ("200p", (200.0, "packets")),
        ("2min", (120.0, "s")),
        ("4kB", (4000.0, "bytes")),
        ("5%", (5.0, "%")),
        ("1e3", (1000.0, "")),
        ("reno", None),
        (True, None),
        (["20ms"], None),
        ("5 furlongs", None),
    ],
)
def test_numbers(value: object, expected: tuple[float, str] | None) -> None:
    found = quantities.read(value)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found[0] == pytest.approx(expected[0])
        assert found[1] == expected[1]


def test_keys_that_vary_together_are_one_axis() -> None:
    rows = [(63, 126, "10ms"), (90, 180, "10ms"), (63, 126, "2s"), (90, 180, "2s")]
    points = {
        i: {"ftp": ftp, "mice": mice, "rtt": rtt, "fixed": 1}
        for i, (ftp, mice, rtt) in enumerate(rows)
    }
    load, rtt = sweep_axes(points)
    assert (load.keys, load.numbers, load.texts) == (
        ["ftp", "mice"],
        [63, 90],
        ["63 / 126", "90 / 180"],
    )
    assert (rtt.numbers, rtt.unit, rtt.short) == ([0.01, 2.0], "s", ["0.01", "2"])
    assert [load.value_at(i) for i in range(4)] == ["63 / 126", "90 / 180"] * 2
    words = sweep_axes({0: {"tcp": "reno"}, 1: {"tcp": "cubic"}})
    assert (words[0].numbers, words[0].texts) == ([], ["reno", "cubic"])


def test_one_axis_gives_curves_at_their_numbers(curve: Result) -> None:
    figure = curve.plot("goodput")
    for axes, name in zip(figure.axes, ["goodput_bps", "delay_p95_s"], strict=True):
        assert len(axes.lines) == 2
        for law, line in enumerate(axes.lines):
            assert np.array_equal(np.asarray(line.get_xdata()), [20, 100, 150, 200])
            wanted = [curve.cell_at(p, law, name).mean for p in (3, 0, 1, 2)]
            scale = 1e-6 if name == "goodput_bps" else 1e3
            assert np.allclose(np.asarray(line.get_ydata()), scale * np.array(wanted))
        intervals = [artist for artist in axes.collections if not isinstance(artist, Grid)]
        assert len(intervals) == 2
    assert figure.axes[-1].get_xlabel() == "rtt [ms]"


def test_two_axes_give_maps(square: Result) -> None:
    figure = square.plot("goodput")
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 4
    first = maps[0]
    # Axes are labelled at the edge of the figure alone.
    below = maps[2]
    assert [text.get_text() for text in below.get_xticklabels()] == [
        "20",
        "50",
        "100",
        "150",
        "200",
    ]
    assert [text.get_text() for text in first.get_yticklabels()] == ["3", "5", "10", "20", "40"]
    values = np.asarray(first.images[0].get_array())
    # The first point: 20 flows, 100 ms.
    assert values[3, 2] == pytest.approx(1e-6 * square.cell_at(0, 0, "goodput_bps").mean)
    assert maps[0].images[0].get_clim() == maps[1].images[0].get_clim()
    assert maps[-1].get_xlabel() == "rtt [ms]"


def test_the_page_of_a_sweep_is_one_table_and_four_pictures(square: Result, tmp_path: Path) -> None:
    square.report(tmp_path / "out")
    text = (tmp_path / "out" / "report.html").read_text()
    assert len(text) < 1_000_000
    # The queue at a glance, and three over the sweep.
    assert text.count("<svg") == 4
    # One over all points, and that of the laws.
    assert text.count("<table") == 2
    assert (
        len(re.findall(r"<tr><td>\d+</td><td[^>]*>\d+</td><td[^>]*>(?:PI|DropTail)</td>", text))
        == 50
    )
    assert sorted(path.name for path in (tmp_path / "out" / "figures").iterdir()) == [
        *("glance.png", "goodput.png", "load.png", "qacd.png")
    ]
    command = pages.single_point_command(square)
    assert "--set traffic.0.flows=20 --set traffic.0.rtt=0.1s" in command
    assert command in text


def test_axes_without_numbers_still_compare() -> None:
    result = swept('"traffic.0.tcp" = ["reno", "linux-cubic"]')
    figure = result.plot("load")
    labels = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert labels == ["reno", "linux-cubic"]
    assert isinstance(figure, Plot)
