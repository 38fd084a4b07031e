"""A real link, watched and steered from the studio and by its socket."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from chromium import browser, faults, needs_chromium, opened, studio
from conftest import Cli, command
from links import PATIENCE_S, blast, marked, needs_link, nothing_stays

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser", "faults", "marked", "nothing_stays"]  # fixtures that are in force here

pytestmark = needs_link


@contextmanager
def real_link(folder: Path, *more: str) -> Iterator[Path]:
    """A link under PI that carries datagrams faster than it can send, until the block ends."""
    path = folder / "link.sock"
    words = ["--rate", "4Mbit/s", "--buffer", "100p", "--aqm", "pi", "--set", "target=20p"]
    words += ["--gains", "paper"]
    sender = blast(1000, 700, 60, "198.18.0.2")
    process = subprocess.Popen(
        command("link", "-q", "--control", path, *words, *more, "--", *sender),
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert process.poll() is None and time.monotonic() < deadline, process.stderr
            time.sleep(0.05)
        yield path
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    # Nothing of it stays.
    assert not path.exists()


def request(path: Path, *lines: str) -> list[str]:
    """The answers to some requests, as any program would ask."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(str(path))
        link.sendall("".join(f"{line}\n" for line in lines).encode())
        link.shutdown(socket.SHUT_WR)
        text = b"".join(iter(lambda: link.recv(65536), b"")).decode()
    return text.split("\n\n")[:-1]


def test_a_link_takes_changes_while_it_runs(tmp_path: Path) -> None:
    with real_link(tmp_path, "--out", "out", "--no-report") as path:
        assert path.stat().st_mode & 0o777 == 0o600
        (before,) = request(path, "up")
        assert before.startswith("rate=4Mbit/s law=pi target=20p a=0.00001822")
        answers = request(path, "up target=10furlongs", "up rate=2Mbit/s target=40p a=0.001", "up")
        assert answers[0].startswith(
            'error target: "10furlongs" is not valid; expected a queue length such as "200p"'
        )
        assert answers[2].startswith("rate=2Mbit/s law=pi ")
        assert "target=40p" in answers[2] and "a=0.001" in answers[2]
        deadline = time.monotonic() + PATIENCE_S
        wanted = 'forebay_link_rate_bits_per_second{direction="up",kind="pi"} 2000000'
        while wanted not in request(path, "metrics")[0]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # A second link does not take the first one's place.
        taken = subprocess.run(
            command("link", "--rate", "1Mbit/s", "--control", path, "--", "true"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert taken.returncode == 2 and taken.stderr.endswith(
            "cannot be used (Address already in use (os error 98)); expected a path in a writable "
            "folder at which there is no file\n"
        ), taken.stderr
    changes = json.loads((tmp_path / "out" / "link.json").read_text())["changed_by_hand"]
    assert "2Mbit/s" in json.dumps(changes)


def test_no_link_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in ["nothing.sock", "file"]:
        done = cli("studio", "--no-open", "--link", path)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        assert f'--link: "{path}"' in done.stderr


@needs_chromium
def test_a_real_link_is_watched_and_steered_in_the_page(
    browser: Browser, faults: list[str], tmp_path: Path
) -> None:
    with (
        real_link(tmp_path) as path,
        studio(tmp_path, "--link", str(path)) as (address, _),
    ):
        page = opened(browser, address, faults)
        card = page.locator("#live")
        card.get_by_text("4Mbit/s under pi").wait_for()
        rate = page.locator("#c-live-rate")
        rate.fill("2Mbit/s")
        rate.press("Enter")
        card.get_by_text("2Mbit/s under pi").wait_for()
        # What the link refuses is said, and it goes on.
        target = page.locator("#c-live-target")
        target.fill("20furlongs")
        target.press("Enter")
        page.get_by_text('target: "20furlongs" is not valid; expected a queue').wait_for()
        page.get_by_role("button", name="Use the gains of law A").click()
        wanted = "rate=2Mbit/s law=pi target=50p a=0.0002592 b=0.0002562"
        deadline = time.monotonic() + PATIENCE_S
        while not request(path, "up")[0].startswith(wanted):
            assert time.monotonic() < deadline
            page.wait_for_timeout(50)
        page.locator("#live-law").select_option("codel")
        card.get_by_text("2Mbit/s under codel").wait_for()
        queue = page.locator("#live-numbers dd").first.text_content()
        assert queue is not None and float(queue) > 0
        page.screenshot(path=tmp_path / "studio-link.png", full_page=True)
        print(tmp_path / "studio-link.png")
        assert faults == []
