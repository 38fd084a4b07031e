"""What tests of a link share: what they need, and that nothing of them stays."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

#: A whole link takes a moment to come up and to end.
PATIENCE_S = 60


#: Over a link; skipped where there is none. A busy machine only makes such a test longer.
needs_link = pytest.mark.link
#: Over a link, with numbers that depend on time; void on a busy machine.
in_real_time = pytest.mark.realtime
needs_iperf3 = pytest.mark.skipif(
    shutil.which("iperf3") is None, reason="iperf3 is not here: apt-get install iperf3"
)
needs_ping = pytest.mark.skipif(
    shutil.which("ping") is None, reason="ping is not here: apt-get install iputils-ping"
)

#: Sends datagrams of a size to the server at a rate for a while; the arguments say it all.
BLAST = """
import socket, sys, time
size, packets_per_s, seconds, host, tos = sys.argv[1:]
family = socket.AF_INET6 if ":" in host else socket.AF_INET
out = socket.socket(family, socket.SOCK_DGRAM)
if family == socket.AF_INET6:
    out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, int(tos))
else:
    out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(tos))
start, sent = time.monotonic(), 0
while (now := time.monotonic() - start) < float(seconds):
    while sent < now * float(packets_per_s):
        try:
            out.sendto(bytes(int(size)), (host, 9000))
        except OSError:
            pass
        sent += 1
    time.sleep(0.001)
"""


def blast(size: int, rate: float, seconds: float, host: str, tos: int = 0) -> list[str]:
    """A command that sends `rate` datagrams of `size` bytes per second."""
    return [sys.executable, "-c", BLAST, *map(str, [size, rate, seconds, host, tos])]


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """No test leaves a keeper, and with it a namespace."""
    yield
    deadline = time.monotonic() + 10
    while (left := keepers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not left


def keepers() -> list[int]:
    """Keepers that this test has started: other links may be up on the machine."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text() == "forebay-keeper\n":
                environment = (entry / "environ").read_bytes()
                if f"PYTEST_LINK={os.getpid()}\0".encode() in environment:
                    found.append(int(entry.name))
        except OSError:
            continue
    return found


def commands_with(mark: str) -> list[str]:
    """Command lines of the processes whose environment has this."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return found


def wait_until(mark: str, *, runs: str | None) -> None:
    """Until one of those runs what has `runs` in its words, or none is left; a minute at most."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        found = commands_with(mark)
        if any(runs in line for line in found) if runs else not found:
            return
        time.sleep(0.1)


@pytest.fixture(autouse=True)
def marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_LINK", str(os.getpid()))
