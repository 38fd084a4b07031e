"""A small study, and its command as a user calls it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conftest import command

SMALL = """\
title    = "A small study"
duration = "2s"
measure  = ["1s", "2s"]
seeds    = 2

bottleneck = { rate = "10Mbit/s", delay = "5ms", buffer = "100p" }

traffic = [
    { kind = "ftp", flows = 5, packet = "1000B", rtt = "40ms", start = { uniform = ["0s", "1s"] } },
]

[[law]]
kind   = "red"

[[law]]
kind   = "droptail"

"""
GRID = """\
[sweep]
"traffic.0.flows" = "1..30 log 4"
"bottleneck.rate" = ["2Mbit/s", "8Mbit/s"]
"law.red.max_p" = [0.1, 0.2]
"""


def environment() -> dict[str, str]:
    """A user's, with the store on."""
    return {name: value for name, value in os.environ.items() if name != "FOREBAY_STORE"}


def run(cwd: Path, *words: object, text: str = SMALL + GRID) -> subprocess.CompletedProcess[str]:
    (cwd / "s.toml").write_text(text)
    return subprocess.run(
        command("study", "s.toml", *words),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
