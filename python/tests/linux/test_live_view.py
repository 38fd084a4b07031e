"""The live view of a link, on a terminal and as lines, and what its keys do."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from conftest import Cli, command, line_on_a_terminal
from links import PATIENCE_S, blast, in_real_time, marked, needs_link, nothing_stays

__all__ = ["marked", "nothing_stays"]  # fixtures that are in force here

pytestmark = needs_link


@pytest.mark.skipif(shutil.which("script") is None, reason="script is not here: util-linux")
def test_a_live_view_on_a_terminal() -> None:
    words = ["link", "-q", "--rate", "2Mbit/s", "--watch", "--", "sh", "-c", "echo after; sleep 1"]
    line = " ".join(f"'{word}'" for word in command(*words))
    done = line_on_a_terminal(line, stdin=subprocess.DEVNULL, timeout=PATIENCE_S)
    assert done.returncode == 0
    # The view comes on a screen of its own, which is given back before the output is shown.
    assert done.stdout.rstrip().endswith("after")


def on_a_terminal(words: list[str], cwd: Path, *keys: bytes | None) -> tuple[int, str]:
    """Exit status of a program on a terminal, and what it wrote after its view was closed.

    A key is pressed when the view is up, the next ones half a second after each other; None
    closes the terminal.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execvp(words[0], words)
    written, left, press_at = b"", list(keys), float("inf")
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.05)[0]:
                try:
                    written += os.read(terminal, 1 << 16)
                except OSError:  # closed
                    break
            if press_at == float("inf") and b"\x1b[?1049h" in written:
                press_at = time.monotonic() + 1
            if left and time.monotonic() >= press_at:
                if (key := left.pop(0)) is None:
                    break
                os.write(terminal, key)
                press_at += 0.5
    finally:
        os.close(terminal)
    while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1]), written.split(b"\x1b[?1049l")[-1].decode().replace(
        "\r\n", "\n"
    )


#: Ends by itself on SIGTERM and SIGINT, with a status of its own and a last word.
ENDS = "trap 'echo by {0}; exit {1}' {0}; while :; do sleep 0.05; done"
#: Does not.
DEAF = "trap '' TERM INT; while :; do sleep 0.05; done"


@pytest.mark.parametrize(
    ("program", "keys", "status", "last"),
    [
        (ENDS.format("TERM", 5), [b"q"], 5, "by TERM\n"),
        (ENDS.format("INT", 6), [b"\x03"], 6, "by INT\n"),
        ("sleep 600", [b"q"], 143, ""),
        ("sleep 600", [b"\x03"], 130, ""),
        (DEAF, [b"q", b"q"], 143, ""),
        (DEAF, [b"\x03"], 130, ""),
    ],
)
def test_a_key_ends_the_command(
    tmp_path: Path, program: str, keys: list[bytes], status: int, last: str
) -> None:
    words = command("link", "-q", "--rate", "2Mbit/s", "--watch", "--", "sh", "-c", program)
    ended, shown = on_a_terminal(words, tmp_path, *keys)
    assert ended == status
    assert last in shown and ("by" in shown) == bool(last)


@pytest.mark.parametrize(
    ("options", "program"),
    [(["--watch"], "exec sleep 600"), ([], r"printf '\033[?1049h'; exec sleep 600")],
)
def test_a_closed_terminal_ends_the_command(
    tmp_path: Path, options: list[str], program: str
) -> None:
    """As a lost ssh does. The emulator leads the session here: the kernel tells nobody else."""
    words = command("link", "-q", "--rate", "2Mbit/s", *options, "--", "sh", "-c", program)
    assert on_a_terminal(words, tmp_path, None)[0] == 128 + signal.SIGHUP


def test_what_the_server_writes_waits_for_the_view(tmp_path: Path) -> None:
    server = "echo from the server; echo and its errors >&2; exit 3"
    words = ["link", "-q", "--rate", "2Mbit/s", "--watch", "--server", server, "--", "sleep", "0.5"]
    status, shown = on_a_terminal(command(*words), tmp_path)
    assert status == 0
    assert "from the server\nand its errors\nforebay link: the server exited with status 3" in shown


@in_real_time
def test_changes_by_hand_are_told(tmp_path: Path) -> None:
    """In all that is written, so that nobody takes the numbers for those of one law."""
    words = ["link", "--rate", "2Mbit/s", "--aqm", "pi", "--set", "target=20p", "--watch"]
    blaster = blast(972, 500, 3.5, "198.18.0.2")
    status, shown = on_a_terminal(
        command(*words, "--out", "out", "--", *blaster), tmp_path, b"+", b"l", b"\t", b"-"
    )
    assert status == 0
    out = tmp_path / "out"
    changes = json.loads((out / "link.json").read_text())["changed_by_hand"]
    assert [(one["way"], one.get("rate"), one.get("aqm")) for one in changes] == [
        ("up", "2.2Mbit/s", None),
        ("up", None, "pid"),
        ("down", "1.82Mbit/s", None),
    ]
    assert changes[1]["set"] == [["target", "20p"]]
    times_s = [one["time_s"] for one in changes]
    assert times_s == sorted(times_s) and times_s[0] > 0.5
    table = json.loads((out / "metrics.json").read_text())
    assert [run["law"] for run in table["runs"]] == ["pi (changed)"] * 2
    assert table["command"].endswith("# as it started; it was then changed by hand")
    assert pl.read_parquet(out / "samples.parquet")["law"].unique().to_list() == ["pi (changed)"]
    # The capacity that was not there is not counted as unused.
    assert table["runs"][0]["metrics"]["utilisation"] == pytest.approx(1, abs=0.1)
    page = (out / "report.html").read_text()
    for text in (page.replace("\N{NO-BREAK SPACE}", " "), shown.replace("\N{NO-BREAK SPACE}", " ")):
        assert f"up rate 2.2 Mbit/s at {times_s[0]:g} s" in text
        assert "up law pid (target=20p) at " in text and "down rate 1.82 Mbit/s at " in text


def test_a_run_without_changes_says_nothing_of_them(cli: Cli, tmp_path: Path) -> None:
    done = cli("link", "--rate", "2Mbit/s", "--out", "out", "--", "sleep", "0.2")
    assert done.returncode == 0 and "by hand" not in done.stderr
    table = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert table["runs"][0]["law"] == "droptail" and "#" not in table["command"]
    assert json.loads((tmp_path / "out" / "link.json").read_text())["changed_by_hand"] == []


def test_a_live_view_leaves_no_terminal_for_a_shell(tmp_path: Path) -> None:
    status, shown = on_a_terminal(command("link", "--rate", "2Mbit/s", "--watch"), tmp_path)
    assert status == 2
    assert shown.startswith("error: --watch requires a COMMAND") and shown.count("\n") == 1


@in_real_time
def test_lines_come_before_any_packet(cli: Cli) -> None:
    done = cli("link", "--rate", "2Mbit/s", "--watch", "--", "sleep", "2.5")
    assert re.findall(r"^ +(\d)\.\d s no packet yet$", done.stderr, re.MULTILINE) == ["1", "2"]
