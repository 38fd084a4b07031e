"""What tests in a real browser share: Debian's Chromium, and the studio as a user starts it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

#: A busy machine takes its time; what never comes fails all the same.
PATIENCE_MS = 180_000
CHROMIUM = Path("/usr/bin/chromium")
needs_chromium = pytest.mark.skipif(
    not CHROMIUM.exists(), reason="chromium is not here: apt-get install chromium"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def studio(folder: Path, *arguments: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`forebay studio --no-open`: its address, and its process; ends it as Ctrl-C does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "forebay", "studio", "--no-open", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line.startswith("Studio: http://127.0.0.1:"), process.communicate()[1]
        yield line.split()[1], process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            out, err = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 0, err
    assert (out, err) == ("", "Press Ctrl-C to stop.\n")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def faults() -> list[str]:
    return []


def new_page(browser: Browser, width: int, height: int, **options: Any) -> Page:
    """An empty page of so many pixels, in a context of its own, that waits for long."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


def opened(
    browser: Browser, address: str, faults: list[str], width: int = 1440, scheme: str = "light"
) -> Page:
    page = new_page(browser, width, 900, color_scheme=scheme, accept_downloads=True)
    page.on(
        "console",
        lambda it: faults.append(it.text) if it.type in ("error", "warning") else None,
    )
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on(
        "request",
        lambda it: (
            None
            if it.url.startswith(address.split("#")[0])
            or it.url.startswith(("data:", "blob:", "ws:"))
            else faults.append(it.url)
        ),
    )
    page.goto(address)
    settled(page)
    return page


def settled(page: Page) -> None:
    """Until the newest state is drawn to its end."""
    for _ in range(1200):
        page.wait_for_timeout(50)
        sent = page.evaluate("window.studio.sent()")
        if sent and page.get_attribute("html", "data-done") == str(sent):
            return
    raise AssertionError("the newest state was not drawn")
