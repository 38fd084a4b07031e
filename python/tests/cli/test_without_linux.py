"""A build without Linux: what it lacks is refused in one line, and the rest works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.linux


def run(*words: object, cwd: Path, fails: bool = False) -> str:
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode != 0) == fails, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


#: Makes of the native module what a build without real traffic has.
WITHOUT_LINK = """
import importlib.util, pathlib, sys
folder = pathlib.Path(importlib.util.find_spec("forebay").origin).parent
spec = importlib.util.spec_from_file_location("forebay._native", next(folder.glob("_native*.so")))
sys.modules["forebay._native"] = _native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(_native)
for name in ("LinkSettings", "LinkReady", "LinkOutcome", "link_run", "link_enter", "link_queue"):
    delattr(_native, name)
from forebay.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [["link", "--rate", "1Mbit/s", "--", "true"], ["doctor"], ["validate", "reality/reno"]],
)
def test_a_build_without_linux_says_so_in_one_line(words: list[str], tmp_path: Path) -> None:
    line = run(sys.executable, "-c", WITHOUT_LINK, *words, cwd=tmp_path, fails=True)
    assert line.startswith("error: link: requires Linux")
    assert line.count("\n") == 1


def test_a_build_without_linux_runs_simulations(tmp_path: Path) -> None:
    assert "--rate" in run(sys.executable, "-c", WITHOUT_LINK, "link", "--help", cwd=tmp_path)
    short = ["--set", "duration=20s", "--set", 'measure=["10s","20s"]', "--seeds", "1", "--json"]
    run(sys.executable, "-c", WITHOUT_LINK, "run", "pi-pd/load", *short, cwd=tmp_path)
