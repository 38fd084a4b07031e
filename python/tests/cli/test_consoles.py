"""Consoles that lack characters, and names that are not UTF-8: replaced, and one line at most."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SCENARIO

from forebay.cli import output

#: A name in Latin-1.
NAME = b"na\xefve".decode("utf-8", "surrogateescape")


def run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in another process, whose streams have an encoding of their own."""
    return subprocess.run(
        [sys.executable, "-m", "forebay", *words],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1"])
@pytest.mark.parametrize(
    "words",
    [
        ("laws",),
        ("--help",),
        ("design", "pi", "--rate", "10Mbit/s", "--flows", "10", "--rtt", "40ms"),
        ("run", "s.toml", "--law", "pi", "--seeds", "2", "--no-store", "--no-report", "--out", "o"),
    ],
)
def test_every_console_can_show_a_command(
    tmp_path: Path, words: tuple[str, ...], encoding: str
) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    done = run(tmp_path, *words, PYTHONIOENCODING=encoding)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    text = done.stdout.decode(encoding)
    if encoding == "ascii" and words[0] == "run":
        assert "+/-" in text and "?" not in text


def test_a_character_that_the_console_lacks_is_replaced_by_a_similar_one() -> None:
    output.replace_what_is_lacking()
    assert "─│ 5 ± 2 µs → “x” 字".encode("ascii", output.REPLACE) == b'-| 5 +/- 2 us -> "x" ?'
    assert NAME.encode("utf-8", output.REPLACE) == b"na\\xefve"


@pytest.mark.parametrize(
    "words",
    [
        ("run", f"{NAME}.toml", "--no-store", "--no-report", "--out", "o"),
        ("run", f"{NAME}.toml", "--no-store", "--json"),
        ("run", "s.toml", "--no-store", "--out", NAME),
        ("run", "s.toml", "--no-store", "--no-report", "--flent", NAME, "--out", "o"),
        ("study", "s.toml", "--store", NAME, "--no-report", "--out", "o"),
        ("compare", NAME, NAME),
        ("identify", NAME),
        ("design", "pi", "--from", NAME),
        ("attach", NAME, "codel"),
    ],
)
def test_a_name_that_is_not_utf_8_works_or_is_one_line(tmp_path: Path, words: list[str]) -> None:
    short = SCENARIO.replace('"4s"', '"1s"').replace('["2s", "1s"]', '["0s", "1s"]')
    for name in ("s.toml", f"{NAME}.toml"):
        (tmp_path / name).write_text(short)
    done = run(tmp_path, *words)
    said = done.stderr.decode()
    assert "Traceback" not in said, said
    if done.returncode != 0:
        assert said.strip().count("\n") == 0, said
    assert NAME.encode("utf-8", "surrogateescape") not in done.stdout + done.stderr
