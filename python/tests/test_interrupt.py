"""Ctrl-C keeps what has finished, and leaves nothing half-written."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import command

from forebay.cli.main import run_command
from forebay.run import experiment

#: 4000 runs of some tenths of a second.
LONG = ["--seeds", 1000, "--set", "duration=300s", "--set", "sample=100ms"]


def interrupt(scenario: Path, wanted: int, *options: object) -> tuple[int, str, str]:
    """Sends SIGINT once `wanted` runs have ended; returns status, output and errors."""
    process = subprocess.Popen(
        command("run", scenario, *options),
        cwd=scenario.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        # "3 of 20000 runs, 0 %, about 2 min left"
        lines.append(line)
        if int(line.split()[0]) >= wanted:
            break
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate()
    return process.returncode, out, "".join(lines) + errors


def test_finished_runs_are_kept(scenario: Path) -> None:
    # Nobody would wait for the end of it.
    status, out, errors = interrupt(scenario, 1, *LONG)
    assert status == 130, errors
    assert "interrupted: " in errors
    assert "Traceback" not in errors
    results = scenario.parent / "results"
    assert [path.name for path in results.iterdir()] == ["two"]
    written = json.loads((results / "two" / "metrics.json").read_text())
    assert written["partial"] is True
    assert 1 <= len(written["runs"]) < 4000
    page = (results / "two" / "report.html").read_text()
    assert f"Partial result: {len(written['runs'])} of 4000 runs" in page
    assert "Report: results/two/report.html" in out


def test_with_json_too(scenario: Path) -> None:
    status, out, errors = interrupt(scenario, 1, *LONG, "--json")
    assert status == 130, errors
    assert len([json.loads(line) for line in out.splitlines()]) >= 1
    assert [path.name for path in scenario.parent.iterdir()] == ["two.toml"]


def test_nothing_is_left_where_nothing_had_finished(scenario: Path) -> None:
    status, out, errors = interrupt(scenario, 0, "--set", "duration=1000h", "--set", "sample=1s")
    assert status == 130, errors
    assert out == ""
    assert "interrupted: 0 of 8 runs had finished\n" in errors
    assert [path.name for path in scenario.parent.iterdir()] == ["two.toml"]


def test_other_commands_say_that_nothing_is_left(scenario: Path) -> None:
    text = scenario.read_text()
    scenario.unlink()
    # Whoever reads it waits for the rest.
    os.mkfifo(scenario)
    process = subprocess.Popen(
        command("fluid", scenario), cwd=scenario.parent, stderr=subprocess.PIPE, text=True
    )
    with scenario.open("w") as pipe:
        pipe.write(text[:100])
        pipe.flush()
        process.send_signal(signal.SIGINT)
    # Closed, the pipe ends a read that began just after the signal had come.
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "interrupted: nothing is left\n")
    assert list(scenario.parent.iterdir()) == [scenario]


def test_while_it_loads_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupts:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "forebay.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "forebay.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupts(), *sys.meta_path])
    assert run_command(["laws"]) == 130
    assert capsys.readouterr().err == "interrupted: nothing is left\n"


def test_native_code_is_not_broken_off() -> None:
    # A job in the background ignores it.
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = []

    def native() -> None:
        signal.raise_signal(signal.SIGINT)
        ended.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            experiment.unbroken(native)
    finally:
        signal.signal(signal.SIGINT, former)
    assert ended
