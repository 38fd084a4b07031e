"""docs/evidence/reality.md: its cells, and how they are judged."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any

import polars as pl
from reality_cells import CELLS, KEYS, LAWS, POINTS

import forebay
from tools import reality


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


def test_new_runs_of_linux_are_added_to_those_kept_before(tmp_path: Path) -> None:
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


def test_the_page_is_written_from_kept_runs_of_linux(tmp_path: Path, monkeypatch: Any) -> None:
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
