"""A disk that is full: a line, a status, and the result that was there before."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 200 kB."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    yield path
    subprocess.run(["umount", str(path)], check=True)


def test_a_full_disk_keeps_the_former_result(cli: Cli, scenario: Path, disk: Path) -> None:
    out = disk / "r"
    short = ("run", scenario.name, "--seeds", "1", "--out", out, "--no-report", "--law", "pi")
    assert cli(*short).returncode == 0
    former = json.loads((out / "metrics.json").read_text())
    done = cli(*short, "--force", "--set", "sample=20us")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
    assert "No space left on device" in done.stderr
    assert json.loads((out / "metrics.json").read_text()) == former
    # Nothing half-written takes room.
    assert [path.name for path in disk.iterdir()] == ["r"]


@pytest.mark.parametrize("kilobytes", [100, 150, 250, 400, 800])
def test_a_full_disk_is_called_full_and_by_its_place(
    cli: Cli, scenario: Path, tmp_path: Path, kilobytes: int
) -> None:
    """Polars leaves the number of the error out, which became an input/output error, and a file
    object the name of the file."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        done = cli("run", scenario.name, "--seeds", "1", "--out", path / "r", "--set", "sample=1ms")
        assert done.returncode == 1
        (line,) = [one for one in done.stderr.splitlines() if "disk" in one or "error" in one]
        assert line.startswith(f"error: {path / 'r'}"), line
        assert line.endswith(": the disk is full (No space left on device)")
        assert ".forebay-" not in line
    finally:
        subprocess.run(["umount", str(path)], check=True)
