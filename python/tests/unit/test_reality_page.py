"""docs/reality.md: its cells, how they are judged, and a sample of them on real Linux."""

from __future__ import annotations

import csv
import itertools
import re
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from guest_marks import needs_guest

import forebay
from forebay.comparison.compare import Agreement
from tools import reality

CELLS = Path(__file__).parents[3] / "experiments" / "reality" / "cells.toml"
TEXT = CELLS.read_text()
[(AXES, POINTS)] = tomllib.loads(TEXT)["sweep"].items()
KEYS = AXES.split(", ")
LAWS = re.findall(r'^kind += "(.+)"', TEXT[TEXT.index("[[law]]") :], re.MULTILINE)


def test_the_cells_have_every_law_and_every_pair_of_values() -> None:
    assert sorted(LAWS) == sorted(law["name"] for law in forebay.laws())
    drawn = [key for key in KEYS if key.split(".")[-1] not in {"buffer", "duration", "measure"}]
    rows = [dict(zip(KEYS, point, strict=True)) for point in POINTS]
    for first, second in itertools.combinations(drawn, 2):
        met = {(row[first], row[second]) for row in rows}
        values = len({row[first] for row in rows}), len({row[second] for row in rows})
        # A sender asks for ECN where the link marks.
        together = {first, second} == {"bottleneck.ecn", "traffic.0.ecn"}
        assert len(met) == (2 if together else values[0] * values[1]), (first, second)


def frame(delays_s: list[float]) -> pl.DataFrame:
    size = len(delays_s)
    cell: dict[str, Any] = {
        "law": "pi",
        "bottleneck.rate": 4e6,
        "traffic.0.tcp": "bbr",
        "traffic.0.flows": 1.0,
        "traffic.0.rtt": 0.01,
        "bottleneck.ecn": "true",
    }
    return pl.DataFrame(
        {key: [value] * size for key, value in cell.items()}
        | {"seed": range(size), "delay_mean_s": delays_s, "queue_std_pkts": [3.0] * size}
        | {"drop_rate": [0.01] * size, "mark_rate": [0.0] * size, "utilisation": [1.0] * size}
    )


def test_what_linux_did_is_kept_beside_what_it_did_before(tmp_path: Path) -> None:
    runs, before, other = tmp_path / "kernel.csv", frame([0.02, 0.03]), frame([0.05])
    kept = reality.kept(runs)
    kept.add(pl.concat([before, other.with_columns(law=pl.lit("blue"))]))
    kept.add(frame([0.02, 0.04, 0.05]))
    found = kept.read()
    assert found["law"].to_list() == ["pi", "pi", "pi", "blue"]
    assert found["delay_mean_s"].to_list() == [0.02, 0.04, 0.05, 0.05]


def test_a_miss_is_proven_where_the_seeds_leave_no_doubt() -> None:
    linux = frame([0.0200, 0.0201, 0.0199])
    for ours, agrees, proven in [
        ([0.0204, 0.0205, 0.0206], True, False),
        ([0.0230, 0.0231, 0.0229], False, True),
        ([0.0150, 0.0230, 0.0320], False, False),
    ]:
        found = reality.verdicts(frame(ours), linux)
        assert [one.agrees for one in found] == [agrees, True, True, True]
        assert found[0].proven is proven
        page = reality.page(frame(ours), linux)
        assert ("20.00 → 23.00" in page) is proven
        assert f"| mean delay (ms) | {int(agrees)} | 1 | {int(proven)} |" in page


def test_what_linux_did_is_kept_for_the_page(tmp_path: Path, monkeypatch: Any) -> None:
    packets, kernel = frame([0.0230, 0.0231, 0.0229]), frame([0.02, 0.0201, 0.0199])
    packets.write_parquet(tmp_path / "packets.parquet")
    kernel.write_parquet(tmp_path / "kernel.parquet")
    kept, page = tmp_path / "kernel.csv", tmp_path / "page.md"
    for words in (
        ["keep", tmp_path / "kernel.parquet", "--out", kept],
        ["page", tmp_path / "packets.parquet", kept, "--out", page],
    ):
        monkeypatch.setattr("sys.argv", ["reality", *map(str, words)])
        assert reality.main() == 0
    assert page.read_text() == reality.page(packets, kernel)


def test_linux_ran_in_every_cell() -> None:
    with (CELLS.parent / "kernel.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    cells = {tuple(row[key] for key in reality.AXES) for row in rows}
    assert len(cells) == len(LAWS) * len(POINTS)


#: Points of the study, each with a law. What swings between two states is left to more seeds. What
#: is open is left to the page: one flow of BBR over 200 ms, the point 18, and CAKE under a hundred
#: flows.
SAMPLE = {number: LAWS[(7 * number + 3) % len(LAWS)] for number in range(len(POINTS))}
SAMPLE |= {3: "pi2", 9: "codel", 16: "ared", 19: "pie"}
del SAMPLE[18]


#: A guest's have no rate.
WIRES = {"traffic.0.access": "1Tbit/s", "bottleneck.rate_back": "1Tbit/s"}


@needs_guest
@pytest.mark.parametrize(("number", "law"), [*SAMPLE.items(), (16, "pi")])
def test_a_cell_beside_real_linux(number: int, law: str) -> None:
    """One seed of Linux's: twice what ours differ by is allowed, too."""
    overrides = dict(zip(KEYS, POINTS[number], strict=True))
    text = TEXT[: TEXT.index("[sweep]")]
    ours = forebay.run(text, laws=[law], overrides=overrides | WIRES, seeds=8).metrics
    linux = forebay.run(text, laws=[law], overrides=overrides, seeds=1, engine="kernel").metrics
    for rule in reality.TOLERANCES[:1] + reality.TOLERANCES[-1:]:
        figure = Agreement(rule, rule.values(ours), rule.values(linux))
        spread = max(figure.tested) - min(figure.tested)
        assert abs(figure.difference) <= max(figure.limit, 2 * spread), (law, overrides, rule.title)
