"""Unmodified programs on real Linux: a QUIC stack, and what a study keeps of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Cli, one_bottleneck, table
from guest_marks import needs_guest

import forebay

ROOT = Path(__file__).parents[3]
PROGRAM = "quic-transfer"

#: Its program reads a file, says something on both streams, and fails.
STUDY = (
    one_bottleneck(("1s", "4s"), "15Mbit/s", "150p", delay="0ms", seeds=2)
    + table(
        "traffic",
        kind="program",
        flows=1,
        client="cat words; echo bad >&2; exit 7",
        files="words",
        packet="1500B",
        rtt="40ms",
    )
    + table("traffic", kind="ftp", tcp="linux-cubic", flows=1, packet="1500B", rtt="40ms")
    + table("law", kind="codel")
    + '[sweep]\n"traffic.1.flows" = [1, 2]\n'
)


def scenario(folder: Path) -> Path:
    """That of examples/quic with its program in a folder that has it alone."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo, which builds the example, is not here")
    subprocess.run(["make", "quic"], cwd=ROOT, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", "target"))
    shutil.copy2(ROOT / target / "debug" / PROGRAM, folder / PROGRAM)
    text = (ROOT / "examples/quic/quic.toml").read_text()
    file = folder / "quic.toml"
    file.write_text(text.replace(f"../../target/debug/{PROGRAM}", f"./{PROGRAM}"))
    return file


@needs_guest
def test_a_quic_stack_runs_as_it_is(tmp_path: Path) -> None:
    overrides = {"traffic.0.flows": 2, "duration": "8s", "measure": '["1s", "8s"]'}
    file = scenario(tmp_path)
    result = forebay.run(file, laws=["droptail"], overrides=overrides, seeds=1, engine="kernel")
    result.report(tmp_path / "out")
    told = json.loads((tmp_path / "out/metrics.json").read_text())["programs"]
    said = {
        end: [(tmp_path / "out" / one["output"]).read_text() for one in told if one["end"] == end]
        for end in ("client", "server")
    }
    assert [one["status"] for one in told if one["end"] == "client"] == [0, 0]
    found = [re.fullmatch(r"2000000 bytes in ([\d.]+) s\n", text) for text in said["client"]]
    # 4 MB at 20 Mbit/s take 1.6 s.
    assert 1.6 < max(float(one[1]) for one in found if one) < 4
    # The trace has each packet that the stacks have sent, though all have the number 0 in IP.
    sent = [re.match(r"sent (\d+) packets, lost (\d+)", text) for text in said["server"]]
    packets = sum(int(one[1]) for one in sent if one)
    assert result.samples["arrivals"].sum() == pytest.approx(packets, abs=30)
    drops = result.samples.select(pl.sum_horizontal(pl.col("^.*_drops$").sum())).item()
    assert drops == pytest.approx(sum(int(one[2]) for one in sent if one), abs=30)
    again = forebay.run(file, laws=["droptail"], overrides=overrides, seeds=1, engine="kernel")
    assert np.array_equal(result.samples["queue_pkts"], again.samples["queue_pkts"])


@needs_guest
@pytest.mark.parametrize("on", ["threads", "dask"])
def test_a_study_keeps_the_output_of_programs(on: str, tmp_path: Path, cli: Cli) -> None:
    if on == "dask":
        pytest.importorskip("distributed")
    (tmp_path / "words").write_text("of a file\n")
    (tmp_path / "said.toml").write_text(STUDY)
    words = ["study", "said.toml", "--engine", "kernel", "--store", "store", "--no-report"]
    words += ["--on", on, "--threads", "2", "--out", "out"]
    done = cli(*words)
    # What it says of itself is no failure of the study.
    assert done.returncode == 0, done.stderr
    assert "4 new, 0 from the store" in done.stdout
    assert re.search(r"4 runs: `cat words.*` of client ended with status 7: bad", done.stderr)
    folders = sorted((tmp_path / "out/outputs").iterdir())
    assert [it.name for it in folders] == ["codel-p0-1", "codel-p0-2", "codel-p1-1", "codel-p1-2"]
    for folder in folders:
        (program,) = json.loads((folder / "programs.json").read_text())["programs"]
        assert (program["status"], program["end"]) == (7, "client")
        assert (folder / program["output"]).read_text() == "of a file\nbad\n"
    frame = pl.read_parquet(tmp_path / "out/frame.parquet")
    assert frame.height == 4
    # Runs that are there are not made again; what they left is where it was.
    done = cli(*words)
    assert "0 new, 4 from the store" in done.stdout
    assert sorted((tmp_path / "out/outputs").iterdir()) == folders
