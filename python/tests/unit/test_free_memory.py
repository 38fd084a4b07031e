"""The memory that runs may take: that of the machine, or the rest of a container's limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.experiment import execution


def test_a_containers_limit_bounds_the_free_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit, used = tmp_path / "memory.max", tmp_path / "memory.current"
    limit.write_text("5000000\n")
    used.write_text("2000000\n")
    monkeypatch.setattr(execution, "CGROUP_MEMORY", [(str(limit), str(used))])
    assert execution.free_bytes() == 3_000_000


def test_a_container_without_a_limit_bounds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "CGROUP_MEMORY", [])
    unbounded = execution.free_bytes()
    limit, used = tmp_path / "memory.max", tmp_path / "memory.current"
    limit.write_text("max\n")
    used.write_text("2000000\n")
    monkeypatch.setattr(execution, "CGROUP_MEMORY", [(str(limit), str(used))])
    assert execution.free_bytes() == pytest.approx(unbounded, rel=0.2)


def test_the_limits_are_those_of_the_kernels_memory_controller() -> None:
    for files in execution.CGROUP_MEMORY:
        assert all(Path(file).name.startswith("memory.") for file in files)
