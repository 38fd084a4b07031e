"""A small scenario that runs in a moment, and the command line as others call it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from forebay import emulator

SCENARIO = """\
title    = "Two laws, two loads"
source   = "nothing but a test"
duration = "4s"
measure  = ["2s", "4s"]
seeds    = 2

[bottleneck]
rate   = "10Mbit/s"
delay  = "5ms"
buffer = "100p"

[[traffic]]
kind   = "ftp"
flows  = 5
packet = "1000B"
rtt    = ["40ms", "60ms", "80ms", "100ms"]
start  = { uniform = ["0s", "1s"] }

[[law]]
kind   = "pi"
target = "40p"

[[law]]
kind   = "droptail"

[sweep]
"traffic.0.flows" = [5, 20]
"""

#: Next to the built-in `pi`: the same arithmetic in the same order.
PROTOTYPES = """\
class PythonPi:
    interval = "6250us"
    target = 40
    a, b = 1.822e-5, 1.816e-5

    def __init__(self):
        self.p = self.error_1 = 0.0

    def sample(self, queue):
        error = queue.packets - self.target
        self.p = min(1.0, max(0.0, self.p + self.a * error - self.b * self.error_1))
        self.error_1 = error
        return self.p


class Raises(PythonPi):
    def sample(self, queue):
        if queue.packets > 10:
            raise ArithmeticError("ten is enough")
        return 0


class NoInterval:
    def sample(self, queue):
        return 0


class NoSample:
    interval = 0.01
"""

Cli = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return path


@pytest.fixture
def prototypes(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PROTOTYPES)
    return path


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "forebay.cli", *map(str, arguments)]


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `forebay` in a directory of its own, with its output as text."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments), cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return run


@cache
def why_no_link() -> str:
    """Why this machine has no link for real traffic; empty where it has."""
    try:
        emulator.run(emulator.settings("10Mbit/s"), ["true"], timeout_s=60)
    except emulator.LinkError as error:
        return str(error)
    return "" if shutil.which("ping") else "ping is not here: apt-get install iputils-ping"
